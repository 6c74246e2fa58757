//! A model of a driver that classifies packets. It records the filters of the nodes, and checks that a path
//! which keeps its contract never exceeds its filter.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;

use punctual_analysis::Instant;
use punctual_proto::api::{FilterChange, PathFilter};
use punctual_proto::ids::{Cookie, LinkId, PathId};
use punctual_proto::wire::{Header, Kind};

/// Number of a path's packets in buffers of a host.
pub type Held = Rc<Cell<u32>>;

/// Filters of one host's drivers.
#[derive(Debug)]
pub struct Filters {
    gauges: BTreeMap<(u16, PathId), Gauge>,
    burst_percent: u32,
}

#[derive(Debug)]
struct Gauge {
    filter: PathFilter,
    /// Time at which the token bucket would be full again.
    full_at: Instant,
    held: Held,
}

impl Filters {
    /// Drivers that accept `burst_percent` of the configured bursts.
    pub fn new(burst_percent: u32) -> Self {
        Self { gauges: BTreeMap::new(), burst_percent }
    }

    /// Accepted paths, with their links.
    pub fn paths(&self) -> impl Iterator<Item = (u16, PathId)> {
        self.gauges.keys().copied()
    }

    /// The host restarts: removes all filters.
    pub fn forget(&mut self) {
        self.gauges.clear();
    }

    /// Applies a change from the node.
    pub fn apply(&mut self, link: LinkId, change: FilterChange) {
        match change {
            FilterChange::Set(mut filter) => {
                let burst = u64::from(filter.burst_packets) * u64::from(self.burst_percent) / 100;
                filter.burst_packets = u32::try_from(burst.max(1)).unwrap_or(u32::MAX);
                let gauge = Gauge { filter, full_at: Instant::ZERO, held: Held::default() };
                self.gauges.insert((link.0, filter.path), gauge);
            }
            FilterChange::Clear(path) => drop(self.gauges.remove(&(link.0, path))),
            // These drivers accept all signalling.
            FilterChange::Neighbour(_) => {}
        }
    }

    /// Compares the filters, after `changes` that the drivers have not made yet, with the channels that a node
    /// has; describes each difference. A filter without a channel stays for as long as the host runs.
    pub fn compare(
        &self,
        changes: impl Iterator<Item = (LinkId, FilterChange)>,
        channels: impl Iterator<Item = (LinkId, PathId, Cookie)>,
    ) -> Vec<String> {
        let set = self.gauges.iter().map(|((link, path), gauge)| ((*link, *path), gauge.filter.cookie));
        let mut set: BTreeMap<(u16, PathId), Cookie> = set.collect();
        for (link, change) in changes {
            match change {
                FilterChange::Set(filter) => drop(set.insert((link.0, filter.path), filter.cookie)),
                FilterChange::Clear(path) => drop(set.remove(&(link.0, path))),
                FilterChange::Neighbour(_) => {}
            }
        }
        let mut wrong = Vec::new();
        for (link, path, cookie) in channels {
            match set.remove(&(link.0, path)) {
                Some(known) if known == cookie => {}
                Some(_) => wrong.push(format!("a filter of link {} has another cookie than {path}", link.0)),
                None => wrong.push(format!("{path} has no filter at link {}", link.0)),
            }
        }
        wrong
            .extend(set.keys().map(|(link, path)| {
                format!("a filter of link {link} is for {path}, which it does not have")
            }));
        wrong
    }

    /// Classifies a packet that arrives at `now`: returns the counter of its path's buffers, and the reason
    /// for which a driver would have dropped it.
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
        // The packet is not the path's, and does not count against it.
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

#[cfg(test)]
mod tests {
    use punctual_analysis::Nanos;
    use punctual_proto::ids::{ChannelNumber, Epoch, NodeId};
    use punctual_proto::limits::HEADER_BYTES;
    use punctual_proto::wire::{Age, ClockError};

    use super::*;

    const LINK: LinkId = LinkId(1);
    const PATH: PathId = PathId { node: NodeId(1), channel: ChannelNumber(2), epoch: Epoch(3) };
    const INTERVAL: Nanos = Nanos::from_millis(10);

    fn filter(slack_ns_min: Option<i64>) -> PathFilter {
        PathFilter {
            path: PATH,
            cookie: Cookie(7),
            low_latency: false,
            packet_bytes_max: HEADER_BYTES as u32 + 20,
            burst_packets: 4,
            interval: INTERVAL,
            buffers: 100,
            slack_ns_min,
        }
    }

    fn header() -> Header {
        Header {
            kind: Kind::Guaranteed,
            demoted: false,
            unpromised: false,
            path: PATH,
            cookie: Cookie(7),
            message: 1,
            fragment: 0,
            fragments: 1,
            message_bytes: 20,
            slack_ns: 5,
            logical_arrival: Instant(1),
            age: Age::NONE,
            payload_bytes: 20,
            clock_error: ClockError::NONE,
            destination: NodeId(0),
        }
    }

    fn packet(header: &Header, bytes: usize) -> Vec<u8> {
        let mut packet = vec![0; HEADER_BYTES + bytes];
        header.write(&mut packet);
        packet
    }

