//! Periodic checks during a run: reservations do not exceed capacity, and no reservation stays longer than a
//! lease after its source has lost it.

use std::collections::BTreeMap;

use punctual_analysis::Nanos;
use punctual_proto::ids::PathId;

use super::{Act, Event, World};
use crate::scenario::{DEADLINE_MAX, host_of};
use crate::time::SimTime;

/// Interval between two checks.
const CHECK_INTERVAL: Nanos = Nanos::from_millis(150);

/// Since when each host holds a path that its source does not have.
pub(super) type Orphans = BTreeMap<(usize, PathId), SimTime>;

impl World {
    /// Checks all reservations of all hosts.
    pub(super) fn compare_host(&mut self) {
        self.check_books();
        self.check_capacities();
        self.check_for_orphans();
        if self.now < self.scenario.times.closes {
            self.queue.schedule(self.now + CHECK_INTERVAL, Event::Act(Act::LookAround));
        }
    }

    fn check_capacities(&mut self) {
        for host in 0..self.hosts.len() {
            let status = self.hosts[host].node.status(self.hosts[host].clock.read(self.now));
            let config = &self.scenario.hosts[host].config;
            let links = status.links.iter().zip(&config.links);
            let above = links
                .filter(|(link, config)| link.utilisation.0 > 1_000_000 - config.best_effort_share_min.0);
            let mut above: Vec<_> =
                above.map(|(link, _)| format!("{} of {}", link.utilisation.0, link.name)).collect();
            if status.cpu_utilisation > config.cpu.utilisation_max {
                above.push(format!("{} of the processor", status.cpu_utilisation.0));
            }
            if status.buffer_bytes > config.buffer_bytes_max {
                above.push(format!("{} B of buffers", status.buffer_bytes));
            }
            if !above.is_empty() {
                self.violate(&format!("host {host} gives away more than it may: {above:?} ppm"));
            }
        }
    }

    fn check_for_orphans(&mut self) {
        let mut seen = Orphans::new();
        for host in (0..self.hosts.len()).filter(|host| self.hosts[*host].is_up) {
            for channel in self.hosts[host].node.channels() {
                let key = (host, channel.path);
                if !self.has_source(channel.path) {
                    seen.insert(key, self.orphans.get(&key).copied().unwrap_or(self.now));
                }
            }
        }
        let longest = self.orphan_time();
        for ((host, path), since) in &seen {
            if self.now.since(*since) > longest && !self.is_unwell(*host) {
                let age = self.now.since(*since);
                self.violate(&format!("host {host} still holds {path}, {age} after its source has lost it"));
            }
        }
        self.orphans = seen;
    }

    fn has_source(&self, path: PathId) -> bool {
        let source = host_of(path.node).filter(|source| *source < self.hosts.len());
        let Some(source) = source.filter(|source| self.hosts[*source].is_up) else { return false };
        self.hosts[source].node.holds(path) && !self.options.sabotage.sources_denied
    }

    /// A lease from the last refresh, which may have been under way for as long as a stream retransmits, and
    /// the time of the last packet; detected up to one check late.
    fn orphan_time(&self) -> Nanos {
        let signalling = &self.scenario.hosts[0].config.signalling;
        let under_way = if self.touches.is_empty() { Nanos::ZERO } else { signalling.hello_interval * 6 };
        signalling.lease + self.deadline_max() + under_way + CHECK_INTERVAL + Nanos::from_millis(100)
    }

    fn deadline_max(&self) -> Nanos {
        let paths = self.scenario.tcp.connections.iter().filter_map(|plan| plan.path.as_ref());
        paths.map(|path| path.deadline).fold(DEADLINE_MAX, Nanos::max)
    }

    /// Whether a host's processor or clock is disturbed, or was a moment ago.
    fn is_unwell(&self, host: usize) -> bool {
        self.hosts[host].unwell_until + self.orphan_time() >= self.now
    }
}
