//! The rules of the link scheduler, one by one. The link drains a byte in a microsecond; U is a millisecond.

use punctual_proto::config::{Interference, LinkConfig, Pacing};
use punctual_proto::ids::NodeId;
use punctual_proto::limits::{BEST_EFFORT_CAP_BURST_PACKETS, LEFTOVERS_MAX};
use punctual_proto::linksched::{
    BestEffortKey, Class, FlowIndex, Guaranteed, LinkParameters, LinkScheduler, OverflowReason, Scheduled,
};
use punctual_proto::{BitRate, Instant, Nanos, Ppm};

const MTU: u32 = 1_000;
const ALONE: BestEffortKey = BestEffortKey(1);

/// Moved, never cloned.
#[derive(Debug, PartialEq, Eq)]
struct Packet(u32);

type Link = LinkScheduler<Packet>;

fn parameters(pace: Pacing) -> LinkParameters {
    LinkParameters {
        rate: BitRate(8_000_000),
        mtu_wire_bytes: MTU,
        best_effort_wire_bytes: MTU,
        pipeline_depth: 2,
        pace,
        interference: Interference::default(),
        best_effort_flow_cap: Ppm::ONE,
        best_effort_cap: Ppm::ONE,
        best_effort_flow_bytes_max: 100_000,
        best_effort_flows_max: 8,
        best_effort_packets_max: 256,
    }
}

fn by_completion() -> Link {
    Link::new(parameters(Pacing::Completion))
}

fn by_clock() -> Link {
    Link::new(parameters(Pacing::Clock))
}

fn us(n: u64) -> Instant {
    Instant(n * 1_000)
}

fn key(effective_us: u64, deadline_us: u64, wire_bytes: u32) -> Guaranteed {
    Guaranteed { effective: us(effective_us), deadline: us(deadline_us), wire_bytes }
}

fn id(scheduled: Option<Scheduled<Packet>>) -> Option<u32> {
    scheduled.map(|scheduled| scheduled.packet.0)
}

fn drain(link: &mut Link, now: Instant) -> Vec<u32> {
    std::iter::from_fn(|| id(link.poll(now))).collect()
}

/// What may go if everything that was handed over leaves at once.
fn drain_all(link: &mut Link, now: Instant) -> Vec<u32> {
    let mut sent = Vec::new();
    while let Some(scheduled) = link.poll(now) {
        link.complete(scheduled.wire_bytes, now);
        sent.push(scheduled.packet.0);
    }
    sent
}

#[test]
fn queue_1_goes_by_deadline_and_a_channel_in_order() {
    let mut link = by_completion();
    let flows: Vec<FlowIndex> = (0..3).map(|_| link.add_channel(4, Nanos::ZERO)).collect();
    for (packet, (flow, deadline)) in [(0, 30), (1, 10), (2, 20), (1, 10)].into_iter().enumerate() {
        link.enqueue(us(0), flows[flow], key(0, deadline, 100), Packet(packet as u32)).unwrap();
    }
    assert_eq!(drain(&mut link, us(0)), [1, 3, 2, 0]);
}

#[test]
fn equal_deadlines_go_message_by_message() {
    let mut link = by_completion();
    let flows = [link.add_channel(4, Nanos::ZERO), link.add_channel(4, Nanos::ZERO)];
    for packet in 0..6 {
        link.enqueue(us(0), flows[packet as usize % 2], key(0, 50, 100), Packet(packet)).unwrap();
    }
    assert_eq!(drain(&mut link, us(0)), [0, 2, 4, 1, 3, 5]);
}

#[test]
fn early_packets_are_held_and_best_effort_goes_meanwhile() {
    let mut link = by_completion();
    let flow = link.add_channel(2, Nanos::ZERO);
    link.enqueue(us(0), flow, key(100, 150, 100), Packet(0)).unwrap();
    assert_eq!(link.next_timeout(), Some(us(100)));
    link.enqueue_best_effort(us(0), ALONE, 100, Packet(1)).unwrap();
    assert_eq!(drain(&mut link, Instant(99_999)), [1]);
    assert_eq!(drain(&mut link, us(100)), [0]);
    assert_eq!(link.next_timeout(), None);
}

