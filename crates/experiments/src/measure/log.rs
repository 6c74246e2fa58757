//! The logs of the two ends of a stream, message by message.

use punctual_analysis::Instant;

/// What happened to one message at the sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sent {
    /// Its number.
    pub sequence: u64,
    /// t: when it was offered.
    pub sent: Instant,
    /// l: its logical arrival; t if the stream has no contract.
    pub logical: Instant,
    /// Length, the stamp included.
    pub bytes: u32,
    /// Whether it was taken; if not, it was policed or met a full queue, and is not sent.
    pub taken: bool,
    /// Whether its contract permits it now; true if the stream has none.
    pub conforms: bool,
}

/// All messages of a sender, in order.
pub type SendLog = Vec<Sent>;

/// One message at the receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// Its number.
    pub sequence: u64,
    /// When the application had it.
    pub delivered: Instant,
    /// Length, the stamp included.
    pub bytes: u32,
    /// Whether it is the message that was sent, byte for byte.
    pub intact: bool,
}

/// All messages of a receiver, in the order of delivery.
pub type ReceiveLog = Vec<Received>;
