//! The limits of the link scheduler, to the byte and to the nanosecond: when a packet becomes current, and
//! what a best-effort flow may queue. The link drains a byte in a nanosecond.

mod common;

use common::link::{MTU, parameters};
use punctual_proto::config::{LinkConfig, Pacing};
use punctual_proto::ids::NodeId;
use punctual_proto::limits::{BEST_EFFORT_CAP_BURST_PACKETS, LINK_MOVES_MAX};
use punctual_proto::linksched::{
    BestEffortKey, Guaranteed, LinkParameters, LinkScheduler, OverflowReason, Scheduled,
};
use punctual_proto::signalling::SplitMix64;
use punctual_proto::{BitRate, Instant, Nanos, Ppm};

fn key(effective: u64, deadline: u64) -> Guaranteed {
    Guaranteed { effective: Instant(effective), deadline: Instant(deadline), wire_bytes: 10 }
}

/// The next packet, which leaves at once.
fn next(link: &mut LinkScheduler<u64>, now: u64) -> Option<Scheduled<u64>> {
    let scheduled = link.poll(Instant(now))?;
    link.complete(scheduled.wire_bytes, Instant(now));
    Some(scheduled)
}

/// So many channels become current in one call. If there is one more, it may be the most urgent: nothing goes
/// yet.
#[test]
fn nothing_goes_until_all_that_is_current_is_placed() {
    for crowd in [1, LINK_MOVES_MAX - 1, LINK_MOVES_MAX, LINK_MOVES_MAX + 1] {
        let mut link = LinkScheduler::new(parameters());
        for number in 0..u64::from(crowd) {
            let flow = link.add_channel(1, Nanos::ZERO);
            link.enqueue(Instant(0), flow, key(100, 1_000 - number), number).expect("a slot");
        }
        assert_eq!(link.poll(Instant(99)), None, "{crowd}");
        let last = u64::from(crowd) - 1;
        let first = link.poll(Instant(100)).map(|scheduled| scheduled.packet);
        assert_eq!(first, (crowd <= LINK_MOVES_MAX).then_some(last), "{crowd}");
        if first.is_none() {
            assert_eq!(link.next_timeout(), Some(Instant(100)), "it must be polled again at once");
            assert_eq!(link.poll(Instant(100)).map(|scheduled| scheduled.packet), Some(last));
        }
    }
}

/// So many flows are freed by their caps in one call. If there is one more, the link must be polled again at
/// once.
#[test]
fn so_many_flows_come_back_to_the_round_at_once() {
    for crowd in [1, LINK_MOVES_MAX - 1, LINK_MOVES_MAX, LINK_MOVES_MAX + 1] {
        let mut link = LinkScheduler::new(LinkParameters {
            best_effort_flow_cap: Ppm(100_000),
            best_effort_flows_max: crowd,
            best_effort_packets_max: 100_000,
            ..parameters()
        });
        let keys = || (0..u64::from(crowd)).map(BestEffortKey);
        // One packet more than the burst of each, and one that stays.
        for key in keys() {
            for _ in 0..BEST_EFFORT_CAP_BURST_PACKETS + 2 {
                link.enqueue_best_effort(Instant(0), key, MTU, 0).expect("there is room");
            }
        }
        while next(&mut link, 0).is_some() {}
        assert!(!link.best_effort_waits() && link.next_timeout() == Some(Instant(10_000)), "{crowd}");
        assert!(next(&mut link, 10_000).is_some());
        let again = (crowd > LINK_MOVES_MAX).then_some(Instant(10_000));
        assert_eq!(link.next_timeout(), again, "{crowd}");
    }
}

/// A flow that went idle in debt may send again from the nanosecond on at which it has paid all but its
/// burst.
#[test]
fn a_flow_in_debt_waits_to_the_nanosecond() {
    // A byte costs ten nanoseconds, and the packet behind the burst a thousand times as much.
    for (now, waits) in [(9_999, false), (10_000, true), (10_001, true)] {
        let mut link =
            LinkScheduler::new(LinkParameters { best_effort_flow_cap: Ppm(100_000), ..parameters() });
        for packet in 0..=BEST_EFFORT_CAP_BURST_PACKETS {
            link.enqueue_best_effort(Instant(0), BestEffortKey(1), MTU, packet).expect("there is room");
        }
        while next(&mut link, 0).is_some() {}
        assert!(link.is_empty(), "it was free until the last one");
        link.enqueue_best_effort(Instant(now), BestEffortKey(1), MTU, 9).expect("there is room");
        let timeout = (!waits).then_some(Instant(10_000));
        assert_eq!((link.best_effort_waits(), link.next_timeout()), (waits, timeout), "{now}");
        assert_eq!(next(&mut link, now).is_some(), waits, "{now}");
    }
}

