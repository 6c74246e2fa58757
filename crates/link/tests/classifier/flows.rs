//! TCP of this host's own: what the program takes of it, and what it leaves to the kernel.

use punctual_link::xdp::{ClassifierOptions, Tag};
use punctual_link::{FlowFilter, FlowKey, Inlet, ListenerFilter, Stream};

use crate::frames::{Data, Ends, FAMILIES, ipv4, ipv6};
use crate::fuzz::{Random, mutate};
use crate::segments::{DESTINATION, HOP_BY_HOP, Tcp, error, flows};
use crate::support::{Bench, Fate, Reason, filter, options, privileged};

const INLET: Inlet =
    Inlet { stream: Stream::LowLatency, burst_packets: 1_000_000, interval_ns: 1, buffers: 1_000_000 };
const FLOWS: u32 = 8;

fn with_room(ends: Ends) -> ClassifierOptions {
    ClassifierOptions { flows_max: FLOWS, listeners_max: 2, ..options(ends) }
}

fn of(key: FlowKey, index: u32) -> FlowFilter {
    FlowFilter { key, index, inlet: INLET }
}

/// A program that knows the flow of either family as numbers 1 and 2, and no listener.
fn bench(ends: Ends) -> Bench {
    let mut bench = Bench::new(&with_room(ends));
    for (number, key) in flows().into_iter().enumerate() {
        bench.program.set_flow(&of(key, number as u32 + 1)).expect("room");
    }
    bench
}

/// The account of the flow with this number.
fn account(index: u32) -> u32 {
    // Streams of 64 queues, 64 paths, errors, two listeners.
    64 * 4 + 64 + 1 + 2 + index
}

fn expect_flow(bench: &mut Bench, frame: &[u8], index: u32, bytes: usize) -> Tag {
    let tag = bench.expect_steer(frame, INLET.stream);
    assert_eq!((tag.path, tag.offset, usize::from(tag.bytes)), (account(index), 38, bytes));
    tag
}

#[test]
fn both_families_are_steered_whatever_the_links_own() {
    if !privileged() {
        return;
    }
    for ends in FAMILIES.map(|ends| ends()) {
        let mut bench = bench(ends);
        for (number, key) in flows().into_iter().enumerate() {
            let frame = Tcp::of(key).frame();
            expect_flow(&mut bench, &frame, number as u32 + 1, frame.len() - 14);
            // Ethernet pads short frames: only the length of the IP packet is passed on.
            let padded = [&frame[..], &[0; 20]].concat();
            expect_flow(&mut bench, &padded, number as u32 + 1, frame.len() - 14);
        }
    }
}

#[test]
fn what_is_no_flow_of_ours_is_the_kernels() {
    if !privileged() {
        return;
    }
    for ends in FAMILIES.map(|ends| ends()) {
        let mut bench = bench(ends);
        for key in flows() {
            let FlowKey { local, remote } = key;
            let other = |port: u16, end: std::net::SocketAddr| std::net::SocketAddr::new(end.ip(), port);
            let foreign_flows = [
                FlowKey { local: other(49_153, local), remote },
                FlowKey { local, remote: other(81, remote) },
                FlowKey { local: remote, remote: local },
                FlowKey { local: std::net::SocketAddr::new(remote.ip(), local.port()), remote: local },
            ];
            for foreign_flow in foreign_flows {
                assert_eq!(bench.run(&Tcp::of(foreign_flow).frame()), Fate::Passed, "{foreign_flow:?}");
            }
            let mut udp = Tcp::of(key).frame();
            udp[if local.is_ipv4() { 23 } else { 20 }] = 17;
            assert_eq!(bench.run(&udp), Fate::Passed);
            bench.program.clear_flow(key).expect("to clear");
            assert_eq!(bench.run(&Tcp::of(key).frame()), Fate::Passed);
        }
    }
}

/// An IPv4 address and an IPv6 address that begins with the same bytes are two.
#[test]
fn families_are_not_taken_for_one_another() {
    if !privileged() {
        return;
    }
    let mut bench = bench(ipv4());
    let like = |v4: std::net::SocketAddr| {
        let std::net::IpAddr::V4(ip) = v4.ip() else { unreachable!("of the first family") };
        let mut octets = [0; 16];
        octets[..4].copy_from_slice(&ip.octets());
        std::net::SocketAddr::new(octets.into(), v4.port())
    };
    let [v4, _] = flows();
    let twin = FlowKey { local: like(v4.local), remote: like(v4.remote) };
    assert_eq!(bench.run(&Tcp::of(twin).frame()), Fate::Passed);
}