#[test]
fn a_horizon_releases_earlier() {
    let mut link = by_completion();
    let flow = link.add_channel(3, Nanos::from_micros(60));
    for (packet, effective) in [100, 120, 200].into_iter().enumerate() {
        link.enqueue(us(0), flow, key(effective, 300, 100), Packet(packet as u32)).unwrap();
    }
    assert_eq!(drain(&mut link, Instant(39_999)), [0; 0]);
    assert_eq!(link.next_timeout(), Some(us(40)));
    assert_eq!(drain(&mut link, us(60)), [0, 1]);
    assert_eq!(link.next_timeout(), Some(us(140)));
}

#[test]
fn a_head_that_does_not_fit_is_not_passed_by_small_best_effort() {
    let mut link = by_completion();
    let flow = link.add_channel(4, Nanos::ZERO);
    for (packet, bytes) in [(0, 1_000), (1, 500), (2, 1_000)] {
        link.enqueue(us(0), flow, key(0, 10_000, bytes), Packet(packet)).unwrap();
    }
    link.enqueue_best_effort(us(0), ALONE, 50, Packet(3)).unwrap();
    assert_eq!(drain(&mut link, us(0)), [0, 1]);
    assert_eq!(link.outstanding(us(0)), 1_500);
    link.complete(499, us(499));
    assert_eq!(id(link.poll(us(499))), None);
    link.complete(501, us(1_000));
    assert_eq!(drain(&mut link, us(1_000)), [2, 3]);
}

#[test]
fn what_was_polled_and_not_handed_over_leaves_the_window() {
    let mut link = by_completion();
    let flow = link.add_channel(1, Nanos::ZERO);
    for packet in 0..10 {
        link.enqueue(us(0), flow, key(0, 10_000, 900), Packet(packet)).unwrap();
        assert_eq!(id(link.poll(us(0))), Some(packet));
        link.retract();
    }
    assert_eq!((link.outstanding(us(0)), link.slots_free(flow)), (0, 1));
}

#[test]
fn what_was_polled_and_not_handed_over_is_not_counted() {
    for pace in [Pacing::Completion, Pacing::Clock] {
        let mut link = Link::new(parameters(pace));
        link.retract();
        let flow = link.add_channel(2, Nanos::ZERO);
        // One in time and one that is late in any case.
        for (packet, deadline) in [(0, 10_000), (1, 1)] {
            link.enqueue(us(0), flow, key(0, deadline, 900), Packet(packet)).unwrap();
            assert_eq!(id(link.poll(us(9_000 * u64::from(packet)))), Some(packet));
            link.retract();
            link.retract();
        }
        link.enqueue_best_effort(us(0), ALONE, 50, Packet(2)).unwrap();
        assert_eq!(id(link.poll(us(20_000))), Some(2));
        link.retract();
        assert_eq!(*link.counters(), Default::default(), "{pace:?}");
        link.enqueue(us(20_000), flow, key(0, 1, 900), Packet(3)).unwrap();
        link.enqueue_best_effort(us(20_000), ALONE, 70, Packet(4)).unwrap();
        assert_eq!(drain(&mut link, us(20_000)), [3, 4]);
        let counters = link.counters();
        assert_eq!(
            (counters.guaranteed_packets, counters.guaranteed_bytes, counters.late_packets),
            (1, 900, 1)
        );
        assert_eq!((counters.best_effort_packets, counters.best_effort_bytes), (1, 70));
    }
}

#[test]
fn a_completion_returns_the_flow_whose_slot_became_free() {
    let mut link = by_completion();
    let flows = [link.add_channel(1, Nanos::ZERO), link.add_channel(1, Nanos::ZERO)];
    for (packet, flow) in flows.into_iter().enumerate() {
        link.enqueue(us(0), flow, key(0, 100, 500), Packet(packet as u32)).unwrap();
    }
    assert_eq!(drain(&mut link, us(0)), [0, 1]);
    let mut left = Vec::new();
    link.complete_each(999, |flow| left.push(flow));
    assert_eq!(left, flows[..1]);
    link.complete_each(1, |flow| left.push(flow));
    assert_eq!(left, flows);
}

