//! Invariants of hosts where a channel passes or ends, whatever arrives: each check takes a seed and
//! describes a violation, if there is one. The mutation check uses the same checks.

use std::cell::RefCell;
use std::rc::Rc;

use punctual_proto::api::{ChannelCounters, FilterChange, PathFilter, Port, StageKind};
use punctual_proto::ids::LinkId;
use punctual_proto::wire::Header;
use punctual_proto::{BitRate, Contract, Nanos, Rate};

use punctual_rig::{Open, TestInbox, TestOutbox, World, line_config, name, pattern};

const RATE: BitRate = BitRate(40_000_000);
/// The link that packets come in by: the left one.
const LEFT: LinkId = LinkId(0);
const MILLI: u64 = 1_000_000;

/// SplitMix64.
struct Random(u64);
impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % n.max(1)
    }
    fn between(&mut self, from: u64, to: u64) -> u64 {
        from + self.below(to - from + 1)
    }
}

/// A line of hosts whose links' departures may be predicted wrongly by so much.
fn line(hosts: usize, prediction_error: Nanos) -> World {
    let config = |index| {
        let mut config = line_config(index, hosts, RATE);
        config.links.iter_mut().for_each(|link| link.prediction_error = prediction_error);
        config
    };
    World::of((0..hosts).map(config).collect())
}

/// The packets of one message of a channel as they leave its source; none arrives.
fn captured(world: &mut World, open: &Open, bytes: u32) -> Vec<Vec<u8>> {
    let seen = Rc::new(RefCell::new(Vec::new()));
    let copy = seen.clone();
    world.tap = Some(Box::new(move |from, port, bytes| {
        let is_taken = from == 0 && port == Port::Data;
        if is_taken {
            copy.borrow_mut().push(bytes.clone());
        }
        !is_taken
    }));
    assert!(open.outbox.send(&pattern(1, 0, bytes as usize), world.now));
    world.nodes[0].handle_ring(open.source, world.now);
    world.run_for(Nanos::from_millis(100));
    world.tap = None;
    seen.take()
}

/// `packet` as one of message `number` with this slack.
fn with_slack(packet: &[u8], number: u64, slack_ns: i64) -> Vec<u8> {
    let (header, _) = Header::parse(packet).expect("a packet of ours");
    let mut packet = packet.to_vec();
    Header { message: number, slack_ns, ..header }.write(&mut packet);
    packet
}

/// A driver passes a packet to its node, whose processor handles it later.
fn arrive(world: &mut World, node: usize, packet: &[u8]) {
    let (frame, now) = (world.pool.frame(packet), world.now);
    world.nodes[node].handle_frame(LEFT, Port::Data, now, frame, now);
}

fn counters(world: &World, node: usize) -> ChannelCounters {
    world.nodes[node].channels()[0].counters
}

/// The channel's filter that the node sent to its driver.
fn next_filter(world: &mut World, node: usize) -> Option<PathFilter> {
    let mut found = None;
    while let Some((_, change)) = world.nodes[node].poll_filter() {
        if let FilterChange::Set(filter) = change {
            found = Some(filter);
        }
    }
    found
}

/// A channel over a line, and a host on it behind the first.
struct LineChannel {
    world: World,
    open: Open,
    contract: Contract,
    node: usize,
    filter: PathFilter,
    packets: u64,
}

fn line_channel(random: &mut Random) -> Option<LineChannel> {
    let hosts = random.between(2, 4) as usize;
    let interval = random.between(4, 40) * MILLI;
    let contract = Contract::new(
        random.between(100, 4_000) as u32,
        Rate::every(Nanos(interval))?,
        random.between(1, 3) as u32,
        Nanos(interval + random.between(20, 200) * MILLI),
    );
    let contract = contract.expect("in range");
    // From none to some intervals: near the values at which the bucket's messages are rounded up, and far
    // from them.
    let mut world = line(hosts, Nanos(random.below(3 * interval)));
    let open = world.open(0, hosts - 1, contract).expect("room for one");
    let node = random.between(1, hosts as u64 - 1) as usize;
    let filter = next_filter(&mut world, node).expect("a channel that comes in is told to the driver");
    let packets = u64::from(contract.packets_max(1_400));
    Some(LineChannel { world, open, contract, node, filter, packets })
}

