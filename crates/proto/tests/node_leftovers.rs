//! A channel or flow that ends, however suddenly, leaves nothing: no frame, no slot, no message of an
//! application's ring, no reservation. Channels and flows of a line h1 - h2 - h3 end while packets of them
//! wait everywhere.

use punctual_analysis::{Ppb, Statistical};
use punctual_proto::api::{CloseReason, Port};
use punctual_proto::config::{Admission, NodeConfig, Pacing, RunPolicy};
use punctual_proto::ids::LinkId;
use punctual_proto::signalling::SplitMix64;
use punctual_proto::wire::Header;
use punctual_proto::{BitRate, Contract, Nanos, Policing, Rate};
use punctual_rig::{Open, TestInbox, TestOutbox, World, line_config, name, pattern};

const RATE: BitRate = BitRate(20_000_000);
const MS: fn(u64) -> Nanos = Nanos::from_millis;
const FRAMES: usize = 4_096;

fn contract(bytes: u32, policing: Policing) -> Contract {
    let rate = Rate::per_second(100).expect("a rate");
    Contract { policing, ..Contract::new(bytes, rate, 4, MS(60)).expect("in range") }
}

fn accounts_hold(world: &World, when: &str) {
    for node in &world.nodes {
        let wrong: Vec<_> = node.accounts().into_iter().filter(|a| a.counted != a.held).collect();
        assert!(wrong.is_empty(), "{when}: {wrong:?}");
    }
}

/// The reservations of each host: of the processor, of each link, and bytes of buffers.
fn given_away(world: &World) -> Vec<(u32, Vec<u32>, u64, u32)> {
    let of = |node: &punctual_proto::node::Node<punctual_rig::TestMemory>| {
        let status = node.status(world.now);
        let links = status.links.iter().map(|link| link.utilisation.0).collect();
        (status.cpu_utilisation.0, links, status.buffer_bytes, status.channels)
    };
    world.nodes.iter().map(of).collect()
}

fn is_whole(outbox: &TestOutbox, messages: usize) -> bool {
    outbox.free() + outbox.waiting() == messages
}

/// Two channels, one of them demoting, and a flow of best effort; each has more messages than can be sent at
/// once.
struct Traffic {
    channels: Vec<Open>,
    flow: (punctual_proto::ids::ChannelId, TestOutbox),
}

impl Traffic {
    fn new(world: &mut World) -> Self {
        let inbox = TestInbox::new(64, 3_000);
        world.nodes[2].bind_best_effort(name("bulk"), 3_000, inbox).expect("free");
        let outbox = TestOutbox::new(64, 3_000);
        let to = "bulk@h3".parse().expect("an address");
        let flow = world.nodes[0].open_best_effort(to, 3_000, outbox.clone(), world.now).expect("a route");
        let policed = [Policing::Delay, Policing::Demote];
        let open = |policing| world.open(0, 2, contract(4_000, policing)).expect("it fits");
        Self { channels: policed.map(open).into(), flow: (flow, outbox) }
    }

    fn send(&self, world: &mut World, round: u64) {
        for open in &self.channels {
            while open.outbox.send(&pattern(1, round, 4_000), world.now) {}
            world.nodes[0].handle_ring(open.source, world.now);
        }
        while self.flow.1.send(&pattern(2, round, 3_000), world.now) {}
        world.nodes[0].handle_ring(self.flow.0, world.now);
    }
}

/// A random sudden end of a channel or flow.
fn end_suddenly(world: &mut World, traffic: &Traffic, random: &mut SplitMix64) -> &'static str {
    let (host, now) = (random.below(3) as usize, world.now);
    let which = random.below(2) as usize;
    let path = world.nodes[0].channel(traffic.channels[which].source).expect("it is open").path;
    match random.below(4) {
        0 => {
            world.nodes[host].abort_path(path, CloseReason::FilterRefused, now);
            if host == 0 {
                let newest = world.nodes[0].abort_newest(CloseReason::RuntimeRefused, now);
                assert!(newest, "paths of sources are no incoming ones; the newest channel is there");
            }
            "aborted"
        }
        1 => {
            world.nodes[0].abandon(traffic.channels[which].source, now).expect("it is open");
            "its application has vanished"
        }
        2 => {
            world.nodes[0].close(traffic.flow.0, now).expect("it is open");
            "the flow is closed"
        }
        _ => {
            world.tap = Some(Box::new(|_, _, _| false));
            world.run_for(Nanos::from_secs(60));
            world.tap = None;
            "cut off"
        }
    }
}

