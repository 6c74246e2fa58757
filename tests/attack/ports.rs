//! One byte to each of very many best-effort ports for long messages, at one moment: what the processor keeps of their senders
//! has counted in the ports' quota, and is there before.

use std::time::Duration;

use punctual::{Channel, Endsystem};
use punctual_ipc::api::{Answer, Request};
use punctual_ipc::ring::RingShape;
use punctual_proto::ids::Name;

use crate::attacker::NOBODY;
use crate::common::raw::Raw;
use crate::common::users::as_user;
use crate::judge::{Bounds, ROUNDS_MAX, Round, alone};
use crate::world::{Harm, SINK, SOURCE, Setup, World};

const PORTS: usize = 200;
/// Of the ports, and of those of the control, which need nothing of a sender.
const BYTES: [u32; 2] = [60_000, 8];
/// Times that all are sent to.
const TIMES: usize = 3;
const SPAN: Duration = Duration::from_millis(320);
/// What is kept was there when the ports were bound.
const BOUNDS: Bounds = Bounds { grown_kib_max: 1 << 10, ..Bounds::DEFAULT };

/// As many ports as that, with rings of one message.
fn bind(world: &World, tag: &str, bytes: u32) -> Raw {
    let socket = world.daemons[SINK].socket.clone();
    let raw = as_user(NOBODY, || Raw::greeted(&socket)).expect("it is root's test");
    for number in 0..PORTS {
        let port = Name::new(&format!("{tag}{number}")).expect("a name");
        let ring = RingShape::new(1, bytes).expect("a shape");
        let (answer, _ring) = raw.ask(Request::BindBestEffort { port, ring });
        assert!(matches!(answer, Ok(Answer::Ring { .. })), "{answer:?}");
    }
    raw
}

fn flows(source: &Endsystem, tag: &str) -> Vec<Channel> {
    let flow = |number| source.best_effort(&format!("{tag}{number}@b"), 1).expect("a flow");
    (0..PORTS).map(flow).collect()
}

/// What it does to the channel that is watched when each flow sends one byte.
fn send(world: &mut World, flows: &mut [Channel]) -> Harm {
    let before = world.memory();
    for flow in flows.iter_mut() {
        flow.try_send(&[0]).expect("an empty ring");
    }
    world.observe(SPAN, &before)
}

/// Some times, with new flows each time: each is a new sender.
fn beside(world: &mut World, source: &Endsystem, tag: &str, bytes: u32) -> Harm {
    let _ports = bind(world, tag, bytes);
    let mut harm = Harm::default();
    for _ in 0..TIMES {
        let mut open = flows(source, tag);
        harm.add(send(world, &mut open));
    }
    harm
}

fn round() -> Round {
    let mut world = World::start("bytes-to-ports", Setup::DEFAULT);
    let source = as_user(NOBODY, || world.daemons[SOURCE].connect()).expect("it is root's test");
    let control = beside(&mut world, &source, "small", BYTES[1]);
    let waits = world.heap_waits();
    let attack = beside(&mut world, &source, "long", BYTES[0]);
    let waits = world.heap_waits() - waits;
    drop(source);
    world.end().hold("bytes-to-ports");
    let round = Round { control, attack };
    eprintln!("bytes-to-ports: {round}, {waits} waits for memory");
    assert_eq!(waits, 0, "the processor waits for no memory");
    round
}

/// Found with 250 ports beside 40 hogs: a turn of 641 ms, and 46 of 1,000 messages of another user lost.
#[test]
fn one_byte_to_each_of_very_many_ports_makes_no_processor_wait_for_memory() {
    let _alone = alone();
    assert!((0..ROUNDS_MAX).any(|_| BOUNDS.hold(&round())), "{ROUNDS_MAX} times worse than the control");
}
