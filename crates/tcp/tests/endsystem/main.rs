//! Connections as handlers (ADR 0054): two endsystems over a wire that delays, loses, duplicates and reorders. Each handler is
//! called for a few units when it has work; every byte arrives in order, and what a program does at its rings has its effect at
//! the other end.

mod limits;
mod world;

use std::net::SocketAddr;

use punctual_analysis::{Instant, Nanos};
use punctual_tcp::endsystem::segments_max;
use punctual_tcp::{Config, Ended, Flags, Flow, Segment, State, wire};

use world::*;

/// Both sides send, and close behind the last byte.
fn exchange(seed: u64, faults: u64, bytes: usize, slots: usize) {
    let mut world = World::new(seed, faults, slots);
    world.listen();
    world.connect();
    exchange_in(world, (seed, bytes));
}

fn exchange_in(mut world: World, (seed, bytes): (u64, usize)) {
    let mut written = [0, 0];
    let turn = |world: &mut World| {
        for (host, written) in written.iter_mut().enumerate() {
            world.read(host);
            let now = world.now;
            let Some(program) = world.program(host).cloned() else { continue };
            while *written < bytes {
                let size = (1 + (world.random.next() % 4_096) as usize).min(bytes - *written);
                let message: Vec<u8> = (*written..*written + size).map(|at| byte(host, at)).collect();
                if !program.outbox.send(&message, now) {
                    break;
                }
                *written += size;
                if *written == bytes {
                    world.hosts[host].tcp.close(program.index);
                }
            }
        }
    };
    let ended = |world: &World| (0..2).all(|host| world.program(host).is_some_and(|program| program.saw_end));
    let is_done = world.run(Nanos::from_secs(1_000), turn, ended);
    let states: Vec<_> = (0..2).map(|host| world.status(host)).collect();
    assert!(is_done, "seed {seed}: {states:?}");
    for host in 0..2 {
        let expected: Vec<u8> = (0..bytes).map(|at| byte(1 - host, at)).collect();
        let read = &world.hosts[host].programs[0].read;
        let wrong = read.iter().zip(&expected).position(|(read, expected)| read != expected);
        assert_eq!((read.len(), wrong), (bytes, None), "seed {seed}: {states:?}");
        assert_eq!(world.hosts[host].programs.len(), 1, "seed {seed}");
    }
}

#[test]
fn every_byte_arrives_in_order_however_small_the_rings_are() {
    for slots in [1, 2, 64] {
        exchange(1, 0, 200_000, slots);
    }
}

/// A call reports when the first of its packets had come, and the delays of calls have a mean and a maximum.
#[test]
fn delays_of_segments_are_observed() {
    let mut world = World::new(9, 0, 64);
    world.config = Config { is_nodelay: true, ..world.config };
    let index = 4;
    (0..2).for_each(|host| world.connect_over_channels(host));
    let is_open = |world: &World| {
        (0..2).all(|host| world.status(host).is_some_and(|it| it.state == State::Established))
    };
    assert!(world.run(Nanos::from_secs(5), |_| {}, is_open));
    let nobody_observed = world.status(1).map(|it| (it.delays.mean(), it.delays.max()));
    assert_eq!(nobody_observed, Some((None, None)));
    let (now, client) = (world.now, world.program(0).cloned().expect("open"));
    let ago = |micros| Instant(now.0 - Nanos::from_micros(micros).0);
    let mut out = Out { packets: Vec::new(), room: 64 };
    for _ in 0..3 {
        assert!(client.outbox.send(&[3; 100], now));
        while world.hosts[0].tcp.output(index, 1, now, &mut out).units > 0 {}
    }
    assert_eq!(out.packets.len(), 3);
    for (micros, (packet, _)) in [30, 20, 10].into_iter().zip(&out.packets) {
        let frame = world.pool.frame(packet);
        assert!(world.hosts[1].tcp.arrived(index, frame, ago(micros)).is_ok());
    }
    let host = &mut world.hosts[1].tcp;
    let calls = [2, 1, 1].map(|units| host.input(index, units, now));
    assert_eq!(calls.map(|worked| worked.units), [2, 1, 0]);
    assert_eq!(calls.map(|worked| worked.first_arrival), [Some(ago(30)), Some(ago(10)), None]);
    [30, 10, 20].into_iter().for_each(|micros| host.observe(index, Nanos::from_micros(micros)));
    let delays = host.status(index).expect("there").delays;
    let found = (delays.mean(), delays.max());
    assert_eq!(found, (Some(Nanos::from_micros(20)), Some(Nanos::from_micros(30))));
}

