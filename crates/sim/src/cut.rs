//! A plan with parts left out: the search space of [`minimise`](crate::minimise), and part of a case in a
//! file.
//!
//! Indices are those of the plan as the seed draws it, so that the meaning of a cut does not depend on its
//! other parts.

use std::collections::BTreeSet;

use punctual_analysis::{Nanos, Ppm};
use punctual_proto::ids::NodeId;
use serde::{Deserialize, Serialize};

use crate::faults::{Breach, Fault, FaultAction};
use crate::options::Faults;
use crate::scenario::{ConnectionPlan, HostPlan, Scenario, host_of, is_routed, node_id};

/// The remaining parts of a plan; `None` means all.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Cut {
    /// Hosts. Channels, transfers and faults of other hosts are left out too.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hosts: Option<Vec<usize>>,
    /// Channels.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub channels: Option<Vec<usize>>,
    /// Channels that receivers request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requests: Option<Vec<usize>>,
    /// Best-effort transfers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub floods: Option<Vec<usize>>,
    /// TCP connections.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connections: Option<Vec<usize>>,
    /// Faults of the schedule.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schedule: Option<Vec<usize>>,
    /// Faults of single frames.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub frames: Option<Vec<FrameFault>>,
    /// Time for which applications send, if that is shorter than planned.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub traffic_ms: Option<u64>,
}

/// Faults of a single frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FrameFault {
    /// See [`Faults`].
    Loss,
    /// See [`Faults`].
    Duplicate,
    /// See [`Faults`].
    Delay,
    /// See [`Faults`].
    Corrupt,
}

impl FrameFault {
    /// All faults of single frames.
    pub const ALL: [Self; 4] = [Self::Loss, Self::Duplicate, Self::Delay, Self::Corrupt];

    /// The result for the frame.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Loss => "lost",
            Self::Duplicate => "doubled",
            Self::Delay => "delayed",
            Self::Corrupt => "corrupted",
        }
    }

    /// Its probability.
    pub const fn chance(self, faults: &mut Faults) -> &mut Ppm {
        match self {
            Self::Loss => &mut faults.loss,
            Self::Duplicate => &mut faults.duplicate,
            Self::Delay => &mut faults.delay,
            Self::Corrupt => &mut faults.corrupt,
        }
    }
}

impl Cut {
    /// Leaves out what is cut.
    pub fn apply(&self, plan: &mut Scenario) {
        keep(&mut plan.channels, self.channels.as_deref());
        keep(&mut plan.requests, self.requests.as_deref());
        keep(&mut plan.floods, self.floods.as_deref());
        keep(&mut plan.schedule, self.schedule.as_deref());
        if let Some(kept) = &self.connections {
            let connections = plan.tcp.connections.iter_mut().enumerate();
            connections.for_each(|(number, plan)| plan.is_left_out |= !kept.contains(&number));
        }
        if let Some(frames) = &self.frames {
            for fault in FrameFault::ALL.into_iter().filter(|fault| !frames.contains(fault)) {
                *fault.chance(&mut plan.faults) = Ppm(0);
                *fault.chance(&mut plan.tcp.faults) = Ppm(0);
            }
        }
        if let Some(traffic_ms) = self.traffic_ms {
            shorten(plan, Nanos::from_millis(traffic_ms));
        }
        if let Some(hosts) = &self.hosts {
            keep_hosts(plan, &hosts.iter().copied().filter(|host| *host < plan.hosts.len()).collect());
        }
    }
}

fn keep<T>(items: &mut Vec<T>, kept: Option<&[usize]>) {
    let Some(kept) = kept else { return };
    let mut index = 0;
    items.retain(|_| {
        index += 1;
        kept.contains(&(index - 1))
    });
}

/// Moves all phases after the last healing to an earlier time.
fn shorten(plan: &mut Scenario, traffic: Nanos) {
    let times = &mut plan.times;
    times.set_traffic(traffic.min(times.traffic()));
    for channel in &mut plan.channels {
        channel.closes_at = channel.closes_at.filter(|at| *at < times.stops);
        channel.vanishes_at = channel.vanishes_at.filter(|at| *at < times.stops);
    }
}

/// Old indices of the hosts that stay, in order: the new ones are the positions.
struct Moved<'a> {
    hosts: &'a BTreeSet<usize>,
    /// For each old host the new index of each old link.
    links: Vec<Vec<Option<u16>>>,
}

impl Moved<'_> {
    fn host(&self, old: usize) -> Option<usize> {
        self.hosts.contains(&old).then(|| self.hosts.range(..old).count())
    }

    fn link(&self, host: usize, old: u16) -> Option<u16> {
        self.links.get(host)?.get(usize::from(old)).copied().flatten()
    }
}

