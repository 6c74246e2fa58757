//! The rings of a connection.

use punctual_ipc::ring::{InboxReader, OutboxWriter};

/// The program's ends of both rings.
pub(super) struct Rings {
    pub outbox: OutboxWriter,
    pub inbox: InboxReader,
}