/// RFC 9293 3.5, figure 7: both ends send a SYN. A SYN that comes before its receiver has begun is lost.
#[test]
fn both_ends_open_at_the_same_time() {
    for seed in 0..30 {
        let mut world = World::new(seed, if seed < 10 { 0 } else { 10 + seed * 3 }, 8);
        let wait = Nanos::from_micros(world.random.next() % 5_000);
        world.connect_over_channels((seed % 2) as usize);
        assert!(!world.run(wait, |_| {}, |_| false));
        world.connect_over_channels(1 - (seed % 2) as usize);
        let begun = world.now;
        if seed < 10 {
            let is_open = |world: &World| {
                (0..2).all(|host| world.status(host).is_some_and(|it| it.state == State::Established))
            };
            assert!(world.run(Nanos::from_secs(5), |_| {}, is_open));
            assert!(world.now.since(begun) <= DELAY * 3, "seed {seed}: {:?}", world.now.since(begun));
        }
        exchange_in(world, (seed, 40_000));
    }
}

/// A router's report about a packet of IPv4 (RFC 1191): the next link carries 900 bytes.
fn too_big(quoted: &[u8]) -> Vec<u8> {
    let sum = |bytes: &[u8]| {
        let words = bytes.chunks(2).map(|two| u32::from(two[0]) << 8 | u32::from(two[1]));
        let total: u32 = words.sum();
        (!((total & 0xffff) + (total >> 16)) as u16).to_be_bytes()
    };
    let mut icmp = [&[3, 4, 0, 0, 0, 0, 3, 132], &quoted[..28]].concat();
    let whole = sum(&icmp);
    icmp[2..4].copy_from_slice(&whole);
    let mut ip = [&quoted[..12], &quoted[16..20], &quoted[12..16]].concat();
    ip[2..4].copy_from_slice(&(20 + icmp.len() as u16).to_be_bytes());
    ip[9] = 1;
    ip[10..12].fill(0);
    let header = sum(&ip);
    ip[10..12].copy_from_slice(&header);
    [ip, icmp].concat()
}

/// An error about a packet in flight changes a connection over a link. Packets on channels pass no router: such an error is forged.
#[test]
fn icmp_errors_do_not_concern_channels() {
    for is_joined in [false, true] {
        let mut world = World::new(1, 0, 8);
        if is_joined {
            world.connect_over_channels(0);
        } else {
            world.connect();
        }
        let (now, index) = (world.now, world.program(0).expect("it connects").index);
        let mut out = Out { packets: Vec::new(), room: 8 };
        assert_eq!(world.hosts[0].tcp.output(index, 1, now, &mut out).units, 1);
        let error = too_big(&out.packets[0].0);
        let before = world.status(0).expect("there").path_mtu_bytes;
        assert_eq!(world.hosts[0].tcp.error(&error, now), (!is_joined).then_some(index));
        let after = world.status(0).expect("there").path_mtu_bytes;
        assert_eq!(after, if is_joined { before } else { 900 });
    }
}

/// Without its channels a connection ends, behind what had come before; without a reset.
#[test]
fn a_connection_without_channels_ends() {
    let mut world = World::new(9, 0, 64);
    (0..2).for_each(|host| world.connect_over_channels(host));
    let is_open = |world: &World| {
        (0..2).all(|host| world.status(host).is_some_and(|it| it.state == State::Established))
    };
    assert!(world.run(Nanos::from_secs(5), |_| {}, is_open));
    let (now, client) = (world.now, world.program(0).cloned().expect("open"));
    assert!(client.outbox.send(&[3; 100], now));
    let mut out = Out { packets: Vec::new(), room: 64 };
    assert_eq!(world.hosts[0].tcp.output(4, 2, now, &mut out).units, 1);
    let frame = world.pool.frame(&out.packets[0].0);
    assert!(world.hosts[1].tcp.arrived(4, frame, now).is_ok());
    (0..2).for_each(|host| world.hosts[host].tcp.cut(4));
    let ended = |world: &World| [0, 1].map(|host| world.status(host).expect("there").ended);
    assert_eq!(ended(&world), [Some(Ended::Unreachable), None], "a packet waits");
    assert_eq!(world.hosts[1].tcp.input(4, 2, now).units, 1);
    assert_eq!(ended(&world), [Some(Ended::Unreachable); 2]);
    (0..2).for_each(|host| world.read(host));
    assert_eq!(world.program(1).map(|program| program.read.len()), Some(100));
    let room = &mut Out { packets: Vec::new(), room: 64 };
    for host in 0..2 {
        assert_eq!(world.hosts[host].tcp.output(4, 2, now, room).units, 0, "no reset: it could not leave");
        assert!(world.hosts[host].tcp.is_over(4, now));
    }
}

