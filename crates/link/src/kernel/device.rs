//! A network device as the kernel sees it now.

use std::fs;
use std::io;
use std::path::PathBuf;

use super::attributes::{Attributes, Body};
use super::error::KernelError;
use super::netlink::{Netlink, errno};
use crate::mac::Mac;

pub(super) const RTM_NEWLINK: u16 = 16;
pub(super) const RTM_DELLINK: u16 = 17;
const RTM_GETLINK: u16 = 18;
/// `struct ifinfomsg`.
const HEADER_BYTES: usize = 16;
const ARPHRD_ETHER: u16 = 1;
const IFF_UP: u32 = 1 << 0;
const IFF_LOWER_UP: u32 = 1 << 16;

// Attributes of a link.
const IFLA_ADDRESS: u16 = 1;
const IFLA_IFNAME: u16 = 3;
const IFLA_MTU: u16 = 4;
const IFLA_LINKINFO: u16 = 18;
const IFLA_NUM_RX_QUEUES: u16 = 32;
const IFLA_XDP: u16 = 43;
const IFLA_INFO_KIND: u16 = 1;
const IFLA_XDP_ATTACHED: u16 = 2;
const IFLA_XDP_PROG_ID: u16 = 4;

/// Drivers of what hypervisors show as a NIC.
const PARAVIRTUAL: [&str; 6] = ["virtio_net", "vmxnet3", "vif", "hv_netvsc", "ena", "gve"];

/// How an XDP program is attached to a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct XdpAttachment {
    /// True if the program runs in the driver. Otherwise it runs after a socket buffer has been made
    /// (generic), or in the hardware.
    pub native: bool,
    /// The program's id, for `bpftool prog show id`; 0 if several are attached.
    pub program: u32,
}

/// The XDP features of the device's driver (netlink `netdev`, `xdp-features`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct XdpFeatures(u64);

impl XdpFeatures {
    pub(super) const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }
    /// Programs run in the driver.
    pub const fn native(self) -> bool {
        self.0 & 1 != 0
    }
    /// Programs can hand packets to AF_XDP sockets and other devices.
    pub const fn redirect(self) -> bool {
        self.0 & 2 != 0
    }
    /// AF_XDP without a copy.
    pub const fn zero_copy(self) -> bool {
        self.0 & 8 != 0
    }
}

/// A device's facts at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// Index of the device in this network namespace. A device that is made again gets another.
    pub index: u32,
    /// Name of the device.
    pub name: String,
    /// Hardware address of the device; `None` if it is no Ethernet device.
    pub mac: Option<Mac>,
    /// Longest IP packet, in bytes.
    pub mtu: u32,
    /// Whether it is switched on.
    pub up: bool,
    /// Whether it can carry packets: a cable, an other end.
    pub carrier: bool,
    /// Receive queues that it was made with.
    pub rx_queues: u32,
    /// The kind of a virtual device ("veth", "bridge", ...); `None`: hardware, or a device that a hypervisor
    /// presents as hardware.
    pub kind: Option<String>,
    /// The XDP program that is attached.
    pub xdp: Option<XdpAttachment>,
}

impl Device {
    /// Finds a device by its name, in the network namespace of this thread.
    ///
    /// # Errors
    /// If there is none, or the kernel does not answer.
    pub fn named(name: &str) -> Result<Self, KernelError> {
        // Longer names cannot be; the kernel would call the attribute malformed.
        if name.is_empty() || name.len() > 15 {
            return Err(KernelError::NoDevice(name.into()));
        }
        Self::get(&Body::new(&[0; HEADER_BYTES]).with_text(IFLA_IFNAME, name), name)
    }

    /// Finds a device by its index, in the network namespace of this thread.
    ///
    /// # Errors
    /// See [`Device::named`].
    pub fn numbered(index: u32) -> Result<Self, KernelError> {
        let mut header = [0; HEADER_BYTES];
        header[4..8].copy_from_slice(&index.to_ne_bytes());
        Self::get(&Body::new(&header), &format!("number {index}"))
    }

    fn get(body: &Body, name: &str) -> Result<Self, KernelError> {
        let refused = |error: io::Error| match errno(&error) {
            Some(libc::ENODEV) => KernelError::NoDevice(name.into()),
            _ => KernelError::Os { what: format!("interface {name}"), error },
        };
        let answer =
            Netlink::route().and_then(|mut netlink| netlink.ask(RTM_GETLINK, 0, body)).map_err(refused)?;
        let device = answer.iter().find_map(|message| Self::parse(message));
        device.ok_or_else(|| KernelError::NoDevice(name.into()))
    }

