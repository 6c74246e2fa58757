//! The observed drain rate of a link in use: what its neighbour reports to have received, compared with what
//! was handed over.
//!
//! If more was handed over than came out, as in the previous check, and about as much came out then, packets
//! waited below the driver all the time, so what came out is the drain rate. Otherwise the link drains at
//! least that much. Checks run when a HELLO with the count arrives: no thread is woken and no packet is
//! touched for them.

use punctual_analysis::{BitRate, Instant, Nanos, Ppm};

use crate::api::MeasuredRate;
use crate::limits::{RATE_LOOK_MAX, RATE_LOOK_MIN};

/// Divisor of what came out: at least this part must be missing before the link counts as full.
const MISSING_PART: u64 = 10;
/// Divisor of the rate: a result below this part shows nothing about the link's drain rate.
const FILLED_PART: u64 = 2;
/// Divisor of a rate: two checks agree on a drain rate if they differ by this part at most.
const AGREED_PART: u64 = 10;
/// Divisor of the observed rate: a link that carries this part more than observed has become faster.
const SURPASSED_PART: u64 = 20;
/// An observation is replaced by a lower one after this time.
const FORGOTTEN: Nanos = Nanos::from_secs(60);

/// Both ends of a link at one time.
#[derive(Clone, Copy, Debug)]
pub(super) struct LinkSample {
    /// Bytes handed over here, in bytes of the wire.
    pub sent: u64,
    /// Bytes received there.
    pub received: u64,
    /// Time on the neighbour's clock.
    pub at: Instant,
    /// Time on this host's clock.
    pub now: Instant,
}

/// State of the observation (see the module).
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct DrainWatch {
    last: Option<LinkSample>,
    /// Bytes that came out in the previous check, if more was handed over.
    was_behind: Option<u64>,
    observed: Option<MeasuredRate>,
}

impl DrainWatch {
    /// The last result worth reporting.
    pub const fn observed(&self) -> Option<MeasuredRate> {
        self.observed
    }

