//! When a message counts as arrived: logically at its source, effectively at every stage later (design 3).
//!
//! Each value belongs to one channel: [`LogicalArrivals`] to its source, one [`EffectiveArrivals`] to each stage
//! that takes packets from somebody else. Nothing here allocates; every call is constant time.
//! Invariant: the effective arrivals of successive messages lie at least I' apart, whatever comes in. It is all
//! that the admission of a stage relies on, so a neighbour that lies or floods harms nobody else.

use crate::contract::{Contract, Policing};
use crate::mutation::{Mutation, active};
use crate::units::{Instant, Nanos};

/// What the source does with a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SourceVerdict {
    /// It keeps the contract: served from `logical` on, due at `logical` + D.
    Conforming {
        /// l(i).
        logical: Instant,
    },
    /// It breaks the contract and waits for its logical arrival ([`Policing::Delay`]).
    Delayed {
        /// l(i).
        logical: Instant,
    },
    /// It breaks the contract and is thrown away ([`Policing::Drop`]).
    Dropped,
    /// It breaks the contract and travels as best effort ([`Policing::Demote`]).
    Demoted,
}

/// What messages after one that was seen late make up for, each, as a part of the interval: half of what I' leaves below
/// I, so that they are still more than I' apart by the next stage's clock.
const CATCH_UP: u64 = 256;

/// The regulator at the source: l(0) = t(0), l(i) = max(l(i-1) + I, t(i)) (HARTS 3.1), t when the application sent.
///
/// A message that its host saw late counts from then on ([`LogicalArrivals::accept_seen`]). The following ones come
/// I·(1 - 1/256) apart until they are back at their own l: else a host that once stood still would keep a sender at its
/// full rate waiting for good.
#[derive(Clone, Copy, Debug)]
pub struct LogicalArrivals {
    interval: Nanos,
    /// How far l may run ahead of t while "at most B + R·t messages in any t" holds: (B-1)·I.
    burst_tolerance: Nanos,
    latest: Option<Instant>,
    /// What the last message counted from: `latest`, or later.
    served: Instant,
    mean: Mean,
}

/// The regulator of a soft channel's mean: at most 1 + (t + over)/interval messages in any time t.
#[derive(Clone, Copy, Debug)]
struct Mean {
    interval: Nanos,
    over: Nanos,
    /// When the messages so far would have come at the mean rate, the next one included.
    due: Instant,
}

impl Mean {
    /// Of a hard channel: never in the way.
    const NONE: Self = Self { interval: Nanos::ZERO, over: Nanos::MAX, due: Instant::ZERO };
}

impl LogicalArrivals {
    /// A regulator for bursts of at most `burst_messages_max` with `interval` between messages.
    pub fn new(interval: Nanos, burst_messages_max: u32) -> Self {
        let burst_tolerance = interval * u64::from(burst_messages_max.saturating_sub(1));
        Self { interval, burst_tolerance, latest: None, served: Instant::ZERO, mean: Mean::NONE }
    }

    /// The regulator of a contract.
    pub fn of(contract: &Contract) -> Self {
        let mean = contract.statistical.map(|statistical| Mean {
            interval: statistical.mean_rate.interval(),
            over: statistical.mean_over,
            due: Instant::ZERO,
        });
        Self {
            mean: mean.unwrap_or(Mean::NONE),
            ..Self::new(contract.interval(), contract.burst_messages_max)
        }
    }

    /// l of a message sent at `sent`; changes nothing.
    pub fn peek(&self, sent: Instant) -> Instant {
        let logical = match self.latest {
            Some(latest) => sent.max(latest + self.interval),
            None => sent,
        };
        logical.max(self.mean.due - self.mean.over)
    }

    /// Whether a message sent at `sent` keeps "at most B + R·t messages in any t"; changes nothing.
    ///
    /// With l(j) = t(k) + (j-k)·I since the last time the regulator was idle, l(j) - t(j) <= (B-1)·I says
    /// exactly j-k+1 <= B + R·(t(j)-t(k)).
    pub fn conforms(&self, sent: Instant) -> bool {
        self.peek(sent).since(sent) <= self.burst_tolerance
    }

    /// Takes a message in. One that is dropped or demoted does not count against later ones.
    pub fn accept(&mut self, sent: Instant, policing: Policing) -> SourceVerdict {
        self.accept_seen(sent, Instant::ZERO, policing)
    }

    /// The same for a message that the host may serve from `earliest` on at the earliest, whenever it was sent.
    pub fn accept_seen(&mut self, sent: Instant, earliest: Instant, policing: Policing) -> SourceVerdict {
        let (own, conforms) = (self.peek(sent), self.conforms(sent));
        let apart = self.served + (self.interval - Nanos(self.interval.0 / CATCH_UP));
        let logical = own.max(earliest).max(self.latest.map_or(own, |_| apart));
        match (conforms, policing) {
            (false, Policing::Drop) => return SourceVerdict::Dropped,
            (false, Policing::Demote) => return SourceVerdict::Demoted,
            _ => (self.latest, self.served) = (Some(own), logical),
        }
        self.mean.due = self.mean.due.max(logical) + self.mean.interval;
        if conforms { SourceVerdict::Conforming { logical } } else { SourceVerdict::Delayed { logical } }
    }
}

