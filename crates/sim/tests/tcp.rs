//! TCP connections beside channels (ADR 0054) and over them (ADR 0055): the endsystem and the handlers that engines drive, in whole networks. Every byte
//! arrives in order, no channel is late because of a connection, no handler has more than its budget, guaranteed data has its
//! bound, and everything is given back. Networks without TCP are unchanged bit by bit (`seeds`).

use std::path::Path;

use punctual_analysis::{Nanos, Ppm};
use punctual_sim::case::Case;
use punctual_sim::outcome::TcpCounts;
use punctual_sim::{
    Class, FaultChoice, FaultKinds, Faults, Options, Outcome, Sabotage, SizeChoice, Traffic, run,
};

/// Seeds of the sample, unless `PUNCTUAL_SIM_TCP_SEEDS` is set to another number.
const SEEDS: u64 = 30;

fn with_tcp() -> Options {
    Options {
        tcp: true,
        faults: FaultChoice::These(Faults::NONE),
        sizes: SizeChoice::Small,
        traffic: Traffic::For(Nanos::from_millis(300)),
        ..Options::default()
    }
}

fn outcome(seed: u64, options: &Options) -> Outcome {
    run(seed, options).unwrap_or_else(|error| panic!("seed {seed}: {error}"))
}

/// What connections did in all seeds, none of which may violate anything.
fn nothing_is_violated(options: &Options) -> (TcpCounts, u64) {
    let seeds = std::env::var("PUNCTUAL_SIM_TCP_SEEDS").ok().and_then(|text| text.parse().ok());
    let (mut tcp, mut messages) = (TcpCounts::default(), 0);
    for seed in 0..seeds.unwrap_or(SEEDS) {
        let outcome = outcome(seed, options);
        assert!(outcome.violations.is_empty(), "seed {seed}: {:#?}", outcome.violations);
        tcp += outcome.tcp;
        messages += outcome.messages;
    }
    println!("{tcp:?}");
    assert!(messages > 5_000 && tcp.complete > 30 && tcp.bytes > 1_000_000, "{messages}, {tcp:?}");
    (tcp, messages)
}

#[test]
fn connections_and_channels_keep_their_promises_beside_each_other() {
    let (tcp, _) = nothing_is_violated(&with_tcp());
    assert!(tcp.promised > 1_000 && tcp.periods > 50 && tcp.excused > 5 && tcp.late > 30, "{tcp:?}");
    assert!(tcp.paths > 5 && tcp.path_packets > 500, "{tcp:?}");
}

#[test]
fn bytes_arrive_whatever_happens_to_segments() {
    let options = Options { faults: FaultChoice::Drawn, ..with_tcp() };
    nothing_is_violated(&options.with_faults("frames".parse().expect("kinds")));
}

#[test]
fn connections_survive_what_goes_wrong_around_them() {
    let kinds: FaultKinds = "all".parse().expect("kinds");
    nothing_is_violated(&Options { faults: FaultChoice::Drawn, ..with_tcp() }.with_faults(kinds));
}

#[test]
fn programs_handlers_and_small_margins_change_nothing() {
    let with_handlers = Options { handlers: true, ..with_tcp() };
    nothing_is_violated(&with_handlers);
    // A call of 1.9 ms, longer than the release latency: what a source sends meanwhile counts from then on.
    let long_call = outcome(67, &with_handlers);
    assert!(long_call.violations.is_empty(), "{:#?}", long_call.violations);
    let tight = Options { class: Some(Class::Tight), ..with_tcp() };
    let seeds = (0..10).map(|seed| outcome(seed, &tight)).collect::<Vec<_>>();
    assert!(seeds.iter().all(|outcome| outcome.violations.is_empty()), "{seeds:#?}");
}

/// The violations in twenty networks with this sabotage.
fn violations(sabotage: Sabotage) -> Vec<String> {
    let options = Options { sabotage, ..with_tcp() };
    let all = (0..20).flat_map(|seed| outcome(seed, &options).violations);
    all.map(|violation| violation.what).collect()
}

#[test]
fn bytes_that_are_altered_are_caught() {
    let found = violations(Sabotage { tcp_misread: Ppm(10_000), ..Sabotage::default() });
    assert!(found.iter().any(|what| what.contains("is not the one that was written")), "{found:#?}");
}

/// The handler of a link has the timers of all its connections in TIME-WAIT: the end of one must not lose those of the others.
#[test]
fn timers_that_are_lost_with_a_connection_are_caught() {
    let found = violations(Sabotage { tcp_timers_lost: true, ..Sabotage::default() });
    assert!(found.iter().any(|what| what.contains("all connections are over, held are")), "{found:#?}");
}

/// A host that does not close the channels of a connection which is over: they are there in the end.
#[test]
fn channels_that_are_kept_are_caught() {
    let found = violations(Sabotage { tcp_path_kept: true, ..Sabotage::default() });
    assert!(found.iter().any(|what| what.contains("after teardown")), "{found:#?}");
}

/// Links that are slower than declared: packets of connections are later than the bound of their path.
#[test]
fn a_path_that_is_late_is_caught() {
    let options =
        Options { sabotage: Sabotage { link_rate_percent: 40, ..Sabotage::default() }, ..with_tcp() };
    let late = |seed| {
        outcome(seed, &options)
            .violations
            .into_iter()
            .any(|it| it.what.contains("Breaker") && it.what.contains("is late by"))
    };
    assert!((0..30).any(late));
}

#[test]
fn work_that_takes_longer_than_declared_is_caught() {
    let found = violations(Sabotage { cpu_cost_percent: 300, ..Sabotage::default() });
    assert!(found.iter().any(|what| what.contains("a handler of TCP is honest")), "{found:#?}");
}

#[test]
fn the_same_seed_is_the_same_run() {
    let [one, two] = [(); 2].map(|()| outcome(3, &with_tcp()));
    assert_eq!((one.digest, one.tcp), (two.digest, two.tcp));
    let without = outcome(3, &Options { tcp: false, ..with_tcp() });
    assert!(without.tcp.is_none() && without.digest != one.digest);
}

/// A case can have TCP, and keep a part of its connections.
#[test]
fn cases_have_tcp_and_parts_of_it() {
    let case: Case = toml::from_str(
        "seed = 26\nlesson = \"none\"\ntcp = true\nsize = \"small\"\ntraffic_ms = 100\nframes = {}\n[cut]\nconnections = [0]",
    )
    .expect("a case");
    let outcome = case.run(Path::new("case.toml"), false).expect("it runs");
    let opened = outcome.tcp.opened;
    let whole = Case { cut: Default::default(), ..case }.run(Path::new("case.toml"), false).expect("it runs");
    assert!(outcome.violations.is_empty() && opened <= 1 && whole.tcp.opened > 1, "{opened}");
}
