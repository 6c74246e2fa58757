//! The errors of this crate: variants for a program to match, and messages that help a person to act.
//!
//! Each error is one line that includes its cause. Therefore no error has a `source`, which would repeat the
//! cause.

use std::io;
use std::path::{Path, PathBuf};

use punctual_analysis::{Contract, RefusalReason};
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

/// Why there is no endsystem.
#[derive(Debug, Error)]
pub enum ConnectError {
    /// No daemon listens at the socket.
    #[error("no daemon at {}: {cause}; start punctuald, or set PUNCTUAL_SOCKET to its socket", path.display())]
    NoDaemon {
        /// The socket.
        path: PathBuf,
        /// Error of the system.
        cause: io::Error,
    },
    /// This user may not use the socket, or not enter a directory on the way to it.
    #[error(
        "no permission to use the daemon's socket {}: {cause}; run this as a user with access, or set \
         socket_mode in [daemon] of its configuration",
        path.display()
    )]
    NoPermission {
        /// The socket.
        path: PathBuf,
        /// Error of the system.
        cause: io::Error,
    },
    /// The daemon refused.
    #[error("the daemon refused this program: {0}")]
    Denied(Error),
    /// The daemon took the connection and does not answer.
    #[error(
        "the daemon does not answer: if it is stopped (state T in 'ps -C punctuald'), continue it with 'kill -CONT'; \
         otherwise restart it"
    )]
    Silent,
    /// The system returned an error.
    #[error("cannot start the client: {0}")]
    System(io::Error),
    /// The engine inside this process could not be started.
    #[cfg(feature = "embedded")]
    #[error("cannot start the embedded host: {0}")]
    Host(HostError),
}

impl ConnectError {
    /// Why the socket at `path` cannot be connected to.
    pub(crate) fn dialling(path: &Path, cause: io::Error) -> Self {
        let path = path.into();
        match cause.kind() {
            io::ErrorKind::PermissionDenied => Self::NoPermission { path, cause },
            io::ErrorKind::WouldBlock => Self::Silent,
            _ => Self::NoDaemon { path, cause },
        }
    }
}

/// A request that failed.
#[derive(Debug, Error)]
pub enum Error {
    /// The text is not `port@host`, or not a name.
    #[error(transparent)]
    Name(#[from] NameError),
    /// The request cannot even be tried: unknown host, name taken, contract out of range, ...
    #[error("{0}")]
    Request(RequestError),
    /// The daemon refused for a local reason: quota, memory, shutting down.
    #[error("{0}")]
    Daemon(ApiError),
    /// The message ring that came with the answer cannot be used.
    #[error(transparent)]
    Ring(#[from] RingError),
    /// The daemon is gone.
    #[error("the daemon is gone: connect again when it is back")]
    Disconnected,
    /// The answer does not fit the request.
    #[error(
        "the answer of the daemon does not match the request: install the same release of daemon and client"
    )]
    Unexpected,
    /// The request could not be sent.
    #[error("cannot send the request: {0}")]
    Socket(io::Error),
    /// A handler is to run on the engine's thread, and the listener has not declared how long it may take.
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

/// Why there is no channel.
#[derive(Debug, Error)]
pub enum OpenError {
    /// The network or the receiver refused.
    #[error("refused{}", describe(refusal, wanted))]
    Refused {
        /// The hop that refused, its reason, and what it could offer instead.
        refusal: ChannelRefusal,
        /// The requested contract.
        wanted: Box<Contract>,
    },
    /// The request failed for another reason than a refusal.
    #[error(transparent)]
    Failed(#[from] Error),
}

impl OpenError {
    /// Converts the daemon's error reply to a request for the contract `wanted`.
    pub(crate) fn answered(error: ApiError, wanted: &Contract) -> Self {
        match error {
            ApiError::Refused(refusal) => Self::refused(refusal, wanted),
            other => Self::Failed(other.into()),
        }
    }

