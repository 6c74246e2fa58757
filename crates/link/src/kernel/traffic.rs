//! How much a device has sent: the kernel's counters of it, which include the packets of all senders.
//!
//! Two samples, minus what the links of the device handed to it in between, give the traffic of other
//! senders. Reading takes a request to netlink, which may wait for locks of the kernel: not for real-time
//! threads.

use std::time::{Duration, Instant};

use super::attributes::{Attributes, Body};
use super::error::KernelError;
use super::netlink::{Netlink, errno};

const RTM_GETLINK: u16 = 18;
/// `struct ifinfomsg`.
const HEADER_BYTES: usize = 16;
const IFLA_STATS64: u16 = 23;
/// Place of `tx_packets` and `tx_bytes` in `struct rtnl_link_stats64`, in bytes.
const TX_PACKETS_AT: usize = 8;
const TX_BYTES_AT: usize = 24;

/// Counters of a device at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrafficSample {
    /// Number of the device.
    pub device: u32,
    /// Packets sent; what segmentation offload cuts in the hardware may count as one.
    pub packets: u64,
    /// Bytes sent, with Ethernet headers, without preambles, checksums and gaps.
    pub bytes: u64,
    /// When, not before the counters were read.
    pub at: Instant,
}

impl TrafficSample {
    /// Reads the counters of a device of this thread's network namespace.
    ///
    /// # Errors
    /// If there is no such device, or the kernel does not answer.
    pub fn of(device: u32) -> Result<Self, KernelError> {
        let mut header = [0; HEADER_BYTES];
        header[4..8].copy_from_slice(&device.to_ne_bytes());
        let refused = |error| match errno(&error) {
            Some(libc::ENODEV) => KernelError::NoDevice(device.to_string()),
            _ => KernelError::Os { what: format!("the counters of interface {device}"), error },
        };
        let answer = Netlink::route()
            .and_then(|mut netlink| netlink.ask(RTM_GETLINK, 0, &Body::new(&header)))
            .map_err(refused)?;
        let at = Instant::now();
        let read = |message: &Vec<u8>| Self::parse(message, device, at);
        answer.iter().find_map(read).ok_or_else(|| KernelError::NoDevice(device.to_string()))
    }

    fn parse(message: &[u8], device: u32, at: Instant) -> Option<Self> {
        let counters = Attributes::after(message, HEADER_BYTES).get(IFLA_STATS64)?;
        let number = |at: usize| counters.get(at..at + 8)?.try_into().ok().map(u64::from_ne_bytes);
        Some(Self { device, packets: number(TX_PACKETS_AT)?, bytes: number(TX_BYTES_AT)?, at })
    }

    /// Bits a second since an earlier sample that were not `own_bytes`; `None` if the counters went back (the device
    /// was made anew) or no time passed.
    pub fn foreign_bps(&self, earlier: &Self, own_bytes: u64) -> Option<u64> {
        let bytes = self.bytes.checked_sub(earlier.bytes)?.saturating_sub(own_bytes);
        let span = self.at.checked_duration_since(earlier.at).filter(|span| *span > Duration::ZERO)?;
        let bps = u128::from(bytes) * 8_000_000_000 / span.as_nanos();
        (self.device == earlier.device).then(|| u64::try_from(bps).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_ours_is_foreign() {
        let at = Instant::now();
        let sample = |device, bytes, ms| TrafficSample {
            device,
            packets: 0,
            bytes,
            at: at + Duration::from_millis(ms),
        };
        let earlier = sample(3, 1_000, 0);
        assert_eq!(sample(3, 126_000, 1_000).foreign_bps(&earlier, 25_000), Some(800_000));
        // Bytes that were handed over and have not left yet do not count as another sender's.
        assert_eq!(sample(3, 2_000, 500).foreign_bps(&earlier, 5_000), Some(0));
        assert_eq!(sample(3, 999, 1_000).foreign_bps(&earlier, 0), None, "made anew");
        assert_eq!(sample(4, 2_000, 1_000).foreign_bps(&earlier, 0), None, "another one");
        assert_eq!(sample(3, 2_000, 0).foreign_bps(&earlier, 0), None, "no time");
    }

    #[test]
    fn the_kernel_counts_loopback() {
        let before = TrafficSample::of(1).expect("lo");
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").expect("a socket");
        let to = socket.local_addr().expect("an address");
        socket.send_to(&[0; 1_000], to).expect("sent");
        let after = TrafficSample::of(1).expect("lo");
        assert!(after.bytes >= before.bytes + 1_000 && after.packets > before.packets, "{after:?}");
        assert!(matches!(TrafficSample::of(1 << 30), Err(KernelError::NoDevice(_))));
    }
}
