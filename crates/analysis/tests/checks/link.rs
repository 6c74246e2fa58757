//! One link, packet by packet: a window of bytes over an adapter that drains in order, completions that are
//! seen late, and best effort that fills the window whenever it may. The check is that [`Link`]'s costs and
//! blocking are sufficient.

use std::collections::VecDeque;

use punctual_analysis::{
    BitRate, Contract, Interference, Link, Nanos, Pacing, Ppm, Rate, StageKey, policy_by_name,
};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

const FRAGMENT_BYTES: u32 = 1_400;
const BOUND_MAX: Nanos = Nanos::from_millis(300);
/// Messages are sent for so long.
const TRAFFIC_NS: u64 = 100_000_000;

struct Channel {
    contract: Contract,
    bound: Nanos,
}

struct Packet {
    wire_bytes: u64,
    deadline_ns: u64,
    ready_ns: u64,
}

fn random_link(rng: &mut SmallRng) -> Link {
    Link {
        rate: BitRate(rng.random_range(10..=200) * 1_000_000),
        // The link is faster than assumed by more than packets round up.
        rate_error: Ppm(1_000),
        overhead_bytes: 130,
        mtu_wire_bytes: FRAGMENT_BYTES + 130,
        best_effort_wire_bytes: FRAGMENT_BYTES + 130,
        pipeline_depth: rng.random_range(1..=4),
        pacing: Pacing::Completion,
        reaction: Nanos(rng.random_range(1_000..50_000)),
        interference: Interference::default(),
        best_effort_share_min: Ppm(0),
    }
}

fn random_contract(rng: &mut SmallRng, link: &Link) -> Contract {
    let bytes = rng.random_range(16..6_000);
    let cost = link.cost_of(link.wire_bytes(bytes, FRAGMENT_BYTES));
    let interval = cost * rng.random_range(4..60);
    Contract::new(bytes, Rate::every(interval).expect("not zero"), 1, BOUND_MAX).expect("in range")
}

/// Channels up to the first refusal, each with the smallest bound that there was.
fn admitted(link: &Link, rng: &mut SmallRng) -> Vec<Channel> {
    let mut policy = policy_by_name("edf", link.model()).expect("a policy of ours");
    let mut channels = Vec::new();
    for key in 0..12 {
        let contract = random_contract(rng, link);
        let demand = link.demand(&contract, FRAGMENT_BYTES, Nanos::ZERO, Nanos::ZERO);
        let Ok(offer) = policy.offer(&demand, BOUND_MAX) else { break };
        policy.hold(StageKey(key), &demand, offer.bound).expect("what was offered holds");
        channels.push(Channel { contract, bound: offer.bound });
    }
    channels
}

/// As dense as the contracts allow, all at once from a nanosecond after the window was filled, or off by `spread`.
fn packets(link: &Link, channels: &[Channel], rng: &mut SmallRng, spread: bool) -> Vec<Packet> {
    let mut packets = Vec::new();
    for Channel { contract, bound } in channels {
        let interval_ns = contract.interval().0;
        let mut ready_ns = 1 + if spread { rng.random_range(0..interval_ns) } else { 0 };
        while ready_ns < TRAFFIC_NS {
            let mut left = contract.message_bytes_max;
            while left > 0 {
                let bytes = left.min(FRAGMENT_BYTES);
                let wire_bytes = u64::from(bytes + link.overhead_bytes);
                packets.push(Packet { wire_bytes, deadline_ns: ready_ns + bound.0, ready_ns });
                left -= bytes;
            }
            ready_ns += interval_ns;
        }
    }
    packets.sort_by_key(|packet| packet.ready_ns);
    packets
}

/// Serves them; the first packet that leaves after its deadline, and by how much.
fn first_late(link: &Link, packets: Vec<Packet>) -> Option<u64> {
    let window_bytes = u64::from(link.pipeline_depth) * u64::from(link.mtu_wire_bytes);
    let best_effort = u64::from(link.best_effort_wire_bytes);
    // When each packet leaves, and its bytes.
    let mut outstanding: VecDeque<(u64, u64)> = VecDeque::new();
    let (mut now_ns, mut free_at_ns) = (0_u64, 0_u64);
    let mut coming = packets.into_iter().peekable();
    let mut ready: Vec<Packet> = Vec::new();
    while coming.peek().is_some() || !ready.is_empty() {
        while let Some(packet) = coming.next_if(|packet| packet.ready_ns <= now_ns) {
            ready.push(packet);
        }
        while outstanding.front().is_some_and(|(leaves_ns, _)| leaves_ns + link.reaction.0 <= now_ns) {
            outstanding.pop_front();
        }
        loop {
            let urgent =
                ready.iter().enumerate().min_by_key(|(_, packet)| packet.deadline_ns).map(|(at, _)| at);
            let bytes = urgent.map_or(best_effort, |at| ready[at].wire_bytes);
            let one_by_one = link.pipeline_depth == 1 && !outstanding.is_empty();
            let held: u64 = outstanding.iter().map(|(_, bytes)| bytes).sum();
            if held + bytes > window_bytes || one_by_one {
                break;
            }
            free_at_ns = free_at_ns.max(now_ns) + link.rate.time_of(bytes).0;
            outstanding.push_back((free_at_ns, bytes));
            if let Some(at) = urgent {
                let packet = ready.remove(at);
                if free_at_ns > packet.deadline_ns {
                    return Some(free_at_ns - packet.deadline_ns);
                }
            }
        }
        let arrives = coming.peek().map(|packet| packet.ready_ns);
        let completes = outstanding.front().map(|(leaves_ns, _)| leaves_ns + link.reaction.0);
        now_ns = [arrives, completes].into_iter().flatten().min().unwrap_or(now_ns).max(now_ns);
    }
    None
}

/// A random link, filled: how late a packet is, if one is.
pub fn late_packet(seed: u64) -> Option<String> {
    let mut rng = SmallRng::seed_from_u64(seed);
    let link = random_link(&mut rng);
    let channels = admitted(&link, &mut rng);
    [false, true].into_iter().find_map(|spread| {
        let late_ns = first_late(&link, packets(&link, &channels, &mut rng, spread))?;
        Some(format!(
            "a packet leaves {late_ns} ns late at depth {}, {} channels",
            link.pipeline_depth,
            channels.len()
        ))
    })
}
