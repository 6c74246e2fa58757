//! Reservations of each host of the route for a channel, and the filter of its driver, are those of
//! GUARANTEES: computed here from the granted bounds, for contracts of every kind over routes of every
//! length.

use punctual_proto::api::{FilterChange, PathFilter, StageGrant};
use punctual_proto::signalling::SplitMix64;
use punctual_proto::{BitRate, Contract, Delivery, Horizon, Late, Nanos, Ppm, Rate};
use punctual_rig::{Open, World, line_config};

const RATE: BitRate = BitRate(200_000_000);
/// Payload of a packet; what each has in front of it, and what the link adds to each.
const FRAGMENT: u64 = 1_400;
const HEADER: u64 = 64;
const OVERHEAD: u64 = 66;
/// Twice the tolerance of a clock, in millionths.
const DRIFT_PPM: u64 = 200;

/// Links with errors and propagation of their own.
fn world(hosts: usize, random: &mut SplitMix64) -> (World, Vec<u64>) {
    let mut fixed = Vec::new();
    let mut configs: Vec<_> = (0..hosts).map(|index| line_config(index, hosts, RATE)).collect();
    for config in &mut configs {
        for link in &mut config.links {
            link.rate_error = Ppm(0);
            link.pipeline_depth = 1 + random.below(3) as u32;
            link.prediction_error = Nanos(random.below(3_000_000));
            link.propagation_min = Nanos(random.below(40_000));
            link.propagation_max = Nanos(50_000 + random.below(400_000));
        }
        // The contribution of the link to the right to J: its error, a window that may be empty, and the
        // variation of propagation.
        if let Some(link) = config.links.last() {
            let window = u64::from(link.pipeline_depth) * (FRAGMENT + HEADER + OVERHEAD);
            let window_ns = (window * 8_000_000_000).div_ceil(RATE.0);
            let varies = link.propagation_max.0 - link.propagation_min.0;
            fixed.push(link.prediction_error.0 + window_ns + varies);
        }
    }
    (World::of(configs), fixed)
}

fn contract(random: &mut SplitMix64) -> Contract {
    let interval = 1_000_000 + random.below(50_000_000);
    let burst = 1 + random.below(5) as u32;
    let most = [200, 1_400, 1_401, 20_000][random.below(4) as usize];
    let bytes = 1 + random.below(most) as u32;
    let deadline = Nanos(40_000_000 + random.below(200_000_000));
    let some = Nanos(random.below(30_000_000));
    let plain = Contract::new(bytes, Rate::every(Nanos(interval)).unwrap(), burst, deadline).unwrap();
    Contract {
        jitter: [None, Some(Nanos::ZERO), Some(some)][random.below(3) as usize],
        horizon: [Horizon::Cumulative, Horizon::Regulated][random.below(2) as usize],
        delivery: [Delivery::Asap, Delivery::AtDeadline][random.below(2) as usize],
        late: [Late::Deliver, Late::Drop][random.below(2) as usize],
        ..plain
    }
}

/// A host's place, with the stages of the whole route.
struct Place<'a> {
    contract: &'a Contract,
    stages: &'a [StageGrant],
    /// Its own ones.
    own: std::ops::Range<usize>,
    /// The contribution of the previous links to J.
    fixed: u64,
}

impl Place<'_> {
    fn period(&self) -> u64 {
        self.contract.policed_interval().0
    }
    /// a.
    fn allowance(&self) -> u64 {
        let default = (self.contract.interval().0 * 10).min(10_000_000);
        self.contract.jitter.map_or(default, |jitter| jitter.0)
    }
    /// a, where stages may serve early.
    fn early(&self) -> u64 {
        if self.contract.horizon == Horizon::Cumulative { self.allowance() } else { 0 }
    }
    /// The largest sum of the stages before the own one `index`: D less the known part of the rest of the
    /// route.
    fn upstream(&self, index: usize) -> u64 {
        if self.own.start == 0 {
            return self.stages[..index].iter().map(|stage| stage.bound.0).sum();
        }
        let rest: u64 = self.stages[self.own.start + index..].iter().map(|stage| stage.bound.0).sum();
        let wire: u64 = self.stages[self.own.start..].iter().map(|stage| stage.propagation_max.0).sum();
        self.contract.deadline.0 - rest - wire
    }
    fn arrival_error(&self) -> u64 {
        self.fixed + (self.upstream(0) * DRIFT_PPM).div_ceil(1_000_000)
    }
    /// Messages of the own stage `index` behind a ring.
    fn messages(&self, index: usize) -> u64 {
        let (bound, period) = (self.stages[self.own.start + index].bound.0, self.period());
        let ahead = match (self.contract.horizon, index) {
            (Horizon::Cumulative, _) => self.early() + self.upstream(index),
            (Horizon::Regulated, 0) => self.upstream(0),
            (Horizon::Regulated, _) => self.stages[self.own.start].bound.0,
        };
        ((ahead + bound).div_ceil(period) + self.arrival_error().div_ceil(period)).max(1)
    }
    /// Bytes of all that it reserves.
    fn bytes(&self) -> u64 {
        let contract = self.contract;
        let message = u64::from(contract.message_bytes_max);
        let with_headers = message + message.div_ceil(FRAGMENT) * HEADER;
        let (period, last) = (self.period(), self.own.end == self.stages.len());
        if self.own.start == 0 {
            let span = self.early() + self.stages[0].bound.0;
            let waiting = u64::from(contract.burst_messages_max) + span.div_ceil(period);
            return waiting.max(self.messages(1)) * message;
        }
        if !last {
            return (self.messages(0) + self.messages(1)) * with_headers;
        }
        let held =
            (self.early() + contract.deadline.0).div_ceil(period) + self.arrival_error().div_ceil(period);
        let ring = if contract.delivery == Delivery::AtDeadline { held } else { self.messages(0) };
        self.messages(0) * with_headers + ring * message
    }
    /// Size of the receiver's ring: that, and the message that its application reads.
    fn inbox(&self) -> u64 {
        let (period, error) = (self.period(), self.arrival_error());
        let span = match (self.contract.delivery, self.contract.horizon) {
            (Delivery::AtDeadline, _) => self.early() + self.contract.deadline.0,
            (Delivery::Asap, Horizon::Cumulative) => {
                self.early() + self.upstream(0) + self.stages[self.own.start].bound.0
            }
            (Delivery::Asap, Horizon::Regulated) => {
                self.stages[self.own.start - 1].offered.0 + self.stages[self.own.start].bound.0
            }
        };
        span.div_ceil(period) + error.div_ceil(period) + 1
    }
    /// The filter of the driver of the incoming link: at most the packets that an honest path may deliver.
    fn filter(&self, reported: &PathFilter) -> PathFilter {
        let (packets, period) =
            (u64::from(self.contract.message_bytes_max).div_ceil(FRAGMENT), self.period());
        let at_once = (self.early() + self.upstream(0) + self.arrival_error()).div_ceil(period) + 1;
        // A forwarder's driver may learn of a completion late.
        let kept = if self.own.end == self.stages.len() {
            self.messages(0)
        } else {
            self.messages(0) + self.messages(1) + 1
        };
        let before: u64 = self.stages[..self.own.start].iter().map(|stage| stage.offered.0).sum();
        let expires = (self.contract.deadline.0 + self.arrival_error() - before) as i64;
        PathFilter {
            low_latency: false,
            packet_bytes_max: self.contract.message_bytes_max.min(FRAGMENT as u32) + HEADER as u32,
            burst_packets: (at_once * packets) as u32,
            interval: Nanos(period / packets),
            buffers: (kept * packets) as u32,
            slack_ns_min: (self.contract.late == Late::Drop).then_some(-expires),
            ..*reported
        }
    }
    /// Size of the sender's ring: the messages that wait until this host has sent them.
    fn outbox(&self) -> u64 {
        let here: u64 = self.stages[self.own.clone()].iter().map(|stage| stage.bound.0).sum();
        let waiting = (self.allowance() + here).div_ceil(self.period());
        waiting + u64::from(self.contract.burst_messages_max)
    }
}

