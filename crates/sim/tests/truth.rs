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
fn late_messages_are_reported_and_the_broken_stage_is_named() {
    let mut reported = TimelinessCounts::default();
    for seed in 0..SEEDS {
        let outcome = punctual_sim::run(seed, &broken()).expect("a plan");
        assert!(outcome.violations.is_empty(), "seed {seed}: {:?}", outcome.violations);
        reported += outcome.reported;
    }
    println!("{reported:?}");
    assert!(reported.compared > 100_000 && reported.late > 500 && reported.surely_late > 500, "{reported:?}");
    assert_eq!((reported.late_reported, reported.unmeasured), (reported.late, 0), "{reported:?}");
    assert!(reported.breaches >= 5 && reported.named == reported.breaches, "{reported:?}");
    assert_eq!(reported.misnamed, 0, "another stage than the broken one: {reported:?}");
}

#[test]
fn without_breaches_no_stage_is_reported_and_everything_is_measured() {
    for seed in 0..12 {
        let options =
            Options { sizes: SizeChoice::Small, ..Options::default().with_faults(FaultKinds::NONE) };
        let outcome = punctual_sim::run(seed, &options).expect("a plan");
        assert!(outcome.violations.is_empty(), "seed {seed}: {:?}", outcome.violations);
        let TimelinessCounts { compared, unmeasured, late, .. } = outcome.reported;
        assert!(compared > 0 && unmeasured == 0 && late == 0, "seed {seed}: {:?}", outcome.reported);
    }
}
