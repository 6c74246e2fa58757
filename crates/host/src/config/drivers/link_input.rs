//! The configuration of one link: the input from which its driver makes its settings.

use std::net::IpAddr;

use punctual_os::realtime::{RealTime, SchedulingClass};
use punctual_proto::config::{LinkConfig, SignallingConfig};
use serde::de::DeserializeOwned;

use crate::config::file::LinkTable;
use crate::config::{ConfigError, DATA_PORT_DEFAULT, OtherTraffic, SIGNALLING_PORT_DEFAULT, Source};

/// The two ends of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ends {
    /// Our address.
    pub local: IpAddr,
    /// Our ports of data and of signalling.
    pub ports: [u16; 2],
    /// The neighbour's address.
    pub peer: IpAddr,
    /// The neighbour's ports.
    pub peer_ports: [u16; 2],
}

/// A `[[link]]` table, with what node and admission require of the link.
pub struct LinkInput<'a> {
    pub(in crate::config) table: &'a LinkTable,
    pub(in crate::config) source: &'a Source<'a>,
    /// Byte of the file's text at which the table begins.
    pub(in crate::config) at: usize,
    pub(in crate::config) link: &'a LinkConfig,
    pub(in crate::config) other_traffic: OtherTraffic,
    pub(in crate::config) real_time: RealTime,
    pub(in crate::config) signalling: &'a SignallingConfig,
}

impl<'a> LinkInput<'a> {
    /// An error about this link, with its line: `what` names the mistake and the fix.
    pub fn refuse(&self, what: impl Into<String>) -> ConfigError {
        self.source.error(self.at, format!("[[link]] \"{}\": {}", self.table.name, what.into()))
    }

    /// Whether a key is in the table.
    pub fn has(&self, key: &str) -> bool {
        self.table.keys.iter().any(|given| given == key)
    }

    /// Checks that none of these keys is in the table.
    ///
    /// # Errors
    /// The first key that does, with `why` it must not.
    pub fn has_none_of(&self, keys: &[&str], why: &str) -> Result<(), String> {
        keys.iter().find(|key| self.has(key)).map_or(Ok(()), |key| Err(format!("{key}: {why}")))
    }

    /// The driver's own keys.
    ///
    /// # Errors
    /// The keys that are missing or wrong.
    pub fn own<T: DeserializeOwned>(&self) -> Result<T, ConfigError> {
        T::deserialize(self.table.own.clone()).map_err(|error| self.refuse(error.message()))
    }

    /// The configuration of the link at the node: its name, rate, longest packet, frames, ...
    pub fn link(&self) -> &'a LinkConfig {
        self.link
    }

    /// The configured traffic of other senders on its device.
    pub fn other_traffic(&self) -> OtherTraffic {
        self.other_traffic
    }

    /// Whether this is a best-effort host: without guarantees and without privileges.
    pub fn is_best_effort_host(&self) -> bool {
        self.real_time.class == SchedulingClass::BestEffortHost
    }

    /// `device`.
    pub fn device(&self) -> Option<&'a str> {
        self.table.device.as_deref()
    }

    /// `local` and `peer` with their ports; `None` if an address is missing.
    pub fn ends(&self) -> Option<Ends> {
        let table = self.table;
        let (local, peer): (IpAddr, IpAddr) = (table.local?, table.peer?);
        let ports = [
            table.data_port.unwrap_or(DATA_PORT_DEFAULT),
            table.signalling_port.unwrap_or(SIGNALLING_PORT_DEFAULT),
        ];
        let peer_ports =
            [table.peer_data_port.unwrap_or(ports[0]), table.peer_signalling_port.unwrap_or(ports[1])];
        Some(Ends { local, ports, peer, peer_ports })
    }
}
