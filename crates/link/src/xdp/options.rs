//! The options of a classifier.

use std::fmt;
use std::net::IpAddr;

use super::{FILTERS_MAX, FLOWS_MAX, LISTENERS_MAX};
use crate::{LinkError, Stream};

/// Longest UDP payload over IPv4.
const PACKET_BYTES_MAX: u32 = 65_507;

/// Every host takes IPv6 packets of this length (RFC 8200, 5).
const IP_BYTES_MIN: u32 = 1_280;

/// Where an XDP program runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AttachMode {
    /// In the driver if it can, else in the kernel's stack. The driver's mode is tried first, and
    /// [`Classifier::mode`](super::Classifier::mode) returns the result.
    #[default]
    Auto,
    /// In the NIC's driver, before a socket buffer exists.
    Native,
    /// In the kernel's stack, on a socket buffer: works with every NIC, saves less.
    Generic,
}

impl fmt::Display for AttachMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Auto => "auto",
            Self::Native => "native",
            Self::Generic => "generic",
        })
    }
}

/// A bound on packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// Packets a second on average; with 0 only the burst passes.
    pub packets_per_second: u32,
    /// Packets at once; at least 1.
    pub burst_packets: u32,
}

/// The parameters of one link's program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClassifierOptions {
    /// Network interface.
    pub device: String,
    /// Our address: packets to another one are not ours.
    pub local: IpAddr,
    /// The neighbour's address, of the same family: packets from another one are not ours.
    pub peer: IpAddr,
    /// Our port of data.
    pub data_port: u16,
    /// Our port of signalling.
    pub signalling_port: u16,
    /// The neighbour's port of data: packets from another port to ours are dropped.
    pub peer_data_port: u16,
    /// The neighbour's port of signalling, likewise.
    pub peer_signalling_port: u16,
    /// Maximum packet length, from our header on, in bytes: longer packets are dropped. At least that of any
    /// filter.
    pub packet_bytes_max: u32,
    /// The mode in which the program is to run.
    pub mode: AttachMode,
    /// Buffers of each stream of a queue, in the order of [`Stream::ALL`]: most packets between the program and their
    /// release. More than the stream's ring holds, or than its part of the fill ring, would be lost behind the
    /// program.
    pub buffers: [u32; Stream::ALL.len()],
    /// Bound on signalling packets of the neighbour, known by their seals; `None`: none.
    pub signalling_rate: Option<Rate>,
    /// Bound on other signalling packets from its address: its first ones after a start, and forged ones;
    /// `None`: no bound.
    pub unknown_senders_rate: Option<Rate>,
    /// Bound on best-effort and demoted packets together; `None`: none.
    pub best_effort_rate: Option<Rate>,
    /// Most paths with a filter at once, up to [`FILTERS_MAX`].
    pub filters_max: u32,
    /// Most flows at once, up to [`FLOWS_MAX`]; 0: none.
    pub flows_max: u32,
    /// Most listeners of flows at once, up to [`LISTENERS_MAX`]; 0: none.
    pub listeners_max: u32,
    /// Longest IP packet of a flow, in bytes: longer ones are dropped.
    pub ip_bytes_max: u32,
}

impl ClassifierOptions {
    /// Options for two addresses, with the same ports at both ends and without bounds on rates.
    pub fn new(device: &str, local: IpAddr, peer: IpAddr, data_port: u16, signalling_port: u16) -> Self {
        Self {
            device: device.into(),
            local,
            peer,
            data_port,
            signalling_port,
            peer_data_port: data_port,
            peer_signalling_port: signalling_port,
            packet_bytes_max: 1_464,
            mode: AttachMode::Auto,
            buffers: [128, 512, 1_024, 512],
            signalling_rate: None,
            unknown_senders_rate: None,
            best_effort_rate: None,
            filters_max: FILTERS_MAX,
            flows_max: 0,
            listeners_max: 0,
            ip_bytes_max: 1_500,
        }
    }

    /// Whether every value is in range.
    pub(super) fn check(&self) -> Result<(), LinkError> {
        let fail = |text: String| Err(LinkError::Options(text));
        let (local, peer) = (self.local, self.peer);
        if local.is_ipv4() != peer.is_ipv4() {
            return fail(format!(
                "local {local} and peer {peer} are of different families: use IPv4 or IPv6 for both"
            ));
        }
        if self.data_port == self.signalling_port {
            return fail(format!("data and signalling share port {}: give two ports", self.data_port));
        }
        if !(1..=FILTERS_MAX).contains(&self.filters_max) {
            return fail(format!("a table of {} paths: 1 to {FILTERS_MAX} can be had", self.filters_max));
        }
        let (flows, listeners) = (self.flows_max, self.listeners_max);
        if flows > FLOWS_MAX || listeners > LISTENERS_MAX {
            return fail(format!(
                "tables of {flows} flows and {listeners} listeners: up to {FLOWS_MAX} and {LISTENERS_MAX} can be had"
            ));
        }
        if !(IP_BYTES_MIN..=u32::from(u16::MAX)).contains(&self.ip_bytes_max) {
            let bytes = self.ip_bytes_max;
            return fail(format!("IP packets of {bytes} B: give {IP_BYTES_MIN} to {}", u16::MAX));
        }
        if !(1..=PACKET_BYTES_MAX).contains(&self.packet_bytes_max) {
            let bytes = self.packet_bytes_max;
            return fail(format!("packets of {bytes} B: a UDP datagram carries 1 to {PACKET_BYTES_MAX} B"));
        }
        Ok(())
    }
}
