//! One neighbour: who it is in which life, whether it lives, its clock, and the reliable stream to it.
//!
//! A life of the neighbour is adopted only once it has echoed a nonce of ours: a recording of a former life
//! proves nothing. Adopting another life throws both streams away, and so does giving the neighbour up, which
//! begins a new session of ours: the two ends never disagree on what a stream's numbers mean.

use alloc::collections::VecDeque;

use punctual_analysis::mutation::{Mutation, active};
use punctual_analysis::{Instant, Nanos, Ppm};
use punctual_trial::{Defence, holds};

use super::clock::ClockFilter;
use super::fair::Source;
use super::message::Message;
use super::outbox::{Outbox, Unsayable};
use super::packet::{Body, Echo, Hello, HelloStep, Key, Packet, VERSION};
use super::random::SplitMix64;
use super::stream::{ReceiveStream, SendStream};
use super::window::ReplayWindow;
use crate::config::{LinkConfig, NodeConfig, SignallingConfig};
use crate::ids::{Life, NodeId, PathId};
use crate::limits::{
    HELLOS_MISSED_MAX, PROBES_BUDGET_DIVISOR, PROBES_PER_HELLO, SIGNAL_OVERHEAD_BYTES_MAX,
    SIGNAL_PACKET_BYTES_MIN, SIGNAL_WAITING_BYTES_MAX,
};
use crate::seal::SealKey;
use crate::watch::Watch;

/// HELLOs of ours that may still be echoed.
const NONCES: usize = 8;
/// Strangers' HELLOs are answered at most so many times in an interval: they may be recordings.
const STRANGERS_PER_INTERVAL: u64 = 16;

/// How much more often a HELLO is sent to a neighbour that has not been heard yet.
const AWAITED_PACE: u64 = 4;

/// Whether the neighbour is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// Not heard of yet; what is said to it waits.
    Awaited,
    Alive,
    Dead,
    /// It is there and speaks another version: nothing can be said to it.
    Foreign(u8),
}

/// What a packet, or the lack of one, changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// All that the neighbour had from us, and we from it, is gone there.
    Lost {
        /// It is another life of the node, not only of the link.
        restarted: bool,
    },
}

/// What was wrong with a packet that authenticated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ignored {
    /// Not from that neighbour to us.
    Misdirected,
    /// Seen before, or of a former life.
    Replayed,
}

#[derive(Debug)]
struct Association {
    life: Life,
    window: ReplayWindow,
    stream: ReceiveStream,
}

/// A neighbour at the other end of a link.
#[derive(Debug)]
pub struct Peer {
    here: NodeId,
    node: NodeId,
    life: Life,
    association: Option<Association>,
    presence: Presence,
    last_heard: Instant,
    met: Met,
    send: SendStream,
    retransmits_max: u32,
    /// What has no place in the stream yet.
    outbox: Outbox,
    /// The stream is of no use any more.
    broken: bool,
    envelope: Envelope,
    hellos: Hellos,
    travel: Travel,
    told: Told,
}

/// How it was met.
#[derive(Debug)]
struct Met {
    /// When it was there first in its present life.
    at: Instant,
    /// It was met in another life: its driver's key is to be told anew.
    is_news: bool,
    /// Lives of it that were met.
    lives: u32,
}

/// What the next packet to it is sent with.
#[derive(Debug)]
struct Envelope {
    number: u64,
    /// Seals what we send in this life; `None` until it is needed.
    seal: Option<SealKey>,
    /// It says what has come, whatever else it says.
    acknowledge: bool,
}

/// When HELLOs are sent, and what makes each one fresh.
#[derive(Debug)]
struct Hellos {
    /// Of our clock, as they say.
    tolerance: Ppm,
    interval: Nanos,
    due: Option<HelloStep>,
    at: Instant,
    /// Between probes, and when the next is due while channels use the link.
    probe_interval: Nanos,
    probe_at: Instant,
    stranger_answered: Option<Instant>,
    /// Those of ours that may be echoed, and when they were sent.
    nonces: VecDeque<(u64, Instant)>,
    /// What the next one echoes.
    echo: Option<Echo>,
    random: SplitMix64,
}

