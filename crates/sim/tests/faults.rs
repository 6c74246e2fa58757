//! Whole networks under faults of every kind: channels that a fault does not touch keep every promise, and
//! those that it has touched work again afterwards. `sabotage.rs` tests that each of these checks can fail.

use punctual_analysis::Nanos;
use punctual_sim::faults::{Fault, FaultAction, Moment};
use punctual_sim::time::SimTime;
use punctual_sim::{
    FaultChoice, FaultKind, FaultKinds, Faults, Options, Outcome, ScheduleChoice, SizeChoice, Topology,
    Traffic, run,
};

const BUSY: &str = include_str!("busy.toml");

fn outcome(seed: u64, options: &Options) -> Outcome {
    run(seed, options).unwrap_or_else(|error| panic!("seed {seed}: {error}"))
}

fn of_kinds(kinds: FaultKinds) -> Options {
    Options { sizes: SizeChoice::Small, ..Options::default() }.with_faults(kinds)
}

fn holds(seed: u64, options: &Options, what: &str) -> Outcome {
    let outcome = outcome(seed, options);
    assert!(outcome.violations.is_empty(), "seed {seed}, {what}: {:#?}", outcome.violations);
    outcome
}

/// The busy network, without faults besides those of `schedule`.
fn busy(schedule: Vec<Fault>) -> Options {
    Options {
        topology: Some(Topology::parse(BUSY).expect("the file is good")),
        faults: FaultChoice::These(Faults::NONE),
        schedule: ScheduleChoice::These(schedule),
        traffic: Traffic::For(Nanos::from_millis(600)),
        ..Options::default()
    }
}

#[test]
fn every_kind_of_fault_harms_only_what_it_touches() {
    for kind in FaultKind::ALL {
        let options = of_kinds(FaultKinds::NONE.with(kind));
        let sum: u64 = (0..4).map(|seed| holds(seed, &options, kind.name()).excused).sum();
        let harmless = matches!(kind, FaultKind::Forge | FaultKind::Flood | FaultKind::Apps);
        assert!(harmless || sum > 0, "{} never touched anything", kind.name());
    }
}

#[test]
fn faults_of_all_kinds_at_once_harm_only_what_they_touch() {
    for seed in 100..110 {
        holds(seed, &of_kinds(FaultKinds::ALL), "all");
    }
}

#[test]
fn larger_networks_keep_every_promise() {
    for (size, seed) in [(SizeChoice::Medium, 1), (SizeChoice::Medium, 2), (SizeChoice::Large, 1)] {
        let options =
            Options { sizes: size, traffic: Traffic::For(Nanos::from_millis(300)), ..Options::default() };
        assert!(holds(seed, &options, "larger").admitted > 10);
    }
}

#[test]
fn the_same_schedule_gives_the_same_digest_and_another_one_another() {
    let digest = |kinds| outcome(5, &of_kinds(kinds)).digest;
    assert_eq!(digest(FaultKinds::ALL), digest(FaultKinds::ALL));
    assert_ne!(digest(FaultKinds::ALL), digest(FaultKinds::NONE));
}

/// A crash of each host after each of the first signalling packets that it handles or sends while channels are opened.
#[test]
fn a_crash_at_any_step_of_a_handshake_leaves_nothing_behind() {
    for packets in 1..8 {
        for host in 0..2 {
            for moment in [Moment::Handled(packets), Moment::Sent(packets)] {
                let at = SimTime(400_000_000);
                let crash =
                    Fault { at, lasts: Nanos::from_millis(300), what: FaultAction::Crash { host, moment } };
                let options = busy(vec![crash]);
                holds(1, &options, &format!("{moment:?} at host {host}"));
            }
        }
    }
}

/// The last host of the busy network is upgraded for a while, alone or beside another.
#[test]
fn hosts_of_another_version_are_refused_with_that_reason_and_others_live_on() {
    let version = |host| Fault {
        at: SimTime(900_000_000),
        lasts: Nanos::from_millis(1_700),
        what: FaultAction::Version { host },
    };
    for schedule in [vec![version(0)], vec![version(1)], vec![version(2)], vec![version(3)]] {
        let outcome = holds(1, &busy(schedule.clone()), &format!("{schedule:?}"));
        assert!(outcome.refused_versions > 0, "{schedule:?}: nobody asked across it");
        assert!(outcome.excused < outcome.messages, "{schedule:?}: others live on");
    }
    let options = of_kinds(FaultKinds::NONE.with(FaultKind::Version));
    let refused: u64 = (0..16).map(|seed| holds(seed, &options, "version").refused_versions).sum();
    assert!(refused > 10, "{refused}");
}
