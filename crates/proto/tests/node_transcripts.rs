//! Whole runs of small worlds, as they were written down when somebody had read them: every unit of work, every packet with its
//! fields, every word to an application, and what hosts say of themselves in the end. Each tells one story; a number that
//! changes here is one that somebody sees. Whoever means it reads the difference after `PUNCTUAL_PIN=1`.

mod common;

use common::rate::TRIED;
use common::script::Script;
use common::{Slow, TestInbox, TestOutbox, World, line_config, name};
use punctual_analysis::{Activation, Horizon, Ppb, Statistical};
use punctual_proto::api::{CloseReason, Port, UserId, WorkKind};
use punctual_proto::config::{Admission, Interference, NodeConfig, Pacing, RunPolicy};
use punctual_proto::ids::LinkId;
use punctual_proto::signalling::SplitMix64;
use punctual_proto::{BitRate, Contract, Delivery, Instant, Late, Nanos, Policing, Ppm, Rate};

const RATE: BitRate = BitRate(40_000_000);
const MS: fn(u64) -> Nanos = Nanos::from_millis;

fn contract(bytes: u32, per_second: u64, burst: u32, deadline_ms: u64) -> Contract {
    let rate = Rate::per_second(per_second).expect("a rate");
    Contract::new(bytes, rate, burst, MS(deadline_ms)).expect("valid")
}

fn script(hosts: usize, change: impl Fn(usize, &mut NodeConfig)) -> Script {
    let config = |index| {
        let mut config = line_config(index, hosts, RATE);
        change(index, &mut config);
        config
    };
    let mut script = Script::new(World::of((0..hosts).map(config).collect()));
    script.meet();
    script
}

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

/// What is delivered at its deadline waits at the sink; what is regulated, at each host.
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