/// The neighbour's clock, and what packets take between the two drivers.
#[derive(Debug)]
struct Travel {
    clock: ClockFilter,
    /// What our packets take to its driver at most; what its packets take to ours, as it says.
    ours_max: Nanos,
    theirs_max: Nanos,
    /// When its newest HELLO left, on its clock.
    newest_sent: Option<Instant>,
    /// Its HELLOs that came later than they may: what the link here does, by packets that nobody can forge.
    watch: Watch,
    /// They may be late now: somebody fills the link on purpose.
    is_excused: bool,
}

/// What the two tell each other beside messages.
#[derive(Debug)]
struct Told {
    /// What came in over the link, to be told.
    received_bytes: u64,
    /// What of ours came in there, as it says, and when on its clock.
    their_received: Option<(u64, Instant)>,
    /// The other version that came last, and when.
    foreign: Option<(u8, Instant)>,
    /// Packets of other versions.
    packets_foreign: u64,
}

impl Peer {
    pub fn new(config: &NodeConfig, link: &LinkConfig, seed: u64, now: Instant) -> Self {
        let packet_bytes = (link.signal_bytes_max() as usize).max(SIGNAL_PACKET_BYTES_MIN);
        let drift = super::budget::drift(config);
        Self {
            here: config.id,
            node: link.neighbour,
            life: Life { epoch: config.epoch, session: 0 },
            association: None,
            presence: Presence::Awaited,
            last_heard: now,
            met: Met { at: now, is_news: false, lives: 0 },
            send: SendStream::new(packet_bytes - SIGNAL_OVERHEAD_BYTES_MAX, config.signalling.retransmit),
            retransmits_max: config.signalling.retransmits_max,
            outbox: Outbox::default(),
            broken: false,
            envelope: Envelope { number: 0, seal: None, acknowledge: false },
            hellos: Hellos {
                tolerance: config.clock_tolerance,
                interval: config.signalling.hello_interval,
                due: None,
                at: now,
                probe_interval: probe_interval(&config.signalling),
                probe_at: now,
                stranger_answered: None,
                nonces: VecDeque::new(),
                echo: None,
                random: SplitMix64::new(seed),
            },
            travel: Travel {
                clock: ClockFilter::new(link.propagation_min, drift),
                ours_max: link.propagation_max + link.prediction_error,
                theirs_max: Nanos::MAX,
                newest_sent: None,
                watch: Watch::default(),
                is_excused: false,
            },
            told: Told { received_bytes: 0, their_received: None, foreign: None, packets_foreign: 0 },
        }
    }

    pub const fn node(&self) -> NodeId {
        self.node
    }
    pub const fn clock(&self) -> &ClockFilter {
        &self.travel.clock
    }
    /// What its packets take to our driver at most, as it says.
    pub const fn travel_max(&self) -> Nanos {
        self.travel.theirs_max
    }
    /// Its HELLOs that came later than they may.
    pub const fn watch(&self) -> &Watch {
        &self.travel.watch
    }
    pub const fn watch_mut(&mut self) -> &mut Watch {
        &mut self.travel.watch
    }
    /// Its HELLOs may be late from now on, or may not: somebody fills the link on purpose.
    pub const fn excuse(&mut self, is_excused: bool) {
        self.travel.is_excused = is_excused;
    }
    /// What came in over the link, to be told.
    pub const fn set_received(&mut self, bytes: u64) {
        self.told.received_bytes = bytes;
    }
    /// What of ours came in there, as it says, and when on its clock.
    pub const fn their_received(&self) -> Option<(u64, Instant)> {
        self.told.their_received
    }
    /// Packets of other versions that came.
    pub const fn packets_foreign(&self) -> u64 {
        self.told.packets_foreign
    }
    /// Lives of it that were met.
    pub const fn lives(&self) -> u32 {
        self.met.lives
    }
    pub const fn presence(&self) -> Presence {
        self.presence
    }
    /// Whether it is worth saying something to it.
    pub const fn is_reachable(&self) -> bool {
        self.listens() && !self.broken
    }
    /// Whether it hears what is said to it, now or once it is there.
    const fn listens(&self) -> bool {
        matches!(self.presence, Presence::Awaited | Presence::Alive)
    }
    /// The version that it speaks, where nothing can be said to it for that.
    pub const fn foreign_version(&self) -> Option<u8> {
        match self.presence {
            Presence::Foreign(version) => Some(version),
            Presence::Awaited | Presence::Alive | Presence::Dead => None,
        }
    }
    /// Whether all that was said was heard, or nobody is there to hear it.
    pub fn is_quiet(&self) -> bool {
        self.send.is_empty() && self.outbox.is_empty() || self.presence != Presence::Alive
    }
    /// Says something that is neither an answer nor an ask; to the dead, nothing. Where too much waits, or a message
    /// does not encode, the neighbour is given up at the next timeout: half a conversation would be worse.
    pub fn say(&mut self, message: &Message) {
        self.put(|outbox| outbox.say(message));
    }
    /// Answers what `source` asked.
    pub fn answer(&mut self, source: Source, message: &Message) {
        self.put(|outbox| outbox.answer(source, message));
    }
    /// Asks what `source` wants, when it is its turn; see [`Self::takes`].
    pub fn ask(&mut self, source: Source, message: &Message, now: Instant) {
        self.put(|outbox| outbox.ask(source, message, now));
    }
    fn put(&mut self, into: impl FnOnce(&mut Outbox) -> Result<(), Unsayable>) {
        if !self.listens() {
            return;
        }
        self.broken |= into(&mut self.outbox).is_err() || self.outbox.bytes() > SIGNAL_WAITING_BYTES_MAX;
        self.fill();
    }
    fn fill(&mut self) {
        self.broken |= self.outbox.fill(&mut self.send).is_err();
    }

