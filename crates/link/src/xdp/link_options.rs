//! How an [`XdpLink`](super::XdpLink) is opened.

use std::fmt;
use std::net::IpAddr;

use super::headers::Addresses;
use super::rings::RingSizes;
use super::umem::XdpMemory;
use super::{ClassifierOptions, QUEUES_MAX};
use crate::{LinkError, Stream};

/// Frames for receiving that the kernel always has in addition to those that the streams may hold: it takes a
/// buffer for a moment before it finds that a ring is full.
const SPARE_FRAMES: u32 = 64;
/// Largest ring that the options can request.
const RING_ENTRIES_MAX: u32 = 1 << 16;

/// Whether packets pass between the adapter and us without a copy by the kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ZeroCopy {
    /// Zero copy if the device supports it. It is tried, and
    /// [`XdpLink::is_zero_copy`](super::XdpLink::is_zero_copy) returns the result.
    #[default]
    Auto,
    /// Zero copy, or the link is not opened.
    Yes,
    /// Always with a copy.
    No,
}

impl fmt::Display for ZeroCopy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Auto => "auto",
            Self::Yes => "yes",
            Self::No => "no",
        })
    }
}

/// How a link is opened.
#[derive(Clone, Debug)]
pub struct XdpOptions {
    /// Device, addresses, ports, longest packet, buffers of each stream and bounds on rates.
    pub classifier: ClassifierOptions,
    /// Receive queue of the device that packets come in on, and transmit queue that they leave by.
    pub queue: u32,
    /// Ethernet addresses to send with; `None`: the device's and the next hop's are requested from the
    /// kernel.
    pub addresses: Option<Addresses>,
    /// Packets that may be on their way out at once, 1 to 65,536.
    pub transmit_frames: u32,
    /// Whether the kernel copies.
    pub zero_copy: ZeroCopy,
}

impl XdpOptions {
    /// Options of a link between two addresses over `device`, with the same ports at both ends.
    pub fn new(device: &str, local: IpAddr, peer: IpAddr, data_port: u16, signalling_port: u16) -> Self {
        Self {
            classifier: ClassifierOptions::new(device, local, peer, data_port, signalling_port),
            queue: 0,
            addresses: None,
            transmit_frames: 512,
            zero_copy: ZeroCopy::Auto,
        }
    }

    /// Sets the buffers for a node that counts on `frames` of them: half for channels of either stream, a
    /// quarter for best effort, an eighth for signalling, as its admission and its own bounds assume.
    #[must_use]
    pub fn with_frames(mut self, frames: u32) -> Self {
        self.classifier.buffers = [frames / 8, frames / 2, frames / 2, frames / 4].map(|part| part.max(1));
        self
    }

    /// Longest IP packet of a flow; 0: the tables have room for no flow.
    pub(super) const fn ip_bytes_max(&self) -> usize {
        if self.classifier.flows_max > 0 { self.classifier.ip_bytes_max as usize } else { 0 }
    }

    /// Frames that the kernel has to receive into, and those received and still held, together.
    pub fn receive_frames(&self) -> u32 {
        self.classifier.buffers.iter().fold(SPARE_FRAMES, |sum, buffers| sum.saturating_add(*buffers))
    }

    /// Frames of an [`XdpMemory`] that the link reserves: received, on their way out, and one being filled.
    pub fn frames_needed(&self) -> u32 {
        self.receive_frames().saturating_add(self.transmit_frames).saturating_add(1)
    }

    /// Sizes of the rings for these options.
    pub(super) fn check(&self, memory: &XdpMemory) -> Result<RingSizes, LinkError> {
        let fail = |text: String| Err(LinkError::Options(text));
        let bytes = self.classifier.packet_bytes_max as usize;
        if !(1..=memory.packet_bytes_max()).contains(&bytes) {
            return fail(format!(
                "xdp packets of {bytes} B: frames of {} B carry 1 to {} B",
                memory.frame_bytes(),
                memory.packet_bytes_max()
            ));
        }
        let (bytes, bytes_max) = (self.ip_bytes_max(), memory.ip_bytes_max());
        if bytes > bytes_max {
            return fail(format!(
                "IP packets of {bytes} B: frames of {} B carry up to {bytes_max} B",
                memory.frame_bytes()
            ));
        }
        if self.queue >= QUEUES_MAX {
            return fail(format!("xdp queue {}: queues below {QUEUES_MAX} can be used", self.queue));
        }
        let ring = |entries: u32| {
            let rounded = entries.max(1).next_power_of_two();
            if entries == 0 || rounded > RING_ENTRIES_MAX {
                let text =
                    format!("xdp: {entries} frames of a stream or to send: give 1 to {RING_ENTRIES_MAX}");
                return Err(LinkError::Options(text));
            }
            Ok(rounded)
        };
        let mut rx = [0; Stream::ALL.len()];
        for (entries, buffers) in rx.iter_mut().zip(self.classifier.buffers) {
            *entries = ring(buffers)?;
        }
        let fill = self.receive_frames().next_power_of_two();
        Ok(RingSizes { rx, tx: ring(self.transmit_frames)?, fill })
    }
}
