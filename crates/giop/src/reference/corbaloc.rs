//! `corbaloc:` (CORBA 13.6.10.1): `corbaloc:[iiop]:[VERSION@]HOST[:PORT][,...]/KEY`, or `corbaloc:rir:[/NAME]`. omniORB adds
//! `omniunix:PATH:` as an address.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;
use core::net::Ipv6Addr;

use super::address::Address;
use super::component::{Component, UnixAddress};
use super::error::Error;
use super::escape::{escape, unescape};
use super::iiop::IiopProfile;
use super::{Profile, Reference, TAG_INTERNET_IOP, version};
use crate::{Error as CdrError, Version};

/// The port of `corbaloc` without one.
pub const PORT_DEFAULT: u16 = 2809;

/// Where a server is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// At an address, with the latest version of GIOP that it understands.
    Iiop(Version, Address),
    /// At the Unix socket with this path.
    Unix(String),
}

/// Where an object is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Corbaloc {
    /// At one of these servers, with this key.
    Places(Vec<Place>, Vec<u8>),
    /// Where the ORB is configured to find the service of this name.
    Resolve(String),
}

impl Corbaloc {
    /// Reads what is behind `corbaloc:`.
    ///
    /// # Errors
    /// All of [`Error`] about text.
    pub fn parse(text: &str) -> Result<Self, Error> {
        if let Some(rest) = text.strip_prefix("rir:") {
            return resolve(rest);
        }
        let (mut places, mut rest) = (Vec::new(), text);
        loop {
            let (place, behind) = place(rest)?;
            places.push(place);
            rest = match behind.split_at_checked(1) {
                Some((",", behind)) => behind,
                Some(("/", key)) => return Ok(Self::Places(places, unescape(key)?)),
                None => return Ok(Self::Places(places, Vec::new())),
                Some(_) => return Err(Error::Address(rest.into())),
            };
        }
    }

    /// A reference with a profile for each address, whose type is not known; `None` if the ORB must resolve a name. Unix
    /// sockets are those of this `host`, which their profiles name.
    ///
    /// # Errors
    /// If a part has no bytes.
    pub fn reference(&self, host: &str) -> Result<Option<Reference>, CdrError> {
        let Self::Places(places, key) = self else { return Ok(None) };
        let profile = |place: &Place| {
            let data = profile(place, key, host)?.to_bytes()?;
            Ok(Profile { tag: TAG_INTERNET_IOP, data })
        };
        let profiles = places.iter().map(profile).collect::<Result<_, _>>()?;
        Ok(Some(Reference { type_id: String::new(), profiles }))
    }
}

/// What is behind `rir:`.
fn resolve(text: &str) -> Result<Corbaloc, Error> {
    let name = match text.split_at_checked(1) {
        None => "",
        Some(("/", name)) => name,
        Some(_) => return Err(Error::Resolve),
    };
    let name = String::from_utf8(unescape(name)?).map_err(|_| Error::NameText)?;
    Ok(Corbaloc::Resolve(if name.is_empty() { "NameService".into() } else { name }))
}

/// The profile of an object at this place. That of a Unix socket has no port, as omniORB has it.
fn profile(place: &Place, key: &[u8], host: &str) -> Result<IiopProfile, CdrError> {
    let object_key = key.to_vec();
    Ok(match place {
        Place::Iiop(version, address) => {
            IiopProfile { version: *version, address: address.clone(), object_key, components: Vec::new() }
        }
        Place::Unix(path) => IiopProfile {
            version: Version::V1_2,
            address: Address { host: host.into(), port: 0 },
            object_key,
            components: alloc::vec![Component::of_unix(&UnixAddress {
                host: host.into(),
                path: path.clone()
            })?],
        },
    })
}

/// The first place in the text, and what is behind it.
fn place(text: &str) -> Result<(Place, &str), Error> {
    let (transport, rest) = text.split_once(':').ok_or_else(|| Error::Address(text.into()))?;
    match transport {
        "" | "iiop" => {
            let (address, behind) = rest.split_at(rest.find([',', '/']).unwrap_or(rest.len()));
            Ok((iiop(address)?, behind))
        }
        "omniunix" => {
            let (path, behind) = rest.split_once(':').ok_or_else(|| Error::Address(text.into()))?;
            if path.is_empty() || path.contains('\0') {
                Err(Error::Address(text.into()))
            } else {
                Ok((Place::Unix(path.into()), behind))
            }
        }
        "rir" => Err(Error::Resolve),
        other => Err(Error::Transport(other.into())),
    }
}

/// `[VERSION@]HOST[:PORT]`.
fn iiop(text: &str) -> Result<Place, Error> {
    let (version, host) = match text.split_once('@') {
        Some((version, host)) => (version_of(version)?, host),
        None => (Version::V1_0, text),
    };
    let address = host_and_port(host).ok_or_else(|| Error::Address(text.into()))?;
    Ok(Place::Iiop(version, address))
}

fn version_of(text: &str) -> Result<Version, Error> {
    let numbers = text.split_once('.').and_then(|(major, minor)| major.parse().ok().zip(minor.parse().ok()));
    let (major, minor) = numbers.ok_or_else(|| Error::VersionText(text.into()))?;
    version(major, minor)
}

/// `HOST`, `HOST:PORT`, `[IPV6]` or `[IPV6]:PORT`.
fn host_and_port(text: &str) -> Option<Address> {
    let (host, rest) = match text.strip_prefix('[') {
        Some(behind) => behind.split_once(']').filter(|(host, _)| is_ipv6(host))?,
        None => text.split_at(text.find(':').unwrap_or(text.len())),
    };
    let host = with_zone(host);
    let is_host = |c: char| c.is_ascii_alphanumeric() || "-._:%".contains(c);
    if host.is_empty() || !host.chars().all(is_host) {
        return None;
    }
    let port = match rest.strip_prefix(':') {
        Some(port) if port.bytes().all(|byte| byte.is_ascii_digit()) => {
            port.parse().ok().filter(|port| *port > 0)?
        }
        None if rest.is_empty() => PORT_DEFAULT,
        _ => return None,
    };
    Some(Address { host, port })
}

/// Whether it is an address of IPv6, with a zone or without.
fn is_ipv6(host: &str) -> bool {
    let address = host.split_once('%').map_or(host, |(address, _)| address);
    address.parse::<Ipv6Addr>().is_ok()
}

/// The `%` before the zone of an IPv6 address is written `%25` (RFC 6874).
fn with_zone(host: &str) -> String {
    match host.split_once("%25") {
        Some((address, zone)) if !zone.is_empty() => format!("{address}%{zone}"),
        _ => host.into(),
    }
}

impl fmt::Display for Corbaloc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Resolve(name) => {
                let mut text = String::new();
                escape(name.as_bytes(), &mut text);
                write!(f, "corbaloc:rir:/{text}")
            }
            Self::Places(places, key) => {
                let places: Vec<String> = places.iter().map(ToString::to_string).collect();
                let mut text = String::new();
                escape(key, &mut text);
                write!(f, "corbaloc:{}/{text}", places.join(","))
            }
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Iiop(version, address) => {
                let (major, minor) = version.numbers();
                let address = address.to_string().replace('%', "%25");
                write!(f, "iiop:{major}.{minor}@{address}")
            }
            Self::Unix(path) => write!(f, "omniunix:{path}:"),
        }
    }
}