/// What a configured link is for its scheduler; a pipeline is one packet deep at least.
#[test]
fn a_configured_link_has_its_sizes_with_all_overhead() {
    for (depth, least) in [(0, 1), (1, 1), (2, 2), (3, 3)] {
        let config = LinkConfig {
            packet_bytes_max: 1_400,
            packet_best_effort_bytes_max: Some(1_200),
            overhead_bytes: 66,
            pipeline_depth: depth,
            ..LinkConfig::new("l", NodeId(1), BitRate(8_000_000_000))
        };
        let of = LinkParameters::of(&config);
        let best_effort = 1_200 + 66;
        assert_eq!(
            (of.mtu_wire_bytes, of.best_effort_wire_bytes, of.pipeline_depth),
            (1_466, best_effort, least)
        );
        // The scheduler counts as deep as that, even where it was not told so.
        for pace in [Pacing::Clock, Pacing::Completion] {
            let mut link = LinkScheduler::new(LinkParameters { pipeline_depth: depth, pace, ..of });
            for packet in 0..9 {
                link.enqueue_best_effort(Instant(0), BestEffortKey(1), best_effort, packet)
                    .expect("there is room");
            }
            let taken = (0..9).take_while(|_| link.poll(Instant(0)).is_some()).count();
            assert_eq!(taken as u32, least, "{depth} {pace:?}");
        }
    }
}

/// A byte takes eight seconds on a link of one bit a second, and on a link of none.
#[test]
fn no_link_is_slower_than_a_bit_a_second() {
    for (rate, second) in [(0, 8), (1, 8), (2, 4), (8, 1)] {
        let mut link = LinkScheduler::new(LinkParameters { rate: BitRate(rate), ..parameters() });
        link.enqueue_best_effort(Instant(0), BestEffortKey(1), 1, 0).expect("there is room");
        let departure = link.poll(Instant(0)).expect("it may go").departure_latest;
        assert_eq!(departure, Instant(0) + Nanos::from_secs(second), "{rate}");
    }
}

/// A packet is current from e - h on, when it is queued and when the one before it has gone: what is current
/// waits for no timer.
#[test]
fn a_packet_waits_for_a_timer_until_it_is_current_only() {
    for (effective, timeout) in [(139, None), (140, None), (141, Some(Instant(101)))] {
        let mut link = LinkScheduler::new(parameters());
        let flow = link.add_channel(2, Nanos(40));
        link.enqueue(Instant(100), flow, key(effective, 500), 0).expect("a slot");
        assert_eq!((link.next_timeout(), link.is_served(Instant(100))), (timeout, timeout.is_some()));
        let mut link = LinkScheduler::new(parameters());
        let flow = link.add_channel(2, Nanos(40));
        link.enqueue(Instant(100), flow, key(0, 500), 0).expect("a slot");
        link.enqueue(Instant(100), flow, key(effective, 500), 1).expect("a slot");
        assert!(next(&mut link, 100).is_some_and(|first| first.packet == 0));
        assert_eq!((link.next_timeout(), link.is_served(Instant(100))), (timeout, timeout.is_some()));
    }
}

/// A flow may queue its bytes, and fewer packets than there are free places. A packet of no bytes counts as
/// one byte.
#[test]
fn a_flow_queues_what_its_bounds_allow_whatever_came_and_went() {
    const FLOW_BYTES: u64 = 12;
    const PLACES: usize = 9;
    let mut numbers = SplitMix64::new(1);
    let mut link = LinkScheduler::new(LinkParameters {
        best_effort_flow_bytes_max: FLOW_BYTES as u32,
        best_effort_packets_max: PLACES as u32,
        best_effort_flows_max: 200,
        ..parameters()
    });
    // One packet of each flow takes all places and no more.
    let all =
        (100..200).filter(|flow| link.enqueue_best_effort(Instant(0), BestEffortKey(*flow), 1, 0).is_ok());
    assert_eq!(all.count(), PLACES);
    (0..PLACES).for_each(|_| assert!(next(&mut link, 0).is_some()));
    // The flow and the counted bytes of each packet, and its number.
    let mut queued: Vec<(u64, u64, u64)> = Vec::new();
    for packet in 0..20_000 {
        let flow = numbers.below(6);
        match numbers.below(8) {
            0..=4 => {
                let bytes = [0, 1, 1, 2, 5, 11, 12, 13][numbers.below(8) as usize];
                let own = || queued.iter().filter(|(of, ..)| *of == flow);
                let fits = own().map(|(_, bytes, _)| bytes).sum::<u64>() + bytes <= FLOW_BYTES
                    && own().count() < PLACES - queued.len();
                assert_eq!(link.best_effort_space(BestEffortKey(flow), bytes as u32), fits, "{packet}");
                let taken = link.enqueue_best_effort(Instant(0), BestEffortKey(flow), bytes as u32, packet);
                let refused = taken.err().map(|overflow| overflow.reason);
                assert_eq!(refused, (!fits).then_some(OverflowReason::FlowFull), "{packet}");
                queued.extend(fits.then_some((flow, bytes.max(1), packet)));
            }
            5 | 6 => match next(&mut link, 0) {
                Some(scheduled) => {
                    let at = queued.iter().position(|(.., number)| *number == scheduled.packet);
                    let (_, bytes, _) = queued.remove(at.expect("it was queued"));
                    assert_eq!(u64::from(scheduled.wire_bytes), bytes);
                }
                None => assert!(queued.is_empty()),
            },
            _ => {
                link.remove_best_effort(BestEffortKey(flow), |_| {});
                assert!(!link.has_leftovers(), "so few are freed at once");
                queued.retain(|(of, ..)| *of != flow);
            }
        }
        assert_eq!(link.accounts()[1], [queued.len(); 2]);
    }
}
