//! Measured drain rates of links, compared with the true ones.
//!
//! Every link is measured repeatedly, during all other activity; the checker of promises detects any effect
//! on channels. Results that a fault may have affected are not judged.

use punctual_analysis::Nanos;
use punctual_proto::api::MeasuredRate;
use punctual_proto::ids::LinkId;
use punctual_proto::limits::RATE_TIME;

use super::call::Call;
use super::{Act, Event, World};

/// Interval between two rounds of measurements.
const AGAIN: Nanos = Nanos::from_millis(130);
/// Shortest span of a measurement: it contains the kernel's burst once.
const SPAN: Nanos = Nanos(RATE_TIME.0 / 4);

impl World {
    /// Every host requests a measurement of each of its links.
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

    /// Judges the result of a host.
    pub(super) fn measured(&mut self, host: usize, link: LinkId, found: MeasuredRate) {
        self.outcome.measured += 1;
        let (most, least) = self.hosts[host].adapters[usize::from(link.0)].drains(SPAN);
        let above = found.rate.0.saturating_add(found.rate.0 - found.lower_bound().0);
        let is_true = found.lower_bound() <= most && (found.at_least || above >= least.0);
        if !is_true && self.is_well() {
            self.violate(&format!("host {host}: {link:?} drains {least:?} to {most:?}, measured {found:?}"));
        }
    }
}
