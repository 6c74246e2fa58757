//! Reassembly of the messages of one channel at its sink.
//!
//! Bounded and preallocated at establishment: at most `messages_max` messages are in progress, each with a
//! slot of the receiver's ring and a row of bits for the fragments that are there. A lost fragment costs its
//! message and nothing else: the message stays in progress until another one needs its place, then it is
//! given up. Messages are delivered in the order of their completion, each at most once: numbers of finished
//! messages (delivered or given up) are stored in a window, and numbers older than the window are refused. A
//! neighbour may forge numbers: forged ones affect the channel only until a few of its own messages have
//! arrived.

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;

use punctual_analysis::{Contract, Nanos, Policing};
use thiserror::Error;

use super::window::Window;
use crate::limits::{
    FRAGMENTS_MAX, NUMBERS_REMEMBERED, NUMBERS_REMEMBERED_FOR, NUMBERS_REMEMBERED_MAX, NUMBERS_REMEMBERED_MIN,
};
use crate::memory::MessageWrite;
use crate::wire::Header;

/// Messages in a row behind the window, with none inside the window between them, that restart the window.
/// The numbers ahead of them were forged by a neighbour, and must not block the channel forever.
const RESTART_MESSAGES: u32 = 4;

/// The result for one fragment.
#[derive(Debug, PartialEq, Eq)]
pub enum Outcome<S> {
    /// The fragment is stored in its message, which is not complete yet.
    Stored,
    /// The fragment completed its message.
    Complete {
        /// The slot with the whole message.
        slot: S,
        /// Whether any of its fragments was demoted on the route.
        demoted: bool,
    },
    /// The fragment is a duplicate: its message is in progress and has it already.
    Duplicate,
    /// The fragment is too late: its message was delivered or given up, or is older than the window.
    Stale,
    /// The receiver's ring had no slot: the whole message is lost.
    NoSlot,
    /// The fragment does not belong to this channel.
    Rejected(Rejection),
}

/// Why a fragment does not belong into its channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Rejection {
    /// The message is longer than the contract allows.
    #[error("message longer than the contract allows")]
    TooLong,
    /// The message was cut with another fragment size than the channel's.
    #[error("cut with another fragment size than the channel's")]
    FragmentSize,
    /// Another fragment of the same message had another length in its header.
    #[error("message length changed between fragments")]
    LengthChanged,
}

/// The messages of one channel in progress.
#[derive(Debug)]
pub struct Reassembly<S> {
    fragment_bytes: u32,
    message_bytes_max: u32,
    /// Messages in progress. `None` if every message of the channel fits into one packet: it is complete when
    /// it arrives.
    partial: Option<Box<Partial<S>>>,
    over: Window,
    /// Numbers of messages that were demoted as a whole. They have a window of their own: a source that
    /// demotes sends many of them past its conforming messages, which must not become too old because of
    /// that.
    over_demoted: Window,
    /// The latest run of consecutive messages behind the window: one more than its last number, and how many.
    run_end: u64,
    run_messages: u32,
    /// Messages given up. Saturates at the largest number.
    incomplete: u32,
}

/// Messages of several packets.
#[derive(Debug)]
struct Partial<S> {
    /// Messages in the order of their first fragments. The list never grows beyond its capacity.
    messages: Vec<Progress<S>>,
    messages_max: usize,
    /// `words` for each message in progress: one bit per received fragment.
    seen: Box<[u64]>,
    words: usize,
    rows_free: Vec<usize>,
}

/// One message in progress.
#[derive(Debug)]
struct Progress<S> {
    number: u64,
    slot: S,
    /// Index of the message's row in `seen`.
    row: usize,
    message_bytes: u32,
    fragments_missing: u16,
    /// True if some of the message's fragments were demoted.
    demoted: bool,
    /// True if all of the message's fragments were demoted.
    wholly_demoted: bool,
}

