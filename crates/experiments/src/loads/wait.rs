//! How the ends of round trips wait.

use punctual::Nanos;
use serde::{Deserialize, Serialize};

/// How an end of a round trip waits for its message. The variants for sockets apply to bare drivers too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Wait {
    /// Sleeps in the kernel.
    #[default]
    Block,
    /// Sockets: polls for 50 us, then sleeps: what `SO_BUSY_POLL` does.
    SpinThenBlock,
    /// Sockets: polls for [`SPIN`], then sleeps.
    Spin,
    /// Servers of channels: without a thread, because the processor calls the handler.
    Direct,
    /// Clients of channels: does the engine's work until the message is there.
    Lead,
}

/// How long a spinning end, or a processor, polls before it sleeps: longer than a round trip. An end without
/// calls does not take the CPU from another world's.
pub const SPIN: Nanos = Nanos::from_millis(1);
