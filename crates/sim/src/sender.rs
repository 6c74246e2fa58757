//! Sending patterns of an application: at the limit of its contract, or beyond it.

use punctual_analysis::{Contract, Instant, Nanos};

use crate::dice::Dice;
use crate::ledger::Conformance;
use crate::memory::MESSAGE_BYTES_MIN;
use crate::time::{HostClock, SimTime};
use crate::topology::Arrivals;

/// Synchronous bursts start at multiples of this true time.
const GRID: u64 = 20_000_000;

/// Longest train of an independent source, in messages.
const TRAIN_MAX: u64 = 8;

/// One sending application.
#[derive(Clone, Debug)]
pub struct Sender {
    arrivals: Arrivals,
    contract: Contract,
    full: bool,
    last: Option<Instant>,
    /// Due time of a periodic sender's next message by its timer, which is late by the jitter allowance at
    /// most.
    due: Option<Instant>,
    /// Remaining messages of a train.
    train: u64,
    dice: Dice,
}

impl Sender {
    /// A sender of messages of `contract` with the pattern `arrivals`.
    pub fn new(arrivals: Arrivals, contract: Contract, dice: Dice) -> Self {
        Self { arrivals, contract, full: false, last: None, due: None, train: 0, dice }
    }

    /// This sender with messages of the largest size, if `full`.
    #[must_use]
    pub fn with_full_messages(self, full: bool) -> Self {
        Self { full, ..self }
    }

    /// Whether it keeps its contract.
    pub fn keeps_contract(&self) -> bool {
        self.arrivals != Arrivals::Breaker
    }

    /// Time of its next wake-up, after `now`.
    pub fn next(&mut self, now: SimTime, clock: &HostClock, so_far: &Conformance) -> SimTime {
        let interval = self.contract.interval();
        let last = self.last;
        let spaced = |gap: Nanos| last.map_or(Instant::ZERO, |last| last + gap);
        let wanted = match self.arrivals {
            Arrivals::Periodic => self.due.map_or(Instant::ZERO, |due| due + self.lateness()),
            Arrivals::Bursts => so_far.earliest_burst() + Nanos(self.dice.between(0, interval.0)),
            Arrivals::Synchronous => {
                let free = clock.when(so_far.earliest_burst()).max(now).0;
                return SimTime((free / GRID + 1) * GRID);
            }
            Arrivals::Greedy => so_far.earliest(),
            Arrivals::Sporadic => spaced(interval) + Nanos(self.dice.between(0, interval.0 * 3)),
            Arrivals::Independent => spaced(self.pause()),
            Arrivals::Breaker => spaced(interval / 3),
        };
        clock.when(wanted).max(now + Nanos(1))
    }

    /// Lateness of a periodic sender's timer this time: mostly little.
    fn lateness(&mut self) -> Nanos {
        let most = self.contract.jitter_allowance();
        let most = if self.dice.between(0, 15) == 0 { most } else { most / 16 };
        Nanos(self.dice.between(0, most.0))
    }

    /// Time until the next message of a source that keeps its mean by itself: I within a train, a random
    /// pause after it.
    fn pause(&mut self) -> Nanos {
        let interval = self.contract.interval();
        let mean = self.contract.statistical.map_or(interval * 2, |soft| soft.mean_rate.interval());
        if self.train > 0 {
            self.train -= 1;
            return interval;
        }
        self.train = self.dice.between(0, TRAIN_MAX - 1);
        interval + Nanos(self.dice.between(0, (mean - interval).0 * 2 * (self.train + 1)))
    }

    /// Number of messages that it sends now, when its clock shows `stamp`.
    pub fn count(&mut self, stamp: Instant, so_far: &Conformance) -> u32 {
        let burst = self.contract.burst_messages_max;
        self.last = Some(stamp);
        self.due = Some(self.due.map_or(stamp, |due| due) + self.contract.interval());
        let wanted = match self.arrivals {
            Arrivals::Periodic | Arrivals::Sporadic | Arrivals::Independent => 1,
            Arrivals::Bursts | Arrivals::Synchronous | Arrivals::Greedy => burst,
            Arrivals::Breaker => return 1 + if self.dice.between(0, 9) == 0 { burst * 2 } else { 0 },
        };
        let mut so_far = *so_far;
        (0..wanted).take_while(|_| so_far.conforms(stamp) && so_far.accept(stamp) >= stamp).count() as u32
    }

    /// The length of the next message: mostly the largest.
    pub fn draw_len(&mut self) -> u32 {
        let most = self.contract.message_bytes_max;
        match self.dice.between(0, 3) {
            0 if !self.full => self.dice.between(u64::from(MESSAGE_BYTES_MIN), u64::from(most)) as u32,
            _ => most,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use punctual_analysis::Rate;

    fn messages(arrivals: Arrivals, span: Nanos) -> (u64, u64) {
        let rate = Rate::per_second(1_000).expect("in range");
        let contract = Contract::new(100, rate, 4, Nanos(1_000)).expect("good");
        let clock = HostClock::new(77, 99_999);
        let mut sender = Sender::new(arrivals, contract, Dice::new(3, 3));
        let mut so_far = Conformance::new(&contract);
        let (mut now, mut sent, mut broke) = (SimTime(0), 0, 0);
        while now.0 < span.0 {
            now = sender.next(now, &clock, &so_far);
            let stamp = clock.read(now);
            for _ in 0..sender.count(stamp, &so_far) {
                broke += u64::from(!so_far.conforms(stamp));
                so_far.accept(stamp);
                sent += 1;
            }
        }
        (sent, broke)
    }

    #[test]
    fn all_but_the_breaker_conform_and_reach_the_edge() {
        let second = Nanos::from_secs(1);
        for (arrivals, at_least) in [
            (Arrivals::Periodic, 1_000),
            (Arrivals::Bursts, 880),
            (Arrivals::Synchronous, 195),
            (Arrivals::Greedy, 1_007),
            (Arrivals::Sporadic, 350),
            (Arrivals::Independent, 400),
        ] {
            let (sent, broke) = messages(arrivals, second);
            assert!(broke == 0 && sent >= at_least, "{arrivals:?}: {sent} sent, {broke} beyond the contract");
        }
        let (sent, broke) = messages(Arrivals::Breaker, second);
        assert!(sent > 3_000 && broke > 1_500, "{sent} sent, {broke} beyond the contract");
    }
}
