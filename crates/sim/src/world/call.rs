//! What applications ask of their host, executed when its processor runs.

use punctual_proto::api::RtuId;
use punctual_proto::ids::LinkId;

/// Requests of applications to a node, executed when its processor runs.
#[derive(Clone, Copy, Debug)]
pub(super) enum Call {
    /// Open the attempt's channel.
    Ask(usize),
    /// Consent to the attempt, or refuse it.
    Answer(usize),
    /// The attempt's source has sent messages.
    Doorbell(usize),
    /// Close one end of the attempt.
    Close { channel: usize, at_sink: bool },
    /// Request a channel that ends here, by index of the request.
    Request(usize),
    /// Refuse a receiver's request, by token.
    Decline(u64),
    /// Begin a best-effort transfer.
    StartFlood(usize),
    /// A best-effort transfer has put messages into its ring: ring its doorbell.
    FloodDoorbell(usize),
    /// End it.
    StopFlood(usize),
    /// PDUs have arrived for a program's handler.
    Prompt { id: RtuId, count: u64 },
    /// A program of a TCP connection asks something.
    Tcp(TcpCall),
    /// Measure the drain rate of a link.
    Measure(LinkId),
    /// Shut the node down.
    Shutdown,
}

/// What programs ask of their host's engine.
#[derive(Clone, Copy, Debug)]
pub(super) enum TcpCall {
    /// Begin a connection, by its plan.
    Connect(usize),
    /// Adopt connections that a listener has opened.
    Accept(u32),
    /// A program has used its rings: connection and end.
    Ready(usize, usize),
    /// The program closes its direction.
    Close(usize, usize),
    /// The program aborts the connection.
    Abort(usize, usize),
    /// The program is gone.
    Release(usize, usize),
    /// Join both channels of an end to a connection.
    Join(usize, usize),
    /// Let the connection have its channels' rings: its handlers are granted.
    Attach(usize, usize),
    /// A channel of the end is gone.
    Cut(usize, usize),
}
