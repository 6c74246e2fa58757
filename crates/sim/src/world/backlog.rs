//! The check of best effort's guarantee (GUARANTEES): in any time t in which a link has best effort waiting,
//! best effort is served at least t - interference(t) - sum of (floor((t + d + h) / I') + 1) * C - P * U -
//! delta, in admission's unit costs.
//!
//! The bound is taken a little weaker, with x + 1 for floor(x) + 1: then it is a line, and one running
//! minimum checks every window that ends now. Not checked are links with caps on best effort, and those whose
//! kernel traffic follows admission: the share that was lent to the kernel returns once best effort has
//! waited for a while.

use punctual_analysis::{Link, Nanos, Ppm};
use punctual_proto::api::{ChannelStatus, Port, StageKind};
use punctual_proto::config::LinkConfig;
use punctual_proto::config::link_model;
use punctual_proto::ids::LinkId;
use punctual_proto::limits::SIGNAL_BYTES_MAX;
use punctual_proto::wire::{Header, Kind};

use super::World;
use crate::time::SimTime;

/// Shares are integers in parts of this, because channels may have very small ones.
const UNITS: i128 = 1_000_000_000;

/// The largest work of others in a time t: `slope` of t and `burst` nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Others {
    slope: i128,
    burst: i128,
}

/// One link of one host.
#[derive(Clone, Debug)]
pub(super) struct Backlog {
    model: Link,
    is_capped: bool,
    /// Signalling packets a second.
    signals: u64,
    others: Others,
    /// Since when best effort waits without a break, and the smallest guaranteed service since then.
    window: Option<i128>,
    /// Service since the start, in unit costs times [`UNITS`].
    served: i128,
    /// No check until this time.
    blind_until: SimTime,
}

impl Backlog {
    pub fn new(link: &LinkConfig, signals: u32) -> Self {
        let is_capped =
            link.best_effort_cap < Ppm::ONE || link.best_effort_flow_cap < Ppm::ONE || link.follows();
        Self {
            model: link_model(link),
            is_capped,
            signals: u64::from(signals),
            others: Others::default(),
            window: None,
            served: 0,
            blind_until: SimTime(0),
        }
    }

    /// A fault touches the host.
    pub fn forget(&mut self, until: SimTime) {
        self.window = None;
        self.blind_until = self.blind_until.max(until);
    }

    /// Counts a packet that is handed to the adapter.
    pub fn count(&mut self, port: Port, wire_bytes: u32, bytes: &[u8]) {
        if self.is_capped || port == Port::Signalling {
            return;
        }
        let is_best_effort = |header: Header| header.demoted || header.kind == Kind::BestEffort;
        if Header::parse(bytes).is_ok_and(|(header, _)| is_best_effort(header)) {
            self.served += i128::from(self.model.cost_of(u64::from(wire_bytes)).0) * UNITS;
        }
    }

    /// Counts a segment of TCP. One within a budget is no best effort: it is work of others that `others_of` leaves out, so it
    /// is taken off as it comes.
    pub fn count_segment(&mut self, wire_bytes: u32) {
        if !self.is_capped {
            self.served += i128::from(self.model.cost_of(u64::from(wire_bytes)).0) * UNITS;
        }
    }

    fn owed(&self, now: SimTime) -> i128 {
        i128::from(now.0) * (UNITS - self.others.slope) - self.served
    }

    /// Time by which best effort has waited longer than the bound allows.
    fn excess(&self, now: SimTime) -> i128 {
        let least = self.window.unwrap_or(i128::MAX);
        self.owed(now).saturating_sub(least) - self.others.burst * UNITS
    }

