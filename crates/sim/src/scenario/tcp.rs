//! TCP connections of a seed, of all classes, beside channels: between neighbours (ADR 0054), and over two channels between any
//! hosts (ADR 0055). Dice of their own, so that plans without them are unchanged.

use punctual_analysis::{Contract, Nanos, Ppm};
use punctual_proto::api::{RtuClass, RtuCost};
use punctual_proto::config::{CpuCosts, RunPolicy, WorkKind};
use punctual_proto::limits::RAW_TAG_BYTES;
use punctual_tcp::{ACK_SEGMENTS_MAX, Config};

use super::channels::draw_flood;
use super::paths::{PATH_PACKET_BYTES, drain_of, draw_path, holds_flight};
use super::{FloodPlan, HostPlan, Times};
use crate::dice::{Dice, Draw};
use crate::options::{FaultChoice, Faults, Options, Traffic};
use crate::processor::unit_cost_max;
use crate::time::SimTime;

/// Most connections of a plan.
const CONNECTIONS_MAX: u64 = 8;
/// Segments of a call of best effort, as the host has them.
const QUANTUM: u32 = 2;
/// Smallest largest IP packet of a path (RFC 791; RFC 8200 5).
const PACKET_BYTES_MIN: [u32; 2] = [576, 1_280];
/// Lifetime of a segment there: TIME-WAIT serves only to acknowledge a FIN that comes again.
const PATH_SEGMENT_LIFE: Nanos = Nanos::from_millis(1_500);
/// Time after the traffic in which connections send what is left, close and wait: one that meets no fault, and others, whose
/// retransmission timer may have doubled a few times. The slowest class takes some 300 short messages that wait, at 50 segments a
/// second.
const DRAIN: [Nanos; 2] = [Nanos::from_secs(12), Nanos::from_secs(40)];

/// TCP of a plan.
#[derive(Clone, Debug, Default)]
pub struct TcpPlan {
    /// The connections; the client of connection `n` has a port of its own.
    pub connections: Vec<ConnectionPlan>,
    /// Faults of single segments while applications send.
    pub faults: Faults,
    /// Declared time of a segment on every host.
    pub cost: RtuCost,
    /// Time from the close of all channels until all connections must be over.
    pub drain: Nanos,
}

/// A TCP connection.
#[derive(Clone, Copy, Debug)]
pub struct ConnectionPlan {
    /// Hosts of the client and of the server: neighbours, unless its path is reserved.
    pub hosts: [usize; 2],
    /// Index of the link between them, at each; without a meaning if its path is reserved.
    pub links: [u16; 2],
    /// Contract of each of both channels that carry its packets, if its path is reserved.
    pub path: Option<Contract>,
    /// The connection whose listener it uses: its own, or an earlier one's with the same server, whose settings are its own
    /// then.
    pub leader: usize,
    /// Whether it is left out of a smaller plan.
    pub is_left_out: bool,
    /// Whether it runs over IPv6.
    pub is_v6: bool,
    /// Class at each end.
    pub classes: [RtuClass; 2],
    /// What each end writes.
    pub writes: [Writes; 2],
    /// How each end reads.
    pub reads: [Reads; 2],
    /// Its settings, the same at both ends.
    pub config: Config,
    /// Time of its SYN.
    pub opens_at: SimTime,
    /// How it ends.
    pub ending: Ending,
}

/// What an end writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Writes {
    /// Nothing.
    Nothing,
    /// So many bytes, as fast as its ring takes them.
    Bulk(u64),
    /// A message of at most so many bytes now and then, until traffic stops.
    Messages {
        /// Largest message.
        bytes: u32,
        /// Mean distance.
        interval: Nanos,
    },
    /// What the budget of its guaranteed class carries in each period, until traffic stops.
    Budget,
}

/// How an end reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reads {
    /// At once.
    AtOnce,
    /// A message stays unread for up to this time.
    After(Nanos),
}

