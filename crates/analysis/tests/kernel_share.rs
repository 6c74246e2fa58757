//! The share of a link that kernel traffic may have, where spans are a few nanoseconds: what is rounded the wrong way shows
//! there.

use punctual_analysis::following::{Load, Sharing};
use punctual_analysis::{Demand, Nanos, Ppm, Urgency};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

fn demand(cost_ns: u32, period_ns: u32) -> Demand {
    let [cost, period] = [cost_ns, period_ns].map(|ns| Nanos(ns.into()));
    let (release_latency, early, urgency) = (Nanos::ZERO, Nanos::ZERO, Urgency::default());
    Demand { cost, unit_cost_max: cost, period, release_latency, early, urgency, soft: None }
}

/// The share that the kernel may have leaves the channels what the inequality of `following` requires.
#[test]
fn the_kernels_share_is_not_rounded_up() {
    let mut shares = 0;
    for seed in 0..40_000 {
        let mut rng = SmallRng::seed_from_u64(seed);
        let (cost, span, period) =
            (rng.random_range(1..4_u32), rng.random_range(8..200_u32), rng.random_range(8..200_u32));
        let sharing = Sharing {
            least: Ppm(rng.random_range(0..900_000)),
            most: Ppm(1_000_000),
            sigma: Nanos(rng.random_range(0..40)),
            blocking: Nanos(rng.random_range(0..8)),
            utilisation_limit: Ppm(rng.random_range(500_000..=1_000_000)),
        };
        let mut load = Load::default();
        load.add(&demand(cost, period), Nanos(span.into()));
        let Some(share) = load.share_max(&sharing) else { continue };
        shares += 1;
        let [least, share, limit] =
            [sharing.least, share, sharing.utilisation_limit].map(|of| f64::from(of.0) / 1e6);
        let once = sharing.sigma.0 as f64 / (1.0 - least) + sharing.blocking.0 as f64;
        let needed = f64::from(cost) / f64::from(span.min(period)) + once / f64::from(span);
        assert!((1.0 - least) * needed <= limit * (1.0 - share) + 1e-9, "seed {seed}: {share} {sharing:?}");
    }
    assert!(shares > 5_000, "{shares}");
}
