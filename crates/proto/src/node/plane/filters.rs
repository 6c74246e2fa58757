//! Which packets of a channel an honest path can deliver to this host's driver, and how many of them at once.
//!
//! **The bucket.** Let U be the most that all stages before this host may take together, propagation
//! included, J the arrival error here, P the packets of a largest message, I' the policed interval. Message i
//! leaves its source at l(i) - a or later, since the source regulates to that (a its jitter allowance), and a
//! packet of it that keeps its nominal arrival comes at n + J <= l(i) + U + J or earlier; a later one is
//! demoted here in any case. So what comes in an interval [t, t + x] belongs to messages with l in [t - U -
//! J, t + x + a]. The l lie at least I' apart, also on this host's clock (I' = I (1 - 1/128) covers its
//! drift), hence at most floor((x + a + U + J) / I') + 1 messages, of at most P packets each:
//!
//! `packets(x) <= P ((x + a + U + J) / I' + 1) <= P (ceil((a + U + J) / I') + 1) + x P / I'`.
//!
//! This is a token bucket of P (ceil((a + U + J) / I') + 1) packets that earns one more packet each I' / P
//! (rounded down, so the bucket is wider). A driver that counts at any time between the arrival and the
//! receive time that it reports counts within the same bounds, because J covers that span.
//!
//! **Expiry.** With U_min the sum of the smallest bounds before this host (a stage's bound never falls below
//! what it offered), n >= l + U_min - J, so a packet received at n - slack is past l + D for certain when
//! slack < U_min - J - D.
//!
//! **Buffers.** The channel has the buffers that admission has reserved, from the wire to the completion (a
//! stage's bound ends there). At a forwarder they include one more message, because the driver may learn of a
//! completion late.

use punctual_analysis::mutation::{Mutation, active};
use punctual_analysis::{Activation, Contract, Late, Nanos};

use super::Plane;
use super::buffers::Buffers;
use crate::api::{FilterChange, PathFilter};
use crate::ids::LinkId;
use crate::limits::HEADER_BYTES;
use crate::memory::Memory;
use crate::signalling::LocalChannel;

/// Bounds on the arrival of a channel's packets at this host.
#[derive(Clone, Copy, Debug)]
pub(super) struct Upstream {
    /// U.
    pub most: Nanos,
    /// U_min.
    pub least: Nanos,
    /// J.
    pub arrival_error: Nanos,
    /// a.
    pub early: Nanos,
}

/// The slack below which a packet of a soft channel cannot keep its deadline any more; the driver drops it then, or
/// the node where the driver does not classify.
pub(super) fn slack_ns_min(contract: &Contract, upstream: Upstream) -> Option<i64> {
    let latest = contract.deadline + upstream.arrival_error - upstream.least;
    (contract.late == Late::Drop).then(|| -i64::try_from(latest.0).unwrap_or(i64::MAX))
}

/// The filter of a channel with `buffers` buffers here.
fn filter(local: &LocalChannel, upstream: Upstream, buffers: u32) -> PathFilter {
    let contract = &local.contract;
    let (packets, period) = (contract.packets_max(local.fragment_bytes).max(1), contract.policed_interval());
    let ignored = active(Mutation::BucketWithoutArrivalError);
    let error = if ignored { Nanos::ZERO } else { upstream.arrival_error };
    let messages = (upstream.early + upstream.most + error).div_ceil(period).saturating_add(1);
    let burst_packets = u32::try_from(messages.saturating_mul(u64::from(packets))).unwrap_or(u32::MAX);
    PathFilter {
        path: local.path,
        cookie: local.cookie,
        low_latency: matches!(contract.activation, Activation::LowLatency { .. }),
        packet_bytes_max: local.fragment_bytes.min(contract.message_bytes_max) + HEADER_BYTES as u32,
        burst_packets,
        interval: Nanos((period.0 / u64::from(packets)).max(1)),
        buffers: buffers.max(1),
        slack_ns_min: slack_ns_min(contract, upstream),
    }
}

