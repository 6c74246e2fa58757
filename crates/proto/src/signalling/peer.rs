//! One neighbour: its identity and present life ([`Life`]: an epoch and a session), whether it is up, its
//! clock, and the reliable stream to it.
//!
//! A life of the neighbour is adopted only once it has echoed a nonce of ours: a recording of a former life
//! proves nothing. Adopting another life resets both streams. Giving the neighbour up does so too, and begins
//! a new session of ours. So the two ends always agree on the meaning of a stream's numbers.

use alloc::collections::VecDeque;

use punctual_analysis::mutation::{Mutation, active};
use punctual_analysis::{Instant, Nanos, Ppm};
use punctual_trial::{Defence, holds};

use super::clock::ClockFilter;
use super::message::Message;
use super::outbox::{CannotEncode, Outbox};
use super::packet::{Body, Echo, Hello, HelloStep, Key, Packet, VERSION};
use super::random::SplitMix64;
use super::reliable_stream::{ReceiveStream, SendStream};
use super::replay_window::ReplayWindow;
use super::source_turns::Source;
use crate::breach::Watch;
use crate::config::{LinkConfig, NodeConfig, SignallingConfig};
use crate::ids::{Life, NodeId, PathId};
use crate::limits::{
    HELLOS_MISSED_MAX, PROBES_BUDGET_DIVISOR, PROBES_PER_HELLO, SIGNAL_OVERHEAD_BYTES_MAX,
    SIGNAL_PACKET_BYTES_MIN, SIGNAL_WAITING_BYTES_MAX,
};
use crate::seal::SealKey;

/// HELLOs of ours that may still be echoed.
const NONCES: usize = 8;
/// Most HELLOs of unknown senders that are answered in an interval: they may be recordings.
const UNKNOWN_ANSWERED_PER_INTERVAL: u64 = 16;

/// How much more often HELLOs are sent to a neighbour from which none was received yet.
const AWAITED_PACE: u64 = 4;

/// Whether the neighbour is up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// No packet of the neighbour was received yet; messages to it wait.
    Awaited,
    Alive,
    Dead,
    /// The neighbour is up and uses another version: no message can be sent to it.
    Foreign(u8),
}

/// The effect of a packet, or of silence, on the neighbour's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// The neighbour has lost all messages and state from us, and we from it.
    Lost {
        /// True if it is another life of the node, and not only of the link.
        restarted: bool,
    },
}

/// Why an authentic packet was ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ignored {
    /// The packet is not from that neighbour to this node.
    Misdirected,
    /// The packet was received before, or belongs to a former life.
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
    last_received: Instant,
    met: NeighbourLife,
    send: SendStream,
    retransmits_max: u32,
    /// Messages that have no place in the stream yet.
    outbox: Outbox,
    /// True if the stream cannot be used any more.
    broken: bool,
    envelope: Envelope,
    hellos: Hellos,
    travel: Travel,
    reports: LinkReports,
}

/// Time and life of the last meeting with the neighbour.
#[derive(Debug)]
struct NeighbourLife {
    /// Time of the first packet of its present life.
    at: Instant,
    /// True if it was met in another life: the driver must get its key again.
    is_news: bool,
    /// Number of its lives that were met.
    lives: u32,
}

/// Envelope of the next packet to it.
#[derive(Debug)]
struct Envelope {
    number: u64,
    /// Seals the packets that we send in this life; `None` until it is needed.
    seal: Option<SealKey>,
    /// True if the next packet must acknowledge received segments, whatever else it carries.
    acknowledge: bool,
}

/// Times of HELLOs, and the nonces that prove freshness.
#[derive(Debug)]
struct Hellos {
    /// Tolerance of our clock, as HELLOs report it.
    tolerance: Ppm,
    interval: Nanos,
    due: Option<HelloStep>,
    at: Instant,
    /// Interval between probes, and in `probe_at` when the next is due while channels use the link.
    probe_interval: Nanos,
    probe_at: Instant,
    unknown_answered: Option<Instant>,
    /// Nonces of our HELLOs that may still be echoed, and when they were sent.
    nonces: VecDeque<(u64, Instant)>,
    /// The nonce that the next HELLO echoes.
    echo: Option<Echo>,
    random: SplitMix64,
}

/// The neighbour's clock, and the travel times of packets between the two drivers.
#[derive(Debug)]
struct Travel {
    clock: ClockFilter,
    /// Longest travel time of our packets to its driver; the longest of its packets to ours, as it reports.
    ours_max: Nanos,
    theirs_max: Nanos,
    /// Departure of its newest HELLO, on its clock.
    newest_sent: Option<Instant>,
    /// HELLOs of the neighbour that came later than allowed. They are evidence about the link that cannot be
    /// forged.
    watch: Watch,
    /// True while HELLOs may be late, because the link is filled on purpose.
    is_excused: bool,
}

