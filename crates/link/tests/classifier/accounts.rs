//! Buffers: no packet is steered beyond the limit, and lost or released buffers come back exactly once.

use std::time::{Duration, Instant};

use punctual_link::xdp::{ClassifierOptions, Tag};
use punctual_link::{Filter, PathKey, Stream};

use crate::frames::{Data, PATH, Udp, ipv4};
use crate::support::{Bench, Fate, Reason, filter, options, privileged};

fn bench(buffers: [u32; 4], of_path: u32) -> Bench {
    let mut bench = Bench::new(&ClassifierOptions { buffers, ..options(ipv4()) });
    bench.program.set_filter(&Filter { buffers: of_path, ..filter() }).expect("to set");
    bench
}

fn steered(bench: &mut Bench, frame: &[u8]) -> (Stream, Tag) {
    match bench.run_and_hold(frame) {
        Fate::Steered(stream, tag) => (stream, tag),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_stream_that_is_full_takes_nothing_of_another() {
    if !privileged() {
        return;
    }
    let mut bench = bench([2, 1, 4, 3], 100);
    let flood = Data::best_effort(1).frame(ipv4());
    let held: Vec<_> = (0..3).map(|_| steered(&mut bench, &flood)).collect();
    for _ in 0..50 {
        bench.expect_drop(&flood, Reason::NoBuffer);
    }
    assert_eq!(bench.program.accounts().free(0, Stream::BestEffort), 0);
    for _ in 0..10 {
        bench.expect_steer(&Data::guaranteed(1).frame(ipv4()), Stream::Guaranteed);
        bench.expect_steer(&Udp::signalling(ipv4(), vec![1]).frame(), Stream::Signalling);
    }
    for (stream, tag) in held {
        let accounts = bench.program.accounts();
        let charge = accounts.received(0, stream, &tag);
        accounts.returns().give_back(charge);
        bench.expect_steer(&flood, Stream::BestEffort);
    }
    assert_eq!(bench.program.accounts().free(0, Stream::BestEffort), 3);
}

#[test]
fn a_path_has_its_own_buffers() {
    if !privileged() {
        return;
    }
    let mut bench = bench([8; 4], 2);
    let other = PathKey { channel: 99, ..PATH };
    bench.program.set_filter(&Filter { path: other, buffers: 3, ..filter() }).expect("to set");
    let greedy = Data::guaranteed(1).frame(ipv4());
    let modest = Data { path: other, ..Data::guaranteed(1) }.frame(ipv4());
    let held = [steered(&mut bench, &greedy), steered(&mut bench, &greedy)];
    bench.expect_drop(&greedy, Reason::NoBuffer);
    for _ in 0..3 {
        steered(&mut bench, &modest);
    }
    bench.expect_drop(&modest, Reason::NoBuffer);
    // Replaced with more buffers: those under way still count.
    bench.program.set_filter(&Filter { buffers: 3, ..filter() }).expect("to set");
    steered(&mut bench, &greedy);
    bench.expect_drop(&greedy, Reason::NoBuffer);
    assert_ne!(held[0].1.path, Tag::NO_PATH);
    assert_eq!([held[0].1.path_count, held[1].1.path_count], [1, 2]);
}

/// Packets that a ring lost behind the program come back: with the next packet, or when the ring was seen empty.
#[test]
fn lost_packets_come_back() {
    if !privileged() {
        return;
    }
    let mut bench = bench([8; 4], 4);
    let frame = Data::guaranteed(1).frame(ipv4());
    let _lost = [steered(&mut bench, &frame), steered(&mut bench, &frame)];
    let (stream, third) = steered(&mut bench, &frame);
    let charge = bench.program.accounts().received(0, stream, &third);
    assert_eq!(bench.program.accounts().free(0, stream), 7, "the two before are given up");
    bench.program.accounts().returns().give_back(charge);
    assert_eq!(bench.program.accounts().free(0, stream), 8);

    let lost: Vec<_> = (0..4).map(|_| steered(&mut bench, &frame)).collect();
    bench.expect_drop(&frame, Reason::NoBuffer);
    bench.program.accounts().settle(0, stream);
    assert_eq!(bench.program.accounts().free(0, stream), 4, "they may still be under way");
    bench.program.accounts().settle(0, stream);
    assert_eq!(bench.program.accounts().free(0, stream), 8);
    // They were only late: they are received after all and count again, and the counters do not drift.
    for (stream, tag) in lost {
        let charge = bench.program.accounts().received(0, stream, &tag);
        assert_eq!(bench.program.accounts().free(0, stream), 7);
        bench.program.accounts().returns().give_back(charge);
        assert_eq!(bench.program.accounts().free(0, stream), 8);
    }
    for _ in 0..100 {
        bench.expect_steer(&frame, Stream::Guaranteed);
    }
}

/// The counters of the kernel and ours wrap at 2^32 on their own. This tests the other property that this
/// requires: an account continues to count when its path is removed, and the next path that gets the account
/// takes over the buffers that are still held.
#[test]
fn an_account_outlives_its_path() {
    if !privileged() {
        return;
    }
    let mut bench = Bench::new(&ClassifierOptions { filters_max: 1, buffers: [64; 4], ..options(ipv4()) });
    let frames = [3, 4].map(|channel| {
        let path = PathKey { channel, ..PATH };
        (Filter { path, buffers: 3, ..filter() }, Data { path, ..Data::guaranteed(1) }.frame(ipv4()))
    });
    let (first, first_frame) = &frames[0];
    let (second, second_frame) = &frames[1];
    bench.program.set_filter(first).expect("to set");
    let held = [steered(&mut bench, first_frame), steered(&mut bench, first_frame)];
    bench.program.clear_filter(first.path).expect("to clear");
    bench.program.set_filter(second).expect("to set");
    steered(&mut bench, second_frame);
    bench.expect_drop(second_frame, Reason::NoBuffer);
    for (stream, tag) in held {
        let accounts = bench.program.accounts();
        let charge = accounts.received(0, stream, &tag);
        accounts.returns().give_back(charge);
    }
    steered(&mut bench, second_frame);
    steered(&mut bench, second_frame);
    bench.expect_drop(second_frame, Reason::NoBuffer);
}

/// Giving back on other threads while the program runs: in the end every buffer is there, and never one too many.
#[test]
fn threads_may_give_back_while_packets_come() {
    if !privileged() {
        return;
    }
    let mut bench = bench([16; 4], 16);
    let frame = Data::guaranteed(1).frame(ipv4());
    let returns = std::sync::Arc::clone(bench.program.accounts().returns());
    let (send, receive) = std::sync::mpsc::channel();
    let released = std::thread::spawn(move || receive.iter().map(|charge| returns.give_back(charge)).count());
    let mut steered = 0;
    let deadline = Instant::now() + Duration::from_secs(60);
    while steered < 2_000 {
        let mut packet = frame.clone();
        let (verdict, _) = bench.program.run(&mut packet, 1).expect("to run");
        assert!(Instant::now() < deadline, "stuck after {steered} packets");
        if verdict == punctual_link::xdp::Verdict::Steer {
            let tag = Tag::read(&packet).expect("a tag");
            let charge = bench.program.accounts().received(0, Stream::Guaranteed, &tag);
            assert!(bench.program.accounts().free(0, Stream::Guaranteed) < 16);
            send.send(charge).expect("the other thread listens");
            steered += 1;
        }
    }
    drop(send);
    assert_eq!(released.join().expect("to end"), 2_000);
    assert_eq!(bench.program.accounts().free(0, Stream::Guaranteed), 16);
}