impl<M: Memory> Plane<M> {
    /// Sends the filter to the driver of the link that the channel comes in on.
    pub(super) fn set_filter(&mut self, local: &LocalChannel, upstream: Upstream, buffers: Buffers) {
        let Some(link) = local.link_in else { return };
        let packets = local.contract.packets_max(local.fragment_bytes);
        let ignored = active(Mutation::FilterWithoutCompleting);
        let completing = u32::from(local.link_out.is_some() && !ignored);
        let frames = buffers.waiting_messages().saturating_add(completing).saturating_mul(packets);
        self.context.news.filters.push_back((link, FilterChange::Set(filter(local, upstream, frames))));
    }

    /// Whether best-effort packets should be taken from a link's driver: there is room for them, and no more
    /// urgent work waits for the processor. A flood that stays in the driver costs no CPU (RIO 2.0.1).
    pub fn takes_best_effort(&self, link: LinkId) -> bool {
        let state = self.link_state(link);
        let room =
            state.frames.best_effort < state.frames.best_effort_max && self.best_effort.arrivals.is_short();
        room && !self.context.processor.executor.has_urgent()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::Role;
    use crate::ids::{ChannelId, ChannelNumber, Cookie, Epoch, NodeId, PathId};
    use alloc::sync::Arc;
    use punctual_analysis::Rate;

    fn local(contract: Contract) -> LocalChannel {
        LocalChannel {
            channel: ChannelId(1),
            path: PathId { node: NodeId(1), channel: ChannelNumber(7), epoch: Epoch(9) },
            cookie: Cookie(5),
            role: Role::Sink,
            link_in: Some(LinkId(0)),
            link_out: None,
            contract: Arc::new(contract),
            fragment_bytes: 1_000,
            soft: None,
            handler_time: Nanos::ZERO,
        }
    }

    #[test]
    fn the_bucket_is_as_wide_as_what_may_pile_up_on_the_way() {
        let rate = Rate::per_second(100).expect("a rate");
        let contract = Contract::new(2_500, rate, 1, Nanos::from_millis(50)).expect("a contract");
        let upstream = Upstream {
            most: Nanos::from_millis(30),
            least: Nanos::from_millis(20),
            arrival_error: Nanos::from_millis(1),
            early: Nanos::ZERO,
        };
        let hard = filter(&local(contract), upstream, 12);
        // I' is 9.92 ms: 31 ms hold 4 more messages of 3 packets.
        assert_eq!(
            (hard.burst_packets, hard.buffers, hard.packet_bytes_max),
            (15, 12, 1_000 + HEADER_BYTES as u32)
        );
        // Exactly 4 I' are within the bound. One nanosecond more adds a message, whichever term of the sum it
        // is added to.
        let rest = Nanos(contract.policed_interval().0 * 4 - upstream.most.0);
        for (error, packets) in [(rest, 15), (rest + Nanos(1), 18), (rest + contract.policed_interval(), 18)]
        {
            let upstream = Upstream { arrival_error: error, ..upstream };
            assert_eq!(filter(&local(contract), upstream, 12).burst_packets, packets, "J of {error}");
        }
        let jittery = Upstream { early: Nanos::from_millis(9), ..upstream };
        assert_eq!(filter(&local(contract), jittery, 12).burst_packets, 18);
        assert_eq!(hard.interval, Nanos(contract.policed_interval().0 / 3));
        assert_eq!((hard.slack_ns_min, hard.low_latency), (None, false));
        let soft = Contract { late: Late::Drop, ..contract };
        assert_eq!(filter(&local(soft), upstream, 12).slack_ns_min, Some(-31_000_000));
    }

    #[test]
    fn absurd_terms_saturate() {
        let rate = Rate::per_second(1_000_000).expect("a rate");
        let contract = Contract::new(64 << 20, rate, 1, Nanos::from_secs(3_600)).expect("a contract");
        let contract = Contract { late: Late::Drop, ..contract };
        let upstream =
            Upstream { most: Nanos::MAX, least: Nanos::ZERO, arrival_error: Nanos::MAX, early: Nanos::MAX };
        let filter = filter(&local(contract), upstream, 0);
        assert_eq!((filter.burst_packets, filter.interval, filter.buffers), (u32::MAX, Nanos(1), 1));
        assert!(filter.slack_ns_min.is_some_and(|slack| slack < 0));
        // A message has one packet at least, even an empty one.
        let empty = Contract { message_bytes_max: 0, ..contract };
        assert_eq!(super::filter(&local(empty), upstream, 0).interval, contract.policed_interval());
    }
}
