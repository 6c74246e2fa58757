//! A driver that classifies, as far as it must never stand in the way: what nodes say about their channels, and
//! whether a path that keeps its contract ever meets it (it must not).

use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;

use punctual_analysis::Instant;
use punctual_proto::ids::{LinkId, PathId};
use punctual_proto::node::api::{FilterChange, PathFilter};
use punctual_proto::wire::{Header, Kind};

/// How many packets of a path are in buffers of a host.
pub type Held = Rc<Cell<u32>>;

/// What one host's drivers know.
#[derive(Debug)]
pub struct Filters {
    gauges: BTreeMap<(u16, PathId), Gauge>,
    burst_percent: u32,
}

#[derive(Debug)]
struct Gauge {
    filter: PathFilter,
    /// When the token bucket would be full again.
    full_at: Instant,
    held: Held,
}

impl Filters {
    /// Drivers that let through `burst_percent` of the bursts that they are told.
    pub fn new(burst_percent: u32) -> Self {
        Self { gauges: BTreeMap::new(), burst_percent }
    }

    /// What is let in, by which link.
    pub fn paths(&self) -> impl Iterator<Item = (u16, PathId)> {
        self.gauges.keys().copied()
    }

    /// The host starts anew.
    pub fn forget(&mut self) {
        self.gauges.clear();
    }

    /// Does what the node says.
    pub fn apply(&mut self, link: LinkId, change: FilterChange) {
        match change {
            FilterChange::Set(mut filter) => {
                let burst = u64::from(filter.burst_packets) * u64::from(self.burst_percent) / 100;
                filter.burst_packets = u32::try_from(burst.max(1)).unwrap_or(u32::MAX);
                let gauge = Gauge { filter, full_at: Instant::ZERO, held: Held::default() };
                self.gauges.insert((link.0, filter.path), gauge);
            }
            FilterChange::Clear(path) => drop(self.gauges.remove(&(link.0, path))),
            // These drivers let all signalling in.
            FilterChange::Neighbour(_) => {}
        }
    }

    /// A packet that comes in at `now`: what counts it while it is in a buffer, and why a driver would have dropped
    /// it.
    pub fn classify(
        &mut self,
        link: LinkId,
        packet: &[u8],
        now: Instant,
    ) -> (Option<Held>, Option<&'static str>) {
        let Ok((header, _)) = Header::parse(packet) else { return (None, None) };
        if header.kind != Kind::Guaranteed || header.demoted {
            return (None, None);
        }
        let Some(gauge) = self.gauges.get_mut(&(link.0, header.path)) else { return (None, None) };
        // It is not the path's, and costs it nothing.
        if header.cookie != gauge.filter.cookie {
            return (None, None);
        }
        let held = gauge.held.clone();
        held.set(held.get() + 1);
        (Some(held), gauge.judge(&header, packet.len(), now))
    }
}

impl Gauge {
    fn judge(&mut self, header: &Header, bytes: usize, now: Instant) -> Option<&'static str> {
        let PathFilter { packet_bytes_max, burst_packets, interval, buffers, slack_ns_min, .. } = self.filter;
        if bytes > packet_bytes_max as usize {
            return Some("malformed");
        }
        if slack_ns_min.is_some_and(|least| header.slack_ns < least) {
            return Some("expired");
        }
        self.full_at = self.full_at.max(now) + interval;
        if self.full_at.since(now) > interval * u64::from(burst_packets) {
            return Some("policed");
        }
        (self.held.get() > buffers).then_some("without a buffer")
    }
}
