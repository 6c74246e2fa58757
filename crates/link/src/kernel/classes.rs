//! The inside of a device's shaper: an `htb`, with two classes if kernel traffic is sent behind ours, or with
//! one class if its rate follows admission.
//!
//! With two: the token bucket outside (see [`super::qdisc`]) cuts runs of segmentation offload as they arrive
//! and passes them at the link's drain rate. So an urgent packet waits for at most one unit that the bucket
//! holds already, and for the burst that it let through at once. Inside, there is strict priority: first
//! packets of sockets with the priority [`FIRST_CLASS`], which only `CAP_NET_ADMIN` may set, then all others.
//! The classes' own rates are so high that they never delay a packet.
//!
//! With one: its rate is the bound, and a change of the rate keeps its tokens.

use super::attributes::Body;
use super::device::Device;
use super::error::KernelError;
use super::shaper::{
    LINKLAYER_ETHERNET, NLM_F_CREATE, NLM_F_REPLACE, QUEUE_BYTES_MIN, ShaperRate, TCA_KIND, TCA_OPTIONS,
    WIRE_BYTES_MIN, WIRE_EXTRA_BYTES, ask, failed,
};

const RTM_NEWQDISC: u16 = 36;
const RTM_NEWTCLASS: u16 = 40;
const TCA_HTB_PARMS: u16 = 1;
const TCA_HTB_INIT: u16 = 2;
const TCA_HTB_RATE64: u16 = 6;
const TCA_HTB_CEIL64: u16 = 7;
const HTB_VERSION: u32 = 3;

/// The only class of a `tbf` at the root, with our handle.
const INSIDE: u32 = 0x7075_0001;
const HANDLE: u32 = 0x7076_0000;
/// `SO_PRIORITY` of a socket whose packets are sent first.
pub const FIRST_CLASS: u32 = HANDLE | 1;
const OTHERS: u32 = HANDLE | 2;
/// Majors of everything that is set up here.
pub(super) const MAJORS: std::ops::RangeInclusive<u32> = 0x7076..=0x7078;
/// How many times faster these classes are than the bucket outside, so that they never limit.
const AMPLE: u64 = 8;
/// How much a class may send at once, in ticks of 64 ns at its rate: 10 ms.
const BURST_TICKS: u32 = 10_000_000 / TICK_NS as u32;
/// The unit of a class's burst.
const TICK_NS: u128 = 64;
/// Packets of ours that may wait: more than all links of a host hand over in a window.
const FIRST_PACKETS_MAX: u32 = 1_000;

/// Puts the classes into the bucket that is at the root.
pub(super) fn install(device: &Device, rate: ShaperRate, queue_bytes: u64) -> Result<(), KernelError> {
    let globals: Vec<u8> = [HTB_VERSION, 10, OTHERS & 0xffff, 0, 0].map(u32::to_ne_bytes).concat();
    let options = Body::default().with(TCA_HTB_INIT, &globals);
    change(device, RTM_NEWQDISC, INSIDE, HANDLE, "htb", options.bytes())?;
    for (class, order) in [(FIRST_CLASS, 0), (OTHERS, 1)] {
        change(device, RTM_NEWTCLASS, HANDLE, class, "htb", &ample(device, rate, order))?;
    }
    change(device, RTM_NEWQDISC, FIRST_CLASS, 0x7077_0000, "pfifo", &FIRST_PACKETS_MAX.to_ne_bytes())?;
    let limit = u32::try_from(queue_bytes.max(QUEUE_BYTES_MIN)).unwrap_or(u32::MAX);
    change(device, RTM_NEWQDISC, OTHERS, 0x7078_0000, "bfifo", &limit.to_ne_bytes())
}

/// Puts one class for everything into the bucket that is at the root: at most `rate`.
pub(super) fn install_one(device: &Device, rate: ShaperRate, queue_bytes: u64) -> Result<(), KernelError> {
    let globals: Vec<u8> = [HTB_VERSION, 10, OTHERS & 0xffff, 0, 0].map(u32::to_ne_bytes).concat();
    let options = Body::default().with(TCA_HTB_INIT, &globals);
    change(device, RTM_NEWQDISC, INSIDE, HANDLE, "htb", options.bytes())?;
    change(device, RTM_NEWTCLASS, HANDLE, OTHERS, "htb", &exact(device, rate))?;
    let limit = u32::try_from(queue_bytes.max(QUEUE_BYTES_MIN)).unwrap_or(u32::MAX);
    change(device, RTM_NEWQDISC, OTHERS, 0x7078_0000, "bfifo", &limit.to_ne_bytes())
}

/// Changes that class's rate. Its tokens stay. If the class is gone, none is made: the qdisc may belong to
/// another program.
pub(super) fn change_one(device: &Device, rate: ShaperRate) -> Result<(), KernelError> {
    let header = [0, device.index, OTHERS, HANDLE, 0].map(u32::to_ne_bytes).concat();
    let body = Body::new(&header).with_text(TCA_KIND, "htb").with(TCA_OPTIONS, &exact(device, rate));
    ask(RTM_NEWTCLASS, NLM_F_REPLACE, &body).map_err(failed(device))
}

fn change(
    device: &Device,
    request: u16,
    parent: u32,
    handle: u32,
    kind: &str,
    options: &[u8],
) -> Result<(), KernelError> {
    let header = [0, device.index, handle, parent, 0].map(u32::to_ne_bytes).concat();
    let body = Body::new(&header).with_text(TCA_KIND, kind).with(TCA_OPTIONS, options);
    ask(request, NLM_F_CREATE | NLM_F_REPLACE, &body).map_err(failed(device))
}

/// Options of a class that never waits for its own rate.
fn ample(device: &Device, rate: ShaperRate, order: u32) -> Vec<u8> {
    let bytes_per_s = (rate.rate_bps / 8).max(1).saturating_mul(AMPLE);
    class(device, bytes_per_s, 0, BURST_TICKS, order)
}

/// Options of a class of exactly that rate, which counts what Ethernet adds.
fn exact(device: &Device, rate: ShaperRate) -> Vec<u8> {
    let bytes_per_s = (rate.rate_bps / 8).max(1);
    let burst_ns = u128::from(rate.burst_bytes) * 1_000_000_000 / u128::from(bytes_per_s);
    let ticks = u32::try_from(burst_ns / TICK_NS).unwrap_or(u32::MAX);
    class(device, bytes_per_s, WIRE_EXTRA_BYTES as u16, ticks, 0)
}

/// `struct tc_htb_opt` and the rates in full.
fn class(device: &Device, bytes_per_s: u64, overhead: u16, burst_ticks: u32, order: u32) -> Vec<u8> {
    // struct tc_ratespec: cell_log, linklayer, overhead, cell_align, mpu, rate.
    let mut specification = vec![0, LINKLAYER_ETHERNET];
    specification.extend(overhead.to_ne_bytes());
    specification.extend(0_u16.to_ne_bytes());
    specification.extend((if overhead > 0 { WIRE_BYTES_MIN as u16 } else { 0 }).to_ne_bytes());
    specification.extend(u32::try_from(bytes_per_s).unwrap_or(u32::MAX).to_ne_bytes());
    let quantum = device.mtu + 18;
    let rest = [burst_ticks, burst_ticks, quantum, 0, order].map(u32::to_ne_bytes).concat();
    let parameters = [&specification[..], &specification, &rest].concat();
    let options = Body::default().with(TCA_HTB_PARMS, &parameters);
    let rate = bytes_per_s.to_ne_bytes();
    options.with(TCA_HTB_RATE64, &rate).with(TCA_HTB_CEIL64, &rate).bytes().to_vec()
}
