//! Fast recovery past its first segment: the rule of RFC 6582 (NewReno) for partial acknowledgements. The machine
//! sends the oldest segment again after three duplicate acknowledgements and shrinks its window once; the first new
//! acknowledgement ends its recovery, so each further loss of the same window would cost a timeout.
//!
//! The machine stays the only one that decides when a loss has happened, how large the window is and when a timeout
//! is due. This module keeps a copy of the bytes to send, because the machine's cannot be read, and sends one
//! segment again for each partial acknowledgement. Where the peer acknowledges selectively, each duplicate that brings news
//! sends the next hole again (RFC 6675): such a duplicate is kept from the machine, which would send another segment for it.

mod reordering;

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use crate::limits::ACK_PARTS_MAX;
use crate::sacked::Sacked;
use crate::sequence::{at_or_after, before, earlier, later, within};
use reordering::Reordering;

/// Duplicate acknowledgements in a row at which the machine sends the oldest segment again (RFC 5681 3.2).
const REPEATS: u8 = 3;

/// An acknowledgement as the recovery sees it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Acknowledgement {
    /// Everything before this number has arrived.
    pub(crate) ack: u32,
    /// The window field.
    pub(crate) window: u16,
    /// Whether the segment carries no data and no control bit.
    pub(crate) is_bare: bool,
    /// Whether the peer acknowledges selectively.
    pub(crate) has_sack: bool,
    /// Whether the peer has room for a full segment.
    pub(crate) has_room: bool,
    /// The timestamp that it echoes.
    pub(crate) echo: Option<u32>,
}

/// Duplicates in a row that the machine has counted.
#[derive(Debug, Default)]
struct Duplicates {
    /// The window field of the last acknowledgement.
    window: u16,
    repeats: u8,
    /// Whether the machine has sent the oldest segment again for them.
    is_answered: bool,
}

impl Duplicates {
    /// Whether there are so many that the machine takes the oldest segment for lost.
    const fn show_loss(&self) -> bool {
        self.repeats >= REPEATS
    }
}

/// Bytes to send that are not acknowledged, and what of them is to be sent again.
#[derive(Debug)]
pub(crate) struct Recovery {
    bytes: VecDeque<u8>,
    start: u32,
    /// End of the bytes in flight.
    sent: u32,
    sacked: Sacked,
    /// Holes before this number were sent again in this recovery.
    filled: u32,
    longest_bytes: usize,
    reordering: Reordering,
    duplicates: Duplicates,
    until: Option<u32>,
    blocked_until: Option<u32>,
    /// First byte that is to be sent again, and the end of the hole, where it is known.
    resend: Option<(u32, Option<u32>)>,
    is_partial: bool,
    /// All that is in flight before `until` is lost: the path does not carry it.
    is_all_lost: bool,
    /// Segments of data that left again.
    resent: u64,
}

impl Recovery {
    /// Counts segments of data that left again.
    pub(crate) const fn count_resent(&mut self, segments: u64) {
        self.resent += segments;
    }

    /// Segments of data that left again.
    pub(crate) const fn resent(&self) -> u64 {
        self.resent
    }

    /// No byte is in flight yet; the first will have the number `start`. At most `send_bytes` are in flight.
    pub(crate) fn new(start: u32, send_bytes: usize) -> Self {
        Self {
            bytes: VecDeque::with_capacity(send_bytes),
            start,
            sent: start,
            sacked: Sacked::default(),
            filled: start,
            longest_bytes: 0,
            reordering: Reordering::default(),
            duplicates: Duplicates::default(),
            until: None,
            blocked_until: None,
            resend: None,
            is_partial: false,
            is_all_lost: false,
            resent: 0,
        }
    }

    /// Gives the memory back: nothing is sent any more.
    pub(crate) fn rest(&mut self) {
        self.bytes = VecDeque::new();
    }

    /// The program has written these bytes.
    pub(crate) fn enqueue(&mut self, bytes: &[u8]) {
        self.bytes.extend(bytes);
    }

    /// Bytes in flight.
    pub(crate) fn in_flight(&self) -> u32 {
        self.sent.wrapping_sub(self.start)
    }

    /// Bytes of the longest segment that has left.
    pub(crate) const fn longest_bytes(&self) -> usize {
        self.longest_bytes
    }

    /// Whether a loss is being repaired, by duplicates or since a timeout.
    pub(crate) const fn is_repairing(&self) -> bool {
        self.until.is_some() || self.blocked_until.is_some()
    }

