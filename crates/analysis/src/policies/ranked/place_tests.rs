//! Response times and the windows that prove them, in places of a few nanoseconds, against a search by trial.

use alloc::vec::Vec;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::response::{Place, Tally, Traffic, Witness};
use crate::policy::{Demand, Urgency};
use crate::stage::Interference;
use crate::units::{Nanos, Ppm};

/// No busy period of the drawn places that ends is longer.
const LONGEST: u64 = 4_000;

/// What a place is made of.
#[derive(Clone, Debug)]
struct Drawn {
    cost: u64,
    period: u64,
    release_latency: u64,
    early: u64,
    unit_max: u64,
    /// Cost, period and jitter of each channel ahead; the last one may be the newcomer.
    ahead: Vec<(u64, u64, u64)>,
    has_newcomer: bool,
    blocking: u64,
    sigma: u64,
    rho: u32,
}

impl Drawn {
    fn new(rng: &mut SmallRng) -> Self {
        let ahead: Vec<_> = (0..rng.random_range(0..4))
            .map(|_| (rng.random_range(1..4), rng.random_range(4..16), rng.random_range(0..6)))
            .collect();
        Self {
            cost: rng.random_range(1..7),
            period: rng.random_range(4..30),
            release_latency: rng.random_range(0..4),
            early: rng.random_range(0..4),
            unit_max: rng.random_range(1..8),
            has_newcomer: !ahead.is_empty() && rng.random_bool(0.3),
            ahead,
            blocking: rng.random_range(0..9),
            sigma: rng.random_range(0..3),
            rho: [0, 0, 100_000, 340_000][rng.random_range(0..4)],
        }
    }

    /// The share of the time that all of it takes.
    fn share(&self) -> f64 {
        let of = |cost: u64, period: u64| cost as f64 / period as f64;
        let ahead = self.ahead.iter().map(|&(cost, period, _)| of(cost, period)).sum::<f64>();
        of(self.cost, self.period) + ahead + f64::from(self.rho) / 1e6
    }

    /// The part at the end of a message that nothing preempts, without its first tick: a message of one unit
    /// is preempted nowhere, of a longer one only the last tick is safe.
    fn safe(&self) -> u64 {
        if self.cost <= self.unit_max { self.cost - 1 } else { 0 }
    }

    /// The time of [`Self::safe`] where interference takes its share.
    fn safe_stretched(&self) -> u64 {
        (self.safe() * 1_000_000).div_ceil(1_000_000 - u64::from(self.rho))
    }

    /// What others and interference may take in a window.
    fn of_others(&self, window: u64) -> u64 {
        let interference = self.sigma + (window * u64::from(self.rho)).div_ceil(1_000_000);
        let of = |&(cost, period, jitter): &(u64, u64, u64)| cost * (window + jitter).div_ceil(period);
        interference + self.ahead.iter().map(of).sum::<u64>()
    }

    /// The work before the last safe part of the message number `number` of a busy period.
    fn work(&self, blocking: u64, number: u64, window: u64) -> u64 {
        blocking + number * self.cost - self.safe() + self.of_others(window)
    }

    fn work_of_busy_period(&self, window: u64) -> u64 {
        let own = self.cost * (window + self.release_latency + self.early).div_ceil(self.period);
        self.blocking + own + self.of_others(window)
    }

    /// The longest time from an effective arrival to the end, over all messages of the longest busy period:
    /// those that may arrive in it. None if it has no end.
    fn response(&self) -> Option<u64> {
        let busy = least(LONGEST, |at| self.work_of_busy_period(at))?;
        let messages = (busy + self.release_latency + self.early).div_ceil(self.period);
        let of = |number: u64| {
            let begun = least(LONGEST, |at| self.work(self.blocking, number, at))?;
            // Counted from the arrival of the first, the others arrive a period later each.
            Some(
                (begun + self.safe_stretched() + self.release_latency)
                    .saturating_sub((number - 1) * self.period),
            )
        };
        (1..=messages).map(of).try_fold(0, |worst: u64, of| of.map(|of| worst.max(of)))
    }

    /// Window, time to spare in it and blocking of the proof of a bound: that of the first message, or else
    /// of the busy period.
    fn witness(&self, bound: u64) -> Option<(u64, u64, u64)> {
        let (safe, stretched) = (self.safe(), self.safe_stretched());
        // One's own last segment blocks, too: of the message before.
        let blocking = self.blocking.max(safe + 1);
        let until = bound
            .saturating_sub(self.release_latency)
            .min(self.period.saturating_sub(self.release_latency + self.early));
        let first = window(until.checked_sub(stretched), |at| self.work(blocking, 1, at));
        let found = first.map(|(window, spare)| (window, spare, blocking));
        found.or_else(|| {
            let until = bound.checked_sub(self.release_latency + stretched - safe);
            let (window, spare) = window(until, |at| self.work_of_busy_period(at))?;
            Some((window, spare, self.blocking))
        })
    }

