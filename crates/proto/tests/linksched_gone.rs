//! Operations on channels and flows that do not exist (any more) change nothing; and a link with a new rate
//! keeps its caps.

use punctual_proto::config::LinkConfig;
use punctual_proto::ids::NodeId;
use punctual_proto::limits::LEFTOVERS_MAX;
use punctual_proto::linksched::{
    BestEffortKey, FlowIndex, Guaranteed, LinkParameters, LinkScheduler, Occupancy, OverflowReason,
};
use punctual_proto::{BitRate, Instant, Nanos, Ppm};

const BYTES: u32 = 1_000;

fn parameters(rate: u64) -> LinkParameters {
    let link = LinkConfig::new("l", NodeId(1), BitRate(rate));
    LinkParameters {
        rate: BitRate(rate),
        mtu_wire_bytes: BYTES,
        best_effort_wire_bytes: BYTES,
        ..LinkParameters::of(&link)
    }
}

#[test]
fn channels_that_are_gone_take_and_give_nothing() {
    let mut link = LinkScheduler::<u32>::new(parameters(8_000_000));
    let now = Instant(0);
    let key = Guaranteed { effective: now, deadline: Instant(5), wire_bytes: 10 };
    let [kept, gone] = [(); 2].map(|()| link.add_channel(4, Nanos::ZERO));
    link.enqueue(now, kept, key, 1).expect("there is room");
    let mut drained = Vec::new();
    link.remove_channel(gone, |packet| drained.push(packet));
    for flow in [gone, FlowIndex(77)] {
        link.set_channel(flow, 9, Nanos(5));
        link.remove_channel(flow, |packet| drained.push(packet));
        let refused = link.enqueue(now, flow, key, 2).expect_err("it is not there");
        assert_eq!((refused.packet, refused.reason), (2, OverflowReason::UnknownFlow));
        assert_eq!((link.slots_free(flow), link.occupancy(flow)), (0, Occupancy::default()));
        assert!(!link.is_soft(flow));
    }
    link.remove_best_effort(BestEffortKey(9), |packet| drained.push(packet));
    assert!(drained.is_empty() && link.channels() == 1);
    assert!(link.accounts().iter().all(|[counted, there]| counted == there));
    assert_eq!(link.poll(now).map(|scheduled| scheduled.packet), Some(1));
    assert!(link.is_empty() && link.poll(now).is_none());
}

/// A flow's cap is a share of the rate, of another one after that has changed.
#[test]
fn a_flows_cap_follows_the_rate() {
    let capped = |rate| LinkParameters { best_effort_flow_cap: Ppm(100_000), ..parameters(rate) };
    let sent = |link: &mut LinkScheduler<u32>, from: u64, span_ms: u64| {
        let (mut bytes, end) = (0_u64, Instant(from) + Nanos::from_millis(span_ms));
        let mut now = Instant(from);
        while now < end {
            while link.enqueue_best_effort(now, BestEffortKey(1), BYTES, 0).is_ok() {}
            while let Some(scheduled) = link.poll(now) {
                bytes += u64::from(scheduled.wire_bytes);
            }
            now = link.next_timeout().expect("it has more").max(now + Nanos(1));
        }
        bytes
    };
    let mut link = LinkScheduler::new(capped(8_000_000));
    // A tenth of a megabyte a second, and some packets ahead.
    assert!((100_000..110_000).contains(&sent(&mut link, 0, 1_000)));
    link.set_parameters(&capped(80_000_000));
    let faster = sent(&mut link, 2_000_000_000, 1_000);
    assert!((1_000_000..1_010_000).contains(&faster), "{faster}");
    // A flow that is emptied while its cap holds it back is removed once that is over, and can be added
    // again.
    let mut drained = 0;
    link.remove_best_effort(BestEffortKey(1), |_| drained += 1);
    assert!(drained > 0);
    let later = Instant(9_000_000_000);
    assert!(link.poll(later).is_none() && link.is_empty());
    assert!(link.enqueue_best_effort(later, BestEffortKey(1), BYTES, 7).is_ok());
    assert_eq!(link.poll(later).map(|scheduled| scheduled.packet), Some(7));
}

/// A removed flow returns its packets in slices. After a slice of exactly the rest, nothing is left.
#[test]
fn a_flow_that_goes_leaves_nothing_behind_its_last_slice() {
    for (packets, slices) in [(1, 1), (LEFTOVERS_MAX - 1, 1), (LEFTOVERS_MAX, 1), (LEFTOVERS_MAX + 1, 2)] {
        let mut link = LinkScheduler::new(LinkParameters {
            best_effort_flow_bytes_max: 1_000 * BYTES,
            ..parameters(8_000_000)
        });
        for number in 0..packets {
            link.enqueue_best_effort(Instant(0), BestEffortKey(1), BYTES, number).expect("there is room");
        }
        let mut drained = Vec::new();
        link.remove_best_effort(BestEffortKey(1), |packet| drained.push(packet));
        assert_eq!(link.has_leftovers(), slices > 1, "{packets}");
        for _ in 1..slices {
            link.free_some(|packet| drained.push(packet));
        }
        assert!(!link.has_leftovers() && drained.len() == packets as usize, "{packets}");
        assert!(link.accounts().iter().all(|[counted, there]| counted == there));
    }
}
