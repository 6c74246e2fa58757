//! Pools of soft channels against the exact distribution of the worst case that the declared means allow:
//! each channel uses all that it may, or nothing.

use punctual_analysis::buffers::{PoolPart, pooled};
use punctual_analysis::{Nanos, Ppb};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

const POOLS: u64 = 300;

/// The least pool that is overrun with at most `ratio`, by convolution.
fn least(parts: &[PoolPart], ratio: f64) -> u32 {
    let all: u32 = parts.iter().map(|part| part.most).sum();
    let mut chances = vec![0.0; all as usize + 1];
    chances[0] = 1.0;
    for part in parts {
        let full = (part.period.0 as f64 / part.mean_period.0 as f64).min(1.0);
        for kept in (0..chances.len()).rev() {
            let before = kept.checked_sub(part.most as usize).map_or(0.0, |kept| chances[kept]);
            chances[kept] = chances[kept] * (1.0 - full) + before * full;
        }
    }
    let mut overrun = 0.0;
    for kept in (0..=all).rev() {
        overrun += chances[kept as usize];
        if overrun > ratio {
            return kept;
        }
    }
    0
}

#[test]
fn a_pool_is_never_below_the_exact_one() {
    let mut ratios = Vec::new();
    for seed in 0..POOLS {
        let mut rng = SmallRng::seed_from_u64(seed);
        let ratio =
            Ppb::new([100, 1_000_000, 10_000_000, 200_000_000][rng.random_range(0..4)]).expect("not nothing");
        let channels = rng.random_range(1..80);
        let parts: Vec<_> = (0..channels)
            .map(|_| PoolPart {
                most: rng.random_range(1..8),
                period: Nanos(1_000),
                mean_period: Nanos(rng.random_range(1_000..10_000)),
            })
            .collect();
        let (exact, pool) = (least(&parts, ratio.as_f64()), pooled(&parts, ratio));
        assert!(pool >= exact, "seed {seed}: {pool} frames, {exact} are needed");
        ratios.push(f64::from(pool) / f64::from(exact.max(1)));
    }
    ratios.sort_unstable_by(f64::total_cmp);
    let (median, worst) = (ratios[ratios.len() / 2], ratios[ratios.len() - 1]);
    println!("pools: {median:.2} times of what is needed in the median, {worst:.2} times at most");
    assert!(median <= 1.25, "{median}");
}