fn keep_hosts(plan: &mut Scenario, hosts: &BTreeSet<usize>) {
    let links = plan.hosts.iter().map(|host| {
        let mut next = 0;
        let mut number = |kept: bool| {
            next += u16::from(kept);
            kept.then(|| next - 1)
        };
        host.links.iter().map(|link| number(hosts.contains(&link.peer))).collect()
    });
    let moved = Moved { hosts, links: links.collect() };
    let old = std::mem::take(&mut plan.hosts);
    plan.hosts = (old.into_iter().enumerate())
        .filter(|(old, _)| hosts.contains(old))
        .map(|(_, host)| moved_host(host, &moved))
        .collect();
    plan.channels.retain_mut(|plan| move_ends(&mut plan.from, &mut plan.to, &moved));
    plan.requests.retain_mut(|plan| move_ends(&mut plan.asker, &mut plan.source, &moved));
    plan.floods.retain_mut(|plan| move_ends(&mut plan.from, &mut plan.to, &moved));
    let hosts = &plan.hosts;
    plan.tcp.connections.iter_mut().for_each(|plan| move_connection(plan, hosts, &moved));
    plan.channels.retain(|plan| is_routed(hosts, plan.from, plan.to));
    plan.requests.retain(|plan| {
        is_routed(hosts, plan.asker, plan.source) && is_routed(hosts, plan.source, plan.asker)
    });
    plan.floods.retain(|plan| is_routed(hosts, plan.from, plan.to));
    let schedule = std::mem::take(&mut plan.schedule).into_iter();
    plan.schedule = schedule.filter_map(|fault| moved_fault(fault, &moved)).collect();
}

/// A connection stays in its place, because ports follow from that.
fn move_connection(plan: &mut ConnectionPlan, hosts: &[HostPlan], moved: &Moved<'_>) {
    if plan.path.is_some() {
        let [from, to] = &mut plan.hosts;
        let stays =
            move_ends(from, to, moved) && is_routed(hosts, *from, *to) && is_routed(hosts, *to, *from);
        if !stays {
            (plan.hosts, plan.is_left_out) = ([0; 2], true);
        }
        return;
    }
    for (host, link) in plan.hosts.iter_mut().zip(&mut plan.links) {
        match moved.host(*host).zip(moved.link(*host, *link)) {
            Some(new) => (*host, *link) = new,
            None => (*host, *link, plan.is_left_out) = (0, 0, true),
        }
    }
}

fn move_ends(from: &mut usize, to: &mut usize, moved: &Moved<'_>) -> bool {
    let (Some(new_from), Some(new_to)) = (moved.host(*from), moved.host(*to)) else { return false };
    (*from, *to) = (new_from, new_to);
    true
}

fn moved_host(mut host: HostPlan, moved: &Moved<'_>) -> HostPlan {
    let node = |id: NodeId| moved.host(host_of(id)?).map(node_id);
    let config = &mut host.config;
    config.id = node(config.id).unwrap_or(config.id);
    config.directory.retain_mut(|(_, id)| node(*id).map(|new| *id = new).is_some());
    config.links.retain_mut(|link| node(link.neighbour).map(|new| link.neighbour = new).is_some());
    config.routes.retain_mut(|route| {
        let via: Option<Vec<_>> = route.via.iter().map(|id| node(*id)).collect();
        via.map(|via| route.via = via).is_some()
    });
    host.links.retain_mut(|link| {
        let new = moved.host(link.peer).zip(moved.link(link.peer, link.peer_link));
        new.map(|(peer, peer_link)| (link.peer, link.peer_link) = (peer, peer_link)).is_some()
    });
    host
}

fn moved_fault(fault: Fault, moved: &Moved<'_>) -> Option<Fault> {
    let mut what = fault.what;
    let (host, link) = match &mut what {
        FaultAction::Partition { host, link, .. }
        | FaultAction::Heap { host, link }
        | FaultAction::Noise { host, link, .. }
        | FaultAction::Breach(
            Breach::SlowLink { host, link, .. }
            | Breach::Foreign { host, link, .. }
            | Breach::Longer { host, link, .. },
        ) => (host, Some(link)),
        FaultAction::Breach(Breach::SlowProcessor { host, .. } | Breach::Drift { host, .. })
        | FaultAction::Pause { host }
        | FaultAction::Crash { host, .. }
        | FaultAction::Jump { host, .. }
        | FaultAction::Freeze { host }
        | FaultAction::Restamp { host, .. }
        | FaultAction::Lie { host, .. }
        | FaultAction::Version { host }
        | FaultAction::Deaf { host } => (host, None),
    };
    if let Some(link) = link {
        *link = moved.link(*host, *link)?;
    }
    *host = moved.host(*host)?;
    Some(Fault { what, ..fault })
}
