//! Messages to a neighbour that have no place in the stream yet. Messages that keep channels alive are sent
//! first. The rest shares the link by kind; replies and requests also have turns by source (ADR 0038).
//!
//! Owned by [`Peer`](super::peer::Peer), which takes as much as the link sends soon. The order of each
//! channel's messages is kept: no message about a channel overtakes an earlier one. Two exceptions: if a
//! DESTROY meets its CREATE still here, both are removed, and no REFRESH names a channel whose CREATE is
//! here.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use punctual_analysis::Instant;

use super::accounts::Entry;
use super::message::Message;
use super::reliable_stream::{Full, SendStream};
use super::source_turns::{Place, Source, SourceTurns};
use crate::ids::{ChannelNumber, Epoch, NodeId, PathId};
use crate::limits::{ANSWERS_WAITING_MAX, ASK_WAIT_MAX, ASKS_WAITING_MAX, SIGNAL_AHEAD_SEGMENTS};

#[cfg(test)]
mod tests;

/// Kinds of messages that share the link. Messages that are sent first need no share: they are few, and paced
/// by the clock.
#[derive(Clone, Copy, Debug)]
enum Kind {
    /// Messages of established channels: CONFIRM, DESTROY, the sink's final report, reports of stages.
    Standing,
    /// Replies: ACCEPT, REFUSE, and replies to probes and requests.
    Answers,
    /// Requests: CREATE and receivers' requests.
    Asks,
}

/// Cost of a byte of each kind: when all wait, they get 4, 2 and 1 of 7 parts.
const COSTS: [u64; 3] = [1, 2, 4];

/// Shares of the kinds: the kind with the smallest cost so far is next.
#[derive(Debug, Default)]
struct Shares {
    spent: [u64; 3],
}

impl Shares {
    /// The next of the waiting kinds. A kind that does not wait saves nothing up.
    fn next(&mut self, waits: [bool; 3]) -> Option<Kind> {
        let kinds = [Kind::Standing, Kind::Answers, Kind::Asks].into_iter();
        let next =
            kinds.filter(|kind| waits[*kind as usize]).min_by_key(|kind| self.spent[*kind as usize])?;
        let least = self.spent[next as usize];
        self.spent.iter_mut().for_each(|spent| *spent = (*spent).max(least));
        Some(next)
    }
    const fn spend(&mut self, kind: Kind, bytes: usize) {
        self.spent[kind as usize] += bytes as u64 * COSTS[kind as usize];
    }
}

/// A message that waits for its turn.
#[derive(Debug)]
struct QueuedMessage {
    /// The channel that it is about.
    path: Option<PathId>,
    bytes: Vec<u8>,
}

/// The messages that have no place in the stream.
#[derive(Debug, Default)]
pub struct Outbox {
    first: VecDeque<Vec<u8>>,
    standing: VecDeque<Vec<u8>>,
    answers: SourceTurns<QueuedMessage>,
    asks: SourceTurns<QueuedMessage>,
    /// Channels about which messages wait among the replies: their source, and the number of messages.
    answered: BTreeMap<PathId, (Source, u32)>,
    /// Channels whose CREATE waits.
    asked: BTreeMap<PathId, Place>,
    /// Requests by age (their numbers grow): their source, and the begin of their wait.
    ages: BTreeMap<u64, (Source, Instant)>,
    shares: Shares,
    /// Bytes of all waiting messages except requests.
    bytes: usize,
    /// Requests that have waited for too long or had to give way. They are refused soon, so they are few.
    late: VecDeque<QueuedMessage>,
    /// Replies that were dropped because too many of their source's wait.
    answers_dropped: u64,
}

/// A message that does not encode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CannotEncode;

impl Outbox {
    pub fn clear(&mut self) {
        *self = Self { answers_dropped: self.answers_dropped, ..Self::default() };
    }
    pub fn is_empty(&self) -> bool {
        self.first.is_empty() && !self.waits().contains(&true)
    }
    /// Replies that were dropped because too many of their source's wait.
    pub const fn answers_dropped(&self) -> u64 {
        self.answers_dropped
    }
    /// Bytes of waiting messages without requests, which have places of their own.
    pub const fn bytes(&self) -> usize {
        self.bytes
    }
    fn waits(&self) -> [bool; 3] {
        [!self.standing.is_empty(), !self.answers.is_empty(), !self.asks.is_empty()]
    }