    pub(crate) fn refused(refusal: ChannelRefusal, wanted: &Contract) -> Self {
        Self::Refused { refusal, wanted: Box::new(*wanted) }
    }
}

/// Describes a refusal. If the deadline is the reason, first the requested deadline and the one that the
/// whole route needs. Then the hop and its offer.
fn describe(refusal: &ChannelRefusal, wanted: &Contract) -> String {
    let by = format!("{}by {refusal}", too_little_time(refusal, wanted));
    match &refusal.offer {
        Some(offer) => format!(
            "{by}; it could offer {} B at {}, burst {}, within {}",
            offer.message_bytes_max,
            offer.rate_max.at_most(),
            offer.burst_messages_max,
            offer.deadline.at_least(),
        ),
        None => match refusal.cause {
            RefuseCause::Unreachable(_) => {
                format!(
                    "{by}: 'punctual status' on both shows whether punctuald runs there and the link is alive"
                )
            }
            _ => by,
        },
    }
}

/// Describes a deadline that is too short. A hop reports what is left of the deadline at that hop, but the
/// caller only has the whole deadline: so this puts the whole deadline first. One space if time is not the
/// reason.
fn too_little_time(refusal: &ChannelRefusal, wanted: &Contract) -> String {
    let wants_time = match &refusal.cause {
        RefuseCause::Deadline { .. } => true,
        RefuseCause::Stage { refusal, .. } => matches!(refusal.reason, RefusalReason::Bound { .. }),
        _ => false,
    };
    if !wants_time {
        return " ".into();
    }
    let asked = format!(": a deadline of {} is too short", wanted.deadline);
    let slower = refusal.offer.filter(|offer| offer.deadline > wanted.deadline);
    match slower {
        Some(offer) => {
            format!("{asked}, the whole route needs {}; first refused ", offer.deadline.at_least())
        }
        None => format!("{asked}; first refused "),
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
    #[error("timed out: the channel accepts no more than its contract's rate")]
    TimedOut,
    /// Longer than the contract.
    #[error("message of {bytes} B is longer than the contract's {bytes_max} B")]
    TooLong {
        /// Length of the message in bytes.
        bytes: usize,
        /// Longest message that the contract allows, in bytes.
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
    /// The system returned an error.
    #[error("cannot wait for the channel: {0}")]
    System(io::Error),
}

/// A message that was not received.
#[derive(Debug, Error)]
pub enum RecvError {
    /// No message waits. The receiver's descriptor becomes readable when one does.
    #[error("no message waits")]
    WouldBlock,
    /// The receive timeout passed.
    #[error("timed out: no message came")]
    TimedOut,
    /// The buffer is too short. The message stays in the ring.
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
    /// The system returned an error.
    #[error("cannot wait for the channel: {0}")]
    System(io::Error),
}

/// Formats an error as one line of plain text: the error, and those of its causes that its text does not
/// contain already.
pub fn one_line(error: &(dyn std::error::Error + 'static)) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    let line = causes.fold(error.to_string(), |line, cause| {
        let cause = cause.to_string();
        if line.contains(&cause) { line } else { format!("{line}: {cause}") }
    });
    harmless(&line).into_owned()
}

/// The value that programs of this project print under the key `error` on standard output if JSON is wanted,
/// in addition to the line on standard error: the same line and the exit code.
pub fn failure(line: &str, exit_code: u8) -> serde_json::Value {
    serde_json::json!({ "message": line, "exit_code": exit_code })
}

/// Describes why a channel ended. `None`: the daemon has given no reason.
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
    use punctual_analysis::{Nanos, Rate, Refusal};
    use punctual_proto::api::StageKind;
    use punctual_proto::ids::NodeId;

    use super::*;

    #[derive(Debug, Error)]
    #[error("{what}")]
    struct Nested {
        what: &'static str,
        #[source]
        cause: Option<Box<Nested>>,
    }

    #[test]
    fn a_cause_is_printed_once() {
        let nested = |what, cause: Option<Nested>| Nested { what, cause: cause.map(Box::new) };
        let printed = nested("cannot start: no memory", Some(nested("no memory", None)));
        assert_eq!(one_line(&printed), "cannot start: no memory");
        let untold = nested("cannot start", Some(nested("no rings", Some(nested("no memory", None)))));
        assert_eq!(one_line(&untold), "cannot start: no rings: no memory");
    }

    #[test]
    fn no_permission_is_not_no_daemon() {
        let printed = |kind| ConnectError::dialling(Path::new("/run/s"), io::Error::from(kind)).to_string();
        let denied = printed(io::ErrorKind::PermissionDenied);
        assert!(denied.starts_with("no permission to use the daemon's socket /run/s: "), "{denied}");
        assert!(denied.contains("socket_mode"), "{denied}");
        for kind in [io::ErrorKind::NotFound, io::ErrorKind::ConnectionRefused] {
            assert!(printed(kind).starts_with("no daemon at /run/s: "), "{}", printed(kind));
        }
    }

    fn contract(deadline: Nanos) -> Contract {
        let rate = Rate::per_second(25).expect("a rate");
        Contract::new(1_000, rate, 1, deadline).expect("a contract")
    }

    fn by_stage(reason: RefusalReason, offer: Option<Contract>) -> ChannelRefusal {
        let refusal = Refusal { reason, bound_possible: None, period_possible: None };
        let cause = RefuseCause::Stage { kind: StageKind::SourceCpu, refusal };
        ChannelRefusal { node: NodeId(1), cause, offer, stages: Vec::new(), hosts: Vec::new() }
    }

    #[test]
    fn a_refused_deadline_is_shown_with_the_need_of_the_route_and_then_the_hop() {
        let wanted = contract(Nanos::from_micros(10));
        let bound = RefusalReason::Bound { possible: Nanos::from_micros(200), limit: Nanos::from_micros(9) };
        let offer = Some(contract(Nanos(2_249_600)));
        assert_eq!(
            OpenError::refused(by_stage(bound, offer), &wanted).to_string(),
            "refused: a deadline of 10.0 us is too short, the whole route needs 2249.6 us; first refused by node 1: source \
             CPU: it needs 200.0 us at least, and 9000 ns of the deadline are left for it; it could offer 1000 B at 25/s, \
             burst 1, within 2249.6 us"
        );
        let printed = OpenError::refused(by_stage(bound, None), &wanted).to_string();
        assert!(
            printed.starts_with("refused: a deadline of 10.0 us is too short; first refused by node 1: "),
            "{printed}"
        );
        // A refusal for another reason does not mention the deadline.
        let full = RefusalReason::Utilisation { wanted_ppm: 1_333_000, limit_ppm: 950_000 };
        let printed = OpenError::refused(by_stage(full, offer), &wanted).to_string();
        assert!(
            printed.starts_with("refused by node 1: source CPU: 133.3 % of the stage would be reserved"),
            "{printed}"
        );
    }
}
