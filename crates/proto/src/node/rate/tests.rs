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
