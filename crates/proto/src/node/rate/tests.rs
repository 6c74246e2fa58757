//! Neighbours' messages about a measurement that were not requested, or are not true.

use punctual_analysis::{BitRate, Nanos};

use super::*;
use crate::api::RateStatus;
use crate::node::tests::{LINK, NOW, Nothing, node};

const TOKEN: Cookie = Cookie(5);

/// A host that has filled its link and waits for the report.
fn waiting() -> Node<Nothing> {
    let mut node = node();
    let own = Own::Waiting { token: TOKEN, until: NOW + RATE_DRAIN_TIME };
    node.rates.links[0] = LinkRate { own, attempts: 1, ..LinkRate::default() };
    node
}

fn sample(packets: u64, span: Nanos) -> RateSample {
    let second = Nanos::from_secs(1);
    RateSample { packets, span, jitter: Nanos::ZERO, offered: packets, offered_span: second, others: 0 }
}

fn report(node: &mut Node<Nothing>, token: Cookie, counted: RateSample) -> RateStatus {
    node.on_rate_word(LINK, RateWord::Report { token, counted: Some(counted) }, NOW);
    node.rate_status(LINK)
}

/// A report about a measurement that was given up does not count for the present one.
#[test]
fn a_report_of_another_measurement_is_ignored() {
    let mut node = waiting();
    let counted = sample(1_000, Nanos::from_secs(1));
    let status = report(&mut node, Cookie(6), counted);
    assert_eq!((status.measured, status.refused, node.rates.poll_event()), (None, None, None));
    assert!(node.measures_rate(LINK), "it waits for its own");
    let status = report(&mut node, TOKEN, counted);
    let wire_bytes = u64::from(node.plane.link_state(LINK).filler_wire_bytes());
    assert_eq!(status.measured.map(|measured| measured.rate), Some(BitRate(wire_bytes * 8_000)));
    assert!(!node.measures_rate(LINK) && node.rates.poll_event().is_some());
}

/// A link whose reported rate is zero, or less than its signalling needs, keeps the rate that it has.
#[test]
fn a_link_that_drains_nothing_has_no_rate() {
    for (packets, span) in [(1_000, Nanos(u64::MAX / 2)), (1_000, Nanos::from_secs(3_600))] {
        let mut node = waiting();
        let before = node.rate_status(LINK).rate;
        let status = report(&mut node, TOKEN, sample(packets, span));
        assert_eq!((status.rate, status.measured), (before, None), "{span}");
        assert_eq!(status.refused, Some(RateRefusal::TooSlow), "{span}");
        let result = Err(RateRefusal::TooSlow);
        assert_eq!(node.rates.poll_event(), Some(Event::Rate { link: LINK, result }), "{span}");
    }
}

/// A measurement that ends early, because the neighbour is gone, leaves none of its packets to the next users of the link.
#[test]
fn what_fills_a_link_goes_with_its_measurement() {
    let mut node = node();
    let queued = |node: &Node<Nothing>| {
        let accounts = node.accounts();
        assert!(accounts.iter().all(|account| account.counted == account.held), "{accounts:?}");
        accounts.iter().find(|account| account.what == "best-effort packets").map(|account| account.held)
    };
    node.plane.start_filling(LINK, TOKEN, NOW);
    (0..3).for_each(|_| node.plane.run_filler(LINK, NOW));
    assert_eq!(queued(&node), Some(3));
    let own = Own::Filling { token: TOKEN, until: NOW + RATE_TIME };
    node.rates.links[0] = LinkRate { own, attempts: 1, ..LinkRate::default() };
    node.drop_rate(LINK, RateRefusal::NoNeighbour, NOW);
    assert_eq!((queued(&node), node.measures_rate(LINK)), (Some(0), false));
}

