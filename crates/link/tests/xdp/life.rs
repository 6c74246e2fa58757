//! Devices that come and go, and what cannot be opened.

use std::os::fd::AsRawFd;

use punctual_link::xdp::{Addresses, XdpLink, XdpMemory, XdpOptions, ZeroCopy};
use punctual_link::{Link, LinkError, Port, Received};
use rustix::event::epoll;
use rustix::thread::{CapabilitySet, capabilities, set_capabilities};

use crate::bed::{Cable, Family, Host, best_effort, pair, privileged, send, wait_for};

fn options(cable: Cable, end: usize) -> XdpOptions {
    let mut options = cable.xdp(Family::V4, end);
    options.classifier.buffers = [32; 4];
    options.transmit_frames = 32;
    options
}

fn memory_for(options: &XdpOptions) -> XdpMemory {
    XdpMemory::new(options.frames_needed(), 2_048).expect("memory")
}

fn open(host: &Host, options: &XdpOptions, memory: &XdpMemory) -> XdpLink {
    host.within(|| XdpLink::open(options, memory)).expect("a link")
}

fn packet() -> Vec<u8> {
    let mut packet = vec![3; 300];
    best_effort(&mut packet);
    packet
}

/// Sends until something arrives.
fn reaches(from: &mut XdpLink, to: &mut XdpLink) {
    let mut out: Vec<Received> = Vec::with_capacity(8);
    wait_for("a packet", || {
        send(from, Port::Data, &packet());
        to.receive(&mut out, 8).expect("works") > 0
    });
    assert_eq!(out[0].frame.as_ref(), packet());
}

#[test]
fn a_link_works_on_after_its_device_was_down() {
    if !privileged() {
        return;
    }
    let (hosts, cable) = pair(1_520);
    let both = [0, 1].map(|end| options(cable, end));
    let [mut a, mut b] = [0, 1].map(|end| open(&hosts[end], &both[end], &memory_for(&both[end])));
    reaches(&mut a, &mut b);
    hosts[0].run(&format!("ip link set {} down", cable.device()));
    let errors_before = a.statistics().send_errors;
    let mut completed = u64::from(a.completed());
    for _ in 0..100 {
        a.transmit_buffer().expect("room, or nothing is ever sent again")[..300].copy_from_slice(&packet());
        a.transmit(Port::Data, 300, 342).expect("it fits");
        a.flush().expect("a device that is down is no error");
        completed += u64::from(a.completed());
    }
    assert_eq!((completed, a.statistics().send_errors - errors_before), (100 * 342, 100));
    assert!(!a.is_gone() && !a.is_pending());
    hosts[0].run(&format!("ip link set {} up", cable.device()));
    reaches(&mut a, &mut b);
    reaches(&mut b, &mut a);
}

#[test]
fn a_removed_device_is_reported_and_leaves_nothing_behind() {
    if !privileged() {
        return;
    }
    let (hosts, cable) = pair(1_520);
    let [at_a, at_b] = [0, 1].map(|end| options(cable, end));
    let memory = memory_for(&at_a);
    let mut a = open(&hosts[0], &at_a, &memory);
    let mut b = open(&hosts[1], &at_b, &memory_for(&at_b));
    reaches(&mut b, &mut a);
    hosts[0].run(&format!("ip link delete {}", cable.device()));
    let mut out: Vec<Received> = Vec::with_capacity(64);
    wait_for("the link to see it", || {
        send(&mut a, Port::Data, &packet());
        a.receive(&mut out, 8).expect("no error");
        a.is_gone()
    });
    for _ in 0..100 {
        send(&mut a, Port::Data, &packet());
        assert_eq!(a.receive(&mut out, 8).expect("no error"), 0);
    }
    assert!(a.statistics().send_errors >= 100 && !a.is_pending());
    drop((a, b));
    assert!(memory.unreserved() == memory.frames() || !out.is_empty());
    out.clear();
    assert_eq!(memory.unreserved(), memory.frames());
    // The same memory serves the device that comes back.
    let cable = Cable::lay(1, 1_520, [&hosts[0], &hosts[1]]);
    let mut a = open(&hosts[0], &at_a, &memory);
    let mut b = open(&hosts[1], &at_b, &memory_for(&at_b));
    assert_eq!(cable.number, 1);
    for _ in 0..200 {
        reaches(&mut a, &mut b);
        reaches(&mut b, &mut a);
    }
}

