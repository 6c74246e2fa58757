//! The rate at which a link's driver lets signalling in: all packets that a conforming neighbour may send,
//! and a bounded rest.
//!
//! The neighbour regulates its signalling to logical arrivals I apart, I = 1 / `packets_per_second`, and
//! sends each packet within I of that (the bound of the implicit channel). In transit it is delayed by the
//! link's jitter at most. So in any time x at most `ceil((I + jitter) / I') + x / I' + 1` packets arrive,
//! with I' = I (1 - 1/128) for a fast clock: a token bucket. Packets beyond the rate that admission uses wait
//! in the background of the processor in any case, so the bucket may be wide, and is: a driver that drops too
//! early would let a small flood end channels that the processor could have kept.

use punctual_link::xdp::Rate;
use punctual_proto::Nanos;
use punctual_proto::config::{LinkConfig, SignallingConfig};

/// Factor by which a neighbour may be configured for more than our `packets_per_second` and still conform.
const MARGIN: u32 = 10;
/// More packets than a restarted neighbour delivers at once, or a queue on the way that was blocked for a
/// time.
const HEAP_PACKETS: u64 = 32;
/// Divisor of our `packets_per_second` that gives the rate of unsealed packets.
const UNKNOWN_SENDERS_PART: u32 = 4;

/// The bucket of a link; `None` if no packet can be sent (refused when the node is created).
pub(super) fn bound(signalling: &SignallingConfig, link: &LinkConfig) -> Option<Rate> {
    let packets_per_second = signalling.packets_per_second.saturating_mul(MARGIN).min(1_000_000_000);
    let fastest = SignallingConfig { packets_per_second, ..signalling.clone() }.rate()?;
    let policed = fastest.policed_interval().max(Nanos(1));
    let jitter = link.propagation_max - link.propagation_min + link.prediction_error;
    let heap = (fastest.interval() + jitter).div_ceil(policed).saturating_add(1 + HEAP_PACKETS);
    Some(Rate {
        packets_per_second: u32::try_from(1_000_000_000_u64.div_ceil(policed.0)).unwrap_or(u32::MAX),
        burst_packets: u32::try_from(heap).unwrap_or(u32::MAX),
    })
}

/// Bucket for packets that do not have the neighbour's seal: its first ones after a start, or those that
/// another host sends under its address. It admits so few that they fit into the processor's own budget in
/// addition to the neighbour's packets.
pub(super) fn unknown_bound(signalling: &SignallingConfig) -> Option<Rate> {
    let packets_per_second = (signalling.packets_per_second / UNKNOWN_SENDERS_PART).max(1);
    Some(Rate { packets_per_second, burst_packets: HEAP_PACKETS as u32 })
}

#[cfg(test)]
mod tests {
    use punctual_proto::BitRate;
    use punctual_proto::ids::NodeId;

    use super::*;

    /// Number of the packets at `times_ns` that the bucket lets in (`conforms` of the program).
    fn let_in(rate: Rate, times_ns: impl Iterator<Item = u64>) -> u64 {
        let interval = 1_000_000_000_u64.div_ceil(rate.packets_per_second.into());
        let depth = interval * u64::from(rate.burst_packets);
        let mut full_at = 0;
        times_ns
            .filter(|now| {
                let next = full_at.max(*now) + interval;
                let conforms = next - now <= depth;
                full_at = if conforms { next } else { full_at };
                conforms
            })
            .count() as u64
    }

    fn link() -> LinkConfig {
        let link = LinkConfig::new("wire", NodeId(2), BitRate(100_000_000));
        LinkConfig { propagation_max: Nanos::from_millis(3), prediction_error: Nanos::from_millis(7), ..link }
    }

    #[test]
    fn whatever_a_conforming_neighbour_sends_is_let_in() {
        const PACKETS: u64 = 20_000;
        for packets_per_second in [1, 50, 100_000] {
            let rate =
                bound(&SignallingConfig { packets_per_second, ..SignallingConfig::default() }, &link());
            let rate = rate.expect("a bucket");
            for times in [1, 2, u64::from(MARGIN)] {
                // The clock is fast by half a per cent, and everything that falls into a heap's time comes at
                // its end.
                let interval = 1_000_000_000 / (u64::from(packets_per_second) * times) * 199 / 200;
                for heap in [1, interval + 10_000_000, interval * HEAP_PACKETS] {
                    let sent = (0..PACKETS).map(|number| (number * interval).div_ceil(heap) * heap);
                    assert_eq!(let_in(rate, sent), PACKETS, "{rate:?}, {times} times, heaps of {heap} ns");
                }
            }
        }
    }

    #[test]
    fn a_flood_is_cut_to_the_margin() {
        let rate = bound(&SignallingConfig::default(), &link()).expect("a bucket");
        // A packet every microsecond for ten seconds.
        let taken = let_in(rate, (0..10_000_000).map(|number| number * 1_000));
        let most = 10 * 50 * 10 * 128 / 127 + 20 + u64::from(rate.burst_packets);
        assert!(taken <= most && taken > 10 * 50 * 10, "{taken} of at most {most}");
    }
}
