//! Streams do not take from one another, and the most urgent comes first.

use punctual_link::xdp::{XdpLink, XdpMemory};
use punctual_link::{Filter, Link, PathKey, Port, Received, Stream};

use crate::bed::{COOKIE, EPOCH, Family, Host, best_effort, of_channel, pair, privileged, send, wait_for};

const BUFFERS: [u32; 4] = [8, 16, 16, 64];
const LOW_LATENCY: u32 = 7;
const GUARANTEED: u32 = 8;

fn filter(channel: u32, stream: Stream) -> Filter {
    Filter {
        path: PathKey { node: 1, channel, epoch: EPOCH },
        cookie: COOKIE,
        stream,
        packet_bytes_max: 1_464,
        burst_packets: 1_000,
        interval_ns: 1,
        slack_ns_min: None,
        buffers: 16,
    }
}

/// A sender, and a receiver that lets two channels in.
fn two_channels() -> ([Host; 2], XdpLink, XdpLink) {
    let (hosts, cable) = pair(1_520);
    let open = |end: usize, buffers| {
        let mut options = cable.xdp(Family::V4, end);
        options.classifier.buffers = buffers;
        let memory = XdpMemory::new(options.frames_needed(), 2_048).expect("memory");
        hosts[end].within(|| XdpLink::open(&options, &memory)).expect("a link")
    };
    let (a, mut b) = (open(0, [1; 4]), open(1, BUFFERS));
    b.set_filter(&filter(LOW_LATENCY, Stream::LowLatency)).expect("a filter");
    b.set_filter(&filter(GUARANTEED, Stream::Guaranteed)).expect("a filter");
    (hosts, a, b)
}

fn packet_of(stream: Stream, number: u8) -> (Port, Vec<u8>) {
    let mut packet = vec![number; 200];
    let port = match stream {
        Stream::Signalling => return (Port::Signalling, packet),
        Stream::BestEffort => {
            best_effort(&mut packet);
            Port::Data
        }
        Stream::LowLatency => {
            of_channel(&mut packet, LOW_LATENCY);
            Port::Data
        }
        Stream::Guaranteed => {
            of_channel(&mut packet, GUARANTEED);
            Port::Data
        }
    };
    (port, packet)
}

fn send_to(link: &mut XdpLink, stream: Stream, number: u8) {
    let (port, packet) = packet_of(stream, number);
    send(link, port, &packet);
}

/// Which stream each was sent to, and its number.
fn reported(received: &[Received]) -> Vec<(Stream, u8)> {
    let of = |received: &Received| {
        let packet = received.frame.as_ref();
        let stream = match (received.port, packet[1], packet[8]) {
            (Port::Signalling, ..) => Stream::Signalling,
            (Port::Data, 1, 7) => Stream::LowLatency,
            (Port::Data, 1, 8) => Stream::Guaranteed,
            _ => Stream::BestEffort,
        };
        (stream, packet[199])
    };
    received.iter().map(of).collect()
}

#[test]
fn the_most_urgent_stream_is_received_first() {
    if !privileged() {
        return;
    }
    let (_hosts, mut a, mut b) = two_channels();
    for number in 0..4 {
        for stream in Stream::ALL.into_iter().rev() {
            send_to(&mut a, stream, number);
        }
    }
    let mut out = Vec::with_capacity(16);
    wait_for("all packets", || b.packets_waiting() == 16);
    assert_eq!(b.receive_from(Stream::LowLatency, &mut out, 6).expect("works"), 6);
    let expected = |stream, numbers: std::ops::Range<u8>| numbers.map(move |number| (stream, number));
    let mut first: Vec<_> = expected(Stream::Signalling, 0..4).collect();
    first.extend(expected(Stream::LowLatency, 0..2));
    assert_eq!(reported(&out), first);
    out.clear();
    assert_eq!(b.receive_from(Stream::LowLatency, &mut out, 16).expect("works"), 2);
    assert_eq!(b.receive_from(Stream::LowLatency, &mut out, 16).expect("works"), 0);
    send_to(&mut a, Stream::Signalling, 9);
    wait_for("one more", || b.packets_waiting() == 9);
    out.clear();
    assert_eq!(b.receive(&mut out, 16).expect("works"), 9);
    let mut rest = vec![(Stream::Signalling, 9)];
    rest.extend(expected(Stream::Guaranteed, 0..4).chain(expected(Stream::BestEffort, 0..4)));
    assert_eq!(reported(&out), rest);
}

