//! What can go wrong, for a program to tell apart and for a person to act on.
//!
//! Each error is one line that holds its cause; so none of them has a `source` that would repeat it.

use std::io;
use std::path::PathBuf;

#[cfg(feature = "embedded")]
use punctual_engine::{CallError, LeadError};
#[cfg(feature = "embedded")]
use punctual_host::HostError;
use punctual_ipc::api::ApiError;
use punctual_ipc::ring::RingError;
use punctual_proto::api::{ChannelRefusal, CloseReason, RefuseCause, RequestError};
use punctual_proto::ids::NameError;
use punctual_proto::text::harmless;
use thiserror::Error;

/// No endsystem.
#[derive(Debug, Error)]
pub enum ConnectError {
    /// Nobody listens at the socket.
    #[error("no daemon at {}: {cause}; start punctuald, or set PUNCTUAL_SOCKET to its socket", path.display())]
    NoDaemon {
        /// The socket.
        path: PathBuf,
        /// What the system said.
        cause: io::Error,
    },
    /// The daemon said no.
    #[error("the daemon does not let this program in: {0}")]
    Denied(Error),
    /// The system said no.
    #[error("cannot start the client: {0}")]
    System(io::Error),
    /// The engine inside this process could not be started.
    #[cfg(feature = "embedded")]
    #[error("cannot start the embedded host: {0}")]
    Host(HostError),
}

/// A request that failed.
#[derive(Debug, Error)]
pub enum Error {
    /// Not `port@host`, or not a name.
    #[error(transparent)]
    Name(#[from] NameError),
    /// It cannot even be tried: unknown host, name taken, contract out of range, ...
    #[error("{0}")]
    Request(RequestError),
    /// The daemon said no for a reason of its own: quota, memory, shutting down.
    #[error("{0}")]
    Daemon(ApiError),
    /// The message ring that came with the answer cannot be used.
    #[error(transparent)]
    Ring(#[from] RingError),
    /// The daemon is gone.
    #[error("the daemon is gone: connect again when it is back")]
    Disconnected,
    /// The answer does not fit the request.
    #[error("the daemon answered something else: daemon and client are of different versions")]
    Unexpected,
    /// The request could not be sent.
    #[error("cannot send the request: {0}")]
    Socket(io::Error),
    /// A handler is to run on the engine's thread, and nobody has said how long it may take.
    #[error("a handler in an embedded endsystem needs a declared time: listen with listen_direct")]
    HandlerTime,
    /// Only an embedded engine can be led by an application's thread.
    #[error("only the engine of an embedded endsystem can be led: a daemon's is in another process")]
    NotEmbedded,
    /// The engine cannot be led by this thread.
    #[cfg(feature = "embedded")]
    #[error(transparent)]
    Lead(#[from] LeadError),
    /// The thread would wait for itself.
    #[error(
        "this thread does an engine's work (it leads, or runs a handler): open, listen, accept, close and ask for states \
         from another one"
    )]
    OnProcessor,
}

/// The calling thread would wait for itself.
pub(crate) struct OnProcessor;

impl From<OnProcessor> for Error {
    fn from(_: OnProcessor) -> Self {
        Self::OnProcessor
    }
}

impl From<OnProcessor> for SendError {
    fn from(_: OnProcessor) -> Self {
        Self::OnProcessor
    }
}

impl From<OnProcessor> for RecvError {
    fn from(_: OnProcessor) -> Self {
        Self::OnProcessor
    }
}

#[cfg(feature = "embedded")]
impl From<CallError> for Error {
    fn from(error: CallError) -> Self {
        match error {
            CallError::Gone(_) => Self::Disconnected,
            CallError::OnProcessor => Self::OnProcessor,
        }
    }
}

impl From<ApiError> for Error {
    fn from(error: ApiError) -> Self {
        match error {
            ApiError::Request(request) => Self::Request(request),
            other => Self::Daemon(other),
        }
    }
}

/// No channel.
#[derive(Debug, Error)]
pub enum OpenError {
    /// The network or the receiver said no: which hop, why, and what it could offer instead.
    #[error("refused by {}", describe(.0))]
    Refused(ChannelRefusal),
    /// It did not come to that.
    #[error(transparent)]
    Failed(#[from] Error),
}

fn describe(refusal: &ChannelRefusal) -> String {
    match &refusal.offer {
        Some(offer) => format!(
            "{refusal}; it could offer {} B at {}, burst {}, within {}",
            offer.message_bytes_max,
            offer.rate_max.at_most(),
            offer.burst_messages_max,
            offer.deadline.at_least(),
        ),
        None => match refusal.cause {
            RefuseCause::Unreachable(_) => {
                format!(
                    "{refusal}: 'punctual status' on both shows whether punctuald runs there and the link is alive"
                )
            }
            _ => refusal.to_string(),
        },
    }
}

impl From<ApiError> for OpenError {
    fn from(error: ApiError) -> Self {
        match error {
            ApiError::Refused(refusal) => Self::Refused(refusal),
            other => Self::Failed(other.into()),
        }
    }
}

impl From<RingError> for OpenError {
    fn from(error: RingError) -> Self {
        Self::Failed(error.into())
    }
}

impl From<NameError> for OpenError {
    fn from(error: NameError) -> Self {
        Self::Failed(error.into())
    }
}

/// A message that was not queued.
#[derive(Debug, Error)]
pub enum SendError {
    /// The ring is full; the channel's descriptor becomes readable when there is room.
    #[error("no room in the channel's queue: the contract's rate and burst are used up")]
    WouldBlock,
    /// The send timeout passed.
    #[error("timed out: the channel takes no more than its contract's rate")]
    TimedOut,
    /// Longer than the contract.
    #[error("message of {bytes} B is longer than the contract's {bytes_max} B")]
    TooLong {
        /// Its length.
        bytes: usize,
        /// What the contract allows.
        bytes_max: u32,
    },
    /// The channel has ended.
    #[error("the channel is closed ({})", reason_text(*.0))]
    Closed(Option<CloseReason>),
    /// The thread would wait for itself.
    #[error(
        "it is not sent yet, and this thread, which does an engine's work, cannot wait for that: use Lead::send, \
         Reply::send or try_send"
    )]
    OnProcessor,
    /// The system said no.
    #[error("cannot wait for the channel: {0}")]
    System(io::Error),
}

