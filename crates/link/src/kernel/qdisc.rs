//! The bound on kernel traffic: a token bucket (`tbf`) at the root of the device.
//!
//! AF_XDP bypasses the qdiscs of its own device, so only the kernel's packets pass them, and the shaper
//! provides exactly the bound that the link's admission needs: in any time t these packets take at most
//! `burst + rate * t` bytes of the wire. The bucket counts what Ethernet counts (24 B a frame more than the
//! kernel sees, 84 B at least). Runs that segmentation offload made longer than the burst are cut into
//! packets; shorter ones are counted with all their headers. Not counted are preamble and gap of the second
//! and further packets of a segmented run that fits the burst (24 B each: 1.6 % of full packets, more only if
//! a program requests runs of tiny ones).
//!
//! If the rate follows admission, it is the rate of a class inside, since a change would refill a bucket; the
//! bucket then only cuts.
//!
//! If our packets pass the qdiscs too (`udp`), the bucket shapes all packets, and has classes inside
//! ([`super::classes`]).
//!
//! The handle 7075: ("pu") marks our qdisc. A qdisc that the kernel attaches by itself (no handle) comes back
//! when ours is deleted. A single classless qdisc of a kind in [`RESTORABLE`] is recorded and restored later.
//! If any other qdisc is there, the request is refused.

use std::fmt;

use super::attributes::{Attributes, Body};
use super::classes;
use super::device::Device;
use super::error::KernelError;
use super::netlink::{Netlink, errno};
use super::shaper::{
    LINKLAYER_ETHERNET, NLM_F_CREATE, NLM_F_REPLACE, QUEUE_BYTES_MIN, ShaperRate, TCA_KIND, TCA_OPTIONS,
    WIRE_BYTES_MIN, WIRE_EXTRA_BYTES, ask, failed,
};

const RTM_NEWQDISC: u16 = 36;
const RTM_DELQDISC: u16 = 37;
const RTM_GETQDISC: u16 = 38;
/// `struct tcmsg`.
const HEADER_BYTES: usize = 20;
const TC_H_ROOT: u32 = u32::MAX;
const TC_H_INGRESS: u32 = 0xffff_fff1;
const TCA_TBF_PARMS: u16 = 1;
const TCA_TBF_RATE64: u16 = 4;
const TCA_TBF_BURST: u16 = 6;
/// Ours: "pu".
const HANDLE: u32 = 0x7075_0000;
/// An Ethernet header with a VLAN tag.
const ETHERNET_BYTES: u32 = 18;
/// How long a full queue of the shaper delays kernel traffic; beyond, it is dropped.
const QUEUE_MS: u64 = 50;
/// Kinds that the kernel takes back as it had shown them.
pub const RESTORABLE: [&str; 3] = ["pfifo", "bfifo", "tbf"];

/// The former qdisc at a device's root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Before {
    /// The qdisc that the kernel attaches by itself.
    Default,
    /// A qdisc of another program, of a kind in [`RESTORABLE`].
    Classless(Qdisc),
}

/// A qdisc as the kernel shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Qdisc {
    pub kind: String,
    pub handle: u32,
    parent: u32,
    /// Options as the kernel sent them, for putting the qdisc back.
    pub options: Vec<u8>,
}

impl Qdisc {
    pub fn restorable(kind: String, handle: u32, options: Vec<u8>) -> Self {
        Self { kind, handle, parent: TC_H_ROOT, options }
    }

    /// Reads a qdisc from an `RTM_NEWQDISC`, if it belongs to that device.
    pub fn parse(message: &[u8], device: u32) -> Option<Self> {
        let word = |at: usize| message.get(at..at + 4)?.try_into().ok().map(u32::from_ne_bytes);
        let attributes = Attributes::after(message, HEADER_BYTES);
        (word(4)? == device).then_some(())?;
        Some(Self {
            handle: word(8)?,
            parent: word(12)?,
            kind: attributes.text(TCA_KIND)?,
            options: attributes.get(TCA_OPTIONS).unwrap_or_default().to_vec(),
        })
    }

    fn is_ours(&self) -> bool {
        self.parent == TC_H_ROOT && self.handle == HANDLE
    }

    /// Whether another program has set it up; a qdisc that the kernel attaches by itself has no handle.
    fn is_foreign(&self) -> bool {
        // `ingress` and `clsact` do not affect outgoing packets.
        let inside = classes::MAJORS.contains(&(self.handle >> 16));
        self.handle != 0 && !self.is_ours() && !inside && self.parent != TC_H_INGRESS
    }
}

impl fmt::Display for Qdisc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {:x}:", self.kind, self.handle >> 16)
    }
}