#[test]
fn a_listener_gets_what_belongs_to_no_flow() {
    if !privileged() {
        return;
    }
    let mut bench = bench(ipv4());
    for (number, key) in flows().into_iter().enumerate() {
        let inlet = Inlet { stream: Stream::BestEffort, ..INLET };
        let filter = ListenerFilter { local: key.local, index: number as u32, inlet };
        bench.program.set_listener(&filter).expect("room");
        let foreign_flow = FlowKey { remote: std::net::SocketAddr::new(key.remote.ip(), 999), ..key };
        let tag = bench.expect_steer(&Tcp::of(foreign_flow).frame(), Stream::BestEffort);
        assert_eq!(tag.path, account(0) - 2 + number as u32);
        expect_flow(&mut bench, &Tcp::of(key).frame(), number as u32 + 1, 0x32 + 20 * number);
        bench.program.clear_listener(key.local).expect("to clear");
        assert_eq!(bench.run(&Tcp::of(foreign_flow).frame()), Fate::Passed);
    }
}

#[test]
fn options_are_steered_and_extension_headers_dropped() {
    if !privileged() {
        return;
    }
    let mut bench = bench(ipv4());
    let [v4, v6] = flows();
    for words in 1..=10 {
        let tcp = Tcp { options: vec![1; words * 4], ..Tcp::of(v4) };
        expect_flow(&mut bench, &tcp.frame(), 1, 50 + words * 4);
    }
    let mut tcp = Tcp::of(v6);
    for kind in [DESTINATION, HOP_BY_HOP, 43, DESTINATION] {
        tcp = tcp.extended(kind);
        bench.expect_drop(&tcp.frame(), Reason::Malformed);
    }
    // A longer one.
    let mut long = Tcp::of(v6);
    long.extensions.push((DESTINATION, [&[0, 2][..], &[0; 22]].concat()));
    bench.expect_drop(&long.frame(), Reason::Malformed);
    // More than anybody sends: the kernel's affair.
    assert_eq!(bench.run(&tcp.extended(DESTINATION).frame()), Fate::Passed);
}

/// The kernel never sees a first fragment, so it never has the whole.
#[test]
fn first_fragments_are_dropped_and_later_ones_left_to_the_kernel() {
    if !privileged() {
        return;
    }
    let mut bench = bench(ipv4());
    for key in flows() {
        bench.expect_drop(&Tcp::of(key).fragment(0, true).frame(), Reason::Fragmented);
        assert_eq!(bench.run(&Tcp::of(key).fragment(3, true).frame()), Fate::Passed);
        assert_eq!(bench.run(&Tcp::of(key).fragment(3, false).frame()), Fate::Passed);
        let foreign_flow = FlowKey { local: key.remote, remote: key.local };
        assert_eq!(bench.run(&Tcp::of(foreign_flow).fragment(0, true).frame()), Fate::Passed);
    }
    // Behind another extension too, and one that is whole is an extension like any other (RFC 6946).
    let [_, v6] = flows();
    bench.expect_drop(&Tcp::of(v6).extended(DESTINATION).fragment(0, true).frame(), Reason::Fragmented);
    bench.expect_drop(&Tcp::of(v6).fragment(0, false).frame(), Reason::Malformed);
}

#[test]
fn icmp_errors_that_quote_a_flow_go_where_errors_go() {
    if !privileged() {
        return;
    }
    let mut bench = bench(ipv4());
    let kinds: [(&[u8], &[u8]); 2] =
        [(&[3, 11, 12], &[0, 4, 5, 8, 13]), (&[1, 2, 3, 4], &[0, 5, 128, 135, 136])];
    for (key, (errors, others)) in flows().into_iter().zip(kinds) {
        for kind in errors {
            let frame = error(key, *kind, 0);
            let tag = bench.expect_steer(&frame, Stream::BestEffort);
            assert_eq!((tag.path, usize::from(tag.bytes)), (account(0) - 3, frame.len() - 14));
            let foreign_flow = FlowKey { local: key.remote, remote: key.local };
            assert_eq!(bench.run(&error(foreign_flow, *kind, 0)), Fate::Passed);
        }
        for kind in others {
            assert_eq!(bench.run(&error(key, *kind, 0)), Fate::Passed, "{kind}");
        }
        // Cut before the quoted ports.
        let frame = error(key, errors[0], 0);
        assert_eq!(bench.run(&frame[..frame.len() - 5]), Fate::Passed);
        bench.expect_drop(&frame[..frame.len() - 1], Reason::Malformed);
    }
    let [v4, _] = flows();
    bench.expect_steer(&error(v4, 3, 40), Stream::BestEffort);
}

