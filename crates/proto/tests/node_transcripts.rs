//! Whole runs of small worlds, recorded: every unit of work, every packet with its fields, every event for an
//! application, and the status of hosts at the end (docs/adr/0049). Each is about messages and links. For an
//! intended change, run with `PUNCTUAL_PIN=1` and review the difference.

mod common;

use common::rate::TRIED;
use common::script::Script;
use common::story::{Kept, MS, contract, script};
use punctual_analysis::Horizon;
use punctual_proto::api::Port;
use punctual_proto::config::{Interference, Pacing};
use punctual_proto::ids::LinkId;
use punctual_proto::{BitRate, Contract, Delivery, Nanos, Policing, Ppm};
use punctual_rig::{Slow, TestInbox, TestOutbox, World, name};

/// Messages of several packets and of one, a burst, an early one, an empty one, one that is too long; then the end.
#[test]
fn a_channel_from_its_opening_to_its_end() {
    let mut s = script(3, |_, _| {});
    let channel = s.open(0, 2, contract(4_000, 100, 3, 30));
    for bytes in [&[4_000, 1_401, 1_400][..], &[1], &[0], &[4_001, 2_800], &[4_000; 5]] {
        s.send(channel, bytes);
        s.run(7);
    }
    s.run(60);
    s.status();
    let (source, now) = (s.source(channel), s.world.now);
    s.send(channel, &[2_000, 3_000]);
    s.world.nodes[0].close(source, now).expect("it is open");
    s.run(100);
    s.status();
    s.is_as_written("channel");
}

/// A message with delivery at its deadline waits at the sink; one of a regulated channel, at each host.
#[test]
fn messages_that_wait_for_their_time() {
    let mut s = script(3, |_, _| {});
    let at_deadline = Contract { delivery: Delivery::AtDeadline, ..contract(2_000, 100, 2, 25) };
    let regulated = Contract { horizon: Horizon::Regulated, ..contract(1_000, 200, 1, 25) };
    let channels = [s.open(0, 2, at_deadline), s.open(0, 2, regulated), s.open(2, 0, at_deadline)];
    for _ in 0..3 {
        channels.iter().for_each(|channel| s.send(*channel, &[900, 1_000]));
        s.run(12);
    }
    s.run(40);
    s.status();
    s.is_as_written("waiting");
}

/// Six messages at once where two are promised: they wait, go, or go as best effort.
#[test]
fn senders_beyond_their_contracts() {
    let mut s = script(2, |_, _| {});
    let policing = [Policing::Delay, Policing::Drop, Policing::Demote];
    let channels = policing.map(|policing| s.open(0, 1, Contract { policing, ..contract(1_500, 50, 2, 30) }));
    for _ in 0..2 {
        channels.iter().for_each(|channel| s.send(*channel, &[1_500, 800, 1_500, 800, 1_500, 800]));
        s.run(30);
    }
    s.run(100);
    // More than is taken out of a ring at once.
    channels.iter().for_each(|channel| s.send(*channel, &[1_500; 40]));
    s.run(400);
    s.status();
    s.is_as_written("policing");
}

/// Of the data packets of h1 every fifth is lost, every seventh is duplicated, one is delayed by 20 ms; then
/// one with another channel's cookie and garbage.
#[test]
fn packets_that_are_lost_repeated_late_or_forged() {
    let mut s = script(3, |_, _| {});
    let channel = s.open(0, 2, contract(3_000, 100, 2, 30));
    let kept: Kept<Vec<u8>> = Kept::default();
    let (copies, mut number) = (kept.clone(), 0);
    s.world.tap = Some(Box::new(move |node, port, bytes| {
        if node != 0 || port != Port::Data {
            return true;
        }
        number += 1;
        if number % 7 == 0 || number == 11 {
            copies.borrow_mut().push(bytes.clone());
        }
        number % 5 != 0 && number != 11
    }));
    for round in 0..12 {
        s.send(channel, &[3_000, 1_000]);
        s.run(20);
        for mut bytes in kept.borrow_mut().drain(..) {
            s.world.inject(1, LinkId(0), Port::Data, &bytes);
            if round % 2 == 0 {
                bytes[20] ^= 1;
                s.world.inject(1, LinkId(0), Port::Data, &bytes);
                s.world.inject(1, LinkId(1), Port::Data, &bytes);
                s.world.inject(1, LinkId(0), Port::Data, &bytes[..40]);
                bytes[0] ^= 1;
                s.world.inject(1, LinkId(0), Port::Data, &bytes);
            }
        }
        s.flush();
    }
    s.world.tap = None;
    s.run(50);
    s.status();
    s.is_as_written("accidents");
}

