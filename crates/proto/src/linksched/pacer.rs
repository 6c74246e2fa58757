//! When the next packet may be handed over, and when it will have left: the pipeline window.
//!
//! With [`Pacing::Completion`] the driver reports what has left, in the order of hand-over. With
//! [`Pacing::Clock`] a GCRA computes it: the theoretical arrival time TAT is when the last bit handed over
//! leaves a link that drains at exactly our rate. A packet may go when now >= TAT - (P-1)·U, and idle time
//! earns no credit.

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

    /// Sets another rate. Packets that were handed over still count.
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

    /// Sets the pace: `rate`, where kernel traffic delays departures by `delay`. Outstanding packets are
    /// counted at that rate, too. Returns the time at which everything that was handed over before has left,
    /// as it was stamped. No effect for completions.
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
            // At depth 1 only one packet, however short: several would block for longer than the largest of
            // them.
            Window::Completion { in_flight, .. } if self.one_at_a_time => in_flight.is_empty(),
            Window::Completion { bytes_max, bytes, in_flight, .. } => {
                bytes + u64::from(wire_bytes) <= *bytes_max && in_flight.len() < IN_FLIGHT_PACKETS_MAX
            }
        }
    }

    /// The time at which a packet may be handed over, if a clock sets the pace.
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

    /// Removes the packet that was taken into the window last, because it was not sent and no completion will
    /// report it. Returns its channel, whose slot is still in use. With a clock it stays counted, which costs
    /// the link one packet's time.
    pub(super) fn retract(&mut self) -> Option<FlowIndex> {
        let Window::Completion { bytes, in_flight, .. } = &mut self.window else { return None };
        let last = in_flight.pop_back()?;
        *bytes -= u64::from(last.wire_bytes);
        last.flow
    }

    /// The adapter has sent `wire_bytes` more; `left` is called with the channel of each packet that has
    /// left.
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

#[cfg(test)]
mod tests {
    use alloc::vec;
    use alloc::vec::Vec;

    use super::*;
    use crate::config::{Interference, LinkConfig};
    use crate::ids::NodeId;

    /// A microsecond a byte.
    const RATE: BitRate = BitRate(8_000_000);

    fn us(micros: u64) -> Instant {
        Instant(micros * 1_000)
    }

    fn pacer(pace: Pacing, depth: u32, sigma: Nanos, rho: Ppm) -> Pacer {
        let link = LinkConfig::new("l", NodeId(1), RATE);
        Pacer::new(&LinkParameters {
            rate: RATE,
            mtu_wire_bytes: 1_000,
            pipeline_depth: depth,
            pace,
            interference: Interference { sigma, rho },
            ..LinkParameters::of(&link)
        })
    }

    fn clock(depth: u32) -> Pacer {
        pacer(Pacing::Clock, depth, Nanos::ZERO, Ppm(0))
    }

    /// A packet goes when now >= TAT - (P-1)·U, and has left when all before it and itself have.
    #[test]
    fn a_clock_opens_when_all_but_so_many_of_the_largest_have_left() {
        for (depth, opens) in [(1, 1_500), (2, 500), (3, 0)] {
            let mut pacer = clock(depth);
            assert_eq!((pacer.opens(), pacer.outstanding(us(0))), (Some(us(0)), 0));
            assert_eq!(pacer.hand_over(None, 500, us(0)), us(500), "depth {depth}");
            assert_eq!(pacer.hand_over(None, 1_000, us(0)), us(1_500), "depth {depth}");
            assert_eq!(pacer.opens(), Some(us(opens)), "depth {depth}");
            assert!(opens == 0 || !pacer.admits(1, Instant(us(opens).0 - 1)));
            assert!(pacer.admits(1_000, us(opens)));
            assert_eq!(
                [0, 500, 1_499, 1_500, 9_000].map(|at| pacer.outstanding(us(at))),
                [1_500, 1_000, 1, 0, 0]
            );
            // No credit for idle time.
            assert_eq!(pacer.hand_over(None, 1_000, us(10_000)), us(11_000));
            assert!(!pacer.completes());
        }
    }

