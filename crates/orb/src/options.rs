//! How an ORB is configured.

use std::time::Duration;

use crate::limits::{CONNECTIONS_MAX, MESSAGE_BYTES_MAX, POOL_QUEUE_MAX};
use crate::transport::Endpoint;

/// Which threads call servants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Threads {
    /// Each connection has one.
    #[default]
    PerConnection,
    /// So many serve all connections; so many requests may wait for one. Further ones get `TRANSIENT`.
    Pool {
        /// Threads.
        threads: usize,
        /// Requests that wait.
        queue: usize,
    },
    /// The application's own: those in `Orb::run` and `Orb::perform_work`.
    Reactive,
}

impl Threads {
    /// A pool of so many threads.
    pub fn pool(threads: usize) -> Self {
        Self::Pool { threads, queue: POOL_QUEUE_MAX }
    }
}

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
    /// Which threads call servants.
    pub threads: Threads,
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
            threads: Threads::default(),
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
