//! A program reads the counters of its channels in memory that the processor writes. No request is sent, no
//! program can write there, and the values equal those of a request. Two daemons as processes.

mod common;

use std::os::fd::{AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

use common::hosts::{Hosts, Wanted};
use common::program::folder;
use common::raw::Raw;
use common::{contract, eventually};
use punctual::{Channel, ChannelState, Consent, Endsystem, Error};
use punctual_ipc::api::{Answer, HostStatus, Request};
use punctual_ipc::ring::{OutboxWriter, RingHandles};
use punctual_proto::Ppm;
use punctual_proto::api::{ChannelStatus, RequestError};
use punctual_proto::ids::ChannelId;
use rustix::fs::{FallocateFlags, Mode, OFlags, SealFlags};
use rustix::io::Errno;
use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap, mprotect, munmap};

fn status(host: &Endsystem) -> HostStatus {
    host.status().expect("status")
}

fn loops(status: &HostStatus) -> u64 {
    status.engine.loops
}

/// The status of a channel in the answer to a request.
fn requested(raw: &Raw, channel: ChannelId) -> ChannelStatus {
    match raw.ask(Request::Channel { channel }).0 {
        Ok(Answer::Channel(status)) => *status,
        other => panic!("{other:?}"),
    }
}

/// The status without the load of its stages, which is as of the last request.
fn comparable(mut status: ChannelStatus) -> ChannelStatus {
    status.stages.iter_mut().for_each(|stage| stage.utilisation = Ppm(0));
    status
}

/// Reads states for `span`; how many.
fn hammer(channel: &Channel, span: Duration) -> u64 {
    let until = Instant::now() + span;
    let mut read = 0;
    while Instant::now() < until {
        channel.state().expect("it is open");
        read += 1;
    }
    read
}

#[test]
fn a_program_that_reads_states_without_end_sends_no_requests() {
    const SPAN: Duration = Duration::from_secs(1);
    let folder = folder("counters-ask");
    let mut hosts = Hosts::start(&folder, 0, &Wanted::default(), str::to_owned);
    hosts.are_undisturbed();
    // The parts that are no counters are requested once.
    let [on_a, on_b] = &hosts.connections;
    hosts.channel.state().expect("open");
    hosts.receiver.state().expect("open");

    let before = status(on_a);
    std::thread::sleep(SPAN);
    let rested = status(on_a);
    let read = hammer(&hosts.channel, SPAN);
    let after = status(on_a);
    assert_eq!(after.api.requests, rested.api.requests + 1, "the status itself, for {read} states");
    let (at_rest, meanwhile) = (loops(&rested) - loops(&before), loops(&after) - loops(&rested));
    println!("{read} states; turns of the processor: {at_rest} before, {meanwhile} meanwhile");
    assert!(read > 1_000 && meanwhile <= at_rest * 2 + 50, "{read} states, {at_rest} and {meanwhile} turns");

    let before = status(on_b).api.requests;
    for _ in 0..1_000 {
        hosts.receiver.state().expect("open");
    }
    assert_eq!(status(on_b).api.requests, before + 1);

    // For a channel that has ended no request is sent either.
    let listener = on_b.listen("brief", |_| Consent::Accept).expect("a listener");
    let brief = on_a.open("brief@b", contract(100, 10, 300)).expect("a channel");
    brief.state().expect("open");
    drop(listener.accept_timeout(common::PATIENCE).expect("no error").expect("a channel"));
    eventually("it has ended", || brief.is_closed());
    let before = status(on_a).api.requests;
    assert!(matches!(brief.state(), Err(Error::Request(RequestError::Unknown))));
    assert_eq!(status(on_a).api.requests, before + 1);
    hosts.are_undisturbed();
    std::fs::remove_dir_all(folder).expect("removed");
}

