//! Arrival times of messages: logical at the source, effective at every later stage (ARCHITECTURE, Terms).
//!
//! Each value belongs to one channel: [`LogicalArrivals`] to its source, one [`EffectiveArrivals`] to each
//! stage that receives packets from another host, one [`ArrivalsWithin`] to each behind a stage of the same
//! host. Nothing allocates after construction; every call is constant time. Invariant: the effective arrivals
//! of successive messages are at least I' apart, whatever packets arrive. The admission of a stage relies
//! only on that, so a neighbour that forges values or floods affects no other channel.

use alloc::boxed::Box;

use crate::contract::{Contract, Policing};
use crate::mutation::{Mutation, active};
use crate::units::{Instant, Nanos};

/// Decision of the source about a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SourceVerdict {
    /// The message keeps the contract. It is served from `logical` on and is due at `logical` + D.
    Conforming {
        /// l(i).
        logical: Instant,
    },
    /// The message breaks the contract and waits for its logical arrival ([`Policing::Delay`]).
    Delayed {
        /// l(i).
        logical: Instant,
    },
    /// The message breaks the contract and is dropped ([`Policing::Drop`]).
    Dropped,
    /// The message breaks the contract and travels as best effort ([`Policing::Demote`]).
    Demoted,
}

/// Part of the interval by which each message after a late one catches up: half of the difference between I
/// and I'. The other half is for differences of clocks (rho), and lets later stages catch up in the same way.
pub const CATCH_UP: u64 = 256;

/// The regulator at the source: l(0) = t(0), l(i) = max(l(i-1) + I·(1 - 1/256), t(i)), t when the application
/// sent (HARTS 3.1 has I; ADR 0029).
///
/// A sender that sends at its full rate by the clock and is late once returns to its own times soon: with I
/// between logical arrivals it would keep the largest lateness forever. For the same reason a message that
/// its host sees late counts from that time on ([`LogicalArrivals::accept_seen`]), and later ones catch up in
/// the same way.
#[derive(Clone, Debug)]
pub struct LogicalArrivals {
    /// Spacing of logical arrivals: I·(1 - 1/256).
    spacing: Nanos,
    /// How far l may run ahead of t within the contract: (B-1)·I and the jitter allowance a.
    tolerance: Nanos,
    /// Earliest l of the next message by its sender's behaviour: one spacing after the last message's own l.
    next: Instant,
    /// Earliest time from which the next message is served: one spacing after the time that the last message
    /// counted from, which was its own l or later. 0 before the first message.
    served_next: Instant,
    /// Regulator of a soft channel's mean rate; `None` for a hard channel.
    mean: Option<Box<Mean>>,
}

/// The regulator of a soft channel's mean: at most 1 + (t + over)/interval messages in any time t.
#[derive(Clone, Copy, Debug)]
struct Mean {
    interval: Nanos,
    over: Nanos,
    /// Time at which the messages so far would have arrived at the mean rate, the next one included.
    due: Instant,
}

impl LogicalArrivals {
    /// A regulator for bursts of at most `burst_messages_max` with `interval` between messages, without a jitter allowance.
    pub fn new(interval: Nanos, burst_messages_max: u32) -> Self {
        Self {
            spacing: interval - Nanos(interval.0 / CATCH_UP),
            tolerance: interval * u64::from(burst_messages_max.saturating_sub(1)),
            next: Instant::ZERO,
            served_next: Instant::ZERO,
            mean: None,
        }
    }

    /// The regulator of a contract.
    pub fn of(contract: &Contract) -> Self {
        let mean = contract.statistical.map(|statistical| {
            let (interval, over) = (statistical.mean_rate.interval(), statistical.mean_over);
            Box::new(Mean { interval, over, due: Instant::ZERO })
        });
        let plain = Self::new(contract.interval(), contract.burst_messages_max);
        Self { mean, tolerance: plain.tolerance + contract.jitter_allowance(), ..plain }
    }

    /// l of a message sent at `sent`; does not change the state.
    pub fn peek(&self, sent: Instant) -> Instant {
        let by_mean = self.mean.as_ref().map_or(Instant::ZERO, |mean| mean.due - mean.over);
        sent.max(self.next).max(by_mean)
    }

