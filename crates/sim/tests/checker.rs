//! Runs are reproducible bit by bit, keep their promises, and the checker can fail.

use punctual_analysis::{Nanos, Ppm};
use punctual_sim::{
    FaultChoice, Faults, Options, Outcome, Report, Sabotage, Scenario, SizeChoice, Topology, Traffic,
    Violation, run, run_many,
};

const BUSY: &str = include_str!("busy.toml");

fn busy() -> Options {
    let topology = Topology::parse(BUSY).expect("the file is good");
    Options {
        topology: Some(topology),
        faults: FaultChoice::These(Faults::NONE),
        traffic: Traffic::For(Nanos::from_millis(600)),
        ..Options::default()
    }
}

fn small() -> Options {
    Options { sizes: SizeChoice::Small, ..Options::default() }
}

fn outcome(seed: u64, options: &Options) -> Outcome {
    run(seed, options).unwrap_or_else(|error| panic!("seed {seed}: {error}"))
}

fn sabotaged(sabotage: Sabotage) -> Outcome {
    let outcome = outcome(1, &Options { sabotage, ..busy() });
    assert!(outcome.admitted >= 4, "{outcome:?}");
    outcome
}

#[test]
fn the_same_seed_gives_the_same_digest_and_another_seed_another() {
    for seed in [3, 4] {
        assert_eq!(outcome(seed, &Options::default()), outcome(seed, &Options::default()), "seed {seed}");
    }
    assert_ne!(outcome(3, &Options::default()).digest, outcome(4, &Options::default()).digest);
}

#[test]
fn the_number_of_threads_changes_nothing() {
    let options = Options { traffic: Traffic::For(Nanos::from_millis(200)), ..Options::default() };
    let report = |threads| Report::of(&run_many(10..14, &options, threads, |_| ()).expect("runs"));
    assert_eq!(report(1), report(3));
}

#[test]
fn an_honest_busy_network_keeps_every_promise() {
    let outcome = outcome(1, &busy());
    assert!(outcome.violations.is_empty(), "{:#?}", outcome.violations);
    assert!(outcome.admitted >= 4 && outcome.messages > 200, "{outcome:?}");
}

/// Networks that once found a mistake are in tests/seeds, see `seeds.rs`.
#[test]
fn drawn_networks_keep_every_promise() {
    for seed in [0, 5, 6] {
        let outcome = outcome(seed, &Options::default());
        assert!(outcome.violations.is_empty(), "seed {seed}: {:#?}", outcome.violations);
    }
}

#[test]
fn faults_harm_only_the_channels_that_they_hit() {
    let faults = Faults {
        loss: Ppm(2_000),
        duplicate: Ppm(2_000),
        delay: Ppm(2_000),
        delay_max: Nanos::from_millis(10),
        corrupt: Ppm(1_000),
    };
    let outcome = outcome(2, &Options { faults: FaultChoice::These(faults), ..busy() });
    assert!(outcome.violations.is_empty(), "{:#?}", outcome.violations);
    assert!(outcome.excused > 0 && outcome.excused < outcome.messages, "{outcome:?}");
}

/// A host that is slower than promised makes packets late; soft channels drop them at the next host.
#[test]
fn soft_channels_drop_what_is_late_already() {
    let soft = BUSY.replace("[[channel]]\n", "[[channel]]\nlate = \"drop\"\n");
    let expired = |text: &str, cpu_cost_percent| {
        let topology = Some(Topology::parse(text).expect("good"));
        let sabotage = Sabotage { cpu_cost_percent, ..Sabotage::default() };
        outcome(1, &Options { topology, sabotage, ..busy() }).expired
    };
    assert!(expired(&soft, 40_000) > 0);
    assert_eq!((expired(&soft, 100), expired(BUSY, 40_000)), (0, 0));
}

#[test]
fn a_processor_slower_than_admission_assumes_is_caught() {
    let outcome = sabotaged(Sabotage { cpu_cost_percent: 40_000, ..Sabotage::default() });
    assert!(outcome.misses > 0 && !outcome.violations.is_empty(), "{outcome:?}");
}

#[test]
fn a_link_slower_than_configured_is_caught() {
    let outcome = sabotaged(Sabotage { link_rate_percent: 50, ..Sabotage::default() });
    assert!(outcome.misses > 0 && !outcome.violations.is_empty(), "{outcome:?}");
}

#[test]
fn a_corrupted_byte_is_caught() {
    let outcome = sabotaged(Sabotage { silent_corruption: Ppm(5_000), ..Sabotage::default() });
    assert!(outcome.violations.iter().any(|violation| violation.what.contains("altered")), "{outcome:?}");
}

#[test]
fn a_lost_message_is_caught() {
    let outcome = sabotaged(Sabotage { silent_loss: Ppm(5_000), ..Sabotage::default() });
    assert!(outcome.violations.iter().any(|violation| violation.what.contains("lost")), "{outcome:?}");
}

#[test]
fn a_driver_that_polices_an_honest_path_is_caught() {
    let outcome = sabotaged(Sabotage { burst_percent: 10, ..Sabotage::default() });
    assert!(outcome.violations.iter().any(|violation| violation.what.contains("policed")), "{outcome:?}");
}

#[test]
fn counts_without_a_holder_are_caught() {
    let outcome = sabotaged(Sabotage { accounts_off: true, ..Sabotage::default() });
    let reported = |words: &str| outcome.violations.iter().any(|violation| violation.what.contains(words));
    assert!(reported("counts 1 paths, 0 are held"), "{outcome:?}");
    assert!(outcome.violations_total > 10, "{outcome:?}");
}

#[test]
fn filters_without_a_channel_are_caught() {
    let outcome = sabotaged(Sabotage { filters_kept: true, ..Sabotage::default() });
    let reported = |violation: &&Violation| violation.what.contains("which it does not have");
    assert!(outcome.violations.iter().filter(reported).count() > 3, "{outcome:?}");
}

#[test]
fn waiting_work_without_a_handler_is_caught() {
    let outcome = sabotaged(Sabotage { waiting_off: true, ..Sabotage::default() });
    for what in ["requests to others", "asks for a link", "answers for a link", "decisions", "probes"] {
        let words = format!("has 1 {what} waiting, 0 to 0 are wanted");
        let reported = outcome.violations.iter().any(|violation| violation.what.contains(&words));
        assert!(reported, "no \"{words}\" in {outcome:?}");
    }
}

/// In one seed of four receivers request channels, beside all other activity; they get one, or a notice that
/// they do not.
#[test]
fn requesting_receivers_are_notified() {
    let asks = |seed: &u64| !Scenario::draw(*seed, &small()).expect("drawn").requests.is_empty();
    let seeds: Vec<u64> = (0..64).filter(asks).collect();
    assert!((8..24).contains(&seeds.len()), "{seeds:?}");
    let mut ended = 0;
    for seed in seeds.into_iter().take(6) {
        let outcome = outcome(seed, &small());
        assert!(outcome.violations.is_empty(), "seed {seed}: {:#?}", outcome.violations);
        ended += outcome.requests;
    }
    assert!(ended > 20, "{ended}");
}

#[test]
fn the_timeline_lists_the_events() {
    let outcome = outcome(1, &Options { trace: true, ..busy() });
    for word in ["channel 0 open", "sends #0", "gets #0", "closed at its"] {
        assert!(outcome.trace.lines().any(|line| line.contains(word)), "no \"{word}\"");
    }
}
