//! Addresses of TCP as programs give them.

use std::net::{IpAddr, SocketAddr};

use super::TcpError;

/// The address that is used, and that rights are checked for: without scope and flow label, which no segment has. The IPv6 form of an
/// IPv4 address (RFC 4291 2.5.5.2), which sockets for both versions have, is that IPv4 address.
///
/// # Errors
/// [`TcpError::LinkLocal`]: links are chosen by addresses, and this one exists on each of them. [`TcpError::NoPort`].
pub(crate) fn canonical(given: SocketAddr) -> Result<SocketAddr, TcpError> {
    let address = given.ip().to_canonical();
    match address {
        IpAddr::V6(v6) if v6.is_unicast_link_local() => Err(TcpError::LinkLocal(address)),
        _ if given.port() == 0 => Err(TcpError::NoPort(given)),
        _ => Ok(SocketAddr::new(address, given.port())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_of_an_ipv4_address_are_one() {
        let of = |text: &str| canonical(text.parse().expect("an address")).map_err(|error| error.to_string());
        for (given, used) in [
            ("[::ffff:10.0.0.2]:80", "10.0.0.2:80"),
            ("10.0.0.2:80", "10.0.0.2:80"),
            ("[fd00::2]:80", "[fd00::2]:80"),
            ("[fd00::2%3]:80", "[fd00::2]:80"),
            ("[::]:80", "[::]:80"),
            ("[::1]:80", "[::1]:80"),
            ("[fec0::1]:80", "[fec0::1]:80"),
        ] {
            assert_eq!(of(given), Ok(used.parse().expect("an address")), "{given}");
        }
        for given in ["[fe80::1]:80", "[fe80::1%2]:80", "[febf::1]:80"] {
            let line = of(given).expect_err("link-local");
            assert!(line.contains("link-local") && line.contains("give"), "{line}");
        }
        assert_eq!(of("10.0.0.2:0"), Err("10.0.0.2:0 names no program: give a port, 1 to 65535".into()));
    }
}
