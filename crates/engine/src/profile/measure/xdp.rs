//! The wires of a profile over AF_XDP: two veth pairs in a network of the measuring thread's own.
//!
//! Both ends of a pair are on one host, so the sender pays for a packet's whole way through the kernel (copy,
//! the peer's interrupt, the classifier). That costs more than an adapter, which does this itself or on
//! another CPU.

use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::process::{Command, Stdio};

use punctual_link::LinkError;
use punctual_link::kernel::Mac;
use punctual_link::xdp::{Addresses, XdpLink, XdpMemory, XdpOptions};
use punctual_os::network::enter_private_network;

use super::MeasureError;
use super::wires::{Ends, FRAMES, PACKET_BYTES, Wires};

const DATA_PORT: u16 = 7_075;
const SIGNALLING_PORT: u16 = 7_076;
/// Size that is enough for a packet of ours with its headers.
const FRAME_BYTES: usize = 2_048;
const PAIRS: u8 = 2;

/// One end of a pair of devices.
#[derive(Clone, Copy)]
struct End {
    pair: u8,
    side: u8,
}

impl End {
    fn other(self) -> Self {
        Self { side: 1 - self.side, ..self }
    }
    fn device(self) -> String {
        format!("profile{}{}", self.pair, ["a", "b"][usize::from(self.side)])
    }
    fn mac(self) -> Mac {
        Mac([2, 0x70, 0x75, 1, self.pair, self.side + 1])
    }
    fn address(self) -> IpAddr {
        IpAddr::from(Ipv4Addr::new(10, 99, self.pair, self.side + 1))
    }

    fn options(self) -> XdpOptions {
        let options = XdpOptions::new(
            &self.device(),
            self.address(),
            self.other().address(),
            DATA_PORT,
            SIGNALLING_PORT,
        );
        let addresses = Addresses::new(self.mac(), Some(self.other().mac()));
        let mut options = XdpOptions { addresses: Some(addresses), ..options }.with_frames(FRAMES);
        options.classifier.packet_bytes_max = PACKET_BYTES as u32;
        options
    }
}

/// Moves the calling thread to a network namespace of its own for good: call it on a thread without further
/// work. Everything is removed at its end.
///
/// # Errors
/// If namespaces, devices, programs or memory are refused: without root, `ip` or the kernel's veth.
pub fn xdp_wires() -> Result<Wires, MeasureError> {
    enter_private_network()
        .map_err(|error| MeasureError::Os { what: "a network namespace (needs root)", error })?;
    // Multicast and address detection of IPv6 are traffic that the measurement does not need. Kernels without
    // IPv6 have no such file.
    let _ = std::fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1");
    ip(&devices()).map_err(|error| MeasureError::Os { what: "a pair of veth devices (ip)", error })?;
    let options = |pair| [0, 1].map(|side| End { pair, side }.options());
    let (first, second) = (options(0), options(1));
    let frames = first.iter().chain(&second).map(XdpOptions::frames_needed).sum();
    // All links share one memory, as on a host: a forwarder's frames are rewritten in place.
    let memory = XdpMemory::new(frames, FRAME_BYTES)?;
    let open = |[one, other]: &[XdpOptions; 2]| -> Result<Ends, LinkError> {
        Ok((Box::new(XdpLink::open(one, &memory)?), Box::new(XdpLink::open(other, &memory)?)))
    };
    Ok(Wires::new(open(&first)?, open(&second)?))
}

/// Input of `ip -batch` that makes the devices.
fn devices() -> String {
    let pair = |pair| {
        let (one, other) = (End { pair, side: 0 }, End { pair, side: 1 });
        let (a, b) = (one.device(), other.device());
        format!(
            "link add {a} address {} type veth peer name {b} address {}\nlink set {a} up\nlink set {b} up\n",
            one.mac(),
            other.mac()
        )
    };
    (0..PAIRS).map(pair).collect()
}

fn ip(batch: &str) -> io::Result<()> {
    let mut child = Command::new("ip")
        .args(["-batch", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()?;
    let written =
        child.stdin.take().map_or(Ok(()), |mut stdin| io::Write::write_all(&mut stdin, batch.as_bytes()));
    let output = child.wait_with_output()?;
    if output.status.success() {
        return written;
    }
    Err(io::Error::other(String::from_utf8_lossy(&output.stderr).trim().to_owned()))
}