    /// Whether something new may be begun over it: half of what may wait is kept for what ends.
    pub const fn has_room(&self) -> bool {
        self.outbox.bytes() < SIGNAL_WAITING_BYTES_MAX / 2
    }
    /// Whether `source` may ask for one more.
    pub fn takes(&self, source: Source) -> bool {
        self.has_room() && self.outbox.takes(source)
    }
    /// Takes back the CREATE of a channel that was not sent yet.
    pub fn withdraw(&mut self, path: PathId) {
        self.outbox.withdraw(path);
    }
    /// The next ask that has waited for too long.
    pub fn poll_late(&mut self) -> Option<Message> {
        self.outbox.poll_late()
    }
    /// What waits for it and has no place in the stream yet.
    pub const fn outbox(&self) -> &Outbox {
        &self.outbox
    }
    /// Answers that were not given: too many waited.
    pub const fn answers_dropped(&self) -> u64 {
        self.outbox.answers_dropped()
    }
    fn forget_said(&mut self) {
        self.send.clear();
        self.outbox.clear();
        self.broken = false;
    }

    /// Takes an authentic packet in. Messages are then read with [`Self::next_message`].
    pub fn handle(
        &mut self,
        packet: &Packet<'_>,
        received: Instant,
        now: Instant,
    ) -> Result<Option<Change>, Ignored> {
        if packet.from != self.node || packet.to != self.here {
            return Err(Ignored::Misdirected);
        }
        let change = match &mut self.association {
            Some(known) if is_same(known.life, packet.life) => {
                if !known.window.take(packet.number) && holds(Defence::ReplayWindow) {
                    return Err(Ignored::Replayed);
                }
                None
            }
            _ => self.meet(packet, received, now)?,
        };
        if self.association.as_ref().is_some_and(|known| is_same(known.life, packet.life)) {
            self.last_heard = self.last_heard.max(now);
            self.take_in(packet, received, now);
        }
        Ok(change)
    }

    /// A member of the domain speaks another `version`. Where the neighbour is heard in ours as well, its silence
    /// decides: this may be a recording of what it was before.
    pub fn handle_foreign(&mut self, version: u8, now: Instant) -> Option<Change> {
        self.told.packets_foreign += 1;
        self.told.foreign = Some((version, now));
        let awaited = match self.presence {
            Presence::Alive => return None,
            Presence::Awaited => true,
            Presence::Dead | Presence::Foreign(_) => false,
        };
        self.presence = Presence::Foreign(version);
        self.last_heard = now;
        // Nothing of it has left yet: before a neighbour is met only HELLOs do.
        self.forget_said();
        awaited.then_some(Change::Lost { restarted: false })
    }