/// How a connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// Each end closes its direction behind the last byte; the programs stay until both have read everything.
    Closed,
    /// One end aborts at a time.
    Aborted {
        /// Whether that is the server.
        by_server: bool,
        /// When.
        at: SimTime,
    },
    /// The program of one end is gone at a time.
    Left {
        /// Whether that is the server.
        by_server: bool,
        /// When.
        at: SimTime,
    },
}

impl TcpPlan {
    /// Whether the plan has TCP at all.
    pub fn is_none(&self) -> bool {
        self.connections.is_empty()
    }
}

/// Draws the connections of a plan; costs of segments enter the configurations of its hosts, and its last phases move.
pub(super) fn draw_tcp(
    seed: u64,
    options: &Options,
    (hosts, floods): (&mut [HostPlan], &mut Vec<FloodPlan>),
    times: &mut Times,
) -> TcpPlan {
    if !options.tcp || matches!(options.traffic, Traffic::Uptime(_) | Traffic::Drift(_)) {
        return TcpPlan::default();
    }
    let mut dice = Dice::of(seed, Draw::Tcp);
    let cost = RtuCost { run: Nanos(dice.between(0, 2_000)), unit: Nanos(dice.log_between(1_000, 12_000)) };
    let faults = match options.faults {
        FaultChoice::These(faults) => faults,
        FaultChoice::Drawn => draw_faults(&mut dice),
    };
    let is_calm = faults.is_none() && times.heals <= times.opened;
    let count = dice.between(1, CONNECTIONS_MAX);
    let mut connections: Vec<ConnectionPlan> = Vec::new();
    for _ in 0..count * 4 {
        let drawn = match dice.between(0, 2) {
            0 => draw_path(hosts, &mut dice).and_then(|path| draw_over(path, times, is_calm, &mut dice)),
            _ => draw_connection(hosts, times, is_calm, &mut dice),
        };
        let drawn = drawn.filter(|_| connections.len() < count as usize);
        // Best effort beside it, on all of its path.
        let flooded = drawn.filter(|drawn| drawn.path.is_some() && dice.between(0, 1) == 0);
        floods.extend(flooded.map(|drawn| draw_flood((drawn.hosts[0], drawn.hosts[1]), &mut dice)));
        connections.extend(drawn.map(|drawn| with_leader(drawn, &connections, &mut dice)));
    }
    hosts.iter_mut().for_each(|host| charge_calls(host, cost));
    let drain = DRAIN[usize::from(!is_calm)];
    // The channels of a connection close when it is over.
    let closes = connections.iter().filter_map(|plan| plan.path.as_ref()).map(drain_of).max();
    for at in [&mut times.revives, &mut times.empty, &mut times.ends] {
        *at = *at + drain + closes.unwrap_or_default();
    }
    TcpPlan { connections, faults, cost, drain }
}

/// Half of the connections to a server that is there already use its listener.
fn with_leader(drawn: ConnectionPlan, others: &[ConnectionPlan], dice: &mut Dice) -> ConnectionPlan {
    let server = |plan: &ConnectionPlan| (plan.hosts[1], plan.links[1], plan.is_v6);
    let found = others.iter().find(|other| other.path.is_none() && server(other) == server(&drawn));
    let is_promised = drawn.writes[0] == Writes::Budget || drawn.path.is_some();
    match found {
        Some(other) if !is_promised && dice.between(0, 1) == 0 => {
            ConnectionPlan { leader: other.leader, config: others[other.leader].config, ..drawn }
        }
        _ => ConnectionPlan { leader: others.len(), ..drawn },
    }
}

fn draw_faults(dice: &mut Dice) -> Faults {
    if dice.between(0, 1) == 0 {
        return Faults::NONE;
    }
    let mut rate = |most| Ppm(dice.between(0, 1).saturating_mul(dice.log_between(500, most)) as u32);
    let (loss, duplicate, delay, corrupt) = (rate(50_000), rate(50_000), rate(50_000), rate(20_000));
    Faults { loss, duplicate, delay, corrupt, delay_max: Nanos::from_millis(dice.between(1, 20)) }
}

