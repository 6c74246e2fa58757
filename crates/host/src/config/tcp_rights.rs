//! Which users may use TCP of the host's own, and for which addresses and ports.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::str::FromStr;

use punctual_proto::api::UserId;
use serde::Deserialize;

/// Addresses with a common prefix, and ports: `10.0.0.0/8:80`, `[fd00::]/8:1024-2047`, `*:6379`, `10.0.0.1:*`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoints {
    /// Address and bits of the prefix; `None`: all addresses.
    prefix: Option<(IpAddr, u8)>,
    ports: RangeInclusive<u16>,
}

const FORM: &str = "write an address or prefix and ports, like \"10.0.0.0/8:80\", \"[fd00::]/8:1024-2047\", \"*:6379\" or \
                    \"10.0.0.1:*\"";

impl FromStr for Endpoints {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let help = || format!("\"{text}\": {FORM}");
        let (addresses, ports) = text.rsplit_once(':').ok_or_else(help)?;
        Ok(Self { prefix: prefix(addresses).ok_or_else(help)?, ports: port_range(ports).ok_or_else(help)? })
    }
}

/// `None` outside: it is none. `None` inside: all addresses.
fn prefix(text: &str) -> Option<Option<(IpAddr, u8)>> {
    if text == "*" {
        return Some(None);
    }
    let (address, bits) = match text.split_once('/') {
        Some((address, bits)) => (address, Some(bits.parse::<u8>().ok()?)),
        None => (text, None),
    };
    let address: IpAddr = match address.strip_prefix('[') {
        Some(v6) => IpAddr::V6(v6.strip_suffix(']')?.parse().ok()?),
        None => IpAddr::V4(address.parse().ok()?),
    };
    let most = if address.is_ipv4() { 32 } else { 128 };
    let bits = bits.unwrap_or(most);
    (bits <= most).then_some(Some(canonical(address, bits)))
}

/// The prefix of the addresses that are used: the IPv6 form of IPv4 addresses is those (RFC 4291 2.5.5.2).
fn canonical(address: IpAddr, bits: u8) -> (IpAddr, u8) {
    match (address.to_canonical(), bits.checked_sub(96)) {
        (IpAddr::V4(v4), Some(bits)) if address.is_ipv6() => (IpAddr::V4(v4), bits),
        _ => (address, bits),
    }
}

fn port_range(text: &str) -> Option<RangeInclusive<u16>> {
    if text == "*" {
        // A port below 1024 is named.
        return Some(1_024..=u16::MAX);
    }
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let range = first.parse().ok()?..=last.parse().ok()?;
    (*range.start() > 0 && !range.is_empty()).then_some(range)
}

/// The bits of an address, from the left.
fn bits_of(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(v4) => u128::from(u32::from(v4)) << 96,
        IpAddr::V6(v6) => u128::from(v6),
    }
}

impl Endpoints {
    fn has(&self, at: SocketAddr) -> bool {
        let is_within = self.prefix.is_none_or(|(address, bits)| {
            let differ = bits_of(address) ^ bits_of(at.ip());
            address.is_ipv4() == at.is_ipv4() && differ.leading_zeros() >= u32::from(bits)
        });
        is_within && self.ports.contains(&at.port())
    }
}

/// One row: what a user, or every user, may.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TcpRight {
    /// `None`: every user.
    pub user: Option<UserId>,
    /// Peers that its programs may connect to.
    pub connect: Vec<Endpoints>,
    /// Addresses of this host that its programs may listen at.
    pub listen: Vec<Endpoints>,
}

/// All rows. Root and the daemon's own user may everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TcpRights(pub Vec<TcpRight>);

impl TcpRights {
    fn of(&self, user: UserId) -> impl Iterator<Item = &TcpRight> {
        self.0.iter().filter(move |right| right.user.is_none_or(|of| of == user))
    }

    /// Whether this user's programs may connect to `peer`.
    pub fn may_connect(&self, user: UserId, peer: SocketAddr) -> bool {
        self.of(user).flat_map(|right| &right.connect).any(|peers| peers.has(peer))
    }

    /// Whether this user's programs may listen at `local`.
    pub fn may_listen(&self, user: UserId, local: SocketAddr) -> bool {
        self.of(user).flat_map(|right| &right.listen).any(|ours| ours.has(local))
    }
}