/// Reports between the two nodes beside messages.
#[derive(Debug)]
struct LinkReports {
    /// Bytes received over the link, to be reported.
    received_bytes: u64,
    /// Bytes of ours that the neighbour has received, as it reports, and the time of that on its clock.
    their_received: Option<(u64, Instant)>,
    /// The other version that was received last, and its time.
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
            last_received: now,
            met: NeighbourLife { at: now, is_news: false, lives: 0 },
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
                unknown_answered: None,
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
            reports: LinkReports {
                received_bytes: 0,
                their_received: None,
                foreign: None,
                packets_foreign: 0,
            },
        }
    }

    pub const fn node(&self) -> NodeId {
        self.node
    }
    pub const fn clock(&self) -> &ClockFilter {
        &self.travel.clock
    }
    /// Longest travel time of its packets to our driver, as it reports.
    pub const fn travel_max(&self) -> Nanos {
        self.travel.theirs_max
    }
    /// HELLOs of the neighbour that came later than allowed.
    pub const fn watch(&self) -> &Watch {
        &self.travel.watch
    }
    pub const fn watch_mut(&mut self) -> &mut Watch {
        &mut self.travel.watch
    }
    /// Sets whether the neighbour's HELLOs may be late from now on: they may while the link is filled on
    /// purpose.
    pub const fn excuse(&mut self, is_excused: bool) {
        self.travel.is_excused = is_excused;
    }
    /// Sets the number of bytes received over the link, for the report to the neighbour.
    pub const fn set_received(&mut self, bytes: u64) {
        self.reports.received_bytes = bytes;
    }
    /// Bytes of ours that the neighbour has received, as it reports, and the time of that on its clock.
    pub const fn their_received(&self) -> Option<(u64, Instant)> {
        self.reports.their_received
    }
    /// Number of received packets of other versions.
    pub const fn packets_foreign(&self) -> u64 {
        self.reports.packets_foreign
    }
    /// Number of lives of the neighbour that were met.
    pub const fn lives(&self) -> u32 {
        self.met.lives
    }
    pub const fn presence(&self) -> Presence {
        self.presence
    }
    /// Whether messages can be queued for the neighbour.
    pub const fn is_reachable(&self) -> bool {
        self.listens() && !self.broken
    }
    /// Whether the neighbour receives messages, now or once it is up.
    const fn listens(&self) -> bool {
        matches!(self.presence, Presence::Awaited | Presence::Alive)
    }
    /// The version that the neighbour uses, if that prevents all messages to it.
    pub const fn foreign_version(&self) -> Option<u8> {
        match self.presence {
            Presence::Foreign(version) => Some(version),
            Presence::Awaited | Presence::Alive | Presence::Dead => None,
        }
    }
    /// True if no segment is unacknowledged and nothing waits to be sent, or if the neighbour is not up.
    pub fn is_quiet(&self) -> bool {
        self.send.is_empty() && self.outbox.is_empty() || self.presence != Presence::Alive
    }
    /// Handles everything that is due. `probes`: channels use the link, so its clock and its travel times
    /// matter.
    pub fn handle_timeout(&mut self, probes: bool, now: Instant) -> Option<Change> {
        if probes && self.presence == Presence::Alive && self.hellos.probe_at <= now {
            self.hellos.due.get_or_insert(HelloStep::Third);
            let quarter = self.hellos.probe_interval / 4;
            self.hellos.probe_at =
                now + (self.hellos.probe_interval - quarter / 2) + Nanos(self.hellos.random.below(quarter.0));
        }
        if self.hellos.at <= now {
            self.hellos.due = Some(HelloStep::First);
            // A lost HELLO must not make a neighbour that is up appear down.
            let eager = self.presence == Presence::Awaited && self.association.is_none();
            let interval = if eager { self.hellos.interval / AWAITED_PACE } else { self.hellos.interval };
            self.hellos.at = now + interval + Nanos(self.hellos.random.below(interval.0 / 8));
        }
        if self.presence == Presence::Alive {
            self.outbox.handle_timeout(self.met.at, now);
        }
        let unheard = self.send.handle_timeout(now, self.retransmits_max);
        let unheard = unheard.is_some_and(|since| self.last_received < since);
        if self.listens() && (self.silence_ends() <= now || unheard || self.broken) {
            return Some(self.give_up(now));
        }
        if self.foreign_version().is_some() && self.silence_ends() <= now {
            self.presence = Presence::Dead;
        }
        None
    }
    fn silence_ends(&self) -> Instant {
        self.last_received + self.silence()
    }
    fn silence(&self) -> Nanos {
        self.hellos.interval * (HELLOS_MISSED_MAX + 1)
    }
    fn give_up(&mut self, now: Instant) -> Change {
        // If the stream broke, the neighbour may well be up: contact it at once, in a new session.
        let lives = self.broken;
        let foreign = self.reports.foreign.filter(|(_, received)| now.since(*received) < self.silence());
        self.presence = match foreign {
            _ if lives => Presence::Awaited,
            Some((version, _)) => Presence::Foreign(version),
            None => Presence::Dead,
        };
        self.last_received = now;
        // The HELLO is the next packet, so no packet of the previous life is acknowledged (`after_packet`).
        self.hellos.due = Some(HelloStep::First);
        self.association = None;
        self.life.session = self.life.session.wrapping_add(1);
        self.envelope.seal = None;
        self.clear_outgoing();
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
}

/// Whether a packet of a neighbour belongs to its known life.
fn is_same(known: Life, life: Life) -> bool {
    known == life || active(Mutation::SessionNotCompared) && known.epoch == life.epoch
}

/// Interval between two probes of a neighbour. Probes take no more than their part of the signalling budget.
fn probe_interval(config: &SignallingConfig) -> Nanos {
    let packet = Nanos::from_secs(1) / u64::from(config.packets_per_second.max(1));
    (config.hello_interval / PROBES_PER_HELLO).max(packet * PROBES_BUDGET_DIVISOR)
}

mod receiving;
mod sending;
#[cfg(test)]
mod tests;