#[test]
fn lying_segments_are_malformed() {
    if !privileged() {
        return;
    }
    let mut bench = bench(ipv6());
    for (index, key) in flows().into_iter().enumerate() {
        let whole = Tcp::of(key).frame();
        let header = whole.len() - 10 - 20;
        for end in 14..whole.len() {
            let frame = &whole[..end];
            if end < header + 4 {
                assert_eq!(bench.run(frame), Fate::Passed, "no ports: {end}");
            } else {
                bench.expect_drop(frame, Reason::Malformed);
            }
        }
        for words in 0..16 {
            let mut frame = whole.clone();
            frame[header + 12] = words << 4;
            if (5..=7).contains(&words) {
                expect_flow(&mut bench, &frame, index as u32 + 1, frame.len() - 14);
            } else {
                bench.expect_drop(&frame, Reason::Malformed);
            }
        }
        let longest = 1_500 - (header - 14) - 20;
        let fits = Tcp { payload: vec![1; longest], ..Tcp::of(key) };
        expect_flow(&mut bench, &fits.frame(), index as u32 + 1, 1_500);
        let longer = Tcp { payload: vec![1; longest + 1], ..Tcp::of(key) };
        bench.expect_drop(&longer.frame(), Reason::Malformed);
    }
}

#[test]
fn a_flow_and_a_listener_never_exceed_their_bucket_and_buffers() {
    if !privileged() {
        return;
    }
    let [key, other] = flows();
    let mut bench = bench(ipv4());
    let forever = Inlet { burst_packets: 3, interval_ns: 1_000_000_000_000, ..INLET };
    bench.program.set_flow(&FlowFilter { inlet: forever, ..of(key, 1) }).expect("to set");
    let foreign_flow = FlowKey { remote: std::net::SocketAddr::new(key.remote.ip(), 999), ..key };
    let listener =
        ListenerFilter { local: key.local, index: 0, inlet: Inlet { burst_packets: 2, ..forever } };
    bench.program.set_listener(&listener).expect("to set");
    for (frame, burst) in [(Tcp::of(key).frame(), 3), (Tcp::of(foreign_flow).frame(), 2)] {
        for _ in 0..burst {
            bench.expect_steer(&frame, INLET.stream);
        }
        for _ in 0..10 {
            bench.expect_drop(&frame, Reason::Policed);
        }
    }
    // Set again, the bucket is as empty as it was.
    bench.program.set_flow(&FlowFilter { inlet: forever, ..of(key, 1) }).expect("to set");
    bench.expect_drop(&Tcp::of(key).frame(), Reason::Policed);

    bench
        .program
        .set_flow(&FlowFilter { inlet: Inlet { buffers: 2, ..INLET }, ..of(other, 2) })
        .expect("to set");
    let frame = Tcp::of(other).frame();
    let held = [(); 2].map(|()| match bench.run_and_hold(&frame) {
        Fate::Steered(stream, tag) => (stream, tag),
        other => panic!("{other:?}"),
    });
    bench.expect_drop(&frame, Reason::NoBuffer);
    for (stream, tag) in held {
        let accounts = bench.program.accounts();
        let charge = accounts.received(0, stream, &tag);
        accounts.returns().give_back(charge);
        bench.expect_steer(&frame, INLET.stream);
    }
}

/// All errors have one bucket, so no sender can flood the node with them.
#[test]
fn icmp_errors_are_bounded() {
    if !privileged() {
        return;
    }
    let mut bench = bench(ipv4());
    let [key, _] = flows();
    let fates: Vec<Fate> = (0..100).map(|_| bench.run(&error(key, 3, 0))).collect();
    let steered = fates.iter().filter(|fate| matches!(fate, Fate::Steered(..))).count();
    assert!((32..90).contains(&steered), "{steered}");
    assert!(fates.contains(&Fate::Dropped(Reason::Policed)));
}

#[test]
fn what_cannot_be_a_flow_is_refused() {
    if !privileged() {
        return;
    }
    let [key, other] = flows();
    let mut bench = bench(ipv4());
    let mut fails = |flow: FlowFilter, message: &str| {
        let error = bench.program.set_flow(&flow).expect_err("refused").to_string();
        assert!(error.contains(message), "{error}");
    };
    let with = |inlet: Inlet| FlowFilter { inlet, ..of(key, 1) };
    fails(with(Inlet { burst_packets: 0, ..INLET }), "at least 1");
    fails(with(Inlet { interval_ns: 0, ..INLET }), "at least 1");
    fails(with(Inlet { buffers: 0, ..INLET }), "at least 1");
    fails(with(Inlet { stream: Stream::Signalling, ..INLET }), "signalling");
    fails(of(key, FLOWS), "flows_max");
    fails(of(key, 2), "another");
    fails(of(key, 3), "another number");
    let mixed = FlowKey { local: key.local, remote: other.remote };
    fails(of(mixed, 4), "one IP version");
    let unspecified = std::net::SocketAddr::new([0, 0, 0, 0].into(), 80);
    fails(of(FlowKey { remote: unspecified, ..key }, 4), "cannot be an end of a connection");
    let no_port = std::net::SocketAddr::new(key.local.ip(), 0);
    fails(of(FlowKey { local: no_port, ..key }, 4), "cannot be an end of a connection");
    // A number that was cleared is free.
    bench.program.clear_flow(key).expect("to clear");
    bench.program.clear_flow(key).expect("to clear twice");
    let next = FlowKey { local: std::net::SocketAddr::new(key.local.ip(), 5_000), ..key };
    bench.program.set_flow(&of(next, 1)).expect("free again");
    // A link without room for any has its own error.
    let mut none = Bench::new(&options(ipv4()));
    assert!(none.program.set_flow(&of(key, 0)).expect_err("none").to_string().contains("flows_max"));
}