#[test]
fn every_byte_arrives_over_a_bad_wire() {
    for seed in 0..30 {
        exchange(seed, 20 + seed * 4, 40_000, 8);
    }
}

/// What was received and not read is given back to no one: the window closes, and the sender stops.
#[test]
fn a_program_that_does_not_read_stops_its_peer() {
    let mut world = World::new(3, 0, 4);
    world.listen();
    world.connect();
    let mut written = 0;
    let write = |world: &mut World| {
        let (now, program) = (world.now, world.program(0).cloned().expect("it connects"));
        while program.outbox.send(&[7; 1_000], now) {
            written += 1_000;
        }
    };
    assert!(!world.run(Nanos::from_secs(20), write, |_| false));
    // Its own buffers, the peer's, and both rings.
    let most = 8_192 + 8_192 + 4 * 1_000 + 4 * CHUNK_BYTES as usize + 1_000;
    assert!(written <= most, "{written}");
    world.read(1);
    let read = world.hosts[1].programs[0].read.len();
    assert!((1_000..=4 * CHUNK_BYTES as usize).contains(&read), "what the ring held: {read}");
}

/// Both directions are closed and acknowledged, TIME-WAIT is over at both ends, and only then the program reads.
#[test]
fn bytes_of_a_closed_connection_wait_for_a_slow_program() {
    let mut world = World::new(7, 0, 4);
    world.listen();
    world.connect();
    let bytes = 12 * CHUNK_BYTES as usize;
    let mut written = 0;
    let write = |world: &mut World| {
        world.read(0);
        let (now, program) = (world.now, world.program(0).cloned().expect("it connects"));
        while written < bytes && program.outbox.send(&vec![7; CHUNK_BYTES as usize / 4], now) {
            written += CHUNK_BYTES as usize / 4;
        }
        if written == bytes {
            world.hosts[0].tcp.close(program.index);
        }
        if let Some(server) = world.program(1).map(|program| program.index) {
            world.hosts[1].tcp.close(server);
        }
    };
    assert!(!world.run(Nanos::from_secs(300), write, |_| false));
    assert_eq!(written, bytes);
    let (now, server) = (world.now, world.program(1).map(|program| program.index).expect("open"));
    assert_eq!(world.status(1).expect("there").ended, Some(Ended::Closed));
    assert!(!world.hosts[1].tcp.is_over(server, now), "the ring is full, and bytes are left");
    let saw_end = |world: &World| world.program(1).is_some_and(|program| program.saw_end);
    assert!(world.run(Nanos::from_secs(1), |world| world.read(1), saw_end));
    assert_eq!(world.hosts[1].programs[0].read.len(), bytes);
    assert!(world.hosts[1].tcp.is_over(server, now));
}

/// Tiny writes into a closed window cause no call of the output handler, which would be charged to the budget; they leave when
/// the peer reads.
#[test]
fn writes_that_cannot_leave_cause_no_calls() {
    let mut world = World::new(6, 0, 4);
    world.config.is_nodelay = true;
    world.listen();
    world.connect();
    let mut written = 0;
    let fill = |world: &mut World| {
        let (now, program) = (world.now, world.program(0).cloned().expect("it connects"));
        while program.outbox.send(&[7; 100], now) {
            written += 100;
        }
    };
    assert!(!world.run(Nanos::from_secs(20), fill, |_| false));
    let index = world.program(0).map(|program| program.index).expect("open");
    let made = world.status(0).expect("open").segments_out;
    let due = world.hosts[0].tcp.due(index, world.now);
    assert!(due.is_none_or(|due| due > world.now), "only a probe is due: {due:?}");
    // The peer reads everything.
    let all = written;
    let has_all = move |world: &World| world.program(1).is_some_and(|program| program.read.len() == all);
    assert!(world.run(Nanos::from_secs(60), |world| world.read(1), has_all), "{written} written");
    assert!(world.status(0).expect("open").segments_out > made);
}