    /// Whether the peer has bytes behind a hole.
    pub(crate) fn has_hole(&self) -> bool {
        !self.sacked.is_empty()
    }

    /// Whether selective acknowledgements show that the oldest segment is lost (RFC 6675 4, `IsLost`), of which the machine knows
    /// nothing: it counts neither duplicates that carry data nor those that change the window.
    pub(crate) fn shows_loss(&self) -> bool {
        let is_known = self.is_repairing() || self.duplicates.show_loss();
        let is_shown = self.has_hole() && self.reordering.shown() >= self.segments_that_show_loss();
        let hole = self.sacked.hole(self.start, self.bytes_that_show_loss());
        !is_known && (is_shown || hole.is_some_and(|(from, _)| from == self.start))
    }

    fn segments_that_show_loss(&self) -> u32 {
        self.reordering.segments(self.in_flight() / self.longest_bytes.max(1) as u32)
    }

    /// More bytes than these beyond a hole show that it is lost.
    fn bytes_that_show_loss(&self) -> u32 {
        (self.segments_that_show_loss() - 1) * self.longest_bytes as u32
    }

    /// The segment that the machine sent again left at this time of the clock of timestamps.
    pub(crate) fn began_at(&mut self, clock: u32) {
        self.reordering.begins_at(clock);
    }

    /// The oldest segment leaves once more, beside the machine.
    pub(crate) const fn sent_once_more(&mut self) {
        self.reordering.forget();
    }

    /// The machine is told of a loss by duplicate acknowledgements that the peer has not sent.
    pub(crate) const fn told_of_loss(&mut self) {
        (self.duplicates.repeats, self.duplicates.is_answered) = (REPEATS, false);
    }

    /// Copies `length` bytes at `seq` to `payload`; fewer if there are not so many.
    pub(crate) fn copy(&self, seq: u32, length: usize, payload: &mut Vec<u8>) {
        payload.clear();
        let at = (seq.wrapping_sub(self.start) as usize).min(self.bytes.len());
        payload.extend(self.bytes.range(at..(at + length).min(self.bytes.len())));
    }

    /// The machine sent `payload` at `seq`; before that the end of all that was sent was `was_sent`. Returns whether
    /// it sent the oldest byte again because of a timeout.
    pub(crate) fn left(&mut self, seq: u32, payload: &[u8], was_sent: u32) -> bool {
        let is_again = seq == self.start && before(seq, was_sent);
        let end = seq.wrapping_add(payload.len() as u32);
        let is_timeout = is_again && self.sent_again(was_sent, end);
        self.longest_bytes = self.longest_bytes.max(payload.len());
        self.sent = later(self.sent, end);
        is_timeout
    }

    /// The machine sent the oldest segment again, because of duplicate acknowledgements or of a timeout. After a
    /// timeout it sends everything again, so what the copies of that cause is no loss (RFC 6582 4). Returns whether
    /// it was a timeout.
    fn sent_again(&mut self, was_sent: u32, end: u32) -> bool {
        let is_fast = self.duplicates.show_loss() && self.until.is_none() && !self.duplicates.is_answered;
        if !is_fast {
            (self.until, self.blocked_until) = (None, Some(was_sent));
            self.sacked.clear();
        } else if self.blocked_until.is_none() {
            self.until = Some(was_sent);
            self.reordering.begins(self.start, end);
        }
        (self.resend, self.is_partial, self.filled) = (None, false, end);
        self.duplicates.is_answered |= is_fast;
        !is_fast
    }

    /// Handles an acknowledgement with selective ones in `blocks`; returns how many times the machine gets it. A duplicate after a
    /// partial one is kept from it: the third would begin another recovery for the same window. A duplicate in a recovery counts
    /// for each segment that it shows as arrived: the machine sends a new one for each (RFC 6582 3.2, step 3), and the peer, or a
    /// device on the path, may acknowledge many at once.
    pub(crate) fn acknowledged(&mut self, it: Acknowledgement, blocks: &[(u32, u32)]) -> u32 {
        let is_repeat =
            it.is_bare && it.ack == self.start && it.window == self.duplicates.window && self.in_flight() > 0;
        self.duplicates.window = it.window;
        let news_bytes = self.note(blocks);
        self.reordering.reported(it.ack, blocks);
        if is_repeat {
            return self.repeated(it.has_room, !blocks.is_empty(), news_bytes);
        }
        (self.duplicates.repeats, self.duplicates.is_answered) = (0, false);
        if before(self.start, it.ack) {
            self.reordering.advances(it.echo);
            self.advance(it.ack, it.has_sack);
        }
        1
    }

