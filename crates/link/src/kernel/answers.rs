//! Parses the kernel's messages without a kernel: for fuzz tests of the parsers.

use std::io;

use super::attributes::{Attributes, Body};
use super::device::Device;
use super::neighbours::{self, Neighbour};
use super::netlink::{HEADER_BYTES, Netlink, judge, messages};
use super::qdisc::Qdisc;
use super::{napi, record};

/// `RTM_GETLINK`, `RTM_GETROUTE`, `RTM_GETNEIGH`, `RTM_GETQDISC`.
const LISTS: [u16; 4] = [18, 26, 30, 38];
/// Length of a generic family's header.
const GENERIC_BYTES: usize = 4;

/// Parses a netlink datagram as every kind of answer that is ever requested; returns how many messages could
/// be parsed.
pub fn read(datagram: &[u8]) -> usize {
    let mut sense = 0;
    for (header, body) in messages(datagram) {
        let route = neighbours::parse_route(body).is_some();
        let device = Device::parse(body).is_some();
        let neighbour = Neighbour::parse(body).is_some();
        let qdisc = Qdisc::parse(body, 1).is_some();
        let napi = napi::parse_napi(Attributes::after(body, GENERIC_BYTES)).is_some();
        let refusal = judge(header, body).err().map(|error| error.to_string()).is_some();
        sense += usize::from(route || device || neighbour || qdisc || napi || refusal);
    }
    sense
}

/// Parses a record of a host's former settings; returns whether it is valid.
pub fn read_record(text: &str) -> bool {
    record::decode(text).is_some()
}

/// A record as it is written.
pub fn example_record() -> String {
    record::encode(&record::State {
        device: 7,
        name: "eth0".into(),
        owner: 4_711,
        qdisc: Some(super::qdisc::Before::Classless(Qdisc::restorable(
            "pfifo".into(),
            0x8001_0000,
            vec![0, 0xff],
        ))),
        napis: Vec::new(),
    })
}

/// What this host's kernel answers about the loopback device, one datagram a kind.
///
/// # Errors
/// If it does not.
pub fn examples() -> io::Result<Vec<Vec<u8>>> {
    let mut netlink = Netlink::route()?;
    let mut found = Vec::new();
    for kind in LISTS {
        let mut datagram = Vec::new();
        for body in netlink.list(kind, &Body::new(&[0; 20]))?.iter().take(1) {
            let length = (HEADER_BYTES + body.len()) as u32;
            datagram.extend_from_slice(&length.to_ne_bytes());
            // A notification of an object has the same type as the answer to a request for it.
            datagram.extend_from_slice(&(kind - 2).to_ne_bytes());
            datagram.extend_from_slice(&[0; 10]);
            datagram.extend_from_slice(body);
            datagram.resize(datagram.len().next_multiple_of(4), 0);
        }
        found.push(datagram);
    }
    Ok(found)
}
