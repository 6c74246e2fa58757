//! Monitors the promises of this node's stages: checks what was late, finds the likely cause, and notifies
//! the nodes and ends concerned (ADR 0026).
//!
//! Decisions here use only evidence that cannot be forged on the wire: late HELLOs, a neighbour's report of
//! our late packets, and this processor's own clock. Late data packets are counted beside it, but they cause
//! no refusals. Checks run only while something is late or broken, so that an undisturbed host is not woken.

use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;

use punctual_analysis::{BitRate, Instant, Nanos};

use super::Node;
use super::late::{LastReport, watches};
use crate::api::{Breach, Cause, Event, LateArrivals, StageName};
use crate::breach::Lateness;
use crate::ids::LinkId;
use crate::limits::{LATE_ARRIVALS_INTERVAL, WATCH_SLOT};
use crate::memory::Memory;

/// Divisor of what was sent: more than this part must be missing at the other end before the link counts as
/// slow.
const SENT_BEYOND_RECEIVED: u64 = 20;
/// Divisor of the link's rate: foreign traffic beyond this part is reported as a cause.
const FOREIGN_PART: u64 = 20;

/// State of the monitoring, apart from the watches.
#[derive(Debug)]
pub(super) struct BreachWatch {
    /// Time of the next check; `None` while nothing is late.
    next: Option<Instant>,
    processor: Option<Breach>,
    links: Vec<LinkBreach>,
    /// The last report about each watch.
    last_reports: Vec<LastReport>,
    /// Events that are to be reported.
    events: VecDeque<Event>,
}

/// Breaches of one link, in both directions.
#[derive(Clone, Copy, Debug, Default)]
struct LinkBreach {
    /// The neighbour's last report about our packets, and its time.
    reported: Option<(LateArrivals, Instant)>,
    /// The breach as it was announced; `announced` has the time.
    breach: Option<Breach>,
    announced: Instant,
    /// True while the link is measured before it counts as healed.
    proving: bool,
    /// Time of the last report to the neighbour about its packets.
    reported_at: Option<Instant>,
    /// Whether nodes beyond this one were notified of the neighbour's late packets.
    arrivals_announced: bool,
    /// Rate of other traffic on the link's device, as the driver's host reports it.
    foreign: BitRate,
    sent: Flow,
    received: Flow,
}

/// Bytes on the wire between two checks.
#[derive(Clone, Copy, Debug, Default)]
struct Flow {
    since: Instant,
    bytes: u64,
    /// Rate during the last span that was long enough.
    rate: BitRate,
    span: Nanos,
}

impl Flow {
    /// Takes a count that never decreases.
    fn note_count(&mut self, bytes: u64, now: Instant) {
        let span = now.since(self.since);
        // The first check after a pause does not measure the present rate.
        if span > LATE_ARRIVALS_INTERVAL * 2 {
            (self.since, self.bytes) = (now, bytes);
        } else if span >= WATCH_SLOT * 2 {
            let bits = u128::from(bytes.saturating_sub(self.bytes)) * 8_000_000_000;
            self.rate = BitRate(u64::try_from(bits / u128::from(span.0)).unwrap_or(u64::MAX));
            (self.since, self.bytes, self.span) = (now, bytes, span);
        }
    }
}

impl BreachWatch {
    pub fn new(links: usize) -> Self {
        Self {
            next: None,
            processor: None,
            links: vec![LinkBreach::default(); links],
            last_reports: vec![LastReport::default(); watches(links)],
            events: VecDeque::new(),
        }
    }

    /// Changes what is known of a link; nothing if there is none such.
    fn with_link(&mut self, link: LinkId, change: impl FnOnce(&mut LinkBreach)) {
        if let Some(watched) = self.links.get_mut(usize::from(link.0)) {
            change(watched);
        }
    }

    /// Number of watches.
    pub fn watches(&self) -> usize {
        self.last_reports.len()
    }

    /// The last report about a watch.
    pub fn last_report_mut(&mut self, number: usize) -> &mut LastReport {
        &mut self.last_reports[number]
    }

    /// Queues an event for [`Self::poll_event`].
    pub fn queue_event(&mut self, event: Event) {
        self.events.push_back(event);
    }

    /// The next event that is to be reported.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }
}

impl<M: Memory> Node<M> {
    /// Sets the rate of other traffic on the device of a link, as its driver's host measures it. It is used
    /// only to find causes.
    pub fn handle_foreign_traffic(&mut self, link: LinkId, rate: BitRate) {
        self.breach_watch.with_link(link, |watched| watched.foreign = rate);
    }

