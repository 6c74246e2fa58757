//! `local`, `peer` and the ports of a link: two ends that differ, and two streams at each.

use std::net::IpAddr;

use super::super::LinkDriver;

/// Address, port of data, port of signalling.
type End = (IpAddr, [u16; 2]);

/// What is wrong with the ends of a link to `neighbour`, and what would be right.
pub(super) fn check(driver: &LinkDriver, neighbour: &str) -> Result<(), String> {
    let (ours, theirs): (End, End) = match driver {
        LinkDriver::Memory => return Ok(()),
        LinkDriver::Udp(udp) => (
            (udp.local, [udp.data_port, udp.signalling_port]),
            (udp.peer, [udp.peer_data_port, udp.peer_signalling_port]),
        ),
        LinkDriver::Xdp(xdp) => (
            (xdp.classifier.local, [xdp.classifier.data_port, xdp.classifier.signalling_port]),
            (xdp.classifier.peer, [xdp.classifier.peer_data_port, xdp.classifier.peer_signalling_port]),
        ),
    };
    ports(ours.1, ["data_port", "signalling_port"])?;
    ports(theirs.1, ["peer_data_port", "peer_signalling_port"])?;
    let (local, peer) = (ours.0, theirs.0);
    if local.is_ipv4() != peer.is_ipv4() {
        return Err(format!(
            "local {local} and peer {peer} are not of one family: give both as IPv4 or IPv6"
        ));
    }
    if peer.is_unspecified() || peer.is_multicast() {
        return Err(format!("peer {peer} is no host's address: give that of {neighbour}"));
    }
    let is_udp = matches!(driver, LinkDriver::Udp(_));
    let is_itself = !is_udp || ours.1.iter().any(|port| theirs.1.contains(port));
    if local == peer && is_itself {
        let ports = if is_udp {
            ", or, where both are on one machine, peer_data_port and peer_signalling_port"
        } else {
            ""
        };
        return Err(format!(
            "peer {peer} is the local address, too: the link would lead to this host itself; give the address of \
             {neighbour}{ports}"
        ));
    }
    Ok(())
}

fn ports(ports: [u16; 2], keys: [&str; 2]) -> Result<(), String> {
    if let Some((_, key)) = ports.iter().zip(keys).find(|(port, _)| **port == 0) {
        return Err(format!("{key} 0: give 1 to 65535"));
    }
    match ports {
        [data, signalling] if data == signalling => {
            Err(format!("{} and {} are both {data}: give two ports", keys[0], keys[1]))
        }
        _ => Ok(()),
    }
}