    /// Handles a duplicate that shows so many more bytes as arrived; returns how many times the machine gets it.
    fn repeated(&mut self, has_room: bool, has_blocks: bool, news_bytes: u32) -> u32 {
        if has_blocks && !self.is_repairing() {
            // The machine would count three; here the path's order counts, too.
            if news_bytes > 0 {
                self.reordering.shows_more();
            }
            return 0;
        }
        let is_recovering = self.until.is_some();
        let fills = news_bytes > 0 && is_recovering && self.fill_next();
        // For the third the machine would send a full segment: without room for it, bytes beyond the window would count as sent.
        if fills || self.is_partial || !has_room {
            return 0;
        }
        self.duplicates.repeats = self.duplicates.repeats.saturating_add(1);
        let segments = news_bytes / self.longest_bytes.max(1) as u32;
        if is_recovering { segments.clamp(1, ACK_PARTS_MAX) } else { 1 }
    }

    /// Notes what the peer has beyond the oldest hole; how many bytes of it are news. A block outside of what is in flight is none
    /// of this connection's, or a duplicate (RFC 2883).
    fn note(&mut self, blocks: &[(u32, u32)]) -> u32 {
        let is_in_flight =
            |(from, to): &&(u32, u32)| before(self.start, *from) && at_or_after(self.sent, *to);
        blocks.iter().filter(is_in_flight).map(|(from, to)| self.sacked.add(*from, *to)).sum()
    }

    /// Has the next hole sent again, if one counts as lost; whether there is one.
    fn fill_next(&mut self) -> bool {
        let Some(until) = self.until.filter(|_| self.resend.is_none()) else { return self.resend.is_some() };
        let hole = self.sacked.hole(later(self.start, self.filled), self.bytes_that_show_loss());
        let hole = hole.filter(|(from, _)| before(*from, until));
        self.resend = hole.map(|(from, to)| (from, Some(to)));
        hole.is_some()
    }

    fn advance(&mut self, ack: u32, has_sack: bool) {
        let acked = ack.wrapping_sub(self.start) as usize;
        self.bytes.drain(..acked.min(self.bytes.len()));
        (self.start, self.sent) = (ack, later(self.sent, ack));
        self.filled = later(self.filled, ack);
        let was_filled = self.filled != ack;
        self.sacked.advance(ack);
        self.blocked_until = self.blocked_until.filter(|until| before(ack, *until));
        self.until = self.until.filter(|until| before(ack, *until));
        self.is_partial = self.until.is_some();
        self.resend = None;
        self.is_all_lost &= self.until.is_some();
        // What was sent again in this recovery may be on its way: then the next hole is sent, and else the oldest byte. A peer that
        // acknowledges selectively and has nothing beyond it may get it a moment later: then nothing shows a loss.
        let may_come = has_sack && !self.is_all_lost;
        let is_lost = if self.sacked.is_empty() { !may_come } else { !was_filled };
        if !self.fill_next() && is_lost {
            self.resend = self.until.map(|_| (ack, None));
        }
    }

    /// The path carries less than was sent: what is in flight before `until` is sent again, one segment for each
    /// acknowledgement. The loss shows no congestion (RFC 1191 6.5), so the machine does not see it.
    pub(crate) fn path_shrank(&mut self, until: u32) {
        (self.until, self.resend, self.is_partial) = (Some(until), Some((self.start, None)), true);
        self.is_all_lost = true;
        self.filled = self.start;
    }

    /// Whether a segment is to be sent again.
    pub(crate) fn is_due(&self) -> bool {
        self.resend.is_some() && self.in_flight() > 0
    }

    /// Takes the segment to send again, of at most `bytes_max` bytes and of no more than one that the machine has
    /// sent, which knows the peer's limit: its number; the bytes are in `payload`.
    pub(crate) fn take(&mut self, bytes_max: usize, payload: &mut Vec<u8>) -> Option<u32> {
        payload.clear();
        let (seq, hole_end) = self.resend.take()?;
        let end = self.until.map(|until| earlier(until, self.sent))?;
        let end = hole_end.map_or(end, |hole| earlier(hole, end));
        let length = (end.wrapping_sub(seq) as usize).min(bytes_max).min(self.longest_bytes);
        self.copy(seq, length, payload);
        let length = payload.len();
        self.filled = later(self.filled, seq.wrapping_add(length as u32));
        self.reordering.goes_on(self.filled);
        (length > 0 && within(seq, self.start, end)).then_some(seq)
    }
}

#[cfg(test)]
mod tests;