#[test]
fn a_refilled_flow_needs_no_timer_while_queue_1_waits_for_the_window() {
    let mut link =
        Link::new(LinkParameters { best_effort_flow_cap: Ppm(100_000), ..parameters(Pacing::Clock) });
    for packet in 0..20 {
        link.enqueue_best_effort(us(0), ALONE, 500, Packet(packet)).unwrap();
    }
    let mut now = us(0);
    while !drain(&mut link, now).is_empty() {
        now = now + Nanos::from_micros(500);
    }
    // The flow has spent its cap. A channel then holds the link beyond the time at which the flow refills.
    let flow = link.add_channel(200, Nanos::ZERO);
    for packet in 0..200 {
        link.enqueue(now, flow, key(0, 1_000_000, 1_000), Packet(100 + packet)).unwrap();
    }
    for _ in 0..100 {
        while link.poll(now).is_some() {}
        let next = link.next_timeout().expect("packets wait");
        assert!(next > now, "{next:?} is not after {now:?}");
        now = next;
    }
}

#[test]
fn a_clock_leaves_the_kernel_its_share() {
    let config = |pace| LinkConfig {
        interference: Interference { sigma: Nanos(0), rho: Ppm(50_000) },
        rate_error: Ppm(10_000),
        pace,
        ..LinkConfig::new("x", NodeId(2), BitRate(100_000_000))
    };
    assert_eq!(LinkParameters::of(&config(Pacing::Clock)).rate, BitRate(94_050_000));
    assert_eq!(LinkParameters::of(&config(Pacing::Completion)).rate, BitRate(99_000_000));
}

#[test]
fn the_clock_never_exceeds_the_rate_in_any_window() {
    let (mut link, mut seed, mut now, mut sent) = (by_clock(), 7u64, us(0), Vec::new());
    for packet in 0..400 {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let bytes = 60 + (seed >> 33) as u32 % (MTU - 59);
        link.enqueue_best_effort(now, BestEffortKey(packet % 4), bytes, Packet(0)).unwrap();
        now = now + Nanos((seed >> 40) % 900_000);
        while let Some(scheduled) = link.poll(now) {
            sent.push((now, u64::from(scheduled.wire_bytes)));
        }
    }
    for first in 0..sent.len() {
        let mut bytes = 0;
        for (at, packet_bytes) in &sent[first..] {
            bytes += packet_bytes;
            let drained = at.since(sent[first].0).0 / 1_000;
            assert!(bytes <= drained + 1 + 2 * u64::from(MTU), "{bytes} B from packet {first} to {at:?}");
        }
    }
}

#[test]
fn the_clock_does_not_catch_up_and_keeps_the_rate_when_polled_in_time() {
    let mut link = by_clock();
    let mut backlog =
        |now| (0..10).for_each(|n| link.enqueue_best_effort(now, ALONE, MTU, Packet(n)).unwrap());
    backlog(us(0));
    let mut now = us(5_000_000);
    assert_eq!(drain(&mut link, now).len(), 2, "a burst of P packets, whatever the idle time was");
    for _ in 2..10 {
        now = link.next_timeout().unwrap();
        assert_eq!(drain(&mut link, now).len(), 1);
    }
    assert_eq!(now, us(5_000_000 + 8_000), "8 packets more in 8 ms");
    assert_eq!(link.outstanding(now), 2_000);
}

#[test]
fn best_effort_is_fair_in_bytes_whichever_flow_floods() {
    let mut link = by_clock();
    let (sizes, mut bytes, mut now) = ([1_000, 100, 350], [0u64; 3], us(0));
    for _ in 0..3_000 {
        for (flow, size) in sizes.into_iter().enumerate() {
            // Flow 0 floods, the others offer what is taken of them.
            for _ in 0..if flow == 0 { 5 } else { 1 } {
                let _taken =
                    link.enqueue_best_effort(now, BestEffortKey(flow as u64), size, Packet(0)).is_ok();
            }
            while flow > 0
                && link.enqueue_best_effort(now, BestEffortKey(flow as u64), size, Packet(0)).is_ok()
            {
            }
        }
        while let Some(scheduled) = link.poll(now) {
            let Class::BestEffort { key } = scheduled.class else { panic!("no channel was added") };
            bytes[key.0 as usize] += u64::from(scheduled.wire_bytes);
        }
        now = link.next_timeout().unwrap();
    }
    let (least, most) = (bytes.iter().min().unwrap(), bytes.iter().max().unwrap());
    assert!(*least > 0 && most - least <= 3 * u64::from(MTU), "{bytes:?}");
}