    /// sigma + rho·(sigma + P·U)/(1 - rho), rounded up.
    #[test]
    fn kernel_traffic_puts_a_departure_off_by_the_formula() {
        let departure = |depth, sigma_us, rho| {
            pacer(Pacing::Clock, depth, Nanos::from_micros(sigma_us), Ppm(rho))
                .hand_over(None, 1_000, us(0))
                .0
        };
        assert_eq!(departure(2, 0, 0), 1_000_000);
        assert_eq!(departure(2, 300, 0), 1_300_000);
        assert_eq!(departure(2, 100, 100_000), 1_000_000 + 100_000 + 233_334);
        assert_eq!(departure(1, 0, 500_000), 1_000_000 + 1_000_000);
        assert_eq!(departure(1, 0, 1_000_000), u64::MAX);
    }

    /// Outstanding packets count at the new pace, a started byte as a whole one. Packets that were stamped
    /// before have left by their stamps.
    #[test]
    fn another_pace_counts_what_is_outstanding_at_its_own_rate() {
        let mut pacer = pacer(Pacing::Clock, 2, Nanos(700), Ppm(0));
        let stamped = pacer.hand_over(None, 1_000, us(0));
        let left = pacer.set_pace(BitRate(4_000_000), Nanos(900), us(400));
        assert_eq!((left, stamped), (Instant(1_000_700), Instant(1_000_700)));
        // 600 B and one started byte, at two microseconds each; a largest packet takes two milliseconds.
        assert_eq!((pacer.outstanding(us(400)), pacer.opens()), (601, Some(us(0))));
        assert_eq!(pacer.hand_over(None, 100, us(400)), Instant(us(400 + 1_202 + 200).0 + 900));
        let idle = us(90_000);
        assert_eq!(pacer.set_pace(RATE, Nanos(5), idle), Instant(idle.0 + 900), "nothing is outstanding");
        assert_eq!(pacer.outstanding(idle), 0);
        assert_eq!(pacer.hand_over(None, 100, idle), Instant(idle.0 + 100_000 + 5));
        let mut pacer = super::tests::pacer(Pacing::Completion, 2, Nanos(700), Ppm(0));
        assert_eq!(pacer.set_pace(BitRate(1), Nanos(900), us(3)), us(3), "the adapter says what has left");
        assert_eq!(pacer.hand_over(None, 100, us(3)), Instant(us(103).0 + 700));
    }

    /// After a change of rate, packets that were handed over still count, and later ones count at the new
    /// rate.
    #[test]
    fn another_rate_leaves_what_was_handed_over() {
        let mut pacer = clock(2);
        pacer.hand_over(None, 1_000, us(0));
        pacer.complete(1_000, |_| panic!("a clock hears of no completion"));
        let link = LinkConfig::new("l", NodeId(1), RATE);
        pacer.set(&LinkParameters {
            rate: BitRate(16_000_000),
            mtu_wire_bytes: 1_000,
            interference: Interference { sigma: Nanos(300), rho: Ppm(0) },
            ..LinkParameters::of(&link)
        });
        assert_eq!(pacer.opens(), Some(us(500)));
        assert_eq!(pacer.hand_over(None, 1_000, us(0)), Instant(us(1_500).0 + 300));
        assert_eq!(pacer.opens(), Some(us(1_000)));
        let mut pacer = super::tests::pacer(Pacing::Completion, 2, Nanos::ZERO, Ppm(0));
        pacer.hand_over(None, 1_000, us(0));
        pacer.set(&LinkParameters { rate: BitRate(16_000_000), ..LinkParameters::of(&link) });
        assert!(pacer.admits(1_000, us(0)) && !pacer.admits(1_001, us(0)), "its window stays");
        assert_eq!(pacer.hand_over(None, 1_000, us(0)), us(1_000), "at the new rate");
    }

