//! The resources that a closed channel holds on its route: no more, and for no longer, than its remaining
//! packets need; and never longer than its source counts it to its user.

use punctual_proto::api::{CloseReason, Event, Port, Receipt};
use punctual_proto::ids::ChannelId;
use punctual_proto::signalling::SplitMix64;
use punctual_proto::wire::Header;
use punctual_proto::{BitRate, Contract, Delivery, Horizon, Nanos, Policing, Rate};
use punctual_rig::{Open, World, line_config, pattern};

const RATE: BitRate = BitRate(40_000_000);
const HOUR: Nanos = Nanos::from_secs(3_600);
/// Time of the end once no packet is under way any more: some turns of signalling on each link.
const END: Nanos = Nanos::from_millis(400);

/// How the channel ended at its source.
fn ended(world: &World, channel: ChannelId) -> Option<(CloseReason, Option<Receipt>)> {
    world.events[0].iter().find_map(|event| match event {
        Event::Closed { channel: closed, reason, receipt } if *closed == channel => Some((*reason, *receipt)),
        _ => None,
    })
}

/// Channels that hold anything at a host.
fn held(world: &World, host: usize) -> usize {
    world.nodes[host].status(world.now).channels as usize
}

fn accounts_hold(world: &World) {
    for node in &world.nodes {
        let wrong: Vec<_> = node.accounts().into_iter().filter(|a| a.counted != a.held).collect();
        assert!(wrong.is_empty(), "{wrong:?}");
    }
}

/// Large messages that may be under way for an hour.
fn great(random: &mut SplitMix64) -> Contract {
    let rate = Rate::every(Nanos::from_secs(400 + random.below(600))).expect("a rate");
    let contract = Contract::new(20_000 + random.below(40_000) as u32, rate, 1, HOUR).expect("in range");
    let horizon = if random.below(3) == 0 { Horizon::Regulated } else { Horizon::Cumulative };
    let delivery = if random.below(3) == 0 { Delivery::AtDeadline } else { Delivery::Asap };
    Contract { horizon, delivery, ..contract }
}

fn send(world: &mut World, open: &Open, contract: &Contract, count: u64) {
    for number in 0..count {
        open.outbox.send(&pattern(1, number, contract.message_bytes_max as usize), world.now);
    }
    world.nodes[0].handle_ring(open.source, world.now);
}

/// One user opens and closes channels of D = 1 h without end, with a program of its own at either end that
/// closes, or terminates, at the worst time. Whatever it does, no host of the route holds a channel that its
/// source does not count to it; and with its allowed number it leaves room for others.
#[test]
fn opening_and_closing_without_end_holds_no_more_than_the_quota() {
    const QUOTA: usize = 6;
    const ROOM: u64 = 16 << 20;
    let (mut cycles, mut most) = (0, 0);
    for seed in 0..2 {
        let mut random = SplitMix64::new(seed);
        let config = |index| {
            let mut config = line_config(index, 3, RATE);
            if index == 1 {
                config.buffer_bytes_max = ROOM;
            }
            config
        };
        let mut world = World::of((0..3).map(config).collect());
        let mut counted: Vec<ChannelId> = Vec::new();
        for _ in 0..60 {
            counted.retain(|channel| ended(&world, *channel).is_none());
            if counted.len() >= QUOTA {
                world.run_for(Nanos::from_secs(300));
                continue;
            }
            let contract = great(&mut random);
            let Ok(open) = world.open(0, 2, contract) else { continue };
            cycles += 1;
            counted.push(open.source);
            send(&mut world, &open, &contract, random.below(3));
            world.run_for(Nanos::from_millis(random.below(60)));
            world.nodes[0].close(open.source, world.now).expect("it is open");
            for _ in 0..random.below(40) {
                world.run_for(Nanos::from_millis(random.below(10)));
                counted.retain(|channel| ended(&world, *channel).is_none());
                let at_hosts = [1, 2].map(|host| held(&world, host));
                assert!(at_hosts.iter().all(|held| *held <= counted.len()), "seed {seed}: {at_hosts:?}");
            }
            if random.below(3) > 0 {
                // It may have ended meanwhile.
                let _ = world.nodes[2].abandon(open.sink, world.now);
            }
            most = most.max(held(&world, 1));
        }
        accounts_hold(&world);
        let other = Contract::new(60_000, Rate::per_second(1).expect("a rate"), 1, Nanos::from_secs(2));
        let other = world.open(0, 2, other.expect("in range"));
        assert!(other.is_ok(), "seed {seed}: {:?}", other.err());
    }
    assert!(cycles > 15 && most > 0, "{cycles} cycles, at most {most} at once");
}