#[test]
fn a_program_reads_the_same_counters_as_a_request_returns() {
    let folder = folder("counters-agree");
    let mut hosts = Hosts::start(&folder, 1, &Wanted::default(), str::to_owned);
    let raw = [&hosts.a.socket, hosts.socket_of_b()].map(Raw::greeted);
    let count = |state: &ChannelState| state.status.counters.messages_out;
    let mut buffer = [0; 200];
    for number in 0..60_u8 {
        // Now and then more than its contract allows.
        for _ in 0..if number % 10 == 0 { 6 } else { 1 } {
            let before = hosts.channel.state().expect("open");
            hosts.channel.send(&[number; 150]).expect("sent");
            assert!(hosts.channel.flush(common::PATIENCE).expect("open"));
            let after = hosts.channel.state().expect("open");
            assert!(count(&after) > count(&before), "what is sent is counted for who knows of it");
            hosts.receiver.recv_timeout(&mut buffer, common::PATIENCE).expect("received");
            let here = hosts.receiver.state().expect("open");
            assert_eq!(count(&here), count(&after), "and what is received");
        }
    }
    let (sent, received) = (hosts.channel.state().expect("open"), hosts.receiver.state().expect("open"));
    assert!(sent.status.counters.messages_out >= 60 && received.status.observed.is_some());
    let agrees = |state: ChannelState, raw: &Raw| {
        let channel = state.status.channel;
        assert_eq!(comparable(state.status), comparable(requested(raw, channel)));
    };
    agrees(sent, &raw[0]);
    agrees(received, &raw[1]);
    std::fs::remove_dir_all(folder).expect("removed");
}

/// The outgoing ring of a channel that a program opens by hand, with another hold on the daemon's file.
fn open_by_hand(raw: &Raw) -> (ChannelId, OwnedFd, OutboxWriter) {
    let to = "target@b".parse().expect("an address");
    let open = Request::Open { to, contract: contract(100, 10, 300), token: None };
    let (answer, descriptors) = raw.ask(open);
    let Ok(Answer::Opened { channel, ring: shape, .. }) = answer else { panic!("{answer:?}") };
    let file = descriptors[0].try_clone().expect("a descriptor");
    let writer = OutboxWriter::attach(RingHandles { shape, descriptors }).expect("attached");
    assert_eq!(raw.ask(Request::Attached { channel }).0, Ok(Answer::Done));
    (channel, file, writer)
}

/// All that is known to write into the file of another.
fn attack(file: &OwnedFd) {
    let length = rustix::fs::fstat(file).expect("a file").st_size as usize;
    let writable = ProtFlags::READ | ProtFlags::WRITE;
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    let again = rustix::fs::open(path, OFlags::RDWR, Mode::empty());
    for file in [Some(file), again.as_ref().ok()].into_iter().flatten() {
        // SAFETY: fresh mappings of whole files, which are not borrowed.
        unsafe {
            let none = std::ptr::null_mut();
            assert_eq!(mmap(none, length, writable, MapFlags::SHARED, file, 0), Err(Errno::PERM));
            let base = mmap(none, length, ProtFlags::READ, MapFlags::SHARED, file, 0).expect("for reading");
            let raised = mprotect(base, length, MprotectFlags::READ | MprotectFlags::WRITE);
            assert_eq!(raised, Err(Errno::ACCESS));
            // The program may write its own copy, which does not affect the file.
            let copy = mmap(none, length, writable, MapFlags::PRIVATE, file, 0).expect("a copy");
            std::ptr::write_bytes(copy.cast::<u8>(), 0xff, length);
            munmap(copy, length).expect("unmapped");
            munmap(base, length).expect("unmapped");
        }
        assert_eq!(rustix::io::pwrite(file, &[0xff; 64], 256), Err(Errno::PERM));
        let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        assert_eq!(rustix::fs::fallocate(file, punch, 0, 4_096), Err(Errno::PERM));
        assert_eq!(rustix::fs::ftruncate(file, 0), Err(Errno::PERM));
    }
    let seals = rustix::fs::fcntl_get_seals(file).expect("seals");
    assert!(seals.contains(SealFlags::FUTURE_WRITE | SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL));
}

#[test]
fn only_the_daemon_writes_counters() {
    let folder = folder("counters-hostile");
    let mut hosts = Hosts::start(&folder, 2, &Wanted::default(), str::to_owned);
    let listener = hosts.connections[1].listen("target", |_| Consent::Accept).expect("a listener");
    let raw = Raw::greeted(&hosts.a.socket);
    let (channel, file, mut writer) = open_by_hand(&raw);
    let mut receiver = listener.accept_timeout(common::PATIENCE).expect("no error").expect("a channel");
    let reader = writer.counters();
    for number in 1..=5 {
        attack(&file);
        writer.push(&[std::io::IoSlice::new(b"counted")]).expect("room");
        receiver.recv_timeout(&mut [0; 100], common::PATIENCE).expect("received");
        assert!(writer.wait_sent(number - 1, None).expect("no error"), "open");
        let counted = reader.read(true).expect("the daemon is not always writing").counters;
        assert_eq!((counted.messages_in, counted.messages_out), (number, number));
        assert_eq!(counted, requested(&raw, channel).counters);
    }
    hosts.are_undisturbed();
    std::fs::remove_dir_all(folder).expect("removed");
}