fn draw_connection(
    hosts: &[HostPlan],
    times: &Times,
    is_calm: bool,
    dice: &mut Dice,
) -> Option<ConnectionPlan> {
    let from = dice.between(0, hosts.len() as u64 - 1) as usize;
    let link = dice.between(0, hosts[from].links.len().checked_sub(1)? as u64) as u16;
    let there = hosts[from].links[usize::from(link)];
    let (hosts_of, links) = ([from, there.peer], [link, there.peer_link]);
    let is_v6 = dice.between(0, 2) == 0;
    let least = PACKET_BYTES_MIN[usize::from(is_v6)];
    let most = (0..2).map(|end| segment_bytes(&hosts[hosts_of[end]], links[end])).min()?;
    let some = dice.between(u64::from(least), u64::from(most)) as u32;
    let mtu = dice.pick(&[least, most, most, some]);
    if most < least {
        return None;
    }
    let runs = [0, 1].map(|end| hosts[hosts_of[end]].config.cpu.run);
    let way = Way { hosts: hosts_of, links, path: None, is_v6, mtu: mtu as u16 };
    Some(draw_traffic(way, draw_classes(runs, dice), times, is_calm, dice))
}

/// A connection whose path is reserved. Both ends have the class that the contract was made for.
fn draw_over(
    (hosts, class, path): ([usize; 2], RtuClass, Contract),
    times: &Times,
    is_calm: bool,
    dice: &mut Dice,
) -> Option<ConnectionPlan> {
    let way = Way { hosts, links: [0; 2], path: Some(path), is_v6: true, mtu: PATH_PACKET_BYTES as u16 };
    let is_promised = holds_flight(class, &path) && dice.between(0, 3) > 0;
    let drawn = draw_traffic(way, ([class; 2], is_promised), times, is_calm, dice);
    let config = Config { msl: PATH_SEGMENT_LIFE, ..drawn.config };
    Some(ConnectionPlan { config, ..drawn })
}

/// Where a connection runs.
struct Way {
    hosts: [usize; 2],
    links: [u16; 2],
    path: Option<Contract>,
    is_v6: bool,
    mtu: u16,
}

/// What the programs of a connection do, and its settings.
fn draw_traffic(
    Way { hosts, links, path, is_v6, mtu }: Way,
    (classes, is_promised): ([RtuClass; 2], bool),
    times: &Times,
    is_calm: bool,
    dice: &mut Dice,
) -> ConnectionPlan {
    let buffers = [0, 1].map(|_| dice.log_between(2_048, 65_536) as usize);
    let buffers = if is_promised { [65_536, 65_536] } else { buffers };
    let config = Config {
        receive_bytes: buffers[0],
        send_bytes: buffers[1],
        mtu_bytes: mtu,
        is_nodelay: is_promised || dice.between(0, 1) == 0,
        has_timestamps: dice.between(0, 3) > 0,
        // As the host sets it.
        ack_segments: if classes == [RtuClass::BestEffort; 2] { ACK_SEGMENTS_MAX } else { 1 },
        // TIME-WAIT outlasts some retransmissions of the other end's FIN.
        msl: Nanos::from_millis(dice.between(50, 300) * if is_calm { 1 } else { 25 }) + least_wait(is_calm),
        ..Config::default()
    };
    let writes =
        if is_promised { [Writes::Budget, Writes::Nothing] } else { [0, 1].map(|_| draw_writes(dice)) };
    let reads = [0, 1].map(|_| match dice.between(0, 2) {
        0 if !is_promised => Reads::After(Nanos(dice.log_between(1_000, 20_000_000))),
        _ => Reads::AtOnce,
    });
    let opens_at = times.opens + Nanos(dice.between(0, times.opened.since(times.opens).0));
    let at = times.opened + Nanos(dice.between(0, times.stops.since(times.opened).0));
    let by_server = dice.between(0, 1) == 0;
    let ending = match dice.between(0, 7) {
        0 if !is_promised => Ending::Aborted { by_server, at },
        1 if !is_promised => Ending::Left { by_server, at },
        _ => Ending::Closed,
    };
    ConnectionPlan {
        hosts,
        links,
        path,
        leader: 0,
        is_left_out: false,
        is_v6,
        classes,
        writes,
        reads,
        config,
        opens_at,
        ending,
    }
}