/// The error with which a report of so many packets in a second comes, with what the clocks add, and what becomes of it.
fn concluded(attempts: u8, best: Option<MeasuredRate>, jitter: Nanos) -> (Ppm, Option<RateRefusal>, bool) {
    let mut node = waiting();
    (node.rates.links[0].attempts, node.rates.links[0].best) = (attempts, best);
    let counted = RateSample { jitter, ..sample(1_000_000, Nanos::from_secs(1)) };
    let error = node.judge_rate(LINK, &counted, NOW).error;
    let status = report(&mut node, TOKEN, counted);
    (error, status.refused, node.measures_rate(LINK))
}

/// An error that is small enough ends a measurement, and so does the last attempt. What counts is the best attempt, unless even
/// that is too uneven.
#[test]
fn a_measurement_ends_with_a_small_error_or_with_the_last_attempt() {
    // A nanosecond of jitter at both ends of the window of a second rounds up to one part in a million each time it is 500.
    let base = concluded(RATE_ATTEMPTS_MAX, None, Nanos::ZERO).0;
    let jitter = |error: Ppm| Nanos(u64::from(error.0 - base.0) * 500);
    for (attempts, error, refused, goes_on) in [
        (1, RATE_ERROR_GOOD, false, false),
        (1, Ppm(RATE_ERROR_GOOD.0 + 1), false, true),
        (RATE_ATTEMPTS_MAX - 1, Ppm(RATE_ERROR_GOOD.0 + 1), false, true),
        (RATE_ATTEMPTS_MAX, Ppm(RATE_ERROR_GOOD.0 + 1), false, false),
        (RATE_ATTEMPTS_MAX, RATE_ERROR_MAX, false, false),
        (RATE_ATTEMPTS_MAX, Ppm(RATE_ERROR_MAX.0 + 1), true, false),
    ] {
        let found = concluded(attempts, None, jitter(error));
        let refusal = refused.then_some(RateRefusal::Uneven { error });
        assert_eq!(found, (error, refusal, goes_on), "attempt {attempts}");
    }
    let known = MeasuredRate { rate: BitRate(30_000_000), error: Ppm(30_000), at_least: false, at: NOW };
    for (error, is_better) in [(29_999, true), (30_000, false), (30_001, false)] {
        let mut node = waiting();
        (node.rates.links[0].attempts, node.rates.links[0].best) = (RATE_ATTEMPTS_MAX, Some(known));
        let counted = RateSample { jitter: jitter(Ppm(error)), ..sample(1_000_000, Nanos::from_secs(1)) };
        let found = report(&mut node, TOKEN, counted).measured.expect("it was measured");
        assert_eq!(found.rate != known.rate, is_better, "{error}");
    }
}

/// A link is slow if it drains less than is assumed with the error, until more was seen to come out of it, later than measured.
#[test]
fn a_link_is_slow_until_more_was_seen_since() {
    let slow = |rate: u64, observed: Option<(u64, Nanos)>| {
        let mut node = crate::node::tests::node_with(false);
        let measured = MeasuredRate { rate: BitRate(rate), error: Ppm(0), at_least: false, at: NOW };
        node.rates.links[0].measured = Some((measured, 0));
        if let Some((bytes, ago)) = observed {
            let sample = |received, now| LinkSample { sent: received, received, at: now, now };
            let seen = [sample(0, NOW + ago - Nanos::from_secs(1)), sample(bytes, NOW + ago)];
            for seen in seen {
                node.rates.links[0].watch.observe(seen, BitRate(1), 1_530, Ppm(0));
            }
        }
        node.measured_slow(LINK).is_some()
    };
    let config = crate::node::tests::node_with(false).rate_status(LINK);
    let assumed = config.rate.less(config.error).0;
    assert_eq!([slow(assumed - 1, None), slow(assumed, None)], [true, false]);
    let second = Nanos::from_secs(1);
    for (bytes, ago, expected) in [
        (1_000_000, second, true),
        (1_000_001, second, false),
        (1_000_001, Nanos(1), false),
        (1_000_001, Nanos::ZERO, true),
    ] {
        assert_eq!(slow(8_000_000, Some((bytes, ago))), expected, "{bytes} {ago}");
    }
}

