//! The problems of a device or a path, each with its fix.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use thiserror::Error;

use super::netlink::errno;

/// Why the kernel does not provide what a link requires.
#[derive(Debug, Error)]
pub enum KernelError {
    /// There is no shaper whose rate can be changed.
    #[error(
        "interface {0} has no shaper with a variable rate: set kernel_rate for its link and restart punctuald"
    )]
    NoShaper(String),
    /// No such interface.
    #[error("there is no interface {0}: `ip link` lists the interfaces; correct \"device\"")]
    NoDevice(String),
    /// Switched off.
    #[error("interface {0} is down: ip link set {0} up")]
    Down(String),
    /// Switched on, but no cable, or the other end is down.
    #[error("interface {0} has no carrier: plug it in, or bring its other end up")]
    NoCarrier(String),
    /// Packets there have no Ethernet header.
    #[error("interface {0} is not an Ethernet device: driver \"xdp\" needs one; use driver \"udp\"")]
    NotEthernet(String),
    /// A queue that the device has not.
    #[error(
        "interface {device} has {queues} receive queues, queue {queue} is not one of them: correct \"queue\""
    )]
    NoQueue {
        /// Name of the device.
        device: String,
        /// Number of receive queues that the device has.
        queues: u32,
        /// The requested queue, from 0.
        queue: u32,
    },
    /// Packets do not fit.
    #[error(
        "packets of {packet_bytes} B and their headers need an MTU of {needed}, interface {device} has {mtu}: lower \
         \"packet\" and \"fragment\", or ip link set {device} mtu {needed}"
    )]
    Mtu {
        /// Name of the device.
        device: String,
        /// MTU of the device, in bytes.
        mtu: u32,
        /// The link's longest packet, from our header on.
        packet_bytes: u32,
        /// MTU that these packets need, in bytes.
        needed: u32,
    },
    /// The kernel has no way there.
    #[error(
        "there is no route to {0}: add an address of its network to the device, or a route (ip route add)"
    )]
    NoRoute(IpAddr),
    /// The way there leaves by another interface.
    #[error(
        "{peer} is reached by interface {by}, not by {device}: correct \"device\" or the route (ip route get {peer})"
    )]
    OtherDevice {
        /// Address of the peer.
        peer: IpAddr,
        /// Device that the kernel uses.
        by: String,
        /// Device that is configured.
        device: String,
    },
    /// The address belongs to no device, or to another device.
    #[error(
        "{local} is not an address of this host: ip address add {local}/24 dev {device}, or correct \"local\""
    )]
    NotLocal {
        /// The address.
        local: IpAddr,
        /// Device that the address should belong to.
        device: String,
    },
    /// The kernel has no address to send from.
    #[error(
        "the route to {remote} over interface {device} has no address to send from: ip address add one to the device"
    )]
    NoSource {
        /// Destination.
        remote: IpAddr,
        /// Device that the route goes by.
        device: String,
    },
    /// Another program has the port.
    #[error(
        "TCP port {0} is in use: stop the program that uses it, or choose another port ('ss -tanp' shows the kernel's ports; of \
         Punctual's, 'punctual connections' shows those with a connection, and 'punctual connections --listeners' those that \
         listen)"
    )]
    PortTaken(SocketAddr),
    /// No address of this host.
    #[error("{0} is not an address of this host: `ip address` lists the addresses")]
    NotOurs(IpAddr),
    /// No answer came.
    #[error(
        "{next_hop} does not answer on interface {device} within {waited_ms} ms: is it up? else give its hardware address \
         (ip neighbour replace {next_hop} lladdr MAC dev {device})"
    )]
    Unresolved {
        /// Address whose hardware address was requested.
        next_hop: IpAddr,
        /// Name of the device.
        device: String,
        /// How long the answer was waited for, in ms.
        waited_ms: u64,
    },
    /// A qdisc of another program that could not be restored.
    #[error(
        "interface {device} has a qdisc {qdisc} that could not be restored afterwards: remove it (tc qdisc del \
         dev {device} root), or remove \"kernel_rate\" and limit kernel traffic yourself"
    )]
    ForeignQdisc {
        /// Name of the device.
        device: String,
        /// Kind and handle of the qdisc.
        qdisc: String,
    },
    /// The shaper could not let a single packet through.
    #[error(
        "a burst of {burst_bytes} B is less than one packet of interface {device} ({packet_bytes} B): raise \
         \"interference_burst\", or lower the MTU"
    )]
    Burst {
        /// Name of the device.
        device: String,
        /// Burst of the shaper, in bytes on the wire.
        burst_bytes: u32,
        /// Longest packet of the device, in bytes on the wire.
        packet_bytes: u32,
    },
    /// The device has no NAPI instance, so there is nothing to run in a thread.
    #[error(
        "interface {0} shows no NAPI instance: its driver has none, or none before an XDP program is attached; leave \
         \"napi_priority\" and \"interrupt_defer\" out"
    )]
    NoNapi(String),
    /// Another process does all this already.
    #[error(
        "another Punctual host (process {owner}) already manages interface {device}: stop it, or use another \
         device"
    )]
    Busy {
        /// Name of the device.
        device: String,
        /// Process id of the other host.
        owner: u32,
    },
    /// The process is not permitted to do it.
    #[error("{what}: not permitted: run as root, or with {capability}")]
    NotPermitted {
        /// The attempted operation.
        what: String,
        /// Capability that it takes.
        capability: &'static str,
    },
    /// The record of what to put back.
    #[error("{}: {error}: changes to devices are recorded there; make it writable", path.display())]
    Record {
        /// The file or its folder.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// Any other error of the system.
    #[error("{what}: {error}")]
    Os {
        /// The attempted operation.
        what: String,
        /// The answer.
        error: io::Error,
    },
}

impl KernelError {
    /// For `map_err` of something that takes `CAP_NET_ADMIN`.
    pub(super) fn net(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        Self::of(what, "CAP_NET_ADMIN")
    }

    /// For `map_err` of something that takes a capability.
    pub(super) fn of(what: impl Into<String>, capability: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |error| match errno(&error) {
            Some(libc::EPERM | libc::EACCES) => Self::NotPermitted { what: what.into(), capability },
            _ => Self::Os { what: what.into(), error },
        }
    }
}