    /// Whether the node searches for causes now: only then [`Node::handle_foreign_traffic`] matters.
    pub fn is_looking(&self) -> bool {
        self.breach_watch.next.is_some()
    }

    /// Time of the next check; `None` if there is nothing to check.
    pub(super) fn breaches_due(&self) -> Option<Instant> {
        match self.breach_watch.next {
            Some(next) => Some(next),
            None if self.plane.is_stirred() || self.signalling.has_late_arrivals() => Some(Instant::ZERO),
            None => None,
        }
    }

    /// Checks all stages.
    pub(super) fn check_breaches(&mut self, now: Instant) {
        self.plane.settle();
        while let Some((link, late)) = self.signalling.poll_late_arrivals() {
            self.breach_watch.with_link(link, |watched| watched.reported = Some((late, now)));
        }
        let mut goes_on = self.check_processor(now);
        for index in 0..self.breach_watch.links.len() {
            let link = LinkId(index as u16);
            goes_on |= self.check_arrivals(link, now);
            goes_on |= self.check_departures(link, now);
        }
        self.report_late_stages(now);
        self.breach_watch.next = goes_on.then(|| now + WATCH_SLOT);
    }

    fn check_processor(&mut self, now: Instant) -> bool {
        let lease = self.plane.config().signalling.lease;
        let watch = self.plane.processor_watch_mut();
        watch.heals(lease, now);
        let late = watch.recent(now);
        let breach = watch.broken_since().map(|_| Breach { late, cause: Cause::SlowProcessor });
        let goes_on = watch.is_stirred(now);
        if breach.is_some() != self.breach_watch.processor.is_some() {
            self.breach_watch.processor = breach;
            self.plane.stages_mut().set_cpu_breach(breach);
            self.signalling.announce(None, breach, now);
        }
        goes_on
    }

    /// Checks incoming packets: the neighbour, which owns the link, gets a report. Returns whether to check
    /// again.
    fn check_arrivals(&mut self, link: LinkId, now: Instant) -> bool {
        let lease = self.plane.config().signalling.lease;
        let Some(watch) = self.signalling.arrivals_mut(link) else { return false };
        watch.heals(lease, now);
        let (late, is_broken, stirred) =
            (watch.recent(now), watch.broken_since().is_some(), watch.is_stirred(now));
        let watched = &mut self.breach_watch.links[usize::from(link.0)];
        watched.received.note_count(self.plane.link_state(link).bytes_in(), now);
        let may_report =
            watched.reported_at.is_none_or(|reported_at| now.since(reported_at) >= LATE_ARRIVALS_INTERVAL);
        if is_broken && late.times > 0 && may_report {
            watched.reported_at = Some(now);
            let Flow { rate, span, .. } = watched.received;
            self.signalling.report_late(link, LateArrivals { late, received: rate, span });
        }
        if is_broken != watched.arrivals_announced {
            watched.arrivals_announced = is_broken;
            let breach = Breach { late, cause: Cause::LongerTravel };
            self.signalling.announce_arrivals(link, is_broken.then_some(breach), now);
        }
        stirred || self.plane.link_state(link).arrivals().is_stirred(now)
    }

    /// Checks outgoing packets: this node's own stage, by its neighbour's report. Returns whether to check
    /// again.
    fn check_departures(&mut self, link: LinkId, now: Instant) -> bool {
        let lease = self.plane.config().signalling.lease;
        let counters = *self.plane.link_state(link).counters();
        let (configured, full_at) =
            (self.plane.link_state(link).config().rate, self.plane.link_state(link).full_at());
        let watch = self.plane.link_state_mut(link).departures_mut();
        watch.heals(lease, now);
        let (own, stirred) = (watch.broken_since().map(|_| watch.recent(now)), watch.is_stirred(now));
        let watched = &mut self.breach_watch.links[usize::from(link.0)];
        watched.sent.note_count(counters.guaranteed_bytes + counters.best_effort_bytes, now);
        let reported = watched.reported.filter(|(_, at)| now.since(*at) < lease);
        // Packets that wait here leave as fast as the link drains.
        let held = own.is_some() || now.since(full_at) < LATE_ARRIVALS_INTERVAL;
        let own = own.map(|late| LateArrivals { late, received: watched.sent.rate, span: watched.sent.span });
        let late = reported.map(|(late, _)| late).or(own);
        let breach =
            late.map(|late| Breach { late: late.late, cause: watched.cause(&late, configured, held) });
        watched.reported = reported;
        let breach = breach.or_else(|| self.unproven(link, configured, now));
        let watched = &mut self.breach_watch.links[usize::from(link.0)];
        let may_refine = now.since(watched.announced) >= LATE_ARRIVALS_INTERVAL;
        let changed = match (&breach, &watched.breach) {
            (Some(breach), Some(known)) => {
                breach.cause.kind() > known.cause.kind() || may_refine && breach.cause.differs(&known.cause)
            }
            (breach, known) => breach.is_some() != known.is_some(),
        };
        if changed {
            (watched.breach, watched.announced) = (breach, now);
            let neighbour = self.plane.link_state(link).config().neighbour;
            self.plane.stages_mut().set_link_breach(link, breach);
            self.signalling.announce(Some(neighbour), breach, now);
        }
        reported.is_some() || stirred
    }