/// Flows with and without a receiver, beyond their caps, and larger than what is bound.
#[test]
fn best_effort_beside_a_channel() {
    let mut s = script(3, |_, config| {
        for link in &mut config.links {
            (link.best_effort_flow_cap, link.best_effort_cap) = (Ppm(300_000), Ppm(400_000));
            link.best_effort_flow_bytes_max = 20_000;
        }
        config.cpu.best_effort_cpu_cap = Ppm(300_000);
        config.cpu.best_effort_flow_cpu_cap = Ppm(200_000);
    });
    let channel = s.open(0, 2, contract(1_000, 100, 1, 20));
    let inbox = TestInbox::new(16, 3_000);
    s.world.nodes[2].bind_best_effort(name("bulk"), 3_000, inbox.clone()).expect("free");
    let again = s.world.nodes[2].bind_best_effort(name("bulk"), 10, inbox.clone());
    s.write_line(&format!("{again:?}"));
    let mut flows = Vec::new();
    for to in ["bulk@h3", "bulk@h3", "nobody@h3", "nobody@h9"] {
        let outbox = TestOutbox::new(64, 3_000);
        let now = s.world.now;
        let flow =
            s.world.nodes[0].open_best_effort(to.parse().expect("an address"), 3_000, outbox.clone(), now);
        s.write_line(&format!("{to}: {flow:?}"));
        flows.extend(flow.ok().map(|flow| (flow, outbox)));
    }
    for _ in 0..4 {
        s.send(channel, &[1_000]);
        for (flow, outbox) in &flows {
            [3_000, 100, 1_400, 3_001]
                .into_iter()
                .for_each(|bytes| outbox.push_beyond_room(&vec![7; bytes], 3, s.world.now));
            let now = s.world.now;
            s.world.nodes[0].handle_ring(*flow, now);
        }
        s.run(8);
        while inbox.recv(|bytes, info| {
            let line = format!("  bulk reads {} B, {}", bytes.len(), punctual_rig::trimmed(&info));
            s.text += &(line + "\n");
        }) {}
    }
    s.status();
    // All packets that h1 has sent arrive once more, at once.
    let kept: Kept<Vec<u8>> = Kept::default();
    let copies = kept.clone();
    s.world.tap = Some(Box::new(move |node, port, bytes| {
        if node == 1 && port == Port::Data {
            copies.borrow_mut().push(bytes.clone());
        }
        true
    }));
    s.run(20);
    s.world.tap = None;
    let packets: Vec<Vec<u8>> = kept.borrow().iter().cycle().take(900).cloned().collect();
    for bytes in packets {
        let (frame, now) = (s.world.pool.frame(&bytes), s.world.now);
        s.world.nodes[2].handle_frame(LinkId(0), Port::Data, now, frame, now);
        let room = s.world.nodes[2].has_best_effort_room(LinkId(0));
        s.text += if room { "." } else { "-" };
    }
    s.write_line("");
    s.status();
    s.run(2);
    s.status();
    let now = s.world.now;
    flows.iter().for_each(|(flow, _)| s.world.nodes[0].close(*flow, now).expect("it is open"));
    s.run(20);
    s.status();
    s.is_as_written("best_effort");
}

