//! Admission decisions (offer, hold, release) at 1,000 and 10,000 channels of 20 contracts, warm and without caches.
//!
//! Targets: at 1,000 channels a median of at most 200 us and 20 ms at worst, for `edf` and `d-order`; at 10,000
//! a median at least 20 times below that of the same code with its caches dropped.

// A benchmark reads the clock; the crate does not.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)]

mod support;

use std::time::{Duration, Instant};

use criterion::{Criterion, criterion_group, criterion_main};
use punctual_analysis::{AdmissionPolicy, Link, StageKey};
use support::{contract, demand, filled};

const DECISIONS: u64 = 300;
/// Share of the link that is reserved.
const USED: f64 = 0.88;

/// One decision about a newcomer (offer, hold, release); returns its time and whether it was admitted.
fn decide(link: &Link, policy: &mut dyn AdmissionPolicy, key: u64) -> (Duration, bool) {
    let demand = demand(link, &contract(key % 20));
    let begun = Instant::now();
    let offer = policy.offer(&demand, demand.period * 4);
    if let Ok(offer) = offer {
        policy.hold(StageKey(u64::MAX), &demand, offer.bound).expect("what was offered holds");
    }
    let taken = begun.elapsed();
    policy.release(StageKey(u64::MAX));
    (taken, offer.is_ok())
}

/// The times of `count` decisions in ascending order, and the number of admissions.
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
            let (link, mut policy) = filled(name, channels, USED);
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
