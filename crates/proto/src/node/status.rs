//! The status of a node.

use alloc::format;
use alloc::string::ToString;
use alloc::vec::Vec;

use punctual_analysis::{Guarantee, Instant};

use super::Node;
use crate::api::{
    ChannelPage, ChannelStatus, DegradedHost, DegradedPlace, DropCounters, ForeignVersion, LinkStatus,
    NodeStatus, hosts_of,
};
use crate::breach::Watch;
use crate::ids::{ChannelId, LinkId};
use crate::memory::Memory;
use crate::signalling::{ChannelView, RTCOP_VERSION};

impl<M: Memory> Node<M> {
    /// The node's status, for the verb `status`.
    pub fn status(&self, now: Instant) -> NodeStatus {
        let plane = &self.plane;
        let signalling = self.signalling.counters();
        let drops = *plane.drops();
        let (work, busy, wakes) = plane.work_records();
        NodeStatus {
            id: plane.config().id,
            name: plane.config().name.clone(),
            channels: plane.channels() as u32,
            channels_soft: plane.channels_soft(),
            cpu_utilisation: plane.stages().cpu_utilisation(),
            buffer_bytes: plane.stages().buffer_bytes(),
            links: plane.links().map(|link| self.link_status(link, now)).collect(),
            drops: DropCounters {
                malformed: drops.malformed + signalling.malformed,
                version: drops.version + signalling.version,
                unauthenticated: signalling.unauthenticated,
                replayed: signalling.replayed,
                ..drops
            },
            overruns: plane.overruns(),
            work,
            busy,
            wakes,
            late_service: plane.processor_watch().total(),
            broken: self.broken_stages(),
            late: self.late_stages(now),
            channels_total: plane.counted_total(),
            retransmissions: signalling.retransmissions,
            unanswered: signalling.unanswered,
            now,
        }
    }

    fn link_status(&self, link: LinkId, now: Instant) -> LinkStatus {
        let state = self.plane.link_state(link);
        let neighbour = self.signalling.neighbour(link, now);
        let counters = state.counters();
        LinkStatus {
            link,
            name: state.config().name.clone(),
            neighbour: state.config().neighbour,
            neighbour_name: self.plane.config().host_name(state.config().neighbour),
            alive: neighbour.alive,
            foreign: neighbour.foreign_version.map(|theirs| ForeignVersion { theirs, ours: RTCOP_VERSION }),
            packets_foreign: state.packets_foreign() + neighbour.packets_foreign,
            clock_offset_ns: neighbour.clock.map(|clock| (clock.offset_ns, clock.error_at(now).0)),
            clock_breaks: neighbour.clock_breaks,
            wire_bytes_in: state.bytes_in(),
            late_signals: self.signalling.arrivals(link).map(Watch::total).unwrap_or_default(),
            late_packets: state.arrivals().total(),
            round_trip_min: neighbour.round_trip_min,
            round_trip_recent: neighbour.round_trip_recent,
            unauthenticated: neighbour.unauthenticated,
            rate: self.rate_status(link),
            utilisation: self.plane.stages().link_utilisation(link),
            kernel_traffic: state.config().kernel_traffic,
            kernel_share: state.kernel_share(),
            packets_guaranteed: counters.guaranteed_packets.saturating_sub(state.signal_packets()),
            packets_best_effort: counters.best_effort_packets,
            packets_signalling: state.signal_packets(),
            wire_bytes: counters.guaranteed_bytes + counters.best_effort_bytes,
            best_effort_dropped: counters.best_effort_overflows,
        }
    }

    /// For `channels`: every guaranteed channel that starts, passes or ends here, by handle. A channel that
    /// has ended and waits only for the sink's final report is not listed: its counters no longer exist.
    pub fn channels(&self) -> Vec<ChannelStatus> {
        let lives = self.signalling.channels().filter(|view| !view.has_ended);
        lives.map(|view| self.channel_status(&view)).collect()
    }

    /// A page of that list: the `looked_max` handles behind `after`. The time is proportional to
    /// `looked_max`, not to the number of channels.
    pub fn channels_after(&self, after: Option<ChannelId>, checked_max: usize) -> ChannelPage {
        let mut page = ChannelPage { channels: Vec::new(), seen: after, more: false };
        let mut views = self.signalling.channels_after(after);
        for view in views.by_ref().take(checked_max) {
            page.seen = Some(view.local.channel);
            if !view.has_ended {
                page.channels.push(self.channel_status(&view));
            }
        }
        page.more = views.next().is_some();
        page
    }

    /// Status of one channel; `None` if it is not known here.
    pub fn channel(&self, channel: ChannelId) -> Option<ChannelStatus> {
        self.signalling.channel(channel).map(|view| self.channel_status(&view))
    }

    fn channel_status(&self, view: &ChannelView<'_>) -> ChannelStatus {
        let local = view.local;
        let broken = self.signalling.broken_on(local.channel);
        let name = |node| self.plane.config().host_name(node);
        let degraded_by: Vec<_> = hosts_of(view.degraded).into_iter().map(name).collect();
        let reason = |host: &DegradedHost| format!("{}: {}", name(host.node), host.why);
        let place = |host: &DegradedHost| DegradedPlace::host(&name(host.node), host.why);
        let stages = broken.iter().map(DegradedPlace::stage);
        let degraded: Vec<_> = view.degraded.iter().map(place).chain(stages).collect();
        ChannelStatus {
            channel: local.channel,
            path: local.path,
            role: local.role,
            from: view.from.to_string(),
            to: view.to.clone(),
            contract: *local.contract,
            jitter_allowance: local.contract.jitter_allowance(),
            guarantee: match degraded.is_empty() {
                true => local.contract.guarantee(),
                false => Guarantee::Degraded,
            },
            degraded,
            broken,
            degraded_by,
            degraded_why: view.degraded.iter().map(reason).collect(),
            stages: self.plane.stages().holding(local),
            state: view.state.into(),
            delivery: local.contract.delivery,
            counters: self.plane.counted(local.channel),
            observed: self.plane.observed(local.channel),
        }
    }
}
