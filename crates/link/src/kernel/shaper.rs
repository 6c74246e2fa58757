//! What a bound on traffic is, and what the qdisc and the classes that make it have in common.

use std::io;

use super::attributes::Body;
use super::device::Device;
use super::error::KernelError;
use super::netlink::Netlink;

pub(super) const NLM_F_REPLACE: u16 = 0x100;
pub(super) const NLM_F_CREATE: u16 = 0x400;
pub(super) const TCA_KIND: u16 = 1;
pub(super) const TCA_OPTIONS: u16 = 2;
pub(super) const LINKLAYER_ETHERNET: u8 = 1;

/// The bytes that Ethernet adds to what the kernel counts: checksum, preamble, gap.
pub(super) const WIRE_EXTRA_BYTES: u32 = 24;
/// The shortest frame with all that.
pub(super) const WIRE_BYTES_MIN: u32 = 84;
/// Shortest queue: two runs of segmentation offload.
pub(super) const QUEUE_BYTES_MIN: u64 = 128 << 10;

/// What bounds traffic: at most `burst_bytes + rate * t` bytes of the wire in any time t.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShaperRate {
    /// Rate, in bits of the wire a second.
    pub rate_bps: u64,
    /// Burst, in bytes of the wire; at least one packet of the device.
    pub burst_bytes: u32,
}

/// Asks the kernel to do this with a qdisc or a class.
pub(super) fn ask(kind: u16, flags: u16, body: &Body) -> io::Result<()> {
    Netlink::route()?.ask(kind, flags, body).map(drop)
}

/// Makes an error of it that names the device.
pub(super) fn failed(device: &Device) -> impl FnOnce(io::Error) -> KernelError {
    KernelError::net(format!("the qdisc of interface {}", device.name))
}