    /// The verdict of a driver with `filter` on a packet: whether it is the path's, and why it would be
    /// dropped.
    fn judged(filters: &mut Filters, header: &Header, at: u64) -> (bool, Option<&'static str>) {
        let (held, why) = filters.classify(LINK, &packet(header, 20), Instant(at));
        (held.is_some(), why)
    }

    fn driver(burst_percent: u32, filter: PathFilter) -> Filters {
        let mut filters = Filters::new(burst_percent);
        filters.apply(LINK, FilterChange::Set(filter));
        filters
    }

    #[test]
    fn a_path_may_send_its_burst_and_then_a_packet_an_interval() {
        for (percent, burst) in [(100, 4), (50, 2), (1, 1)] {
            let mut filters = driver(percent, filter(None));
            let now = 1_000_000_000;
            for number in 0..burst {
                assert_eq!(judged(&mut filters, &header(), now), (true, None), "{percent}: {number}");
            }
            assert_eq!(judged(&mut filters, &header(), now), (true, Some("policed")));
            // Policed packets count too: the bucket lacks two.
            assert_eq!(judged(&mut filters, &header(), now + INTERVAL.0).1, Some("policed"));
            let again = now + 4 * INTERVAL.0;
            assert_eq!(judged(&mut filters, &header(), again).1, None);
            let mut exact = driver(percent, filter(None));
            (0..burst).for_each(|_| assert_eq!(judged(&mut exact, &header(), now).1, None));
            assert_eq!(judged(&mut exact, &header(), now + INTERVAL.0).1, None, "one interval, one packet");
            assert_eq!(judged(&mut exact, &header(), now + 2 * INTERVAL.0 - 1).1, Some("policed"));
        }
    }

    #[test]
    fn what_is_no_guaranteed_packet_of_a_known_path_is_nobodys() {
        let mut filters = driver(100, filter(None));
        let others = [
            Header { cookie: Cookie(8), ..header() },
            Header { path: PathId { channel: ChannelNumber(9), ..PATH }, ..header() },
            Header { demoted: true, unpromised: true, ..header() },
        ];
        for other in others {
            assert_eq!(judged(&mut filters, &other, 5), (false, None), "{other:?}");
        }
        let (held, why) = filters.classify(LinkId(0), &packet(&header(), 20), Instant(5));
        assert!(held.is_none() && why.is_none(), "it came by another link");
        let (held, why) = filters.classify(LINK, &[1, 2, 3], Instant(5));
        assert!(held.is_none() && why.is_none());
        assert_eq!(filters.paths().collect::<Vec<_>>(), [(LINK.0, PATH)]);
        filters.apply(LINK, FilterChange::Clear(PATH));
        assert_eq!((judged(&mut filters, &header(), 5), filters.paths().count()), ((false, None), 0));
        let mut forgotten = driver(100, filter(None));
        forgotten.forget();
        assert_eq!(judged(&mut forgotten, &header(), 5), (false, None));
    }

    /// Each filter belongs to a channel and each channel has one, also while the driver is still to be told.
    #[test]
    fn filters_that_nobody_holds_and_channels_without_one_are_found() {
        let filters = driver(100, filter(None));
        let (there, other) = ((LINK, PATH, Cookie(7)), PathId { channel: ChannelNumber(9), ..PATH });
        let set = |path| (LINK, FilterChange::Set(PathFilter { path, ..filter(None) }));
        let clear = (LINK, FilterChange::Clear(PATH));
        let found = |changes: &[_], channels: &[_]| {
            filters.compare(changes.iter().copied(), channels.iter().copied()).len()
        };
        let honest: [(&[_], &[_]); 4] = [
            (&[], &[there]),
            (&[clear], &[]),
            (&[set(other)], &[there, (LINK, other, Cookie(7))]),
            (&[clear, set(PATH)], &[there]),
        ];
        honest.into_iter().for_each(|(changes, channels)| assert_eq!(found(changes, channels), 0));
        let wrong: [(&[_], &[_], usize); 6] = [
            (&[], &[], 1),
            (&[clear], &[there], 1),
            (&[set(other)], &[there], 1),
            (&[], &[there, (LINK, other, Cookie(7))], 1),
            (&[], &[(LINK, PATH, Cookie(8))], 1),
            // At another link there is one too few, here one too many.
            (&[], &[(LinkId(0), PATH, Cookie(7))], 2),
        ];
        for (changes, channels, count) in wrong {
            assert_eq!(found(changes, channels), count, "{changes:?} {channels:?}");
        }
    }

    #[test]
    fn long_expired_and_hoarded_packets_are_reported_by_reason() {
        let mut filters = driver(100, filter(Some(5)));
        assert_eq!(judged(&mut filters, &header(), 5).1, None, "the least slack, the most bytes");
        assert_eq!(judged(&mut filters, &Header { slack_ns: 4, ..header() }, 5).1, Some("expired"));
        let (_, why) = filters.classify(LINK, &packet(&header(), 21), Instant(5));
        assert_eq!(why, Some("malformed"));
        let mut filters = driver(100, PathFilter { buffers: 2, ..filter(None) });
        let mut held = Vec::new();
        for why in [None, None, Some("without a buffer")] {
            let found = filters.classify(LINK, &packet(&header(), 20), Instant(5));
            assert_eq!(found.1, why);
            held.extend(found.0);
        }
        assert_eq!(held[0].get(), 3);
    }
}