/// A program that goes away with bytes that it has not read, in its ring or behind it, resets its peer (RFC 2525 2.17); without,
/// it closes.
#[test]
fn a_program_that_is_gone_closes_or_resets() {
    for (reads, messages) in [(true, 1), (false, 1), (false, 12)] {
        let mut world = World::new(4, 0, 4);
        world.open();
        let (now, client) = (world.now, world.program(0).cloned().expect("open"));
        (0..4).for_each(|_| assert!(client.outbox.send(&vec![1; CHUNK_BYTES as usize * messages / 4], now)));
        let turn = |world: &mut World| {
            if reads {
                world.read(1)
            }
        };
        assert!(!world.run(Nanos::from_millis(50), turn, |_| false));
        let server = world.program(1).map(|program| program.index).expect("open");
        let now = world.now;
        world.hosts[1].tcp.release(server, now);
        let saw_end = |world: &World| world.program(0).is_some_and(|program| program.saw_end);
        assert!(
            world.run(Nanos::from_secs(5), |world| world.read(0), saw_end),
            "reads {reads} of {messages}"
        );
        let ended = world.status(0).expect("there").ended;
        assert_eq!(ended, (!reads).then_some(Ended::Reset), "reads {reads} of {messages}");
    }
}

/// A peer that never closes: a connection without a program is forgotten after a minute in FIN-WAIT-2, and not before.
#[test]
fn a_connection_without_a_program_does_not_wait_for_ever() {
    let mut world = World::new(5, 0, 4);
    world.open();
    let (now, client) = (world.now, world.program(0).map(|program| program.index).expect("open"));
    world.hosts[0].tcp.release(client, now);
    let is_over = |world: &World| world.status(0).is_some_and(|it| it.state == State::Closed);
    assert!(!world.run(Nanos::from_secs(50), |_| {}, is_over));
    assert_eq!(world.status(0).expect("there").state, State::FinWait2);
    assert!(world.run(Nanos::from_secs(15), |_| {}, is_over));
    assert!(!world.run(Nanos::from_millis(1), |_| {}, |_| false), "the reset leaves");
    let now = world.now;
    assert!(world.hosts[0].tcp.is_over(client, now) && world.hosts[0].tcp.remove(client).is_some());
    assert_eq!(world.hosts[0].tcp.status(client), None);
}

/// A peer that vanishes: what a program has left behind is tried for 100 s, not for the user timeout of 15 min.
#[test]
fn a_connection_without_a_program_gives_a_silent_peer_up() {
    let mut world = World::new(5, 0, 4);
    world.open();
    let (now, client) = (world.now, world.program(0).cloned().expect("open"));
    world.faults = 1_000;
    assert!(client.outbox.send(&[1; 100], now));
    world.hosts[0].tcp.release(client.index, now);
    let is_over = |world: &World| world.status(0).is_some_and(|it| it.state == State::Closed);
    assert!(!world.run(Nanos::from_secs(95), |_| {}, is_over));
    assert_eq!(world.status(0).expect("there").state, State::FinWait1);
    assert!(world.run(Nanos::from_secs(10), |_| {}, is_over));
    assert_eq!(world.status(0).expect("there").ended, Some(Ended::TimedOut));
}

/// There are as many connections as the driver has flows.
#[test]
fn indices_end_and_come_again() {
    let mut world = World::new(6, 0, 1);
    let [local, remote] = ends();
    let connect = |world: &mut World, port| {
        let flow = Flow { local: SocketAddr::new(local.ip(), port), remote };
        let (rings, ..) = world.rings(0);
        let config = world.config;
        world.hosts[0].tcp.connect(flow, &config, rings, Instant(1)).ok()
    };
    let indices: Vec<_> = (1..=5).map(|port| connect(&mut world, port)).collect();
    assert_eq!(indices, [Some(0), Some(1), Some(2), Some(3), None]);
    assert!(world.hosts[0].tcp.remove(2).is_some() && world.hosts[0].tcp.remove(2).is_none());
    assert_eq!(connect(&mut world, 6), Some(2));
    assert_eq!(connect(&mut world, 0), None, "port 0 is none");
}

