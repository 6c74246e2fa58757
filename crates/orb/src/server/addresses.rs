//! The addresses that references of this ORB have.

use std::io;

use crate::transport::Endpoint;

/// The addresses of references.
pub(super) fn published(at: &[Endpoint], configured: &[Endpoint]) -> io::Result<Vec<Endpoint>> {
    if configured.is_empty() {
        return at.iter().map(reachable).collect();
    }
    let port = |number: usize| match at.get(number) {
        Some(Endpoint::Tcp(address)) => address.port,
        _ => 0,
    };
    let one = |(number, endpoint): (usize, &Endpoint)| match endpoint {
        Endpoint::Tcp(address) if address.port == 0 => Endpoint::tcp(&address.host, port(number)),
        other => other.clone(),
    };
    configured.iter().enumerate().map(one).map(|endpoint| reachable(&endpoint)).collect()
}

/// An address that others can use instead of "any address of this host".
fn reachable(endpoint: &Endpoint) -> io::Result<Endpoint> {
    let Endpoint::Tcp(address) = endpoint else { return Ok(endpoint.clone()) };
    match address.host.parse::<std::net::IpAddr>() {
        Ok(ip) if ip.is_unspecified() => Ok(Endpoint::tcp(&outward(ip)?, address.port)),
        _ => Ok(endpoint.clone()),
    }
}

/// The address that this host has on the way to others; without a way, that of the host alone.
fn outward(any: std::net::IpAddr) -> io::Result<String> {
    // Addresses for documentation: nothing is sent to them.
    let (to, alone) = if any.is_ipv4() { ("192.0.2.1:9", "127.0.0.1") } else { ("[2001:db8::1]:9", "::1") };
    let socket = std::net::UdpSocket::bind((any, 0))?;
    if socket.connect(to).is_err() {
        return Ok(alone.into());
    }
    Ok(socket.local_addr()?.ip().to_string())
}
