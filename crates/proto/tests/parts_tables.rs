//! Tables of results of the parts of a node: link schedulers of every pace, executors of every order,
//! reassembly, watches, costs, records. Models and rules elsewhere check correctness; this test detects every
//! change of a result.

#[path = "common/written.rs"]
mod written;

use std::fmt::{Debug, Write};

use punctual_proto::api::WorkKind;
use punctual_proto::breach::Watch;
use punctual_proto::config::{CpuCosts, Interference, Pacing, RunPolicy};
use punctual_proto::fragment::{Fragmentation, Reassembly, packet_wire_bytes};
use punctual_proto::ids::{ChannelNumber, Cookie, Epoch, NodeId, PathId};
use punctual_proto::latencies::{Latencies, Observation};
use punctual_proto::lateness::timeliness;
use punctual_proto::limiter::Limiter;
use punctual_proto::linksched::{BestEffortKey, FlowIndex, Guaranteed, LinkParameters, LinkScheduler};
use punctual_proto::memory::MessageWrite;
use punctual_proto::sched::{Activation, Budget, Class, Executor, HandlerId, HandlerParameters, Trigger};
use punctual_proto::signalling::SplitMix64;
use punctual_proto::wire::{Age, ClockError, Header, Kind};
use punctual_proto::{BitRate, Instant, Nanos, Ppm};
use punctual_rig::trimmed;
use written::is_as_written;

const US: u64 = 1_000;

#[derive(Default)]
struct Table(String);

impl Table {
    fn row(&mut self, what: &str, answer: &impl Debug) {
        writeln!(self.0, "{what}: {}", trimmed(answer)).expect("a text");
    }
}

fn link_parameters(number: u64) -> LinkParameters {
    LinkParameters {
        rate: BitRate(80_000_000),
        mtu_wire_bytes: 1_500,
        best_effort_wire_bytes: if number.is_multiple_of(3) { 700 } else { 1_500 },
        pipeline_depth: 1 + (number % 4) as u32,
        pace: if number.is_multiple_of(2) { Pacing::Clock } else { Pacing::Completion },
        interference: Interference { sigma: Nanos(40 * US), rho: Ppm(30_000 * (number % 3) as u32) },
        best_effort_flow_cap: [Ppm::ONE, Ppm(300_000)][number as usize / 2 % 2],
        best_effort_cap: [Ppm::ONE, Ppm(500_000)][number as usize / 4 % 2],
        best_effort_flow_bytes_max: 9_000,
        best_effort_flows_max: 4,
        best_effort_packets_max: 24,
    }
}

/// A link, its packets under way, and its users.
struct BusyLink {
    link: LinkScheduler<u32>,
    outstanding: std::collections::VecDeque<u32>,
    flows: Vec<FlowIndex>,
    now: Instant,
    packets: u32,
}

