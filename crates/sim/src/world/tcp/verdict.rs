//! What must be true of connections when they are over: all bytes are there, TIME-WAIT was kept, and everything was given back.

use punctual_analysis::{Instant, Nanos, Policing, Ppm};
use punctual_proto::config::NodeConfig;
use punctual_tcp::Ended;

use super::path::Path;
use super::{CONNECTIONS_MAX, PATHS_MAX, Role, Stage, World};
use crate::world::call::TcpCall;

/// Time for the resets of connections that need not end by themselves.
pub(super) const RESETS: Nanos = Nanos::from_secs(1);

/// Whether a host gives best effort, or one flow of it, less than what channels leave.
fn caps_best_effort(config: &NodeConfig) -> bool {
    let links = config.links.iter().map(|link| link.best_effort_cap.min(link.best_effort_flow_cap));
    let of_cpu = [config.cpu.best_effort_cpu_cap, config.cpu.best_effort_flow_cpu_cap];
    links.chain(of_cpu).any(|cap| cap < Ppm::ONE)
}

impl World {
    /// An end was given back: one that has closed first has waited for 2 MSL (RFC 9293 3.4.2, 3.6.1).
    pub(super) fn check_wait(&mut self, number: usize, end: usize) {
        let talk = &self.conversations[number];
        let state = &talk.ends[end];
        let (Some(left), Some(came)) = (state.wire.fin_left, state.wire.fin_came) else { return };
        let host = talk.plan.hosts[end];
        let is_ordinary = state.ended.is_none_or(|ended| ended == Ended::Closed) && !state.wire.was_reset;
        // An end that has given its channels back has seen everything.
        let is_cut = talk.path.as_ref().is_some_and(Path::is_ending);
        if left >= came || is_cut || !is_ordinary || !self.hosts[host].has_been_well() {
            return;
        }
        let wait = talk.plan.config.msl * 2;
        let waited = self.now.since(came);
        if waited < wait - self.scenario.drift_max().of(wait) {
            self.violate(&format!(
                "connection {number}: end {end} has closed first and is given back {waited} after the other's end, 2 MSL are {wait}"
            ));
        }
    }

    /// What a reserved path carries beyond its contract is best effort. Where hosts cap that, it may be next to nothing.
    fn excuse_starved(&mut self) {
        if !self.scenario.hosts.iter().any(|host| caps_best_effort(&host.config)) {
            return;
        }
        for talk in &mut self.conversations {
            let is_over = talk.ends.iter().all(|end| end.stage == Stage::Over);
            if !is_over && talk.plan.path.is_some_and(|path| path.policing == Policing::Demote) {
                talk.excuse.get_or_insert("best effort is capped");
            }
        }
    }