/// The neighbour's packets are found first, as they were.
#[test]
fn the_neighbours_packets_are_judged_as_ever() {
    if !privileged() {
        return;
    }
    for ends in FAMILIES.map(|ends| ends()) {
        let mut bench = bench(ends);
        bench.program.set_filter(&filter()).expect("to set");
        let tag = bench.expect_steer(&Data::guaranteed(10).frame(ends), Stream::Guaranteed);
        assert_eq!(usize::from(tag.bytes), 74);
        bench.expect_drop(&Data { cookie: 1, ..Data::guaranteed(10) }.frame(ends), Reason::WrongCookie);
    }
}

/// What the program ought to do with TCP, from the frame's bytes; ICMP and extension headers are left out.
fn model(frame: &[u8]) -> Option<Fate> {
    let be16 = |at: usize| Some(u16::from_be_bytes(*frame.get(at..)?.first_chunk()?));
    let (known, addresses, tcp, end) = match be16(12)? {
        0x0800 => {
            let words = usize::from(frame.get(14)? & 15);
            let is_tcp = frame[14] >> 4 == 4 && words >= 5 && *frame.get(23)? == 6 && be16(20)? & 0x1fff == 0;
            let addresses = is_tcp.then(|| frame.get(26..34))??;
            (flows()[0], addresses, 14 + words * 4, 14 + usize::from(be16(16)?))
        }
        0x86dd => {
            let is_tcp = frame.get(14)? >> 4 == 6 && *frame.get(20)? == 6;
            let addresses = is_tcp.then(|| frame.get(22..54))??;
            (flows()[1], addresses, 54, 54 + usize::from(be16(18)?))
        }
        _ => return None,
    };
    let wanted = Tcp::of(known).frame();
    let at = if known.local.is_ipv4() { 26 } else { 22 };
    let ours = wanted[at..][..addresses.len()] == *addresses
        && frame.get(tcp..tcp + 4)?
            == [known.remote.port().to_be_bytes(), known.local.port().to_be_bytes()].concat();
    if !ours {
        return None;
    }
    if known.local.is_ipv4() && be16(20)? & 0x2000 != 0 {
        return Some(Fate::Dropped(Reason::Fragmented));
    }
    let header = frame.get(tcp + 12).map_or(0, |byte| usize::from(byte >> 4) * 4);
    let fits = header >= 20 && tcp + header <= end && end <= frame.len() && end <= 14 + 1_500;
    let tag =
        Tag { received_ns: 0, stream_count: 0, path_count: 0, path: 0, offset: 38, bytes: (end - 14) as u16 };
    Some(if fits { Fate::Steered(INLET.stream, tag) } else { Fate::Dropped(Reason::Malformed) })
}

#[test]
fn no_broken_segment_is_judged_otherwise_than_it_should() {
    if !privileged() {
        return;
    }
    let mut bench = bench(ipv4());
    let mut random = Random(9);
    let mut seen = [0; 4];
    for number in 0..40_000 {
        let key = flows()[number % 2];
        let payload = vec![3; random.below(100)];
        let mut frame = Tcp { payload, ..Tcp::of(key) }.frame();
        mutate(&mut random, &mut frame);
        // Extension headers and ICMP have tests of their own.
        let next = frame.get(if frame.get(12) == Some(&0x08) { 23 } else { 20 });
        if next.is_some_and(|next| ![6, 17].contains(next)) {
            continue;
        }
        let fate = match bench.run(&frame) {
            Fate::Steered(stream, tag) => {
                Fate::Steered(stream, Tag { received_ns: 0, stream_count: 0, path_count: 0, path: 0, ..tag })
            }
            other => other,
        };
        let expected = model(&frame).unwrap_or(Fate::Passed);
        assert_eq!(fate, expected, "frame {number}: {frame:02x?}");
        seen[match expected {
            Fate::Passed => 0,
            Fate::Steered(..) => 1,
            Fate::Dropped(Reason::Fragmented) => 2,
            Fate::Dropped(_) => 3,
        }] += 1;
    }
    assert!(seen.iter().all(|count| *count >= 10), "{seen:?}");
}