impl BusyLink {
    fn step(&mut self, random: &mut SplitMix64, table: &mut Table) {
        let now = self.now;
        let packet = self.packets;
        self.packets += 1;
        match random.below(22) {
            0 => {
                let (slots, horizon) = (1 + random.below(5) as u32, Nanos(random.below(400 * US)));
                let soft = random.below(3) == 0;
                let flow = if soft {
                    self.link.add_soft_channel(slots, horizon)
                } else {
                    self.link.add_channel(slots, horizon)
                };
                self.flows.push(flow);
                table.row("add", &(flow, slots, horizon, soft));
            }
            1 if !self.flows.is_empty() => {
                let flow = self.flows.swap_remove(random.below(self.flows.len() as u64) as usize);
                let mut gone = Vec::new();
                self.link.remove_channel(flow, |packet| gone.push(packet));
                table.row("remove", &(flow, gone, self.link.has_leftovers()));
            }
            2 => {
                let mut gone = Vec::new();
                self.link.remove_best_effort(BestEffortKey(random.below(6)), |packet| gone.push(packet));
                self.link.free_some(|packet| gone.push(packet));
                table.row("free", &(gone, self.link.has_leftovers()));
            }
            3 if !self.flows.is_empty() => {
                let flow = self.flows[random.below(self.flows.len() as u64) as usize];
                self.link.set_channel(flow, 1 + random.below(6) as u32, Nanos(random.below(300 * US)));
                table.row("set", &self.link.occupancy(flow));
            }
            4 => {
                let pace =
                    self.link.set_pace(BitRate(40_000_000 + random.below(60_000_000)), Nanos(20 * US), now);
                table.row("pace", &pace);
            }
            5..=9 => {
                let flow = FlowIndex(random.below(7) as u32);
                let effective = Instant((now.0 + random.below(600 * US)).saturating_sub(200 * US));
                let deadline = effective + Nanos(random.below(900 * US));
                let key = Guaranteed { effective, deadline, wire_bytes: random.below(1_600) as u32 };
                table.row(
                    "queue",
                    &(flow, key, self.link.enqueue(now, flow, key, packet), self.link.slots_free(flow)),
                );
            }
            10..=14 => {
                let (key, bytes) = (BestEffortKey(random.below(6)), random.below(1_600) as u32);
                let space = self.link.best_effort_space(key, bytes);
                table.row(
                    "best effort",
                    &(key, bytes, space, self.link.enqueue_best_effort(now, key, bytes, packet)),
                );
            }
            15 => {
                if let Some(bytes) = self.outstanding.pop_front() {
                    let mut left = Vec::new();
                    self.link.complete_each(bytes, |flow| left.push(flow));
                    table.row("left", &(bytes, left));
                }
            }
            16 => self.now = now + Nanos(random.below(300 * US)),
            _ => {
                let sent = self.link.poll(now);
                self.outstanding.extend(sent.iter().map(|sent| sent.wire_bytes));
                table.row("poll", &sent);
                if sent.is_some() && random.below(6) == 0 {
                    self.outstanding.pop_back();
                    self.link.retract();
                    table.row("took back", &self.link.counters());
                }
            }
        }
    }
}

#[test]
fn link_schedulers_of_every_pace() {
    let mut table = Table::default();
    for number in 0..12 {
        let (parameters, mut random) = (link_parameters(number), SplitMix64::new(number));
        let mut line = BusyLink {
            link: LinkScheduler::new(parameters),
            outstanding: Default::default(),
            flows: Vec::new(),
            now: Instant(1_000_000),
            packets: 0,
        };
        line.flows.extend((0..3).map(|flow| line.link.add_channel(3, Nanos(flow * 90 * US))));
        table.row("link", &parameters);
        for _ in 0..70 {
            line.step(&mut random, &mut table);
            let link = &line.link;
            let accounts =
                (link.outstanding(line.now), link.next_timeout(), link.accounts(), link.channels());
            let words = (link.is_served(line.now), link.best_effort_waits(), link.is_empty());
            table.row(&format!("  {}", line.now.0), &(accounts, words));
        }
        line.link.set_parameters(&LinkParameters { rate: BitRate(30_000_000), ..parameters });
        line.link.set_best_effort_cap(Ppm(200_000));
        while let Some(at) = line.link.next_timeout().filter(|_| !line.link.is_empty()) {
            line.now = line.now.max(at) + Nanos(10 * US);
            let sent = line.link.poll(line.now);
            line.outstanding.extend(sent.iter().map(|sent| sent.wire_bytes));
            table.row(&format!("then {}", line.now.0), &sent);
            if let Some(bytes) = line.outstanding.pop_front() {
                line.link.complete(bytes, line.now);
            }
            if line.now > Instant(60_000_000) {
                break;
            }
        }
        table.row("in all", &line.link.counters());
    }
    is_as_written("linksched", &table.0);
}

fn handler(random: &mut SplitMix64) -> HandlerParameters {
    const CLASSES: [Class; 7] = [
        Class::Signalling,
        Class::LowLatency,
        Class::Guaranteed,
        Class::Guaranteed,
        Class::Soft,
        Class::BestEffort,
        Class::Background,
    ];
    let class = CLASSES[random.below(7) as usize];
    let triggers = [Trigger::Reactive, Trigger::Refilled, Trigger::Periodic];
    let budget = (random.below(2) == 0).then(|| Budget {
        packets: 1 + random.below(3) as u32,
        period: Nanos(1 + random.below(300 * US)),
        deadline: Nanos(1 + random.below(300 * US)),
    });
    HandlerParameters {
        class,
        level: random.below(32) as u8,
        period: Nanos(random.below(900 * US)),
        place: random.below(4) as u8,
        quantum_packets: 1 + random.below(3) as u32,
        budget,
        trigger: if budget.is_some() { triggers[random.below(3) as usize] } else { Trigger::Reactive },
    }
}

