//! The communication module (CLIPS 4.2): reliable, ordered, exactly-once messages between two lives of
//! neighbours. Messages form a stream that is cut into numbered segments; the sender of a segment sends it
//! again with exponential back-off until it is acknowledged.
//!
//! Owned by [`Peer`](super::peer::Peer), which resets both halves when either end's life changes. At most
//! [`SEGMENTS_MAX`] segments wait, at most [`WINDOW_SEGMENTS`] are under way.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use punctual_analysis::mutation::{Mutation, active};
use punctual_analysis::{Instant, Nanos};

use crate::limits::{
    SIGNAL_MESSAGE_BYTES_MAX, SIGNAL_SEGMENTS_MAX as SEGMENTS_MAX, SIGNAL_WINDOW_SEGMENTS as WINDOW_SEGMENTS,
};

/// Largest number of doublings of the time between retransmissions.
const BACK_OFF_SHIFT_MAX: u32 = 5;
/// Bytes of a message's length before it.
const LENGTH_BYTES: usize = 2;

const _: () = assert!(WINDOW_SEGMENTS <= u32::BITS as usize, "a bit of `Received` for each");

/// No room: the neighbour has acknowledged nothing for too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

/// Received segments: every segment below `next`, and `next + 1 + i` for each bit i of `later`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Received {
    pub next: u64,
    pub later: u32,
}

#[derive(Debug)]
struct Segment {
    bytes: Vec<u8>,
    /// Number of transmissions, and time of the first.
    sent: u32,
    first_at: Instant,
    /// Time at which to send the segment again.
    again_at: Instant,
    /// True if the segment must be sent now.
    due: bool,
    acknowledged: bool,
}

/// The sending half.
#[derive(Debug)]
pub struct SendStream {
    segments: VecDeque<Segment>,
    /// Number of the front segment.
    first: u64,
    segment_bytes: usize,
    retransmit: Nanos,
}

impl SendStream {
    pub const fn new(segment_bytes: usize, retransmit: Nanos) -> Self {
        Self { segments: VecDeque::new(), first: 0, segment_bytes, retransmit }
    }
    pub fn clear(&mut self) {
        *self = Self::new(self.segment_bytes, self.retransmit);
    }
    pub fn is_empty(&self) -> bool {
        self.segments.is_empty()
    }
    /// Number of segments that have never been sent: the last ones.
    pub fn unsent(&self) -> usize {
        self.segments.iter().rev().take_while(|segment| segment.sent == 0).count()
    }
    /// Segments that are not acknowledged.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.segments.len()
    }
    /// Appends a message, packed into the last unsent segment if that has room.
    pub fn push(&mut self, message: &[u8]) -> Result<(), Full> {
        let fresh = message.len().div_ceil(self.segment_bytes) + 1;
        let length = u16::try_from(message.len()).map_err(|_| Full)?;
        if self.segments.len() + fresh > SEGMENTS_MAX || message.len() > SIGNAL_MESSAGE_BYTES_MAX {
            return Err(Full);
        }
        self.append(&length.to_le_bytes());
        self.append(message);
        Ok(())
    }
    fn append(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            match self.segments.back_mut() {
                Some(last) if last.sent == 0 && last.bytes.len() < self.segment_bytes => {
                    let room = self.segment_bytes - last.bytes.len();
                    let (now, later) = bytes.split_at(room.min(bytes.len()));
                    last.bytes.extend_from_slice(now);
                    bytes = later;
                }
                _ => {
                    let bytes = Vec::new();
                    let at = Instant::ZERO;
                    let segment = Segment {
                        bytes,
                        sent: 0,
                        first_at: at,
                        again_at: at,
                        due: true,
                        acknowledged: false,
                    };
                    self.segments.push_back(segment);
                }
            }
        }
    }
    fn in_window(&mut self) -> impl Iterator<Item = (u64, &mut Segment)> {
        (self.first..).zip(self.segments.iter_mut().take(WINDOW_SEGMENTS))
    }
    /// Whether [`Self::due`] has a segment.
    pub fn has_due(&self) -> bool {
        self.segments.iter().take(WINDOW_SEGMENTS).any(|segment| segment.due)
    }
    /// The next segment to send: its number and bytes. It stays due until [`Self::sent`].
    pub fn due(&self) -> Option<(u64, &[u8])> {
        let window = (self.first..).zip(self.segments.iter().take(WINDOW_SEGMENTS));
        window.filter(|(_, segment)| segment.due).map(|(number, segment)| (number, &*segment.bytes)).next()
    }
    /// Notes that the segment `number` was sent; returns whether that was a retransmission.
    pub fn sent(&mut self, number: u64, now: Instant) -> bool {
        let retransmit = self.retransmit;
        let Some((_, segment)) = self.in_window().find(|(n, _)| *n == number) else { return false };
        let doublings = if active(Mutation::NoBackOff) { 0 } else { segment.sent.min(BACK_OFF_SHIFT_MAX) };
        segment.again_at = now + retransmit * (1 << doublings);
        if segment.sent == 0 {
            segment.first_at = now;
        }
        segment.sent = segment.sent.saturating_add(1);
        segment.due = false;
        segment.sent > 1
    }
    /// Handles an acknowledgement of the neighbour.
    pub fn acknowledge(&mut self, received: Received) {
        for (number, segment) in self.in_window() {
            let later = number.checked_sub(received.next.saturating_add(1));
            let bit = later.is_some_and(|i| i < 32 && received.later & (1 << i) != 0);
            if segment.sent > 0 && (number < received.next || bit) {
                segment.acknowledged = true;
                segment.due = false;
            }
        }
        while self.segments.front().is_some_and(|segment| segment.acknowledged) {
            self.segments.pop_front();
            self.first += 1;
        }
    }
    /// Marks segments for retransmission. Returns the time since which a segment is unacknowledged that was
    /// retransmitted `retransmits_max` times already.
    pub fn handle_timeout(&mut self, now: Instant, retransmits_max: u32) -> Option<Instant> {
        let mut unheard = None;
        // A segment that was never sent is due anyway.
        for (_, segment) in self.in_window().filter(|(_, s)| !s.acknowledged) {
            segment.due |= segment.again_at <= now;
            if segment.due && segment.sent > retransmits_max {
                unheard = unheard.max(Some(segment.first_at));
            }
        }
        unheard
    }
    /// Time at which a segment must be sent again; `None` if none must.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let waiting = |s: &&Segment| !s.acknowledged && !s.due;
        self.segments.iter().take(WINDOW_SEGMENTS).filter(waiting).map(|s| s.again_at).min()
    }
}