/// Half of the time of three retransmissions, the first after a second.
const fn least_wait(is_calm: bool) -> Nanos {
    if is_calm { Nanos::ZERO } else { Nanos::from_millis(4_000) }
}

fn draw_writes(dice: &mut Dice) -> Writes {
    match dice.between(0, 4) {
        0 => Writes::Nothing,
        1 | 2 => Writes::Bulk(dice.log_between(1, 400_000)),
        _ => Writes::Messages {
            bytes: dice.log_between(1, 8_192) as u32,
            interval: Nanos(dice.log_between(500_000, 40_000_000)),
        },
    }
}

/// Classes of both ends, and whether they are the same guaranteed one, so that each period's data has a bound.
fn draw_classes(runs: [RunPolicy; 2], dice: &mut Dice) -> ([RtuClass; 2], bool) {
    if dice.between(0, 3) == 0 {
        let period = Nanos::from_millis(dice.between(4, 20));
        let class = RtuClass::periodic(period, dice.between(2, 4) as u32);
        return ([class; 2], true);
    }
    let mut draw = |run| {
        let period = Nanos::from_millis(dice.between(2, 20));
        let units = dice.between(1, 6) as u32;
        let priority = (run == RunPolicy::Rmdp && dice.between(0, 1) == 0).then(|| dice.between(0, 63) as u8);
        match dice.between(0, 3) {
            0 => RtuClass::LowDelay { interval: period, units, priority },
            1 => RtuClass::periodic(period, units),
            _ => RtuClass::BestEffort,
        }
    };
    ([draw(runs[0]), draw(runs[1])], false)
}

/// Bytes of the longest segment on a link, behind which a tag has room.
pub(crate) fn segment_bytes(host: &HostPlan, link: u16) -> u32 {
    let config = &host.config.links[usize::from(link)];
    config.packet_bytes_max.min(config.best_effort_bytes_max()).saturating_sub(RAW_TAG_BYTES as u32)
}

/// PDUs of a call of this class at most.
pub(crate) const fn quantum(class: RtuClass) -> u32 {
    if matches!(class, RtuClass::BestEffort) { QUANTUM } else { 1 }
}

/// Time of the longest call of a best-effort handler of TCP, with the node's part of it.
fn call_max(costs: &CpuCosts, cost: RtuCost, packet_bytes: u32) -> Nanos {
    let sent = costs.of_unit(WorkKind::Send, 1, packet_bytes, true);
    costs.dispatch() + cost.of(QUANTUM) + sent * u64::from(QUANTUM)
}

/// Admission counts with the calls of best-effort TCP, and the processor may be in one when work arrives.
fn charge_calls(host: &mut HostPlan, cost: RtuCost) {
    let longest = host.config.links.iter().map(|link| link.packet_bytes_max).max().unwrap_or(0);
    let cpu = &mut host.config.cpu;
    cpu.best_effort_call_max = call_max(&cpu.costs, cost, longest);
    let more = cpu.best_effort_call_max - unit_cost_max(cpu);
    let kept = u128::from(1_000_000 - cpu.interference.rho.0.min(900_000));
    let stretched = Nanos((u128::from(more.0) * 1_000_000).div_ceil(kept) as u64);
    cpu.release_latency += stretched;
    for link in &mut host.config.links {
        link.reaction += stretched;
    }
}
