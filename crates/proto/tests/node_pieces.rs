//! Behind the source a message is not one unit of the processor's work even if a quantum would hold all of
//! it: its packets may arrive, and be served, one by one, with more urgent work between them.

use punctual_proto::api::StageKind;
use punctual_proto::config::{Admission, RunPolicy};
use punctual_proto::{BitRate, Contract, Horizon, Nanos, Rate};
use punctual_rig::{World, line_config};

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
