//! Suggested contracts against a search written out, on streams of a few frames, where each nanosecond of an interval and each
//! message of a burst shows.

use punctual_analysis::contract::{BURST_MESSAGES_MAX, INTERVAL_MIN};
use punctual_analysis::suggest::{Choice, Frame, Kind, Packets, Trace, choices, fare, reservation};
use punctual_analysis::{Contract, Instant, Nanos, Rate};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

/// The longest wait of a message if each frame is cut to `bytes` and one message is sent each `interval`.
fn longest_wait(trace: &Trace, bytes: u32, interval: u64) -> u64 {
    let (mut free, mut longest) = (0, 0);
    for frame in trace.frames() {
        let last = frame.sent.0.max(free) + u64::from(frame.bytes.div_ceil(bytes) - 1) * interval;
        longest = longest.max(last - frame.sent.0);
        free = last + interval;
    }
    longest
}

/// The contract of this size and interval with the least burst that holds all that waits.
fn contract(trace: &Trace, bytes: u32, interval: u64, deadline: Nanos) -> Option<Contract> {
    let burst = longest_wait(trace, bytes, interval).div_ceil(interval) + 1;
    if burst > u64::from(BURST_MESSAGES_MAX) {
        return None;
    }
    Contract::new(bytes, Rate::every(Nanos(interval))?, burst as u32, deadline).ok()
}

/// The longest interval, shorter than the stream, with which nothing waits for longer than `wait`.
fn longest_interval(trace: &Trace, bytes: u32, wait: u64) -> Option<u64> {
    let end = trace.duration().0.max(2 * INTERVAL_MIN.0);
    (INTERVAL_MIN.0..end).rev().find(|interval| longest_wait(trace, bytes, *interval) <= wait)
}

fn expected(trace: &Trace, deadline: Nanos, packets: &Packets) -> Vec<(Kind, Contract)> {
    let largest = trace.frames().iter().map(|frame| frame.bytes).max().unwrap();
    let sizes = || (0..16).map(|k| packets.fragment_bytes << k).filter(|size| *size < largest.max(2));
    let bits = |contract: &Contract| reservation(contract, packets).bits_per_second;
    let cheapest = |of: &dyn Fn(u32) -> Option<Contract>| sizes().filter_map(of).min_by_key(bits);
    let smoothed = |wait: u64| {
        cheapest(&|size| {
            contract(trace, size, longest_interval(trace, size, wait)?, Nanos(deadline.0 - wait))
        })
    };
    let gaps = trace.frames().windows(2).map(|pair| pair[1].sent.0 - pair[0].sent.0);
    let gap = gaps.filter(|gap| *gap > 0).min().unwrap().max(INTERVAL_MIN.0);
    let burst = |size: u32| {
        let messages: u64 = trace.frames().iter().map(|frame| u64::from(frame.bytes.div_ceil(size))).sum();
        contract(trace, size, (trace.duration().0 / messages * 100 / 105).max(INTERVAL_MIN.0), deadline)
    };
    let all = [
        (Kind::Peak, contract(trace, largest, gap, deadline)),
        (Kind::SmoothedHalf, smoothed(deadline.0 / 2)),
        (Kind::SmoothedThreeQuarters, smoothed(deadline.0 - deadline.0 / 4)),
        (Kind::Burst, cheapest(&burst)),
    ];
    // Each is cheaper than all before it.
    let mut kept: Vec<(Kind, Contract)> = Vec::new();
    for (kind, contract) in all {
        if let Some(contract) = contract.filter(|next| kept.iter().all(|(_, kept)| bits(next) < bits(kept))) {
            kept.push((kind, contract));
        }
    }
    kept
}

/// Streams of frames of some packets, and of frames and packets of a byte or two, where each size shows:
/// sizes are below that of the largest frame, save that a byte cannot be cut.
#[test]
fn what_is_suggested_is_the_result_of_a_search_through_all_sizes_and_intervals() {
    let mut seen = [0; 4];
    for (fragment_bytes, overhead_bytes, largest) in
        [(100, 30, 900), (1, 1, 1), (1, 5, 2), (2, 1, 2), (2, 3, 5)]
    {
        let packets = Packets { fragment_bytes, overhead_bytes };
        for seed in 0..100 {
            let mut rng = SmallRng::seed_from_u64(seed);
            let (mut sent, mut frames) = (0, Vec::new());
            for _ in 0..rng.random_range(2..7) {
                frames.push(Frame { sent: Instant(sent), bytes: rng.random_range(1..=largest) });
                sent += [0, 300, 1_000, rng.random_range(1..12_000), 9_000][rng.random_range(0..5)];
            }
            let Ok(trace) = Trace::new(frames) else { continue };
            let deadline = Nanos(rng.random_range(2_000..40_000));
            let found = choices(&trace, deadline, &packets);
            let contracts: Vec<_> = found.iter().map(|choice| (choice.kind, choice.contract)).collect();
            let expected = expected(&trace, deadline, &packets);
            assert_eq!(contracts, expected, "seed {seed}: {trace:?} in {deadline}, {packets:?}");
            for Choice { kind, contract, reserves, fare: outcome } in found {
                assert_eq!((reserves, outcome), (reservation(&contract, &packets), fare(&trace, &contract)));
                seen[kind as usize] += 1;
            }
        }
    }
    assert!(seen.iter().all(|seen| *seen > 10), "{seen:?}");
}

