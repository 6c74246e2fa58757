//! Every verdict, with packets made by hand.

use punctual_link::xdp::{Program, Tag};
use punctual_link::{Filter, LinkError, PathKey, Stream};
use rustix::time::{ClockId, clock_gettime};

use crate::frames::{Data, FAMILIES, PATH, Udp, ipv4, ipv6};
use crate::model::{Expected, classify};
use crate::support::{Bench, Fate, Reason, filter, options, privileged};

fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

#[test]
fn each_stream_gets_its_own() {
    if !privileged() {
        return;
    }
    for ends in FAMILIES.map(|ends| ends()) {
        let mut bench = Bench::of(ends);
        let demoted = Data { flags: 1, ..Data::guaranteed(100) };
        let offset = Udp::data(ends, vec![]).offset();
        let before = now_ns();
        for (frame, stream, bytes) in [
            (Udp::signalling(ends, vec![1; 33]).frame(), Stream::Signalling, 33),
            (Data::guaranteed(100).frame(ends), Stream::Guaranteed, 164),
            (demoted.frame(ends), Stream::BestEffort, 164),
            (Data::best_effort(0).frame(ends), Stream::BestEffort, 64),
        ] {
            let tag = bench.expect_steer(&frame, stream);
            assert_eq!((tag.offset as usize, tag.bytes), (offset, bytes));
            assert_eq!(tag.path == Tag::NO_PATH, stream != Stream::Guaranteed);
            assert!((before..=now_ns()).contains(&tag.received_ns), "the time is CLOCK_MONOTONIC");
        }
        let low_latency = Filter { stream: Stream::LowLatency, ..filter() };
        bench.program.set_filter(&low_latency).expect("to replace the filter");
        bench.expect_steer(&Data::guaranteed(100).frame(ends), Stream::LowLatency);
    }
}

#[test]
fn what_is_foreign_passes_untouched() {
    if !privileged() {
        return;
    }
    for ends in FAMILIES.map(|ends| ends()) {
        let mut bench = Bench::of(ends);
        let ours = Data::guaranteed(100).frame(ends);
        let ip_protocol = if ends.local.is_ipv4() { 14 + 9 } else { 14 + 6 };
        let last_of_source = if ends.local.is_ipv4() { 14 + 15 } else { 14 + 23 };
        let last_of_destination = last_of_source + if ends.local.is_ipv4() { 4 } else { 16 };
        for byte in [12, 13, ip_protocol, last_of_source, last_of_destination] {
            let mut frame = ours.clone();
            frame[byte] ^= 0x40;
            assert_eq!(bench.run(&frame), Fate::Passed, "byte {byte}");
        }
        let other_port = Udp { ports: (8_001, 7_002), ..Udp::data(ends, vec![0; 80]) };
        assert_eq!(bench.run(&other_port.frame()), Fate::Passed);
        let mut tagged = ours.clone();
        tagged.splice(12..12, [0x81, 0, 0, 5]);
        assert_eq!(bench.run(&tagged), Fate::Passed, "a VLAN's packet belongs to the VLAN's interface");
    }
    let mut bench = Bench::of(ipv4());
    assert_eq!(bench.run(&Data::guaranteed(1).frame(ipv6())), Fate::Passed, "the other family");
    for fragment in [[0x20, 0], [0, 1]] {
        let mut frame = Data::guaranteed(100).frame(ipv4());
        frame[20..22].copy_from_slice(&fragment);
        assert_eq!(bench.run(&frame), Fate::Passed, "IP fragments are none of ours");
    }
}