    fn others_of<'a>(&self, channels: impl Iterator<Item = &'a ChannelStatus>) -> Others {
        let model = &self.model;
        let signal = u64::from(model.overhead_bytes) + SIGNAL_BYTES_MAX as u64;
        let signal = i128::from(model.cost_of(signal.min(u64::from(model.mtu_wire_bytes))).0);
        let mut slope = i128::from(model.interference.rho.0) * (UNITS / 1_000_000);
        slope += signal * i128::from(self.signals) * UNITS / 1_000_000_000;
        let mut burst = i128::from(model.interference.sigma.0) + signal * 2;
        burst +=
            i128::from(model.pipeline_time().0) + i128::from(model.cost_of(model.mtu_wire_bytes.into()).0);
        for channel in channels {
            let period = i128::from(channel.contract.policed_interval().0.max(1));
            for stage in channel.stages.iter().filter(|stage| stage.kind == StageKind::Link) {
                let cost = i128::from(stage.cost.0);
                slope += cost * UNITS / period + 1;
                // d + h is at most D and the jitter allowance.
                let span = channel.contract.deadline + channel.contract.jitter_allowance();
                burst += cost + cost * i128::from(span.0) / period + 1;
            }
        }
        Others { slope, burst }
    }
}

impl World {
    /// Checks a link of `host` before it is served (`begins`) and after.
    pub(super) fn watch_backlog(&mut self, host: usize, link: LinkId, begins: bool) {
        let index = usize::from(link.0);
        let backlog = &self.hosts[host].backlogs[index];
        if backlog.is_capped || self.now < backlog.blind_until {
            return;
        }
        if begins && backlog.window.is_some() && backlog.excess(self.now) > 0 {
            self.judge_backlog(host, index);
        }
        if begins {
            return;
        }
        let waits = self.hosts[host].node.best_effort_waits(link);
        let is_new = waits && self.hosts[host].backlogs[index].window.is_none();
        if is_new {
            let others = self.others_at(host, index);
            self.hosts[host].backlogs[index].others = others;
        }
        let now = self.now;
        let backlog = &mut self.hosts[host].backlogs[index];
        let owed = backlog.owed(now);
        backlog.window = waits.then(|| backlog.window.map_or(owed, |least| least.min(owed)));
    }

    fn others_at(&self, host: usize, index: usize) -> Others {
        let channels = self.hosts[host].node.channels();
        let over = channels.iter().filter(|channel| {
            // The outgoing link of a channel that is being set up is unknown here.
            !self.paths.contains_key(&channel.path) || self.leaves_by(host, index, channel.path)
        });
        self.hosts[host].backlogs[index].others_of(over)
    }

    /// Judges insufficient service for the channels that existed when the window began. If the present
    /// channels are others, the window begins again.
    fn judge_backlog(&mut self, host: usize, index: usize) {
        let others = self.others_at(host, index);
        let now = self.now;
        let backlog = &mut self.hosts[host].backlogs[index];
        let same = backlog.others == others;
        let excess = Nanos((backlog.excess(now) / UNITS) as u64);
        backlog.others = others;
        backlog.window = None;
        if same {
            let link = &self.scenario.hosts[host].config.links[index].name;
            self.violate(&format!(
                "host {host}, link to {link}: best effort waits {excess} longer than it ever should"
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use punctual_analysis::BitRate;
    use punctual_proto::ids::NodeId;

    #[test]
    fn backlog_beyond_the_bound_is_excess() {
        let link = LinkConfig::new("x", NodeId(2), BitRate(8_000_000));
        let mut backlog = Backlog::new(&link, 10);
        backlog.others = backlog.others_of(std::iter::empty());
        let free = UNITS - backlog.others.slope;
        backlog.window = Some(backlog.owed(SimTime(1_000)));
        let longest = backlog.others.burst * UNITS / free;
        assert!(backlog.excess(SimTime(1_000 + longest as u64 - 10)) <= 0);
        assert!(backlog.excess(SimTime(1_000 + longest as u64 + 10)) > 0);
        backlog.served += 1_000_000 * UNITS;
        assert!(backlog.excess(SimTime(1_000 + longest as u64 + 500_000)) <= 0);
    }
}