/// A row as the file has it.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TcpRightTable {
    pub user: Option<u32>,
    #[serde(default)]
    pub connect: Vec<String>,
    #[serde(default)]
    pub listen: Vec<String>,
}

impl TcpRightTable {
    /// The right; otherwise what is wrong, with the fix.
    pub fn right(&self) -> Result<TcpRight, String> {
        let parse = |texts: &[String]| texts.iter().map(|text| text.parse()).collect::<Result<_, String>>();
        Ok(TcpRight {
            user: self.user.map(UserId),
            connect: parse(&self.connect).map_err(|error| format!("[[daemon.tcp]] connect {error}"))?,
            listen: parse(&self.listen).map_err(|error| format!("[[daemon.tcp]] listen {error}"))?,
        })
    }
}

impl fmt::Display for Endpoints {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.prefix {
            None => f.write_str("*")?,
            Some((IpAddr::V4(address), bits)) => write!(f, "{address}/{bits}")?,
            Some((IpAddr::V6(address), bits)) => write!(f, "[{address}]/{bits}")?,
        }
        write!(f, ":{}-{}", self.ports.start(), self.ports.end())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn has(endpoints: &str, at: &str) -> bool {
        endpoints.parse::<Endpoints>().expect(endpoints).has(at.parse().expect(at))
    }

    #[test]
    fn a_prefix_and_a_range_hold_what_is_within() {
        assert!(has("10.0.0.0/8:80", "10.1.2.3:80") && !has("10.0.0.0/8:80", "11.1.2.3:80"));
        assert!(!has("10.0.0.0/8:80", "10.1.2.3:81"));
        assert!(has("10.0.0.1:6379", "10.0.0.1:6379") && !has("10.0.0.1:6379", "10.0.0.2:6379"));
        assert!(
            has("[fd00::]/8:1024-2047", "[fd12::1]:2047") && !has("[fd00::]/8:1024-2047", "[fe12::1]:2047")
        );
        assert!(!has("[fd00::]/8:1024-2047", "[fd12::1]:2048") && !has("0.0.0.0/0:5000", "[::1]:5000"));
        assert!(has("0.0.0.0/0:5000", "203.0.113.1:5000") && has("*:5000", "[::1]:5000"));
        assert!(
            has("[::ffff:10.0.0.0]/104:80", "10.1.2.3:80") && !has("[::ffff:10.0.0.0]/104:80", "11.1.2.3:80")
        );
        assert!(has("[::ffff:10.0.0.1]:80", "10.0.0.1:80") && !has("[::]/0:80", "10.0.0.1:80"));
    }

    /// A port below 1024 must be named.
    #[test]
    fn all_ports_are_those_above_1023() {
        assert!(has("*:*", "1.2.3.4:1024") && !has("*:*", "1.2.3.4:1023"));
        assert!(has("*:22-23", "1.2.3.4:22"));
    }

    #[test]
    fn what_is_no_endpoint_is_refused_with_the_form() {
        for text in [
            "",
            "10.0.0.1",
            "10.0.0.1:0",
            "10.0.0.1:9-8",
            "10.0.0.1/33:80",
            "[fd00::/8:80",
            "::1:80",
            "*:70000",
            "a:1",
        ] {
            let error = text.parse::<Endpoints>().expect_err(text);
            assert!(error.contains(FORM) && error.contains(text), "{error}");
        }
    }

    #[test]
    fn rows_count_for_their_user_or_for_all() {
        let parse = |text: &str| vec![text.parse().expect(text)];
        let rights = TcpRights(vec![
            TcpRight { user: Some(UserId(7)), connect: parse("10.0.0.1:80"), listen: Vec::new() },
            TcpRight { user: None, connect: Vec::new(), listen: parse("*:8000-8999") },
        ]);
        let [peer, local] = ["10.0.0.1:80", "10.0.0.2:8080"].map(|at| at.parse().expect(at));
        assert!(rights.may_connect(UserId(7), peer) && !rights.may_connect(UserId(8), peer));
        assert!(rights.may_listen(UserId(7), local) && rights.may_listen(UserId(8), local));
        assert!(!rights.may_listen(UserId(7), peer) && !rights.may_connect(UserId(7), local));
    }
}
