//! States of a connection, and what its calls answer.

/// States of RFC 9293 3.3.2, without LISTEN, which is a [`crate::Listener`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum State {
    SynSent,
    SynReceived,
    Established,
    FinWait1,
    FinWait2,
    CloseWait,
    Closing,
    LastAck,
    TimeWait,
    Closed,
}

/// Why a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Ended {
    /// Both ends closed it.
    #[error("both ends closed the connection")]
    Closed,
    /// The peer reset it.
    #[error("the peer reset the connection")]
    Reset,
    /// There is no listener at the peer's port.
    #[error("the peer refused the connection: it has no listener at that port")]
    Refused,
    /// The peer did not acknowledge within the user timeout.
    #[error("the peer did not answer in time")]
    TimedOut,
    /// The network reports that the peer is unreachable.
    #[error("the peer cannot be reached")]
    Unreachable,
    /// The program aborted it.
    #[error("the program aborted the connection")]
    Aborted,
}

/// Result for one segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    /// It was processed.
    Processed,
    /// It was dropped: old, forged or out of place. There may be a reply.
    Dropped,
    /// The connection is over: the segment belongs to no connection, or is a SYN that may open a new one (RFC
    /// 9293 3.10.7.4).
    ForNobody,
}

/// Why nothing can be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    /// This end closed its direction.
    #[error("this end closed the connection for sending")]
    Closed,
    /// The connection is over.
    #[error(transparent)]
    Ended(#[from] Ended),
}
