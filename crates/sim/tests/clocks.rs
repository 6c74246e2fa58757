//! Hosts whose clocks are of different quality: each bound counts the worst clock of its route.

use punctual_analysis::Ppm;
use punctual_sim::{FaultKinds, Options, Scenario, SizeChoice, run_scenario};

/// Tolerances, in turns along the hosts: from good to the worst that is allowed.
const TOLERANCES_PPM: [u32; 4] = [1_900, 100, 10, 700];

/// Part of a rate's error that neither the link nor the clock uses up.
const SLACK_PPM: u32 = 200;

/// The network of a seed with such clocks. Each drifts as fast as it may, fast and slow by turns.
fn plan(seed: u64, options: &Options) -> Scenario {
    let mut plan = Scenario::draw(seed, options).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    for (number, host) in plan.hosts.iter_mut().enumerate() {
        let place = number + seed as usize;
        let tolerance_ppm = TOLERANCES_PPM[place % TOLERANCES_PPM.len()];
        host.config.clock_tolerance = Ppm(tolerance_ppm);
        let sign = if (place / 2).is_multiple_of(2) { 1 } else { -1 };
        host.clock.drift_ppb = sign * i64::from(tolerance_ppm) * 1_000;
        // The error of a rate includes the clock that paces by it.
        for (link, config) in host.links.iter_mut().zip(&host.config.links) {
            let error = Ppm(config.rate_error.0 - tolerance_ppm - SLACK_PPM);
            link.rate = link.rate.max(config.rate.less(error));
        }
    }
    plan
}

#[test]
fn every_promise_holds_between_clocks_of_different_quality() {
    for kinds in [FaultKinds::NONE, FaultKinds::ALL] {
        let options = Options { sizes: SizeChoice::Small, ..Options::default() }.with_faults(kinds);
        let (mut messages, mut admitted) = (0, 0);
        for seed in 0..20 {
            let found = run_scenario(seed, plan(seed, &options), &options)
                .unwrap_or_else(|error| panic!("seed {seed}: {error}"));
            assert!(found.violations.is_empty(), "seed {seed}: {:#?}", found.violations);
            (messages, admitted) = (messages + found.messages, admitted + found.admitted);
        }
        assert!(messages > 10_000 && admitted > 100, "{messages} messages of {admitted} channels");
    }
}