/// Number of messages behind the newest one whose state is stored one by one. For a source that demotes it is
/// at least the usual number, because its demoted messages take numbers too, beside the contract's rate.
fn numbers_remembered(contract: &Contract) -> u32 {
    let come_in = |span: Nanos| {
        let messages = span.div_ceil(contract.policed_interval().max(Nanos(1)));
        u32::try_from(messages.saturating_add(contract.burst_messages_max.into())).unwrap_or(u32::MAX)
    };
    let demotes = contract.policing == Policing::Demote;
    let least = if demotes { NUMBERS_REMEMBERED } else { NUMBERS_REMEMBERED_MIN };
    let usual = come_in(NUMBERS_REMEMBERED_FOR).clamp(least, NUMBERS_REMEMBERED);
    usual.max(come_in(contract.deadline).saturating_add(1).min(NUMBERS_REMEMBERED_MAX))
}

impl<S> Partial<S> {
    fn new(messages_max: usize, fragments_max: usize) -> Self {
        let words = fragments_max.div_ceil(64);
        Self {
            messages: Vec::with_capacity(messages_max),
            messages_max,
            seen: vec![0; messages_max * words].into_boxed_slice(),
            words,
            rows_free: (0..messages_max).collect(),
        }
    }

    fn room_bytes(&self) -> usize {
        let row_bytes = size_of::<Progress<S>>() + size_of::<usize>();
        size_of::<Self>() + self.messages_max * row_bytes + size_of_val(&*self.seen)
    }
}

impl<S: MessageWrite> Reassembly<S> {
    /// For a channel whose messages are at most `message_bytes_max` long, cut into fragments of
    /// `fragment_bytes`; at most `messages_max` are in progress at once: what the sink's buffers are reserved
    /// for. 0 of either counts as 1. Allocates here and never again.
    pub fn new(messages_max: u32, fragment_bytes: u32, message_bytes_max: u32) -> Self {
        Self::remembering(NUMBERS_REMEMBERED, messages_max, fragment_bytes, message_bytes_max)
    }

    /// Creates the reassembly of a channel with `contract`. It stores as many message numbers as arrive in
    /// ten seconds, within limits, and at least all that can be under way together. It refuses older numbers
    /// as if they were received.
    pub fn of(contract: &Contract, messages_max: u32, fragment_bytes: u32) -> Self {
        let span = numbers_remembered(contract);
        Self::remembering(span, messages_max, fragment_bytes, contract.message_bytes_max)
    }

    fn remembering(span: u32, messages_max: u32, fragment_bytes: u32, message_bytes_max: u32) -> Self {
        let fragment_bytes = fragment_bytes.max(1);
        let fragments_max = message_bytes_max.div_ceil(fragment_bytes).min(FRAGMENTS_MAX) as usize;
        let partial = || Box::new(Partial::new(messages_max.max(1) as usize, fragments_max));
        Self {
            fragment_bytes,
            message_bytes_max,
            partial: (fragments_max > 1).then(partial),
            over: Window::new(span),
            over_demoted: Window::new(span),
            run_end: 0,
            run_messages: 0,
            incomplete: 0,
        }
    }

    /// Memory that it has allocated, in bytes.
    pub fn room_bytes(&self) -> usize {
        let windows = self.over.room_bytes() + self.over_demoted.room_bytes();
        self.partial.as_deref().map_or(0, Partial::room_bytes) + windows
    }