    /// A packet of a life that is not the one we know.
    fn meet(
        &mut self,
        packet: &Packet<'_>,
        received: Instant,
        now: Instant,
    ) -> Result<Option<Change>, Ignored> {
        let Body::Hello(hello) = packet.body else { return Err(Ignored::Replayed) };
        let fresh =
            hello.echo.is_some_and(|echo| self.hellos.nonces.iter().any(|(nonce, _)| *nonce == echo.nonce));
        if fresh {
            return Ok(self.adopt(packet, now));
        }
        // An answer that comes too late begins nothing: two ends that are slow would answer each other's answers for ever,
        // each too late again, and have no time for anything else.
        if hello.step != HelloStep::First {
            return Err(Ignored::Replayed);
        }
        let gap = self.hellos.interval / STRANGERS_PER_INTERVAL;
        if self.hellos.stranger_answered.is_some_and(|last| now.since(last) < gap) {
            return Err(Ignored::Replayed);
        }
        self.hellos.stranger_answered = Some(now);
        self.hellos.echo = Some(Echo { nonce: hello.nonce, received });
        self.hellos.due = Some(HelloStep::Second);
        Ok(None)
    }

    fn adopt(&mut self, packet: &Packet<'_>, now: Instant) -> Option<Change> {
        let window = ReplayWindow::starting_at(packet.number);
        let stream = ReceiveStream::default();
        let former = self.association.replace(Association { life: packet.life, window, stream });
        self.presence = Presence::Alive;
        self.met.is_news = true;
        self.met.at = now;
        self.met.lives = self.met.lives.wrapping_add(1);
        self.told.their_received = None;
        self.told.foreign = None;
        let former = former?;
        self.forget_said();
        self.travel.clock.clear();
        self.travel.newest_sent = None;
        Some(Change::Lost { restarted: former.life.epoch != packet.life.epoch })
    }

    /// A fresh packet of the life that we know.
    fn take_in(&mut self, packet: &Packet<'_>, received: Instant, now: Instant) {
        if packet.peer_life == Some(self.life) {
            self.send.acknowledge(packet.received);
        }
        match packet.body {
            Body::Hello(hello) => self.take_hello(&hello, received, now),
            Body::Segment { number, bytes } if packet.peer_life == Some(self.life) => {
                self.envelope.acknowledge = true;
                if let Some(known) = &mut self.association {
                    known.stream.take(number, bytes);
                }
            }
            Body::Segment { .. } | Body::Acknowledgement => {}
        }
    }

    fn take_hello(&mut self, hello: &Hello, received: Instant, now: Instant) {
        self.travel.clock.set_tolerance(Ppm(self.hellos.tolerance.0.saturating_add(hello.tolerance.0)));
        let breaks = self.travel.clock.breaks();
        self.travel.clock.heard(hello.sent, received);
        if self.told.their_received.is_none_or(|(_, at)| at < hello.sent) {
            self.told.their_received = Some((hello.received_bytes, hello.sent));
        }
        if let Some((sent, echo)) = hello.echo.and_then(|echo| Some((self.echoed(echo.nonce)?, echo))) {
            self.travel.clock.echoed(sent, echo.received);
            self.travel.clock.exchanged(received.since(sent), hello.sent.since(echo.received));
        }
        if self.travel.clock.breaks() != breaks {
            // What was judged by a clock that was stepped meanwhile proves nothing.
            self.travel.watch.forget_recent();
        }
        self.judge_travel(hello, received, now);
        self.travel.theirs_max = hello.travel_max;
        self.hellos.echo = Some(Echo { nonce: hello.nonce, received });
        match hello.step {
            HelloStep::First => {
                self.hellos.due = Some(HelloStep::Second);
                // Whoever began keeps beginning: one exchange an interval serves both ends.
                let eighth = self.hellos.interval / 8;
                self.hellos.at =
                    now + self.hellos.interval + eighth + Nanos(self.hellos.random.below(eighth.0));
            }
            HelloStep::Second => self.hellos.due = Some(HelloStep::Third),
            HelloStep::Third => {}
        }
    }

