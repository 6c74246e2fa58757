//! What hosts measure their links to drain, beside what these really drain.
//!
//! Asked for every link again and again, whatever else goes on: that it harms nobody the checker of promises sees. Where a
//! fault may have touched what came through nothing is judged.

use punctual_analysis::Nanos;
use punctual_proto::api::MeasuredRate;
use punctual_proto::ids::LinkId;
use punctual_proto::limits::RATE_TIME;

use super::host::Call;
use super::{Act, Event, World};

/// Between two rounds of questions.
const AGAIN: Nanos = Nanos::from_millis(130);
/// What a measurement rests on at least: kernel packets have their burst in it once.
const SPAN: Nanos = Nanos(RATE_TIME.0 / 4);

impl World {
    /// Every host asks about each of its links.
    pub(super) fn measure(&mut self) {
        for host in 0..self.hosts.len() {
            for link in 0..self.hosts[host].adapters.len() {
                self.call(host, Call::Measure(LinkId(link as u16)));
            }
        }
        let next = self.now + AGAIN;
        if next < self.scenario.times.stops {
            self.queue.schedule(next, Event::Act(Act::Measure));
        }
    }

    /// What a host found.
    pub(super) fn measured(&mut self, host: usize, link: LinkId, found: MeasuredRate) {
        self.outcome.measured += 1;
        let (most, least) = self.hosts[host].adapters[usize::from(link.0)].drains(SPAN);
        let above = found.rate.0.saturating_add(found.rate.0 - found.surely().0);
        let is_true = found.surely() <= most && (found.at_least || above >= least.0);
        if !is_true && self.is_well() {
            self.violate(&format!("host {host}: {link:?} drains {least:?} to {most:?}, measured {found:?}"));
        }
    }
}
