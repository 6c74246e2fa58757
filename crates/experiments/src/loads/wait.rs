//! How the ends of round trips wait.

use punctual::Nanos;
use serde::{Deserialize, Serialize};

/// How an end of a round trip waits for its message. What is said of sockets holds of bare drivers too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Wait {
    /// Sleeps in the kernel.
    #[default]
    Block,
    /// Sockets: looks for 50 us, then sleeps: what `SO_BUSY_POLL` does.
    SpinThenBlock,
    /// Sockets: looks for [`SPIN`], then sleeps.
    Spin,
    /// Servers of channels: no thread at all, the processor calls the handler.
    Direct,
    /// Clients of channels: does the engine's work until the message is there.
    Lead,
}

/// How long those look who spin, processors too, before they sleep: longer than a round trip. One that nobody calls does
/// not take the CPU from another world's.
pub const SPIN: Nanos = Nanos::from_millis(1);