#[test]
fn opened_and_closed_the_host_is_as_before() {
    if !privileged() {
        return;
    }
    let (hosts, cable) = pair(1_520);
    let photograph = || {
        let line = format!("ip -details link show {}", cable.device());
        let pinned = hosts[0].run("sh -c 'cat /proc/net/xdp 2>/dev/null; true'");
        hosts[0].run(&line) + &pinned
    };
    let before = photograph();
    let options = options(cable, 0);
    let memory = memory_for(&options);
    for _ in 0..20 {
        let mut link = open(&hosts[0], &options, &memory);
        assert_ne!(photograph(), before);
        // Frames in the kernel's rings, one being filled, none held.
        send(&mut link, Port::Data, &packet());
        link.transmit_buffer().expect("room");
    }
    wait_for("the host to be as before", || photograph() == before);
    assert_eq!(memory.unreserved(), memory.frames());
}

#[test]
fn held_frames_outlive_their_link_and_stay_reserved() {
    if !privileged() {
        return;
    }
    let (hosts, cable) = pair(1_520);
    let [at_a, at_b] = [0, 1].map(|end| options(cable, end));
    let memory = memory_for(&at_b);
    let mut a = open(&hosts[0], &at_a, &memory_for(&at_a));
    let mut b = open(&hosts[1], &at_b, &memory);
    let mut out = Vec::with_capacity(8);
    send(&mut a, Port::Data, &packet());
    wait_for("a packet", || b.receive(&mut out, 8).expect("works") > 0);
    drop(b);
    assert_eq!(memory.unreserved(), 0);
    let refused = hosts[1].within(|| XdpLink::open(&at_b, &memory)).expect_err("held").to_string();
    assert!(refused.contains("frames are") || refused.contains("are free"), "{refused}");
    assert_eq!(out[0].frame.as_ref(), packet());
    out.clear();
    assert_eq!(memory.unreserved(), memory.frames());
    let mut b = open(&hosts[1], &at_b, &memory);
    reaches(&mut a, &mut b);
}

#[test]
fn no_wake_up_is_lost_edge_triggered() {
    const ROUNDS: u64 = 2_000;
    if !privileged() {
        return;
    }
    let (hosts, cable) = pair(1_520);
    let both = [0, 1].map(|end| options(cable, end));
    let [mut a, mut b] = [0, 1].map(|end| open(&hosts[end], &both[end], &memory_for(&both[end])));
    let watched = epoll::create(epoll::CreateFlags::CLOEXEC).expect("epoll");
    for fd in b.descriptors() {
        let data = epoll::EventData::new_u64(fd.as_raw_fd() as u64);
        let edges = epoll::EventFlags::IN | epoll::EventFlags::ET;
        epoll::add(&watched, fd, data, edges).expect("to watch");
    }
    let (ask, asked) = std::sync::mpsc::sync_channel::<u64>(1);
    let sender = std::thread::spawn(move || {
        // Per request a burst of one to seven packets, over both ports.
        for round in asked {
            for number in 0..=round % 7 {
                let port = if number % 3 == 0 { Port::Signalling } else { Port::Data };
                send(&mut a, port, &packet());
            }
        }
    });
    let mut out: Vec<Received> = Vec::with_capacity(8);
    let mut events =
        [epoll::Event { flags: epoll::EventFlags::empty(), data: epoll::EventData::new_u64(0) }; 8];
    for round in 0..ROUNDS {
        ask.send(round).expect("the sender runs");
        let mut missing = round % 7 + 1;
        while missing > 0 {
            let patience = rustix::event::Timespec { tv_sec: 20, tv_nsec: 0 };
            let ready = epoll::wait(&watched, &mut events[..], Some(&patience)).expect("epoll");
            assert!(ready > 0, "round {round}: {missing} packets came without a wake-up");
            loop {
                let count = b.receive(&mut out, 8).expect("works");
                missing -= count as u64;
                out.clear();
                if count < 8 {
                    break;
                }
            }
        }
    }
    drop(ask);
    sender.join().expect("the sender ends");
}