    /// Queues a message that is neither a reply nor a request.
    pub fn queue_message(&mut self, message: &Message) -> Result<(), CannotEncode> {
        match message {
            Message::Refresh { node, epoch, channels } => return self.queue_refresh(*node, *epoch, channels),
            Message::Rate(_) | Message::LateArrivals(_) => {
                let bytes = self.encode(message)?;
                self.first.push_back(bytes);
                return Ok(());
            }
            Message::Destroy { path, .. } if self.withdraw(*path) => return Ok(()),
            _ => {}
        }
        let bytes = self.encode(message)?;
        let behind = path_of(message).and_then(|path| Some((path, self.answered.get(&path)?.0)));
        match behind {
            Some((path, source)) => self.push_answer(source, Some(path), bytes),
            None => self.standing.push_back(bytes),
        }
        Ok(())
    }

    fn encode(&mut self, message: &Message) -> Result<Vec<u8>, CannotEncode> {
        let bytes = message.encode().ok_or(CannotEncode)?;
        self.bytes += bytes.len();
        Ok(bytes)
    }

    /// A channel that has not begun there needs no refresh.
    fn queue_refresh(
        &mut self,
        node: NodeId,
        epoch: Epoch,
        channels: &[ChannelNumber],
    ) -> Result<(), CannotEncode> {
        let is_begun = |channel: &ChannelNumber| !self.has_create(PathId { node, channel: *channel, epoch });
        let channels: Vec<_> = channels.iter().copied().filter(is_begun).collect();
        if channels.is_empty() {
            return Ok(());
        }
        let bytes = self.encode(&Message::Refresh { node, epoch, channels })?;
        self.first.push_back(bytes);
        Ok(())
    }

    /// Queues the reply to a request of `source`. A reply for which no host holds resources is dropped if too
    /// many of them wait.
    pub fn answer(&mut self, source: Source, message: &Message) -> Result<(), CannotEncode> {
        let is_spare = matches!(message, Message::Probed { .. } | Message::RequestRefused { .. });
        if is_spare && !self.answers.has_place(source, ANSWERS_WAITING_MAX) {
            self.answers_dropped += 1;
            return Ok(());
        }
        let bytes = self.encode(message)?;
        self.push_answer(source, path_of(message), bytes);
        Ok(())
    }
    fn push_answer(&mut self, source: Source, path: Option<PathId>, bytes: Vec<u8>) {
        if let Some(path) = path {
            self.answered.entry(path).or_insert((source, 0)).1 += 1;
        }
        self.answers.push(source, QueuedMessage { path, bytes });
    }

    /// Whether one more request of `source` may wait.
    pub fn takes(&self, source: Source) -> bool {
        self.asks.has_place(source, ASKS_WAITING_MAX)
    }
    /// Queues a request of `source`. If no place is free, the last request of the source with the most is
    /// refused.
    pub fn ask(&mut self, source: Source, message: &Message, now: Instant) -> Result<(), CannotEncode> {
        let bytes = message.encode().ok_or(CannotEncode)?;
        if let Some((place, queued)) = self.asks.make_room(source, ASKS_WAITING_MAX) {
            self.forget_ask(place, &queued);
            self.late.push_back(queued);
        }
        let path = path_of(message);
        let place = self.asks.push(source, QueuedMessage { path, bytes });
        self.ages.insert(place.1, (place.0, now));
        path.map(|path| self.asked.insert(path, place));
        Ok(())
    }
    /// Removes the CREATE of a channel, which waits to be sent or to be refused; `false` if it does not wait
    /// here.
    pub fn withdraw(&mut self, path: PathId) -> bool {
        let late = self.late.iter().position(|queued| queued.path == Some(path));
        let place = self.asked.get(&path).copied();
        late.and_then(|late| self.late.remove(late)).is_some()
            || place.is_some_and(|place| self.take_ask(place).is_some())
    }
    /// Whether the CREATE of a channel waits here.
    fn has_create(&self, path: PathId) -> bool {
        self.asked.contains_key(&path) || self.late.iter().any(|queued| queued.path == Some(path))
    }
    fn take_ask(&mut self, place: Place) -> Option<QueuedMessage> {
        let queued = self.asks.remove(&place)?;
        self.forget_ask(place, &queued);
        Some(queued)
    }
    fn forget_ask(&mut self, place: Place, queued: &QueuedMessage) {
        self.ages.remove(&place.1);
        queued.path.map(|path| self.asked.remove(&path));
    }