/// An interval of nothing, which no contract has but a peer may send, counts as a nanosecond.
#[test]
fn a_rate_without_an_interval_reserves_what_a_nanosecond_does() {
    use serde::Deserialize;
    use serde::de::IntoDeserializer;
    use serde::de::value::{Error, U64Deserializer};
    let of = |interval: u64| {
        let deserializer: U64Deserializer<Error> = interval.into_deserializer();
        let rate_max = Rate::deserialize(deserializer).expect("a number");
        let plain =
            Contract::new(8, Rate::per_second(1).expect("a rate"), 1, Nanos(50_000)).expect("in range");
        reservation(&Contract { rate_max, ..plain }, &Packets { fragment_bytes: 8, overhead_bytes: 0 })
    };
    assert_eq!([0, 1, 2].map(|ns| of(ns).bits_per_second), [64_000_000_000, 64_000_000_000, 32_000_000_000]);
}

/// A packet has 1,400 B of payload, our header, and what UDP, IPv4 and Ethernet (preamble, header, check sum, gap) add.
#[test]
fn packets_are_those_of_ethernet() {
    let added = 64 + 8 + 20 + (8 + 14 + 4 + 12);
    assert_eq!(Packets::default(), Packets { fragment_bytes: 1_400, overhead_bytes: added });
}

/// Nothing is cut into less than bytes, and a frame without bytes is a message.
#[test]
fn a_message_is_a_byte_at_least_and_a_frame_a_message() {
    let frames =
        [(0, 3), (1_000_000, 0), (2_000_000, 1)].map(|(ns, bytes)| Frame { sent: Instant(ns), bytes });
    let trace = Trace::new(frames.to_vec()).expect("a stream");
    let plain =
        Contract::new(1, Rate::per_second(1_000).expect("a rate"), 3, Nanos(50_000)).expect("in range");
    for (message_bytes_max, messages, split) in [(0, 5, 1), (1, 5, 1), (2, 4, 1), (3, 3, 0)] {
        let outcome = fare(&trace, &Contract { message_bytes_max, ..plain });
        assert_eq!((outcome.messages, outcome.frames_split), (messages, split), "{message_bytes_max} B");
    }
    let packets = |fragment_bytes| Packets { fragment_bytes, overhead_bytes: 7 };
    let of = |fragment| choices(&trace, Nanos(5_000_000), &packets(fragment));
    assert!(of(1).len() > 1);
    assert_eq!(of(0), of(1), "a packet has a byte at least");
}

/// Sixteen sizes are tried: one packet of payload, and twice as much each time. In one byte and less than 32 KiB there are more
/// messages in so many large frames than a burst has.
#[test]
fn sixteen_sizes_of_messages_are_tried() {
    let largest = 64 << 20;
    let of = |together: u64| {
        let mut sent = vec![0; together as usize];
        sent.extend([1_000_000, 3_600_000_000_000]);
        let frames = sent.into_iter().map(|ns| Frame { sent: Instant(ns), bytes: largest }).collect();
        let packets = Packets { fragment_bytes: 1, overhead_bytes: 1 };
        let found = choices(&Trace::new(frames).expect("a stream"), Nanos(80_000_000), &packets);
        found.iter().find(|choice| choice.kind == Kind::Burst).map(|choice| choice.contract.message_bytes_max)
    };
    // Ahead are all messages of the frames at the beginning, and of the one soon behind them.
    let ahead = |together: u64, size: u64| (together + 1) * u64::from(largest) / size;
    let most = u64::from(BURST_MESSAGES_MAX);
    assert!(ahead(20, 1 << 15) < most && ahead(20, 1 << 14) > most && ahead(40, 1 << 15) > most);
    assert_eq!((of(20), of(40)), (Some(1 << 15), None));
}

/// What becomes of a stream is counted frame by frame: those that are larger than a message are split, and one that loses a
/// message is damaged once.
#[test]
fn a_fare_counts_frames_and_messages() {
    let frames = [(0, 250), (10_000, 100), (20_000, 101), (40_000, 100)];
    let frames = frames.map(|(sent, bytes)| Frame { sent: Instant(sent), bytes });
    let trace = Trace::new(frames.to_vec()).expect("a stream");
    let of = |burst| {
        let rate = Rate::every(Nanos(10_000)).expect("a rate");
        let contract = Contract::new(100, rate, burst, Nanos(50_000)).expect("in range");
        let contract = Contract { jitter: Some(Nanos::ZERO), ..contract };
        let outcome = fare(&trace, &contract);
        assert_eq!((outcome.frames, outcome.messages, outcome.frames_split), (4, 7, 2));
        assert_eq!(outcome.latency_max, outcome.wait_max + Nanos(50_000));
        (outcome.messages_delayed, outcome.messages_dropped, outcome.frames_damaged)
    };
    // Three at once, and then more than one each interval. Of bursts of one two are lost at once and one later.
    assert_eq!((of(1), of(2).0 > 0, of(4)), ((6, 3, 2), true, (0, 0, 0)));
}