    /// P largest packets' worth of bytes are outstanding at most; completions come in the order of hand-over, in any portions.
    #[test]
    fn completions_open_the_window_byte_by_byte() {
        let mut pacer = pacer(Pacing::Completion, 2, Nanos::ZERO, Ppm(0));
        assert!(pacer.completes() && pacer.opens().is_none());
        assert_eq!(pacer.hand_over(Some(FlowIndex(7)), 600, us(0)), us(600));
        assert_eq!(pacer.hand_over(None, 400, us(100)), us(1_100), "after what is outstanding");
        assert!(pacer.admits(1_000, us(0)) && !pacer.admits(1_001, us(0)));
        assert_eq!(pacer.hand_over(Some(FlowIndex(9)), 1_000, us(100)), us(2_100));
        assert!(!pacer.admits(1, us(0)));
        let mut left = Vec::new();
        let mut complete = |pacer: &mut Pacer, bytes| {
            left.clear();
            pacer.complete(bytes, |flow| left.push(flow.0));
            (left.clone(), pacer.outstanding(us(0)))
        };
        assert_eq!(complete(&mut pacer, 599), (vec![], 1_401));
        assert!(!pacer.admits(1, us(0)), "the first is not out yet");
        assert_eq!(complete(&mut pacer, 1), (vec![7], 1_400));
        assert!(pacer.admits(600, us(0)) && !pacer.admits(601, us(0)));
        assert_eq!(complete(&mut pacer, 900), (vec![], 500));
        assert_eq!(complete(&mut pacer, 5_000), (vec![9], 0), "no credit for what was never handed over");
        pacer.hand_over(Some(FlowIndex(3)), 300, us(0));
        assert_eq!(complete(&mut pacer, 0), (vec![], 300));
        pacer.hand_over(Some(FlowIndex(4)), 200, us(0));
        assert_eq!(pacer.retract(), Some(FlowIndex(4)));
        assert_eq!(complete(&mut pacer, 300), (vec![3], 0));
        assert_eq!((pacer.retract(), clock(2).retract()), (None, None));
    }

    /// At depth 1 one packet is outstanding, however short it is. However deep the pipeline is, no more
    /// packets are outstanding than there is room for.
    #[test]
    fn packets_in_flight_are_counted() {
        let mut one = pacer(Pacing::Completion, 1, Nanos::ZERO, Ppm(0));
        one.hand_over(None, 10, us(0));
        assert!(!one.admits(10, us(0)));
        one.complete(10, |_| {});
        assert!(one.admits(10, us(0)));
        let mut many = pacer(Pacing::Completion, 1_000, Nanos::ZERO, Ppm(0));
        for _ in 1..IN_FLIGHT_PACKETS_MAX {
            many.hand_over(None, 1, us(0));
        }
        assert!(many.admits(1, us(0)));
        many.hand_over(None, 1, us(0));
        assert!(!many.admits(1, us(0)));
    }

    /// A packet that leaves at the very moment of a change is not outstanding any more.
    #[test]
    fn what_has_just_left_is_not_counted_at_another_pace() {
        let mut pacer = clock(2);
        assert_eq!(pacer.hand_over(None, 1_000, us(0)), us(1_000));
        assert_eq!(pacer.set_pace(BitRate(800_000), Nanos::ZERO, us(1_000)), us(1_000));
        assert_eq!((pacer.outstanding(us(1_000)), pacer.hand_over(None, 10, us(1_000))), (0, us(1_100)));
        let mut pacer = clock(2);
        pacer.hand_over(None, 1_000, us(0));
        pacer.set_pace(BitRate(800_000), Nanos::ZERO, Instant(us(1_000).0 - 1));
        assert_eq!(pacer.outstanding(Instant(us(1_000).0 - 1)), 1, "its last byte is");
    }
}
