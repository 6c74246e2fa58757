//! Whole runs of small worlds, recorded: every unit of work, every packet with its fields, every event for an
//! application, and the status of hosts at the end (docs/adr/0049). Each is about hosts and their decisions.
//! For an intended change, run with `PUNCTUAL_PIN=1` and review the difference.

mod common;

use common::story::{MS, RATE, contract, script, soft};
use punctual_analysis::Activation;
use punctual_proto::api::{CloseReason, UserId, WorkKind};
use punctual_proto::config::{Admission, RunPolicy};
use punctual_proto::ids::{HandlerId, LinkId};
use punctual_proto::signalling::SplitMix64;
use punctual_proto::{BitRate, Contract, Instant, Late, Nanos};
use punctual_rig::{line_config, name};

/// Soft channels beside a hard one; the forwarder is stopped for a while, and late packets are dropped, or
/// not.
#[test]
fn soft_channels_and_a_host_that_stops() {
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

/// Three hosts whose links have 40, 10 and 40 Mbit/s: refusals and offers of the route, for opens and for
/// probes.
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

/// Hosts and applications that do not exist, refuse, do not reply, request a channel to themselves,
/// terminate, or stop.
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
    s.write_line(&format!("{listener:?} {again:?}"));
    s.consents = false;
    s.ask(0, "in@h3", wanted, false);
    s.run(20);
    s.consents = true;
    let _ = s.world.nodes[0].listen(name("camera"));
    for (port, host) in [("camera", 1), ("nobody", 1), ("camera", 7)] {
        let now = s.world.now;
        let source = format!("{port}@h{host}").parse().expect("an address");
        let token = s.world.nodes[2].request(&source, name("in"), wanted, UserId(3), now);
        s.write_line(&format!("h3 requests of {source:?}: {token:?}"));
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
    s.write_line(&format!("{first:?} {second:?} {third:?}"));
    s.run(40);
    s.status();
    let now = s.world.now;
    let gone = s.world.nodes[2].unlisten(listener.expect("it was free"), now);
    s.write_line(&format!("{gone:?}"));
    s.world.nodes[1].abort_newest(CloseReason::PathLost, now);
    s.run(40);
    let now = s.world.now;
    s.world.nodes[0].shutdown(now);
    s.run(700);
    let quiet = [0, 1, 2].map(|host: usize| s.world.nodes[host].is_quiet());
    s.write_line(&format!("quiet: {quiet:?}"));
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

/// Another thread decides about admission: each question is taken, answered later, and returned; one channel
/// is closed meanwhile.
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
    s.write_line(&format!("closed: {closed:?}"));
    for _ in 0..60 {
        s.run(4);
        let deciding = s.world.nodes[0].is_deciding();
        let Some(decision) = s.world.nodes[0].poll_decision() else { continue };
        let more = s.world.nodes[0].poll_decision().is_some();
        s.write_line(&format!("deciding {deciding}, more {more}"));
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

/// The reports of the host about its processor: units that took longer than assumed, idle time, late
/// wake-ups, standstills; and about another program's packets on the link.
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
            s.world.nodes[0].record_unit(HandlerId(random.below(6) as u32), kind, took, assumed, now);
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

/// The source, the forwarder and the sink are stopped in turn, for as long as half a deadline and for longer.
#[test]
fn hosts_that_stop_beside_a_hard_channel() {
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
