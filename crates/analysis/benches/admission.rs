//! Admission decisions (offer, hold, release) at 1,000 and 10,000 channels of 20 contracts, warm and without caches.
//!
//! Targets: at 1,000 channels a median of at most 200 us and 20 ms at worst, for `edf` and `d-order`; at 10,000
//! a median at least 20 times below that of the same code with its caches dropped.

// A benchmark reads the clock; the crate does not.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)]

use std::time::{Duration, Instant};

use criterion::{Criterion, criterion_group, criterion_main};
use punctual_analysis::{
    AdmissionPolicy, BitRate, Contract, Demand, Interference, Link, Nanos, Pacing, Ppm, Rate, StageKey,
    policy_by_name,
};

const DECISIONS: u64 = 300;

fn link(rate: BitRate) -> Link {
    Link {
        rate,
        rate_error: Ppm(10_000),
        overhead_bytes: 130,
        mtu_wire_bytes: 1_530,
        best_effort_wire_bytes: 1_530,
        pipeline_depth: 2,
        pacing: Pacing::Clock,
        reaction: Nanos(500),
        interference: Interference { sigma: Nanos::from_micros(20), rho: Ppm(10_000) },
        best_effort_share_min: Ppm(50_000),
    }
}

/// 20 contracts from small and frequent to large and seldom.
fn contract(kind: u64) -> Contract {
    let bytes = 200 + 700 * (kind as u32);
    let interval = Nanos::from_millis(10 + 9 * kind);
    Contract::new(bytes, Rate::every(interval).unwrap(), 1, interval).unwrap()
}

fn demand(link: &Link, key: u64) -> Demand {
    link.demand(&contract(key % 20), 1_400, Nanos::from_micros(50), Nanos::ZERO)
}

/// The rate at which `channels` use 88 % of the link, interference aside.
fn rate_for(channels: u64) -> BitRate {
    let share = |rate: u64| -> f64 {
        let link = link(BitRate(rate));
        (0..channels).map(|key| demand(&link, key)).map(|d| d.cost.0 as f64 / d.period.0 as f64).sum()
    };
    let (mut slow, mut fast) = (1_000_000, 400_000_000_000);
    while fast - slow > fast / 1_000 {
        let middle = (slow + fast) / 2;
        if share(middle) > 0.88 { slow = middle } else { fast = middle }
    }
    BitRate(fast)
}

/// A stage that holds `channels`: each fifth at the smallest bound that it was offered, the others relaxed.
fn filled(name: &str, channels: u64) -> (Link, Box<dyn AdmissionPolicy>) {
    let link = link(rate_for(channels));
    let mut policy = policy_by_name(name, link.model()).unwrap();
    for key in 0..channels {
        let demand = demand(&link, key);
        let offer = policy.offer(&demand, Nanos::from_secs(10)).expect("the link is large enough");
        // From the smallest bound to three times it, and no two alike, as leftovers differ from route to route.
        let relaxed = offer.bound.0 / 100 * (100 + key * 37 % 200) + key * 7_919 % 1_000_000;
        let bound = if key % 5 == 0 { offer.bound } else { Nanos(relaxed) };
        policy.hold(StageKey(key), &demand, bound).expect("what was offered holds");
    }
    (link, policy)
}

/// One decision about a newcomer (ask, take, give back), and whether it was a yes.
fn decide(link: &Link, policy: &mut dyn AdmissionPolicy, key: u64) -> (Duration, bool) {
    let demand = demand(link, key);
    let begun = Instant::now();
    let offer = policy.offer(&demand, demand.period * 4);
    if let Ok(offer) = offer {
        policy.hold(StageKey(u64::MAX), &demand, offer.bound).expect("what was offered holds");
    }
    let taken = begun.elapsed();
    policy.release(StageKey(u64::MAX));
    (taken, offer.is_ok())
}

/// The times of `count` decisions in ascending order, and how many were a yes.
fn decisions(
    link: &Link,
    policy: &mut dyn AdmissionPolicy,
    count: u64,
    cold: bool,
) -> (Vec<Duration>, usize) {
    let mut admitted = 0;
    let mut taken: Vec<_> = (0..count)
        .map(|key| {
            if cold {
                policy.drop_caches();
            }
            let (taken, yes) = decide(link, policy, key);
            admitted += usize::from(yes);
            taken
        })
        .collect();
    taken.sort_unstable();
    (taken, admitted)
}

fn admission(criterion: &mut Criterion) {
    for name in ["edf", "d-order"] {
        for channels in [1_000, 10_000] {
            let (link, mut policy) = filled(name, channels);
            let used = policy.utilisation();
            let (warm, admitted) = decisions(&link, policy.as_mut(), DECISIONS, false);
            let (cold, _) = decisions(&link, policy.as_mut(), 20, true);
            let (median, worst, without) = (warm[warm.len() / 2], warm[warm.len() - 1], cold[cold.len() / 2]);
            let ratio = without.as_secs_f64() / median.as_secs_f64();
            let link_mbit_s = link.rate.0 / 1_000_000;
            println!(
                "{name} {channels} channels at {} ppm of {link_mbit_s} Mbit/s: median {median:?}, worst {worst:?}, without caches {without:?} ({ratio:.0}x); {admitted} of {DECISIONS} admitted",
                used.0
            );
            criterion.bench_function(&format!("admission/{name}/{channels}"), |bench| {
                let mut key = 0;
                bench.iter_custom(|rounds| {
                    (0..rounds)
                        .map(|_| {
                            key += 1;
                            decide(&link, policy.as_mut(), key).0
                        })
                        .sum()
                });
            });
        }
    }
}

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(10).warm_up_time(Duration::from_millis(200)).measurement_time(Duration::from_secs(1));
    targets = admission
}
criterion_main!(benches);
