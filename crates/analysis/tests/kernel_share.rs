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

const MILLION: u128 = 1_000_000;

/// A channel alone on a link: its cost, its period, and what its release leaves of its bound.
type Channel = (u64, u64, u64);

/// The inequality of `following` at the share `kernel`, times all denominators. Times are whole nanoseconds, none is
/// divided by less than one; no less than a millionth is left of the link, or may be reserved.
fn holds(sharing: &Sharing, (cost, period, span): Channel, kernel: u32) -> bool {
    let kept = MILLION - u128::from(sharing.least.0.min(999_999));
    let once = (u128::from(sharing.sigma.0) * MILLION).div_ceil(kept) + u128::from(sharing.blocking.0);
    let (shortest, span) = (u128::from(span.min(period).max(1)), u128::from(span.max(1)));
    let demanded = kept * (u128::from(cost) * span + once * shortest) * MILLION;
    let limit = u128::from(sharing.utilisation_limit.0.max(1));
    demanded <= limit * (MILLION - u128::from(kernel)) * shortest * span
}

/// The share is the largest whole per mille at which the inequality holds, within the least and the most; there is none if
/// it does not hold even at the least. Rounding to 2^-32 of the limit, and to a millionth, never helps the kernel.
fn is_the_largest(sharing: &Sharing, channel: Channel) -> bool {
    let (cost, period, span) = channel;
    let mut load = Load::default();
    let released = Demand { release_latency: Nanos(5), ..demand(0, 0) };
    let demand = Demand { cost: Nanos(cost), period: Nanos(period), ..released };
    load.add(&demand, Nanos(span + 5));
    let rounded = 2 + 500 / sharing.utilisation_limit.0.max(1);
    let beyond = |share: u32| share + rounded <= 1_000_000 && holds(sharing, channel, share + rounded);
    let (least, most) = (sharing.least.0, sharing.most.0);
    let what = format!("{channel:?} {sharing:?}");
    let Some(Ppm(share)) = load.share_max(sharing) else {
        assert!(!beyond(least), "{what}: there is room");
        return false;
    };
    assert!(holds(sharing, channel, share), "{what}: {share} is too much");
    assert!(share == least || share == most || share % 1_000 == 0, "{what}: {share}");
    assert!(least <= share && (share <= most || share == least), "{what}: {share}");
    let next = share - share % 1_000 + 1_000;
    assert!(share >= most || next > most || !beyond(next), "{what}: {share} is too little");
    true
}

/// All spans of a few nanoseconds, and the ends of all ranges.
#[test]
fn the_kernels_share_is_the_largest_that_leaves_the_channels_enough() {
    let (mut some, mut none) = (0, 0);
    for (cost, period, span) in (0..4 * 5 * 8).map(|n| (n % 4, n / 4 % 5, n / 20)) {
        for (sigma, blocking) in [(0, 0), (0, 1), (1, 0), (3, 2)] {
            for least in [0, 100_000, 500_000, 999_998, 999_999, 1_000_000] {
                for (most, limit) in
                    [(1_000_000, 1_000_000), (950_000, 1_000_000), (300_000, 600_000), (999_000, 0)]
                {
                    let sharing = Sharing {
                        least: Ppm(least),
                        most: Ppm(most),
                        sigma: Nanos(sigma),
                        blocking: Nanos(blocking),
                        utilisation_limit: Ppm(limit),
                    };
                    let found = is_the_largest(&sharing, (cost, period, span));
                    (some, none) = (some + u32::from(found), none + u32::from(!found));
                }
            }
        }
    }
    assert!(some > 1_000 && none > 1_000, "{some} {none}");
}

/// A load that takes all that the least share leaves has the least share: nothing is rounded there.
#[test]
fn what_just_fits_beside_the_least_share_has_that_share() {
    for least in [0, 1, 999, 1_000, 1_001, 500_000, 999_998, 999_999] {
        let sharing = Sharing {
            least: Ppm(least),
            most: Ppm(1_000_000),
            sigma: Nanos(0),
            blocking: Nanos(0),
            utilisation_limit: Ppm(1_000_000),
        };
        let share = |cost| {
            let mut load = Load::default();
            load.add(&demand(cost, 4), Nanos(4));
            load.share_max(&sharing)
        };
        assert_eq!((share(4), share(5)), (Some(Ppm(least)), None), "{least}");
    }
}

/// Loads that are as little above a whole per mille as a fraction of 2^-32, or a millionth, can be.
#[test]
fn what_is_hardly_above_a_per_mille_counts_as_above() {
    let sharing = |blocking: u64, limit: u32| Sharing {
        least: Ppm(0),
        most: Ppm(1_000_000),
        sigma: Nanos(0),
        blocking: Nanos(blocking),
        utilisation_limit: Ppm(limit),
    };
    for above in [0, 1] {
        // Fifths: neither they nor their 2^-32 are whole.
        assert!(is_the_largest(
            &sharing(0, 1_000_000),
            (2_000_000_000 + above, 10_000_000_000, 20_000_000_000)
        ));
        assert!(is_the_largest(&sharing(0, 1_000_000), (2_000_004 + above, 10_000_000, 10_000_000)));
        let span = 5 << 31;
        assert!(is_the_largest(&sharing(span / 5 + above, 1_000_000), (0, 1, span)));
    }
    for limit in [0, 1, 2, 3] {
        assert!(is_the_largest(&sharing(0, limit), (1, 2_500_000, 2_500_000)), "{limit}");
    }
}
