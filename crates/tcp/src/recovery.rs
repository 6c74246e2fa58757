//! Fast recovery past its first segment: the rule of RFC 6582 (NewReno) for partial acknowledgements. The machine
//! sends the oldest segment again after three duplicate acknowledgements and shrinks its window once; the first new
//! acknowledgement ends its recovery, so each further loss of the same window would cost a timeout.
//!
//! The machine stays the only one that decides when a loss has happened, how large the window is and when a timeout
//! is due. This module keeps a copy of the bytes to send, because the machine's cannot be read, and sends one
//! segment again for each partial acknowledgement. Where the peer acknowledges selectively, each duplicate that brings news
//! sends the next hole again (RFC 6675): such a duplicate is kept from the machine, which would send another segment for it.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use crate::sacked::Sacked;
use crate::sequence::{at_or_after, before, earlier, later, within};

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
    /// End of the hole that is to be sent again.
    hole_end: Option<u32>,
    longest_bytes: usize,
    window: u16,
    repeats: u8,
    until: Option<u32>,
    blocked_until: Option<u32>,
    resend: Option<u32>,
    is_partial: bool,
    is_answered: bool,
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
            hole_end: None,
            longest_bytes: 0,
            window: 0,
            repeats: 0,
            until: None,
            blocked_until: None,
            resend: None,
            is_partial: false,
            is_answered: false,
            resent: 0,
        }
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

    /// The machine is told of a loss by duplicate acknowledgements that the peer has not sent.
    pub(crate) const fn told_of_loss(&mut self) {
        (self.repeats, self.is_answered) = (REPEATS, false);
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
        let is_fast = self.repeats >= REPEATS && self.until.is_none() && !self.is_answered;
        if !is_fast {
            (self.until, self.blocked_until) = (None, Some(was_sent));
            self.sacked.clear();
        } else if self.blocked_until.is_none() {
            self.until = Some(was_sent);
        }
        (self.resend, self.is_partial, self.filled) = (None, false, end);
        self.is_answered |= is_fast;
        !is_fast
    }

    /// Handles an acknowledgement with selective ones in `blocks`; returns whether the machine may see it. A duplicate after a
    /// partial one is kept from it: the third would begin another recovery for the same window.
    pub(crate) fn acknowledged(&mut self, it: Acknowledgement, blocks: &[(u32, u32)]) -> bool {
        let is_repeat =
            it.is_bare && it.ack == self.start && it.window == self.window && self.in_flight() > 0;
        self.window = it.window;
        let is_news = self.note(blocks);
        if is_repeat {
            self.repeats = self.repeats.saturating_add(1);
            let fills = is_news && self.until.is_some() && self.fill_next();
            return !self.is_partial && !fills;
        }
        (self.repeats, self.is_answered) = (0, false);
        if before(self.start, it.ack) {
            self.advance(it.ack);
        }
        true
    }

    /// Notes what the peer has beyond the oldest hole; whether any of it is news. A block outside of what is in flight is none
    /// of this connection's, or a duplicate (RFC 2883).
    fn note(&mut self, blocks: &[(u32, u32)]) -> bool {
        let mut is_news = false;
        for (from, to) in blocks {
            if before(self.start, *from) && at_or_after(self.sent, *to) {
                is_news |= self.sacked.add(*from, *to);
            }
        }
        is_news
    }

    /// Has the next hole sent again, if one counts as lost; whether there is one.
    fn fill_next(&mut self) -> bool {
        let Some(until) = self.until.filter(|_| self.resend.is_none()) else { return self.resend.is_some() };
        let enough = (usize::from(REPEATS - 1) * self.longest_bytes) as u32;
        let hole = self.sacked.hole(later(self.start, self.filled), enough);
        let hole = hole.filter(|(from, _)| before(*from, until));
        (self.resend, self.hole_end) = (hole.map(|(from, _)| from), hole.map(|(_, to)| to));
        hole.is_some()
    }

    fn advance(&mut self, ack: u32) {
        let acked = ack.wrapping_sub(self.start) as usize;
        self.bytes.drain(..acked.min(self.bytes.len()));
        (self.start, self.sent) = (ack, later(self.sent, ack));
        self.filled = later(self.filled, ack);
        let was_filled = self.filled != ack;
        self.sacked.advance(ack);
        self.blocked_until = self.blocked_until.filter(|until| before(ack, *until));
        self.until = self.until.filter(|until| before(ack, *until));
        self.is_partial = self.until.is_some();
        (self.resend, self.hole_end) = (None, None);
        // What was sent again in this recovery may be on its way: then the next hole is sent, and else the oldest byte.
        if !self.fill_next() && (self.sacked.is_empty() || !was_filled) {
            self.resend = self.until.map(|_| ack);
        }
    }

    /// The path carries less than was sent: what is in flight before `until` is sent again, one segment for each
    /// acknowledgement. The loss shows no congestion (RFC 1191 6.5), so the machine does not see it.
    pub(crate) fn path_shrank(&mut self, until: u32) {
        (self.until, self.resend, self.is_partial) = (Some(until), Some(self.start), true);
        (self.filled, self.hole_end) = (self.start, None);
    }

    /// Whether a segment is to be sent again.
    pub(crate) fn is_due(&self) -> bool {
        self.resend.is_some() && self.in_flight() > 0
    }

    /// Takes the segment to send again, of at most `bytes_max` bytes and of no more than one that the machine has
    /// sent, which knows the peer's limit: its number; the bytes are in `payload`.
    pub(crate) fn take(&mut self, bytes_max: usize, payload: &mut Vec<u8>) -> Option<u32> {
        payload.clear();
        let seq = self.resend.take()?;
        let end = self.until.map(|until| earlier(until, self.sent))?;
        let end = self.hole_end.take().map_or(end, |hole| earlier(hole, end));
        let length = (end.wrapping_sub(seq) as usize).min(bytes_max).min(self.longest_bytes);
        self.copy(seq, length, payload);
        let length = payload.len();
        self.filled = later(self.filled, seq.wrapping_add(length as u32));
        (length > 0 && within(seq, self.start, end)).then_some(seq)
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;

    const START: u32 = u32::MAX - 1_499;

    /// Four segments of 1,000 bytes in flight.
    fn flight() -> Recovery {
        let mut recovery = Recovery::new(START, 8_000);
        for segment in 0..4 {
            assert!(!send(&mut recovery, segment * 1_000, segment * 1_000), "sent for the first time");
        }
        recovery
    }

    /// The machine sends the 1,000 bytes at `at`; `sent` were sent so far.
    fn send(recovery: &mut Recovery, at: u32, sent: u32) -> bool {
        let payload = [(at / 1_000) as u8; 1_000];
        if START.wrapping_add(at) == recovery.start.wrapping_add(recovery.bytes.len() as u32) {
            recovery.enqueue(&payload);
        }
        recovery.left(START.wrapping_add(at), &payload, START.wrapping_add(sent))
    }

    fn acknowledge(recovery: &mut Recovery, at: u32) -> bool {
        let ack = START.wrapping_add(at);
        recovery.acknowledged(Acknowledgement { ack, window: 500, is_bare: true }, &[])
    }

    fn taken(recovery: &mut Recovery) -> Option<(u32, Vec<u8>)> {
        let mut payload = vec![9];
        assert_eq!(recovery.is_due(), recovery.resend.is_some());
        let seq = recovery.take(1_000, &mut payload)?;
        assert!(!recovery.is_due());
        Some((seq.wrapping_sub(START), payload))
    }

    /// The machine in fast recovery from a loss of the first segment.
    fn recovering() -> Recovery {
        let mut recovery = flight();
        for _ in 0..4 {
            assert!(acknowledge(&mut recovery, 0));
        }
        assert!(!send(&mut recovery, 0, 4_000), "no timeout");
        recovery
    }

    /// RFC 6582 3.2 (5): each partial acknowledgement sends the next segment again, the full one ends it.
    #[test]
    fn a_partial_acknowledgement_sends_the_next_segment_again() {
        let mut recovery = recovering();
        assert_eq!(taken(&mut recovery), None);
        assert!(acknowledge(&mut recovery, 1_000));
        assert_eq!(taken(&mut recovery), Some((1_000, vec![1; 1_000])));
        assert!(!acknowledge(&mut recovery, 1_000), "the machine would begin anew");
        assert!(acknowledge(&mut recovery, 3_000));
        assert_eq!(taken(&mut recovery), Some((3_000, vec![3; 1_000])));
        assert!(acknowledge(&mut recovery, 4_000));
        assert_eq!(taken(&mut recovery), None);
        send(&mut recovery, 4_000, 4_000);
        assert!(acknowledge(&mut recovery, 4_000), "a new loss is the machine's");
    }

    /// Only data that was in flight when the recovery began counts as lost.
    #[test]
    fn later_data_is_not_sent_again() {
        let mut recovery = recovering();
        send(&mut recovery, 4_000, 4_000);
        assert!(acknowledge(&mut recovery, 3_500));
        assert_eq!(taken(&mut recovery), Some((3_500, vec![3; 500])));
        assert!(acknowledge(&mut recovery, 4_000));
        assert_eq!(taken(&mut recovery), None);
    }

    /// RFC 6582 4: after a timeout the machine sends everything again; nothing is added, until all of it has arrived.
    #[test]
    fn after_a_timeout_the_machine_is_alone() {
        for mut recovery in [flight(), recovering()] {
            assert!(send(&mut recovery, 0, 4_000));
            for _ in 0..5 {
                acknowledge(&mut recovery, 0);
            }
            send(&mut recovery, 0, 4_000);
            assert!(acknowledge(&mut recovery, 2_000));
            assert_eq!(taken(&mut recovery), None);
            assert!(acknowledge(&mut recovery, 2_000), "duplicates are the machine's");
            send(&mut recovery, 4_000, 4_000);
            assert!(acknowledge(&mut recovery, 4_000));
            for _ in 0..3 {
                acknowledge(&mut recovery, 4_000);
            }
            send(&mut recovery, 4_000, 5_000);
            assert_eq!(
                recovery.until,
                Some(START.wrapping_add(5_000)),
                "all has arrived: the next loss counts"
            );
        }
    }

    /// A path is smaller than believed if timeouts repeat; what duplicates bring back is random loss.
    #[test]
    fn a_timeout_is_distinguished_from_a_fast_retransmission() {
        let mut recovery = flight();
        acknowledge(&mut recovery, 0);
        assert!(send(&mut recovery, 0, 4_000), "no duplicates: a timeout");
        for _ in 0..3 {
            acknowledge(&mut recovery, 0);
        }
        assert!(!send(&mut recovery, 0, 4_000), "the third duplicate");
        assert!(send(&mut recovery, 0, 4_000), "duplicates bring it back once");
        assert!(send(&mut recovery, 0, 4_000));
    }

    /// RFC 1191 6.5: what was too large is sent again at once, in segments of the new size.
    #[test]
    fn a_smaller_path_sends_again_what_is_in_flight() {
        let mut recovery = flight();
        recovery.path_shrank(START.wrapping_add(4_000));
        let mut payload = Vec::new();
        for at in [0, 600, 1_200, 3_900] {
            acknowledge(&mut recovery, at);
            assert_eq!(recovery.take(600, &mut payload), Some(START.wrapping_add(at)));
            assert_eq!(payload.len(), if at == 3_900 { 100 } else { 600 });
            assert!(!acknowledge(&mut recovery, at), "what it lost shows no congestion");
        }
        acknowledge(&mut recovery, 4_000);
        assert_eq!(recovery.take(600, &mut payload), None);
    }

    /// RFC 5681 2: a duplicate acknowledgement has no data, the same window, and data is in flight.
    #[test]
    fn only_duplicate_acknowledgements_begin_a_recovery() {
        for (window, is_bare, is_begun) in [(500, true, true), (501, true, false), (500, false, false)] {
            let mut recovery = flight();
            acknowledge(&mut recovery, 0);
            for _ in 0..3 {
                recovery.acknowledged(Acknowledgement { ack: START, window: 500, is_bare }, &[]);
            }
            recovery.acknowledged(Acknowledgement { ack: START, window, is_bare }, &[]);
            send(&mut recovery, 0, 4_000);
            assert_eq!(recovery.until.is_some(), is_begun, "{window} {is_bare}");
        }
    }

    /// What the copy holds is what was written and not acknowledged, however it is cut into segments.
    #[test]
    fn the_copy_holds_each_byte_once() {
        let mut recovery = Recovery::new(START, 8_000);
        recovery.enqueue(&[1, 2, 3, 4, 5]);
        recovery.left(START, &[1, 2, 3], START);
        recovery.left(START.wrapping_add(1), &[2, 3, 4], START.wrapping_add(3));
        assert_eq!(recovery.in_flight(), 4);
        let mut copied = vec![9];
        recovery.copy(START.wrapping_add(3), 9, &mut copied);
        assert_eq!(copied, [4, 5]);
        recovery.left(START.wrapping_add(2), &[3, 4, 5], START.wrapping_add(4));
        assert_eq!(recovery.bytes, [1, 2, 3, 4, 5]);
        recovery.advance(START.wrapping_add(2));
        assert_eq!(recovery.bytes, [3, 4, 5]);
        recovery.advance(START.wrapping_add(6));
        assert_eq!(recovery.in_flight(), 0);
        assert!(recovery.bytes.is_empty(), "a FIN was acknowledged with the last byte");
    }

    fn acknowledge_blocks(recovery: &mut Recovery, at: u32, blocks: &[(u32, u32)]) -> bool {
        let number = |at: u32| START.wrapping_add(at);
        let blocks: Vec<_> = blocks.iter().map(|(from, to)| (number(*from), number(*to))).collect();
        recovery.acknowledged(Acknowledgement { ack: number(at), window: 500, is_bare: true }, &blocks)
    }

    /// RFC 6675: of eight segments the first, the third and the fourth are lost. Each duplicate with news sends a hole again, and
    /// is kept from the machine; a hole with too little behind it waits.
    #[test]
    fn each_duplicate_with_news_fills_a_hole() {
        let mut recovery = Recovery::new(START, 16_000);
        (0..8).for_each(|segment| assert!(!send(&mut recovery, segment * 1_000, segment * 1_000)));
        // The first acknowledgement shows the window.
        acknowledge(&mut recovery, 0);
        for blocks in
            [&[(1_000, 2_000)][..], &[(4_000, 5_000), (1_000, 2_000)], &[(4_000, 6_000), (1_000, 2_000)]]
        {
            assert!(acknowledge_blocks(&mut recovery, 0, blocks), "the machine counts three duplicates");
            assert_eq!(taken(&mut recovery), None, "it has not begun to recover");
        }
        assert!(!send(&mut recovery, 0, 8_000), "its fast retransmission");
        assert!(acknowledge_blocks(&mut recovery, 0, &[(4_000, 6_000)]), "no news");
        assert_eq!(taken(&mut recovery), None);
        assert!(
            !acknowledge_blocks(&mut recovery, 0, &[(4_000, 7_000)]),
            "more than two segments are behind the hole"
        );
        assert_eq!(taken(&mut recovery), Some((2_000, vec![2; 1_000])));
        assert!(!acknowledge_blocks(&mut recovery, 0, &[(4_000, 8_000)]));
        assert_eq!(taken(&mut recovery), Some((3_000, vec![3; 1_000])));
        // The first segment came, those of the hole are on their way: nothing is sent twice.
        assert!(acknowledge_blocks(&mut recovery, 2_000, &[(4_000, 8_000)]));
        assert_eq!(taken(&mut recovery), None);
        assert!(acknowledge_blocks(&mut recovery, 8_000, &[]));
        assert!(!recovery.is_repairing() && !recovery.has_hole());
    }

    /// RFC 2018 8: after a timeout the peer may have forgotten. Blocks outside of what is in flight are none.
    #[test]
    fn a_timeout_and_wrong_blocks_leave_no_hole() {
        let mut recovery = flight();
        acknowledge_blocks(&mut recovery, 0, &[(0, 1_000), (3_000, 5_000), (2_000, 1_000)]);
        assert!(!recovery.has_hole());
        acknowledge_blocks(&mut recovery, 0, &[(2_000, 4_000)]);
        assert!(recovery.has_hole());
        assert!(send(&mut recovery, 0, 4_000), "a timeout");
        assert!(!recovery.has_hole() && recovery.is_repairing());
    }
}