/// Reads the qdiscs that are there.
///
/// # Errors
/// [`KernelError::ForeignQdisc`] if they could not be restored.
pub(super) fn survey(device: &Device) -> Result<Before, KernelError> {
    let foreign: Vec<Qdisc> = list(device)?.into_iter().filter(Qdisc::is_foreign).collect();
    match &foreign[..] {
        [] => Ok(Before::Default),
        [only] if only.parent == TC_H_ROOT && RESTORABLE.contains(&only.kind.as_str()) => {
            Ok(Before::Classless(only.clone()))
        }
        [first, ..] => {
            let root = foreign.iter().find(|qdisc| qdisc.parent == TC_H_ROOT).unwrap_or(first);
            Err(KernelError::ForeignQdisc { device: device.name.clone(), qdisc: root.to_string() })
        }
    }
}

/// Whether our shaper is on the device.
pub(super) fn is_installed(device: &Device) -> Result<bool, KernelError> {
    Ok(list(device)?.iter().any(Qdisc::is_ours))
}

/// Puts our shaper at the root, in place of whatever is there.
///
/// # Errors
/// If not even one packet fits the burst, or the kernel refuses.
pub(super) fn install(device: &Device, rate: ShaperRate) -> Result<(), KernelError> {
    let packet_bytes = device.mtu + ETHERNET_BYTES + WIRE_EXTRA_BYTES;
    if rate.burst_bytes < packet_bytes {
        let (device, burst_bytes) = (device.name.clone(), rate.burst_bytes);
        return Err(KernelError::Burst { device, burst_bytes, packet_bytes });
    }
    replace(
        device,
        &Qdisc { kind: "tbf".into(), handle: HANDLE, parent: TC_H_ROOT, options: token_bucket(rate) },
    )
}

/// Puts a shaper for everything that the device sends at the root: our packets go first, the kernel's packets
/// behind.
///
/// # Errors
/// See [`install`].
pub(super) fn install_in_order(device: &Device, rate: ShaperRate) -> Result<(), KernelError> {
    install(device, rate)?;
    classes::install(device, rate, queue_bytes(rate))
}

/// Units in the burst of a rate that changes: see [`install_following`].
pub const FOLLOWING_UNITS: u32 = 4;
/// How many times faster than the link the bucket that cuts is.
const CUTTER_AMPLE: u64 = 4;

/// Installs a bound on the kernel's packets whose rate can be changed ([`follow`]). It is a class in a bucket
/// that only cuts runs longer than a unit. (A bucket of the link's rate would take up to a tenth of the rate
/// by its timer's lateness.) Over a change, kernel traffic stays within the burst and the larger of both
/// rates. The burst has four units: one that the class may send at once, one that it overdraws, one that the
/// bucket holds, and one for a change (tokens are time: a debt at one rate is paid at the other).
///
/// # Errors
/// See [`install`].
pub(super) fn install_following(device: &Device, rate: ShaperRate, link_bps: u64) -> Result<(), KernelError> {
    let packet_bytes = device.mtu + ETHERNET_BYTES + WIRE_EXTRA_BYTES;
    let unit_bytes = rate.burst_bytes / FOLLOWING_UNITS;
    if unit_bytes < packet_bytes {
        let (device, burst_bytes) = (device.name.clone(), rate.burst_bytes);
        return Err(KernelError::Burst { device, burst_bytes, packet_bytes: packet_bytes * FOLLOWING_UNITS });
    }
    let whole = ShaperRate { rate_bps: link_bps, burst_bytes: unit_bytes };
    install(device, ShaperRate { rate_bps: link_bps.saturating_mul(CUTTER_AMPLE), ..whole })?;
    classes::install_one(device, ShaperRate { burst_bytes: unit_bytes, ..rate }, queue_bytes(whole))
}

/// Changes the rate of what [`install_following`] has set up.
///
/// # Errors
/// If it is not there any more, or the kernel refuses.
pub(super) fn follow(device: &Device, rate: ShaperRate) -> Result<(), KernelError> {
    classes::change_one(device, ShaperRate { burst_bytes: rate.burst_bytes / FOLLOWING_UNITS, ..rate })
}

/// Bytes of the kernel's packets that may wait.
fn queue_bytes(rate: ShaperRate) -> u64 {
    (rate.rate_bps / 8 * QUEUE_MS / 1_000).max(QUEUE_BYTES_MIN)
}

/// Undoes [`install`]; does nothing if our shaper is not there any more.
///
/// # Errors
/// If the kernel refuses.
pub(super) fn restore(device: &Device, before: &Before) -> Result<(), KernelError> {
    if !is_installed(device)? {
        return Ok(());
    }
    match before {
        Before::Classless(qdisc) => replace(device, qdisc),
        Before::Default => match ask(RTM_DELQDISC, 0, &header(device, HANDLE)) {
            // Another program has removed it already.
            Err(error) if errno(&error) == Some(libc::ENOENT) => Ok(()),
            result => result.map_err(failed(device)),
        },
    }
}

fn replace(device: &Device, qdisc: &Qdisc) -> Result<(), KernelError> {
    let mut body = header(device, qdisc.handle).with_text(TCA_KIND, &qdisc.kind);
    if !qdisc.options.is_empty() {
        body = body.with(TCA_OPTIONS, &qdisc.options);
    }
    ask(RTM_NEWQDISC, NLM_F_CREATE | NLM_F_REPLACE, &body).map_err(failed(device))
}

