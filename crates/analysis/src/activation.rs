//! Activation of the handlers of a channel, and the limit of each activation (CLIPS 4.3, RTU 3).
//!
//! A contract states the traffic; its activation states how processors serve it. [`Service`] combines the
//! two: the packets of a period, and the longest wait of a message for its timer.

use alloc::string::String;
use core::fmt;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::contract::{Contract, INTERVAL_MIN, SPAN_MAX};
use crate::policy::{Class, Demand, Urgency};
use crate::stage::{CostParts, Cpu, PathCosts};
use crate::units::Nanos;

/// Longest name of a planned flow, in bytes.
pub const FLOW_NAME_BYTES_MAX: usize = 31;

/// The event that activates the handlers of a channel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Activation {
    /// Activated by work; the urgency is the channel's bound on each processor.
    #[default]
    Deadline,
    /// Activated by work; ahead of other channels under `rmdp`. Admitted as sporadic; packets beyond the
    /// budget run as best effort.
    LowLatency {
        /// Shortest time between two budgets: [`INTERVAL_MIN`] to [`SPAN_MAX`].
        interarrival: Nanos,
        /// The budget: packets, at least 1.
        packets: u32,
    },
    /// Activated by a timer: each period up to `packets` packets are processed.
    Periodic {
        /// Time between two expiries of the timer: [`INTERVAL_MIN`] to [`SPAN_MAX`].
        period: Nanos,
        /// Packets of a period, at least 1.
        packets: u32,
    },
}

/// Handling on the route of a message that cannot arrive by l + D any more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Late {
    /// The late message is delivered nevertheless, and counted.
    #[default]
    Deliver,
    /// The late message may be dropped at the first stage that detects its lateness: the channel is soft.
    Drop,
}

/// Names a flow of a plan: 1 to [`FLOW_NAME_BYTES_MAX`] letters, digits, `-`, `_`, `.`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct FlowName {
    bytes: [u8; FLOW_NAME_BYTES_MAX],
    len: u8,
}

/// The text is no valid name of a flow.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{text:?} is no name of a flow: use 1 to {FLOW_NAME_BYTES_MAX} letters, digits, '-', '_' or '.'")]
pub struct FlowNameError {
    /// The beginning of the text.
    pub text: String,
}

impl FlowName {
    /// Checks a name.
    ///
    /// # Errors
    /// If it is empty, too long or has other characters.
    pub fn new(text: &str) -> Result<Self, FlowNameError> {
        let plain = text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'));
        if !plain || !(1..=FLOW_NAME_BYTES_MAX).contains(&text.len()) {
            return Err(FlowNameError { text: text.chars().take(2 * FLOW_NAME_BYTES_MAX).collect() });
        }
        let mut bytes = [0; FLOW_NAME_BYTES_MAX];
        bytes[..text.len()].copy_from_slice(text.as_bytes());
        Ok(Self { bytes, len: text.len() as u8 })
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        core::str::from_utf8(&self.bytes[..usize::from(self.len)]).unwrap_or_default()
    }
}

impl TryFrom<String> for FlowName {
    type Error = FlowNameError;
    fn try_from(text: String) -> Result<Self, FlowNameError> {
        Self::new(&text)
    }
}

impl From<FlowName> for String {
    fn from(name: FlowName) -> Self {
        name.as_str().into()
    }
}

impl fmt::Display for FlowName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for FlowName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FlowName({self})")
    }
}

/// An invalid activation, or one that does not carry the contract, with a valid value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error, Serialize, Deserialize)]
pub enum ActivationError {
    /// The activation has a budget of no packets.
    #[error("activation of 0 packets: give at least 1")]
    NoPackets,
    /// The time between activations is out of range.
    #[error("activation every {span}: give {INTERVAL_MIN} to {SPAN_MAX}")]
    Span {
        /// The requested span.
        span: Nanos,
    },
    /// Waiting for the timer alone takes all of the deadline.
    #[error(
        "a timer every {period} with a deadline of {deadline}: give a longer deadline or a shorter period"
    )]
    Timer {
        /// The timer's period.
        period: Nanos,
        /// D.
        deadline: Nanos,
    },
    /// The budget is less than the contract's traffic.
    #[error(
        "activation of {packets} packets every {span} does not carry messages of {message_packets} packets every \
         {interval}: give at least {needed} packets"
    )]
    Packets {
        /// Packets of an activation.
        packets: u32,
        /// Time between two activations.
        span: Nanos,
        /// Packets of a largest message.
        message_packets: u32,
        /// I.
        interval: Nanos,
        /// Packets that would carry the contract.
        needed: u64,
    },
}