    /// Whether a message sent at `sent` keeps the contract; changes nothing.
    ///
    /// With l(j) = t(k) + (j-k)·I since the last time the regulator was idle, l(j) - t(j) <= (B-1)·I + a says
    /// exactly j-k+1 <= B + R·(t(j)-t(k) + a). The spacing makes R 1/255 larger.
    pub fn conforms(&self, sent: Instant) -> bool {
        self.peek(sent).since(sent) <= self.tolerance
    }

    /// Takes a message. A dropped or demoted message does not count against later ones.
    pub fn accept(&mut self, sent: Instant, policing: Policing) -> SourceVerdict {
        self.accept_seen(sent, Instant::ZERO, policing)
    }

    /// Takes a message like [`Self::accept`], where the host can serve it only from `earliest` on, whenever
    /// it was sent.
    pub fn accept_seen(&mut self, sent: Instant, earliest: Instant, policing: Policing) -> SourceVerdict {
        let (own, conforms) = (self.peek(sent), self.conforms(sent));
        let logical = own.max(earliest).max(self.served_next);
        match (conforms, policing) {
            (false, Policing::Drop) => return SourceVerdict::Dropped,
            (false, Policing::Demote) => return SourceVerdict::Demoted,
            _ => self.next = own + self.spacing,
        }
        self.served_next = logical + self.spacing;
        if let Some(mean) = &mut self.mean {
            mean.due = mean.due.max(logical) + mean.interval;
        }
        if conforms { SourceVerdict::Conforming { logical } } else { SourceVerdict::Delayed { logical } }
    }

    /// l of the last message by its application's times alone, whatever delay its host added: lateness is
    /// measured from it. It is never after the logical arrival from which the message is served.
    pub fn claimed(&self) -> Instant {
        self.next - self.spacing
    }
}

/// The e-chain of a channel at a stage: e of successive messages lie at least I' apart.
#[derive(Clone, Copy, Debug, Default)]
struct Chain {
    /// c: I' after the largest e accepted before the current message; 0 before there is one.
    earliest: Instant,
    /// Largest e accepted so far: e never decreases within a message. 0 if none was accepted.
    effective: Instant,
}

impl Chain {
    /// Begins another message, I' later. If nothing of the previous one was accepted, the earliest time does
    /// not move.
    fn next_message(&mut self, period: Nanos) {
        if self.effective > Instant::ZERO {
            self.earliest = self.effective + period;
        }
    }

    /// Accepts a packet that reaches the stage at `reached` (m); returns its e.
    fn accept(&mut self, reached: Instant) -> Instant {
        self.effective = reached.max(self.earliest).max(self.effective);
        self.effective
    }
}

/// The e-chain of a stage in the same host as the previous one: nothing is demoted there, but e still keeps
/// its distance, whatever the previous stage does ([`EffectiveArrivals`] has the rules).
#[derive(Clone, Debug)]
pub struct ArrivalsWithin {
    period: Nanos,
    chain: Chain,
    /// The message that is being received, and its packets. Before the first: message 0, which has none.
    number: u64,
    packets: u32,
    packets_max: u32,
}

impl ArrivalsWithin {
    /// `period` is I'; `packets_max` bounds what one message number may carry.
    pub const fn new(period: Nanos, packets_max: u32) -> Self {
        let chain = Chain { earliest: Instant::ZERO, effective: Instant::ZERO };
        Self { period, chain, number: 0, packets: 0, packets_max }
    }

    /// Takes the next packet, of `message`, that reaches the stage at `reached` (its n, or later); returns
    /// its e.
    pub fn accept(&mut self, message: u64, reached: Instant) -> Instant {
        let fits = self.packets < self.packets_max || active(Mutation::PolicedByNumberAlone);
        if self.number == message && fits {
            self.packets += 1;
        } else {
            self.chain.next_message(self.period);
            (self.number, self.packets) = (message, 1);
        }
        self.chain.accept(reached)
    }
}

