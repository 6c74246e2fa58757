//! Token buckets over time. The program can only use the kernel's clock, so the tests compare with the times
//! that the program itself reports.

use std::time::{Duration, Instant};

use punctual_link::xdp::{ClassifierOptions, Rate};
use punctual_link::{Filter, PathKey, Stream};

use crate::frames::{Data, PATH, Udp, ipv4};
use crate::support::{Bench, Fate, Reason, filter, options, privileged};

/// Sends until `wanted` packets got through; gives their times.
fn accepted(bench: &mut Bench, frame: &[u8], wanted: usize) -> Vec<u64> {
    let mut times = Vec::new();
    let deadline = Instant::now() + Duration::from_secs(60);
    while times.len() < wanted {
        assert!(Instant::now() < deadline, "stuck after {} packets", times.len());
        match bench.run(frame) {
            Fate::Steered(_, tag) => times.push(tag.received_ns),
            Fate::Dropped(Reason::Policed) => {}
            other => panic!("{other:?}"),
        }
    }
    times
}

/// In no window more packets pass than the burst and those that the window's length permits.
fn holds(times: &[u64], burst: u64, interval_ns: u64) {
    for (i, from) in times.iter().enumerate() {
        for (j, to) in times.iter().enumerate().skip(i) {
            let most = burst + (to - from) / interval_ns;
            assert!((j - i + 1) as u64 <= most, "{} packets in {} ns", j - i + 1, to - from);
        }
    }
}

#[test]
fn a_path_never_exceeds_its_bucket() {
    if !privileged() {
        return;
    }
    const INTERVAL_NS: u64 = 2_000_000;
    let mut bench = Bench::new(&options(ipv4()));
    let frame = Data::guaranteed(10).frame(ipv4());
    let tight = Filter { burst_packets: 3, interval_ns: INTERVAL_NS, ..filter() };
    bench.program.set_filter(&tight).expect("to set");
    let times = accepted(&mut bench, &frame, 20);
    holds(&times, 3, INTERVAL_NS);
    assert!(bench.program.drops().policed > 0, "more was sent than may pass");
    // Greedy all the time: each token is used soon after it comes.
    let lasted = times[19] - times[0];
    assert!(lasted >= 17 * INTERVAL_NS, "20 packets in {lasted} ns");
}

#[test]
fn setting_a_filter_again_fills_no_bucket() {
    if !privileged() {
        return;
    }
    let mut bench = Bench::new(&options(ipv4()));
    let frame = Data::guaranteed(10).frame(ipv4());
    let hourly = Filter { burst_packets: 2, interval_ns: 3_600_000_000_000, ..filter() };
    for round in 0..5 {
        bench.program.set_filter(&Filter { cookie: hourly.cookie, ..hourly }).expect("to set");
        if round == 0 {
            bench.expect_steer(&frame, Stream::Guaranteed);
            bench.expect_steer(&frame, Stream::Guaranteed);
        }
        bench.expect_drop(&frame, Reason::Policed);
    }
    // Demoted packets and other paths do not spend its tokens, nor are they held to them.
    bench.expect_steer(&Data { flags: 1, ..Data::guaranteed(10) }.frame(ipv4()), Stream::BestEffort);
}

#[test]
fn the_longest_interval_is_one_packet_for_ever() {
    if !privileged() {
        return;
    }
    let mut bench = Bench::new(&options(ipv4()));
    for (channel, interval_ns) in [(1, 1 << 60), (2, 1 << 62), (3, u64::MAX)] {
        let path = PathKey { channel, ..PATH };
        let never = Filter { path, burst_packets: 1, interval_ns, ..filter() };
        bench.program.set_filter(&never).expect("to set");
        let frame = Data { path, ..Data::guaranteed(10) }.frame(ipv4());
        bench.expect_steer(&frame, Stream::Guaranteed);
        bench.expect_drop(&frame, Reason::Policed);
    }
}

#[test]
fn a_faster_contract_does_not_wait_for_the_old_one() {
    if !privileged() {
        return;
    }
    let mut bench = Bench::new(&options(ipv4()));
    let frame = Data::guaranteed(10).frame(ipv4());
    let hourly = Filter { burst_packets: 1, interval_ns: 3_600_000_000_000, ..filter() };
    bench.program.set_filter(&hourly).expect("to set");
    bench.expect_steer(&frame, Stream::Guaranteed);
    bench.program.set_filter(&Filter { interval_ns: 1_000_000, ..hourly }).expect("to set");
    holds(&accepted(&mut bench, &frame, 5), 1, 1_000_000);
}

/// Sends one of each of `frames` in turn until none of them gets through; returns the times of those that
/// did.
fn exhausted(bench: &mut Bench, frames: &[&[u8]], stream: Stream) -> Vec<u64> {
    let mut times = Vec::new();
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        assert!(Instant::now() < deadline, "no end after {} packets", times.len());
        let before = times.len();
        for frame in frames {
            match bench.run(frame) {
                Fate::Steered(to, tag) if to == stream => times.push(tag.received_ns),
                Fate::Dropped(Reason::Policed) => {}
                other => panic!("{other:?}"),
            }
        }
        if times.len() == before {
            return times;
        }
    }
}

/// A token comes every second: more than the burst passes only if this thread did not run for that long.
#[test]
fn signalling_and_best_effort_are_bounded_apart() {
    if !privileged() {
        return;
    }
    const INTERVAL_NS: u64 = 1_000_000_000;
    let rate = |burst_packets| Some(Rate { packets_per_second: 1, burst_packets });
    let bounded =
        ClassifierOptions { unknown_senders_rate: rate(2), best_effort_rate: rate(3), ..options(ipv4()) };
    let mut bench = Bench::new(&bounded);
    bench.program.set_filter(&filter()).expect("to set");
    let signalling = Udp::signalling(ipv4(), vec![1]).frame();
    let best_effort = Data::best_effort(1).frame(ipv4());
    let demoted = Data { flags: 1, ..Data::guaranteed(1) }.frame(ipv4());
    for (frames, stream, burst) in [
        (&[signalling.as_slice()][..], Stream::Signalling, 2),
        (&[&best_effort, &demoted], Stream::BestEffort, 3),
    ] {
        let times = exhausted(&mut bench, frames, stream);
        assert!(times.len() >= burst, "{times:?} to {stream:?}");
        holds(&times, burst as u64, INTERVAL_NS);
    }
    bench.expect_steer(&Data::guaranteed(1).frame(ipv4()), Stream::Guaranteed);
    bench.program.set_rate(Stream::BestEffort, None).expect("to open");
    // More than any bucket here holds.
    for _ in 0..10 {
        bench.expect_steer(&best_effort, Stream::BestEffort);
    }
}