/// Numbers of the devices that have our shaper.
pub(super) fn shaped_devices() -> Result<Vec<u32>, KernelError> {
    let answer = Netlink::route()
        .and_then(|mut netlink| netlink.list(RTM_GETQDISC, &Body::new(&[0; HEADER_BYTES])))
        .map_err(KernelError::net("the qdiscs"))?;
    let device = |message: &Vec<u8>| {
        let device = u32::from_ne_bytes(*message.get(4..)?.first_chunk()?);
        Qdisc::parse(message, device).is_some_and(|qdisc| qdisc.is_ours()).then_some(device)
    };
    Ok(answer.iter().filter_map(device).collect())
}

fn list(device: &Device) -> Result<Vec<Qdisc>, KernelError> {
    let answer = Netlink::route()
        .and_then(|mut netlink| netlink.list(RTM_GETQDISC, &Body::new(&[0; HEADER_BYTES])))
        .map_err(failed(device))?;
    Ok(answer.iter().filter_map(|message| Qdisc::parse(message, device.index)).collect())
}

fn header(device: &Device, handle: u32) -> Body {
    let words = [0, device.index, handle, TC_H_ROOT, 0];
    Body::new(&words.map(u32::to_ne_bytes).concat())
}

/// Options of the token bucket. Rates beyond 32 bits of bytes a second need another attribute.
fn token_bucket(rate: ShaperRate) -> Vec<u8> {
    let bytes_per_s = (rate.rate_bps / 8).max(1);
    let queue = queue_bytes(rate).min(u32::MAX.into()) as u32;
    let bytes_per_s_32 = u32::try_from(bytes_per_s).unwrap_or(u32::MAX);
    let mut parameters = Vec::with_capacity(36);
    // struct tc_ratespec: cell_log, linklayer, overhead, cell_align, mpu, rate.
    parameters.extend([0, LINKLAYER_ETHERNET]);
    parameters.extend((WIRE_EXTRA_BYTES as u16).to_ne_bytes());
    parameters.extend(0_u16.to_ne_bytes());
    parameters.extend((WIRE_BYTES_MIN as u16).to_ne_bytes());
    parameters.extend(bytes_per_s_32.to_ne_bytes());
    // No peak rate; limit of the queue; buffer and mtu follow from the burst below.
    parameters.extend([0; 12]);
    parameters.extend(queue.to_ne_bytes());
    parameters.extend([0; 8]);
    let mut options = Body::default().with(TCA_TBF_PARMS, &parameters);
    if bytes_per_s > u64::from(u32::MAX) {
        options = options.with(TCA_TBF_RATE64, &bytes_per_s.to_ne_bytes());
    }
    // The kernel adds the overhead once to the burst.
    options.with_u32(TCA_TBF_BURST, rate.burst_bytes - WIRE_EXTRA_BYTES).bytes().to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(device: u32, handle: u32, parent: u32, kind: &str) -> Vec<u8> {
        let words = [0, device, handle, parent, 1];
        Body::new(&words.map(u32::to_ne_bytes).concat()).with_text(TCA_KIND, kind).bytes().to_vec()
    }

    #[test]
    fn own_foreign_and_kernel_qdiscs_are_distinguished() {
        let entry = |handle, parent, kind: &str| {
            let qdisc = Qdisc::parse(&message(3, handle, parent, kind), 3).expect("a qdisc");
            (qdisc.is_ours(), qdisc.is_foreign())
        };
        assert_eq!(entry(HANDLE, TC_H_ROOT, "tbf"), (true, false));
        assert_eq!(entry(0, TC_H_ROOT, "noqueue"), (false, false));
        assert_eq!(entry(0x8001_0000, TC_H_ROOT, "htb"), (false, true));
        assert_eq!(entry(0xffff_0000, TC_H_INGRESS, "clsact"), (false, false));
        assert_eq!(Qdisc::parse(&message(3, HANDLE, TC_H_ROOT, "tbf"), 4), None, "another device's");
        assert_eq!(Qdisc::parse(&[0; 19], 0), None, "cut off");
    }

    #[test]
    fn the_bucket_is_encoded_in_the_kernels_structure() {
        let options = token_bucket(ShaperRate { rate_bps: 100_000_000, burst_bytes: 3_024 });
        let read = Attributes::after(&options, 0);
        let parameters = read.get(TCA_TBF_PARMS).expect("parameters");
        assert_eq!(parameters.len(), 36);
        assert_eq!(parameters[8..12], 12_500_000_u32.to_ne_bytes());
        assert_eq!(read.u32(TCA_TBF_BURST), Some(3_000));
        assert_eq!(read.get(TCA_TBF_RATE64), None);
        let fast = token_bucket(ShaperRate { rate_bps: 100_000_000_000, burst_bytes: 90_000 });
        assert_eq!(Attributes::after(&fast, 0).number(TCA_TBF_RATE64), Some(12_500_000_000));
    }
}