    /// Calls `with` with the place.
    fn place<R>(&self, with: impl FnOnce(&Place) -> R) -> R {
        let traffic = |cost, period, jitter| Traffic {
            cost: Nanos(cost),
            period: Nanos(period),
            jitter: Nanos(jitter),
        };
        let mut others: Vec<_> =
            self.ahead.iter().map(|&(cost, period, jitter)| traffic(cost, period, jitter)).collect();
        let newcomer = if self.has_newcomer { others.pop() } else { None };
        let mut ahead = Tally::default();
        for other in &others {
            let kind = ahead.kind(other);
            ahead.add(kind);
        }
        let demand = Demand {
            cost: Nanos(self.cost),
            unit_cost_max: Nanos(self.cost),
            period: Nanos(self.period),
            release_latency: Nanos(self.release_latency),
            early: Nanos(self.early),
            urgency: Urgency::default(),
            soft: None,
        };
        with(&Place {
            demand: &demand,
            own: traffic(self.cost, self.period, self.release_latency + self.early),
            unit_max: Nanos(self.unit_max),
            ahead: &ahead,
            newcomer: newcomer.as_ref(),
            blocking: Nanos(self.blocking),
            interference: Interference { sigma: Nanos(self.sigma), rho: Ppm(self.rho) },
        })
    }
}

/// The least time from 1 to `most` that holds its work.
fn least(most: u64, work: impl Fn(u64) -> u64) -> Option<u64> {
    (1..=most).find(|&at| work(at) <= at)
}

/// The longest window if it holds its work, or else the shortest that does; and what it has to spare.
fn window(longest: Option<u64>, work: impl Fn(u64) -> u64) -> Option<(u64, u64)> {
    let longest = longest.filter(|&longest| longest > 0)?;
    let window = if work(longest) <= longest { longest } else { least(longest, &work)? };
    Some((window, window - work(window)))
}

/// The response time is that of the slowest message of the busy period. It is found where it is within the
/// limit, and none where the limit is a nanosecond less.
#[test]
fn a_response_time_is_that_of_the_slowest_message_of_the_busy_period() {
    let (mut found, mut endless, mut later) = (0, 0, 0);
    let mut rng = SmallRng::seed_from_u64(3);
    for round in 0..6_000 {
        let drawn = Drawn::new(&mut rng);
        let expected = drawn.response();
        let within = |limit: u64| drawn.place(|place| place.response(Nanos(limit)).map(|found| found.0));
        let Some(response) = expected else {
            if drawn.share() < 1.0 {
                // It ends, but too late for a search by trial.
                continue;
            }
            assert_eq!(within(LONGEST), None, "round {round}: {drawn:?}");
            endless += 1;
            continue;
        };
        assert_eq!(within(LONGEST), Some(response), "round {round}: {drawn:?}");
        assert_eq!(within(response), Some(response), "round {round}: {drawn:?}");
        assert_eq!(within(response - 1), None, "round {round}: {drawn:?}");
        found += 1;
        let of_first = least(LONGEST, |at| drawn.work(drawn.blocking, 1, at)).expect("it is found");
        later += u32::from(of_first + drawn.safe_stretched() + drawn.release_latency < response);
    }
    assert!(found > 3_000 && endless > 500 && later > 50, "{found} {endless} {later}");
}

/// Messages that a long latency lets come together are all looked at, also where the busy period is shorter
/// than the latency and the slowest of them is not the first.
#[test]
fn messages_that_come_together_are_all_looked_at() {
    // Cost, period, latency, channels ahead, blocking.
    let cases = [
        (1, 11, 35, Vec::from([(11, 20, 8)]), 0),
        (2, 13, 30, Vec::from([(9, 23, 5), (3, 24, 8)]), 2),
        (1, 7, 35, Vec::from([(11, 21, 7), (1, 28, 5)]), 1),
        (1, 4, 36, Vec::from([(7, 17, 7)]), 1),
    ];
    for (number, (cost, period, release_latency, ahead, blocking)) in cases.into_iter().enumerate() {
        let unit_max = cost;
        let (early, has_newcomer, sigma, rho) = (0, false, 0, 0);
        let drawn = Drawn {
            cost,
            period,
            release_latency,
            early,
            unit_max,
            ahead,
            has_newcomer,
            blocking,
            sigma,
            rho,
        };
        let response = drawn.place(|place| place.response(Nanos(LONGEST)).map(|found| found.0));
        assert_eq!(response, drawn.response(), "{number}");
        if number == 0 {
            // The first ends by 1 + 11 = 12, the second by 2 + 2·11 = 24, the third by 25: 47, 24 + 35 - 11
            // and 38 ns after their arrivals.
            assert_eq!(response, Some(48));
        }
    }
}