#[test]
fn what_ends_suddenly_leaves_nothing() {
    for seed in 0..40 {
        let mut random = SplitMix64::new(seed);
        let mut world = World::line(3, RATE);
        world.run_for(Nanos::from_secs(1));
        let before = given_away(&world);
        let traffic = Traffic::new(&mut world);
        assert!(given_away(&world).iter().zip(&before).all(|(now, before)| now.0 > before.0));
        for round in 0..6 + random.below(6) {
            traffic.send(&mut world, round);
            world.run_for(MS(1 + random.below(9)));
            accounts_hold(&world, "while it runs");
        }
        let messages = traffic.channels[0].grant.outbox_messages as usize;
        let how = end_suddenly(&mut world, &traffic, &mut random);
        accounts_hold(&world, how);
        for open in &traffic.channels {
            let _ = world.nodes[0].close(open.source, world.now);
        }
        let _ = world.nodes[0].close(traffic.flow.0, world.now);
        world.run_for(MS(1));
        accounts_hold(&world, how);
        for _ in 0..400 {
            for open in &traffic.channels {
                while open.inbox.recv(|_, _| ()) {}
            }
            world.run_for(MS(10));
        }
        accounts_hold(&world, how);
        assert_eq!(world.pool.free(), FRAMES, "seed {seed}, {how}: frames are missing");
        assert_eq!(given_away(&world), before, "seed {seed}, {how}");
        let whole = traffic.channels.iter().all(|open| is_whole(&open.outbox, messages));
        assert!(whole && is_whole(&traffic.flow.1, 64), "seed {seed}, {how}: messages of a ring are missing");
    }
}

/// The same probe of the same host, before and after many channels and flows of which nothing may be left.
#[test]
fn what_came_and_went_changes_no_later_answer() {
    let policies = [
        (RunPolicy::Edf, Admission::EDF),
        (RunPolicy::Edf, Admission::D_ORDER),
        (RunPolicy::FixedPriority, Admission::FIXED_PRIORITY),
        (RunPolicy::Edf, Admission::STATISTICAL),
    ];
    for (run, admission) in policies {
        let set = |config: &mut NodeConfig| {
            (config.cpu.run, config.cpu.admission) = (run, admission);
            let on_link = if admission == Admission::FIXED_PRIORITY { Admission::EDF } else { admission };
            config.links.iter_mut().for_each(|link| link.admission = on_link);
        };
        let mut configs: Vec<_> = (0..3).map(|index| line_config(index, 3, RATE)).collect();
        configs.iter_mut().for_each(set);
        let mut world = World::of(configs);
        let mut random = SplitMix64::new(7);
        let draw = |random: &mut SplitMix64| {
            let rate = Rate::every(Nanos(5_000_000 + random.below(50_000_000))).expect("a rate");
            let deadline = Nanos(20_000_000 + random.below(60_000_000));
            Contract::new(100 + random.below(5_000) as u32, rate, 1, deadline).expect("in range")
        };
        let wanted = contract(4_000, Policing::Delay);
        let first = world.open(0, 2, wanted).expect("it fits");
        world.nodes[0].close(first.source, world.now).expect("it is open");
        world.run_for(Nanos::from_secs(2));
        let mut open = Vec::new();
        for _ in 0..60 {
            open.extend(world.open(0, 2, draw(&mut random)));
            if random.below(3) == 0 && !open.is_empty() {
                let gone: Open = open.swap_remove(random.below(open.len() as u64) as usize);
                world.nodes[0].close(gone.source, world.now).expect("it is open");
            }
        }
        assert!(open.len() > 3, "{admission:?}: {} are open", open.len());
        for gone in open {
            world.nodes[0].close(gone.source, world.now).expect("it is open");
        }
        world.run_for(Nanos::from_secs(2));
        let again = world.open(0, 2, wanted).expect("it fits as before");
        let bounds = |open: &Open| {
            let stages = open.grant.stages.iter();
            stages
                .map(|stage| (stage.offered, stage.bound, stage.made_of, stage.utilisation))
                .collect::<Vec<_>>()
        };
        assert_eq!(bounds(&again), bounds(&first), "{admission:?}");
        assert_eq!(again.grant.bound_possible, first.grant.bound_possible, "{admission:?}");
    }
}