/// A packet as a stage receives it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// The number of its message in the channel.
    pub message: u64,
    /// Its size on the wire, headers included, in the bytes that `wire_bytes_max` counts.
    pub wire_bytes: u32,
    /// n(k): the receive time plus the slack that the packet carries.
    pub nominal: Instant,
    /// The driver's receive time.
    pub received: Instant,
}

/// What a stage makes of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It keeps the contract: ready from `effective` less the horizon, due at `effective` + d(k).
    Accepted {
        /// e.
        effective: Instant,
    },
    /// It goes to best effort; it has not moved e.
    Demoted,
}

/// The e-chain of design 3, "Trust nobody": for one channel at one stage.
///
/// m = max(n, received); c = largest e accepted of the previous message + I'. Demoted if received > n + J, or
/// c > m + J, or an earlier packet of the message was demoted; else e = max(m, c, e of the packet before it).
/// Packets beyond the contract's count or bytes under one number are the next message, and so is every change
/// of number, forwards or backwards.
#[derive(Clone, Copy, Debug)]
pub struct EffectiveArrivals {
    period: Nanos,
    jitter: Option<Nanos>,
    packets_max: u32,
    wire_bytes_max: u64,
    early_max: Option<Nanos>,
    /// Largest e accepted before the current message.
    previous: Option<Instant>,
    current: Option<Message>,
}

/// The message that is coming in.
#[derive(Clone, Copy, Debug)]
struct Message {
    number: u64,
    packets: u32,
    wire_bytes: u64,
    /// Largest e accepted of it: e never falls within a message.
    effective: Option<Instant>,
    demoted: bool,
}

impl EffectiveArrivals {
    /// `period` is I'; `jitter` is J(k), or `None` for a stage inside the same host as the one before, where
    /// nothing is demoted; `packets_max` and `wire_bytes_max` bound what one message number may carry.
    pub fn new(period: Nanos, jitter: Option<Nanos>, packets_max: u32, wire_bytes_max: u64) -> Self {
        let (previous, current) = (None, None);
        Self { period, jitter, packets_max, wire_bytes_max, early_max: None, previous, current }
    }

    /// Also demotes packets whose n lies more than `early_max` + J ahead of their receive time.
    ///
    /// With `early_max` = D no honest packet does: it left its source at l or later and n <= l + D. Without it
    /// a neighbour that lies about slack could push e, and its channel, arbitrarily far into the future, and
    /// the recovery bound D + 2·I + 129·J would not hold.
    #[must_use]
    pub fn with_early_max(mut self, early_max: Nanos) -> Self {
        self.early_max = Some(early_max);
        self
    }

    /// Takes the next packet in.
    pub fn accept(&mut self, packet: &Arrival) -> Verdict {
        let mut message = self.enter(packet);
        let verdict = self.judge(&message, packet);
        match verdict {
            Verdict::Accepted { effective } => message.effective = Some(effective),
            Verdict::Demoted => message.demoted = true,
        }
        self.current = Some(message);
        verdict
    }

    /// The message that `packet` belongs to, with the packet counted.
    fn enter(&mut self, packet: &Arrival) -> Message {
        let bytes = u64::from(packet.wire_bytes);
        match self.current {
            Some(message) if self.belongs(&message, packet) => {
                Message { packets: message.packets + 1, wire_bytes: message.wire_bytes + bytes, ..message }
            }
            ended => {
                self.previous = ended.and_then(|message| message.effective).or(self.previous);
                let (packets, wire_bytes) = (1, bytes);
                Message { number: packet.message, packets, wire_bytes, effective: None, demoted: false }
            }
        }
    }

    fn belongs(&self, message: &Message, packet: &Arrival) -> bool {
        let fits = message.packets < self.packets_max
            && message.wire_bytes + u64::from(packet.wire_bytes) <= self.wire_bytes_max;
        message.number == packet.message && (fits || active(Mutation::PolicedByNumberAlone))
    }

    fn judge(&self, message: &Message, packet: &Arrival) -> Verdict {
        let reached = packet.nominal.max(packet.received);
        let chain = self.previous.map_or(Instant::ZERO, |previous| previous + self.period);
        if let Some(jitter) = self.jitter {
            let late = packet.received > packet.nominal + jitter;
            let too_soon = chain > reached + jitter;
            let oversized = u64::from(packet.wire_bytes) > self.wire_bytes_max || self.packets_max == 0;
            if late || too_soon || oversized || message.demoted || self.lies_ahead(packet, jitter) {
                return Verdict::Demoted;
            }
        }
        Verdict::Accepted { effective: reached.max(chain).max(message.effective.unwrap_or(Instant::ZERO)) }
    }

    fn lies_ahead(&self, packet: &Arrival, jitter: Nanos) -> bool {
        self.early_max.is_some_and(|early| packet.nominal.since(packet.received) > early + jitter)
    }
}
