//! The two links of the chain: source to forwarder, forwarder to sink.

use std::net::{IpAddr, Ipv4Addr};

use punctual_link::{Link, LinkError, MemoryLink, MemoryOptions, UdpLink, UdpOptions};

use super::LARGE_BYTES;

/// Receive buffers of each end: those that the channels reserve, and some more.
pub(super) const FRAMES: u32 = 4_096;
/// Room for our header beside the largest payload, as `packet` has it by default.
pub(super) const PACKET_BYTES: usize = LARGE_BYTES + punctual_proto::limits::HEADER_BYTES;

/// Both ends of both links.
pub struct Wires {
    /// Links at the source, and at the forwarder towards the source.
    first: Ends,
    /// Links at the forwarder towards the sink, and at the sink.
    second: Ends,
}

/// Both ends of a wire.
pub type Ends = (Box<dyn Link>, Box<dyn Link>);

impl Wires {
    /// Links at the source and at the forwarder towards it, then at the forwarder towards the sink and at the sink.
    pub fn new(first: Ends, second: Ends) -> Self {
        Self { first, second }
    }

    /// The ends of both links.
    pub(super) fn into_ends(self) -> (Ends, Ends) {
        (self.first, self.second)
    }

    /// Rings in memory.
    ///
    /// # Errors
    /// If the system has no descriptors left.
    pub fn memory() -> Result<Self, LinkError> {
        let options =
            MemoryOptions { packet_bytes_max: PACKET_BYTES, frames: FRAMES, ..MemoryOptions::default() };
        let pair = || -> Result<Ends, LinkError> {
            let (one, other) = MemoryLink::pair(options)?;
            Ok((Box::new(one), Box::new(other)))
        };
        Ok(Self { first: pair()?, second: pair()? })
    }
}

/// Kernel sockets on a loopback address of this process: the driver's whole code, and the kernel's but the NIC's.
///
/// # Errors
/// If no free ports are found or the kernel refuses.
pub fn udp_wires() -> Result<Wires, LinkError> {
    let [_, high, middle, low] = std::process::id().to_be_bytes();
    // An address of 127/8 that no other process chooses; all its ports are free except those that this
    // process opens.
    let address = IpAddr::from(Ipv4Addr::new(127, 192 | (high & 63), middle, low.clamp(1, 254)));
    let mut last = None;
    for base in (20_000..60_000).step_by(5_000) {
        let pair = |port: u16| -> Result<Ends, LinkError> {
            let end = |data: u16, peer: u16| UdpOptions {
                peer_data_port: peer,
                peer_signalling_port: peer + 1,
                packet_bytes_max: PACKET_BYTES,
                frames: FRAMES,
                ..UdpOptions::new(address, address, data, data + 1)
            };
            Ok((
                Box::new(UdpLink::open(&end(port, port + 2))?),
                Box::new(UdpLink::open(&end(port + 2, port))?),
            ))
        };
        match (pair(base), pair(base + 4)) {
            (Ok(first), Ok(second)) => return Ok(Wires { first, second }),
            (Err(error), _) | (_, Err(error)) => last = Some(error),
        }
    }
    Err(last.unwrap_or_else(|| LinkError::Options("no free port on loopback".into())))
}