/// All packets that an honest path may deliver at once, and that the node accepts as in time, pass the
/// driver's bucket: messages I' apart, from the latest that is not demoted to the earliest that all previous
/// stages allow.
pub fn bucket_too_small(seed: u64) -> Option<String> {
    let mut random = Random(seed ^ 0xb0c7);
    let mut channel = line_channel(&mut random)?;
    let sample = captured(&mut channel.world, &channel.open, channel.contract.message_bytes_max);
    let before: u64 =
        channel.open.grant.stages.iter().take(2 * channel.node).map(|stage| stage.bound.0).sum();
    let period = channel.contract.policed_interval().0;
    // Later than anything that J allows, at any phase.
    let mut slack_ns = -((20 * period + random.below(period) + 200 * MILLI) as i64);
    let (mut number, mut came) = (1, 0);
    while slack_ns <= before as i64 {
        for packet in &sample {
            arrive(&mut channel.world, channel.node, &with_slack(packet, number, slack_ns));
            came += 1;
        }
        number += 1;
        slack_ns += period as i64;
    }
    let counters = counters(&channel.world, channel.node);
    let in_time = came - counters.demoted;
    if counters.packets_in != came || in_time == 0 {
        return Some(format!("of {came} packets the node has seen {counters:?}"));
    }
    let burst = u64::from(channel.filter.burst_packets);
    (in_time > burst).then(|| format!("{in_time} packets in time at once, the driver lets {burst} in"))
}

/// The driver has buffers for all that the node may keep, and where packets go on for another message, which the adapter
/// has sent and not given back yet.
pub fn buffers_too_few(seed: u64) -> Option<String> {
    let LineChannel { mut world, open, contract, node, filter, packets } =
        line_channel(&mut Random(seed ^ 0xbf5))?;
    let kept = world.nodes[node].status(world.now).buffer_bytes;
    world.nodes[0].close(open.source, world.now).expect("it is open");
    world.run_for(Nanos::from_secs(2));
    let kept = kept - world.nodes[node].status(world.now).buffer_bytes;
    let goes_on = node + 1 < world.nodes.len();
    let wire = u64::from(contract.message_bytes_max) + packets * 64;
    // A sink's bytes are also its ring.
    let ring = if goes_on { 0 } else { u64::from(contract.message_bytes_max) };
    let wanted = match goes_on {
        true => (kept / wire + 1) * packets,
        false => packets,
    };
    let buffers = u64::from(filter.buffers);
    let fits = kept >= wire + ring && buffers >= wanted;
    (!fits).then(|| format!("{kept} B are kept, {wanted} buffers needed, the driver is told of {buffers}"))
}

/// Two channels at a forwarder whose processor is stopped for a while, within its bounds. A packet that it
/// serves late is not due at the link earlier for that: it is due the link's bound after it could be there,
/// and the link serves by that.
pub fn served_out_of_order(seed: u64) -> Option<String> {
    order_of_service(seed).flatten()
}

