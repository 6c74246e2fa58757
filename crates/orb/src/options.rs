//! How an ORB is configured. Each connection of a client has a thread, which calls the servants.

use std::time::Duration;

use crate::limits::{CONNECTIONS_MAX, MESSAGE_BYTES_MAX};
use crate::transport::Endpoint;

/// How an ORB is configured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Where it listens. Port 0 takes a free one. Without any, it is a client only.
    pub listen: Vec<Endpoint>,
    /// The addresses that its references have instead of those where it listens: of a gateway, for example.
    /// A port 0 is replaced by that of the endpoint at the same place in `listen`.
    pub published: Vec<Endpoint>,
    /// Bytes of a message at most. Longer ones end their connection.
    pub message_bytes_max: usize,
    /// How long a call may take, connecting and forwarding included.
    pub timeout: Option<Duration>,
    /// Connections of clients at most. Further ones are closed at once.
    pub connections_max: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            listen: Vec::new(),
            published: Vec::new(),
            message_bytes_max: MESSAGE_BYTES_MAX,
            timeout: None,
            connections_max: CONNECTIONS_MAX,
        }
    }
}

impl Options {
    /// Listens at this endpoint.
    pub fn listening(endpoint: Endpoint) -> Self {
        Self { listen: vec![endpoint], ..Self::default() }
    }
}