/// How the processors of the route serve a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Service {
    /// Packets of a period.
    pub packets: u32,
    /// Most messages that begin or end among them.
    pub messages: u32,
    /// Shortest time between two such amounts of work.
    pub period: Nanos,
    /// Longest time from the effective arrival of a packet until the timer releases it; none without a timer.
    pub wait: Nanos,
}

impl Cpu {
    /// The demand of a channel for this CPU with its activation: [`Cpu::demand`] without one. A timer holds
    /// early packets back, so that they are no jitter.
    pub fn demand_of(
        &self,
        contract: &Contract,
        service: &Service,
        fragment_bytes: u32,
        costs: &PathCosts,
        release_latency: Nanos,
    ) -> Demand {
        let plain = self.demand(contract, fragment_bytes, costs, release_latency, Nanos::ZERO);
        let class = match contract.activation {
            Activation::Deadline => return plain,
            Activation::LowLatency { .. } => Class::LowLatency,
            Activation::Periodic { .. } => Class::Guaranteed,
        };
        let urgency = Urgency::of_period(class, service.period);
        let cost = self.cost_parts_of(contract, service, fragment_bytes, costs).sum();
        Demand {
            cost,
            unit_cost_max: plain.unit_cost_max.min(cost),
            period: service.period,
            urgency,
            ..plain
        }
    }

    /// The terms that add up to the cost of a period. Its units are quanta; the last of the budget and that
    /// of each message may be shorter.
    pub fn cost_parts_of(
        &self,
        contract: &Contract,
        service: &Service,
        fragment_bytes: u32,
        costs: &PathCosts,
    ) -> CostParts {
        if contract.activation == Activation::Deadline {
            return self.cost_parts(contract, fragment_bytes, costs);
        }
        let packets = u64::from(service.packets);
        let units = service.packets.div_ceil(self.quantum_packets.max(1));
        let first = (u64::from(units) + u64::from(service.messages) - 1).min(packets);
        let largest = u64::from(contract.message_bytes_max.min(fragment_bytes));
        CostParts::Cpu {
            message: costs.message * u64::from(service.messages),
            first_packets: costs.packet * first,
            later_packets: costs.packet_later.min(costs.packet) * (packets - first),
            copy: costs.kib * (largest.div_ceil(1_024) * packets),
        }
    }
}

/// A span less 1/128, rounded down: a budget every such span carries what [`Contract::policed_interval`] lets
/// through.
pub const fn policed(span: Nanos) -> Nanos {
    Nanos(span.0 - span.0.div_ceil(128))
}

impl Activation {
    /// Checks every range; `deadline` is D.
    ///
    /// # Errors
    /// The first value out of its range.
    pub fn validate(&self, deadline: Nanos) -> Result<(), ActivationError> {
        let (span, packets) = match *self {
            Self::Deadline => return Ok(()),
            Self::LowLatency { interarrival, packets } => (interarrival, packets),
            Self::Periodic { period, packets } => (period, packets),
        };
        if packets == 0 {
            return Err(ActivationError::NoPackets);
        }
        if !(INTERVAL_MIN..=SPAN_MAX).contains(&span) {
            return Err(ActivationError::Span { span });
        }
        match self {
            Self::Periodic { period, .. } if *period >= deadline => {
                Err(ActivationError::Timer { period: *period, deadline })
            }
            _ => Ok(()),
        }
    }
}

impl Contract {
    /// The period of what a processor reserves for this contract.
    pub fn processor_period(&self) -> Nanos {
        match self.activation {
            Activation::Deadline => self.policed_interval(),
            Activation::LowLatency { interarrival: span, .. } | Activation::Periodic { period: span, .. } => {
                policed(span)
            }
        }
    }

