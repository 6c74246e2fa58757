//! Finds the contents of Ethernet headers from two IP addresses, with all checks of addresses, route and
//! device.

use std::net::IpAddr;
use std::time::Duration;

use super::device::Device;
use super::error::KernelError;
use super::neighbours::{resolve, route_to};
use crate::mac::Mac;

/// Longest wait for a neighbour's hardware address. A reachable neighbour answers within a round trip; the
/// kernel repeats the request after a second.
pub const RESOLVE_PATIENCE: Duration = Duration::from_millis(1_200);

/// The requirements of a link on a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathRequest {
    /// Name of the device.
    pub device: String,
    /// Our address there.
    pub local: IpAddr,
    /// The neighbour's.
    pub peer: IpAddr,
    /// Receive queue that it uses.
    pub queue: u32,
    /// Longest packet, from our header on.
    pub packet_bytes_max: u32,
}

/// The way to a neighbour, ready to be written into headers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkPath {
    /// Device that the path leaves by.
    pub device: Device,
    /// The neighbour or router whose hardware address is `destination`.
    pub next_hop: IpAddr,
    /// The device's hardware address.
    pub source: Mac,
    /// The next hop's hardware address; `None`: it has not answered yet.
    pub destination: Option<Mac>,
}

impl PathRequest {
    /// Bytes of IP packets that carry the longest packet: IP and UDP before it.
    pub const fn mtu_needed(&self) -> u32 {
        let ip = if self.peer.is_ipv4() { 20 } else { 40 };
        self.packet_bytes_max + ip + 8
    }

    /// The device, if it can carry the link: Ethernet, up, the queue there, the MTU large enough.
    ///
    /// # Errors
    /// The missing property, with the fix.
    pub fn device(&self) -> Result<Device, KernelError> {
        let device = Device::named(&self.device)?;
        device.ethernet()?;
        if !device.up {
            return Err(KernelError::Down(device.name));
        }
        if self.queue >= device.rx_queues {
            let queues = device.rx_queues;
            return Err(KernelError::NoQueue { device: device.name, queues, queue: self.queue });
        }
        self.check_mtu(&device)?;
        Ok(device)
    }

    /// Whether the longest packet fits the device.
    ///
    /// # Errors
    /// [`KernelError::Mtu`].
    pub fn check_mtu(&self, device: &Device) -> Result<(), KernelError> {
        let needed = self.mtu_needed();
        if device.mtu >= needed {
            return Ok(());
        }
        let (mtu, packet_bytes) = (device.mtu, self.packet_bytes_max);
        Err(KernelError::Mtu { device: device.name.clone(), mtu, packet_bytes, needed })
    }

    /// The path as far as it is currently known. A neighbour that does not answer within `patience`, or a
    /// device without carrier, is no error: its address is `None` then.
    ///
    /// # Errors
    /// The mistake, with the fix.
    pub fn find(&self, patience: Duration) -> Result<LinkPath, KernelError> {
        let device = self.device()?;
        let next_hop = self.next_hop(&device)?;
        let destination =
            match resolve(&device, next_hop, if device.carrier { patience } else { Duration::ZERO }) {
                Ok(mac) => Some(mac),
                Err(KernelError::Unresolved { .. }) => None,
                Err(error) => return Err(error),
            };
        Ok(LinkPath { source: device.ethernet()?, device, next_hop, destination })
    }

    /// Finds the complete path.
    ///
    /// # Errors
    /// The errors of [`PathRequest::find`], and an error if there is no carrier or the neighbour does not
    /// answer.
    pub fn resolve(&self, patience: Duration) -> Result<LinkPath, KernelError> {
        let path = self.find(patience)?;
        match path.destination {
            Some(_) => Ok(path),
            None if !path.device.carrier => Err(KernelError::NoCarrier(path.device.name)),
            None => Err(KernelError::Unresolved {
                next_hop: path.next_hop,
                device: path.device.name,
                waited_ms: patience.as_millis() as u64,
            }),
        }
    }

    /// The next hop of packets to the peer, if they leave by this device.
    ///
    /// # Errors
    /// If an address or the route does not belong to the device.
    pub fn next_hop(&self, device: &Device) -> Result<IpAddr, KernelError> {
        // An address of this host is routed to itself.
        if !route_to(self.local).is_ok_and(|route| route.local) {
            return Err(KernelError::NotLocal { local: self.local, device: self.device.clone() });
        }
        let route = route_to(self.peer)?;
        if route.local || route.device != device.index {
            let by = Device::numbered(route.device).map_or_else(|_| route.device.to_string(), |it| it.name);
            return Err(KernelError::OtherDevice { peer: self.peer, by, device: self.device.clone() });
        }
        Ok(route.next_hop(self.peer))
    }
}