/// Of the data packets of h1 every fifth is lost, every seventh comes twice, one is held up by 20 ms; then one with another's
/// cookie and garbage.
#[test]
fn packets_that_are_lost_repeated_late_or_forged() {
    let mut s = script(3, |_, _| {});
    let channel = s.open(0, 2, contract(3_000, 100, 2, 30));
    let kept: std::rc::Rc<std::cell::RefCell<Vec<Vec<u8>>>> = std::rc::Rc::default();
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

fn soft(bytes: u32, late: Late) -> Contract {
    let mean_rate = Rate::every(MS(100)).expect("a rate");
    let miss_ratio = Ppb::new(10_000_000).expect("a ratio");
    let statistical = Some(Statistical { mean_rate, mean_over: MS(400), miss_ratio });
    Contract { statistical, late, ..contract(bytes, 50, 1, 60) }
}

/// Soft channels beside a hard one; the forwarder stands still for a while, and what comes too late is dropped, or not.
#[test]
fn soft_channels_and_a_host_that_stands_still() {
    let mut s = script(3, |_, config| {
        config.cpu.admission = Admission::STATISTICAL;
        config.links.iter_mut().for_each(|link| link.admission = Admission::STATISTICAL);
    });
    let channels = [
        s.open(0, 2, soft(2_000, Late::Drop)),
        s.open(0, 2, soft(2_000, Late::Deliver)),
        s.open(0, 2, contract(500, 50, 1, 40)),
    ];
    for round in 0..6 {
        channels.iter().for_each(|channel| s.send(*channel, &[500]));
        if round == 2 {
            s.world.still = Some((1, s.world.now + MS(70)));
        }
        s.run(25);
    }
    s.run(100);
    s.status();
    s.is_as_written("soft");
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
    s.say(&format!("{again:?}"));
    let mut flows = Vec::new();
    for to in ["bulk@h3", "bulk@h3", "nobody@h3", "nobody@h9"] {
        let outbox = TestOutbox::new(64, 3_000);
        let now = s.world.now;
        let flow =
            s.world.nodes[0].open_best_effort(to.parse().expect("an address"), 3_000, outbox.clone(), now);
        s.say(&format!("{to}: {flow:?}"));
        flows.extend(flow.ok().map(|flow| (flow, outbox)));
    }
    for _ in 0..4 {
        s.send(channel, &[1_000]);
        for (flow, outbox) in &flows {
            [3_000, 100, 1_400, 3_001]
                .into_iter()
                .for_each(|bytes| outbox.stuff(&vec![7; bytes], 3, s.world.now));
            let now = s.world.now;
            s.world.nodes[0].handle_outbox(*flow, now);
        }
        s.run(8);
        while inbox.recv(|bytes, info| {
            let line = format!("  bulk reads {} B, {}", bytes.len(), common::written::trimmed(&info));
            s.text += &(line + "\n");
        }) {}
    }
    s.status();
    // All that h1 has sent comes once more, at once.
    let kept: std::rc::Rc<std::cell::RefCell<Vec<Vec<u8>>>> = std::rc::Rc::default();
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
    s.say("");
    s.status();
    s.run(2);
    s.status();
    let now = s.world.now;
    flows.iter().for_each(|(flow, _)| s.world.nodes[0].close(*flow, now).expect("it is open"));
    s.run(20);
    s.status();
    s.is_as_written("best_effort");
}

/// Channels of three sizes until each is refused, over hosts of each policy: what is granted, why not, and what instead.
#[test]
fn grants_and_refusals_of_each_policy() {
    let policies = [
        (RunPolicy::Edf, Admission::EDF, Admission::EDF),
        (RunPolicy::Edf, Admission::D_ORDER, Admission::D_ORDER),
        (RunPolicy::FixedPriority, Admission::FIXED_PRIORITY, Admission::EDF),
        (RunPolicy::Rmdp, Admission::RMDP, Admission::D_ORDER),
        (RunPolicy::Edf, Admission::STATISTICAL, Admission::STATISTICAL),
    ];
    for (run, cpu, link) in policies {
        let mut s = script(2, |_, config| {
            (config.cpu.run, config.cpu.admission) = (run, cpu);
            config.links[0].admission = link;
        });
        let _ = s.world.nodes[1].listen(name("in"));
        let wanted = [contract(9_000, 100, 2, 12), contract(1_000, 400, 1, 8), contract(20_000, 20, 1, 40)];
        for round in 0..4 {
            for wanted in wanted {
                s.ask(0, "in@h2", wanted, round == 3);
                s.run(8);
            }
        }
        s.ask(0, "in@h2", contract(1_000, 10, 1, 1), false);
        s.ask(0, "in@h2", contract(60_000, 400, 1, 100), true);
        s.ask(0, "in@h2", soft(3_000, Late::Deliver), false);
        s.run(30);
        s.world.tape = Some(Vec::new());
        s.status();
        s.is_as_written(&format!("grants_{}_{}", cpu.name, link.name));
    }
}

/// Three hosts whose links have 40, 10 and 40 Mbit/s: what the way refuses and offers, to who asks and to who only wants to know.
#[test]
fn offers_of_a_way() {
    let mut s = script(4, |index, config| {
        config.cpu.quantum_packets = 1 + index as u32;
        let slow = config.links.iter_mut().filter(|link| (index, &*link.name) == (1, "right"));
        slow.for_each(|link| (link.rate, link.propagation_max) = (BitRate(10_000_000), MS(2)));
    });
    let _ = s.world.nodes[3].listen_with(name("in"), Nanos::from_micros(300));
    for round in 0..3 {
        for (number, wanted) in
            [contract(9_000, 40, 2, 10), contract(1_000, 400, 1, 6), contract(30_000, 10, 1, 100)]
                .into_iter()
                .enumerate()
        {
            s.ask(0, "in@h4", wanted, (round + number) % 2 == 0);
            s.run(130);
        }
    }
    s.ask(0, "in@h4", contract(9_000, 120, 1, 200), false);
    s.ask(0, "in@h4", contract(9_000, 120, 1, 200), true);
    s.run(300);
    s.status();
    s.is_as_written("offers");
}

/// Who is not there, does not want, does not answer, asks for itself, goes away, or stops.
#[test]
fn words_about_channels_that_do_not_come_about_or_end() {
    let mut s = script(3, |_, config| config.signalling.consent_timeout = MS(300));
    let wanted = contract(1_000, 100, 1, 30);
    for to in ["nobody@h3", "in@h9", "in@h1"] {
        s.ask(0, to, wanted, false);
        s.run(20);
    }
    let listener = s.world.nodes[2].listen(name("in"));
    let again = s.world.nodes[2].listen(name("in"));
    s.say(&format!("{listener:?} {again:?}"));
    s.consents = false;
    s.ask(0, "in@h3", wanted, false);
    s.run(20);
    s.consents = true;
    let _ = s.world.nodes[0].listen(name("camera"));
    for (port, host) in [("camera", 1), ("nobody", 1), ("camera", 7)] {
        let now = s.world.now;
        let source = format!("{port}@h{host}").parse().expect("an address");
        let token = s.world.nodes[2].request(&source, name("in"), wanted, UserId(3), now);
        s.say(&format!("h3 requests of {source:?}: {token:?}"));
        s.run(30);
    }
    let ends = [s.open(0, 2, wanted), s.open(0, 2, wanted), s.open(2, 0, wanted)];
    s.send(ends[0], &[1_000]);
    s.run(20);
    let now = s.world.now;
    let (sink, source) = (s.sink(1), s.source(ends[1]));
    let first = s.world.nodes[2].close(sink, now);
    let second = s.world.nodes[0].abandon(source, now);
    let third = s.world.nodes[0].abandon(source, now);
    s.say(&format!("{first:?} {second:?} {third:?}"));
    s.run(40);
    s.status();
    let now = s.world.now;
    let gone = s.world.nodes[2].unlisten(listener.expect("it was free"), now);
    s.say(&format!("{gone:?}"));
    s.world.nodes[1].abort_newest(CloseReason::PathLost, now);
    s.run(40);
    let now = s.world.now;
    s.world.nodes[0].shutdown(now);
    s.run(700);
    let quiet = [0, 1, 2].map(|host: usize| s.world.nodes[host].is_quiet());
    s.say(&format!("quiet: {quiet:?}"));
    s.status();
    s.is_as_written("words");
}

/// Hosts whose processors serve by classes and periods, and by levels: low latency, periods, deadlines.
#[test]
fn processors_of_fixed_order() {
    for (run, admission, name) in [
        (RunPolicy::Rmdp, Admission::RMDP, "rmdp"),
        (RunPolicy::FixedPriority, Admission::FIXED_PRIORITY, "levels"),
    ] {
        let mut s = script(2, |_, config| {
            (config.cpu.run, config.cpu.admission) = (run, admission);
            config.cpu.quantum_packets = 2;
        });
        s.world.short_turns = true;
        let low = Activation::LowLatency { interarrival: MS(10), packets: 1 };
        let periodic = Activation::Periodic { period: MS(10), packets: 4 };
        let channels = [
            contract(5_000, 50, 1, 40),
            Contract { activation: low, ..contract(200, 100, 1, 20) },
            Contract { activation: periodic, ..contract(3_000, 50, 1, 60) },
        ]
        .map(|contract| s.open(0, 1, contract));
        for _ in 0..3 {
            channels.iter().zip([5_000, 200, 3_000]).for_each(|(channel, bytes)| s.send(*channel, &[bytes]));
            s.run(21);
        }
        s.run(30);
        s.status();
        s.is_as_written(name);
    }
}

/// For two seconds all that h1 sends comes 30 ms late: the stage breaks its promise, both ends are told, and it heals.
#[test]
fn a_link_that_breaks_its_promise() {
    let mut s = script(3, |_, _| {});
    let channel = s.open(0, 2, contract(300, 100, 1, 40));
    let kept: std::rc::Rc<std::cell::RefCell<Vec<(Port, Vec<u8>)>>> = std::rc::Rc::default();
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
            // What packets say is in the other stories.
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

/// A rate is measured over a wire of 20 Mbit/s, while nobody uses it, and refused while somebody does.
#[test]
fn a_rate_that_is_measured() {
    let mut s = Script::new(World::line(2, TRIED));
    s.world.slow = Some(Slow::new(0, BitRate(20_000_000)));
    s.world.run_for(Nanos::from_secs(3));
    for _ in 0..2 {
        let now = s.world.now;
        let asked = [(); 2].map(|()| s.world.nodes[0].measure_rate(LinkId(0), now));
        s.say(&format!("{asked:?}"));
        for _ in 0..100 {
            s.world.run_for(MS(30));
            let lines = s.world.tape.replace(Vec::new()).expect("somebody writes");
            let filler = lines.iter().filter(|line| line.contains("BestEffort")).count();
            if filler > 0 {
                let at = s.world.now.0;
                s.say(&format!("{at} {filler} lines of filler"));
            }
            s.flush();
        }
        s.world.tape = Some(Vec::new());
        s.status();
        s.open(0, 1, contract(100, 10, 1, 50));
    }
    s.is_as_written("rate");
}

/// The kernel's share of a link grows while nobody needs it, and shrinks before a tight channel is granted.
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

/// A receiver that does not read, and then does; a host in the middle that begins another life.
#[test]
fn a_receiver_that_does_not_read_and_a_host_that_restarts() {
    let mut s = script(3, |_, _| {});
    let channel = s.open(0, 2, contract(500, 200, 2, 30));
    s.reads = false;
    for _ in 0..12 {
        s.send(channel, &[500, 400]);
        s.run(10);
    }
    s.reads = true;
    s.send(channel, &[300]);
    s.run(20);
    s.status();
    let mut config = line_config(1, 3, RATE);
    config.epoch.0 += 1;
    let node = punctual_proto::node::Node::new(config, 999, s.world.now).expect("a configuration");
    s.world.restart(1, node);
    s.send(channel, &[300]);
    s.run(2_500);
    s.status();
    s.is_as_written("restart");
}

/// Links whose adapters say what has left, one packet a millisecond, with windows of one packet and of three.
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

/// Admission is decided by somebody else: each question is taken, answered later, and given back; one is closed meanwhile.
#[test]
fn decisions_that_are_made_elsewhere() {
    let mut s = script(2, |_, _| {});
    s.world.nodes[0].decide_elsewhere();
    let _ = s.world.nodes[1].listen(name("in"));
    for number in 0..6 {
        let wanted = [contract(9_000, 100, 2, 12), contract(1_000, 100, 1, 4), contract(20_000, 20, 1, 40)]
            [number % 3];
        s.ask(0, "in@h2", wanted, number == 3);
    }
    let (closing, now) = (s.source(2), s.world.now);
    let closed = s.world.nodes[0].close(closing, now);
    s.say(&format!("closed: {closed:?}"));
    for _ in 0..60 {
        s.run(4);
        let deciding = s.world.nodes[0].is_deciding();
        let Some(decision) = s.world.nodes[0].poll_decision() else { continue };
        let more = s.world.nodes[0].poll_decision().is_some();
        s.say(&format!("deciding {deciding}, more {more}"));
        s.run(2);
        let mut clock = 0;
        let decided = decision.decide(|| {
            clock += 7;
            Instant(clock)
        });
        let now = s.world.now;
        s.world.nodes[0].handle_decided(decided, now);
    }
    s.status();
    s.is_as_written("elsewhere");
}

/// What the host says of its processor: units that took longer than assumed, rest, late wake-ups, standstills; and what a
/// program beside us sends by the link.
#[test]
fn a_processor_that_is_watched() {
    let mut s = script(2, |_, _| {});
    let channel = s.open(0, 1, contract(1_000, 100, 1, 20));
    let mut random = SplitMix64::new(3);
    let kinds =
        [WorkKind::Send, WorkKind::Forward, WorkKind::Receive, WorkKind::BestEffort, WorkKind::Signalling];
    for round in 0..40 {
        s.send(channel, &[1_000]);
        for _ in 0..12 {
            let (kind, assumed) = (kinds[random.below(5) as usize], Nanos(5_000 + random.below(30_000)));
            let times = if random.below(9) == 0 { 3 } else { 1 };
            let took = Nanos(random.below(assumed.0 * times));
            let now = s.world.now;
            s.world.nodes[0].record_unit(random.below(6) as u32, kind, took, assumed, now);
            match random.below(4) {
                0 => s.world.nodes[0].record_idle(Nanos(random.below(2_000_000))),
                1 => s.world.nodes[0].record_wake(Nanos(random.below(300_000)), now),
                _ => {}
            }
        }
        if round > 25 {
            let now = s.world.now;
            s.world.nodes[0].record_wake(MS(3), now);
            s.world.nodes[0].record_standstill(MS(round), now);
            s.world.nodes[0].handle_foreign_traffic(LinkId(0), BitRate(7_000_000));
        }
        s.run(10);
        if round % 13 == 12 {
            s.status();
        }
    }
    s.run(3_000);
    s.status();
    s.is_as_written("watched");
}

/// The source, the forwarder and the sink stand still in turn, for as long as half a deadline and for longer.
#[test]
fn hosts_that_stand_still_beside_a_hard_channel() {
    let mut s = script(3, |_, _| {});
    let channel = s.open(0, 2, contract(2_000, 100, 2, 30));
    for host in 0..3 {
        for span in [14, 45] {
            s.world.still = Some((host, s.world.now + MS(span)));
            for _ in 0..7 {
                s.send(channel, &[2_000]);
                s.run(10);
            }
        }
    }
    s.run(1_000);
    s.status();
    s.is_as_written("still");
}