    /// Takes a fragment: copies it to its place in the slot of its message, which `reserve` returns at the
    /// message's first fragment. `header` and `payload` come from [`Header::parse`]; the caller checks path
    /// and cookie, and polices.
    ///
    /// If all places or slots are taken, a new message pushes out one in progress ([`Self::incomplete`]
    /// counts it); a demoted one pushes out demoted ones only. Takes time for one copy and one check of each
    /// message in progress.
    pub fn accept(
        &mut self,
        header: &Header,
        payload: &[u8],
        reserve: impl FnMut() -> Option<S>,
    ) -> Outcome<S> {
        if let Some(rejection) = self.rejection(header) {
            return Outcome::Rejected(rejection);
        }
        self.watch_behind(header);
        if self.is_over(header) {
            return Outcome::Stale;
        }
        if header.fragments == 1 {
            return self.accept_whole(header, payload, reserve);
        }
        let found = self.messages().iter().rposition(|m| m.number == header.message);
        let Some(index) = found.or_else(|| self.begin(header, reserve)) else {
            self.close(header.message, header.demoted);
            return Outcome::NoSlot;
        };
        self.store(index, header, payload)
    }

    /// Whether no fragment of the message may be taken any more.
    fn is_over(&self, header: &Header) -> bool {
        let number = header.message;
        let demoted = &self.over_demoted;
        let is_among_demoted =
            if header.demoted { demoted.is_closed(number) } else { demoted.is_marked(number) };
        is_among_demoted || self.over.is_closed(number)
    }

    fn messages(&self) -> &[Progress<S>] {
        self.partial.as_ref().map_or(&[], |partial| &partial.messages)
    }

    fn close(&mut self, number: u64, wholly_demoted: bool) {
        let window = if wholly_demoted { &mut self.over_demoted } else { &mut self.over };
        window.close(number);
    }

    /// Gives up every message in progress with a number below `before`; returns their number.
    pub fn expire(&mut self, before: u64) -> u32 {
        let mut given_up = 0;
        while let Some(index) = self.messages().iter().position(|m| m.number < before) {
            self.give_up(index);
            given_up += 1;
        }
        given_up
    }

    /// Drops one message in progress without counting it, because the channel has ended. `false` if there was
    /// none.
    pub fn forget_one(&mut self) -> bool {
        self.partial.as_mut().is_some_and(|partial| partial.messages.pop().is_some())
    }

    /// Messages in progress.
    pub fn in_progress(&self) -> usize {
        self.messages().len()
    }

    /// The newest message number that was received, plus one. Each message before it was delivered, is in
    /// progress, or is lost.
    pub fn seen_until(&self) -> u64 {
        let newest =
            self.messages().iter().map(|message| message.number.saturating_add(1)).max().unwrap_or(0);
        self.over.end().max(self.over_demoted.end()).max(newest)
    }

    /// Number of messages that were given up since the channel was established, because a fragment was lost.
    pub fn incomplete(&self) -> u64 {
        self.incomplete.into()
    }

    /// Restarts the window if the messages behind it are the channel's current ones. Demoted ones prove
    /// nothing, because they may be late by any time.
    fn watch_behind(&mut self, header: &Header) {
        let number = header.message;
        if header.demoted {
            return;
        }
        if !self.over.is_behind(number) {
            self.run_messages = 0;
            return;
        }
        if number == self.run_end {
            self.run_messages += 1;
        } else if self.run_messages == 0 || number + 1 != self.run_end {
            self.run_messages = 1;
        }
        // A repetition of the last number changes nothing.
        self.run_end = number + 1;
        if self.run_messages >= RESTART_MESSAGES {
            self.expire(u64::MAX);
            self.over.restart(number);
            self.run_messages = 0;
        }
    }

    fn rejection(&self, header: &Header) -> Option<Rejection> {
        if header.message_bytes > self.message_bytes_max {
            return Some(Rejection::TooLong);
        }
        let fits = match header.fragment_bytes() {
            Some(size) if header.fragments == 1 => size <= self.fragment_bytes,
            size => size == Some(self.fragment_bytes),
        };
        (!fits).then_some(Rejection::FragmentSize)
    }