    /// Why a connection need not end by itself, if so.
    #[cfg(test)]
    pub(in crate::world) fn excuse_of(&self, number: usize) -> Option<&'static str> {
        self.conversations[number].excuse
    }

    /// Connections that need not end by themselves are reset now.
    pub(super) fn end_excused(&mut self) {
        self.excuse_starved();
        for number in 0..self.conversations.len() {
            for end in 0..2 {
                if self.conversations[number].excuse.is_some() {
                    self.conversations[number].ends[end].is_released = true;
                    self.conversations[number].ends[end].unread.clear();
                    self.ask_tcp(TcpCall::Abort(number, end));
                    self.part_from_path(number, end);
                }
            }
        }
    }

    /// All connections must be over.
    pub(super) fn check_over(&mut self) {
        for number in 0..self.conversations.len() {
            self.check_complete(number);
            self.check_rings(number);
        }
        for attempt in self.channels.numbers() {
            if self.channels[attempt].tcp.is_some() {
                let lost = self.channels[attempt].ledger.lost(self.now);
                self.report_lost(attempt, &lost);
            }
        }
        for host in 0..self.hosts.len() {
            self.check_given_back(host);
        }
    }

    /// Both programs have read everything, unless something broke the connection.
    fn check_complete(&mut self, number: usize) {
        let talk = &self.conversations[number];
        if talk.excuse.is_some() {
            self.outcome.tcp.excused += 1;
            return;
        }
        if talk.ends.iter().all(|end| end.stage == Stage::Over)
            && talk.streams.iter().all(crate::stream::Stream::is_complete)
        {
            self.outcome.tcp.complete += 1;
            return;
        }
        let ends: Vec<_> = (0..2)
            .map(|end| {
                let state = &talk.ends[end];
                let tcp = self.hosts[talk.plan.hosts[end]].tcp.as_ref();
                let status = tcp.zip(state.index).and_then(|(tcp, index)| tcp.endsystem.status(index));
                let (written, read) = (talk.streams[end].written(), talk.streams[1 - end].read());
                format!("{:?}, wrote {written} B, read {read} B, {status:?}", state.stage)
            })
            .collect();
        let what = format!("connection {number} is not complete: {ends:?} ({:?})", talk.plan);
        self.violate(&what);
    }

    fn check_rings(&mut self, number: usize) {
        let talk = &self.conversations[number];
        for end in 0..2 {
            let state = &talk.ends[end];
            let out = state.outbox.as_ref().is_some_and(|outbox| outbox.is_held() || outbox.taken() > 0);
            let into = state.inbox.as_ref().is_some_and(|inbox| inbox.is_held()) && state.unread.is_empty();
            if out || into || state.is_alive() {
                let held = [("what it writes", out), ("what it reads", into)];
                return self.violate(&format!(
                    "connection {number} is over, and its end {end} ({:?}) holds rings: {held:?}",
                    state.stage
                ));
            }
        }
    }

    /// No handler, flow, packet or number of a connection is held at a host.
    fn check_given_back(&mut self, host: usize) {
        let member = &self.hosts[host];
        let Some(tcp) = &member.tcp else { return };
        let connections =
            (0..(CONNECTIONS_MAX + PATHS_MAX) as u32).filter(|index| tcp.endsystem.status(*index).is_some());
        let roles = tcp.roles.values().filter(|role| !matches!(role, Role::Listener(_) | Role::Late(_)));
        let known = tcp.listeners.len() + tcp.lates.len() + member.bodies.count();
        let waiting: u32 = tcp.listeners.values().map(|listening| listening.held.get()).sum();
        let held = [
            ("connections", connections.count()),
            ("places", tcp.places.len()),
            ("roles", roles.count()),
            ("flows", tcp.driver.flows.len()),
            ("packets", tcp.arrived.len() + waiting as usize),
            (
                "handlers of the node",
                member.node.handlers().count() - known.min(member.node.handlers().count()),
            ),
            ("ring slots", tcp.listeners.values().map(|it| it.segments.ring.taken() as usize).sum()),
            (
                "ring slots of late segments",
                tcp.lates.values().map(|it| it.segments.ring.taken() as usize).sum(),
            ),
        ];
        let left: Vec<_> = held.iter().filter(|(_, count)| *count > 0).collect();
        if !left.is_empty() {
            self.violate(&format!("host {host}: all connections are over, held are {left:?}"));
        }
    }

    /// At the end of the run: listeners go, and nothing of TCP is left in a node.
    pub(in crate::world) fn dismiss_tcp(&mut self) {
        for host in 0..self.hosts.len() {
            let member = &mut self.hosts[host];
            let Some(tcp) = &mut member.tcp else { continue };
            let now = Instant(u64::MAX / 4);
            for (index, listening) in std::mem::take(&mut tcp.listeners) {
                tcp.endsystem.stop_listening(index);
                member.node.remove_handler(listening.handler, now);
            }
            for served in std::mem::take(&mut tcp.lates).into_values() {
                member.node.remove_handler(served.handler, now);
            }
            while let Some(decision) = member.node.poll_decision() {
                member.node.handle_decided(decision.decide(|| Instant::ZERO), now);
            }
            let left = member.node.handlers().count();
            let known = member.bodies.count();
            if left != known {
                self.violate(&format!("host {host}: {left} handlers are left, {known} are its programs'"));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::Options;
    use crate::scenario::Scenario;

    /// The whole of a link or of a processor is no cap, a part per million less is one, whichever of the four it is.
    #[test]
    fn best_effort_is_capped_by_less_than_the_whole_only() {
        let scenario = Scenario::draw(1, &Options::default()).expect("drawn");
        let config = |cap: usize, share: Ppm| {
            let mut config = scenario.hosts[0].config.clone();
            config.links.iter_mut().for_each(|link| {
                (link.best_effort_cap, link.best_effort_flow_cap) = (Ppm::ONE, Ppm::ONE);
            });
            (config.cpu.best_effort_cpu_cap, config.cpu.best_effort_flow_cpu_cap) = (Ppm::ONE, Ppm::ONE);
            let link = config.links.last_mut().expect("a host has links");
            *[
                &mut link.best_effort_cap,
                &mut link.best_effort_flow_cap,
                &mut config.cpu.best_effort_cpu_cap,
                &mut config.cpu.best_effort_flow_cpu_cap,
            ][cap] = share;
            config
        };
        for cap in 0..4 {
            assert!(!caps_best_effort(&config(cap, Ppm::ONE)));
            assert!(caps_best_effort(&config(cap, Ppm(Ppm::ONE.0 - 1))), "cap {cap}");
        }
    }
}