/// A connection that a listener has opened and that cannot begin, for want of a number or because it is refused, resets its peer
/// at once. One that this host began and that has no answer yet has no peer to reset.
#[test]
fn the_peer_of_a_connection_that_cannot_begin_is_reset() {
    for has_room in [true, false] {
        let mut world = World::new(8, 0, 1);
        world.refuses = true;
        world.listen();
        let [remote, local] = ends();
        for port in 1..=if has_room { 1 } else { 4 } {
            let flow = Flow { local: SocketAddr::new(local.ip(), port), remote };
            let (rings, ..) = world.rings(1);
            let (config, now) = (world.config, world.now);
            let index = world.hosts[1].tcp.connect(flow, &config, rings, now).ok().expect("room");
            assert_eq!(world.hosts[1].tcp.refuse(index, now), None);
        }
        world.connect();
        let ended = |world: &World| world.status(0).and_then(|status| status.ended);
        assert!(
            world.run(Nanos::from_millis(20), |_| {}, |world| ended(world).is_some()),
            "has room: {has_room}"
        );
        assert_eq!(ended(&world), Some(Ended::Reset));
    }
}

/// An input handler has work while a packet waits, or what came waits for room; else a call would only cost its budget.
#[test]
fn an_input_handler_has_work_only_when_there_is_some() {
    let mut world = World::new(7, 0, 1);
    world.open();
    assert!(!world.run(Nanos::from_millis(50), |_| {}, |_| false), "all acknowledgements are there");
    let has_input = |world: &mut World| [0, 1].map(|host: usize| world.hosts[host].tcp.has_input(0));
    assert_eq!(has_input(&mut world), [false, false]);
    let (now, client) = (world.now, world.program(0).cloned().expect("open"));
    assert!(client.outbox.send(&[3; 2 * CHUNK_BYTES as usize], now));
    assert!(!world.run(Nanos::from_millis(50), |_| {}, |_| false));
    assert_eq!(has_input(&mut world), [false, true], "a ring of one message is full");
    let now = world.now;
    let has_delivered = |world: &mut World| world.hosts[1].tcp.input(0, 1, now).delivered;
    assert!(!has_delivered(&mut world), "the ring is full");
    world.read(1);
    assert!(has_delivered(&mut world) && !has_delivered(&mut world), "the rest, once");
    assert!(!world.run(Nanos::from_millis(50), |world| world.read(1), |_| false));
    assert_eq!(has_input(&mut world), [false, false], "the rest was read");
    world.hosts[0].tcp.close(0);
    assert!(!world.run(Nanos::from_millis(50), |_| {}, |_| false));
    assert_eq!(has_input(&mut world), [false, false], "the end was shown");
    assert!(!world.hosts[0].tcp.has_input(3), "no connection");
}

/// Segments that wait in the queue of a receiver are acknowledged together, if the connection allows it, and those behind the last
/// acknowledgement never wait for others to come.
#[test]
fn segments_that_wait_together_are_acknowledged_together() {
    for (allowed, bytes) in [(1, 40_000), (4, 40_000), (32, 40_000), (32, 2_000), (32, 100)] {
        let mut world = World::new(11, 0, 64);
        world.config.ack_segments = allowed;
        world.config.is_nodelay = true;
        world.open();
        assert!(!world.run(Nanos::from_secs(1), |_| {}, |_| false), "all acknowledgements are there");
        // Its first flight is ten segments; all of them come before the receiver is called.
        let segments = world.send_flight(bytes);
        let (mut acknowledgements, mut calls, now) = (Vec::new(), 0, world.now);
        while world.hosts[1].tcp.has_input(0) && calls < 2 * segments {
            calls += world.hosts[1].tcp.input(0, 1, now).units;
            if world.hosts[1].tcp.due(0, now).is_some_and(|due| due <= now) {
                let mut out = Out { packets: Vec::new(), room: 64 };
                world.hosts[1].tcp.output(0, 1, now, &mut out);
                acknowledgements.extend(out.packets.into_iter().map(|_| calls));
            }
            world.read(1);
        }
        assert_eq!(calls, segments);
        // The machine answers each second full segment at once, and the last one after its delay.
        let most = if allowed == 1 { segments / 2 } else { segments.div_ceil(allowed) };
        assert!(
            acknowledgements.len() as u32 <= most,
            "{allowed} allowed, {bytes} bytes: {acknowledgements:?}"
        );
        assert_eq!(acknowledgements.is_empty(), segments < 2, "{allowed} allowed, {bytes} bytes");
        let due = world.hosts[1].tcp.due(0, now);
        let last = acknowledgements.last().copied().unwrap_or(0);
        assert!(last == segments || due.is_some_and(|due| due <= now + world.config.ack_delay));
    }
}