    /// When the HELLO of ours was sent that has `nonce`; it cannot be echoed again.
    fn echoed(&mut self, nonce: u64) -> Option<Instant> {
        let index = self.hellos.nonces.iter().position(|(known, _)| *known == nonce)?;
        let (_, sent) = self.hellos.nonces[index];
        // Older ones could only be echoed by a recording, or by what was overtaken.
        self.hellos.nonces.drain(..=index);
        Some(sent)
    }

    /// Whether a HELLO came later than what its sender said of its departure and of the link: surely, whatever its clock.
    /// One that was sent before another that came already proves nothing: who has the domain's key can send it again.
    fn judge_travel(&mut self, hello: &Hello, received: Instant, now: Instant) {
        if self.travel.newest_sent.is_some_and(|newest| hello.sent <= newest) {
            return;
        }
        self.travel.newest_sent = Some(hello.sent);
        if self.travel.clock.is_doubted() {
            return;
        }
        let Some(clock) = self.travel.clock.offset(received) else { return };
        let due = clock.to_ours(hello.sent) + hello.departure + hello.travel_max + clock.error;
        if received > due && !self.travel.is_excused {
            self.travel.watch.late(received.since(due), now);
        }
    }

    /// The next message of the neighbour. Garbage gives the neighbour up.
    pub fn next_message(&mut self) -> Option<Message> {
        let bytes = match self.association.as_mut()?.stream.next_message() {
            Ok(bytes) => bytes?,
            Err(_) => {
                self.broken = true;
                return None;
            }
        };
        let message = Message::decode(&bytes);
        self.broken |= message.is_none();
        message
    }

    /// What is due by itself. `probes`: channels use the link, so its clock and its travel times matter.
    pub fn handle_timeout(&mut self, probes: bool, now: Instant) -> Option<Change> {
        if probes && self.presence == Presence::Alive && self.hellos.probe_at <= now {
            self.hellos.due.get_or_insert(HelloStep::Third);
            let quarter = self.hellos.probe_interval / 4;
            self.hellos.probe_at =
                now + (self.hellos.probe_interval - quarter / 2) + Nanos(self.hellos.random.below(quarter.0));
        }
        if self.hellos.at <= now {
            self.hellos.due = Some(HelloStep::First);
            // Loss must not make a neighbour that is there look absent.
            let eager = self.presence == Presence::Awaited && self.association.is_none();
            let interval = if eager { self.hellos.interval / AWAITED_PACE } else { self.hellos.interval };
            self.hellos.at = now + interval + Nanos(self.hellos.random.below(interval.0 / 8));
        }
        if self.presence == Presence::Alive {
            self.outbox.handle_timeout(self.met.at, now);
        }
        let unheard = self.send.handle_timeout(now, self.retransmits_max);
        let unheard = unheard.is_some_and(|since| self.last_heard < since);
        if self.listens() && (self.silence_ends() <= now || unheard || self.broken) {
            return Some(self.give_up(now));
        }
        if self.foreign_version().is_some() && self.silence_ends() <= now {
            self.presence = Presence::Dead;
        }
        None
    }
    fn silence_ends(&self) -> Instant {
        self.last_heard + self.silence()
    }
    fn silence(&self) -> Nanos {
        self.hellos.interval * (HELLOS_MISSED_MAX + 1)
    }
    fn give_up(&mut self, now: Instant) -> Change {
        // Where the stream broke the neighbour may well be there: say so at once, under a new session.
        let lives = self.broken;
        let foreign = self.told.foreign.filter(|(_, heard)| now.since(*heard) < self.silence());
        self.presence = match foreign {
            _ if lives => Presence::Awaited,
            Some((version, _)) => Presence::Foreign(version),
            None => Presence::Dead,
        };
        self.last_heard = now;
        self.hellos.due = Some(HelloStep::First);
        self.association = None;
        self.life.session = self.life.session.wrapping_add(1);
        self.envelope.seal = None;
        self.forget_said();
        self.envelope.acknowledge = false;
        self.hellos.nonces.clear();
        self.hellos.echo = None;
        self.travel.clock.clear();
        self.travel.newest_sent = None;
        Change::Lost { restarted: false }
    }
    /// See [`Self::handle_timeout`].
    pub fn poll_timeout(&self, probes: bool) -> Instant {
        if self.broken || self.outbox.has_late() {
            return Instant::ZERO;
        }
        let probe = (probes && self.presence == Presence::Alive).then_some(self.hellos.probe_at);
        let silence = (self.presence != Presence::Dead).then(|| self.silence_ends());
        let again = self.association.as_ref().and_then(|_| self.send.poll_timeout());
        let is_there = self.presence == Presence::Alive;
        let late = is_there.then(|| self.outbox.poll_timeout(self.met.at)).flatten();
        [silence, again, probe, late].into_iter().flatten().fold(self.hellos.at, Instant::min)
    }