fn executor_step(random: &mut SplitMix64, executor: &mut Executor, now: &mut Instant, table: &mut Table) {
    let id = HandlerId(random.below(8) as u32);
    match random.below(16) {
        0 => {
            let handler = handler(random);
            table.row("add", &(executor.add(handler), handler));
        }
        1 => executor.remove(id),
        2..=6 => {
            let eligible = Instant((now.0 + random.below(200 * US)).saturating_sub(100 * US));
            let deadline = eligible + Nanos(random.below(700 * US));
            executor.ready(id, Activation { eligible, deadline }, *now);
            table.row("ready", &(id, eligible, deadline));
        }
        7 => executor.idle(id),
        8 => executor.block(id),
        9 => executor.unblock(id, *now),
        10 => *now = *now + Nanos(random.below(150 * US)),
        11 => executor.refund(Nanos(random.below(20 * US)), *now),
        _ => {
            let picked = executor.pick(*now);
            table.row("picks", &(picked, executor.yield_request(*now)));
            if let Some(id) = picked {
                let cost = Nanos(random.below(60 * US));
                executor.charge(id, cost, *now);
                executor.charge_flow(id, cost, *now);
                *now = *now + cost;
                executor.finished(id, 1 + random.below(2) as u32, *now);
                if random.below(3) == 0 {
                    executor.idle(id);
                }
            }
        }
    }
}

#[test]
fn executors_of_every_order() {
    let mut table = Table::default();
    for (number, policy) in RunPolicy::ALL.into_iter().cycle().take(12).enumerate() {
        let mut random = SplitMix64::new(number as u64);
        let mut executor = Executor::new(policy);
        if number >= 4 {
            executor = executor.with_caps(Ppm(600_000), Ppm(250_000));
        }
        if number >= 8 {
            executor = executor.with_flow_cap(Ppm(100_000));
        }
        let mut now = Instant(1_000_000);
        table.row("order", &policy);
        for _ in 0..6 {
            let handler = handler(&mut random);
            table.row("has", &(executor.add(handler), handler));
        }
        for _ in 0..90 {
            executor_step(&mut random, &mut executor, &mut now, &mut table);
            table.row(&format!("  {}", now.0), &(executor.next_timeout(), executor.has_ready()));
        }
    }
    is_as_written("executor", &table.0);
}

struct Bytes(Vec<u8>);

impl MessageWrite for Bytes {
    fn copy_from(&mut self, offset: u32, bytes: &[u8]) {
        self.0[offset as usize..][..bytes.len()].copy_from_slice(bytes);
    }
}

impl Debug for Bytes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.0.iter().map(|byte| u64::from(*byte)).sum::<u64>())
    }
}

#[test]
fn messages_that_are_put_together() {
    let mut table = Table::default();
    for seed in 0..8 {
        let mut random = SplitMix64::new(seed);
        let mut reassembly = Reassembly::new(3, 100, 350);
        for _ in 0..90 {
            let (message, len) = (random.below(12) + 40 * random.below(2), random.below(380) as u32);
            // Mostly the same length for the same message.
            let len = if random.below(8) == 0 { len } else { 60 * (1 + message as u32 % 6) };
            let cut = Fragmentation::new(len, 100).expect("it fits");
            let fragment = random.below(u64::from(cut.fragments())) as u16;
            let payload_bytes = cut.extent(fragment).expect("in range").len;
            let header = Header {
                kind: Kind::Guaranteed,
                demoted: random.below(6) == 0,
                unpromised: random.below(9) == 0,
                path: PathId { node: NodeId(1), channel: ChannelNumber(1), epoch: Epoch(1) },
                cookie: Cookie(1),
                message,
                fragment,
                fragments: cut.fragments(),
                message_bytes: len,
                slack_ns: 0,
                logical_arrival: Instant(random.below(1_000)),
                age: Age::NONE,
                payload_bytes,
                clock_error: ClockError::NONE,
                destination: NodeId(0),
            };
            let payload = vec![message as u8 + 1; payload_bytes as usize];
            let room = random.below(12) > 0;
            let outcome = reassembly.accept(&header, &payload, || room.then(|| Bytes(vec![0; 350])));
            table.row(&format!("{message} {fragment} of {len} B"), &outcome);
            if random.below(15) == 0 {
                let before = random.below(12);
                table.row("  given up", &(before, reassembly.expire(before)));
            }
            let counts = (reassembly.in_progress(), reassembly.seen_until(), reassembly.incomplete());
            table.row("  then", &(counts, reassembly.room_bytes()));
        }
        while reassembly.forget_one() {
            table.row("forgets, and has", &reassembly.in_progress());
        }
    }
    is_as_written("reassembly", &table.0);
}