#[test]
fn a_best_effort_flow_is_bounded_and_leaves_room_for_others() {
    let mut link = by_completion();
    let mut taken_bytes = 0;
    while link.best_effort_space(ALONE, MTU) {
        link.enqueue_best_effort(us(0), ALONE, MTU, Packet(0)).unwrap();
        taken_bytes += MTU;
    }
    assert_eq!(taken_bytes, 100_000);
    let refused = link.enqueue_best_effort(us(0), ALONE, MTU, Packet(7)).unwrap_err();
    assert_eq!((refused.packet, refused.reason), (Packet(7), OverflowReason::FlowFull));
    // A flood of the smallest packets in six more flows still leaves room for the eighth.
    for flow in 2..8 {
        while link.enqueue_best_effort(us(0), BestEffortKey(flow), 1, Packet(0)).is_ok() {}
    }
    link.enqueue_best_effort(us(0), BestEffortKey(8), MTU, Packet(0)).unwrap();
    let refused = link.enqueue_best_effort(us(0), BestEffortKey(9), 1, Packet(0)).unwrap_err();
    assert_eq!(refused.reason, OverflowReason::Flows);
    assert!(!link.best_effort_space(BestEffortKey(9), 1));
    assert_eq!(link.counters().best_effort_overflows, 8);
}

#[test]
fn idle_best_effort_flows_make_room_for_new_ones() {
    let mut link = by_clock();
    let mut now = us(0);
    for flow in 0..100 {
        link.enqueue_best_effort(now, BestEffortKey(flow), 100, Packet(flow as u32)).unwrap();
        assert_eq!(drain(&mut link, now), [flow as u32]);
        now = now + Nanos::from_millis(1);
    }
}

#[test]
fn a_capped_flow_gets_its_share_and_no_more() {
    let capped = LinkParameters { best_effort_flow_cap: Ppm(100_000), ..parameters(Pacing::Clock) };
    let mut link = Link::new(capped);
    let (mut now, end, mut bytes) = (us(0), us(10_000_000), 0u64);
    while now < end {
        while link.enqueue_best_effort(now, ALONE, MTU, Packet(0)).is_ok() {}
        while let Some(scheduled) = link.poll(now) {
            bytes += u64::from(scheduled.wire_bytes);
        }
        now = link.next_timeout().unwrap().max(now + Nanos(1));
    }
    let share = 10_000_000 / 10;
    // The burst, a packet that ends later, and one that each rounding of the cap lets through.
    let most = share + (BEST_EFFORT_CAP_BURST_PACKETS + 2) * u64::from(MTU);
    assert!((share..=most).contains(&bytes), "{bytes} B of {share}");
}

#[test]
fn best_effort_as_a_whole_gets_its_share_and_no_more() {
    let capped = LinkParameters { best_effort_cap: Ppm(400_000), ..parameters(Pacing::Clock) };
    let mut link = Link::new(capped);
    let (mut now, end, mut bytes) = (us(0), us(10_000_000), 0u64);
    while now < end {
        for flow in 0..4 {
            while link.enqueue_best_effort(now, BestEffortKey(flow), MTU, Packet(0)).is_ok() {}
        }
        while let Some(scheduled) = link.poll(now) {
            bytes += u64::from(scheduled.wire_bytes);
        }
        let next = link.next_timeout().expect("packets wait");
        assert!(next > now, "{next:?} is not after {now:?}");
        now = next;
    }
    let share = 10_000_000 * 2 / 5;
    assert!((share..=share + 6 * u64::from(MTU)).contains(&bytes), "{bytes} B of {share}");
}

#[test]
fn a_capped_flow_cannot_renew_its_bucket_by_going_idle() {
    let capped = LinkParameters {
        best_effort_flow_cap: Ppm(100_000),
        best_effort_flows_max: 1,
        ..parameters(Pacing::Completion)
    };
    let mut link = Link::new(capped);
    let mut sent = 0;
    // The next flow gets the place, with what the one before has not paid for.
    for flow in 0..40 {
        link.enqueue_best_effort(us(0), BestEffortKey(flow), MTU, Packet(flow as u32)).unwrap();
        let drained = drain_all(&mut link, us(0));
        sent += drained.len() as u64;
        if drained.is_empty() {
            let refused = link.enqueue_best_effort(us(0), BestEffortKey(99), MTU, Packet(99)).unwrap_err();
            assert_eq!(refused.reason, OverflowReason::Flows, "it has packets");
            let refilled = link.next_timeout().expect("it is capped");
            assert!(drain_all(&mut link, refilled - Nanos(1)).is_empty());
            assert_eq!(drain_all(&mut link, refilled), [flow as u32]);
            // A packet takes ten packet times at a tenth of the rate.
            assert!(refilled <= us(10_000), "{refilled:?}");
            break;
        }
    }
    assert_eq!(sent, BEST_EFFORT_CAP_BURST_PACKETS + 1);
}