#[test]
fn packets_without_a_receiver_are_dropped_and_counted_by_reason() {
    if !privileged() {
        return;
    }
    let good = Data::guaranteed(100);
    let best_effort = Data::best_effort(100);
    let other = |change: fn(&mut PathKey)| {
        let mut path = PATH;
        change(&mut path);
        Data { path, ..good }
    };
    let cases = [
        (Reason::Malformed, Data { version: 1, ..good }),
        (Reason::Malformed, Data { kind: 0, ..good }),
        (Reason::Malformed, Data { kind: 3, ..good }),
        (Reason::Malformed, Data { flags: 2, ..good }),
        (Reason::Malformed, Data { flags: 0x100, ..good }),
        (Reason::Malformed, Data { flags: 1, ..best_effort }),
        (Reason::Malformed, Data { destination: 0, ..best_effort }),
        (Reason::Malformed, other(|path| path.node = 0)),
        (Reason::Malformed, Data { fragments: 0, ..good }),
        (Reason::Malformed, Data { fragment: 3, fragments: 3, ..good }),
        (Reason::Malformed, Data { message_bytes: 99, ..good }),
        (Reason::Unknown, other(|path| path.node += 1)),
        (Reason::Unknown, other(|path| path.channel += 1)),
        (Reason::Unknown, other(|path| path.epoch += 1 << 40)),
        (Reason::WrongCookie, Data { cookie: good.cookie ^ 1, ..good }),
        (Reason::Expired, Data { slack_ns: -1_001, ..good }),
        (Reason::Expired, Data { slack_ns: -1_001, flags: 1, ..good }),
        (Reason::Malformed, Data { payload_bytes: 1_401, message_bytes: 1_401, ..good }),
    ];
    for ends in FAMILIES.map(|ends| ends()) {
        let mut bench = Bench::of(ends);
        let late = Filter { slack_ns_min: Some(-1_000), ..filter() };
        bench.program.set_filter(&late).expect("to set the filter");
        for (reason, data) in cases {
            bench.expect_drop(&data.frame(ends), reason);
        }
        let just_in_time = Data { slack_ns: -1_000, payload_bytes: 1_400, message_bytes: 1_400, ..good };
        bench.expect_steer(&just_in_time.frame(ends), Stream::Guaranteed);
        let foreign = Udp { ports: (4_000, 7_001), ..Udp::data(ends, good.packet()) };
        bench.expect_drop(&foreign.frame(), Reason::Unknown);
        let foreign = Udp { ports: (4_000, 7_000), ..Udp::data(ends, vec![1]) };
        bench.expect_drop(&foreign.frame(), Reason::Unknown);
        bench.expect_drop(&Udp::signalling(ends, vec![]).frame(), Reason::Malformed);
        bench.expect_drop(&Udp::signalling(ends, vec![0; 1_465]).frame(), Reason::Malformed);
    }
}

#[test]
fn a_path_is_known_from_set_to_clear() {
    if !privileged() {
        return;
    }
    let mut bench = Bench::new(&options(ipv4()));
    let frame = Data::guaranteed(10).frame(ipv4());
    bench.expect_drop(&frame, Reason::Unknown);
    for _ in 0..3 {
        bench.program.set_filter(&filter()).expect("to set");
        bench.expect_steer(&frame, Stream::Guaranteed);
        bench.program.clear_filter(PATH).expect("to clear");
        bench.program.clear_filter(PATH).expect("to clear what is not there");
        bench.expect_drop(&frame, Reason::Unknown);
    }
}

#[test]
fn without_a_socket_nothing_reaches_the_kernel() {
    if !privileged() {
        return;
    }
    let mut program = Program::load(&options(ipv4())).expect("to load");
    program.set_filter(&filter()).expect("to set");
    let frames = [Udp::signalling(ipv4(), vec![1]).frame(), Data::guaranteed(1).frame(ipv4())];
    for (count, frame) in frames.into_iter().enumerate() {
        let (verdict, _) = program.run(&mut frame.clone(), 1).expect("to run");
        assert_eq!(verdict, punctual_link::xdp::Verdict::Drop);
        assert_eq!(program.drops().no_buffer, count as u64 + 1);
    }
}