fn channel_at(open: &Open, node: usize, world: &World) -> Vec<StageGrant> {
    let last = world.nodes.len() - 1;
    let id = match node {
        0 => open.source,
        node if node == last => open.sink,
        node => world.nodes[node].channels()[0].channel,
    };
    world.nodes[node].channel(id).expect("it is open").stages
}

/// The filters that a host sent to its drivers.
fn reported(world: &mut World, node: usize) -> Vec<PathFilter> {
    let reported = std::iter::from_fn(|| world.nodes[node].poll_filter());
    let filter = |(_, change)| if let FilterChange::Set(filter) = change { Some(filter) } else { None };
    reported.filter_map(filter).collect()
}

#[test]
fn every_host_reserves_as_the_formulas_require() {
    let (mut opened, mut filters, mut hops) = (0, 0, 0);
    for seed in 0..150 {
        let mut random = SplitMix64::new(seed);
        let hosts = 2 + random.below(3) as usize;
        let (mut world, fixed) = world(hosts, &mut random);
        let contract = contract(&mut random);
        if contract.validate().is_err() {
            continue;
        }
        let Ok(open) = world.open(0, hosts - 1, contract) else { continue };
        opened += 1;
        hops += hosts - 1;
        let free = open.inbox.free() as u64;
        world.run_for(Nanos::from_millis(20));
        let (mut begin, mut before) = (0, 0);
        for node in 0..hosts {
            let held = channel_at(&open, node, &world);
            let own = begin..begin + held.len();
            for (held, granted) in held.iter().zip(&open.grant.stages[own.clone()]) {
                assert_eq!((held.kind, held.bound), (granted.kind, granted.bound), "seed {seed}");
            }
            let place =
                Place { contract: &contract, stages: &open.grant.stages, own: own.clone(), fixed: before };
            let bytes = held.last().expect("it has stages").buffer_bytes;
            assert_eq!(bytes, place.bytes(), "seed {seed}, h{}: {contract:?}", node + 1);
            let status = world.nodes[node].status(world.now);
            assert_eq!((status.buffer_bytes, status.channels), (bytes, 1), "seed {seed}");
            for filter in reported(&mut world, node) {
                assert_eq!(filter, place.filter(&filter), "seed {seed}, h{}: {contract:?}", node + 1);
                filters += 1;
            }
            if node == 0 {
                assert_eq!(u64::from(open.grant.outbox_messages), place.outbox(), "seed {seed}");
            }
            if node + 1 == hosts {
                assert_eq!(free - 4, place.inbox(), "seed {seed}: {contract:?}");
            }
            begin = own.end;
            before += fixed.get(node).copied().unwrap_or(0);
        }
        // All of D is used, except for roundings.
        let of = |stage: &StageGrant| stage.bound.0 + stage.propagation_max.0;
        let given: u64 = open.grant.stages.iter().map(of).sum();
        let bounds: u64 = open.grant.stages.iter().map(|stage| stage.bound.0).sum();
        assert!(given + (bounds * DRIFT_PPM).div_ceil(1_000_000) <= contract.deadline.0, "seed {seed}");
        assert_eq!(
            open.grant.jitter_allowance.0,
            Place { contract: &contract, stages: &open.grant.stages, own: 0..2, fixed: 0 }.allowance()
        );
    }
    assert!(opened > 80, "{opened}");
    assert_eq!(filters, hops, "each host but the source has a driver to tell");
}