/// A flow that its cap holds back is removed: its place is free at once, before its bucket has refilled, and the
/// bucket stays as it is.
#[test]
fn a_capped_flow_that_is_removed_leaves_its_place() {
    for flows in [1, 2, 9, 30] {
        let capped = LinkParameters {
            best_effort_flow_cap: Ppm(10_000),
            best_effort_flows_max: flows,
            ..parameters(Pacing::Completion)
        };
        let mut link = Link::new(capped);
        let keys = || (0..u64::from(flows)).map(BestEffortKey);
        let mut packet = 0;
        while keys().any(|key| link.best_effort_space(key, 100)) {
            for key in keys() {
                packet += u32::from(link.enqueue_best_effort(us(0), key, 100, Packet(packet)).is_ok());
            }
            drain_all(&mut link, us(0));
        }
        assert!(!link.best_effort_waits() && !link.is_empty(), "all wait for their caps");
        for (gone, key) in keys().enumerate() {
            let new = BestEffortKey(1_000 + gone as u64);
            assert!(!link.best_effort_space(new, 100), "all places are taken");
            link.remove_best_effort(key, |_| {});
            while link.has_leftovers() {
                link.free_some(|_| {});
            }
            link.enqueue_best_effort(us(0), new, 100, Packet(packet + gone as u32)).unwrap();
            assert!(drain_all(&mut link, us(0)).is_empty(), "the place has still to be paid for");
        }
        let refilled = link.next_timeout().expect("they are capped");
        let mut sent = drain_all(&mut link, refilled);
        sent.sort_unstable();
        assert_eq!(sent, (packet..packet + flows).collect::<Vec<_>>());
        assert!(link.is_empty());
    }
}

#[test]
fn best_effort_gets_all_that_channels_leave() {
    let mut link = by_clock();
    let flow = link.add_channel(8, Nanos::ZERO);
    let (mut now, mut late) = (us(0), 0);
    for message in 0..500u64 {
        // Three packets every five packet times: 0.6 of the link.
        let begin = us(message * 5_000);
        while now < begin {
            while link.enqueue_best_effort(now, ALONE, 700, Packet(0)).is_ok() {}
            while let Some(scheduled) = link.poll(now) {
                late += u32::from(
                    matches!(scheduled.class, Class::Guaranteed { .. }) && scheduled.departure_latest > begin,
                );
            }
            now = link.next_timeout().unwrap();
        }
        for _ in 0..3 {
            let key =
                Guaranteed { effective: begin, deadline: begin + Nanos::from_millis(5), wire_bytes: MTU };
            link.enqueue(now, flow, key, Packet(1)).unwrap();
        }
    }
    let counters = *link.counters();
    assert_eq!((late, counters.late_packets, counters.guaranteed_overflows), (0, 0, 0));
    assert!(counters.guaranteed_packets >= 3 * 499);
    let left = 499 * 5_000 - counters.guaranteed_bytes;
    assert!(counters.best_effort_bytes + 2_000 >= left, "{} of {left} B", counters.best_effort_bytes);
}

#[test]
fn slots_come_free_at_completion() {
    let mut link = by_completion();
    let flow = link.add_channel(2, Nanos::ZERO);
    link.enqueue(us(0), flow, key(0, 10, 600), Packet(0)).unwrap();
    link.enqueue(us(0), flow, key(0, 10, 600), Packet(1)).unwrap();
    let refused = link.enqueue(us(0), flow, key(0, 10, 600), Packet(2)).unwrap_err();
    assert_eq!((refused.packet, refused.reason), (Packet(2), OverflowReason::Slots));
    assert_eq!(drain(&mut link, us(0)), [0, 1]);
    assert_eq!(link.slots_free(flow), 0);
    link.complete(600, us(1));
    assert_eq!(link.slots_free(flow), 1);
    // Completions may come in pieces.
    link.complete(300, us(2));
    assert_eq!((link.slots_free(flow), link.outstanding(us(2))), (1, 300));
    link.complete(300, us(3));
    let occupancy = link.occupancy(flow);
    assert_eq!((occupancy.slots_used, occupancy.slots_used_max, occupancy.slots), (0, 2, 2));
    assert_eq!(link.counters().guaranteed_overflows, 1);
}

