//! `local`, `peer` and the ports of a link: two ends that differ, and two streams at each.

use super::super::LinkDriver;

/// The mistake in the ends of a link to `neighbour`, with the fix.
pub(super) fn check(link: &dyn LinkDriver, neighbour: &str) -> Result<(), String> {
    let Some(ends) = link.ends() else { return Ok(()) };
    ports(ends.ports, ["data_port", "signalling_port"])?;
    ports(ends.peer_ports, ["peer_data_port", "peer_signalling_port"])?;
    let (local, peer) = (ends.local, ends.peer);
    if local.is_ipv4() != peer.is_ipv4() {
        return Err(format!(
            "local {local} and peer {peer} are not of one family: give both as IPv4 or IPv6"
        ));
    }
    if peer.is_unspecified() || peer.is_multicast() {
        return Err(format!("peer {peer} is not the address of a host: give that of {neighbour}"));
    }
    let may_stay = link.driver().stays_on_machine();
    let is_itself = !may_stay || ends.ports.iter().any(|port| ends.peer_ports.contains(port));
    if local == peer && is_itself {
        let ports = if may_stay {
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