    /// Evaluates a sample of a link whose configured rate is `configured` and whose packets take `packet`
    /// bytes of the wire at most; `drift` between the two clocks.
    pub fn observe(&mut self, seen: LinkSample, configured: BitRate, packet: u32, drift: Ppm) {
        let Some(last) = self.last else { return self.last = Some(seen) };
        let span = seen.at.since(last.at);
        if span < RATE_LOOK_MIN && seen.received >= last.received {
            return;
        }
        self.last = Some(seen);
        let was_behind = self.was_behind.take();
        // Another life of the neighbour, or a span too long to have been busy all the time.
        if span > RATE_LOOK_MAX || seen.received < last.received {
            return;
        }
        let (came, gone) = (seen.received - last.received, seen.sent.saturating_sub(last.sent));
        let rate = u128::from(came) * 8_000_000_000 / u128::from(span.0.max(1));
        let rate = u64::try_from(rate).unwrap_or(u64::MAX);
        let is_behind =
            gone > came.saturating_add(came / MISSING_PART) && came > u64::from(packet) * MISSING_PART;
        self.was_behind = is_behind.then_some(rate);
        // If the two differ, the link has changed, or was idle for a part of one.
        let agrees = was_behind.is_some_and(|before| before.abs_diff(rate) <= before.min(rate) / AGREED_PART);
        let at_least = !(is_behind && agrees);
        if at_least && rate < configured.0 / FILLED_PART {
            return;
        }
        let count = u64::from(packet) * 1_000_000 / came.max(1);
        let error = Ppm(u32::try_from(count).unwrap_or(u32::MAX).saturating_add(drift.0).min(Ppm::ONE.0));
        let news = MeasuredRate { rate: BitRate(rate), error, at_least, at: seen.now };
        let gives_way = |old: MeasuredRate| {
            let surpassed = old.rate.0.saturating_add(old.rate.0 / SURPASSED_PART) < news.rate.0;
            !at_least
                || seen.now.since(old.at) > FORGOTTEN
                || surpassed
                || old.at_least && old.rate <= news.rate
        };
        if self.observed.is_none_or(gives_way) {
            self.observed = Some(news);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONFIGURED: BitRate = BitRate(95_000_000);

    /// One check per second: (handed over, came out) in each.
    fn after(spans: &[(u64, u64)]) -> Option<MeasuredRate> {
        let mut watch = DrainWatch::default();
        let mut seen = LinkSample { sent: 0, received: 0, at: Instant(7), now: Instant(9) };
        watch.observe(seen, CONFIGURED, 1_530, Ppm(200));
        for (sent, received) in spans {
            seen.sent += sent;
            seen.received += received;
            seen.at = seen.at + Nanos::from_secs(1);
            seen.now = seen.now + Nanos::from_secs(1);
            watch.observe(seen, CONFIGURED, 1_530, Ppm(200));
        }
        watch.observed()
    }

    #[test]
    fn a_link_that_is_behind_all_the_time_drains_what_comes_out() {
        let found = after(&[(11_000_000, 2_500_000), (11_000_000, 2_500_000)]).expect("told");
        assert_eq!((found.rate, found.at_least), (BitRate(20_000_000), false));
        // One packet of 1,530 B more or less in 2,500,000 B, and the clocks.
        assert_eq!(found.error, Ppm(612 + 200));
        // A link that becomes faster meanwhile drains at least the mean of both rates, and more later.
        let spans = [(11_000_000, 2_500_000), (11_000_000, 2_500_000), (11_000_000, 6_000_000)];
        let found = after(&spans).expect("told");
        assert_eq!((found.rate, found.at_least), (BitRate(48_000_000), true));
        let faster = [spans.as_slice(), &[(9_000_000, 9_000_000)]].concat();
        let found = after(&faster).expect("told");
        assert_eq!((found.rate, found.at_least), (BitRate(72_000_000), true), "what it carries surpasses it");
        // One check is no proof: the link may have been idle first.
        assert_eq!(after(&[(11_000_000, 2_500_000)]), None);
    }

    #[test]
    fn a_link_without_backlog_gives_a_lower_bound_and_an_idle_one_gives_none() {
        let found = after(&[(10_000_000, 10_000_000), (9_000_000, 9_000_000)]).expect("told");
        assert_eq!((found.rate, found.at_least), (BitRate(80_000_000), true));
        assert_eq!(after(&[(1_000, 1_000), (500_000, 500_000)]), None);
        // A neighbour that restarts counts from zero.
        let mut watch = DrainWatch::default();
        for (received, at) in [(9_000_000, 1), (100, 2), (12_000_000, 3)] {
            let at = Instant(at * 1_000_000_000);
            watch.observe(LinkSample { sent: 0, received, at, now: at }, CONFIGURED, 1_530, Ppm(0));
        }
        assert_eq!(watch.observed().map(|seen| seen.rate), Some(BitRate(95_999_200)));
    }

    /// A lower limit of the rate changes nothing for a link whose rate was observed, unless it is clearly higher.
    #[test]
    fn a_rate_that_was_seen_is_not_replaced_by_a_lower_limit_that_hardly_surpasses_it() {
        let seen = [(11_000_000, 8_000_000), (11_000_000, 8_000_000)];
        for (came, rate, at_least) in
            [(7_500_000, 64_000_000, false), (8_000_001, 64_000_000, false), (11_000_000, 88_000_000, true)]
        {
            let found = after(&[seen.as_slice(), &[(came, came)]].concat()).expect("told");
            assert_eq!((found.rate, found.at_least), (BitRate(rate), at_least), "{came}");
        }
    }

    #[test]
    fn checks_too_soon_or_too_late_give_no_result() {
        // Twice what comes out is handed over, all the time: two checks in a row show it.
        let after = |apart: Nanos, breach_watch: u64| {
            let mut watch = DrainWatch::default();
            for number in 0..=breach_watch {
                let at = Instant(7) + apart * number;
                let received = apart.0 * number / 400;
                let seen = LinkSample { sent: 2 * received, received, at, now: at };
                watch.observe(seen, CONFIGURED, 1_530, Ppm(0));
            }
            watch.observed().map(|seen| (seen.rate, seen.at_least))
        };
        let reported = Some((BitRate(20_000_000), false));
        assert_eq!(after(RATE_LOOK_MIN, 2), reported);
        assert_eq!(
            after(RATE_LOOK_MIN - Nanos(1), 2),
            None,
            "the second is no look, and the third the first"
        );
        assert_eq!(after(RATE_LOOK_MIN - Nanos(1), 4).map(|(_, at_least)| at_least), Some(false));
        assert_eq!(after(RATE_LOOK_MAX, 2), reported);
        assert_eq!(after(RATE_LOOK_MAX + Nanos(1), 50), None);
    }

    /// The last observation after checks a given span apart, each with what was handed over and what came out in it.
    fn seen(spans: &[(Nanos, u64, u64)]) -> Option<(u64, bool)> {
        let mut watch = DrainWatch::default();
        let mut seen = LinkSample { sent: 0, received: 0, at: Instant(7), now: Instant(9) };
        watch.observe(seen, BitRate(80_000_000), 1_530, Ppm(0));
        for (span, sent, received) in spans {
            (seen.sent, seen.received) = (seen.sent + sent, seen.received + received);
            (seen.at, seen.now) = (seen.at + *span, seen.now + *span);
            watch.observe(seen, BitRate(80_000_000), 1_530, Ppm(0));
        }
        watch.observed().map(|found| (found.rate.0, found.at_least))
    }

    /// A drain rate is observed by two checks in a row. One before a pause, or before the neighbour has started again, is not the one
    /// before: the link may have been idle meanwhile.
    #[test]
    fn checks_on_both_sides_of_a_gap_do_not_agree() {
        let second = Nanos::from_secs(1);
        let behind = (second, 9_000_000, 5_000_000);
        assert_eq!(seen(&[behind, behind]), Some((40_000_000, false)));
        let pause = (RATE_LOOK_MAX + Nanos(1), 0, 0);
        assert_eq!(seen(&[behind, pause, behind]), Some((40_000_000, true)));
        assert_eq!(seen(&[behind, pause, behind, behind]), Some((40_000_000, false)));
        let mut watch = DrainWatch::default();
        // The neighbour counts from zero again after the second.
        for (sent, received, at) in
            [(0, 0, 1), (9_000_000, 5_000_000, 2), (18_000_000, 100, 3), (27_000_000, 5_000_100, 4)]
        {
            let at = Instant(7) + second * at;
            watch.observe(LinkSample { sent, received, at, now: at }, BitRate(80_000_000), 1_530, Ppm(0));
        }
        assert_eq!(watch.observed().map(|found| (found.rate.0, found.at_least)), Some((40_000_000, true)));
    }

    /// The error is a packet more or less in what came out, rounded down, and the clocks' drift. It is never
    /// more than the rate.
    #[test]
    fn an_observed_rate_is_wrong_by_a_packet_and_the_drift() {
        for (came, drift, error) in [
            (1_020_000, 0, 1_500),
            (1_020_001, 0, 1_499),
            (1_020_001, 200, 1_699),
            (15_301, 0, 99_993),
            (15_301, 900_007, 1_000_000),
            (15_301, 900_008, 1_000_000),
            (15_301, u32::MAX, 1_000_000),
        ] {
            let mut watch = DrainWatch::default();
            for number in 0..3 {
                let at = Instant(7) + Nanos::from_secs(1) * number;
                let seen = LinkSample { sent: 9_000_000 * number, received: came * number, at, now: at };
                watch.observe(seen, CONFIGURED, 1_530, Ppm(drift));
            }
            let found = watch.observed().expect("the link was behind");
            assert_eq!((found.rate, found.error), (BitRate(came * 8), Ppm(error)), "{came} {drift}");
        }
        // A packet is more than all that came out.
        let mut watch = DrainWatch::default();
        for (received, at) in [(0, Instant(1)), (1_000, Instant(1_000_000_001))] {
            watch.observe(LinkSample { sent: 0, received, at, now: at }, BitRate(16_000), 1_530, Ppm(0));
        }
        assert_eq!(watch.observed().map(|seen| (seen.rate, seen.error)), Some((BitRate(8_000), Ppm::ONE)));
    }

    /// Each limit to the byte: half of the rate shows something, more than a tenth missing is a backlog, of more than ten
    /// packets, and two rates that differ by a tenth of the smaller one agree.
    #[test]
    fn what_counts_as_full_as_behind_and_as_the_same_rate() {
        let of = |checks: &[(u64, u64)]| {
            seen(
                &checks
                    .iter()
                    .map(|(sent, came)| (Nanos::from_secs(1), *sent, *came))
                    .collect::<alloc::vec::Vec<_>>(),
            )
        };
        let most = |rate: u64| Some((rate, false));
        let least = |rate: u64| Some((rate, true));
        for (sent, came, once, twice) in [
            (4_999_999, 4_999_999, None, None),
            (5_000_000, 5_000_000, least(40_000_000), least(40_000_000)),
            (5_500_000, 5_000_000, least(40_000_000), least(40_000_000)),
            (5_500_001, 5_000_000, least(40_000_000), most(40_000_000)),
            (900_000, 15_300, None, None),
            (900_000, 15_301, None, most(122_408)),
        ] {
            assert_eq!((of(&[(sent, came)]), of(&[(sent, came); 2])), (once, twice), "{sent} {came}");
        }
        let backlog = |first: u64, second: u64| of(&[(9_000_000, first), (9_000_000, second)]);
        assert_eq!(backlog(5_500_000, 5_000_000), most(40_000_000));
        assert_eq!(backlog(5_500_001, 5_000_000), least(44_000_008));
        assert_eq!(backlog(5_000_000, 5_500_000), most(44_000_000));
        assert_eq!(backlog(5_000_000, 5_500_001), least(44_000_008));
    }

    /// An observed rate is replaced by a new one, by a lower limit that is more than a twentieth higher, and by any after more
    /// than a minute; a lower limit by one that is no lower.
    #[test]
    fn an_observation_stands_until_another_says_more_or_it_is_old() {
        let (second, minute) = (Nanos::from_secs(1), FORGOTTEN);
        // Two checks show a rate of 64 Mbit/s; then nothing is sent for a while.
        let after = |idle: Nanos, came: u64| {
            let mut spans = alloc::vec![(second, 9_900_000, 8_000_000), (second, 9_900_000, 8_000_000)];
            spans.extend([(second, 0, 0); 56]);
            spans.extend([(idle - second * 57, 0, 0), (second, came, came)]);
            seen(&spans).expect("it was observed")
        };
        let (known, news) = ((64_000_000, false), (40_000_000, true));
        assert_eq!([after(minute, 5_000_000), after(minute + Nanos(1), 5_000_000)], [known, news]);
        assert_eq!([after(minute, 8_400_000), after(minute, 8_400_001)], [known, (67_200_008, true)]);
        // The same lower limit again is newer, and so it is forgotten later.
        let again = |first: u64| {
            let mut spans = alloc::vec![(second, first, first), (second, 6_000_000, 6_000_000)];
            spans.extend([(second, 0, 0); 58]);
            spans.push((second + Nanos(1), 5_100_000, 5_100_000));
            seen(&spans).expect("it was observed")
        };
        assert_eq!([again(6_000_000), again(6_000_008)], [(48_000_000, true), (40_799_999, true)]);
        let least = |came: u64| seen(&[(second, 6_000_000, 6_000_000), (second, came, came)]);
        for (came, rate) in [(5_999_999, 48_000_000), (6_000_001, 48_000_008)] {
            assert_eq!(least(came), Some((rate, true)));
        }
    }

    /// Numbers at the ends: nothing or a single byte that came out of a link of hardly any rate, and more
    /// than a byte in a nanosecond.
    #[test]
    fn rates_and_errors_are_exact_at_both_ends() {
        let of = |came: u64, packet: u32| {
            let mut watch = DrainWatch::default();
            for received in [0, came] {
                let at = Instant(7) + Nanos::from_secs(u64::from(received > 0 || came == 0));
                watch.observe(LinkSample { sent: 0, received, at, now: at }, BitRate(1), packet, Ppm(0));
            }
            watch
        };
        let mut idle = of(0, 1);
        let at = Instant(8) + Nanos::from_secs(1) + Nanos::from_secs(1);
        idle.observe(LinkSample { sent: 0, received: 0, at, now: at }, BitRate(1), 1, Ppm(0));
        assert_eq!(idle.observed().map(|seen| (seen.rate, seen.error)), Some((BitRate(0), Ppm::ONE)));
        for (came, rate, error) in
            [(1, 8, 1_000_000), (2, 16, 500_000), (3, 24, 333_333), (5_000_000_001, 40_000_000_008, 0)]
        {
            let found = of(came, 1).observed().expect("more than the rate");
            assert_eq!((found.rate, found.error), (BitRate(rate), Ppm(error)), "{came}");
        }
    }

    /// A check that comes too soon is none, also where nothing came out meanwhile: the next one looks back to
    /// the one before.
    #[test]
    fn a_check_too_soon_does_not_begin_another_span() {
        let mut watch = DrainWatch::default();
        let half = Nanos(RATE_LOOK_MIN.0 / 2);
        for (after, received) in [(Nanos::ZERO, 0), (half, 0), (RATE_LOOK_MIN, 90_000_000)] {
            let at = Instant(7) + after;
            watch.observe(LinkSample { sent: 0, received, at, now: at }, CONFIGURED, 1_530, Ppm(0));
        }
        let rate = 90_000_000 * 8_000_000_000 / RATE_LOOK_MIN.0;
        assert_eq!(watch.observed().map(|seen| seen.rate), Some(BitRate(rate)));
    }
}