#[test]
fn slots_come_free_at_hand_over_by_the_clock() {
    let mut link = by_clock();
    let flow = link.add_channel(1, Nanos::ZERO);
    link.enqueue(us(0), flow, key(0, 10, 600), Packet(0)).unwrap();
    assert_eq!(link.slots_free(flow), 0);
    assert_eq!(drain(&mut link, us(0)), [0]);
    assert_eq!(link.slots_free(flow), 1);
}

#[test]
fn fewer_slots_keep_what_is_queued() {
    let mut link = by_completion();
    let flow = link.add_channel(3, Nanos::ZERO);
    for packet in 0..3 {
        link.enqueue(us(0), flow, key(0, 10, 100), Packet(packet)).unwrap();
    }
    link.set_channel(flow, 1, Nanos::ZERO);
    assert_eq!(link.slots_free(flow), 0);
    assert_eq!(drain(&mut link, us(0)), [0, 1, 2]);
    link.complete(300, us(300));
    assert_eq!(link.slots_free(flow), 1);
}

#[test]
fn removal_gives_packets_back_and_waits_for_those_in_flight() {
    let mut link = by_completion();
    let (gone, stays) = (link.add_channel(3, Nanos::ZERO), link.add_channel(3, Nanos::ZERO));
    for packet in 0..3 {
        link.enqueue(us(0), gone, key(packet * 50, 10 + packet * 50, 900), Packet(packet as u32)).unwrap();
    }
    link.enqueue(us(0), stays, key(0, 20, 900), Packet(9)).unwrap();
    assert_eq!(id(link.poll(us(0))), Some(0));
    let mut drained = Vec::new();
    link.remove_channel(gone, |packet| drained.push(packet.0));
    assert_eq!(drained, [1, 2]);
    let refused = link.enqueue(us(0), gone, key(0, 10, 100), Packet(3)).unwrap_err();
    assert_eq!(refused.reason, OverflowReason::UnknownFlow);
    assert_eq!(drain(&mut link, us(100)), [9]);
    let fresh = link.add_channel(1, Nanos::ZERO);
    assert_ne!(fresh, gone, "a packet of it is in flight");
    link.complete(1_800, us(1_800));
    assert_eq!(link.add_channel(1, Nanos::ZERO), gone);
    assert_eq!(link.slots_free(gone), 1);
}

#[test]
fn removing_a_best_effort_flow_gives_its_packets_back() {
    let mut link = by_completion();
    for packet in 0..3 {
        link.enqueue_best_effort(us(0), BestEffortKey(u64::from(packet % 2)), 100, Packet(packet)).unwrap();
    }
    let mut drained = Vec::new();
    link.remove_best_effort(BestEffortKey(0), |packet| drained.push(packet.0));
    assert_eq!(drained, [0, 2]);
    assert_eq!(drain(&mut link, us(0)), [1]);
}

#[test]
fn removed_queues_are_freed_in_slices_and_delay_no_other() {
    const MOST: usize = LEFTOVERS_MAX as usize;
    let mut link = by_completion();
    let (gone, stays) = (link.add_channel(500, Nanos::ZERO), link.add_channel(3, Nanos::ZERO));
    for packet in 0..300 {
        link.enqueue(us(0), gone, key(0, 10, 100), Packet(packet)).unwrap();
    }
    for packet in 1_000..1_100 {
        link.enqueue_best_effort(us(0), BestEffortKey(1), 10, Packet(packet)).unwrap();
    }
    link.enqueue(us(0), stays, key(0, 20, 100), Packet(9)).unwrap();
    link.enqueue_best_effort(us(0), BestEffortKey(2), 10, Packet(8)).unwrap();
    let (mut drained, mut flow) = (Vec::new(), Vec::new());
    link.remove_channel(gone, |packet| drained.push(packet.0));
    link.remove_best_effort(BestEffortKey(1), |packet| flow.push(packet.0));
    assert_eq!((drained.len(), flow.len()), (MOST, MOST));
    assert_eq!(drain(&mut link, us(0)), [9, 8], "nobody sends what is gone");
    let fresh = link.add_channel(300, Nanos::ZERO);
    assert_ne!(fresh, gone, "packets of it are still here");
    while link.has_leftovers() {
        let before = drained.len();
        link.free_some(|packet| drained.push(packet.0));
        assert!(drained.len() - before <= 2 * MOST);
        assert!(link.accounts().iter().all(|[counted, held]| counted == held));
    }
    drained.extend(flow);
    drained.sort_unstable();
    assert!(drained.into_iter().eq((0..300).chain(1_000..1_100)), "each once");
    assert_eq!(link.add_channel(1, Nanos::ZERO), gone);
}