/// A message that was not received.
#[derive(Debug, Error)]
pub enum RecvError {
    /// None waits; the receiver's descriptor becomes readable when one does.
    #[error("no message waits")]
    WouldBlock,
    /// The receive timeout passed.
    #[error("timed out: no message came")]
    TimedOut,
    /// The buffer is too short. The message stays where it is.
    #[error("message of {bytes} B does not fit the buffer of {buffer_bytes} B: give it the contract's size")]
    BufferTooSmall {
        /// The message's length.
        bytes: u32,
        /// The buffer's.
        buffer_bytes: usize,
    },
    /// The channel has ended and all its messages are read.
    #[error("the channel is closed ({})", reason_text(*.0))]
    Closed(Option<CloseReason>),
    /// The thread would wait for itself.
    #[error(
        "no message waits, and this thread, which does an engine's work, cannot wait for one: receive with the receiver \
         that leads, or try_recv"
    )]
    OnProcessor,
    /// The system said no.
    #[error("cannot wait for the channel: {0}")]
    System(io::Error),
}

/// An error in one line: itself, and of its causes those that it does not say already; nothing in it but text.
pub fn one_line(error: &(dyn std::error::Error + 'static)) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    let line = causes.fold(error.to_string(), |line, cause| {
        let cause = cause.to_string();
        if line.contains(&cause) { line } else { format!("{line}: {cause}") }
    });
    harmless(&line).into_owned()
}

/// What programs of this project print under the key `error` on standard output where JSON is wanted, beside the line on
/// standard error: the same line and the exit code.
pub fn failure(line: &str, exit_code: u8) -> serde_json::Value {
    serde_json::json!({ "message": line, "exit_code": exit_code })
}

/// Why a channel ended, in words; `None`: its daemon has not said so.
pub fn reason_text(reason: Option<CloseReason>) -> &'static str {
    reason.map_or("the daemon is gone", CloseReason::text)
}

impl From<Error> for ConnectError {
    fn from(error: Error) -> Self {
        Self::Denied(error)
    }
}

impl From<io::Error> for ConnectError {
    fn from(error: io::Error) -> Self {
        Self::System(error)
    }
}

#[cfg(feature = "embedded")]
impl From<HostError> for ConnectError {
    fn from(error: HostError) -> Self {
        Self::Host(error)
    }
}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Self {
        Self::Socket(error)
    }
}

impl From<io::Error> for SendError {
    fn from(error: io::Error) -> Self {
        Self::System(error)
    }
}

impl From<io::Error> for RecvError {
    fn from(error: io::Error) -> Self {
        Self::System(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Error)]
    #[error("{what}")]
    struct Nested {
        what: &'static str,
        #[source]
        cause: Option<Box<Nested>>,
    }

    #[test]
    fn a_cause_is_said_once() {
        let nested = |what, cause: Option<Nested>| Nested { what, cause: cause.map(Box::new) };
        let told = nested("cannot start: no memory", Some(nested("no memory", None)));
        assert_eq!(one_line(&told), "cannot start: no memory");
        let untold = nested("cannot start", Some(nested("no rings", Some(nested("no memory", None)))));
        assert_eq!(one_line(&untold), "cannot start: no rings: no memory");
    }
}
