//! Which device has an address of this host.

use std::io;
use std::net::IpAddr;

use super::attributes::{Attributes, Body};
use super::device::Device;
use super::error::KernelError;
use super::neighbours::{family, octets};
use super::netlink::Netlink;

const RTM_GETADDR: u16 = 22;
/// `struct ifaddrmsg`.
const HEADER_BYTES: usize = 8;
const IFA_ADDRESS: u16 = 1;
/// This host's end where the device joins two hosts, whose `IFA_ADDRESS` is the peer's.
const IFA_LOCAL: u16 = 2;

/// Names of the devices that have `address`, in the network namespace of this thread: more than one may have it.
///
/// # Errors
/// If the kernel does not answer.
pub fn devices_with(address: IpAddr) -> Result<Vec<String>, KernelError> {
    let failed = |error: io::Error| KernelError::Os { what: format!("the device of {address}"), error };
    let mut header = [0; HEADER_BYTES];
    header[0] = family(address);
    let answer = Netlink::route().and_then(|mut netlink| netlink.list(RTM_GETADDR, &Body::new(&header)));
    let devices = answer.map_err(failed)?;
    let devices = devices.iter().filter_map(|message| device_of(message, address));
    // A device may go in between.
    Ok(devices.filter_map(|index| Device::numbered(index).ok()).map(|device| device.name).collect())
}

/// The device of an `RTM_NEWADDR`, if it is about `address`.
fn device_of(message: &[u8], address: IpAddr) -> Option<u32> {
    let header: [u8; HEADER_BYTES] = *message.first_chunk()?;
    let attributes = Attributes::after(message, HEADER_BYTES);
    let own = attributes.get(IFA_LOCAL).or_else(|| attributes.get(IFA_ADDRESS))?;
    let is_it = header[0] == family(address) && own == octets(address);
    is_it.then(|| u32::from_ne_bytes([header[4], header[5], header[6], header[7]]))
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[test]
    fn loopback_has_its_address_and_no_device_that_of_documentation() {
        assert_eq!(devices_with(Ipv4Addr::LOCALHOST.into()).expect("netlink"), ["lo"]);
        assert!(devices_with([192, 0, 2, 1].into()).expect("netlink").is_empty());
    }

    /// The end of a tunnel: `IFA_ADDRESS` is the other host's.
    #[test]
    fn an_address_is_this_hosts_end() {
        let body = Body::new(&[2, 32, 0, 0, 7, 0, 0, 0])
            .with(IFA_ADDRESS, &[10, 0, 0, 2])
            .with(IFA_LOCAL, &[10, 0, 0, 1]);
        assert_eq!(device_of(body.bytes(), [10, 0, 0, 1].into()), Some(7));
        assert_eq!(device_of(body.bytes(), [10, 0, 0, 2].into()), None);
        assert_eq!(device_of(&body.bytes()[..7], [10, 0, 0, 1].into()), None);
    }
}
