//! Sequence numbers of a connection as they are on the wire. The machine has numbers of its own; the
//! difference is known once it has made its SYN.

use crate::sequence::{before, later};

/// Initial and present numbers of both directions.
#[derive(Debug)]
pub(super) struct Numbers {
    iss: u32,
    irs: u32,
    offset: Option<u32>,
    enqueued: u64,
    consumed: u64,
    sent: u32,
    /// The program has closed its direction, and the machine is told when all bytes have left ([`Connection::close`](super::Connection)).
    close_waits: bool,
    edge: u32,
    shift: u8,
}

impl Numbers {
    pub(super) const fn new(iss: u32) -> Self {
        Self {
            iss,
            irs: 0,
            offset: None,
            enqueued: 0,
            consumed: 0,
            sent: iss,
            close_waits: false,
            edge: 0,
            shift: 0,
        }
    }

    /// Our initial sequence number.
    pub(super) const fn iss(&self) -> u32 {
        self.iss
    }

    /// The peer's SYN had the number `irs`. Our SYN announced `window` bytes behind it; from now on our windows are scaled by `shift`.
    pub(super) fn synchronize(&mut self, irs: u32, window: u16, shift: u8) {
        (self.irs, self.shift) = (irs, shift);
        self.edge = irs.wrapping_add(1).wrapping_add(u32::from(window));
    }

    /// Difference between the wire's and the machine's numbers; the first packet that the machine makes is
    /// its SYN.
    pub(super) fn offset(&mut self, machine_seq: u32) -> u32 {
        *self.offset.get_or_insert(self.iss.wrapping_sub(machine_seq))
    }

    /// The machine makes its SYN anew: with another number of its own, and the same one on the wire.
    pub(super) fn begin_again(&mut self) {
        self.offset = None;
    }

    /// The machine's number for `ack` of the wire.
    pub(super) fn to_machine(&self, ack: u32) -> u32 {
        ack.wrapping_sub(self.offset.unwrap_or(0))
    }

    pub(super) fn enqueue(&mut self, bytes: usize) {
        self.enqueued += bytes as u64;
    }

    pub(super) fn consume(&mut self, bytes: usize) {
        self.consumed += bytes as u64;
    }

    /// The number after all bytes that the program has sent.
    pub(super) fn enqueued_end(&self) -> u32 {
        self.iss.wrapping_add(1).wrapping_add(self.enqueued as u32)
    }

    /// The number of the next byte that the program reads.
    pub(super) fn read_end(&self) -> u32 {
        self.irs.wrapping_add(1).wrapping_add(self.consumed as u32)
    }

    /// Notes that a segment up to `end` was sent, with this acknowledgement and window field.
    pub(super) fn left(&mut self, end: u32, ack: Option<u32>, window: u16, is_syn: bool) {
        self.sent = later(self.sent, end);
        let shift = if is_syn { 0 } else { self.shift };
        if let Some(ack) = ack {
            self.edge = ack.wrapping_add(u32::from(window) << shift);
        }
    }

    /// Notes that data up to `end` was sent, with nothing new beside it.
    pub(super) fn sent_to(&mut self, end: u32) {
        self.sent = later(self.sent, end);
    }

    /// The wire's number for `seq` of the machine.
    pub(super) fn to_wire(&self, machine_seq: u32) -> u32 {
        machine_seq.wrapping_add(self.offset.unwrap_or(0))
    }

    /// End of all that was ever sent (SND.MAX).
    pub(super) const fn sent(&self) -> u32 {
        self.sent
    }

    /// Whether bytes that were taken have not left yet.
    pub(super) fn has_unsent(&self) -> bool {
        before(self.sent, self.enqueued_end())
    }

    /// Notes that a close of the program waits for its last byte to leave, or that the machine was told of it.
    pub(super) const fn set_close_waits(&mut self, close_waits: bool) {
        self.close_waits = close_waits;
    }

    /// Whether a close of the program waits.
    pub(super) const fn close_waits(&self) -> bool {
        self.close_waits
    }

    /// The scale of our windows.
    pub(super) const fn shift(&self) -> u8 {
        self.shift
    }

    /// End of the window that was announced to the peer.
    pub(super) const fn edge(&self) -> u32 {
        self.edge
    }

    /// The window field that announces the same edge again, for the next expected number `next`.
    pub(super) fn window(&self, next: u32) -> u16 {
        let room = later(self.edge, next).wrapping_sub(next);
        u16::try_from(room >> self.shift).unwrap_or(u16::MAX)
    }
}