/// A channel that has sent nothing, or whose packets have all arrived, is removed everywhere as soon as the
/// hosts are notified, whatever its D.
#[test]
fn nothing_is_kept_for_what_will_not_come() {
    let rate = Rate::every(Nanos::from_secs(600)).expect("a rate");
    for (hosts, count) in [(2, 0), (3, 0), (5, 0), (2, 1), (3, 1), (5, 1)] {
        let mut world = World::line(hosts, RATE);
        let contract = Contract::new(50_000, rate, 3, HOUR).expect("in range");
        let open = world.open(0, hosts - 1, contract).expect("room for one");
        send(&mut world, &open, &contract, count);
        world.run_for(Nanos::from_secs(10));
        world.nodes[0].close(open.source, world.now).expect("it is open");
        world.run_for(END);
        let (reason, receipt) = ended(&world, open.source).expect("told");
        assert_eq!((reason, receipt.map(|receipt| receipt.delivered)), (CloseReason::Local, Some(count)));
        assert!(world.nodes.iter().all(|node| node.is_quiet()), "{hosts} hosts, {count} messages");
    }
}

fn any_contract(random: &mut SplitMix64) -> Contract {
    let interval = Nanos::from_millis(5 + random.below(40));
    let rate = Rate::every(interval).expect("not zero");
    let deadline = Nanos::from_millis(30 + random.below(900));
    let bytes = 100 + random.below(9_000) as u32;
    let contract = Contract::new(bytes, rate, 1 + random.below(6) as u32, deadline).expect("in range");
    let horizon = if random.below(3) == 0 { Horizon::Regulated } else { Horizon::Cumulative };
    let delivery = if random.below(3) == 0 { Delivery::AtDeadline } else { Delivery::Asap };
    let policing = if random.below(4) == 0 { Policing::Demote } else { Policing::Delay };
    Contract { horizon, delivery, policing, ..contract }
}

/// Messages that were accepted before a close are delivered in time, however many are still under way, and
/// the end is reported soon after the last of them.
#[test]
fn what_was_accepted_before_a_close_arrives_in_time() {
    let mut under_way = 0;
    for seed in 0..150 {
        let mut random = SplitMix64::new(seed);
        let hosts = 2 + random.below(4) as usize;
        let mut world = World::line(hosts, RATE);
        let contract = any_contract(&mut random);
        let Ok(open) = world.open(0, hosts - 1, contract) else { continue };
        let count = 1 + random.below(u64::from(contract.burst_messages_max) + 3);
        let mut sent = 0;
        for number in 0..count {
            sent += u64::from(
                open.outbox.send(&pattern(1, number, contract.message_bytes_max as usize), world.now),
            );
        }
        world.nodes[0].handle_ring(open.source, world.now);
        world.run_for(Nanos(random.below(contract.deadline.0)));
        let mut received = 0;
        while open.inbox.recv(|_, _| received += 1) {}
        under_way += u64::from(received < sent);
        world.nodes[0].close(open.source, world.now).expect("it is open");
        let most = contract.interval() * sent + contract.deadline + END;
        let (begun, mut last) = (world.now, world.now);
        while ended(&world, open.source).is_none() && world.now.since(begun) < most {
            world.run_for(Nanos::from_millis(1));
            while open.inbox.recv(|_, _| last = world.now) {}
        }
        let (reason, receipt) = ended(&world, open.source).expect("told in time");
        let Receipt { delivered, late, .. } = receipt.expect("the sink's word");
        assert_eq!(
            (reason, delivered, late),
            (CloseReason::Local, sent, 0),
            "seed {seed}: {contract:?} {receipt:?}"
        );
        let waited = world.now.since(last);
        assert!(waited <= END, "seed {seed}: {waited} after the last message");
        world.run_for(END);
        assert!(world.nodes.iter().all(|node| node.is_quiet()), "seed {seed}");
        accounts_hold(&world);
    }
    assert!(under_way > 60, "{under_way} had something under way");
}

