//! The way to a peer: by which device, to which next hop, and that one's hardware address.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use super::attributes::{Attributes, Body};
use super::device::Device;
use super::error::KernelError;
use super::netlink::{Netlink, errno};
use crate::mac::Mac;

pub(super) const RTM_NEWNEIGH: u16 = 28;
pub(super) const RTM_DELNEIGH: u16 = 29;
const RTM_GETNEIGH: u16 = 30;
const RTM_GETROUTE: u16 = 26;
const NLM_F_CREATE: u16 = 0x400;
/// `struct rtmsg` and `struct ndmsg`.
const HEADER_BYTES: usize = 12;

const RTA_DST: u16 = 1;
const RTA_OIF: u16 = 4;
const RTA_GATEWAY: u16 = 5;
const RTA_PREFSRC: u16 = 7;
const RTA_METRICS: u16 = 8;
/// A router of another IP version: `struct rtvia`, family and address.
const RTA_VIA: u16 = 18;
const RTAX_MTU: u16 = 2;
const RTN_UNICAST: u8 = 1;
const RTN_LOCAL: u8 = 2;

const NDA_DST: u16 = 1;
const NDA_LLADDR: u16 = 2;
const NTF_USE: u8 = 1;
/// States in which the kernel itself sends to the address.
const NUD_VALID: u16 = 0x80 | 0x40 | 0x02 | 0x04 | 0x08 | 0x10;

const NUD_STALE: u16 = 0x04;

/// How often to look whether a neighbour has answered; its answer takes about one round trip.
const RESOLVE_POLL: Duration = Duration::from_millis(5);
/// The discard port: the packet only makes the kernel resolve the neighbour.
const DISCARD_PORT: u16 = 9;

/// The route by which the kernel would send to a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// Number of the device.
    pub device: u32,
    /// The router on the way; `None`: the peer is on the device's own network.
    pub gateway: Option<IpAddr>,
    /// The address that it would send from.
    pub source: Option<IpAddr>,
    /// The peer is an address of this host.
    pub local: bool,
    /// Longest IP packet that the route itself allows, in bytes; `None`: the device's limit applies.
    pub mtu: Option<u32>,
}

impl Route {
    /// Address of the next hop of packets to `peer`.
    pub fn next_hop(&self, peer: IpAddr) -> IpAddr {
        self.gateway.unwrap_or(peer)
    }
}

/// The route to `peer` in the network namespace of this thread.
///
/// # Errors
/// If there is none.
pub fn route_to(peer: IpAddr) -> Result<Route, KernelError> {
    let failed = |error| KernelError::Os { what: format!("the route to {peer}"), error };
    route_by(&mut Netlink::route().map_err(failed)?, peer)
}

/// [`route_to`] over a socket that is open.
pub(super) fn route_by(netlink: &mut Netlink, peer: IpAddr) -> Result<Route, KernelError> {
    let mut header = [0; HEADER_BYTES];
    header[0] = family(peer);
    header[1] = if peer.is_ipv4() { 32 } else { 128 };
    let body = Body::new(&header).with(RTA_DST, &octets(peer));
    let refused = |error: io::Error| match errno(&error) {
        Some(libc::ENETUNREACH | libc::EHOSTUNREACH | libc::EACCES | libc::EINVAL) => {
            KernelError::NoRoute(peer)
        }
        _ => KernelError::Os { what: format!("the route to {peer}"), error },
    };
    let answer = netlink.ask(RTM_GETROUTE, 0, &body).map_err(refused)?;
    answer.iter().find_map(|message| parse_route(message)).ok_or(KernelError::NoRoute(peer))
}

/// Reads a route from an `RTM_NEWROUTE`.
pub(super) fn parse_route(message: &[u8]) -> Option<Route> {
    let kind = *message.get(7)?;
    let attributes = Attributes::after(message, HEADER_BYTES);
    matches!(kind, RTN_UNICAST | RTN_LOCAL).then_some(())?;
    Some(Route {
        device: attributes.u32(RTA_OIF)?,
        gateway: attributes.get(RTA_GATEWAY).or_else(|| attributes.get(RTA_VIA)?.get(2..)).and_then(address),
        source: attributes.get(RTA_PREFSRC).and_then(address),
        local: kind == RTN_LOCAL,
        mtu: attributes.nested(RTA_METRICS).u32(RTAX_MTU).filter(|mtu| *mtu > 0),
    })
}

/// The hardware address that the kernel has for `next_hop` on a device; `None` if it has none.
///
/// # Errors
/// If the kernel does not answer.
pub fn neighbour(device: u32, next_hop: IpAddr) -> Result<Option<Mac>, KernelError> {
    let failed = |error| KernelError::Os { what: format!("the neighbour {next_hop}"), error };
    let entry = neighbour_by(&mut Netlink::route().map_err(failed)?, device, next_hop).map_err(failed)?;
    Ok(entry.and_then(|entry| entry.mac))
}