/// Every length to which a frame can be cut (the kernel gives programs 14 bytes at least), and every length that IP
/// and UDP can claim.
#[test]
fn cut_and_lying_packets_are_judged_at_every_length() {
    if !privileged() {
        return;
    }
    for ends in FAMILIES.map(|ends| ends()) {
        let options = options(ends);
        let mut bench = Bench::of(ends);
        for whole in [Data::guaranteed(20).frame(ends), Udp::signalling(ends, vec![7; 20]).frame()] {
            for length in 14..=whole.len() {
                check(&mut bench, &whole[..length], &options);
            }
            let ip_length = if ends.local.is_ipv4() { 16 } else { 18 };
            let udp_length = if ends.local.is_ipv4() { 14 + 20 + 4 } else { 14 + 40 + 4 };
            for field in [ip_length, udp_length] {
                for claim in (0..=140).chain([1_000, 1_500, 9_000, 0x7fff, 0x8000, 0xffff_u16]) {
                    let mut frame = whole.clone();
                    frame[field..field + 2].copy_from_slice(&claim.to_be_bytes());
                    check(&mut bench, &frame, &options);
                }
            }
            if ends.local.is_ipv4() {
                for words in 0..16 {
                    let mut frame = whole.clone();
                    frame[14] = 0x40 | words;
                    check(&mut bench, &frame, &options);
                }
            }
            let mut padded = whole.clone();
            padded.extend([0; 40]);
            check(&mut bench, &padded, &options);
        }
    }
}

fn check(bench: &mut Bench, frame: &[u8], options: &punctual_link::xdp::ClassifierOptions) {
    let expected = classify(frame, options, &filter());
    assert_eq!(judge(bench, frame), expected, "frame {frame:02x?}");
}

/// The program's effect, as a result of the model's type.
pub fn judge(bench: &mut Bench, frame: &[u8]) -> Expected {
    match bench.run(frame) {
        Fate::Passed => Expected::Pass,
        Fate::Dropped(reason) => Expected::Drop(reason),
        Fate::Steered(stream, tag) => {
            let (offset, bytes) = (tag.offset.into(), tag.bytes.into());
            Expected::Steer { stream: stream as usize, offset, bytes }
        }
    }
}

/// Longer than a page: the driver hands it over in several pieces.
#[test]
fn packets_in_several_pieces_are_steered_whole() {
    if !privileged() {
        return;
    }
    let options = punctual_link::xdp::ClassifierOptions { packet_bytes_max: 9_000, ..options(ipv4()) };
    let mut bench = Bench::new(&options);
    bench.program.set_filter(&Filter { packet_bytes_max: 9_000, ..filter() }).expect("to set");
    let tag = bench.expect_steer(&Data::guaranteed(8_900).frame(ipv4()), Stream::Guaranteed);
    assert_eq!(tag.bytes, 8_964);
    let mut cut = Data::guaranteed(8_900).frame(ipv4());
    cut.truncate(8_000);
    bench.expect_drop(&cut, Reason::Malformed);
}

#[test]
fn what_cannot_be_is_refused() {
    if !privileged() {
        return;
    }
    let ends = ipv4();
    let refused = |change: &dyn Fn(&mut punctual_link::xdp::ClassifierOptions)| {
        let mut options = options(ends);
        change(&mut options);
        Program::load(&options).expect_err("out of range").to_string()
    };
    assert!(refused(&|options| options.peer = ipv6().peer).contains("families"));
    assert!(refused(&|options| options.data_port = options.signalling_port).contains("two ports"));
    assert!(refused(&|options| options.filters_max = 0).contains("paths"));
    assert!(refused(&|options| options.packet_bytes_max = 0).contains("datagram"));

    let mut program = Program::load(&options(ends)).expect("to load");
    for bad in [
        Filter { burst_packets: 0, ..filter() },
        Filter { interval_ns: 0, ..filter() },
        Filter { buffers: 0, ..filter() },
    ] {
        assert!(matches!(program.set_filter(&bad), Err(LinkError::Options(_))));
    }
    let long = Filter { packet_bytes_max: 1_465, ..filter() };
    assert!(matches!(program.set_filter(&long), Err(LinkError::TooLong { .. })));
    assert!(program.set_rate(Stream::Guaranteed, None).is_err());
    let file = std::fs::File::open("/dev/null").expect("to open");
    assert!(program.register(0, Stream::Guaranteed, std::os::fd::AsFd::as_fd(&file)).is_err());

    for channel in 0..64 {
        let path = PathKey { channel, ..PATH };
        program.set_filter(&Filter { path, ..filter() }).expect("room for 64");
    }
    let more = Filter { path: PathKey { channel: 64, ..PATH }, ..filter() };
    assert!(program.set_filter(&more).expect_err("full").to_string().contains("filters_max"));
    program.clear_filter(PathKey { channel: 5, ..PATH }).expect("to clear");
    program.set_filter(&more).expect("room again");
}