#[test]
fn the_latest_departure_is_that_of_the_design() {
    let interference = Interference { sigma: Nanos::from_micros(100), rho: Ppm(200_000) };
    // sigma + rho (sigma + P U) / (1 - rho) = 100 + 0.2 * 2100 / 0.8 us.
    let kernel = Nanos::from_micros(100 + 525);
    for pace in [Pacing::Clock, Pacing::Completion] {
        let mut link = Link::new(LinkParameters { interference, ..parameters(pace) });
        let flow = link.add_channel(4, Nanos::ZERO);
        for packet in 0..2 {
            link.enqueue(us(0), flow, key(0, 1_500, 600), Packet(packet)).unwrap();
        }
        let departures: Vec<Instant> =
            std::iter::from_fn(|| link.poll(us(50))).map(|scheduled| scheduled.departure_latest).collect();
        assert_eq!(departures, [us(650) + kernel, us(1_250) + kernel], "{pace:?}");
        assert_eq!(link.counters().late_packets, 1, "{pace:?}");
    }
}

/// The caller that changes a clock's pace gets the exact time at which all packets stamped by the old pace
/// have left.
#[test]
fn what_was_handed_over_has_left_by_its_stamps_whatever_the_pace_is_then() {
    let interference = Interference { sigma: Nanos::from_micros(100), rho: Ppm(200_000) };
    for (rate, delay_us) in [(4_000_000, 0), (8_000_000, 3_000), (16_000_000, 700)] {
        let mut link = Link::new(LinkParameters { interference, ..parameters(Pacing::Clock) });
        let flow = link.add_channel(4, Nanos::ZERO);
        for packet in 0..3 {
            link.enqueue(us(0), flow, key(0, 9_000, 600), Packet(packet)).unwrap();
        }
        let stamped = |link: &mut Link, now: Instant| {
            std::iter::from_fn(|| link.poll(now)).map(|scheduled| scheduled.departure_latest).max()
        };
        let last = stamped(&mut link, us(50)).expect("two fit the window");
        let delay = Nanos::from_micros(delay_us);
        assert_eq!(link.set_pace(BitRate(rate), delay, us(100)), last, "{rate}");
        // 1,151 bytes are under way, one of them in part; a third packet is sent when one unit of them is
        // left, at the new pace.
        let of_bytes = |bytes: u64| Nanos(bytes * 8_000_000_000 / rate);
        let (all_left, opens) = (us(100) + of_bytes(1_151), us(100) + of_bytes(151));
        assert_eq!(stamped(&mut link, opens - Nanos(1)), None, "{rate}");
        assert_eq!(stamped(&mut link, opens), Some(all_left + of_bytes(600) + delay), "{rate}");
    }
}

#[test]
fn packets_larger_than_the_link_takes_are_refused() {
    let mut link = by_completion();
    let flow = link.add_channel(1, Nanos::ZERO);
    let refused = link.enqueue(us(0), flow, key(0, 10, MTU + 1), Packet(0)).unwrap_err();
    assert_eq!(refused.reason, OverflowReason::PacketBytes);
    let refused = link.enqueue_best_effort(us(0), ALONE, MTU + 1, Packet(0)).unwrap_err();
    assert_eq!(refused.reason, OverflowReason::PacketBytes);
}

