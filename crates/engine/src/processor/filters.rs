//! Converts the node's reports about its channels to the drivers' types.

use punctual_link::{Filter, PathKey, SealKey, Stream};
use punctual_proto::api::PathFilter;
use punctual_proto::ids::PathId;
use punctual_proto::signalling;

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
