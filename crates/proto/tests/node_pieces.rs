//! Where packets come in, a message is not one unit of the processor's work though a quantum would hold all of it: its packets may
//! come, and be served, one by one, and who is more urgent goes between them.

mod common;

use common::{World, line_config};
use punctual_proto::node::api::StageKind;
use punctual_proto::node::config::{Admission, RunPolicy};
use punctual_proto::{BitRate, Contract, Nanos, Rate};

const PACKET: Nanos = Nanos::from_micros(300);
const QUANTUM: u32 = 8;

fn contract(packets: u32, interval: Nanos, deadline: Nanos) -> Contract {
    let rate = Rate::every(interval).expect("a rate");
    let contract = Contract::new(packets * 1_000, rate, 1, deadline).expect("in range");
    Contract { jitter: Some(Nanos::ZERO), ..contract }
}

#[test]
fn what_is_more_urgent_goes_between_the_packets_of_a_message() {
    let configs = (0..2).map(|index| {
        let mut config = line_config(index, 2, BitRate(100_000_000));
        (config.cpu.run, config.cpu.admission) = (RunPolicy::Rmdp, Admission::Rmdp);
        config.cpu.quantum_packets = QUANTUM;
        config.cpu.costs.receive_packet = PACKET;
        config.fragment_bytes = 1_000;
        config
    });
    let mut world = World::of(configs.collect());
    let often = contract(1, Nanos::from_millis(1), Nanos::from_millis(100));
    let seldom = contract(4, Nanos::from_millis(100), Nanos::from_millis(100));
    world.open(0, 1, often).expect("room for both");
    let open = world.open(0, 1, seldom).expect("room for both");
    let sink = open
        .grant
        .stages
        .iter()
        .rfind(|stage| stage.kind == StageKind::SinkCpu)
        .expect("the sink's processor");
    let until_last = sink.offered - sink.made_of.release_latency - PACKET;
    let between = PACKET * until_last.div_ceil(often.policed_interval());
    assert!(sink.made_of.others >= between, "{} of {between}: {sink:?}", sink.made_of.others);
}