/// Buffers that a flood of a stream can take. Signalling here is that of an unknown sender: half is kept for
/// the neighbour.
fn room(stream: Stream) -> u32 {
    let buffers = BUFFERS[stream as usize];
    if stream == Stream::Signalling { buffers.div_ceil(2) } else { buffers }
}

#[test]
fn a_flood_in_one_stream_takes_no_frame_of_another() {
    const FLOOD: u64 = 2_000;
    if !privileged() {
        return;
    }
    for flooded in Stream::ALL {
        let (_hosts, mut a, mut b) = two_channels();
        let limit = room(flooded);
        for round in 0..2 {
            let dropped_before = b.stream_drops().no_buffer;
            for number in 0..FLOOD {
                send_to(&mut a, flooded, number as u8);
            }
            // A receiver holds the packets of the flood without giving them back, and no further ones arrive.
            let mut held = Vec::with_capacity(256);
            wait_for("the flood", || b.packets_waiting() == limit);
            while b.receive(&mut held, 16).expect("works") > 0 {}
            assert_eq!(held.len(), limit as usize, "{flooded:?}");
            assert_eq!(b.stream_drops().no_buffer - dropped_before, FLOOD - u64::from(limit));
            for other in Stream::ALL.into_iter().filter(|stream| *stream != flooded) {
                let mut out = Vec::with_capacity(64);
                let others = room(other) as u8;
                for number in 0..others {
                    send_to(&mut a, other, number);
                }
                wait_for("the other stream", || {
                    b.receive(&mut out, 16).expect("works");
                    out.len() == usize::from(others)
                });
                let expected: Vec<_> = (0..others).map(|number| (other, number)).collect();
                assert_eq!(reported(&out), expected, "{flooded:?} flooded, round {round}");
            }
        }
    }
}

#[test]
fn a_path_has_its_own_buffers_too_and_unknown_ones_have_none() {
    if !privileged() {
        return;
    }
    let (_hosts, mut a, mut b) = two_channels();
    b.set_filter(&Filter { buffers: 3, ..filter(GUARANTEED, Stream::Guaranteed) }).expect("a filter");
    b.set_filter(&filter(9, Stream::Guaranteed)).expect("a filter");
    for number in 0..10 {
        send_to(&mut a, Stream::Guaranteed, number);
    }
    let mut other = vec![0; 200];
    of_channel(&mut other, 9);
    send(&mut a, Port::Data, &other);
    of_channel(&mut other, 10);
    send(&mut a, Port::Data, &other);
    let mut held = Vec::with_capacity(64);
    wait_for("both channels", || {
        b.receive(&mut held, 16).expect("works");
        held.len() == 4
    });
    let channels: Vec<u8> = held.iter().map(|received| received.frame.as_ref()[8]).collect();
    assert_eq!(channels, [8, 8, 8, 9]);
    let drops = b.stream_drops();
    assert_eq!((drops.no_buffer, drops.unknown), (7, 1));
    held.clear();
    send_to(&mut a, Stream::Guaranteed, 11);
    wait_for("the next", || b.receive(&mut held, 16).expect("works") == 1);
    b.clear_filter(PathKey { node: 1, channel: GUARANTEED, epoch: EPOCH }).expect("works");
    send_to(&mut a, Stream::Guaranteed, 12);
    wait_for("the drop", || b.stream_drops().unknown == 2);
}
