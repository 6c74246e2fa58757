//! Programs' handlers beside channels (ADR 0051): no admitted channel is late because of them, and each that
//! is granted keeps its bound, under every policy. Networks without handlers are unchanged bit by bit
//! (`seeds`).

use punctual_analysis::{Nanos, Ppm};
use punctual_sim::{
    Class, FaultChoice, FaultKinds, Faults, Options, Outcome, Sabotage, SizeChoice, Traffic, run,
};

fn beside(class: Option<Class>) -> Options {
    Options {
        class,
        handlers: true,
        faults: FaultChoice::These(Faults::NONE),
        sizes: SizeChoice::Small,
        traffic: Traffic::For(Nanos::from_millis(400)),
        ..Options::default()
    }
}

fn outcome(seed: u64, options: &Options) -> Outcome {
    run(seed, options).unwrap_or_else(|error| panic!("seed {seed}: {error}"))
}

fn nothing_is_late(seeds: core::ops::Range<u64>, options: &Options) {
    let (mut messages, mut handlers, mut upcalls, mut packets) = (0, 0, 0, 0);
    for seed in seeds {
        let outcome = outcome(seed, options);
        assert!(outcome.violations.is_empty(), "seed {seed}: {:#?}", outcome.violations);
        (messages, handlers, upcalls) =
            (messages + outcome.messages, handlers + outcome.handlers, upcalls + outcome.upcalls);
        packets += outcome.upcall_packets;
    }
    let enough = messages > 1_000 && handlers > 100 && upcalls > 10_000 && packets > 3_000;
    assert!(enough, "{messages}, {handlers}, {upcalls}, {packets}");
}

#[test]
fn channels_and_handlers_keep_their_bounds_beside_each_other() {
    nothing_is_late(0..60, &beside(None));
}

#[test]
fn they_do_where_every_margin_is_small() {
    nothing_is_late(0..30, &beside(Some(Class::Tight)));
}

#[test]
fn handlers_survive_what_goes_wrong_around_them() {
    let options = Options { faults: FaultChoice::Drawn, ..beside(None) };
    let kinds: FaultKinds = "all".parse().expect("kinds");
    nothing_is_late(0..40, &options.with_faults(kinds));
}

/// The violations in ten networks with this sabotage.
fn reported(sabotage: Sabotage) -> Vec<String> {
    let options = Options { sabotage, ..beside(None) };
    let violations = (0..10).flat_map(|seed| outcome(seed, &options).violations);
    violations.map(|violation| violation.what).collect()
}

fn caught(sabotage: Sabotage, words: &[&str]) {
    let reported = reported(sabotage);
    for words in words {
        assert!(reported.iter().any(|what| what.contains(words)), "no \"{words}\" in {reported:#?}");
    }
}

#[test]
fn handlers_that_are_never_called_are_caught() {
    let sabotage = Sabotage { handlers_unheard: Ppm(200_000), ..Sabotage::default() };
    caught(sabotage, &["released", "PDUs within", "waits for what is less urgent"]);
}

#[test]
fn handlers_that_take_more_than_they_are_given_are_caught() {
    let sabotage = Sabotage { handlers_greed: 1, ..Sabotage::default() };
    caught(sabotage, &["PDUs in a period", "Demoted(RtuId", "IgnoredYield"]);
}

#[test]
fn handlers_that_take_longer_than_declared_are_caught() {
    let sabotage = Sabotage { cpu_cost_percent: 300, ..Sabotage::default() };
    caught(sabotage, &["Overrun)", "overruns: "]);
}
