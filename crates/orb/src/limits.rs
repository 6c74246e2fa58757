//! Limits against bad input, and defaults of what an ORB keeps.

use std::time::Duration;

/// Bytes of a message, unless configured.
pub const MESSAGE_BYTES_MAX: usize = 64 << 20;

/// Bytes of a buffer that an idle connection keeps.
pub const IDLE_BUFFER_BYTES: usize = 2 << 10;

/// Bytes that are reserved for a message before any of them are there.
pub const BYTES_AHEAD_MAX: usize = 1 << 20;

/// How often one call follows a forwarding reference.
pub const FORWARDS_MAX: usize = 10;

/// Connections of blocking calls to one server at the same time. More callers wait.
pub const CONNECTIONS_PER_SERVER: usize = 5;

/// Connections that a server has at the same time, unless configured.
pub const CONNECTIONS_MAX: usize = 20_000;

/// Requests that wait for a thread of a pool, unless configured.
pub const POOL_QUEUE_MAX: usize = 1_024;

/// How long a closing ORB waits for a peer to take its last message.
pub const GOODBYE: Duration = Duration::from_secs(1);

/// Contexts of a naming service.
pub const NAMING_CONTEXTS_MAX: usize = 10_000;

/// Bindings of a naming service.
pub const NAMING_BINDINGS_MAX: usize = 100_000;