#[test]
fn watches_and_observations() {
    let mut table = Table::default();
    for seed in 0..4 {
        let (mut random, mut watch, mut now) =
            (SplitMix64::new(seed), Watch::default(), Instant(5_000_000_000));
        let lease = Nanos::from_secs(6);
        for _ in 0..60 {
            now = now + Nanos(random.below(2_200_000_000 * (seed + 1)));
            if random.below(4) > 0 {
                let by = Nanos(random.below(3_000_000));
                table.row(&format!("{} late by {}", now.0, by.0), &watch.late(by, now));
            } else if random.below(5) == 0 {
                watch.forget_recent();
            } else {
                table.row(&format!("{} heals", now.0), &watch.heals(lease, now));
            }
            let broken = (watch.broken_since(), watch.heals_at(lease), watch.is_stirred(now));
            table.row("  then", &(broken, watch.recent(now), watch.last_minute(now)));
        }
    }
    let mut latencies = Latencies::default();
    let mut random = SplitMix64::new(8);
    for round in 0..400 {
        let most = 1 << (1 + random.below(38));
        let latency = Nanos(random.below(most));
        let observation = Observation { latency, error: Nanos(random.below(100)) };
        let bucket = latencies.add(observation);
        if round % 40 == 0 {
            table.row(
                &format!("{} ns", latency.0),
                &(bucket, [0, 1, 500, 990, 1_000].map(|mille| latencies.quantile(mille))),
            );
        }
    }
    table.row("observed", &latencies.observed());
    for latency in [0, 900, 1_000, 1_001, 1_100, 1_101] {
        let with = |error: Option<u64>| timeliness(Nanos(latency), error.map(Nanos), Nanos(1_000));
        table.row(&format!("{latency} ns"), &[None, Some(0), Some(100)].map(with));
    }
    let mut limiter = Limiter::new(3, Nanos(1_000));
    for at in [0, 1, 2, 3, 999, 1_000, 1_001, 1_002, 1_003, 2_500] {
        table.row(&format!("at {at}"), &(limiter.is_over(Instant(at)), limiter.pass(Instant(at))));
    }
    is_as_written("watches", &table.0);
}

#[test]
fn costs_of_units_and_packets() {
    let mut table = Table::default();
    let costs = CpuCosts {
        send_message: Nanos(1_001),
        send_packet: Nanos(2_003),
        send_packet_later: Nanos(1_507),
        forward_packet: Nanos(3_011),
        receive_packet: Nanos(1_709),
        deliver_message: Nanos(907),
        copy_kib: Nanos(2_047),
        cold_start: Nanos(40_000),
    };
    for kind in
        [WorkKind::Send, WorkKind::Forward, WorkKind::Receive, WorkKind::BestEffort, WorkKind::Signalling]
    {
        for packets in [0, 1, 2, 7] {
            for bytes in [0, 1, 1_023, 1_024, 1_025, 9_000] {
                let of = [false, true].map(|edge| costs.of_unit(kind, packets, bytes, edge));
                table.row(&format!("{kind:?} {packets} {bytes}"), &of);
            }
        }
    }
    for bytes in [0, 1, 99, 100, 101, 200, 65_535] {
        for size in [1, 64, 100, 1_400] {
            let cut = Fragmentation::new(bytes, size);
            let of = cut.map(|cut| {
                (cut.fragments(), cut.wire_bytes(66), cut.unit_wire_bytes(66), cut.extent(0), cut.extent(1))
            });
            table.row(&format!("{bytes} B in {size}"), &(of, packet_wire_bytes(bytes, 66)));
        }
    }
    is_as_written("costs", &table.0);
}
