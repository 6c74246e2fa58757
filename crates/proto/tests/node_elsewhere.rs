//! A host whose admission is decided elsewhere while its channels come and go.

use punctual_proto::{BitRate, Contract, Instant, Nanos, Rate};
use punctual_rig::World;

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