/// A packet that is lost, or duplicated, on any link: D is the limit at the hosts behind it, and all other
/// packets of the channel arrive.
#[test]
fn where_a_packet_is_lost_or_comes_twice_the_time_is_the_limit() {
    for seed in 0..60 {
        let mut random = SplitMix64::new(seed);
        let hosts = 2 + random.below(3) as usize;
        let mut world = World::line(hosts, RATE);
        let deadline = Nanos::from_secs(5);
        let contract = Contract::new(3_000, Rate::per_second(20).expect("a rate"), 4, deadline);
        let contract = contract.expect("in range");
        let open = world.open(0, hosts - 1, contract).expect("room for one");
        let (link, victim, doubles) =
            (random.below(hosts as u64 - 1) as usize, random.below(9), random.below(2) == 0);
        let twice = std::rc::Rc::new(std::cell::RefCell::new(None));
        let (copy, mut seen) = (twice.clone(), 0);
        world.tap = Some(Box::new(move |from, port, bytes| {
            let is_data = from == link && port == Port::Data && Header::parse(bytes).is_ok();
            seen += u64::from(is_data);
            let is_it = is_data && seen == victim + 1;
            if is_it && doubles {
                *copy.borrow_mut() = Some(bytes.clone());
            }
            !is_it || doubles
        }));
        send(&mut world, &open, &contract, 4);
        world.nodes[0].close(open.source, world.now).expect("it is open");
        let closed = world.now;
        while ended(&world, open.source).is_none() && world.now.since(closed) < deadline * 2 {
            world.run_for(Nanos::from_millis(1));
            if let Some(bytes) = twice.borrow_mut().take() {
                world.inject(link + 1, punctual_proto::ids::LinkId(0), Port::Data, &bytes);
            }
        }
        let receipt = ended(&world, open.source).expect("told in time").1.expect("the sink's word");
        let took = world.now.since(closed);
        assert_eq!(receipt.delivered, if doubles { 4 } else { 3 }, "seed {seed}");
        assert!(took < deadline + Nanos::from_secs(1), "seed {seed}: {took}");
        assert!(took >= deadline, "seed {seed}: {took}, though a packet was lost or came twice");
        world.run_for(END);
        assert!(world.nodes.iter().all(|node| node.is_quiet()), "seed {seed}");
    }
}

/// The end overtakes the packets that wait for a slow link behind it. The last of them releases the channel there, with no
/// message of the receiver.
#[test]
fn a_host_between_releases_a_channel_with_its_last_packet() {
    let config = |index| {
        let mut config = line_config(index, 3, RATE);
        if index == 1 {
            config.links[1].rate = BitRate(2_000_000);
        }
        config
    };
    let mut world = World::of((0..3).map(config).collect());
    let rate = Rate::every(Nanos::from_secs(600)).expect("a rate");
    let contract = Contract::new(20_000, rate, 1, HOUR).expect("in range");
    let open = world.open(0, 2, contract).expect("room for one");
    let held = |world: &World| world.nodes[1].status(world.now).buffer_bytes > 0;
    send(&mut world, &open, &contract, 1);
    // No packet of the receiver's host arrives from now on.
    world.tap = Some(Box::new(|node, _, _| node != 2));
    world.nodes[0].close(open.source, world.now).expect("it is open");
    world.run_for(Nanos::from_millis(50));
    assert!(held(&world) && open.inbox.waiting() == 0, "packets wait");
    world.run_for(Nanos::from_millis(100));
    assert_eq!((open.inbox.waiting(), held(&world)), (1, false));
}
