//! Hosts with long uptime: channels are opened and closed, and no state of them is left at the end.

use punctual_analysis::Nanos;
use punctual_sim::{FaultKinds, Options, SizeChoice, Traffic, run};

/// Ten minutes here; `punctual sim --seed 1 --size small --uptime-h 24` is the whole day.
#[test]
fn channels_come_and_go_and_nothing_leaks() {
    let options = Options {
        sizes: SizeChoice::Small,
        traffic: Traffic::Uptime(Nanos::from_secs(600)),
        ..Options::default().with_faults(FaultKinds::NONE)
    };
    for seed in [1, 2] {
        let outcome = run(seed, &options).expect("runs");
        assert!(outcome.violations.is_empty(), "seed {seed}: {:#?}", outcome.violations);
        assert!(outcome.admitted > 50 && outcome.messages > 1_000, "seed {seed}: {outcome:?}");
        assert!(outcome.elapsed > Nanos::from_secs(600), "seed {seed}: {}", outcome.elapsed);
    }
}

/// Faults come first; after a long uptime no state is leaked either.
#[test]
fn nothing_leaks_after_faults_nor_of_soft_channels() {
    let options = Options {
        sizes: SizeChoice::Small,
        traffic: Traffic::Uptime(Nanos::from_secs(300)),
        ..Options::default().with_faults(FaultKinds::ALL)
    };
    for seed in [0, 2, 4, 6, 10] {
        let outcome = run(seed, &options).expect("runs");
        assert!(outcome.violations.is_empty(), "seed {seed}: {:#?}", outcome.violations);
        assert!(outcome.admitted > 20 && outcome.messages > 100, "seed {seed}: {outcome:?}");
        assert!(outcome.elapsed > Nanos::from_secs(300), "seed {seed}: {}", outcome.elapsed);
    }
}

/// Minutes here; `punctual sim --seed 1 --size small --drift-h 2` takes hours.
#[test]
fn clocks_that_part_by_200_ppm_delay_and_demote_nothing() {
    let options = Options {
        sizes: SizeChoice::Small,
        traffic: Traffic::Drift(Nanos::from_secs(120)),
        ..Options::default()
    };
    for seed in [1, 2, 5] {
        let outcome = run(seed, &options).expect("runs");
        assert!(outcome.violations.is_empty(), "seed {seed}: {:#?}", outcome.violations);
        assert_eq!((outcome.misses, outcome.excused), (0, 0), "seed {seed}");
        assert!(outcome.messages > 5_000, "seed {seed}: {} messages", outcome.messages);
        assert!(outcome.elapsed > Nanos::from_secs(120), "seed {seed}: {}", outcome.elapsed);
    }
}