/// For two seconds all packets of h1 arrive 30 ms late: the stage breaks its promise, both ends are notified,
/// and it heals.
#[test]
fn a_link_that_breaks_its_promise() {
    let mut s = script(3, |_, _| {});
    let channel = s.open(0, 2, contract(300, 100, 1, 40));
    let kept: Kept<(Port, Vec<u8>)> = Kept::default();
    let copies = kept.clone();
    s.world.tap = Some(Box::new(move |node, port, bytes| {
        if node == 0 {
            copies.borrow_mut().push((port, bytes.clone()));
        }
        node != 0
    }));
    let mut waiting = std::collections::VecDeque::new();
    for round in 0..1_200 {
        if round == 200 {
            s.world.tap = None;
        }
        s.send(channel, &[300]);
        s.run(10);
        let at = s.world.now + MS(30);
        waiting.extend(kept.borrow_mut().drain(..).map(|(port, bytes)| (at, port, bytes)));
        while waiting.front().is_some_and(|(at, ..)| *at <= s.world.now) {
            let (_, port, bytes) = waiting.pop_front().expect("it is there");
            s.world.inject(1, LinkId(0), port, &bytes);
        }
        if round >= 10 {
            // The content of packets is in the other transcripts.
            let words = s
                .text
                .lines()
                .filter(|line| !line.contains(" B") && !line.contains("Work {") && !line.contains("reads"));
            s.text = words.map(|line| format!("{line}\n")).collect();
        }
        if round == 150 {
            s.status();
            let _ = s.ask(0, "in@h3", contract(100, 10, 1, 50), true);
        }
    }
    s.status();
    s.is_as_written("broken");
}

/// A rate is measured over a wire of 20 Mbit/s while it is unused, and refused while it is used.
#[test]
fn a_rate_that_is_measured() {
    let mut s = Script::new(World::line(2, TRIED));
    s.world.slow = Some(Slow::new(0, BitRate(20_000_000)));
    s.world.run_for(Nanos::from_secs(3));
    for _ in 0..2 {
        let now = s.world.now;
        let asked = [(); 2].map(|()| s.world.nodes[0].measure_rate(LinkId(0), now));
        s.write_line(&format!("{asked:?}"));
        for _ in 0..100 {
            s.world.run_for(MS(30));
            let lines = s.world.tape.replace(Vec::new()).expect("somebody writes");
            let filler = lines.iter().filter(|line| line.contains("BestEffort")).count();
            if filler > 0 {
                let at = s.world.now.0;
                s.write_line(&format!("{at} {filler} lines of filler"));
            }
            s.flush();
        }
        s.world.tape = Some(Vec::new());
        s.status();
        s.open(0, 1, contract(100, 10, 1, 50));
    }
    s.is_as_written("rate");
}

/// The kernel's share of a link grows while it is free, and shrinks before a tight channel is granted.
#[test]
fn a_share_that_follows() {
    let mut s = script(2, |_, config| {
        config.links[0].interference = Interference { sigma: Nanos::from_micros(500), rho: Ppm(100_000) };
        config.links[0].kernel_share_max = Ppm(950_000);
    });
    s.run(1_200);
    s.status();
    let tight = s.open(0, 1, contract(1_000, 200, 1, 8));
    s.run(200);
    let loose = s.open(0, 1, contract(5_000, 100, 1, 60));
    s.run(200);
    for _ in 0..3 {
        s.send(tight, &[1_000]);
        s.send(loose, &[5_000]);
        s.run(20);
    }
    s.status();
    let (source, now) = (s.source(tight), s.world.now);
    s.world.nodes[0].close(source, now).expect("it is open");
    s.run(3_000);
    s.status();
    s.is_as_written("share");
}

/// Links whose adapters report what has left, one packet a millisecond, with windows of one packet and of
/// three.
#[test]
fn links_that_are_paced_by_completions() {
    let mut s = script(3, |index, config| {
        for link in &mut config.links {
            (link.pace, link.pipeline_depth) = (Pacing::Completion, if index == 1 { 1 } else { 3 });
            link.rate = BitRate(12_000_000);
        }
    });
    s.completions = Some(vec![vec![0], vec![0, 0], vec![0]]);
    s.run(50);
    let channels = [s.open(0, 2, contract(3_000, 50, 2, 80)), s.open(0, 2, contract(300, 100, 1, 40))];
    for _ in 0..4 {
        channels.iter().zip([3_000, 300]).for_each(|(channel, bytes)| s.send(*channel, &[bytes, bytes]));
        let now = s.world.now;
        s.world.nodes[0].handle_full(LinkId(0), now);
        s.run(15);
    }
    s.run(30);
    s.status();
    s.is_as_written("completions");
}
