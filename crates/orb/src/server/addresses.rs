//! The addresses that references of this ORB have.

use std::io;
use std::net::{IpAddr, Ipv4Addr};

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
    match any_address(&address.host) {
        Some(any) => Ok(Endpoint::tcp(&outward(any)?, address.port)),
        None => Ok(endpoint.clone()),
    }
}

/// "Any address of this host", if a host is written so: `0.0.0.0`, `0`, `0x0`, `::`, `::ffff:0.0.0.0`.
fn any_address(host: &str) -> Option<IpAddr> {
    if let Ok(ip) = host.parse::<IpAddr>() {
        return Some(ip.to_canonical()).filter(IpAddr::is_unspecified);
    }
    let is_zero =
        |part: &str| !part.is_empty() && part.trim_start_matches("0x").bytes().all(|byte| byte == b'0');
    (host.is_empty() || host.split('.').all(is_zero)).then_some(Ipv4Addr::UNSPECIFIED.into())
}

/// The address that this host has on the way to others; without a way, that of the host alone.
fn outward(any: IpAddr) -> io::Result<String> {
    // Addresses for documentation: nothing is sent to them.
    let (to, alone) = if any.is_ipv4() { ("192.0.2.1:9", "127.0.0.1") } else { ("[2001:db8::1]:9", "::1") };
    let socket = std::net::UdpSocket::bind((any, 0))?;
    if socket.connect(to).is_err() {
        return Ok(alone.into());
    }
    Ok(socket.local_addr()?.ip().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_address_is_never_published() {
        for host in ["0.0.0.0", "0", "0x0", "0.0", "000.0x00.0.0", "", "::", "::ffff:0.0.0.0"] {
            let at = [Endpoint::tcp("127.0.0.1", 7)];
            for published in
                [published(&[Endpoint::tcp(host, 7)], &[]), published(&at, &[Endpoint::tcp(host, 0)])]
            {
                let published = published.expect("an address");
                let [Endpoint::Tcp(address)] = &published[..] else { panic!("one address") };
                assert!(address.host.parse::<IpAddr>().is_ok_and(|ip| !ip.is_unspecified()), "{address}");
                assert_eq!(address.port, 7);
            }
        }
        for host in ["10.0.0.1", "example.org", "0.example.org", "::1"] {
            assert_eq!(any_address(host), None, "{host}");
        }
    }
}