    pub fn has_packet(&self) -> bool {
        self.hellos.due.is_some()
            || self.association.is_some() && (self.envelope.acknowledge || self.send.has_due())
    }
    /// The next packet, whose last bit leaves at `departure` at the latest; how long it is and whether it is a
    /// retransmission.
    pub fn poll_packet(
        &mut self,
        key: &Key,
        now: Instant,
        departure: Instant,
        out: &mut [u8],
    ) -> Option<(usize, bool)> {
        if let Some(step) = self.hellos.due {
            let nonce = self.hellos.random.next();
            let hello = Hello {
                step,
                nonce,
                sent: now,
                echo: self.hellos.echo,
                tolerance: self.hellos.tolerance,
                departure: match active(Mutation::HelloWithoutDeparture) {
                    true => Nanos::ZERO,
                    false => departure.since(now),
                },
                travel_max: self.travel.ours_max,
                received_bytes: self.told.received_bytes,
            };
            let seal = self.seal(key);
            let len = key.write(&self.packet(Body::Hello(hello)), &seal, out)?;
            self.hellos.due = None;
            self.hellos.echo = None;
            if self.hellos.nonces.len() == NONCES {
                self.hellos.nonces.pop_front();
            }
            self.hellos.nonces.push_back((nonce, now));
            self.after_packet();
            return Some((len, false));
        }
        self.association.as_ref()?;
        let seal = self.seal(key);
        if let Some((number, bytes)) = self.send.due() {
            let len = key.write(&self.packet(Body::Segment { number, bytes }), &seal, out)?;
            let again = self.send.sent(number, now);
            self.fill();
            self.after_packet();
            return Some((len, again));
        }
        if !self.envelope.acknowledge {
            return None;
        }
        let len = key.write(&self.packet(Body::Acknowledgement), &seal, out)?;
        self.after_packet();
        Some((len, false))
    }
    /// The key of our seals.
    fn seal(&mut self, key: &Key) -> SealKey {
        let (from, to, life) = (self.here, self.node, self.life);
        *self.envelope.seal.get_or_insert_with(|| key.seal_key(from, to, life))
    }
    /// The key of the neighbour's seals, once each time that it was met.
    pub fn poll_seal(&mut self, key: &Key) -> Option<SealKey> {
        let met = core::mem::take(&mut self.met.is_news);
        let life = self.association.as_ref().filter(|_| met)?.life;
        Some(key.seal_key(self.node, self.here, life))
    }
    const fn after_packet(&mut self) {
        self.envelope.number += 1;
        self.envelope.acknowledge = false;
    }
    fn packet<'a>(&self, body: Body<'a>) -> Packet<'a> {
        Packet {
            version: VERSION,
            from: self.here,
            to: self.node,
            life: self.life,
            peer_life: self.association.as_ref().map(|known| known.life),
            number: self.envelope.number,
            received: self.association.as_ref().map(|known| known.stream.received()).unwrap_or_default(),
            body,
        }
    }
}

/// Whether what comes from a neighbour belongs to the life of it that is known.
fn is_same(known: Life, life: Life) -> bool {
    known == life || active(Mutation::SessionNotCompared) && known.epoch == life.epoch
}

/// Between two probes of a neighbour: no more than their part of the signalling budget.
fn probe_interval(config: &SignallingConfig) -> Nanos {
    let packet = Nanos::from_secs(1) / u64::from(config.packets_per_second.max(1));
    (config.hello_interval / PROBES_PER_HELLO).max(packet * PROBES_BUDGET_DIVISOR)
}

#[cfg(test)]
mod tests;