/// An acknowledgement waits for exactly as many segments as the connection allows, and each segment is counted once at both ends.
#[test]
fn an_acknowledgement_waits_for_no_more_segments_than_allowed() {
    for allowed in [2, 4] {
        let mut world = World::new(13, 0, 64);
        (world.config.ack_segments, world.config.is_nodelay) = (allowed, true);
        world.open();
        assert!(!world.run(Nanos::from_secs(1), |_| {}, |_| false), "all acknowledgements are there");
        let counts = |world: &World| {
            [world.status(0).expect("open").segments_out, world.status(1).expect("open").segments_in]
        };
        let before = counts(&world);
        let segments = world.send_flight(40_000);
        assert!(segments > allowed);
        let now = world.now;
        // What came before needs no acknowledgement, and is not counted from here on.
        let mut none = Out { packets: Vec::new(), room: 1 };
        assert_eq!(world.hosts[1].tcp.output(0, 1, now, &mut none).units, 0);
        let mut waits = Vec::new();
        for _ in 0..allowed {
            assert_eq!(world.hosts[1].tcp.input(0, 1, now).units, 1);
            waits.push(world.hosts[1].tcp.due(0, now).is_none_or(|due| due > now));
        }
        let expected: Vec<_> = (1..=allowed).map(|segment| segment < allowed).collect();
        assert_eq!(waits, expected, "{allowed} allowed");
        let [sent, came] = [0, 1].map(|end| counts(&world)[end] - before[end]);
        assert_eq!((sent, came), (segments.into(), allowed.into()));
    }
}

/// A program is gone, and its peer reads nothing for ten minutes, but answers: all bytes arrive. A peer that does so for ever does not
/// keep the connection.
#[test]
fn a_peer_may_pause_after_the_program_is_gone() {
    for pause in [600, 5_000].map(Nanos::from_secs) {
        let mut world = World::new(16, 0, 16);
        world.config.receive_bytes = 20_000;
        world.open();
        let (now, client) = (world.now, world.program(0).cloned().expect("open"));
        assert!(client.outbox.send(&[3; 60_000], now));
        assert!(!world.run(Nanos::from_secs(1), |_| {}, |_| false));
        world.hosts[0].tcp.release(0, world.now);
        assert!(!world.run(pause, |_| {}, |_| false));
        let all = |world: &World| world.hosts[1].programs[0].read.len() == 60_000;
        let is_whole = world.run(Nanos::from_secs(200), |world| world.read(1), all);
        assert_eq!(is_whole, pause == Nanos::from_secs(600), "{pause}");
    }
}

/// A program has made room in a full ring. The window that this opens is announced once, when the ring is full again, and not in parts: the
/// peer would send as little each time.
#[test]
fn a_window_is_announced_when_the_ring_was_filled() {
    for (allowed, parts) in [(1, true), (32, false)] {
        let mut world = World::new(15, 0, 16);
        world.config.ack_segments = allowed;
        world.open();
        let (now, client) = (world.now, world.program(0).cloned().expect("open"));
        let bytes = 2 * world.config.receive_bytes;
        assert!(client.outbox.send(&vec![3; bytes], now));
        assert!(!world.run(Nanos::from_secs(1), |_| {}, |_| false));
        let unread = |world: &World| world.status(1).expect("open").readable_bytes;
        let (full, now) = (unread(&world), world.now);
        assert!(full > world.config.receive_bytes - 2_000, "{full} bytes wait");
        world.read(1);
        let (mut early, mut calls) = (0, 0);
        let is_due = |world: &mut World| world.hosts[1].tcp.due(0, now).is_some_and(|due| due <= now);
        while world.hosts[1].tcp.input(0, 1, now).more {
            early += u32::from(is_due(&mut world));
            calls += 1;
        }
        assert!(calls > 2 && (early > 0) == parts, "{allowed} allowed: {early} of {calls}");
        assert!(is_due(&mut world));
        let mut out = Out { packets: Vec::new(), room: 64 };
        assert_eq!(world.hosts[1].tcp.output(0, 1, now, &mut out).units, 1);
        assert!(!is_due(&mut world));
        let freed = full - unread(&world);
        assert!(freed >= 12 * CHUNK_BYTES as usize, "{freed}");
        let window = world.status(1).expect("open").windows_bytes[1] as usize;
        assert!(window.abs_diff(freed) < 2_000, "{window} of {freed}");
    }
}

