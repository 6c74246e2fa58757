//! Assumptions are broken deliberately, and nodes' reports are compared with true time, which only the
//! simulator has.

use punctual_analysis::Nanos;
use punctual_sim::{FaultKind, FaultKinds, Options, SizeChoice, TimelinessCounts, Traffic};

/// Enough for every kind of breach, at stages that channels pass and at others.
const SEEDS: u64 = 40;

fn broken() -> Options {
    Options {
        sizes: SizeChoice::Small,
        traffic: Traffic::For(Nanos::from_secs(3)),
        ..Options::default().with_faults(FaultKinds::NONE.with(FaultKind::Breach))
    }
}

#[test]
fn what_is_late_is_told_as_late_and_the_broken_stage_is_named() {
    let mut told = TimelinessCounts::default();
    for seed in 0..SEEDS {
        let outcome = punctual_sim::run(seed, &broken()).expect("a plan");
        assert!(outcome.violations.is_empty(), "seed {seed}: {:?}", outcome.violations);
        told += outcome.told;
    }
    println!("{told:?}");
    assert!(told.compared > 100_000 && told.late > 500 && told.surely_late > 500, "{told:?}");
    assert_eq!((told.late_told, told.unmeasured), (told.late, 0), "{told:?}");
    assert!(told.breaches >= 5 && told.named == told.breaches, "{told:?}");
    assert_eq!(told.misnamed, 0, "another stage than the broken one: {told:?}");
}

#[test]
fn where_nothing_is_broken_nobody_is_told_of_a_stage_and_everything_is_measured() {
    for seed in 0..12 {
        let options =
            Options { sizes: SizeChoice::Small, ..Options::default().with_faults(FaultKinds::NONE) };
        let outcome = punctual_sim::run(seed, &options).expect("a plan");
        assert!(outcome.violations.is_empty(), "seed {seed}: {:?}", outcome.violations);
        let TimelinessCounts { compared, unmeasured, late, .. } = outcome.told;
        assert!(compared > 0 && unmeasured == 0 && late == 0, "seed {seed}: {:?}", outcome.told);
    }
}
