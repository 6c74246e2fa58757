//! Reservations reported by nodes, against the open channels known to the checker.

use punctual_analysis::{Guarantee, Nanos};
use punctual_proto::api::{ChannelStatus, NodeStatus, StageKind};
use punctual_proto::config::Admission;
use punctual_proto::ids::PathId;

use super::call::Call;
use super::channel::State;
use super::{Act, Event, World};
use crate::scenario::{HostPlan, host_of, node_id};

/// Time after which a released hop has been notified.
const SETTLED: Nanos = Nanos::from_millis(300);
/// Interval between two tries of a comparison.
const AGAIN: Nanos = Nanos::from_millis(20);
/// Each stage may round by this much.
const ROUNDING_PPM: u64 = 2;

impl World {
    fn is_settled(&self) -> bool {
        let pending = self.channels.iter().any(|c| matches!(c.state, State::Asked | State::Closing));
        !pending && self.now.since(self.last_change) >= SETTLED
    }

    /// Checks that reservations equal what is in use. Waits until signalling has settled; during faults no
    /// comparison is possible.
    pub(super) fn compare(&mut self) {
        if !self.is_well() {
            return;
        }
        if !self.is_settled() {
            let again = self.now + AGAIN;
            if again < self.scenario.times.closes {
                self.queue.schedule(again, Event::Act(Act::Compare));
            }
            return;
        }
        for host in 0..self.hosts.len() {
            let mut channels = self.hosts[host].node.channels();
            if self.options.sabotage.softness_denied {
                channels.iter_mut().for_each(|channel| channel.guarantee = Guarantee::Hard);
            }
            let status = self.hosts[host].node.status(self.hosts[host].clock.read(self.now));
            self.compare_paths(host, &status, &channels);
            self.compare_sums(host, &status, &channels);
            self.compare_bounds(host, &channels);
            self.compare_neighbours(host, &status);
            self.compare_guarantees(host, &status, &channels);
            self.check_waiting(host);
        }
        self.check_overflows();
        self.check_books();
    }

    fn compare_paths(&mut self, host: usize, status: &NodeStatus, channels: &[ChannelStatus]) {
        let open = self.channels.iter().filter(|c| c.state == State::Open && c.passes(host));
        let mut expected: Vec<PathId> = open.filter_map(|c| c.path).collect();
        let mut found: Vec<PathId> = channels.iter().map(|c| c.path).collect();
        expected.sort_unstable();
        found.sort_unstable();
        if expected != found {
            let what = format!("host {host} holds channels {found:?}, open are {expected:?}");
            self.violate(&what);
        }
        if status.channels as usize != expected.len() {
            let what =
                format!("host {host} counts {} channels, open are {}", status.channels, expected.len());
            self.violate(&what);
        }
    }

    fn compare_sums(&mut self, host: usize, status: &NodeStatus, channels: &[ChannelStatus]) {
        let rest = self.at_rest[host].clone();
        let buffers: u64 = channels.iter().flat_map(|c| &c.stages).map(|stage| stage.buffer_bytes).sum();
        if status.buffer_bytes != rest.buffer_bytes + buffers {
            let what = format!("host {host} reserves {} B, its stages {buffers} B", status.buffer_bytes);
            self.violate(&what);
        }
        let HostPlan { config, .. } = &self.scenario.hosts[host];
        let soft_links: Vec<bool> = config.links.iter().map(|link| is_soft(link.admission)).collect();
        let cpu = |kind| kind != StageKind::Link;
        let wanted = used_ppm(channels.iter(), is_soft(config.cpu.admission), cpu)
            .map(|used| u64::from(rest.cpu_utilisation.0) + used + self.tcp_shares(host, 0).cpu_ppm);
        let count = channels.len() + self.tcp_shares(host, 0).count;
        self.compare_ppm(host, "CPU", status.cpu_utilisation.0, wanted, count);
        for (index, link) in status.links.iter().enumerate() {
            let over = channels.iter().filter(|c| self.leaves_by(host, index, c.path));
            let over: Vec<_> = over.collect();
            let tcp = self.tcp_shares(host, index);
            let count = over.len() + tcp.count;
            let used = used_ppm(over.into_iter(), soft_links[index], |kind| kind == StageKind::Link);
            let wanted = used.map(|used| u64::from(rest.links[index].utilisation.0) + used + tcp.link_ppm);
            self.compare_ppm(host, &link.name, link.utilisation.0, wanted, count);
        }
    }

    /// `wanted`: the smallest and the largest allowed value.
    fn compare_ppm(&mut self, host: usize, what: &str, found: u32, wanted: [u64; 2], channels: usize) {
        let rounding = (channels as u64 + 1) * ROUNDING_PPM;
        let [least, most] = wanted;
        if !(least.saturating_sub(rounding)..=most + rounding).contains(&u64::from(found)) {
            self.violate(&format!(
                "host {host}, {what}: {found} ppm given away, its channels take {least} to {most} ppm"
            ));
        }
        if found > 1_000_000 {
            self.violate(&format!("host {host}, {what}: {found} ppm given away"));
        }
    }

    /// Whether the channel of `path` leaves `host` by its link `index`.
    pub(super) fn leaves_by(&self, host: usize, index: usize, path: PathId) -> bool {
        let grant = self.paths.get(&path).and_then(|&number| self.channels[number].grant.as_ref());
        let Some(route) = grant.map(|grant| &grant.route) else { return false };
        let here = route.iter().position(|node| *node == node_id(host));
        let next = here.and_then(|at| route.get(at + 1));
        next.is_some_and(|next| host_of(*next) == Some(self.scenario.hosts[host].links[index].peer))
    }