/// Bytes of its own, and an end, do not wait for segments in the queue.
#[test]
fn only_acknowledgements_wait_for_segments_in_the_queue() {
    let mut world = World::new(12, 0, 64);
    world.config.ack_segments = 32;
    world.open();
    let is_due = |world: &mut World| {
        let now = world.now;
        world.hosts[1].tcp.due(0, now).is_some_and(|due| due <= now)
    };
    let send = |world: &mut World| {
        world.send_flight(9_000);
        let now = world.now;
        assert_eq!(world.hosts[1].tcp.input(0, 2, now).units, 2);
    };
    send(&mut world);
    assert!(world.hosts[1].tcp.has_input(0) && !is_due(&mut world), "segments are behind");
    let (now, server) = (world.now, world.program(1).cloned().expect("open"));
    assert!(server.outbox.send(b"bytes", now));
    assert!(is_due(&mut world), "bytes to send");
    assert!(!world.run(Nanos::from_secs(1), |world| world.read(1), |_| false));
    send(&mut world);
    assert!(!is_due(&mut world));
    world.hosts[1].tcp.close(0);
    assert!(is_due(&mut world), "an end to send");
}

/// A message of one segment takes one, also where the ring of bytes begins again. Admission counts one more.
#[test]
fn data_takes_no_more_segments_than_it_fills() {
    let mut world = World::new(8, 0, 64);
    world.config = Config { mtu_bytes: 576, is_nodelay: true, ..world.config };
    world.open();
    let data_bytes = 576 - 40 - 12;
    let sent = |world: &World| world.status(0).expect("open").segments_out;
    let mut taken = Vec::new();
    for n in 0..2_000_u64 {
        let (now, client, before) = (world.now, world.program(0).cloned().expect("open"), sent(&world));
        // First until the window is open, then as often as there is always something in flight.
        assert!(client.outbox.send(&vec![n as u8; data_bytes as usize], now));
        let pause = if n < 100 { DELAY * 20 } else { Nanos::from_millis(1) };
        assert!(!world.run(pause, |world| world.read(1), |_| false));
        taken.push(sent(&world) - before);
    }
    let most = taken.iter().skip(100).max().copied();
    assert_eq!((most, segments_max(data_bytes.into(), data_bytes)), (Some(1), 2), "{taken:?}");
    assert_eq!([segments_max(0, 100), segments_max(101, 100), segments_max(5, 0)], [1, 3, 6]);
}

/// What a program writes while earlier bytes are not acknowledged leaves at once, if it has switched Nagle's algorithm off
/// (RFC 9293 3.7.4). What waits, if something does.
pub fn waiting_bytes(seed: u64) -> Option<String> {
    let mut world = World::new(seed, 0, 64);
    world.config = Config { is_nodelay: true, ..world.config };
    world.open();
    assert!(!world.run(Nanos::from_millis(50), |_| {}, |_| false), "all acknowledgements are there");
    let sent = |world: &World| world.status(0).expect("open").segments_out;
    let before = sent(&world);
    for written in 1..=3 {
        let (now, client) = (world.now, world.program(0).cloned().expect("open"));
        let bytes = 1 + (world.random.next() % 400) as usize;
        assert!(client.outbox.send(&vec![7; bytes], now));
        assert!(!world.run(DELAY / 8, |_| {}, |_| false));
        let left = sent(&world) - before;
        if left < written {
            return Some(format!("{written} times bytes were written, {left} segments have left"));
        }
    }
    None
}

#[test]
fn what_is_written_leaves_while_earlier_bytes_are_in_flight() {
    for seed in 0..20 {
        assert_eq!(waiting_bytes(seed), None, "seed {seed}");
    }
}