/// What is due is handled at its time, not before.
#[test]
fn measurements_are_given_up_at_their_time() {
    let until = NOW + Nanos::from_secs(2);
    let ended = |own: Own, theirs: bool, now: Instant| {
        let mut node = node();
        let theirs = theirs.then_some((TOKEN, until));
        node.rates.links[0] = LinkRate { own, theirs, attempts: 1, ..LinkRate::default() };
        node.handle_rates(now);
        assert_eq!(node.rates.due(), (now < until).then_some(until));
        !node.is_measured(LINK)
    };
    let token = TOKEN;
    for (own, theirs) in
        [(Own::Asked { token, until }, false), (Own::Waiting { token, until }, false), (Own::Idle, true)]
    {
        assert_eq!([until - Nanos(1), until].map(|now| ended(own, theirs, now)), [false, true], "{own:?}");
    }
}

/// Measurements that have ended are reported in the order of their ends.
#[test]
fn ends_of_measurements_are_reported_in_order() {
    let mut node = node();
    let ends = [RateRefusal::Busy, RateRefusal::NoAnswer, RateRefusal::TooFew];
    ends.into_iter().for_each(|why| node.end_rate(LINK, Err(why), NOW));
    for why in ends {
        assert_eq!(node.rates.poll_event(), Some(Event::Rate { link: LINK, result: Err(why) }));
    }
    assert_eq!(node.rates.poll_event(), None);
}

/// A neighbour that has no time says by how many channels its end is used: by none, another measurement is
/// what it waits for.
#[test]
fn a_neighbour_that_is_busy_says_why() {
    let until = NOW + RATE_ANSWER_TIME;
    for (channels, why) in [
        (0, RateRefusal::Busy),
        (1, RateRefusal::InUse { channels: 1, there: true }),
        (2, RateRefusal::InUse { channels: 2, there: true }),
    ] {
        let mut node = node();
        node.rates.links[0] = LinkRate { own: Own::Asked { token: TOKEN, until }, ..LinkRate::default() };
        node.on_rate_word(LINK, RateWord::Busy { token: TOKEN, channels }, NOW);
        assert_eq!(node.rates.poll_event(), Some(Event::Rate { link: LINK, result: Err(why) }));
        assert!(!node.is_measured(LINK), "{channels}");
    }
}

/// Whatever ends a neighbour's measurement, its packets are not counted any more; a new one begins at none.
#[test]
fn packets_are_counted_while_a_neighbour_measures_only() {
    let counts = |node: &mut Node<Nothing>| node.plane.link_state_mut(LINK).end_counting().is_some();
    let mut node = node();
    node.on_rate_word(LINK, RateWord::Ask { token: TOKEN }, NOW);
    assert!(node.is_measured(LINK) && counts(&mut node));
    for given_up in [false, true] {
        node.on_rate_word(LINK, RateWord::Ask { token: TOKEN }, NOW);
        match given_up {
            true => node.handle_rates(NOW + RATE_TIME + RATE_DRAIN_TIME),
            false => node.on_rate_word(LINK, RateWord::Done { token: TOKEN }, NOW),
        }
        assert!(!node.is_measured(LINK) && !counts(&mut node), "{given_up}");
    }
}

/// The error of a measured rate is never taken to be smaller than what is configured.
#[test]
fn a_measured_rate_is_as_wrong_as_configured_at_least() {
    let base = concluded(RATE_ATTEMPTS_MAX, None, Nanos::ZERO).0;
    let configured = node().rate_status(LINK).error;
    for error in [base, configured, Ppm(configured.0 + 1), Ppm(configured.0 * 2)] {
        let mut node = waiting();
        node.rates.links[0].attempts = RATE_ATTEMPTS_MAX;
        let jitter = Nanos(u64::from(error.0 - base.0) * 500);
        let counted = RateSample { jitter, ..sample(1_000_000, Nanos::from_secs(1)) };
        let status = report(&mut node, TOKEN, counted);
        assert_eq!(status.measured.map(|measured| measured.error), Some(error));
        assert_eq!(status.error, Ppm(error.0.max(configured.0)));
    }
    assert!(base < configured, "{base:?} {configured:?}");
}