/// The receiving half.
#[derive(Debug, Default)]
pub struct ReceiveStream {
    next: u64,
    early: BTreeMap<u64, Vec<u8>>,
    /// Bytes of an incomplete message.
    buffer: Vec<u8>,
}

/// A message that no correct sender makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProtocolViolation;

impl ReceiveStream {
    pub fn received(&self) -> Received {
        // What is early is behind `next`, and within the window.
        let bit = |number: &u64| 1 << (number - self.next - 1);
        Received { next: self.next, later: self.early.keys().map(bit).fold(0, |bits, bit: u32| bits | bit) }
    }
    /// Takes a segment; one that was received already, or is too far ahead, has no effect.
    pub fn take(&mut self, number: u64, bytes: &[u8]) {
        let window = self.next..self.next.saturating_add(WINDOW_SEGMENTS as u64);
        if !window.contains(&number) {
            return;
        }
        self.early.entry(number).or_insert_with(|| bytes.to_vec());
        while let Some(bytes) = self.early.remove(&self.next) {
            self.buffer.extend_from_slice(&bytes);
            self.next += 1;
        }
    }
    /// The next whole message.
    pub fn next_message(&mut self) -> Result<Option<Vec<u8>>, ProtocolViolation> {
        let Some((length, rest)) = self.buffer.split_first_chunk::<LENGTH_BYTES>() else { return Ok(None) };
        let length = usize::from(u16::from_le_bytes(*length));
        if length > SIGNAL_MESSAGE_BYTES_MAX {
            return Err(ProtocolViolation);
        }
        let Some(message) = rest.get(..length).map(<[u8]>::to_vec) else { return Ok(None) };
        self.buffer.drain(..LENGTH_BYTES + length);
        Ok(Some(message))
    }
}

#[cfg(test)]
mod tests {
    mod model;

    use super::super::random::SplitMix64;
    use super::*;
    use crate::limits::{SIGNAL_AHEAD_SEGMENTS, SIGNAL_SEGMENT_BYTES_MIN};

