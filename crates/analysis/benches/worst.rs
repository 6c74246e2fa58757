//! What one decision costs at most where newcomers choose the worst contracts beside 1,000 and 10,000 channels.

#![allow(clippy::disallowed_types, clippy::disallowed_methods)]

use std::time::{Duration, Instant};

use punctual_analysis::{
    AdmissionPolicy, BitRate, Contract, Demand, Interference, Link, Nanos, Pacing, Ppm, Rate, StageKey,
    policy_by_name,
};

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

fn demand(link: &Link, contract: &Contract) -> Demand {
    link.demand(contract, 1_400, Nanos::from_micros(50), Nanos::ZERO)
}

fn rate_for(channels: u64, used: f64) -> BitRate {
    let share = |rate: u64| -> f64 {
        let link = link(BitRate(rate));
        (0..channels)
            .map(|key| demand(&link, &contract(key % 20)))
            .map(|d| d.cost.0 as f64 / d.period.0 as f64)
            .sum()
    };
    let (mut slow, mut fast) = (1_000_000, 400_000_000_000);
    while fast - slow > fast / 1_000 {
        let middle = (slow + fast) / 2;
        if share(middle) > used { slow = middle } else { fast = middle }
    }
    BitRate(fast)
}

fn filled(name: &str, channels: u64, used: f64) -> (Link, Box<dyn AdmissionPolicy>) {
    let link = link(rate_for(channels, used));
    let mut policy = policy_by_name(name, link.model()).unwrap();
    for key in 0..channels {
        let demand = demand(&link, &contract(key % 20));
        let offer = policy.offer(&demand, Nanos::from_secs(10)).expect("the link is large enough");
        let relaxed = offer.bound.0 / 100 * (100 + key * 37 % 200) + key * 7_919 % 1_000_000;
        let bound = if key % 5 == 0 { offer.bound } else { Nanos(relaxed) };
        policy.hold(StageKey(key), &demand, bound).expect("what was offered holds");
    }
    (link, policy)
}

struct Worst {
    taken: Duration,
    what: String,
}

fn note(worst: &mut Worst, begun: Instant, what: impl Fn() -> String) {
    let taken = begun.elapsed();
    if taken > worst.taken {
        *worst = Worst { taken, what: what() };
    }
}

fn main() {
    for name in ["edf", "d-order"] {
        for (channels, used) in [(1_000, 0.5), (1_000, 0.88), (10_000, 0.88)] {
            let (link, mut policy) = filled(name, channels, used);
            let mut worst: [Worst; 4] =
                std::array::from_fn(|_| Worst { taken: Duration::ZERO, what: String::new() });
            let mut all = Vec::new();
            let mut dice: u64 = 7;
            let mut roll = |most: u64| {
                dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (dice >> 33) % most
            };
            let count = 3_000;
            for round in 0..count {
                let interval = Nanos(20_000 << roll(23)) + Nanos(roll(20_000));
                let bytes = 1 + (1_u32 << roll(20));
                let deadline = Nanos((50_000 << roll(19)) + roll(1_000));
                let Some(rate) = Rate::every(interval) else { continue };
                let Ok(contract) = Contract::new(bytes, rate, 1, deadline) else { continue };
                let demand = demand(&link, &contract);
                let what = |which: &str| format!("{which}: {bytes} B every {interval} within {deadline}");
                let begun = Instant::now();
                let offer = policy.offer(&demand, deadline);
                all.push(begun.elapsed());
                note(&mut worst[0], begun, || what(if offer.is_ok() { "offer" } else { "refused" }));
                let Ok(offer) = offer else { continue };
                let key = StageKey(1 << 40 | round);
                let begun = Instant::now();
                let held = policy.hold(key, &demand, offer.bound);
                note(&mut worst[1], begun, || what("hold"));
                if held.is_err() {
                    continue;
                }
                let begun = Instant::now();
                let _ = policy.relax(key, deadline.max(offer.bound));
                note(&mut worst[2], begun, || what("relax"));
                let begun = Instant::now();
                policy.release(key);
                note(&mut worst[3], begun, || what("release"));
            }
            all.sort_unstable();
            println!(
                "{name} {channels} at {used}: offer p50 {:?} p99 {:?}",
                all[all.len() / 2],
                all[all.len() * 99 / 100]
            );
            for Worst { taken, what } in worst {
                println!("    {taken:?} {what}");
            }
        }
    }
}
