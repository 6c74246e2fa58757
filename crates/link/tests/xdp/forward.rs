//! Two links of one region: packets that come in on one go out on the other without a copy.

use punctual_link::xdp::{XdpLink, XdpMemory, XdpOptions};
use punctual_link::{Link, Port, Received};

use crate::bed::{Cable, Family, Host, best_effort, privileged, send, wait_for};

/// Forwards everything in place, as a node would: something in our header changes. Gives how many.
fn forward(from: &mut XdpLink, to: &mut XdpLink, batch: &mut Vec<Received>) -> usize {
    let count = from.receive(batch, 16).expect("works");
    for mut received in batch.drain(..) {
        received.frame.as_mut()[40..48].copy_from_slice(&777i64.to_le_bytes());
        let len = received.frame.as_ref().len() as u32;
        to.transmit_frame(received.port, received.frame, len)
            .expect("a frame of the region goes out in place");
    }
    to.flush().expect("works");
    to.completed();
    count
}

fn passes_in_place(from: Family, to: Family) {
    const PACKETS: u64 = 3_000;
    if !privileged() {
        return;
    }
    let [a, middle, b] = [Host::new(), Host::new(), Host::new()];
    let first = Cable::lay(1, 1_520, [&a, &middle]);
    let second = Cable::lay(2, 1_520, [&middle, &b]);
    let open = |host: &Host, options: &XdpOptions, memory: &XdpMemory| {
        host.within(|| XdpLink::open(options, memory)).expect("a link")
    };
    let small = |mut options: XdpOptions| {
        options.classifier.buffers = [32; 4];
        options.transmit_frames = 32;
        options
    };
    let (at_a, at_b) = (small(first.xdp(from, 0)), small(second.xdp(to, 1)));
    let (left, right) = (small(first.xdp(from, 1)), small(second.xdp(to, 0)));
    let own = |options: &XdpOptions| XdpMemory::new(options.frames_needed(), 2_048).expect("memory");
    let (mut a_link, mut b_link) = (open(&a, &at_a, &own(&at_a)), open(&b, &at_b, &own(&at_b)));
    let shared = XdpMemory::new(left.frames_needed() + right.frames_needed(), 2_048).expect("memory");
    let (mut left, mut right) = (open(&middle, &left, &shared), open(&middle, &right, &shared));
    assert_eq!(shared.unreserved(), 0);
    let (mut batch, mut out) = (Vec::with_capacity(16), Vec::with_capacity(16));
    for number in 0..PACKETS {
        let mut packet: Vec<u8> = (0..100 + number as usize % 1_300).map(|at| at as u8).collect();
        best_effort(&mut packet);
        packet[24..32].copy_from_slice(&number.to_le_bytes());
        let port = if number % 5 == 0 { Port::Signalling } else { Port::Data };
        send(&mut a_link, port, &packet);
        wait_for("the forwarder", || forward(&mut left, &mut right, &mut batch) > 0);
        wait_for("the far end", || b_link.receive(&mut out, 16).expect("works") > 0);
        let received = out.pop().expect("one packet");
        packet[40..48].copy_from_slice(&777i64.to_le_bytes());
        assert_eq!((received.port, received.frame.as_ref(), out.len()), (port, &packet[..], 0));
    }
    let counts = |link: &XdpLink| (link.statistics().packets_in, link.statistics().packets_out);
    assert_eq!((counts(&left), counts(&right)), ((PACKETS, 0), (0, PACKETS)));
    drop((left, right));
    assert_eq!(shared.unreserved(), shared.frames(), "frames on their way out came back with their link");
}

#[test]
fn frames_pass_in_place() {
    passes_in_place(Family::V4, Family::V4);
}

#[test]
fn frames_pass_in_place_from_ipv4_to_ipv6() {
    passes_in_place(Family::V4, Family::V6);
}

#[test]
fn a_frame_of_another_memory_is_given_back() {
    if !privileged() {
        return;
    }
    let (hosts, cable) = crate::bed::pair(1_520);
    let options = [0, 1].map(|end| cable.xdp(Family::V4, end));
    let open = |end: usize| {
        let memory = XdpMemory::new(options[end].frames_needed(), 2_048).expect("memory");
        hosts[end].within(|| XdpLink::open(&options[end], &memory)).expect("a link")
    };
    let (mut a, mut b) = (open(0), open(1));
    let mut packet = vec![1; 100];
    best_effort(&mut packet);
    send(&mut a, Port::Data, &packet);
    let mut out = Vec::new();
    wait_for("the packet", || b.receive(&mut out, 1).expect("works") > 0);
    let frame = out.remove(0).frame;
    let back = a.transmit_frame(Port::Data, frame, 100).expect_err("not of a's memory");
    assert_eq!(back.as_ref(), packet);
    b.transmit_frame(Port::Data, back, 100).expect("of b's memory");
    b.flush().expect("works");
    wait_for("the echo", || a.receive(&mut out, 1).expect("works") > 0);
    assert_eq!(out[0].frame.as_ref(), packet);
}