    /// The breach of a link on which nothing is late: it was measured to be slow, or it was slow when it was
    /// used last. An idle link is never late, whatever it drains, so it is measured before it counts as
    /// healed.
    fn unproven(&mut self, link: LinkId, configured: BitRate, now: Instant) -> Option<Breach> {
        let slow =
            |drains| Breach { late: Lateness::default(), cause: Cause::SlowLink { drains, configured } };
        if self.measures_rate(link) {
            return self.breach_watch.links[usize::from(link.0)].breach;
        }
        let measured = self.measured_slow(link).map(slow);
        let watched = &mut self.breach_watch.links[usize::from(link.0)];
        let was = watched.breach.filter(|breach| matches!(breach.cause, Cause::SlowLink { .. }));
        let is_proof = core::mem::take(&mut watched.proving);
        if measured.is_some() || was.is_none() || is_proof || self.users_of(link) > 0 {
            return measured;
        }
        self.breach_watch.links[usize::from(link.0)].proving = self.proves_rate(link, now);
        was.filter(|_| self.breach_watch.links[usize::from(link.0)].proving)
    }

    /// This node's broken stages and those on the routes of its channels.
    pub(super) fn broken_stages(&self) -> Vec<crate::api::BrokenStage> {
        let broken = self.signalling.broken_stages();
        broken
            .map(|(stage, breach): (StageName, Breach)| self.signalling.broken_stage(stage, breach))
            .collect()
    }
}

