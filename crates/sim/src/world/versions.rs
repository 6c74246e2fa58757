//! Hosts of another version ([`super::upgrades`] changes them): each neighbour reports both versions without flapping, no
//! channel is opened across them, and requests across them are refused for that reason, not by silence.

use punctual_analysis::Nanos;
use punctual_proto::api::{ForeignVersion, Grant, RefuseCause};
use punctual_proto::ids::NodeId;
use punctual_proto::signalling::RTCOP_VERSION;

use super::faults::UPGRADE;
use super::{Act, Event, World};
use crate::faults::FaultAction;
use crate::scenario::{host_of, node_id};
use crate::time::SimTime;

/// Converts a version into another one, and back.
pub(super) const FOREIGN: u8 = 0x40;
/// Interval between two checks.
pub(super) const CHECK_INTERVAL: Nanos = Nanos::from_millis(100);

impl World {
    /// The longest time until all neighbours have detected it: the silence of the previous version, and a
    /// HELLO of the new one.
    pub(super) fn version_noticed(&self) -> Nanos {
        UPGRADE + self.scenario.hosts[0].config.signalling.hello_interval * 8
    }

    /// Whether no other fault has effects while this one lasts.
    pub(super) fn is_alone(&self, fault: usize) -> bool {
        let schedule = &self.scenario.schedule;
        let (from, until) = (schedule[fault].at, schedule[fault].ends());
        let mut others = schedule.iter().enumerate().filter(|(other, _)| *other != fault);
        let elsewhere = |(_, other): (usize, &crate::faults::Fault)| {
            let waits = matches!(other.what, FaultAction::Crash { .. });
            other.at >= until || !waits && other.ends() + self.notice_time() <= from
        };
        self.scenario.faults.is_none() && others.all(elsewhere)
    }

    /// Checks that every link reports the versions of its ends.
    pub(super) fn compare_hosts(&mut self, fault: usize) {
        if self.now >= self.scenario.schedule[fault].ends() {
            return;
        }
        let reported = ForeignVersion { theirs: RTCOP_VERSION ^ FOREIGN, ours: RTCOP_VERSION };
        for host in 0..self.hosts.len() {
            let status = self.hosts[host].node.status(self.hosts[host].clock.read(self.now));
            for (link, plan) in status.links.iter().zip(&self.scenario.hosts[host].links.clone()) {
                let differ = self.hosts[host].is_foreign != self.hosts[plan.peer].is_foreign;
                let expected = (!differ, differ.then_some(reported));
                if (link.alive, link.foreign) != expected {
                    let what = format!(
                        "host {host} reports about its neighbour {}: alive {}, version {:?}; it should be {expected:?}",
                        link.name, link.alive, link.foreign
                    );
                    self.violate(&what);
                }
            }
        }
        self.queue.schedule(self.now + CHECK_INTERVAL, Event::Act(Act::LookAcross { fault }));
    }

    /// Whether two neighbours of a route have used different versions for so long that both have detected it.
    fn crosses(&self, route: &[NodeId], since: SimTime) -> bool {
        let host = |node: NodeId| host_of(node).and_then(|host| self.hosts.get(host));
        route.windows(2).any(|pair| {
            let (Some(a), Some(b)) = (host(pair[0]), host(pair[1])) else { return false };
            a.is_foreign != b.is_foreign && a.version_since.max(b.version_since) <= since
        })
    }

    /// Whether every route between two hosts crosses from one version to another.
    pub(super) fn must_cross(&self, from: usize, to: usize) -> bool {
        let (here, there) = (node_id(from), node_id(to));
        let config = &self.scenario.hosts[from].config;
        let routes = config.routes.iter().filter(|route| route.via.last() == Some(&there));
        let mut routes: Vec<Vec<NodeId>> = routes.map(|route| [&[here], &route.via[..]].concat()).collect();
        if config.links.iter().any(|link| link.neighbour == there) {
            routes.push(vec![here, there]);
        }
        routes.iter().all(|route| self.crosses(route, self.now))
    }

    /// Checks that no channel is opened across versions.
    pub(super) fn check_opened_across(&mut self, number: usize, grant: &Grant) {
        if self.crosses(&grant.route, self.now - self.version_noticed()) {
            self.violate(&format!("channel {number} opened across hosts of two versions: {:?}", grant.route));
        }
    }

    /// Whether a host of another version may still be known to a host that requested at `asked`.
    fn versions_differed(&self, asked: SimTime) -> bool {
        self.scenario.schedule.iter().any(|fault| {
            matches!(fault.what, FaultAction::Version { .. })
                && fault.at <= self.now
                && asked <= fault.ends() + self.version_noticed()
        })
    }

    /// Checks that a refusal across versions has that reason, and that no other refusal has it.
    pub(super) fn check_refused_across(&mut self, number: usize, cause: &RefuseCause) {
        let (from, to) = (self.channels[number].plan.from, self.channels[number].plan.to);
        let asked = self.channels[number].asked_at;
        if let RefuseCause::Version { node, theirs, ours } = cause {
            self.outcome.refused_versions += 1;
            let right = (*theirs, *ours) == (RTCOP_VERSION ^ FOREIGN, RTCOP_VERSION);
            if !right || !self.versions_differed(asked) {
                self.violate(&format!("channel {number} refused for versions {theirs} and {ours} of {node}"));
            }
            return;
        }
        let silent =
            matches!(cause, RefuseCause::Timeout | RefuseCause::ReceiverSilent | RefuseCause::Unreachable(_));
        let known = asked - self.version_noticed();
        let alone = (0..self.scenario.schedule.len()).any(|fault| {
            let plan = &self.scenario.schedule[fault];
            matches!(plan.what, FaultAction::Version { .. })
                && plan.at <= known
                && self.now < plan.ends()
                && self.is_alone(fault)
        });
        if silent && alone && self.must_cross(from, to) {
            self.violate(&format!(
                "channel {number}, across hosts of two versions, is refused by silence: {cause}"
            ));
        }
    }
}
