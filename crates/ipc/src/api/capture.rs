//! Captures of packets.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

/// Which packets to capture, and how much of each. All parts must fit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CaptureWish {
    /// Only packets of the link of this name.
    pub link: Option<String>,
    /// TCP segments of one connection: this host's address and port, and the peer's.
    pub ends: Option<[SocketAddr; 2]>,
    /// TCP segments of this port at either end.
    pub port: Option<u16>,
    /// Bytes of each packet at most.
    pub packet_bytes: u32,
    /// Packets that wait to be read at most: further ones are lost to the capture.
    pub packets: u32,
}

/// What a capture must know of a link: its packets are captured without the headers of UDP and IP.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CapturedLink {
    /// Name of the link.
    pub name: String,
    /// This host's end and the neighbour's for data and for signalling; `None`: a link without addresses.
    pub ends: Option<[[SocketAddr; 2]; 2]>,
}
