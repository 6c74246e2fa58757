//! Drain rates of links are measured repeatedly in drawn networks: the results are true, and no promise is
//! broken.

use punctual_analysis::Nanos;
use punctual_sim::{Class, FaultChoice, Faults, Options, ScheduleChoice, SizeChoice, Traffic, run};

fn measuring(class: Class) -> Options {
    Options {
        class: Some(class),
        measure: true,
        sizes: SizeChoice::Small,
        faults: FaultChoice::These(Faults::NONE),
        schedule: ScheduleChoice::These(Vec::new()),
        traffic: Traffic::For(Nanos::from_millis(1_500)),
        ..Options::default()
    }
}

#[test]
fn links_are_measured_rightly_and_no_promise_suffers() {
    let mut measured = 0;
    for seed in 0..16 {
        let class = if seed % 2 == 0 { Class::Mixed } else { Class::Tight };
        let outcome = run(seed, &measuring(class)).expect("a network");
        assert_eq!(outcome.violations, [], "seed {seed}");
        measured += outcome.measured;
    }
    assert!(measured > 40, "{measured} links were measured");
}
