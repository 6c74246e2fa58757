//! Would it see a mistake? Deliberate faults of the policies, each looked for until it is found.

use punctual_analysis::mutation::{Mutation, choose};

use crate::opinion::{STATES_SHORT, opinion};
use crate::tally::Tally;

const SEED: u64 = 1;
const SETS_MAX: u64 = 40_000;
/// Without a fault nothing is found in so many.
const SETS_HONEST: u64 = 1_000;

const FAULTS: [Mutation; 8] = [
    Mutation::BlockingOffByOnePacket,
    Mutation::MessageLevelCosts,
    Mutation::FirstInstanceOnly,
    Mutation::LimitWithoutBlocking,
    Mutation::DeadlineFilterAtDepthTwo,
    Mutation::ReleaseLatencyLeftOut,
    Mutation::TailWithoutReleaseLatency,
    Mutation::HardEarlyNotCounted,
];

/// The first set of which something is wrong, whatever the crate `response-time-analysis` says.
fn found(fault: Mutation) -> Option<u64> {
    choose(Some(fault));
    let set = (0..SETS_MAX).find(|&set| !opinion(SEED, set, STATES_SHORT).broken.is_empty());
    choose(None);
    set
}

#[test]
fn deliberate_faults_are_found() {
    let mut tally = Tally::default();
    (0..SETS_HONEST).for_each(|set| tally.add(&opinion(SEED, set, STATES_SHORT)));
    assert!(tally.broken.is_empty(), "{}", tally.broken.join("\n"));
    for fault in FAULTS {
        let set = found(fault).unwrap_or_else(|| panic!("{fault:?} is not found in {SETS_MAX} sets"));
        println!("{fault:?}: found in set {set}");
    }
}