    /// The fast path: a message of one packet leaves no state except its number.
    fn accept_whole(
        &mut self,
        header: &Header,
        payload: &[u8],
        mut reserve: impl FnMut() -> Option<S>,
    ) -> Outcome<S> {
        if self.messages().iter().any(|m| m.number == header.message) {
            return Outcome::Rejected(Rejection::LengthChanged);
        }
        self.close(header.message, header.demoted);
        let Some(mut slot) = self.slot_for(header, &mut reserve) else { return Outcome::NoSlot };
        slot.copy_from(0, payload);
        Outcome::Complete { slot, demoted: header.demoted }
    }

    /// Begins a message; returns its index, or `None` if no place or slot is available.
    fn begin(&mut self, header: &Header, mut reserve: impl FnMut() -> Option<S>) -> Option<usize> {
        let Partial { messages, messages_max, .. } = self.partial.as_deref()?;
        if messages.len() == *messages_max {
            let victim = self.victim(header)?;
            self.give_up(victim);
        }
        let slot = self.slot_for(header, &mut reserve)?;
        let Partial { messages, seen, words, rows_free, .. } = self.partial.as_deref_mut()?;
        let row = rows_free.pop()?;
        seen[row * *words..][..*words].fill(0);
        messages.push(Progress {
            number: header.message,
            slot,
            row,
            message_bytes: header.message_bytes,
            fragments_missing: header.fragments,
            demoted: false,
            wholly_demoted: true,
        });
        Some(messages.len() - 1)
    }

    /// A slot of the receiver's ring, if necessary one that a message in progress gives up.
    fn slot_for(&mut self, header: &Header, reserve: &mut impl FnMut() -> Option<S>) -> Option<S> {
        loop {
            if let Some(slot) = reserve() {
                return Some(slot);
            }
            let victim = self.victim(header)?;
            self.give_up(victim);
        }
    }

    /// Index of the message in progress that gives way to a new one. Guaranteed packets keep their order, so
    /// a guaranteed message before the new one has lost a fragment: it goes first. Then demoted messages are
    /// removed, then those with forged numbers. A demoted message never pushes out another, because nothing
    /// was reserved for it.
    fn victim(&self, header: &Header) -> Option<usize> {
        let messages = self.messages();
        let demoted = messages.iter().position(|m| m.demoted);
        if header.demoted {
            return demoted;
        }
        let lost = messages.iter().position(|m| !m.demoted && m.number < header.message);
        lost.or(demoted).or((!messages.is_empty()).then_some(0))
    }

    fn store(&mut self, index: usize, header: &Header, payload: &[u8]) -> Outcome<S> {
        let Some(Partial { messages, seen, words, .. }) = self.partial.as_deref_mut() else {
            return Outcome::Stale;
        };
        let message = &mut messages[index];
        if message.message_bytes != header.message_bytes {
            return Outcome::Rejected(Rejection::LengthChanged);
        }
        let word = &mut seen[message.row * *words + usize::from(header.fragment / 64)];
        let bit = 1 << (header.fragment % 64);
        if *word & bit != 0 {
            return Outcome::Duplicate;
        }
        *word |= bit;
        message.slot.copy_from(u32::from(header.fragment) * self.fragment_bytes, payload);
        message.demoted |= header.demoted;
        message.wholly_demoted &= header.demoted;
        message.fragments_missing -= 1;
        if message.fragments_missing > 0 {
            return Outcome::Stored;
        }
        match self.remove(index) {
            Some(Progress { slot, demoted, .. }) => Outcome::Complete { slot, demoted },
            None => Outcome::Stale,
        }
    }

    fn give_up(&mut self, index: usize) {
        self.remove(index);
        self.incomplete = self.incomplete.saturating_add(1);
    }

    /// Removes a message from the table: later fragments of it are refused.
    fn remove(&mut self, index: usize) -> Option<Progress<S>> {
        let partial = self.partial.as_deref_mut()?;
        let message = partial.messages.remove(index);
        partial.rows_free.push(message.row);
        self.close(message.number, message.wholly_demoted);
        Some(message)
    }
}
