//! When the next packet may be handed over, and when it will have left: the pipeline window.
//!
//! With [`Pacing::Completion`] the driver says what has left, in the order of hand-over. With [`Pacing::Clock`]
//! a GCRA says so: the theoretical arrival time TAT is when the last bit handed over leaves a link that drains
//! at exactly our rate, and a packet goes when now >= TAT - (P-1)·U, with no credit for time gone idle.

use alloc::collections::VecDeque;

use punctual_analysis::{BitRate, Instant, Nanos, Ppm};

use super::parameters::{ByteTime, FlowIndex, LinkParameters};
use crate::config::Pacing;
use crate::limits::IN_FLIGHT_PACKETS_MAX;

#[derive(Debug)]
struct InFlight {
    flow: Option<FlowIndex>,
    wire_bytes: u32,
}

#[derive(Debug)]
enum Window {
    Clock {
        tat: Instant,
        /// (P-1)·U as a time, and in bytes.
        tolerance: Nanos,
        tolerance_bytes: u64,
    },
    Completion {
        bytes_max: u64,
        bytes: u64,
        /// Completed bytes of the first packet in flight.
        credit_bytes: u64,
        in_flight: VecDeque<InFlight>,
    },
}

/// The window of one link.
#[derive(Debug)]
pub(super) struct Pacer {
    byte_time: ByteTime,
    /// sigma + rho·(sigma + P·U)/(1 - rho): what kernel traffic may add to a departure.
    interference: Nanos,
    /// Depth 1.
    one_at_a_time: bool,
    window: Window,
}

impl Pacer {
    pub(super) fn new(parameters: &LinkParameters) -> Self {
        let byte_time = ByteTime::of(parameters.rate);
        let (depth, mtu) =
            (u64::from(parameters.pipeline_depth.max(1)), u64::from(parameters.mtu_wire_bytes));
        let window = match parameters.pace {
            Pacing::Clock => {
                let tolerance_bytes = (depth - 1) * mtu;
                Window::Clock {
                    tat: Instant::ZERO,
                    tolerance: byte_time.time_of(tolerance_bytes),
                    tolerance_bytes,
                }
            }
            Pacing::Completion => Window::Completion {
                bytes_max: depth * mtu,
                bytes: 0,
                credit_bytes: 0,
                in_flight: VecDeque::with_capacity(IN_FLIGHT_PACKETS_MAX),
            },
        };
        let interference = interference(parameters, byte_time.time_of(depth * mtu));
        Self { byte_time, interference, one_at_a_time: depth == 1, window }
    }

    /// Another rate; what was handed over stays.
    pub(super) fn set(&mut self, parameters: &LinkParameters) {
        let new = Self::new(parameters);
        (self.byte_time, self.interference) = (new.byte_time, new.interference);
        if let (
            Window::Clock { tolerance, tolerance_bytes, .. },
            Window::Clock { tolerance: changed, tolerance_bytes: changed_bytes, .. },
        ) = (&mut self.window, new.window)
        {
            (*tolerance, *tolerance_bytes) = (changed, changed_bytes);
        }
    }

    /// From now on at `rate`, where kernel traffic puts departures off by `delay`; what is outstanding is counted at that
    /// rate too. When all that was handed over before has left, as it was stamped. Without effect for completions.
    pub(super) fn set_pace(&mut self, rate: BitRate, delay: Nanos, now: Instant) -> Instant {
        let Window::Clock { tat, tolerance, tolerance_bytes } = &mut self.window else { return now };
        let left = (*tat).max(now) + self.interference;
        // Rounded up: a part of a byte is a byte.
        let bytes = self.byte_time.bytes_in(tat.since(now)) + u64::from(*tat > now);
        self.byte_time = ByteTime::of(rate);
        *tat = now + self.byte_time.time_of(bytes);
        *tolerance = self.byte_time.time_of(*tolerance_bytes);
        self.interference = delay;
        left
    }