impl LinkBreach {
    /// The likely cause of lateness. `held`: packets wait here for the link.
    fn cause(&self, late: &LateArrivals, configured: BitRate, held: bool) -> Cause {
        let received = late.received;
        // Packets that leave the device and were not handed over now may be ours from before, out of a deep
        // queue: they arrive there.
        let others = self.foreign.0.saturating_add(self.sent.rate.0).saturating_sub(received.0);
        let foreign = BitRate(self.foreign.0.min(others));
        if foreign.0 > configured.0 / FOREIGN_PART {
            return Cause::ForeignTraffic { rate: foreign };
        }
        let missing = self.sent.rate.0 > received.0 + received.0 / SENT_BEYOND_RECEIVED;
        // If queues are full, the rate of packets that leave is the drain rate of the link.
        let filled = received.0 > configured.0 / 2 && received.0 < configured.0 - configured.0 / FOREIGN_PART;
        if late.span > Nanos::ZERO && (missing || filled || held) {
            Cause::SlowLink { drains: received, configured }
        } else {
            Cause::LongerTravel
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A rate is measured over spans that are neither too short to be meaningful nor a pause.
    #[test]
    fn a_flow_is_measured_between_checks_at_a_suitable_distance() {
        let measured = |span: Nanos| {
            let mut flow = Flow::default();
            flow.note_count(0, Instant(0));
            flow.note_count(span.0 / 8, Instant(0) + span);
            flow.rate
        };
        let rate = BitRate(1_000_000_000);
        assert_eq!((measured(WATCH_SLOT * 2), measured(WATCH_SLOT * 2 - Nanos(1))), (rate, BitRate(0)));
        let longest = LATE_ARRIVALS_INTERVAL * 2;
        assert_eq!((measured(longest), measured(longest + Nanos(1))), (rate, BitRate(0)));
    }

    /// The likely cause, from what was sent, what arrived there and what others put on the device: on a link
    /// of 100 Mbit/s a twentieth counts.
    #[test]
    fn the_cause_of_lateness_is_what_the_numbers_show() {
        let mega = |mega: u64| BitRate(mega * 1_000_000);
        let configured = mega(100);
        let cause = |sent: u64, received: u64, foreign: u64, held: bool, span: Nanos| {
            let mut watched = LinkBreach { foreign: mega(foreign), ..LinkBreach::default() };
            watched.sent.rate = mega(sent);
            let late = LateArrivals { late: Lateness::default(), received: mega(received), span };
            watched.cause(&late, configured, held)
        };
        let slow = |drains| Cause::SlowLink { drains: mega(drains), configured };
        let foreign = |rate| Cause::ForeignTraffic { rate: mega(rate) };
        let second = Nanos::from_secs(1);
        for (sent, received, others, held, expected) in [
            (20, 20, 0, false, Cause::LongerTravel),
            (20, 20, 5, false, Cause::LongerTravel),
            (20, 20, 6, false, foreign(6)),
            // The excess of arrived bytes over sent bytes was sent before.
            (20, 40, 30, false, foreign(10)),
            (20, 45, 30, false, Cause::LongerTravel),
            (20, 90, 30, false, slow(90)),
            // More than a twentieth is missing.
            (42, 40, 0, false, Cause::LongerTravel),
            (43, 40, 0, false, slow(40)),
            // The received rate is between a half and all but a twentieth of the link's rate, so it is the
            // drain rate.
            (50, 50, 0, false, Cause::LongerTravel),
            (51, 51, 0, false, slow(51)),
            (94, 94, 0, false, slow(94)),
            (95, 95, 0, false, Cause::LongerTravel),
            // Packets wait here for the link.
            (20, 20, 0, true, slow(20)),
        ] {
            let found = cause(sent, received, others, held, second);
            assert_eq!(found, expected, "{sent} sent, {received} received, {others} of others, {held}");
            // A span of zero shows nothing except the traffic of others.
            let unknown =
                if matches!(expected, Cause::SlowLink { .. }) { Cause::LongerTravel } else { expected };
            assert_eq!(cause(sent, received, others, held, Nanos::ZERO), unknown);
        }
    }

    /// Counts that decrease, as of a driver that restarted, give no rate; rates are counted from check to
    /// check.
    #[test]
    fn a_flow_is_that_of_the_last_span() {
        let mut flow = Flow::default();
        let slot = WATCH_SLOT * 2;
        let at = |slots: u64| Instant(0) + slot * slots;
        let per_slot = |bytes: u64| BitRate(bytes * 8_000_000_000 / slot.0);
        flow.note_count(1_000, at(1));
        assert_eq!((flow.rate, flow.span), (per_slot(1_000), slot));
        flow.note_count(1_500, at(1) + slot - Nanos(1));
        assert_eq!(flow.rate, per_slot(1_000), "too soon");
        flow.note_count(1_600, at(2));
        assert_eq!(flow.rate, per_slot(600));
        flow.note_count(0, at(3));
        assert_eq!(flow.rate, BitRate(0));
    }

    /// What the neighbour reports counts for a lease, and packets that waited for the link within the last second make it the
    /// link: to the nanosecond.
    #[test]
    fn reports_and_full_drivers_are_evidence_until_they_are_too_old() {
        use crate::node::tests::{LINK, NOW, node};
        let now = NOW + Nanos::from_secs(100);
        let cause = |report_age: Nanos, full_age: Nanos| {
            let mut node = node();
            let late = Lateness { times: 3, by_max: Nanos(7) };
            let late = LateArrivals { late, received: BitRate(1_000_000), span: Nanos::from_secs(1) };
            node.breach_watch.links[0].reported = Some((late, now - report_age));
            node.plane.link_state_mut(LINK).note_full(now - full_age);
            node.check_breaches(now);
            let breach = node.breach_watch.links[0].breach;
            assert_eq!(
                node.breach_watch.next.is_some(),
                breach.is_some(),
                "it looks again while there is one"
            );
            assert!(breach.is_none_or(|breach| breach.late == late.late));
            breach.map(|breach| breach.cause)
        };
        let (lease, second) = (node().plane.config().signalling.lease, LATE_ARRIVALS_INTERVAL);
        let configured = node().plane.link_state(LINK).config().rate;
        let slow = Some(Cause::SlowLink { drains: BitRate(1_000_000), configured });
        assert_eq!(cause(Nanos::ZERO, second - Nanos(1)), slow);
        assert_eq!(cause(Nanos::ZERO, second), Some(Cause::LongerTravel));
        assert_eq!([cause(lease - Nanos(1), Nanos::ZERO), cause(lease, Nanos::ZERO)], [slow, None]);
    }

    /// A breach whose rate has changed is announced anew, after a second at the soonest; one of a graver cause at once.
    #[test]
    fn a_breach_is_refined_once_a_second() {
        use crate::node::tests::{LINK, NOW, node};
        let begun = NOW + Nanos::from_secs(100);
        let mut node = node();
        let mut seen = |age: Nanos, mega: u64, foreign: u64| {
            let (now, received) = (begun + age, BitRate(mega * 1_000_000));
            let late = LateArrivals { late: Lateness::default(), received, span: Nanos::from_secs(1) };
            node.breach_watch.links[0].reported = Some((late, now));
            node.handle_foreign_traffic(LINK, BitRate(foreign * 1_000_000));
            node.plane.link_state_mut(LINK).note_full(now);
            node.check_breaches(now);
            let watched = &node.breach_watch.links[0];
            (watched.breach.map(|breach| breach.cause), watched.announced == now)
        };
        let of = |mega: u64| {
            Some(Cause::SlowLink { drains: BitRate(mega * 1_000_000), configured: BitRate(40_000_000) })
        };
        let second = LATE_ARRIVALS_INTERVAL;
        assert_eq!(seen(Nanos::ZERO, 4, 0), (of(4), true));
        assert_eq!(seen(second - Nanos(1), 10, 0), (of(4), false));
        assert_eq!(seen(second, 5, 0), (of(4), false), "a quarter is no other rate");
        assert_eq!(seen(second, 10, 0), (of(10), true));
        let foreign = Some(Cause::ForeignTraffic { rate: BitRate(29_000_000) });
        assert_eq!(seen(second + Nanos(1), 10, 39), (foreign, true), "what came was ours");
        assert!(!seen(second + Nanos(2), 10, 0).1, "the lighter cause has to wait");
    }

    /// A neighbour gets a report about its late packets when they break its promise, and then one each second while they do.
    #[test]
    fn late_packets_are_reported_once_a_second() {
        use crate::node::tests::{LINK, NOW, node};
        let begun = NOW + Nanos::from_secs(100);
        let mut node = node();
        let mut reported = |age: Nanos, late: u64| {
            let now = begun + age;
            let watch = node.signalling.arrivals_mut(LINK).expect("a neighbour");
            for slot in (0..late).rev() {
                watch.late(Nanos(5), now - WATCH_SLOT * slot);
            }
            node.check_breaches(now);
            node.breach_watch.links[0].reported_at == Some(now)
        };
        let second = LATE_ARRIVALS_INTERVAL;
        assert!(!reported(Nanos::ZERO, 2), "twice is no breach");
        assert!(reported(second, 3));
        assert!(!reported(second * 2 - Nanos(1), 3) && reported(second * 2, 3));
        assert!(!reported(second * 4, 0), "nothing was late in the last second");
        assert!(reported(second * 5, 1), "one late packet of a link that is broken already");
        let (lease, watch) = (node.plane.config().signalling.lease, node.signalling.arrivals_mut(LINK));
        let healed_at = begun + second * 5 + lease;
        assert_eq!(watch.expect("a neighbour").heals_at(lease), Some(healed_at));
        for (now, announced) in [(healed_at - Nanos(1), true), (healed_at, false)] {
            node.check_breaches(now);
            assert_eq!(node.breach_watch.links[0].arrivals_announced, announced);
        }
    }

    /// A rate is the bits of a span by its length, exact to the bit, of spans of two slots to two intervals.
    #[test]
    fn a_flow_is_measured_over_spans_of_the_right_length() {
        let (least, most) = (WATCH_SLOT * 2, LATE_ARRIVALS_INTERVAL * 2);
        for (span, bytes) in [(least, 3), (LATE_ARRIVALS_INTERVAL, 5_000_000_001), (most, 20_000_000_003)] {
            let mut flow = Flow::default();
            flow.note_count(bytes, Instant(0) + span);
            let bits = u128::from(bytes) * 8_000_000_000 / u128::from(span.0);
            assert_eq!((flow.rate, flow.span), (BitRate(bits as u64), span));
            assert_eq!((flow.since, flow.bytes), (Instant(0) + span, bytes));
        }
        // Too soon: it is still the same span. Too late: the next span begins here.
        for (span, begins) in [(least - Nanos(1), false), (most + Nanos(1), true)] {
            let mut flow = Flow::default();
            flow.note_count(7, Instant(0) + span);
            let expected = if begins { (Instant(0) + span, 7) } else { (Instant(0), 0) };
            assert_eq!((flow.rate, flow.since, flow.bytes), (BitRate(0), expected.0, expected.1));
        }
    }
}