/// An adapter is stopped for a while: each packet that the previous host has sent is somewhere, or counted as
/// dropped for lack of room, and when the adapter sends again all is as before.
#[test]
fn a_stopped_adapter_costs_what_is_counted() {
    let hard = contract(4_000, Policing::Delay);
    let mean_rate = Rate::every(MS(12)).expect("a rate");
    let miss_ratio = Ppb::new(10_000_000).expect("a ratio");
    let soft = Statistical { mean_rate, mean_over: Nanos::from_secs(1), miss_ratio };
    stop_adapter(hard);
    stop_adapter(Contract { statistical: Some(soft), deadline: MS(100), ..hard });
}

fn stop_adapter(contract: Contract) {
    let mut configs: Vec<_> = (0..3).map(|index| line_config(index, 3, RATE)).collect();
    for config in &mut configs {
        config.cpu.admission = Admission::STATISTICAL;
        config.links.iter_mut().for_each(|link| link.admission = Admission::STATISTICAL);
    }
    configs[1].links[1].pace = Pacing::Completion;
    let mut world = World::of(configs);
    const RIGHT: LinkId = LinkId(1);
    let complete = |world: &mut World| {
        let now = world.now;
        world.nodes[1].handle_sent(RIGHT, 100_000, now);
        world.settle();
    };
    // It is established while the adapter works: each millisecond it has sent all.
    world.nodes[2].listen(name("port")).expect("free");
    let open = open_beside(&mut world, contract, complete);
    let sent = std::rc::Rc::new(std::cell::Cell::new(0_u64));
    let seen = sent.clone();
    world.tap = Some(Box::new(move |node, port, bytes| {
        let is_data = node == 0 && port == Port::Data && Header::parse(bytes).is_ok();
        seen.set(seen.get() + u64::from(is_data));
        true
    }));
    for round in 0..100 {
        open.1.send(&pattern(1, round, 4_000), world.now);
        world.nodes[0].handle_ring(open.0, world.now);
        world.run_for(MS(10));
    }
    // What is on the wire arrives.
    world.run_for(MS(5));
    let status = world.nodes[1].status(world.now);
    let here = world.nodes[1].channels()[0].counters;
    assert_eq!(here.packets_in, sent.get());
    assert_eq!(here.overflows, status.drops.no_slot + status.drops.no_buffer);
    assert!(here.overflows > 0, "{here:?}");
    let held = world.nodes[1].frames_held(LinkId(0));
    assert_eq!(here.packets_in, here.packets_out + here.overflows + held, "{here:?}");
    accounts_hold(&world, "while it stands still");
    for _ in 0..200 {
        complete(&mut world);
        world.run_for(MS(1));
    }
    assert_eq!(world.nodes[1].frames_held(LinkId(0)), 0);
    let here = world.nodes[1].channels()[0].counters;
    assert_eq!(here.packets_in, here.packets_out + here.overflows, "{here:?}");
    accounts_hold(&world, "when it sends again");
}

/// A channel from h1 to h3 while other traffic keeps the adapter busy.
fn open_beside(
    world: &mut World,
    contract: Contract,
    mut beside: impl FnMut(&mut World),
) -> (punctual_proto::ids::ChannelId, TestOutbox) {
    use punctual_proto::api::{Event, OpenRequest, UserId};
    let to = "port@h3".parse().expect("an address");
    let request = OpenRequest { to, contract, user: UserId(0), probe: false, token: None };
    let channel = world.nodes[0].open(request, world.now).expect("the request can be tried");
    for _ in 0..1_000 {
        world.run_for(MS(1));
        beside(world);
        while let Some(event) = world.events[2].pop_front() {
            if let Event::Incoming(incoming) = event {
                let inbox = TestInbox::new(200, contract.message_bytes_max as usize);
                world.nodes[2].consent(incoming.channel, inbox, world.now).expect("it was asked");
            }
        }
        while let Some(event) = world.events[0].pop_front() {
            if let Event::Opened { grant, .. } = event {
                let bytes = contract.message_bytes_max as usize;
                let outbox = TestOutbox::new(grant.outbox_messages as usize, bytes);
                world.nodes[0].attach_outbox(channel, outbox.clone(), world.now).expect("it is open");
                return (channel, outbox);
            }
        }
    }
    panic!("no answer within a second");
}
