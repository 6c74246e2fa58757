//! Limits against bad input, and defaults of what an ORB keeps.

use std::time::Duration;

/// Bytes of a message, unless configured.
pub const MESSAGE_BYTES_MAX: usize = 64 << 20;

/// Bytes of a buffer that an idle connection keeps.
pub const IDLE_BUFFER_BYTES: usize = 1 << 10;

/// Bytes behind a request that are read while it is served, at least: there may be a message that cancels it.
pub const READ_AHEAD_BYTES: usize = IDLE_BUFFER_BYTES / 2;

/// Bytes of a buffer, of requests or of replies, that a connection with a thread gives back when its client says nothing for
/// a while.
pub const LARGE_BUFFER_BYTES: usize = 64 << 10;

/// How long it keeps such a buffer.
pub const LARGE_BUFFER_TIME: Duration = Duration::from_secs(1);

/// Bytes of a reply whose memory a thread keeps that serves many clients.
pub const REPLY_BYTES_KEPT: usize = 64 << 10;

/// Bytes that are reserved for a message before any of them are there.
pub const BYTES_AHEAD_MAX: usize = 16 << 10;

/// How long a thread waits, so often at most, until a connection that was ended for its memory has freed it.
pub const ENDED_WAIT: Duration = Duration::from_millis(1);

/// See [`ENDED_WAIT`].
pub const ENDED_WAITS_MAX: u32 = 200;

/// Bytes of messages that all clients of a server may have sent and that are not served yet, unless configured.
pub const HELD_BYTES_MAX: usize = 256 << 20;

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

/// Requests that wait for the application's main thread. More are refused with `TRANSIENT`.
pub const MAIN_THREAD_REQUESTS_MAX: usize = 1_000;

/// Threads of a process that may add objects or adapters at the same time. Each table has a pointer for each.
pub const TABLE_THREADS_MAX: usize = 32_768;

/// Threads of a process that serve clients: fewer, so that applications can have some that add objects.
pub const SERVING_THREADS_MAX: usize = 28_000;

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

/// Bytes of a part of a name that is bound: its identifier and its kind together. A longer one is no valid name.
pub const NAMING_PART_BYTES_MAX: usize = 1_024;

/// Bytes of a reference that a naming service keeps.
pub const NAMING_REFERENCE_BYTES_MAX: usize = 16 << 10;

/// Bytes of memory of all contexts and bindings of a naming service.
pub const NAMING_BYTES_MAX: usize = 64 << 20;

/// Bytes of memory that are counted for a binding beside its name and its reference: places in tables, and what the
/// allocator adds to each of its pieces.
pub const NAMING_BINDING_BYTES: usize = 256;

/// Bytes of memory that are counted for a context: its object and its key, too.
pub const NAMING_CONTEXT_BYTES: usize = 1_024;

/// Bytes of the bindings in one answer to `list` or `next_n`, the bytes counted for each included. The iterator has the rest.
pub const NAMING_LIST_BYTES_MAX: usize = 1 << 20;

/// How long a context that no name leads to, but that has bindings, is kept when there is no room for a new one. An
/// empty one is not.
pub const NAMING_CONTEXT_IDLE: Duration = Duration::from_secs(600);

/// Lists of bindings whose rest a naming service keeps for its clients. The one that is idle for the longest
/// time gives way to a new one.
pub const NAMING_ITERATORS_MAX: usize = 1_000;

/// How long a naming service keeps the rest of a list that nobody asks for, once others are asked for.
pub const NAMING_ITERATOR_IDLE: Duration = Duration::from_secs(600);

/// Connections that wait to be accepted. The kernel's own limit, `net.core.somaxconn`, may be lower.
pub const LISTEN_BACKLOG: i32 = 4_096;

/// How long the message error that ends a connection waits for a call that is being sent.
pub const LAST_MESSAGE_WITHIN: Duration = Duration::from_millis(100);