/// As [`served_out_of_order`]; `None` outside: the times drawn are too close to decide.
pub fn order_of_service(seed: u64) -> Option<Option<String>> {
    const ERROR: Nanos = Nanos::from_millis(3);
    let mut random = Random(seed ^ 0x07de);
    let mut world = line(3, ERROR);
    let rate = Rate::per_second(20)?;
    let one = |world: &mut World, deadline_ms: u64| {
        let contract = Contract::new(600, rate, 1, Nanos::from_millis(deadline_ms)).expect("in range");
        let open = world.open(0, 2, contract).expect("room");
        let sample = captured(world, &open, 600).remove(0);
        let bound = |kind| {
            let stages = open.grant.stages.iter().skip(2);
            stages.clone().find(|stage| stage.kind == kind).expect("a forwarder").bound.0
        };
        (sample, bound(StageKind::ForwardCpu), bound(StageKind::Link))
    };
    let pair = [one(&mut world, random.between(40, 90)), one(&mut world, random.between(40, 90))];
    let received = world.now;
    // Neither is served later than its bound.
    let still = random.between(0, pair[0].1.min(pair[1].1));
    let served = received + Nanos(still);
    world.still = Some((1, served));
    // Late within J, or early: then the slack of the second makes both due at much the same time.
    let due_with = |slack_ns: i64, (_, processor, link): &(Vec<u8>, u64, u64)| {
        let there = received.offset(slack_ns) + Nanos(*processor);
        let effective = received.offset(slack_ns.max(0)) + Nanos(*processor);
        there.max(served.min(effective)) + Nanos(*link)
    };
    let first_ns = random.between(0, 4 * MILLI) as i64 - 2_500_000;
    let due = due_with(first_ns, &pair[0]);
    let off = random.between(0, 3 * MILLI) as i64 - 1_500_000;
    let second_ns = due.offset(off).minus(received) - (pair[1].1 + pair[1].2) as i64;
    let dues = [due, due_with(second_ns, &pair[1])];
    if second_ns < -2_500_000 || dues[0].0.abs_diff(dues[1].0) < 1_000 {
        return None;
    }
    for ((sample, ..), slack_ns) in pair.iter().zip([first_ns, second_ns]) {
        arrive(&mut world, 1, &with_slack(sample, 1, slack_ns));
    }
    let order = Rc::new(RefCell::new(Vec::new()));
    let copy = order.clone();
    world.tap = Some(Box::new(move |from, port, bytes| {
        if from == 1 && port == Port::Data {
            copy.borrow_mut().push(Header::parse(bytes).expect("a packet of ours").0.path);
        }
        true
    }));
    world.run_for(Nanos::from_millis(200));
    let paths = pair.each_ref().map(|(sample, ..)| Header::parse(sample).expect("a packet of ours").0.path);
    let wanted = if dues[0] < dues[1] { paths } else { [paths[1], paths[0]] };
    let order = order.take();
    let is_wrong = order != wanted;
    Some(is_wrong.then(|| {
        format!("slacks {first_ns} and {second_ns}, served after {still}: due {dues:?}, order {order:?} of {paths:?}")
    }))
}

/// Best effort that passes a forwarder in bursts for which queue 2 has no room. At the end all buffers of the
/// driver are free again, and best effort passes.
pub fn best_effort_stuck(seed: u64) -> Option<String> {
    let mut random = Random(seed ^ 0xbe);
    let config = |index| {
        let mut config = line_config(index, 3, RATE);
        for link in &mut config.links {
            link.frames = 256;
            link.best_effort_flow_bytes_max = 4_000;
        }
        config
    };
    let mut world = World::of((0..3).map(config).collect());
    let inbox = TestInbox::new(64, 1_000);
    world.nodes[2].bind_best_effort(name("bulk"), 1_000, inbox.clone()).expect("free");
    let outbox = TestOutbox::new(64, 1_000);
    let to = "bulk@h3".parse().expect("an address");
    let flow = world.nodes[0].open_best_effort(to, 1_000, outbox.clone(), world.now).expect("a route");
    world.run_for(Nanos::from_secs(1));
    let refused = |world: &World| world.nodes[1].status(world.now).links[1].best_effort_dropped;
    // More packets are refused than best effort may hold of the driver's buffers.
    for round in 0..400 {
        let until = world.now + Nanos(random.between(1, 5) * MILLI);
        world.still = Some((1, until));
        for number in 0..random.between(4, 20) {
            outbox.send(&pattern(2, number, 900), world.now);
        }
        world.nodes[0].handle_ring(flow, world.now);
        world.run_for(Nanos::from_millis(8));
        while inbox.recv(|_, _| ()) {}
        if refused(&world) > 100 && round > 20 {
            break;
        }
    }
    world.run_for(Nanos::from_secs(1));
    while inbox.recv(|_, _| ()) {}
    let nobodys = world.nodes[1].accounts().into_iter().find(|account| account.counted != account.held);
    if let Some(account) = nobodys {
        return Some(format!(
            "{} were refused, and nobody has what is counted: {account:?}",
            refused(&world)
        ));
    }
    if !world.nodes[1].has_best_effort_room(LEFT) {
        return Some(format!("{} were refused, nothing waits, and there is no room", refused(&world)));
    }
    if refused(&world) <= 100 {
        return Some(format!("only {} packets were refused", refused(&world)));
    }
    outbox.send(&pattern(2, 0, 900), world.now);
    world.nodes[0].handle_ring(flow, world.now);
    world.run_for(Nanos::from_millis(100));
    (!inbox.recv(|_, _| ())).then(|| "best effort does not go through any more".into())
}