    /// Counts of waiting messages that are kept, with the values computed from the queues.
    pub fn accounts(&self) -> [Entry; 6] {
        let with_path =
            |of: &SourceTurns<QueuedMessage>| of.iter().filter(|queued| queued.path.is_some()).count();
        let answered: u32 = self.answered.values().map(|(_, count)| count).sum();
        let bytes = self.first.iter().chain(&self.standing).map(Vec::len);
        let bytes: usize = bytes.chain(self.answers.iter().map(|queued| queued.bytes.len())).sum();
        [
            ("asks for a link", self.asks.accounts()),
            ("ages of asks", [self.ages.len(), self.asks.len()]),
            ("channels that are asked for", [self.asked.len(), with_path(&self.asks)]),
            ("answers for a link", self.answers.accounts()),
            ("channels that are answered", [answered as usize, with_path(&self.answers)]),
            ("bytes for a link", [self.bytes, bytes]),
        ]
    }
    /// Number of waiting requests, including those to be refused, and of waiting replies.
    pub fn waiting(&self) -> [usize; 2] {
        [self.asks.len() + self.late.len(), self.answers.len()]
    }

    /// Moves messages into the stream, as many as the link sends soon.
    ///
    /// # Errors
    /// The stream has no room even for those.
    pub fn fill(&mut self, stream: &mut SendStream) -> Result<(), Full> {
        while stream.unsent() < SIGNAL_AHEAD_SEGMENTS
            && let Some(bytes) = self.next()
        {
            stream.push(&bytes)?;
        }
        Ok(())
    }
    fn next(&mut self) -> Option<Vec<u8>> {
        if let Some(bytes) = self.first.pop_front() {
            self.bytes -= bytes.len();
            return Some(bytes);
        }
        let waits = self.waits();
        let kind = self.shares.next(waits)?;
        let bytes = match kind {
            Kind::Standing => self.standing.pop_front(),
            Kind::Answers => self.next_answer(),
            Kind::Asks => self.next_ask(),
        }?;
        self.shares.spend(kind, bytes.len());
        if !matches!(kind, Kind::Asks) {
            self.bytes -= bytes.len();
        }
        Some(bytes)
    }
    fn next_answer(&mut self) -> Option<Vec<u8>> {
        let (_, queued) = self.answers.pop()?;
        let of_path = queued.path.and_then(|path| Some((path, &mut self.answered.get_mut(&path)?.1)));
        if let Some((path, count)) = of_path {
            *count -= 1;
            if *count == 0 {
                self.answered.remove(&path);
            }
        }
        Some(queued.bytes)
    }
    fn next_ask(&mut self) -> Option<Vec<u8>> {
        let (place, queued) = self.asks.pop()?;
        self.forget_ask(place, &queued);
        Some(queued.bytes)
    }

    /// Selects for refusal the requests that have waited for too long by `now`; the time before `met` does
    /// not count.
    pub fn handle_timeout(&mut self, met: Instant, now: Instant) {
        while let Some(place) = self.oldest().filter(|(due, _)| (*due).max(met + ASK_WAIT_MAX) <= now) {
            let queued = self.take_ask(place.1);
            self.late.extend(queued);
        }
    }
    fn oldest(&self) -> Option<(Instant, Place)> {
        let (number, (source, since)) = self.ages.first_key_value()?;
        Some((*since + ASK_WAIT_MAX, (*source, *number)))
    }
    /// Time at which a request has waited for too long.
    pub fn poll_timeout(&self, met: Instant) -> Option<Instant> {
        self.oldest().map(|(due, _)| due.max(met + ASK_WAIT_MAX))
    }
    /// Whether [`Self::poll_late`] has a request.
    pub fn has_late(&self) -> bool {
        !self.late.is_empty()
    }
    /// The next request that is to be refused.
    pub fn poll_late(&mut self) -> Option<Message> {
        Message::decode(&self.late.pop_front()?.bytes)
    }
}

/// The channel that a message is about, if the order of that channel's messages matters.
fn path_of(message: &Message) -> Option<PathId> {
    match message {
        Message::Create(create) => Some(create.path),
        Message::Accept { path, .. }
        | Message::Refuse { path, .. }
        | Message::Probed { path, .. }
        | Message::Confirm { path }
        | Message::Destroy { path, .. }
        | Message::Ended { path, .. }
        | Message::Passed { path, .. } => Some(*path),
        Message::Refresh { .. }
        | Message::LateArrivals(_)
        | Message::Stage(_)
        | Message::Request(_)
        | Message::RequestRefused { .. }
        | Message::Rate(_) => None,
    }
}