    /// How processors serve this contract in fragments of `fragment_bytes`. Spans are policed ones.
    ///
    /// With e(i) at least I' apart, a half-open span T holds at most ceil(T/I') messages: so many packets must fit
    /// into a budget. A timer that is faster than the messages may spread one over several periods, if it is done
    /// before the next one comes; a packet then waits for the timer once for each of them.
    ///
    /// # Errors
    /// If the activation does not carry the contract.
    pub fn service(&self, fragment_bytes: u32) -> Result<Service, ActivationError> {
        let (own, interval) = (self.packets_max(fragment_bytes), self.policed_interval());
        let (span, packets, timed) = match self.activation {
            Activation::Deadline => {
                return Ok(Service { packets: own, messages: 1, period: interval, wait: Nanos::ZERO });
            }
            Activation::LowLatency { interarrival, packets } => (interarrival, packets, false),
            Activation::Periodic { period, packets } => (period, packets, true),
        };
        let period = policed(span).max(Nanos(1));
        let messages = period.div_ceil(interval);
        let mut needed = u64::from(own).saturating_mul(messages);
        let mut timers = 1;
        if timed && messages == 1 {
            let timers_max = interval.0 / period.0;
            needed = u64::from(own).div_ceil(timers_max);
            timers = u64::from(own.div_ceil(packets.max(1)));
        }
        if u64::from(packets) < needed {
            let (message_packets, interval) = (own, self.interval());
            return Err(ActivationError::Packets { packets, span, message_packets, interval, needed });
        }
        let wait = if timed { period * timers } else { Nanos::ZERO };
        Ok(Service { packets, messages: u32::try_from(messages).unwrap_or(u32::MAX), period, wait })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::Rate;

    const MS: fn(u64) -> Nanos = Nanos::from_millis;

    fn contract(bytes: u32, interval: Nanos, activation: Activation) -> Contract {
        let rate = Rate::every(interval).unwrap();
        Contract { activation, ..Contract::new(bytes, rate, 1, MS(500)).unwrap() }
    }

    #[test]
    fn a_budget_of_the_contracts_own_interval_needs_one_messages_packets() {
        for interval in [MS(10), Nanos(9_999_991), Nanos(1_000)] {
            for packets in [3, 4] {
                let low = Activation::LowLatency { interarrival: interval, packets };
                let timed = Activation::Periodic { period: interval, packets };
                let needs_four = |activation| contract(4_000, interval, activation).service(1_000).is_ok();
                assert_eq!((needs_four(low), needs_four(timed)), (packets == 4, packets == 4), "{interval}");
            }
        }
    }

    #[test]
    fn a_slow_budget_holds_all_messages_of_its_span() {
        let low = |packets| Activation::LowLatency { interarrival: MS(40), packets };
        let service = contract(2_000, MS(10), low(8)).service(1_000).unwrap();
        assert_eq!((service.packets, service.messages, service.wait), (8, 4, Nanos::ZERO));
        let error = contract(2_000, MS(10), low(7)).service(1_000).unwrap_err();
        assert!(matches!(error, ActivationError::Packets { needed: 8, .. }), "{error}");
    }

    #[test]
    fn a_fast_timer_spreads_a_message_over_its_periods() {
        let timed = |packets| Activation::Periodic { period: MS(2), packets };
        let service = contract(10_000, MS(10), timed(2)).service(1_000).unwrap();
        assert_eq!((service.period, service.wait), (policed(MS(2)), policed(MS(2)) * 5));
        assert_eq!(service.messages, 1);
        let error = contract(10_000, MS(10), timed(1)).service(1_000).unwrap_err();
        assert!(matches!(error, ActivationError::Packets { needed: 2, .. }), "{error}");
    }

    #[test]
    fn a_slow_timer_serves_all_messages_of_its_period_at_once() {
        let timed = |packets| Activation::Periodic { period: MS(40), packets };
        let service = contract(2_000, MS(10), timed(8)).service(1_000).unwrap();
        assert_eq!((service.packets, service.messages, service.wait), (8, 4, policed(MS(40))));
        let error = contract(2_000, MS(10), timed(7)).service(1_000).unwrap_err();
        assert!(matches!(error, ActivationError::Packets { needed: 8, .. }), "{error}");
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let low = |interarrival, packets| Activation::LowLatency { interarrival, packets };
        assert_eq!(low(MS(1), 0).validate(MS(10)), Err(ActivationError::NoPackets));
        assert_eq!(low(Nanos(1), 1).validate(MS(10)), Err(ActivationError::Span { span: Nanos(1) }));
        let timed = Activation::Periodic { period: MS(10), packets: 1 };
        assert!(timed.validate(MS(10)).is_err() && timed.validate(MS(11)).is_ok());
        assert_eq!(Activation::Deadline.validate(MS(1)), Ok(()));
    }

    #[test]
    fn names_of_flows() {
        let name = FlowName::new("camera-1.front_left").unwrap();
        assert_eq!(name.as_str(), "camera-1.front_left");
        for wrong in ["", "a b", "ä", "x123456789012345678901234567890123"] {
            assert!(FlowName::new(wrong).is_err(), "{wrong}");
        }
        // As many bytes as a name may have, and one more; of a long text twice as many are shown.
        for bytes in [1, 2, 30, 31, 32, 61, 62, 63, 200] {
            let text = "n".repeat(bytes);
            let name = FlowName::new(&text);
            match bytes {
                ..=31 => assert_eq!(name.map(String::from), Ok(text), "{bytes}"),
                _ => assert_eq!(name, Err(FlowNameError { text: text[..bytes.min(62)].into() }), "{bytes}"),
            }
        }
    }
}
