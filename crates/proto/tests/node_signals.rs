//! Signalling at its limits: what comes faster than its rate waits for all other work, and then the links
//! have turns of one packet each; and no more than two packets are with an adapter that does not send.

use punctual_proto::api::{Port, WorkKind};
use punctual_proto::config::{Admission, Pacing, RunPolicy};
use punctual_proto::ids::LinkId;
use punctual_proto::limits::HELLO_INTERVAL_DEFAULT;
use punctual_proto::node::Node;
use punctual_proto::{BitRate, Nanos};
use punctual_rig::{START, TestMemory, World, line_config};

/// A flood from one neighbour delays that of another by one packet at a time, and the neighbour whose first
/// packet came first has the first turn, whatever came since.
#[test]
fn links_take_turns_of_one_packet_in_a_flood() {
    const PACKETS: u64 = 6;
    for (run, admission) in [(RunPolicy::Edf, Admission::EDF), (RunPolicy::Rmdp, Admission::RMDP)] {
        let mut configs: Vec<_> = (0..3).map(|host| line_config(host, 3, BitRate(40_000_000))).collect();
        (configs[1].cpu.run, configs[1].cpu.admission) = (run, admission);
        let mut world = World::of(configs);
        world.run_for(Nanos::from_secs(1));
        let begin = world.now;
        let now = begin + Nanos(PACKETS);
        // Packets are told apart by their lengths. The last one comes from the left, like the first.
        for n in 0..PACKETS {
            let [left, right] = [(LinkId(0), 100 + n), (LinkId(1), 200 + n)];
            for (link, bytes) in if n % 2 == 0 { [left, right] } else { [right, left] } {
                let frame = world.pool.frame(&vec![7; bytes as usize]);
                world.nodes[1].handle_frame(link, Port::Signalling, begin + Nanos(n), frame, now);
            }
        }
        let mut turns = Vec::new();
        while let Some(work) = world.nodes[1].begin_work(now) {
            assert_eq!((work.kind, work.packets), (WorkKind::Signalling, 1));
            turns.push(u64::from(work.bytes));
            world.nodes[1].finish_work(work, now);
        }
        let in_turn: Vec<_> = (0..PACKETS).flat_map(|n| [100 + n, 200 + n]).collect();
        assert_eq!(turns, in_turn, "{run:?}");
    }
}

/// An adapter takes a packet of signalling while it has the one before, and no third one. The node wants to
/// go on at once while it has one to hand over, and at no other time: it would be asked in vain.
#[test]
fn an_adapter_that_does_not_send_has_two_packets_of_signalling() {
    const LINK: LinkId = LinkId(0);
    let mut config = line_config(0, 2, BitRate(40_000_000));
    config.links[0].pace = Pacing::Completion;
    let mut node = Node::<TestMemory>::new(config, 1, START).expect("a configuration");
    let (mut now, mut out, mut with_adapter) = (START, [0; 2_048], Vec::new());
    for step in 0..8 {
        // HELLOs never end.
        now = now + HELLO_INTERVAL_DEFAULT;
        node.handle_timeout(now);
        let may = with_adapter.len() < 2;
        let wants = node.poll_timeout().is_some_and(|due| due <= now);
        assert_eq!(wants, may, "{} are with the adapter", with_adapter.len());
        let sent = node.poll_transmit(LINK, now, &mut out);
        assert_eq!(sent.as_ref().map(|sent| sent.port), may.then_some(Port::Signalling));
        with_adapter.extend(sent.map(|sent| sent.wire_bytes));
        if step > 4 {
            let wire_bytes = with_adapter.remove(0);
            node.handle_sent(LINK, wire_bytes, now);
        }
    }
}
