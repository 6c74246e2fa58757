//! The true behaviour of a link's adapter: a FIFO that drains at the true rate, with kernel traffic among our
//! packets, and the cable behind it.

use punctual_analysis::{BitRate, Nanos, Ppm};
use punctual_proto::config::{Interference, LinkConfig};

use crate::bucket::Bucket;
use crate::dice::Dice;
use crate::scenario::LinkPlan;
use crate::time::SimTime;

/// One direction of a link.
#[derive(Clone, Debug)]
pub struct Adapter {
    /// Host at the other end.
    pub peer: usize,
    /// The link's index there.
    pub peer_link: u16,
    rate: BitRate,
    busy: bool,
    propagation: (Nanos, Nanos),
    interference: Bucket,
    /// Time at which the shaper changes, and the new share.
    shaper: Option<(SimTime, Ppm)>,
    free_at: SimTime,
    last_arrival: SimTime,
    /// The broken assumptions.
    broken: Broken,
    dice: Dice,
}

/// Violations of the configuration by a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Broken {
    /// The link drains at this percentage of its rate.
    pub rate_percent: u32,
    /// Foreign packets arrive at this percentage of its rate.
    pub foreign_percent: u32,
    /// Time up to which foreign packets are counted.
    pub foreign_until: SimTime,
    /// Additional travel time of packets.
    pub longer: Nanos,
}

impl Broken {
    /// No violation.
    pub const NOT: Self =
        Self { rate_percent: 100, foreign_percent: 0, foreign_until: SimTime(0), longer: Nanos::ZERO };
}

/// Length of a device's queue: foreign packets beyond it are dropped ...
const FOREIGN_QUEUE: Nanos = Nanos::from_millis(100);
/// ... and on a broken link, ours beyond this.
const QUEUE: Nanos = Nanos::from_millis(200);

/// Departure and arrival of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flight {
    /// Its last bit is on the wire: the completion.
    pub departs: SimTime,
    /// The driver at the other end has it.
    pub arrives: SimTime,
}

impl Adapter {
    /// The adapter of a link with the configuration `config` and the true behaviour `plan`, except that it
    /// drains at `rate_percent` of that.
    pub fn new(plan: &LinkPlan, config: &LinkConfig, rate_percent: u32, dice: Dice) -> Self {
        Self {
            peer: plan.peer,
            peer_link: plan.peer_link,
            rate: BitRate((plan.rate.0 * u64::from(rate_percent) / 100).max(1)),
            busy: plan.busy,
            propagation: (config.propagation_min, config.propagation_max),
            interference: Bucket::new(config.interference),
            shaper: None,
            free_at: SimTime(0),
            last_arrival: SimTime(0),
            broken: Broken::NOT,
            dice,
        }
    }

    /// Whether a link that breaks its promise has no room for another packet at `now`.
    pub fn overflows(&self, now: SimTime) -> bool {
        self.broken != Broken::NOT && self.free_at.since(now) > QUEUE
    }

    /// Takes a packet of `wire_bytes` at `now`, behind all previous ones.
    pub fn accept(&mut self, now: SimTime, wire_bytes: u32) -> Flight {
        let kernel = self.kernel_traffic(now);
        self.take_foreign(now);
        let drain = self.rate.time_of(u64::from(wire_bytes)).0 * 100 / u64::from(self.broken.rate_percent);
        let departs = self.free_at.max(now) + kernel + Nanos(drain);
        self.free_at = departs;
        let travel = self.dice.span(self.propagation.0, self.propagation.1) + self.broken.longer;
        let arrives = departs + travel;
        self.last_arrival = self.last_arrival.max(arrives);
        Flight { departs, arrives: self.last_arrival }
    }

    /// The drain rate without kernel packets, and the lowest rate beside them in any `span`.
    pub fn drains(&self, span: Nanos) -> (BitRate, BitRate) {
        let Interference { sigma, rho } = self.interference.bound();
        let taken = rho.of(span) + sigma;
        let left = u128::from(self.rate.0) * u128::from((span - taken).0) / u128::from(span.0.max(1));
        (self.rate, BitRate(left as u64))
    }

    /// The kernel has `share` from `at` on, and its present share until then.
    pub fn shape(&mut self, at: SimTime, share: Ppm) {
        self.settle_shaper(at);
        self.shaper = Some((at, share));
    }

    fn settle_shaper(&mut self, now: SimTime) {
        if let Some((at, share)) = self.shaper.take_if(|(at, _)| *at <= now) {
            self.interference.set_share(at, share);
        }
    }

    /// Breaks assumptions, or restores them.
    pub const fn set_broken(&mut self, broken: Broken) {
        self.broken = broken;
    }

    /// Queues foreign packets that have arrived since the last check before ours.
    fn take_foreign(&mut self, now: SimTime) {
        let Broken { foreign_percent, foreign_until, .. } = self.broken;
        if foreign_percent == 0 {
            return;
        }
        let came = Nanos(now.since(foreign_until).0 * u64::from(foreign_percent) / 100);
        self.broken.foreign_until = now;
        // Packets that drained meanwhile made room; packets that do not fit are lost.
        let full = now + FOREIGN_QUEUE;
        self.free_at = (self.free_at.max(foreign_until) + came).min(full.max(self.free_at));
    }

    /// Time of kernel packets that are sent ahead, sometimes as many as the bound allows.
    fn kernel_traffic(&mut self, now: SimTime) -> Nanos {
        self.settle_shaper(now);
        let available = self.interference.available(now);
        let wanted = match self.dice.between(0, 15) {
            _ if self.busy => available,
            0 => available,
            1..=4 => Nanos(self.dice.between(0, available.0 / 4)),
            _ => Nanos::ZERO,
        };
        self.interference.take(now, wanted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use punctual_proto::ids::NodeId;

    #[test]
    fn packets_leave_in_order_at_the_rate_and_arrive_in_order_within_the_propagation() {
        let rate = BitRate(8_000_000);
        let config = LinkConfig {
            propagation_min: Nanos(10),
            propagation_max: Nanos(5_000),
            ..LinkConfig::new("x", NodeId(2), rate)
        };
        let plan = LinkPlan { peer: 1, peer_link: 0, rate, busy: false };
        let mut adapter = Adapter::new(&plan, &config, 100, Dice::new(1, 1));
        let mut last = Flight { departs: SimTime(0), arrives: SimTime(0) };
        for n in 1..=500 {
            let flight = adapter.accept(SimTime(0), 100);
            assert_eq!(flight.departs, SimTime(n * 100_000));
            assert!(flight.arrives >= last.arrives && flight.arrives <= flight.departs + Nanos(5_000));
            last = flight;
        }
    }
}