    /// Whatever number of segments a message needs: their number never exceeds the limit, and a message that
    /// certainly fits is taken.
    #[test]
    fn a_message_that_would_be_too_many_segments_is_not_taken() {
        for free in 1..6 {
            for bytes in 1..200 {
                let mut sender = SendStream::new(40, Nanos::from_millis(100));
                // With its length each message fills a segment.
                (0..SEGMENTS_MAX - free).for_each(|_| sender.push(&[7; 38]).expect("there is room"));
                let taken = sender.push(&alloc::vec![7; bytes]);
                assert!(sender.len() <= SEGMENTS_MAX, "{free} {bytes}: {}", sender.len());
                let needed = (bytes + 2).div_ceil(40);
                assert!(taken == Err(Full) || needed <= free, "{free} {bytes}");
                assert!(taken.is_ok() || needed + 1 > free, "{free} {bytes}");
            }
        }
    }

    #[test]
    fn a_medium_that_loses_doubles_and_reorders_gives_each_message_once_in_order() {
        for seed in 0..30 {
            let mut random = SplitMix64::new(seed);
            let mut sender = SendStream::new(40, Nanos::from_millis(100));
            let mut receiver = ReceiveStream::default();
            let (mut got, mut pushed) = (Vec::new(), 0u32);
            let mut air: Vec<(u64, Vec<u8>)> = Vec::new();
            for step in 0..4_000u64 {
                let now = Instant(step * 10_000_000);
                if pushed < 300 && random.below(2) == 0 {
                    let mut message = pushed.to_le_bytes().to_vec();
                    message.resize(4 + random.below(120) as usize, 7);
                    if sender.push(&message).is_ok() {
                        pushed += 1;
                    }
                }
                sender.handle_timeout(now, u32::MAX);
                while let Some((number, bytes)) = sender.due() {
                    let copies = [0, 1, 1, 2][random.below(4) as usize];
                    let segment = (number, bytes.to_vec());
                    (0..copies).for_each(|_| air.push(segment.clone()));
                    sender.sent(number, now);
                }
                while air.len() > random.below(6) as usize {
                    let (number, bytes) = air.swap_remove(random.below(air.len() as u64) as usize);
                    receiver.take(number, &bytes);
                }
                while let Some(message) = receiver.next_message().expect("no garbage") {
                    got.push(u32::from_le_bytes([message[0], message[1], message[2], message[3]]));
                }
                if random.below(3) > 0 {
                    sender.acknowledge(receiver.received());
                }
            }
            assert_eq!(got, (0..300).collect::<Vec<_>>(), "seed {seed}");
            assert!(sender.is_empty(), "seed {seed}");
            assert_eq!(sender.poll_timeout(), None, "seed {seed}");
        }
    }

    #[test]
    fn what_is_not_acknowledged_is_bounded() {
        let mut sender = SendStream::new(40, Nanos::from_millis(100));
        let pushed = (0..10 * SEGMENTS_MAX).take_while(|_| sender.push(&[1; 30]).is_ok()).count();
        assert!(pushed >= SEGMENTS_MAX / 2 && sender.len() <= SEGMENTS_MAX, "{pushed}");
        assert_eq!(sender.push(&[0; SIGNAL_MESSAGE_BYTES_MAX + 1]), Err(Full));
    }

    #[test]
    fn an_acknowledgement_of_what_was_never_sent_is_nothing() {
        let mut sender = SendStream::new(40, Nanos::from_millis(100));
        sender.push(&[1; 30]).expect("room");
        sender.acknowledge(Received { next: u64::MAX, later: u32::MAX });
        assert_eq!(sender.len(), 1);
    }

    /// Segments whose time to be sent again has come, and that are acknowledged before they were, are not sent again, even
    /// if one before them is still missing.
    #[test]
    fn what_is_acknowledged_while_it_is_due_is_not_sent_again() {
        let mut sender = SendStream::new(40, Nanos::from_millis(100));
        (0..3).for_each(|_| sender.push(&[1; 38]).expect("room"));
        (0..3).for_each(|number| assert!(!sender.sent(number, Instant(1))));
        sender.handle_timeout(Instant(200_000_000), u32::MAX);
        sender.acknowledge(Received { next: 0, later: 0b11 });
        assert_eq!(sender.due().map(|(number, _)| number), Some(0));
        assert!(sender.sent(0, Instant(200_000_000)));
        assert_eq!(sender.due(), None);
        assert_eq!(sender.len(), 3, "what is behind the missing one waits for it");
    }

