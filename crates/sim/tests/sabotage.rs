//! Every check of the simulator can fail: its violation is caused deliberately, on the busy network.

use punctual_analysis::{Nanos, Ppm};
use punctual_sim::faults::{Fault, FaultAction, Moment};
use punctual_sim::time::SimTime;
use punctual_sim::{
    Class, FaultChoice, FaultKinds, Faults, Options, Outcome, Sabotage, ScheduleChoice, SizeChoice, Topology,
    Traffic, Versions, run,
};

const BUSY: &str = include_str!("busy.toml");

fn outcome(seed: u64, options: &Options) -> Outcome {
    run(seed, options).unwrap_or_else(|error| panic!("seed {seed}: {error}"))
}

/// The busy network, without faults besides those of `schedule`.
fn busy(schedule: Vec<Fault>, sabotage: Sabotage) -> Options {
    Options {
        topology: Some(Topology::parse(BUSY).expect("the file is good")),
        faults: FaultChoice::These(Faults::NONE),
        schedule: ScheduleChoice::These(schedule),
        traffic: Traffic::For(Nanos::from_millis(600)),
        sabotage,
        ..Options::default()
    }
}

/// A fault in the middle of the traffic of [`busy`].
fn amidst(what: FaultAction, lasts: Nanos) -> Vec<Fault> {
    vec![Fault { at: SimTime(1_200_000_000), lasts, what }]
}

fn caught(options: &Options, words: &str) {
    let outcome = outcome(1, options);
    let reported = outcome.violations.iter().any(|violation| violation.what.contains(words));
    assert!(reported, "no \"{words}\" in {:#?}", outcome.violations);
}

#[test]
fn a_message_that_comes_twice_is_caught() {
    let sabotage = Sabotage { deliver_twice: Ppm(5_000), ..Sabotage::default() };
    caught(&busy(Vec::new(), sabotage), "delivered twice");
}

#[test]
fn a_misdelivered_message_is_caught() {
    let sabotage = Sabotage { misdeliver: Ppm(5_000), ..Sabotage::default() };
    caught(&busy(Vec::new(), sabotage), "misdelivered");
}

#[test]
fn reservations_without_a_channel_are_caught_while_channels_are_open_and_after() {
    let options = busy(Vec::new(), Sabotage { books_off: true, ..Sabotage::default() });
    caught(&options, "its stages");
    caught(&options, "after teardown");
    let options = busy(Vec::new(), Sabotage { shares_off: true, ..Sabotage::default() });
    caught(&options, "ppm given away, its channels take");
}

#[test]
fn a_channel_without_a_source_is_caught() {
    let options = busy(Vec::new(), Sabotage { sources_denied: true, ..Sabotage::default() });
    caught(&options, "after its source has lost it");
}

#[test]
fn more_work_than_a_call_may_do_is_caught() {
    caught(&busy(Vec::new(), Sabotage { effort_percent: 1, ..Sabotage::default() }), "operations on buffers");
}

#[test]
fn best_effort_that_gets_too_little_is_caught() {
    let sabotage = Sabotage { link_rate_percent: 40, ..Sabotage::default() };
    let starved = |seed| {
        let outcome = outcome(seed, &busy(Vec::new(), sabotage));
        outcome.violations.iter().any(|violation| violation.what.contains("best effort waits"))
    };
    assert!((1..9).any(starved), "best effort never waits too long");
}

/// A partition that lasts longer than the time after which everything must work.
#[test]
fn a_network_that_does_not_heal_is_caught() {
    let partition = amidst(FaultAction::Partition { host: 0, link: 0, both: true }, Nanos::from_secs(30));
    let options = busy(partition, Sabotage::default());
    caught(&options, "does not hear its neighbour");
    caught(&options, "refused without a fault");
}

/// A host that is upgraded for a while, with the violation `versions`.
fn upgraded(versions: Versions) -> Options {
    let (at, lasts) = (SimTime(900_000_000), Nanos::from_millis(1_700));
    let upgrade = Fault { at, lasts, what: FaultAction::Version { host: 1 } };
    busy(vec![upgrade], Sabotage { versions, ..Sabotage::default() })
}

#[test]
fn neighbours_that_do_not_acknowledge_are_caught() {
    let options = upgraded(Versions::Denied);
    caught(&options, "reports about its neighbour");
    caught(&options, "is refused by silence");
}

#[test]
fn a_channel_that_is_opened_across_versions_is_caught() {
    caught(&upgraded(Versions::Common), "opened across hosts");
}

#[test]
fn unknown_and_expired_versions_are_caught() {
    caught(&upgraded(Versions::Third), "refused for versions");
    let options = upgraded(Versions::Kept);
    caught(&options, "still takes its neighbour");
    caught(&options, "refused for versions");
}

#[test]
fn a_channel_that_its_source_does_not_list_is_caught() {
    let sabotage = Sabotage { listings_denied: true, ..Sabotage::default() };
    caught(&busy(Vec::new(), sabotage), "its source does not list it");
}

#[test]
fn a_soft_channel_that_is_called_hard_is_caught() {
    let sabotage = Sabotage { softness_denied: true, ..Sabotage::default() };
    let quiet = Options { sizes: SizeChoice::Small, ..Options::default() }.with_faults(FaultKinds::NONE);
    let options = Options { class: Some(Class::Soft), sabotage, ..quiet };
    let reported = |words: &str| {
        let reports =
            |seed| outcome(seed, &options).violations.iter().any(|reported| reported.what.contains(words));
        assert!((0..8).any(reports), "no \"{words}\"");
    };
    reported("calls its guarantee Hard");
    reported("soft channels, it lists 0");
}

#[test]
fn a_channel_that_is_refused_on_an_empty_network_is_caught() {
    let crash = amidst(FaultAction::Crash { host: 0, moment: Moment::Now }, Nanos::from_millis(100));
    let sabotage = Sabotage { revivals_refused: true, ..Sabotage::default() };
    caught(&busy(crash, sabotage), "is refused alone");
}