    /// Reads a device from an `RTM_NEWLINK` or `RTM_DELLINK`.
    pub(super) fn parse(message: &[u8]) -> Option<Self> {
        let header: [u8; HEADER_BYTES] = *message.first_chunk()?;
        let attributes = Attributes::after(message, HEADER_BYTES);
        let flags = u32::from_ne_bytes([header[8], header[9], header[10], header[11]]);
        let ethernet = u16::from_ne_bytes([header[2], header[3]]) == ARPHRD_ETHER;
        let xdp = attributes.nested(IFLA_XDP);
        let attached = xdp.number(IFLA_XDP_ATTACHED).filter(|mode| *mode != 0);
        Some(Self {
            index: u32::from_ne_bytes([header[4], header[5], header[6], header[7]]),
            name: attributes.text(IFLA_IFNAME)?,
            mac: attributes.get(IFLA_ADDRESS).filter(|_| ethernet).and_then(Mac::from_bytes),
            mtu: attributes.u32(IFLA_MTU).unwrap_or(0),
            up: flags & IFF_UP != 0,
            carrier: flags & IFF_LOWER_UP != 0,
            rx_queues: attributes.u32(IFLA_NUM_RX_QUEUES).unwrap_or(1),
            kind: attributes.nested(IFLA_LINKINFO).text(IFLA_INFO_KIND),
            xdp: attached.map(|mode| XdpAttachment {
                native: mode == 1,
                program: xdp.u32(IFLA_XDP_PROG_ID).unwrap_or(0),
            }),
        })
    }

    /// Whether packets can go now.
    pub(super) const fn carries(&self) -> bool {
        self.up && self.carrier
    }

    /// Whether its completions come at the pace of a medium: a NIC of this machine. Virtual devices complete at once,
    /// those of hypervisors when the host has taken the packet.
    pub fn has_own_pace(&self) -> bool {
        let hardware = self.kind.is_none() && self.mac.is_some();
        let driver = files_of(self).and_then(|folder| folder.join("device/driver").read_link().ok());
        let driver = driver.as_ref().and_then(|path| path.file_name()?.to_str());
        hardware && driver.is_some_and(|driver| !PARAVIRTUAL.contains(&driver))
    }

    /// Hardware address of the device.
    ///
    /// # Errors
    /// If it has none.
    pub fn ethernet(&self) -> Result<Mac, KernelError> {
        self.mac.ok_or_else(|| KernelError::NotEthernet(self.name.clone()))
    }
}

/// The device's folder in `/sys`, if that shows this network namespace.
pub(super) fn files_of(device: &Device) -> Option<PathBuf> {
    let folder = PathBuf::from("/sys/class/net").join(&device.name);
    let read = |file: &str| fs::read_to_string(folder.join(file)).ok().map(|text| text.trim().to_owned());
    let same = read("ifindex")? == device.index.to_string() && read("address")? == device.mac?.to_string();
    same.then_some(folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_there_and_is_no_ethernet() {
        let lo = Device::named("lo").expect("lo");
        assert_eq!((lo.index, lo.mac, lo.kind.as_deref()), (1, None, None));
        assert!(lo.mtu >= 1_500 && lo.rx_queues >= 1);
        assert!(!lo.has_own_pace());
        assert!(lo.ethernet().expect_err("no Ethernet").to_string().contains("udp"));
        assert_eq!(Device::numbered(1).expect("lo"), lo);
    }

    #[test]
    fn what_is_not_there_is_an_error_with_a_fix() {
        for name in ["no-such-device", "", "a-name-that-is-longer-than-names-can-be"] {
            let error = Device::named(name).expect_err("nothing").to_string();
            assert!(error.contains("ip link") && error.contains(name), "{error}");
        }
        assert!(matches!(Device::numbered(1 << 30), Err(KernelError::NoDevice(_))));
    }

    #[test]
    fn addresses_are_written_as_people_do() {
        assert_eq!(Mac([2, 0x70, 0, 0, 0, 0xff]).to_string(), "02:70:00:00:00:ff");
        assert_eq!(Mac::from_bytes(&[0; 8]), None);
    }
}