    #[test]
    fn a_segment_that_is_acknowledged_already_is_not_sent_again() {
        let mut sender = SendStream::new(40, Nanos::from_millis(100));
        sender.push(&[1; 30]).expect("room");
        assert!(!sender.sent(0, Instant(1)) && sender.sent(0, Instant(2)));
        sender.acknowledge(Received { next: 1, later: 0 });
        assert!(!sender.sent(0, Instant(3)) && sender.is_empty());
    }

    #[test]
    fn an_endless_message_is_garbage() {
        let mut receiver = ReceiveStream::default();
        receiver.take(0, &u16::MAX.to_le_bytes());
        assert_eq!(receiver.next_message(), Err(ProtocolViolation));
    }

    #[test]
    fn what_is_under_way_is_bounded() {
        let mut sender = SendStream::new(40, Nanos::from_millis(100));
        (0..3 * WINDOW_SEGMENTS).for_each(|_| sender.push(&[1; 30]).expect("room"));
        let mut sent = 0;
        while let Some((number, _)) = sender.due().map(|(number, bytes)| (number, bytes.len())) {
            sender.sent(number, Instant(1));
            sent += 1;
        }
        assert_eq!(sent, WINDOW_SEGMENTS);
        sender.acknowledge(Received { next: 1, later: 0 });
        assert_eq!(sender.due().map(|(number, _)| number), Some(WINDOW_SEGMENTS as u64), "one more");
    }

    #[test]
    fn the_longest_message_has_room_in_the_smallest_packets_behind_all_that_may_be_ahead() {
        let mut sender = SendStream::new(SIGNAL_SEGMENT_BYTES_MIN, Nanos::from_millis(100));
        let whole = [1; SIGNAL_SEGMENT_BYTES_MIN - LENGTH_BYTES];
        (0..WINDOW_SEGMENTS + SIGNAL_AHEAD_SEGMENTS).for_each(|_| sender.push(&whole).expect("room"));
        assert_eq!(sender.len(), WINDOW_SEGMENTS + SIGNAL_AHEAD_SEGMENTS);
        sender.push(&[2; SIGNAL_MESSAGE_BYTES_MAX]).expect("room for the longest");
        let fits =
            (0..SEGMENTS_MAX).take_while(|_| sender.push(&[3; SIGNAL_MESSAGE_BYTES_MAX]).is_ok()).count();
        assert!(fits < 3 && sender.len() <= SEGMENTS_MAX, "{fits} more");
    }

    #[test]
    fn a_message_is_refused_only_where_it_might_not_fit() {
        for bytes in 0..=100 {
            let mut sender = SendStream::new(40, Nanos::from_millis(100));
            while sender.push(&[1; 100][..bytes]).is_ok() {}
            assert!(sender.len() <= SEGMENTS_MAX, "{bytes}: {}", sender.len());
            // A message follows a rest that is too short for its length.
            assert!(sender.len() + bytes.div_ceil(40) + 1 > SEGMENTS_MAX, "{bytes}: {}", sender.len());
        }
        let mut sender = SendStream::new(1_000, Nanos::from_millis(100));
        assert_eq!(sender.push(&[0; SIGNAL_MESSAGE_BYTES_MAX]), Ok(()), "the longest");
    }

    #[test]
    fn what_is_not_acknowledged_goes_again_after_a_time_that_doubles_five_times() {
        const RETRANSMITS_MAX: u32 = 3;
        let mut sender = SendStream::new(40, Nanos::from_millis(100));
        sender.push(&[1; 30]).expect("room");
        let first = Instant(5_000_000_000);
        let (mut now, mut hundreds) = (first, Vec::new());
        for times in 1..10 {
            let (number, _) = sender.due().expect("it is to be sent");
            assert_eq!(sender.sent(number, now), times > 1, "whether it is sent again");
            let again = sender.poll_timeout().expect("it waits");
            hundreds.push(again.since(now).0 / 100_000_000);
            assert_eq!(sender.handle_timeout(again - Nanos(1), RETRANSMITS_MAX), None);
            assert!(!sender.has_due() && sender.due().is_none());
            let unheard = sender.handle_timeout(again, RETRANSMITS_MAX);
            assert_eq!(unheard, (times > RETRANSMITS_MAX).then_some(first), "{times}");
            assert!(sender.has_due() && sender.poll_timeout().is_none());
            now = again;
        }
        assert_eq!(hundreds, [1, 2, 4, 8, 16, 32, 32, 32, 32]);
    }

