//! Reports a late stage at once, though one late event is no breach (ADR 0026): this host's own stages, and
//! its neighbours' links towards it. Nothing is decided by these reports.

use alloc::string::ToString;
use alloc::vec::Vec;

use punctual_analysis::{Instant, Nanos};

use super::Node;
use crate::api::{Event, LateStage, SeenIn, StageName};
use crate::breach::{Lateness, Watch};
use crate::ids::LinkId;
use crate::limits::{LATE_REPORT_INTERVAL, WATCH_SLOT};
use crate::memory::Memory;

/// Watches of each link: outgoing packets, the neighbour's HELLOs, and incoming packets of channels.
const OF_LINK: usize = 3;

/// Number of watches that a node with this many links has.
pub(super) const fn watches(links: usize) -> usize {
    1 + links * OF_LINK
}

/// The last report about one watch.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LastReport {
    /// Time since which something has been late in every last second.
    since: Option<Instant>,
    /// Time of the last report, and the lateness in it.
    last: Option<(Instant, Nanos)>,
}

impl LastReport {
    /// Whether to report that something is late, up to `by_max` in the last minute: one slot after the first
    /// late event, which mostly is not alone. A small lateness must not suppress the report of a large one.
    fn is_due(&mut self, is_late: bool, by_max: Nanos, now: Instant) -> bool {
        if !is_late {
            self.since = None;
            return false;
        }
        let since = *self.since.get_or_insert(now);
        let is_news =
            self.last.is_none_or(|(last, by)| now.since(last) >= LATE_REPORT_INTERVAL || by_max >= by * 2);
        let due = now.since(since) >= WATCH_SLOT && is_news;
        if due {
            self.last = Some((now, by_max));
        }
        due
    }
}

impl<M: Memory> Node<M> {
    /// The watch of a number, the stage that it monitors, and the kind of evidence.
    fn watched(&self, number: usize) -> Option<(StageName, SeenIn, &Watch)> {
        let own = self.plane.config().id;
        let Some(number) = number.checked_sub(1) else {
            return Some((StageName::processor(own), SeenIn::OwnClock, self.plane.processor_watch()));
        };
        let link = LinkId((number / OF_LINK) as u16);
        let state = self.plane.link_state(link);
        let neighbour = state.config().neighbour;
        let (out, into) = (StageName::link(own, neighbour), StageName::link(neighbour, own));
        match number % OF_LINK {
            0 => Some((out, SeenIn::OwnClock, state.departures())),
            1 => Some((into, SeenIn::Signalling, self.signalling.arrivals(link)?)),
            _ => Some((into, SeenIn::Data, state.arrivals())),
        }
    }

    /// Reports stages that were late and are not broken.
    pub(super) fn report_late_stages(&mut self, now: Instant) {
        for number in 0..self.breach_watch.watches() {
            let Some((stage, seen_in, watch)) = self.watched(number) else { continue };
            let is_late = watch.broken_since().is_none() && watch.recent(now).times > 0;
            let late = watch.last_minute(now);
            if self.breach_watch.last_report_mut(number).is_due(is_late, late.by_max, now) {
                let stage = self.late_stage(stage, seen_in, late);
                self.breach_watch.queue_event(Event::Late(stage));
            }
        }
    }

    fn late_stage(&self, stage: StageName, seen_in: SeenIn, late: Lateness) -> LateStage {
        let name = |node| self.plane.config().host_name(node).to_string();
        LateStage { host: name(stage.node), towards: stage.towards.map(name), late, seen_in }
    }

    /// Stages that this host has observed to be late in the last minute, and that do not count as broken.
    pub(super) fn late_stages(&self, now: Instant) -> Vec<LateStage> {
        let numbers = 0..self.breach_watch.watches();
        let late = numbers.filter_map(|number| {
            let (stage, seen_in, watch) = self.watched(number)?;
            let late = watch.last_minute(now);
            let is_late = late.times > 0 && watch.broken_since().is_none();
            is_late.then(|| self.late_stage(stage, seen_in, late))
        });
        late.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lateness_is_reported_within_two_slots_and_once_a_minute_unless_it_doubles() {
        const BY: Nanos = Nanos(100);
        let mut last_report = LastReport::default();
        let at = |slots: u64| Instant::ZERO + WATCH_SLOT * slots;
        let reports: Vec<u64> = (1..1_300).filter(|slot| last_report.is_due(true, BY, at(*slot))).collect();
        assert_eq!(reports, [2, 602, 1_202]);
        assert!(
            !last_report.is_due(true, BY * 2 - Nanos(1), at(1_300))
                && last_report.is_due(true, BY * 2, at(1_300))
        );
        assert!(
            !last_report.is_due(false, BY, at(1_301)) && !last_report.is_due(true, BY, at(1_900)),
            "begins anew"
        );
        assert!(last_report.is_due(true, BY, at(1_901)));
        assert_eq!(LATE_REPORT_INTERVAL, WATCH_SLOT * 600);
        assert!(WATCH_SLOT < Nanos::from_secs(1));
    }
}