    /// Whether a packet of `wire_bytes` may be handed over now.
    pub(super) fn admits(&self, wire_bytes: u32, now: Instant) -> bool {
        match &self.window {
            Window::Clock { tat, tolerance, .. } => *tat - *tolerance <= now,
            // At depth 1 one packet, however short: several would block for longer than the largest of them.
            Window::Completion { in_flight, .. } if self.one_at_a_time => in_flight.is_empty(),
            Window::Completion { bytes_max, bytes, in_flight, .. } => {
                bytes + u64::from(wire_bytes) <= *bytes_max && in_flight.len() < IN_FLIGHT_PACKETS_MAX
            }
        }
    }

    /// When anything may be handed over, where the clock decides that.
    pub(super) fn opens(&self) -> Option<Instant> {
        match &self.window {
            Window::Clock { tat, tolerance, .. } => Some(*tat - *tolerance),
            Window::Completion { .. } => None,
        }
    }

    /// Takes a packet into the window; returns its latest departure.
    pub(super) fn hand_over(&mut self, flow: Option<FlowIndex>, wire_bytes: u32, now: Instant) -> Instant {
        let drained = match &mut self.window {
            Window::Clock { tat, .. } => {
                *tat = (*tat).max(now) + self.byte_time.time_of(u64::from(wire_bytes));
                *tat
            }
            Window::Completion { bytes, in_flight, .. } => {
                *bytes += u64::from(wire_bytes);
                in_flight.push_back(InFlight { flow, wire_bytes });
                now + self.byte_time.time_of(*bytes)
            }
        };
        drained + self.interference
    }

    /// Whether slots stay in use until `complete`.
    pub(super) const fn completes(&self) -> bool {
        matches!(self.window, Window::Completion { .. })
    }

    /// The packet that was taken into the window last goes nowhere: no completion will tell of it. Returns its
    /// channel, whose slot is still in use. A clock has counted it; that costs the link one packet's time.
    pub(super) fn retract(&mut self) -> Option<FlowIndex> {
        let Window::Completion { bytes, in_flight, .. } = &mut self.window else { return None };
        let last = in_flight.pop_back()?;
        *bytes -= u64::from(last.wire_bytes);
        last.flow
    }

    /// The adapter has sent `wire_bytes` more; `left` hears of the channel of each packet that is out.
    pub(super) fn complete(&mut self, wire_bytes: u32, mut left: impl FnMut(FlowIndex)) {
        let Window::Completion { bytes, credit_bytes, in_flight, .. } = &mut self.window else { return };
        *credit_bytes = (*credit_bytes + u64::from(wire_bytes)).min(*bytes);
        while let Some(first) = in_flight.front().filter(|first| u64::from(first.wire_bytes) <= *credit_bytes)
        {
            let first_bytes = u64::from(first.wire_bytes);
            *credit_bytes -= first_bytes;
            *bytes -= first_bytes;
            if let Some(flow) = first.flow {
                left(flow);
            }
            in_flight.pop_front();
        }
    }

    /// Bytes handed over that have not left.
    pub(super) fn outstanding(&self, now: Instant) -> u64 {
        match &self.window {
            Window::Clock { tat, .. } => self.byte_time.bytes_in(tat.since(now)),
            Window::Completion { bytes, credit_bytes, .. } => bytes - credit_bytes,
        }
    }
}

/// sigma + rho·(sigma + P·U)/(1 - rho), saturating where kernel traffic may take everything.
fn interference(parameters: &LinkParameters, window: Nanos) -> Nanos {
    let (sigma, rho) = (parameters.interference.sigma, parameters.interference.rho);
    if rho >= Ppm::ONE {
        return Nanos::MAX;
    }
    let share = u128::from((sigma + window).0) * u128::from(rho.0);
    let delay = share.div_ceil(u128::from(Ppm::ONE.0 - rho.0));
    sigma + Nanos(u64::try_from(delay).unwrap_or(u64::MAX))
}