/// In TIME-WAIT a connection needs no program and no rings: it acknowledges the peer's FIN when that comes again (RFC 9293
/// 3.10.7.4), and ends after two maximum segment lifetimes.
#[test]
fn a_connection_in_time_wait_goes_on_without_rings() {
    let mut world = World::new(7, 0, 8);
    world.listen();
    world.connect();
    let is_open = |world: &World| world.program(1).is_some();
    assert!(world.run(Nanos::from_secs(5), |_| {}, is_open));
    let (client, server) = (world.program(0).expect("open").index, world.program(1).expect("open").index);
    assert!(world.program(1).expect("open").outbox.send(&[7; 1_000], world.now));
    world.hosts[0].tcp.close(client);
    world.hosts[1].tcp.close(server);
    let waits = |world: &World| world.hosts[0].tcp.only_waits(client);
    let no_end_yet = |world: &World| world.program(0).is_some_and(|program| !program.saw_end);
    assert!(world.run(Nanos::from_secs(5), |_| {}, waits));
    assert!(no_end_yet(&world), "the program still reads from its ring");
    assert_eq!(world.status(0).expect("there").state, State::TimeWait);
    assert!(!world.hosts[1].tcp.only_waits(server), "the peer is over at once");
    assert!(!world.hosts[0].tcp.rests(client));
    assert!(world.hosts[0].tcp.detach(client).is_some() && world.hosts[0].tcp.detach(client).is_none());
    assert!(world.hosts[0].tcp.rests(client), "nor does it need buffers");
    world.read(0);
    let program = world.program(0).expect("there");
    assert!(program.saw_end && program.read == [7; 1_000]);

    let fin = std::mem::take(&mut world.fin);
    let frame = world.pool.frame(&fin);
    let (now, mut out) = (world.now, Out { packets: Vec::new(), room: 4 });
    assert!(world.hosts[0].tcp.arrived(client, frame, now).is_ok() && !world.hosts[0].tcp.only_waits(client));
    assert_eq!(world.hosts[0].tcp.input(client, 1, now).units, 1);
    assert_eq!(world.hosts[0].tcp.output(client, 4, now, &mut out).units, 1);
    let reply = punctual_tcp::wire::parse(&out.packets[0].0).expect("a segment");
    let asked = punctual_tcp::wire::parse(&fin).expect("a segment");
    let after = asked.seq.wrapping_add(u32::from(asked.payload_bytes) + 1);
    assert_eq!((reply.flags, reply.ack), (Flags::default(), Some(after)));

    let lives = world.config.msl * 2;
    for (at, is_over) in [(now + lives - Nanos(1), false), (now + lives, true)] {
        assert_eq!(world.hosts[0].tcp.due(client, at), Some(now + lives));
        assert_eq!(world.hosts[0].tcp.output(client, 1, at, &mut out).units, 0);
        assert_eq!(world.hosts[0].tcp.is_over(client, at), is_over);
    }
    assert!(world.hosts[0].tcp.remove(client).is_none(), "its rings are gone");
    assert_eq!(world.hosts[0].tcp.status(client), None);
}

/// A SYN behind the end of a connection that a listener has opened is kept for the listener, processed or not. One of another flow,
/// and one for a connection that this host has opened, are not.
#[test]
fn a_syn_behind_the_end_is_kept_for_the_listener() {
    for (units, port, is_kept) in
        [(1, 50_000, true), (2, 50_000, true), (1, 50_001, false), (2, 50_001, false)]
    {
        let mut world = World::new(8, 0, 4);
        world.open();
        let (now, [remote, local]) = (world.now, ends());
        world.hosts[0].tcp.abort(0);
        let mut out = Out { packets: Vec::new(), room: 64 };
        world.hosts[0].tcp.output(0, 4, now, &mut out);
        let reset = out.packets.pop().expect("a reset").0;
        let remote = SocketAddr::new(remote.ip(), port);
        let flags = Flags { syn: true, ..Flags::default() };
        let syn = Segment { flags, seq: 77, ..wire::bare(Flow { local, remote }) };
        let mut packet = Vec::new();
        wire::write_with(&syn, &[], 64, false, &mut packet);
        for packet in [&reset, &packet] {
            let frame = world.pool.frame(packet);
            assert!(world.hosts[1].tcp.arrived(0, frame, now).is_ok());
        }
        world.hosts[1].tcp.input(0, units, now);
        assert_eq!(world.status(1).expect("there").state, State::Closed);
        let kept =
            world.hosts[1].tcp.take_successor(0).map(|(frame, address)| (frame.as_ref().to_vec(), address));
        assert_eq!(kept, is_kept.then_some((packet, 0x0a0b)), "{units}, {port}");
        assert!(world.hosts[1].tcp.take_successor(0).is_none());
        assert!(world.hosts[0].tcp.take_successor(0).is_none());
    }
}