#[test]
fn nothing_is_sent_before_the_next_hop_is_known() {
    if !privileged() {
        return;
    }
    let (hosts, cable) = pair(1_520);
    let [at_a, at_b] = [0, 1].map(|end| options(cable, end));
    let at_a = XdpOptions { addresses: Some(Addresses::new(cable.mac(0), None)), ..at_a };
    let mut a = open(&hosts[0], &at_a, &memory_for(&at_a));
    let mut b = open(&hosts[1], &at_b, &memory_for(&at_b));
    for _ in 0..10 {
        send(&mut a, Port::Data, &packet());
    }
    assert_eq!((a.statistics().send_errors, a.statistics().packets_out), (10, 0));
    a.addresses().set_peer(Some(cable.mac(1)));
    reaches(&mut a, &mut b);
}

#[test]
fn the_error_of_a_failed_open_names_the_fix() {
    if !privileged() {
        return;
    }
    let (hosts, cable) = pair(1_520);
    let good = options(cable, 0);
    let memory = memory_for(&good);
    let fails = |options: &XdpOptions, memory: &XdpMemory, message: &str| {
        let error = hosts[0].within(|| XdpLink::open(options, memory)).expect_err("refused").to_string();
        assert!(error.contains(message) && !error.contains('\n'), "{message}: {error}");
    };
    let with = |change: &dyn Fn(&mut XdpOptions)| {
        let mut options = good.clone();
        change(&mut options);
        options
    };
    fails(&with(&|options| options.queue = 1), &memory, "queue");
    fails(&with(&|options| options.queue = 64), &memory, "below 64");
    fails(&with(&|options| options.classifier.packet_bytes_max = 1_729), &memory, "1 to 1728 B");
    fails(&with(&|options| options.classifier.buffers[3] = 0), &memory, "give 1 to");
    fails(&with(&|options| options.classifier.device = "none".into()), &memory, "none");
    fails(&with(&|options| options.zero_copy = ZeroCopy::Yes), &memory, "zero_copy = \"auto\"");
    fails(&with(&|options| options.transmit_frames = 33), &memory, "give XdpMemory at least");
    let link = open(&hosts[0], &good, &memory);
    let other = memory_for(&good);
    fails(&good, &other, "XDP program");
    drop(link);
    // And then everything is free again.
    drop(open(&hosts[0], &good, &memory));
    assert_eq!((memory.unreserved(), other.unreserved()), (memory.frames(), other.frames()));
}

#[test]
fn too_few_locked_pages_are_reported() {
    if !privileged() {
        return;
    }
    let (hosts, cable) = pair(1_520);
    let good = options(cable, 0);
    // More than the limit that is set; every other test has the right not to be limited.
    let limit = rustix::process::Rlimit { current: Some(1 << 20), maximum: Some(1 << 20) };
    let memory = XdpMemory::new(2_048, 2_048).expect("4 MiB");
    rustix::process::setrlimit(rustix::process::Resource::Memlock, limit).expect("to lower the limit");
    let refused = hosts[0].within(|| {
        let mut rights = capabilities(None).expect("rights");
        rights.effective.remove(CapabilitySet::IPC_LOCK);
        set_capabilities(None, rights).expect("to give up a right of this thread");
        XdpLink::open(&good, &memory)
    });
    let error = refused.expect_err("refused");
    assert!(matches!(error, LinkError::Os { .. }), "{error:?}");
    let text = error.to_string();
    assert!(text.contains("LimitMEMLOCK") && text.contains("CAP_IPC_LOCK"), "{text}");
    assert_eq!(memory.unreserved(), memory.frames());
}
