//! A host whose admission is decided elsewhere while its channels come and go.

use punctual_proto::api::{Event, OpenRequest, UserId};
use punctual_proto::{BitRate, Contract, Instant, Nanos, Rate};
use punctual_rig::{TestInbox, World, name};

/// A host that stops waits for what is being decided for it: what its last channel has held is given back first.
#[test]
fn a_host_is_not_quiet_before_what_it_held_is_given_back() {
    let mut world = World::line(2, BitRate(40_000_000));
    let given_away = |world: &World| {
        let status = world.nodes[0].status(world.now);
        (status.cpu_utilisation, status.links[0].utilisation)
    };
    world.run_for(Nanos::from_secs(2));
    let before = given_away(&world);
    let rate = Rate::per_second(100).expect("a rate");
    let contract = Contract::new(1_000, rate, 1, Nanos::from_millis(50)).expect("in range");
    let open = world.open(0, 1, contract).expect("it fits");
    world.nodes[0].decide_elsewhere();
    world.nodes[0].close(open.source, world.now).expect("it is open");
    world.run_for(Nanos::from_secs(2));
    assert!(world.nodes[0].channels().is_empty() && world.nodes[1].is_quiet());
    assert!(!world.nodes[0].is_quiet() && given_away(&world) > before);
    let decision = world.nodes[0].poll_decision().expect("what it held");
    assert!(!world.nodes[0].is_quiet(), "it is being decided");
    let decided = decision.decide(|| Instant(0));
    world.nodes[0].handle_decided(decided, world.now);
    assert!(world.nodes[0].is_quiet() && given_away(&world) == before);
}

/// Other threads decide for both hosts: between any two steps each count of what is held is right.
#[test]
fn accounts_balance_at_each_step_of_a_decision() {
    let mut world = World::line(2, BitRate(40_000_000));
    world.run_for(Nanos::from_secs(2));
    world.nodes[1].listen(name("port")).expect("free");
    world.nodes.iter_mut().for_each(|node| node.decide_elsewhere());
    let is_even = |world: &World, step: &str| {
        let accounts = world.nodes.iter().flat_map(|node| node.accounts());
        let wrong: Vec<_> = accounts.filter(|account| account.counted != account.held).collect();
        assert!(wrong.is_empty(), "{step}: {wrong:?}");
    };
    let rate = Rate::per_second(100).expect("a rate");
    let contract = Contract::new(1_000, rate, 1, Nanos::from_millis(50)).expect("in range");
    let to = "port@h2".parse().expect("an address");
    let request = OpenRequest { to, contract, user: UserId(0), probe: false, token: None };
    world.nodes[0].open(request, world.now).expect("the request can be tried");
    let (mut decisions, mut opened) = ([0; 2], false);
    for _ in 0..1_000 {
        is_even(&world, "before a decision");
        for (host, decisions) in decisions.iter_mut().enumerate() {
            let Some(decision) = world.nodes[host].poll_decision() else { continue };
            is_even(&world, "while it is made");
            let decided = decision.decide(|| Instant(0));
            world.nodes[host].handle_decided(decided, world.now);
            is_even(&world, "after it");
            *decisions += 1;
        }
        world.run_for(Nanos::from_millis(1));
        while let Some(event) = world.events[1].pop_front() {
            if let Event::Incoming(incoming) = event {
                let inbox = TestInbox::new(incoming.inbox_messages as usize, 1_000);
                world.nodes[1].consent(incoming.channel, inbox, world.now).expect("it was asked");
            }
        }
        opened |= world.events[0].drain(..).any(|event| matches!(event, Event::Opened { .. }));
    }
    assert!(opened && decisions.iter().all(|decisions| *decisions > 1), "{decisions:?} decisions");
}

/// A host that has a packet to send is due now, before anything else happens.
#[test]
fn a_host_with_a_message_to_send_is_due_at_once() {
    let mut world = World::line(2, BitRate(40_000_000));
    world.run_for(Nanos::from_secs(2));
    let due = |world: &World| world.nodes[0].poll_timeout().is_some_and(|due| due <= world.now);
    assert!(!due(&world));
    let rate = Rate::per_second(100).expect("a rate");
    let contract = Contract::new(1_000, rate, 1, Nanos::from_millis(50)).expect("in range");
    let to = "port@h2".parse().expect("an address");
    let request = OpenRequest { to, contract, user: UserId(0), probe: true, token: None };
    world.nodes[0].open(request, world.now).expect("the request can be tried");
    assert!(due(&world), "its CREATE waits");
    world.settle();
    assert!(!due(&world));
}
