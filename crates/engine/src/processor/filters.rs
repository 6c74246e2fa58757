//! The filters of the drivers: the node's reports about its channels, in the drivers' types, and the comparison of both.

use std::collections::HashMap;

use punctual_link::{Filter, PathKey, SealKey, Stream};
use punctual_proto::Instant;
use punctual_proto::api::{Account, PathFilter};
use punctual_proto::ids::{LinkId, PathId};
use punctual_proto::memory::{Inbox, Outbox};
use punctual_proto::signalling;

use super::Processor;

pub(crate) fn path_key(path: PathId) -> PathKey {
    PathKey { node: path.node.0, channel: path.channel.0, epoch: path.epoch.0 }
}

pub(crate) fn seal_key(key: signalling::SealKey) -> SealKey {
    SealKey(key.0)
}

pub(crate) fn driver_filter(filter: &PathFilter) -> Filter {
    Filter {
        path: path_key(filter.path),
        cookie: filter.cookie.0,
        stream: if filter.low_latency { Stream::LowLatency } else { Stream::Guaranteed },
        packet_bytes_max: filter.packet_bytes_max,
        burst_packets: filter.burst_packets,
        interval_ns: filter.interval.0,
        buffers: filter.buffers,
        slack_ns_min: filter.slack_ns_min,
    }
}

/// Filters that a driver has against those that belong to a channel, and channels that come in against those that have a filter:
/// both by path and cookie.
fn compare(link: LinkId, drivers: &[Filter], channels: &HashMap<PathKey, u32>) -> [Account; 2] {
    let is_right = |filter: &&Filter| channels.get(&filter.path) == Some(&filter.cookie);
    let right = drivers.iter().filter(is_right).count() as u64;
    let of = |what, counted, held| Account { what, link: Some(link), counted, held };
    [
        of("filters of the driver", drivers.len() as u64, right),
        of("channels with a filter", right, channels.len() as u64),
    ]
}

impl<O: Outbox + 'static, I: Inbox + 'static> Processor<O, I> {
    /// Compares the filters of all drivers that have some with the node's channels.
    pub fn filter_accounts(&mut self, at: Instant) -> Vec<Account> {
        self.set_filters(at);
        let mut accounts = Vec::new();
        for port in &self.ports {
            let Some(filters) = port.filters() else { continue };
            let channels = self.node.filtered().filter(|(link, ..)| *link == port.id());
            let channels = channels.map(|(_, path, cookie)| (path_key(path), cookie.0)).collect();
            accounts.extend(compare(port.id(), &filters, &channels));
        }
        accounts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_without_its_channel_and_a_channel_without_its_filter_are_seen() {
        let path = |channel| PathKey { node: 1, channel, epoch: 7 };
        let filter = |channel, cookie| Filter {
            path: path(channel),
            cookie,
            stream: Stream::Guaranteed,
            packet_bytes_max: 100,
            burst_packets: 1,
            interval_ns: 1,
            buffers: 1,
            slack_ns_min: None,
        };
        let channels = HashMap::from([(path(1), 11), (path(2), 12)]);
        let counts = |filters: &[Filter]| {
            compare(LinkId(3), filters, &channels).map(|account| (account.counted, account.held))
        };
        assert_eq!(counts(&[filter(1, 11), filter(2, 12)]), [(2, 2), (2, 2)]);
        assert_eq!(counts(&[filter(1, 11), filter(2, 12), filter(3, 13)]), [(3, 2), (2, 2)], "one is kept");
        assert_eq!(counts(&[filter(1, 11)]), [(1, 1), (1, 2)], "one is missing");
        assert_eq!(counts(&[filter(1, 11), filter(2, 10)]), [(2, 1), (1, 2)], "another channel's cookie");
    }
}
