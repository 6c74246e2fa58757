//! Limits against bad input, and defaults of what an ORB keeps.

use std::time::Duration;

/// Bytes of a message, unless configured.
pub const MESSAGE_BYTES_MAX: usize = 64 << 20;

/// Bytes of a buffer that an idle connection keeps.
pub const IDLE_BUFFER_BYTES: usize = 1 << 10;

/// Bytes of a reply whose memory a thread keeps that serves many clients.
pub const REPLY_BYTES_KEPT: usize = 64 << 10;

/// Bytes that are reserved for a message before any of them are there.
pub const BYTES_AHEAD_MAX: usize = 1 << 20;

/// Messages of one connection that may be in pieces at once.
pub const PARTIAL_MAX: usize = 16;

/// How often a much smaller message must come before a connection gives memory back.
pub const SMALL_MESSAGES_MAX: u32 = 64;

/// How long the rest of a message that has begun may take, unless configured.
pub const MESSAGE_TIME: Duration = Duration::from_secs(30);

/// Bytes after which a long message has that time again.
pub const PROGRESS_BYTES: usize = 1 << 20;

/// How long a request waits while its object adapter's manager holds requests, unless configured: then it is
/// refused, and may be repeated.
pub const HOLD_TIME: Duration = Duration::from_secs(30);

/// How long a server that could not accept a connection waits before it tries again: descriptors may be used up.
pub const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Clients that a reactor accepts before it looks at those that are there.
pub const ACCEPTS_PER_TURN: usize = 64;

/// Events that a reactor takes at once.
pub const EVENTS_PER_TURN: usize = 64;

/// Messages of one connection that a reactor reads before it looks at others.
pub const MESSAGES_PER_TURN: usize = 16;

/// How deep a reactor without a pool serves requests within requests.
pub const NESTED_MAX: usize = 4;

/// Oneway requests to one server that wait to be sent.
pub const LATER_MAX: usize = 1_000;

/// Requests that a bidirectional connection serves at the same time. More are refused with `TRANSIENT`.
pub const DUPLEX_REQUESTS_MAX: usize = 64;

/// Addresses at which a client says that it can be called over its connection. More are ignored.
pub const LISTEN_POINTS_MAX: usize = 16;

/// How often one call follows a forwarding reference.
pub const FORWARDS_MAX: usize = 10;

/// Connections of blocking calls to one server at the same time. More callers wait.
pub const CONNECTIONS_PER_SERVER: usize = 5;

/// Connections of blocking calls to one server, those included that servants make: they do not wait for a
/// connection, because its caller may wait for them.
pub const CONNECTIONS_PER_SERVER_NESTED: usize = 64;

/// Servers that are remembered even if no reference names them any more.
pub const SERVERS_KEPT: usize = 64;

/// Connections that a server has at the same time, unless configured.
pub const CONNECTIONS_MAX: usize = 20_000;

/// How long a closing ORB waits for a peer to take its last message.
pub const GOODBYE: Duration = Duration::from_secs(1);

/// Contexts of a naming service.
pub const NAMING_CONTEXTS_MAX: usize = 10_000;

/// Bindings of a naming service.
pub const NAMING_BINDINGS_MAX: usize = 100_000;

/// Lists of bindings whose rest a naming service keeps for its clients. The one that is idle for the longest
/// time gives way to a new one.
pub const NAMING_ITERATORS_MAX: usize = 1_000;

/// How long a naming service keeps the rest of a list that nobody asks for, once others are asked for.
pub const NAMING_ITERATOR_IDLE: Duration = Duration::from_secs(600);

/// Connections that wait to be accepted. The kernel's own limit, `net.core.somaxconn`, may be lower.
pub const LISTEN_BACKLOG: i32 = 4_096;
