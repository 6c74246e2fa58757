//! How an ORB is configured.

use std::num::NonZeroUsize;
use std::time::Duration;

use crate::limits::{CONNECTIONS_MAX, HELD_BYTES_MAX, HOLD_TIME, MESSAGE_BYTES_MAX, MESSAGE_TIME};
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
    /// Bytes of memory at most for messages of all clients together: those of which a part is there, those that wait, those
    /// that are being served, and replies that clients do not read. Small messages do not count. When no more may be taken, the
    /// connection ends whose unfinished message or reply has not moved for the longest time. Two of the longest messages always
    /// have room.
    pub held_bytes_max: usize,
    /// How long the rest of a message that has begun may take, for each MiB of it. Then its connection ends. Clients must
    /// take replies as quickly.
    pub message_time: Option<Duration>,
    /// Messages of GIOP 1.2 that are longer are sent in fragments of so many bytes; `None`: whole. At least 32.
    pub fragment_bytes: Option<usize>,
    /// Whether servers may call objects of this ORB over the connections on which it calls them (bidirectional GIOP). It
    /// must listen, so that its objects have addresses; that these can be reached is not needed.
    pub offer_bidirectional: bool,
    /// Whether objects of clients that offer it are called over their connections. Such a client gets all calls for the
    /// addresses that it names: accept it only where clients are trusted.
    pub accept_bidirectional: bool,
    /// How long a call may take, connecting and forwarding included.
    pub timeout: Option<Duration>,
    /// Connections of clients at most. Further ones are closed at once.
    pub connections_max: usize,
    /// Which threads read requests and call servants.
    pub concurrency: Concurrency,
    /// How long a request waits at most while the manager of its object adapter holds requests. Then it is
    /// refused with `TRANSIENT`.
    pub hold_time: Duration,
}

/// Which threads of a server read requests and call servants.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Concurrency {
    /// A thread for each connection. The fastest for few clients. A client's requests are served one by one.
    #[default]
    ThreadPerConnection,
    /// One thread for all connections, which calls the servants. An idle connection costs a few KiB. While a
    /// servant waits for the reply of a call, other requests are served; nothing else that a servant waits for is
    /// known to the ORB, so it should not wait.
    Reactive,
    /// One thread reads all connections; others, as many as configured, call the servants.
    Pool(Pool),
}

/// Threads that call servants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pool {
    /// How many.
    pub threads: NonZeroUsize,
    /// Requests at most that wait while all threads serve. Further ones are refused with `TRANSIENT`.
    pub waiting_max: usize,
    /// How long a request waits for a thread at most. Then it is refused with `TRANSIENT`: so threads that wait
    /// for requests which wait for them go on.
    pub wait_max: Duration,
}

impl Pool {
    /// So many threads, with room for as many requests as a thousand of them serve, for a second.
    pub fn of(threads: NonZeroUsize) -> Self {
        Self { threads, waiting_max: threads.get().saturating_mul(1_000), wait_max: Duration::from_secs(1) }
    }
}

impl Default for Options {
    fn default() -> Self {
        Self {
            listen: Vec::new(),
            published: Vec::new(),
            message_bytes_max: MESSAGE_BYTES_MAX,
            held_bytes_max: HELD_BYTES_MAX,
            message_time: Some(MESSAGE_TIME),
            fragment_bytes: None,
            offer_bidirectional: false,
            accept_bidirectional: false,
            timeout: None,
            connections_max: CONNECTIONS_MAX,
            concurrency: Concurrency::default(),
            hold_time: HOLD_TIME,
        }
    }
}

impl Options {
    /// Listens at this endpoint.
    pub fn listening(endpoint: Endpoint) -> Self {
        Self { listen: vec![endpoint], ..Self::default() }
    }
}