    /// Only missing segments are retransmitted.
    #[test]
    fn what_came_behind_a_gap_is_not_sent_again() {
        for seed in 0..50 {
            let mut random = SplitMix64::new(seed);
            let mut sender = SendStream::new(40, Nanos::from_millis(100));
            let mut receiver = ReceiveStream::default();
            let message = |number: u8| [number; 38];
            (0..60).for_each(|number| sender.push(&message(number)).expect("room"));
            let (mut missing, mut sent) = (Vec::new(), 0);
            while let Some((number, bytes)) = sender.due().map(|(number, bytes)| (number, bytes.to_vec())) {
                if random.below(3) == 0 {
                    missing.push(number);
                } else {
                    receiver.take(number, &bytes);
                }
                sender.sent(number, Instant(1));
                sent += 1;
            }
            assert_eq!(sent, WINDOW_SEGMENTS.min(60), "a window is under way");
            sender.acknowledge(receiver.received());
            assert_eq!(sender.handle_timeout(Instant(200_000_000), 9), None);
            let mut again = Vec::new();
            while let Some((number, bytes)) = sender.due().map(|(number, bytes)| (number, bytes.to_vec())) {
                receiver.take(number, &bytes);
                // A segment that enters the window meanwhile was never sent.
                if !sender.sent(number, Instant(200_000_000)) {
                    continue;
                }
                again.push(number);
            }
            assert_eq!(again, missing, "seed {seed}");
            let got = core::iter::from_fn(|| receiver.next_message().expect("no garbage"));
            let numbers: Vec<u8> = got.map(|message| message[0]).collect();
            let expected: Vec<u8> = (0..60).take(numbers.len()).collect();
            assert!(
                numbers == expected && numbers.len() >= WINDOW_SEGMENTS.min(60),
                "seed {seed}: {numbers:?}"
            );
        }
    }

    /// A message that is too long for any neighbour is not taken, and has no effect.
    #[test]
    fn a_message_that_is_too_long_is_not_taken() {
        let mut sender = SendStream::new(1_284, Nanos::from_millis(100));
        for bytes in [SIGNAL_MESSAGE_BYTES_MAX + 1, usize::from(u16::MAX) + 1] {
            assert_eq!(sender.push(&alloc::vec![7; bytes]), Err(Full), "{bytes}");
        }
        assert!(sender.is_empty() && !sender.has_due());
        assert_eq!(sender.push(&alloc::vec![7; SIGNAL_MESSAGE_BYTES_MAX]), Ok(()));
    }

    /// The longest message arrives whole, and one byte more is garbage.
    #[test]
    fn the_longest_message_is_received() {
        let received = |bytes: usize| {
            let mut receiver = ReceiveStream::default();
            let mut stream = (bytes as u16).to_le_bytes().to_vec();
            stream.resize(LENGTH_BYTES + bytes, 7);
            (0..).zip(stream.chunks(1_000)).for_each(|(number, bytes)| receiver.take(number, bytes));
            receiver.next_message().map(|message| message.map(|message| message.len()))
        };
        for bytes in [0, 1, SIGNAL_MESSAGE_BYTES_MAX - 1, SIGNAL_MESSAGE_BYTES_MAX] {
            assert_eq!(received(bytes), Ok(Some(bytes)));
        }
        assert_eq!(received(SIGNAL_MESSAGE_BYTES_MAX + 1), Err(ProtocolViolation));
    }

    /// Segments of a whole window behind a missing one are reported, each as received, and none beyond the window is kept.
    #[test]
    fn what_came_early_is_reported_bit_by_bit() {
        for early in 1..WINDOW_SEGMENTS as u64 + 3 {
            let mut receiver = ReceiveStream::default();
            receiver.take(0, &[7]);
            receiver.take(1 + early, &[7]);
            let later = if early < WINDOW_SEGMENTS as u64 { 1 << (early - 1) } else { 0 };
            assert_eq!(receiver.received(), Received { next: 1, later }, "{early}");
        }
    }
}