    /// Checks that every hop holds the bounds that were reported to the source.
    fn compare_bounds(&mut self, host: usize, channels: &[ChannelStatus]) {
        let node = self.scenario.hosts[host].config.id;
        for status in channels {
            let Some(&number) = self.paths.get(&status.path) else { continue };
            let Some(grant) = &self.channels[number].grant else { continue };
            let reported: Vec<_> =
                grant.stages.iter().filter(|s| s.node == node).map(|s| (s.kind, s.bound)).collect();
            let held: Vec<_> = status.stages.iter().map(|s| (s.kind, s.bound)).collect();
            if reported != held {
                let what = format!(
                    "channel {number}: host {host} holds {held:?}, reported to the source: {reported:?}"
                );
                self.violate(&what);
            }
        }
    }

    /// Checks that reserved slots and buffers suffice for channels that keep their contract.
    fn check_overflows(&mut self) {
        let mut expired = 0;
        for host in 0..self.hosts.len() {
            for status in self.hosts[host].node.channels() {
                let Some(&number) = self.paths.get(&status.path) else { continue };
                let channel = &self.channels[number];
                let clean = !channel.faulty && channel.sender.keeps_contract() && !channel.is_soft();
                let counters = status.counters;
                expired += counters.expired;
                if clean && (counters.overflows > 0 || counters.overruns > 0 || counters.expired > 0) {
                    let what =
                        format!("channel {number} conforms and loses packets at host {host}: {counters:?}");
                    self.violate(&what);
                }
            }
        }
        self.outcome.expired = self.outcome.expired.max(expired);
    }

    /// Checks one lease after the last close that no state is left; then nodes shut down.
    pub(super) fn check_empty(&mut self) {
        self.channels.numbers().into_iter().for_each(|number| self.judge_soft(number));
        self.check_nothing_left();
        for host in 0..self.hosts.len() {
            self.call(host, Call::Shutdown);
        }
    }

    pub(super) fn check_nothing_left(&mut self) {
        for host in 0..self.hosts.len() {
            let left = self.hosts[host].node.channels();
            let status = self.hosts[host].node.status(self.hosts[host].clock.read(self.now));
            let rest = self.at_rest[host].clone();
            let links =
                status.links.iter().zip(&rest.links).all(|(now, then)| now.utilisation == then.utilisation);
            let sums =
                status.buffer_bytes == rest.buffer_bytes && status.cpu_utilisation == rest.cpu_utilisation;
            if status.channels != 0 || !left.is_empty() || !links || !sums {
                let paths: Vec<_> = left.iter().map(|c| format!("{} {}", c.path, c.state)).collect();
                let what = format!(
                    "host {host} keeps {} channels {paths:?}, {} B of buffers, {} ppm of CPU, links {:?} after teardown",
                    status.channels,
                    status.buffer_bytes,
                    status.cpu_utilisation.0,
                    status.links.iter().map(|link| link.utilisation.0).collect::<Vec<_>>(),
                );
                self.violate(&what);
            }
            self.check_waiting(host);
        }
        self.check_attempts();
        self.check_books();
    }

    /// Checks that every attempt is complete, and its rings were returned.
    fn check_attempts(&mut self) {
        let clean = self.is_well();
        for number in self.channels.numbers() {
            let channel = &self.channels[number];
            let ended = matches!(channel.state, State::Closed | State::Refused);
            let (held, state) = (channel.held(), channel.state);
            if !ended && clean {
                self.violate(&format!("channel {number} is {state:?} long after it was closed"));
            }
            if !held.is_empty() {
                self.violate(&format!("channel {number} is {state:?} and its node still holds {held:?}"));
            }
        }
    }

    /// Checks that a node which was shut down is quiet.
    pub(super) fn check_quiet(&mut self) {
        for host in 0..self.hosts.len() {
            if self.now >= self.scenario.times.empty && !self.hosts[host].node.is_quiet() {
                self.violate(&format!("host {host} is not quiet after its shutdown"));
            }
        }
    }
}

/// Whether a stage may count a soft channel by its mean; all others admit its peak.
fn is_soft(admission: Admission) -> bool {
    admission == Admission::STATISTICAL
}

/// Sum of C / I' over the stages of `channels` that `which` selects, in ppm: the smallest with the mean I' of
/// channels that are soft there, the largest with the peak's. A `soft` stage counts channels by the mean
/// unless their units make them hard.
fn used_ppm<'a>(
    channels: impl Iterator<Item = &'a ChannelStatus>,
    soft: bool,
    which: impl Fn(StageKind) -> bool,
) -> [u64; 2] {
    let mut used = [0; 2];
    for channel in channels {
        for stage in channel.stages.iter().filter(|stage| which(stage.kind)) {
            let peak = match stage.kind {
                StageKind::Link => channel.contract.policed_interval(),
                _ => channel.contract.processor_period(),
            };
            let statistical = channel.contract.statistical.filter(|_| soft);
            let mean = statistical.map_or(peak, |soft| soft.mean_rate.policed_interval());
            for (sum, period) in used.iter_mut().zip([mean, peak]) {
                *sum += (u128::from(stage.cost.0) * 1_000_000 / u128::from(period.0.max(1))) as u64;
            }
        }
    }
    used
}