/// The kernel's entry of `next_hop`, over a socket that is open.
pub(super) fn neighbour_by(
    netlink: &mut Netlink,
    device: u32,
    next_hop: IpAddr,
) -> io::Result<Option<Neighbour>> {
    let body = Body::new(&neighbour_header(device, next_hop, 0)).with(NDA_DST, &octets(next_hop));
    match netlink.ask(RTM_GETNEIGH, 0, &body) {
        Ok(answer) => Ok(answer
            .iter()
            .filter_map(|message| Neighbour::parse(message))
            .find(|entry| entry.device == device && entry.address == next_hop)),
        Err(error) if errno(&error) == Some(libc::ENOENT) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The hardware address of `next_hop` on a device. If it is not known, makes the kernel request it, and
/// waits.
///
/// # Errors
/// [`KernelError::Unresolved`] if no host has answered after `patience`.
pub fn resolve(device: &Device, next_hop: IpAddr, patience: Duration) -> Result<Mac, KernelError> {
    let failed = |error| KernelError::Os { what: format!("the neighbour {next_hop}"), error };
    let mut netlink = Netlink::route().map_err(failed)?;
    let begun = Instant::now();
    let mut asked = false;
    loop {
        let entry = neighbour_by(&mut netlink, device.index, next_hop).map_err(failed)?;
        if let Some(mac) = entry.and_then(|entry| entry.mac) {
            return Ok(mac);
        }
        if !asked {
            asked = true;
            ask_for(device.index, next_hop);
        }
        if begun.elapsed() >= patience {
            let waited_ms = patience.as_millis() as u64;
            return Err(KernelError::Unresolved { next_hop, device: device.name.clone(), waited_ms });
        }
        std::thread::sleep(RESOLVE_POLL.min(patience));
    }
}

/// Makes the kernel resolve a neighbour: by `NTF_USE`, which needs `CAP_NET_ADMIN`, or else by sending it a
/// packet. The results of both are ignored, because only the neighbour's answer counts.
pub(super) fn ask_for(device: u32, next_hop: IpAddr) {
    let body = Body::new(&neighbour_header(device, next_hop, NTF_USE)).with(NDA_DST, &octets(next_hop));
    let outcome = Netlink::route().and_then(|mut netlink| netlink.ask(RTM_NEWNEIGH, NLM_F_CREATE, &body));
    if outcome.is_ok() {
        return;
    }
    let any: IpAddr =
        if next_hop.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    if let Ok(socket) = UdpSocket::bind((any, 0)) {
        let _ = socket.send_to(&[], SocketAddr::new(next_hop, DISCARD_PORT));
    }
}

fn neighbour_header(device: u32, next_hop: IpAddr, flags: u8) -> [u8; HEADER_BYTES] {
    let mut header = [0; HEADER_BYTES];
    header[0] = family(next_hop);
    header[4..8].copy_from_slice(&device.to_ne_bytes());
    header[10] = flags;
    header
}

/// An entry of the kernel's table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Neighbour {
    pub device: u32,
    pub address: IpAddr,
    /// `None` if it is not (or no longer) known.
    pub mac: Option<Mac>,
    /// True if the address may have changed: no packet has confirmed it lately.
    pub stale: bool,
}

impl Neighbour {
    /// Reads a neighbour from an `RTM_NEWNEIGH` or `RTM_DELNEIGH`.
    pub fn parse(message: &[u8]) -> Option<Self> {
        let header: [u8; HEADER_BYTES] = *message.first_chunk()?;
        let attributes = Attributes::after(message, HEADER_BYTES);
        let state = u16::from_ne_bytes([header[8], header[9]]);
        let valid = state & NUD_VALID != 0;
        Some(Self {
            device: u32::from_ne_bytes([header[4], header[5], header[6], header[7]]),
            address: attributes.get(NDA_DST).and_then(address)?,
            mac: attributes.get(NDA_LLADDR).filter(|_| valid).and_then(Mac::from_bytes),
            stale: state & NUD_STALE != 0,
        })
    }
}

pub(super) fn address(bytes: &[u8]) -> Option<IpAddr> {
    match bytes.len() {
        4 => Some(IpAddr::from(<[u8; 4]>::try_from(bytes).ok()?)),
        16 => Some(IpAddr::from(<[u8; 16]>::try_from(bytes).ok()?)),
        _ => None,
    }
}

pub(super) fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}

pub(super) fn family(address: IpAddr) -> u8 {
    (if address.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 }) as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_route_to_ourselves_is_local() {
        let route = route_to(Ipv4Addr::LOCALHOST.into()).expect("loopback");
        assert_eq!((route.device, route.gateway, route.local), (1, None, true));
        assert_eq!(route.next_hop(Ipv4Addr::LOCALHOST.into()), IpAddr::from(Ipv4Addr::LOCALHOST));
    }

    #[test]
    fn a_missing_neighbour_is_not_awaited_for_long() {
        // TEST-NET-1 on a device that sends no requests.
        let unused_address = IpAddr::from([192, 0, 2, 1]);
        assert_eq!(neighbour(1, unused_address).expect("an answer"), None);
    }
}
