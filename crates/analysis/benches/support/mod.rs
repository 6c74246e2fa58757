//! The stage for timing admission: a link, and channels of 20 contracts that it holds.

use punctual_analysis::{
    AdmissionPolicy, BitRate, Contract, Demand, Interference, Link, Nanos, Pacing, Ppm, Rate, StageKey,
    policy_by_name,
};

/// A link beside some kernel traffic.
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
pub fn contract(kind: u64) -> Contract {
    let bytes = 200 + 700 * (kind as u32);
    let interval = Nanos::from_millis(10 + 9 * kind);
    Contract::new(bytes, Rate::every(interval).unwrap(), 1, interval).unwrap()
}

/// The demand of a channel of `contract` for the link.
pub fn demand(link: &Link, contract: &Contract) -> Demand {
    link.demand(contract, 1_400, Nanos::from_micros(50), Nanos::ZERO)
}

/// The rate at which `channels` use a share of `used` of the link, interference aside.
fn rate_for(channels: u64, used: f64) -> BitRate {
    let share = |rate: u64| -> f64 {
        let link = link(BitRate(rate));
        let demands = (0..channels).map(|key| demand(&link, &contract(key % 20)));
        demands.map(|d| d.cost.0 as f64 / d.period.0 as f64).sum()
    };
    let (mut slow, mut fast) = (1_000_000, 400_000_000_000);
    while fast - slow > fast / 1_000 {
        let middle = (slow + fast) / 2;
        if share(middle) > used { slow = middle } else { fast = middle }
    }
    BitRate(fast)
}

/// A stage that holds `channels`: every fifth at the smallest bound that it was offered, the others relaxed.
pub fn filled(name: &str, channels: u64, used: f64) -> (Link, Box<dyn AdmissionPolicy>) {
    let link = link(rate_for(channels, used));
    let mut policy = policy_by_name(name, link.model()).unwrap();
    for key in 0..channels {
        let demand = demand(&link, &contract(key % 20));
        let offer = policy.offer(&demand, Nanos::from_secs(10)).expect("the link is large enough");
        // From the smallest bound to three times it, all different, because leftovers differ from route to
        // route.
        let relaxed = offer.bound.0 / 100 * (100 + key * 37 % 200) + key * 7_919 % 1_000_000;
        let bound = if key % 5 == 0 { offer.bound } else { Nanos(relaxed) };
        policy.hold(StageKey(key), &demand, bound).expect("what was offered holds");
    }
    (link, policy)
}