#[test]
fn a_crowd_that_becomes_current_at_once_is_moved_in_bounded_steps_before_anything_goes() {
    let mut link = by_completion();
    for channel in 0..200u64 {
        let flow = link.add_channel(1, Nanos::ZERO);
        // The last to become current is the most urgent.
        link.enqueue(us(0), flow, key(10 + channel, 2_000 - channel, 100), Packet(channel as u32)).unwrap();
    }
    let mut polls = 0;
    let first = loop {
        match link.poll(us(500)) {
            Some(scheduled) => break scheduled.packet.0,
            None => assert!(link.next_timeout().unwrap() <= us(500), "it must ask to be polled again"),
        }
        polls += 1;
    };
    assert_eq!((first, polls), (199, 3));
}

#[test]
fn effective_arrivals_and_deadlines_do_not_fall_within_a_channel() {
    let mut link = by_completion();
    let (careless, other) = (link.add_channel(2, Nanos::ZERO), link.add_channel(1, Nanos::ZERO));
    link.enqueue(us(0), careless, key(0, 50, 100), Packet(0)).unwrap();
    link.enqueue(us(0), careless, key(0, 10, 100), Packet(1)).unwrap();
    link.enqueue(us(0), other, key(0, 40, 100), Packet(2)).unwrap();
    assert_eq!(drain(&mut link, us(0)), [2, 0, 1]);
}

/// Several short packets that fit one MTU would block for longer than the largest unit that admission counts.
#[test]
fn at_depth_1_one_packet_is_outstanding_however_short() {
    let mut link = Link::new(LinkParameters {
        pipeline_depth: 1,
        best_effort_wire_bytes: 300,
        ..parameters(Pacing::Completion)
    });
    for packet in 0..3 {
        link.enqueue_best_effort(us(0), ALONE, 300, Packet(packet)).unwrap();
    }
    assert_eq!(drain(&mut link, us(0)), [0]);
    let flow = link.add_channel(1, Nanos::ZERO);
    link.enqueue(us(100), flow, key(100, 1_000, 100), Packet(9)).unwrap();
    assert_eq!(drain(&mut link, us(100)), []);
    link.complete(300, us(300));
    assert_eq!(drain(&mut link, us(300)), [9], "it has waited for one packet of best effort, not for three");
}

#[test]
fn soft_channels_go_after_all_that_are_hard_and_before_best_effort() {
    let mut link = by_completion();
    let (soft, other) = (link.add_soft_channel(4, Nanos::ZERO), link.add_soft_channel(4, Nanos(50_000)));
    let hard = link.add_channel(4, Nanos::ZERO);
    link.enqueue_best_effort(us(0), ALONE, 100, Packet(100)).unwrap();
    link.enqueue(us(0), soft, key(0, 20, 100), Packet(0)).unwrap();
    link.enqueue(us(0), soft, key(0, 30, 100), Packet(1)).unwrap();
    link.enqueue(us(0), other, key(40, 10, 100), Packet(2)).unwrap();
    link.enqueue(us(0), hard, key(0, 9_000, 100), Packet(3)).unwrap();
    link.enqueue(us(0), hard, key(500, 9_000, 100), Packet(4)).unwrap();
    assert_eq!(
        drain(&mut link, us(0)),
        [3, 2, 0, 1, 100],
        "by deadline among themselves; what is early waits"
    );
    assert_eq!(drain(&mut link, us(500)), [4]);
}

/// Whatever the rate, a packet's time on the wire is that of its bytes, to a nanosecond or two, and never less: what is stamped
/// must not lie before what is true.
#[test]
fn a_packets_time_is_never_rounded_down() {
    for rate in
        [1, 3, 999, 250_000, 9_600_001, 24_000_000, 70_000_000, 999_999_999, 10_000_000_000, 399_999_999_991]
    {
        for bytes in [1, 2, 3, 7, 64, 999, 1_000] {
            let mut link = Link::new(LinkParameters { rate: BitRate(rate), ..parameters(Pacing::Clock) });
            link.enqueue_best_effort(us(5), ALONE, bytes, Packet(0)).unwrap();
            let sent = link.poll(us(5)).expect("it is idle");
            let exact = (u128::from(bytes) * 8_000_000_000).div_ceil(u128::from(rate));
            let took = u128::from(sent.departure_latest.since(us(5)).0);
            // A thousand bytes' roundings of 2^-20 ns each.
            assert!((exact..=exact + 2).contains(&took), "{bytes} B at {rate} bit/s: {took} of {exact}");
            assert!(link.outstanding(us(5)) >= u64::from(bytes), "{rate}");
        }
    }
}