/// A packet as a stage receives it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// The number of its message in the channel.
    pub message: u64,
    /// Size of the packet on the wire in bytes, headers included, as for `wire_bytes_max`.
    pub wire_bytes: u32,
    /// n(k): the receive time plus the slack that the packet carries.
    pub nominal: Instant,
    /// The driver's receive time.
    pub received: Instant,
}

/// The decision of a stage about a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The packet keeps the contract: it is ready from `effective` less the horizon, and due at `effective` +
    /// d(k).
    Accepted {
        /// e.
        effective: Instant,
    },
    /// The packet becomes best effort and has not moved e.
    Demoted,
}

/// The limits that a channel's packets are policed by at one stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ArrivalTerms {
    /// I'.
    pub period: Nanos,
    /// J(k).
    pub jitter: Nanos,
    /// Packets that one message number may carry; at most 65,535.
    pub packets_max: u32,
    /// Bytes that one message number may carry; anything beyond 4 GiB is no limit.
    pub wire_bytes_max: u64,
    /// Packets whose n is more than that, and J, ahead of their receive time are demoted.
    ///
    /// With D and the time that its source may send ahead of l, no honest packet is: n <= l + D. Without the
    /// limit a neighbour that forges slack could push e, and its channel, arbitrarily far into the future,
    /// and the recovery bound D + 2·I + 129·J would not hold.
    pub early_max: Nanos,
}

/// The e-chain with policing of untrusted packets (ARCHITECTURE, The life of a message), for one channel at
/// one stage.
///
/// m = max(n, received); c = largest e accepted of the previous message + I'. Demoted if received > n + J, or
/// c > m + J, or an earlier packet of the message was demoted; else e = max(m, c, e of the packet before it).
/// Packets beyond the contract's count or bytes under one number count as the next message, and so does every
/// change of number, forwards or backwards.
///
/// The constant terms are not part of it, because there is one for each channel of a host.
#[derive(Clone, Copy, Debug, Default)]
pub struct EffectiveArrivals {
    chain: Chain,
    /// The message that is being received. Before the first: message 0, which has no packets.
    current: Message,
}

/// The message that is being received.
#[derive(Clone, Copy, Debug, Default)]
struct Message {
    number: u64,
    wire_bytes: u32,
    packets: u16,
    demoted: bool,
}

impl EffectiveArrivals {
    /// Takes the next packet.
    pub fn accept(&mut self, terms: &ArrivalTerms, packet: &Arrival) -> Verdict {
        self.current = self.enter(terms, packet);
        if self.is_over(terms, packet) {
            self.current.demoted = true;
            return Verdict::Demoted;
        }
        Verdict::Accepted { effective: self.chain.accept(packet.nominal.max(packet.received)) }
    }

    /// The message that `packet` belongs to, with the packet counted.
    fn enter(&mut self, terms: &ArrivalTerms, packet: &Arrival) -> Message {
        let message = self.current;
        if message.takes(terms, packet) {
            return Message {
                packets: message.packets.saturating_add(1),
                wire_bytes: message.wire_bytes.saturating_add(packet.wire_bytes),
                ..message
            };
        }
        self.chain.next_message(terms.period);
        Message { number: packet.message, packets: 1, wire_bytes: packet.wire_bytes, ..Message::default() }
    }

    /// Whether the packet, counted already, breaks the contract, or an earlier one of its message did.
    fn is_over(&self, terms: &ArrivalTerms, packet: &Arrival) -> bool {
        let late = packet.received > packet.nominal + terms.jitter;
        let too_soon = self.chain.earliest > packet.nominal.max(packet.received) + terms.jitter;
        let oversized = u64::from(packet.wire_bytes) > terms.wire_bytes_max || terms.packets_max == 0;
        let is_ahead = packet.nominal.since(packet.received) > terms.early_max + terms.jitter;
        late || too_soon || oversized || self.current.demoted || is_ahead
    }
}

impl Message {
    fn takes(&self, terms: &ArrivalTerms, packet: &Arrival) -> bool {
        let fits = u32::from(self.packets) < terms.packets_max
            && u64::from(self.wire_bytes) + u64::from(packet.wire_bytes) <= terms.wire_bytes_max;
        self.number == packet.message && (fits || active(Mutation::PolicedByNumberAlone))
    }
}
