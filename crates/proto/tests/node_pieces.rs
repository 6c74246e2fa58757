//! Behind the source a message is not one unit of the processor's work even if a quantum would hold all of
//! it: its packets may arrive, and be served, one by one, with more urgent work between them.

use punctual_proto::api::StageKind;
use punctual_proto::config::{Admission, RunPolicy};
use punctual_proto::{BitRate, Contract, Horizon, Nanos, Rate};
use punctual_rig::{World, line_config, name, pattern};

const PACKET: Nanos = Nanos::from_micros(300);
/// More than what taking in a message costs beside its packets.
const EDGE: Nanos = Nanos::from_micros(20);
const QUANTUM: u32 = 8;

fn contract(packets: u32, interval: Nanos, deadline: Nanos) -> Contract {
    let rate = Rate::every(interval).expect("a rate");
    let contract = Contract::new(packets * 1_000, rate, 1, deadline).expect("in range");
    Contract { horizon: Horizon::Regulated, ..contract }
}

/// For a message of four packets beside one packet every `interval`: the part of its bound that is others'
/// work, and the part of that which may run before its last packet begins.
fn others_and_between(interval: Nanos) -> (Nanos, Nanos) {
    let configs = (0..2).map(|index| {
        let mut config = line_config(index, 2, BitRate(100_000_000));
        (config.cpu.run, config.cpu.admission) = (RunPolicy::Rmdp, Admission::RMDP);
        config.cpu.quantum_packets = QUANTUM;
        config.cpu.costs.receive_packet = PACKET;
        config.fragment_bytes = 1_000;
        config
    });
    let mut world = World::of(configs.collect());
    let deadline = Nanos::from_millis(100);
    let often = contract(1, interval, deadline);
    world.open(0, 1, often).expect("room for both");
    let open = world.open(0, 1, contract(4, deadline, deadline)).expect("room for both");
    let sink = open.grant.stages.iter().rfind(|stage| stage.kind == StageKind::SinkCpu);
    let sink = sink.expect("the sink's processor");
    // From the time at which it is ready; and a channel that was ready late by r may be in time the next
    // time.
    let until_last = sink.offered - PACKET - EDGE;
    (sink.made_of.others, PACKET * until_last.div_ceil(often.policed_interval()))
}

#[test]
fn what_is_more_urgent_goes_between_the_packets_of_a_message() {
    for step in 0..20 {
        let interval = Nanos::from_micros(700 + step * 50);
        let (others, between) = others_and_between(interval);
        assert!(others >= between, "{others} of others in the bound, {between} may come every {interval}");
    }
}

/// The application's time is charged once for each message, with the unit that hands the message over.
#[test]
fn a_receivers_time_is_charged_with_the_end_of_each_message() {
    let mut world = World::line(2, BitRate(100_000_000));
    let millis = Nanos::from_millis;
    let time = Nanos::from_micros(700);
    let contract = contract(3, millis(20), millis(100));
    world.nodes[1].listen_with(name("port"), time).expect("free");
    let open = world.open(0, 1, contract).expect("it fits");
    world.tape = Some(Vec::new());
    let messages = 4;
    for number in 0..messages {
        assert!(open.outbox.send(&pattern(1, number, contract.message_bytes_max as usize), world.now));
        world.nodes[0].handle_ring(open.source, world.now);
        world.run_for(millis(20));
    }
    world.run_for(millis(100));
    let tape = world.tape.take().expect("a record");
    let charged = format!("application: ({})", time.0);
    let received: Vec<_> =
        tape.iter().filter(|line| line.contains(" h2 ") && line.contains("Receive")).collect();
    let with_time = received.iter().filter(|line| line.contains(&charged)).count() as u64;
    assert_eq!(with_time, messages, "{received:?}");
    assert!(received.len() as u64 > messages, "messages of several units: {received:?}");
    assert!(received.last().is_some_and(|line| line.contains(&charged)), "{received:?}");
}
