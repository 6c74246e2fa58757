//! Limits against bad input, and defaults of what an ORB keeps.

use std::time::Duration;

/// Bytes of a message, unless configured.
pub const MESSAGE_BYTES_MAX: usize = 64 << 20;

/// Bytes of a buffer that an idle connection keeps.
pub const IDLE_BUFFER_BYTES: usize = 2 << 10;

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

/// How long a request waits while its object adapter's manager holds requests: then it is refused, and may be
/// repeated.
pub const HOLD_TIME: Duration = Duration::from_secs(30);

/// How long a server that could not accept a connection waits before it tries again: descriptors may be used up.
pub const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Requests that a bidirectional connection serves at the same time. More are refused with `TRANSIENT`.
pub const DUPLEX_REQUESTS_MAX: usize = 64;

/// Addresses at which a client says that it can be called over its connection. More are ignored.
pub const LISTEN_POINTS_MAX: usize = 16;

/// How often one call follows a forwarding reference.
pub const FORWARDS_MAX: usize = 10;

/// Connections of blocking calls to one server at the same time. More callers wait.
pub const CONNECTIONS_PER_SERVER: usize = 5;

/// Connections that a server has at the same time, unless configured.
pub const CONNECTIONS_MAX: usize = 20_000;

/// How long a closing ORB waits for a peer to take its last message.
pub const GOODBYE: Duration = Duration::from_secs(1);

/// Contexts of a naming service.
pub const NAMING_CONTEXTS_MAX: usize = 10_000;

/// Bindings of a naming service.
pub const NAMING_BINDINGS_MAX: usize = 100_000;