/// A bound is proved by the longest window that it allows, or else the shortest, to the nanosecond; first by
/// that of the first message, which bears the longer of the blocking and the channel's own last segment.
#[test]
fn a_window_that_proves_a_bound_is_the_longest_or_the_shortest() {
    let (mut proved, mut not, mut shorter, mut of_busy) = (0, 0, 0, 0);
    let mut rng = SmallRng::seed_from_u64(4);
    for round in 0..20_000 {
        let drawn = Drawn::new(&mut rng);
        let bound = rng.random_range(1..40);
        let found = drawn.place(|place| place.witness(Nanos(bound)));
        let found = found.map(|Witness { window, spare, blocking }| (window.0, spare.0, blocking.0));
        let expected = drawn.witness(bound);
        assert_eq!(found, expected, "round {round}: {drawn:?} in {bound}");
        let Some((window, _, blocking)) = found else {
            not += 1;
            continue;
        };
        proved += 1;
        shorter += u32::from(window + drawn.safe_stretched() + drawn.release_latency < bound);
        of_busy += u32::from(blocking <= drawn.safe());
    }
    assert!(proved > 3_000 && not > 3_000 && shorter > 1_000, "{proved} {not} {shorter}");
    assert!(of_busy > 30, "{of_busy}");
}

/// A proof carries what its spare time holds, all of it and not a nanosecond more: a newcomer's work in the
/// window, and the blocking beyond that with which it was computed.
#[test]
fn a_proof_carries_as_much_as_it_has_to_spare() {
    let newcomer = Traffic { cost: Nanos(3), period: Nanos(10), jitter: Nanos(4) };
    // Three messages of it arrive in 17 to 26 ns, which with its jitter are 21 to 30: 9 ns.
    for window in [17, 26] {
        for blocking in 0..12 {
            for spare in 0..20 {
                let own = Nanos(5);
                let witness = Witness { window: Nanos(window), spare: Nanos(spare), blocking: own };
                let more = blocking.max(own.0) - own.0;
                let carries = |newcomer| witness.carries(newcomer, Nanos(blocking));
                assert_eq!(carries(None), more <= spare, "{window} {blocking} {spare}");
                assert_eq!(carries(Some(&newcomer)), 9 + more <= spare, "{window} {blocking} {spare}");
            }
        }
    }
}

/// Interference that takes nearly all leaves the end of a message the rest: a nanosecond of each millisecond,
/// also where it would take more.
#[test]
fn the_end_of_a_message_is_stretched_by_what_interference_takes() {
    for (rho, left) in [
        (0, 1_000_000),
        (1, 999_999),
        (500_000, 500_000),
        (999_997, 3),
        (999_998, 2),
        (999_999, 1),
        (1_000_000, 1),
        (1_000_001, 1),
        (u32::MAX, 1),
    ] {
        for safe in [0, 1, 2, 3, 1_000] {
            let drawn = Drawn {
                cost: safe + 1,
                period: 1_000_000_000_000,
                release_latency: 0,
                early: 0,
                unit_max: safe + 1,
                ahead: Vec::new(),
                has_newcomer: false,
                blocking: 0,
                sigma: 0,
                rho,
            };
            let stretched = drawn.place(|place| place.safe_stretched().0);
            assert_eq!(stretched, (safe * 1_000_000).div_ceil(left), "{safe} {rho}");
        }
    }
}

/// A response time that takes all rounds is found, and none that takes one more. No round is spent on the
/// message that arrives when the busy period ends.
#[test]
fn a_response_time_takes_its_rounds_one_by_one() {
    const PERIOD: u64 = 100_000;
    let found = |blocking: u64| {
        // All but a nanosecond of each period is taken by the channel ahead, so that a round adds one period,
        // up to as many as there are nanoseconds of other work.
        let end = (blocking + 1) * PERIOD;
        let drawn = Drawn {
            cost: 1,
            period: end,
            release_latency: 0,
            early: 0,
            unit_max: 1,
            ahead: Vec::from([(PERIOD - 1, PERIOD, 0)]),
            has_newcomer: false,
            blocking,
            sigma: 0,
            rho: 0,
        };
        let (mut at, mut rounds) = (1, 1);
        while drawn.work(blocking, 1, at) > at {
            (at, rounds) = (drawn.work(blocking, 1, at), rounds + 1);
        }
        assert_eq!(at, end);
        // And one for the busy period, which ends there, too.
        (rounds + 1, drawn.place(|place| place.response(Nanos(end))).map(|found| found.0 == end))
    };
    let all = 1 << 15;
    assert_eq!(found(all - 3), (all, Some(true)));
    assert_eq!(found(all - 2), (all + 1, None));
}
