//! Tests that the search detects mistakes. It searches for each deliberate fault of the policies until it is
//! found.

use punctual_analysis::mutation::{Mutation, choose};

use crate::opinion::{STATES_SHORT, opinion};
use crate::soft_limit;
use crate::tally::Tally;

const SEED: u64 = 1;
const SETS_MAX: u64 = 40_000;
/// Number of sets without a fault in which nothing may be found.
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

/// The first set in which a check fails, without the comparison with the crate `response-time-analysis`.
fn found(fault: Mutation) -> Option<u64> {
    choose(Some(fault));
    let set = (0..SETS_MAX).find(|&set| !opinion(SEED, set, STATES_SHORT).broken.is_empty());
    choose(None);
    set
}

#[test]
fn deliberate_faults_are_found() {
    choose(Some(Mutation::TailExponentTenthOff));
    let set = (0..SETS_MAX).find(|&set| soft_limit::exceeded(set).is_some());
    choose(None);
    println!("TailExponentTenthOff: found in set {}", set.expect("it is found"));
    let mut tally = Tally::default();
    (0..SETS_HONEST).for_each(|set| tally.add(&opinion(SEED, set, STATES_SHORT)));
    assert!(tally.broken.is_empty(), "{}", tally.broken.join("\n"));
    for fault in FAULTS {
        let set = found(fault).unwrap_or_else(|| panic!("{fault:?} is not found in {SETS_MAX} sets"));
        println!("{fault:?}: found in set {set}");
    }
}
