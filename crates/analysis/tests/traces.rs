//! `suggest` on the recorded streams of `examples/traces`.

use punctual_analysis::contract::{BURST_MESSAGES_MAX, MESSAGE_BYTES_MAX};
use punctual_analysis::suggest::{
    Choice, Frame, Kind, Packets, Trace, TraceError, choices, fare, reservation,
};
use punctual_analysis::{Contract, Instant, Nanos, Rate};

const DEADLINE: Nanos = Nanos::from_millis(80);

fn traces() -> Vec<(String, Trace)> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/traces");
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let csv = files.filter(|path| path.extension().is_some_and(|extension| extension == "csv"));
    csv.map(|path| {
        (path.display().to_string(), Trace::parse_csv(&std::fs::read_to_string(path).unwrap()).unwrap())
    })
    .collect()
}

#[test]
fn every_stream_keeps_the_contracts_suggested_for_it() {
    let traces = traces();
    assert_eq!(traces.len(), 3);
    for (name, trace) in traces {
        let choices = choices(&trace, DEADLINE, &Packets::default());
        let kinds: Vec<_> = choices.iter().map(|choice| choice.kind).collect();
        assert_eq!(
            kinds,
            [Kind::Peak, Kind::SmoothedHalf, Kind::SmoothedThreeQuarters, Kind::Burst],
            "{name}"
        );
        for choice in &choices {
            assert_eq!(
                (choice.fare.messages_delayed, choice.fare.messages_dropped),
                (0, 0),
                "{name} {choice:?}"
            );
            assert!(choice.kind == Kind::Burst || choice.fare.latency_max <= DEADLINE, "{name} {choice:?}");
            assert!(choice.reserves.bits_per_second > trace.bits_per_second(), "{name} {choice:?}");
        }
        let reserved: Vec<_> = choices.iter().map(|choice| choice.reserves.bits_per_second).collect();
        assert!(reserved.is_sorted_by(|dearer, cheaper| dearer > cheaper), "{name} {reserved:?}");
    }
}

#[test]
fn suggestions_fill_packets_and_bursts_have_five_percent_to_spare() {
    let packets = Packets::default();
    for (name, trace) in traces() {
        for choice in choices(&trace, DEADLINE, &packets) {
            let (contract, bytes) = (choice.contract, choice.contract.message_bytes_max);
            let doubled = (0..16).map(|doublings| packets.fragment_bytes << doublings);
            assert!(
                choice.kind == Kind::Peak || doubled.into_iter().any(|size| size == bytes),
                "{name} {choice:?}"
            );
            if choice.kind == Kind::Burst {
                let mean = trace.duration() / choice.fare.messages;
                let spare_ppm = mean.0 * 1_000_000 / contract.interval().0 - 1_000_000;
                assert!((49_000..=51_000).contains(&spare_ppm), "{name} {spare_ppm}");
            }
        }
    }
}

#[test]
fn a_contract_that_is_too_small_delays_or_drops() {
    let (_, trace) = traces().into_iter().find(|(name, _)| name.contains("720p25")).unwrap();
    assert_eq!(trace.frames().len(), 132);
    assert_eq!(trace.bytes_max(), 105_256);
    let per_frame = Contract::new(110_000, Rate::per_second(25).unwrap(), 1, DEADLINE).unwrap();
    let good = fare(&trace, &per_frame);
    assert_eq!((good.messages, good.frames_split, good.messages_delayed), (132, 0, 0));
    assert_eq!(good.latency_max, DEADLINE);
    let slow = Contract::new(110_000, Rate::per_second(20).unwrap(), 2, DEADLINE).unwrap();
    let bad = fare(&trace, &slow);
    // Each frame falls 10 ms further behind, less what a source makes up for; all but the first few wait longer than a burst
    // of two allows.
    let behind = Nanos::from_millis(10) - slow.interval() / 256;
    assert!((behind * 131).0.abs_diff(bad.wait_max.0) <= 131, "{}", bad.wait_max);
    assert_eq!(bad.messages_delayed, 132 - 7);
    assert!((20..=27).contains(&bad.messages_dropped), "{bad:?}");
    let small = Contract::new(10_000, Rate::per_second(1_000).unwrap(), 11, DEADLINE).unwrap();
    assert!(fare(&trace, &small).frames_split > 0);
}

#[test]
fn a_recording_lasts_a_day_at_most() {
    let of = |end: &str| Trace::parse_csv(&format!("frame,pts_s,bytes\n0,0.0,5\n1,{end},5\n"));
    let day = of("86400.0").unwrap();
    assert_eq!(day.frames()[1].sent.0, 86_400_000_000_000);
    let error = of("86400.000000001").unwrap_err();
    assert_eq!(error.to_string(), "line 3: \"86400.000000001\" is no time in seconds");
}

#[test]
fn kinds_of_broken_traces_are_distinguished() {
    assert_eq!(Trace::parse_csv(""), Err(TraceError::Header));
    assert_eq!(Trace::parse_csv("frame,pts_s,bytes\n0,0.0,5\n"), Err(TraceError::TooShort));
    let error = Trace::parse_csv("frame,pts_s,bytes\n0,0.0,5\n1,x,5\n").unwrap_err();
    assert_eq!(error.to_string(), "line 3: \"x\" is no time in seconds");
    let error = Trace::parse_csv("frame,pts_s,bytes\n0,0.0,-5\n").unwrap_err();
    assert_eq!(error.to_string(), "line 2: \"-5\" is no frame size in bytes");
}

/// A line of ffprobe that has no time and size is named with its number; if it is the first one, nothing shows that the file
/// is ffprobe's.
#[test]
fn a_line_that_is_not_of_ffprobe_is_named() {
    let of = |text: &str| Trace::parse_csv(text).map(|trace| trace.frames().len()).map_err(|e| e.to_string());
    assert_eq!(of("packet,0.0,5\npacket,0.04,7\n"), Ok(2));
    let error = of("packet,0.0,5\n\npacket,0.04\n").unwrap_err();
    assert_eq!(error, "line 3: \"packet,0.04\" is no line of ffprobe with a time and a size");
    assert_eq!(Trace::parse_csv("packet,0.0\npacket,0.04,7\n"), Err(TraceError::Header));
    for (text, wrong) in [
        ("packet,x,5\npacket,0.04,7\n", "line 1: \"x\" is no time in seconds"),
        ("packet,0.0,5\n\npacket,x,7\n", "line 3: \"x\" is no time in seconds"),
        ("packet,0.0,5\npacket,0.04,0\n", "line 2: \"0\" is no frame size in bytes"),
    ] {
        assert_eq!(of(text), Err(wrong.into()), "{text}");
    }
}

/// The longest wait of a message if each frame is cut to `bytes` and one message is sent each `interval`.
fn longest_wait(trace: &Trace, bytes: u32, interval: u64) -> u64 {
    let (mut free, mut longest) = (0, 0);
    for frame in trace.frames() {
        let messages = u64::from(frame.bytes.div_ceil(bytes));
        let last = frame.sent.0.max(free) + (messages - 1) * interval;
        longest = longest.max(last - frame.sent.0);
        free = last + interval;
    }
    longest
}

/// No suggestion can be made cheaper: a message a thousandth less often waits for too long, and a burst of two less is delayed (of
/// one less not always: a source makes up for a little).
#[test]
fn what_is_suggested_is_the_least_of_its_kind() {
    for (name, trace) in traces() {
        for Choice { kind, contract, .. } in choices(&trace, DEADLINE, &Packets::default()) {
            let what = format!("{name} {kind:?}");
            let left = match kind {
                Kind::Peak | Kind::Burst => DEADLINE,
                Kind::SmoothedHalf => DEADLINE / 2,
                Kind::SmoothedThreeQuarters => DEADLINE / 4,
            };
            assert_eq!(contract.deadline, left, "{what}");
            let bytes = contract.message_bytes_max;
            match kind {
                Kind::Peak => {
                    assert_eq!((bytes, contract.interval()), (trace.bytes_max(), trace.gap_min()), "{what}")
                }
                Kind::Burst => assert!(bytes < trace.bytes_max(), "{what}"),
                Kind::SmoothedHalf | Kind::SmoothedThreeQuarters => {
                    let (interval, most) = (contract.interval().0, (DEADLINE - left).0);
                    assert!(longest_wait(&trace, bytes, interval) <= most, "{what}");
                    assert!(longest_wait(&trace, bytes, interval + interval / 1_000) > most, "{what}");
                }
            }
            if let Some(burst) = contract.burst_messages_max.checked_sub(2).filter(|burst| *burst > 0) {
                let less = Contract { burst_messages_max: burst, jitter: Some(Nanos::ZERO), ..contract };
                assert!(fare(&trace, &less).messages_delayed > 0, "{what}: {burst} suffice");
            }
        }
    }
}

#[test]
fn what_a_contract_reserves_is_what_it_sends_and_keeps() {
    let packets = Packets { fragment_bytes: 1_000, overhead_bytes: 100 };
    for (bytes, count) in [(1, 1), (1_000, 1), (1_001, 2), (5_500, 6)] {
        let deadline = Nanos::from_millis(100);
        let contract = Contract::new(bytes, Rate::per_second(50).unwrap(), 3, deadline).unwrap();
        let reserved = reservation(&contract, &packets);
        let period = contract.policed_interval();
        let wire_bits = u64::from(bytes + count * 100) * 8;
        assert_eq!(reserved.bits_per_second, (wire_bits * 1_000_000_000).div_ceil(period.0));
        let within = deadline.div_ceil(period);
        assert_eq!(reserved.source_buffer_bytes, (3 + within) * u64::from(bytes));
        assert_eq!(reserved.sink_buffer_bytes, within * u64::from(bytes));
    }
}

/// The bits of all packets of a message are sent in each policed interval, however short it is.
#[test]
fn what_a_contract_reserves_is_in_proportion_to_its_rate() {
    let packets = Packets { fragment_bytes: 1_000, overhead_bytes: 25 };
    let slow = Contract::new(100, Rate::per_second(50).unwrap(), 1, Nanos::from_millis(100)).unwrap();
    for (interval, policed) in [(1, 1), (2, 2), (127, 127), (128, 127), (1_000, 993), (1_000_000, 992_188)] {
        let contract = Contract { rate_max: Rate::every(Nanos(interval)).unwrap(), ..slow };
        let per_second = 1_000_000_000_000_u64.div_ceil(policed);
        assert_eq!(reservation(&contract, &packets).bits_per_second, per_second, "{interval}");
    }
}

/// Bits of all frames over the time, to the bit.
#[test]
fn the_mean_rate_is_exact() {
    for (bytes, interval) in
        [(MESSAGE_BYTES_MAX, 1), (MESSAGE_BYTES_MAX, 7_000), (1, 3_600_000_000_000), (999_983, 13)]
    {
        let trace = Trace::regular([bytes as usize; 2], Nanos(interval)).unwrap();
        let bits = u128::from(bytes) * 8 * 1_000_000_000 / u128::from(interval);
        assert_eq!(u128::from(trace.bits_per_second()), bits, "{bytes} {interval}");
    }
}

fn frames(frames: &[(u64, u32)]) -> Result<Trace, TraceError> {
    Trace::new(frames.iter().map(|&(ms, bytes)| Frame { sent: Instant(ms * 1_000_000), bytes }).collect())
}

#[test]
fn a_recording_is_put_in_order_and_begins_at_nothing() {
    let trace = frames(&[(70, 3), (10, 1), (30, 2), (30, 4)]).unwrap();
    let sent: Vec<_> = trace.frames().iter().map(|frame| (frame.sent.0 / 1_000_000, frame.bytes)).collect();
    assert_eq!(sent, [(0, 1), (20, 2), (20, 4), (60, 3)]);
    assert_eq!((trace.gap_min(), trace.bytes_max()), (Nanos::from_millis(20), 4));
    // Four frames within 60 ms: a mean gap of 20 ms, so 10 B in 80 ms.
    assert_eq!((trace.duration(), trace.bits_per_second()), (Nanos::from_millis(80), 1_000));
    assert_eq!(frames(&[]), Err(TraceError::TooShort));
    assert_eq!(frames(&[(5, 1), (5, 1)]), Err(TraceError::TooShort), "all at once");
}

#[test]
fn columns_times_and_sizes_are_read_to_the_digit() {
    let parse = |lines: &str| Trace::parse_csv(&format!("bytes, key ,pts_s\n{lines}"));
    let trace = parse("7,I,2\n\n9,P,2.25\n8,B,2.000000125\n").unwrap();
    let read: Vec<_> = trace.frames().iter().map(|frame| (frame.sent.0, frame.bytes)).collect();
    // The n-th line is sent at the n-th time.
    assert_eq!(read, [(0, 7), (125, 9), (250_000_000, 8)]);
    // A time that a player left out is in the middle of the widest gap, and the next one in the widest gap
    // that is left.
    let trace = parse("1,I,0\n2,P,N/A\n3,P,1.0\n4,P,N/A\n5,P,1.2\n").unwrap();
    let times: Vec<_> = trace.frames().iter().map(|frame| frame.sent.0 / 1_000_000).collect();
    assert_eq!(times.len(), 5);
    assert!(times == [0, 250, 500, 1_000, 1_200] || times == [0, 500, 750, 1_000, 1_200], "{times:?}");
    for time in ["", ".5", "-", "--1", "1.0000000001", "1e3", "1.2.3", "+1", "1.+5", "18446744073709551616"] {
        let error = parse(&format!("1,I,0\n2,P,{time}\n")).unwrap_err();
        assert_eq!(error.to_string(), format!("line 3: \"{time}\" is no time in seconds"));
    }
    // A stream may begin before 0.
    let trace = parse("1,I,-0.08\n2,P,-0.04\n3,P,0.04\n").unwrap();
    assert_eq!(trace.frames().iter().map(|frame| frame.sent.0 / 1_000_000).collect::<Vec<_>>(), [0, 40, 120]);
    assert!(parse("1,I,0\n2,P,5.\n").is_ok() && parse("1,I,0\n2,P,1.123456789\n").is_ok());
    let size = |bytes: u64| parse(&format!("1,I,0\n{bytes},P,1\n")).is_ok();
    let most = u64::from(MESSAGE_BYTES_MAX);
    assert_eq!([0, 1, most, most + 1].map(size), [false, true, true, false]);
}

/// A recording lasts one mean gap longer than to its last frame: the last one takes its time, too. Its rate is of that.
#[test]
fn a_recording_lasts_until_its_last_frame_is_over() {
    const MILLI: u64 = 1_000_000;
    for (times, duration, gap) in [
        (&[0, 40][..], 80, 40),
        (&[0, 40, 80], 120, 40),
        (&[0, 10, 90], 135, 10),
        (&[0, 0, 60], 90, 60),
        (&[0, 20, 20, 20, 100], 125, 20),
    ] {
        let recorded: Vec<_> = times.iter().map(|ms| (*ms, 1_000)).collect();
        let trace = frames(&recorded).expect("a recording");
        assert_eq!(
            (trace.duration(), trace.gap_min()),
            (Nanos(duration * MILLI), Nanos(gap * MILLI)),
            "{times:?}"
        );
        let bits = times.len() as u64 * 8_000 * 1_000 / duration;
        assert_eq!(trace.bits_per_second(), bits, "{times:?}");
    }
}

/// A missing time is placed between two known ones: one known time is not enough.
#[test]
fn one_known_time_is_no_stream() {
    for text in ["1,I,0\n2,P,N/A\n", "1,I,N/A\n2,P,N/A\n3,P,N/A\n", "1,I,3.5\n"] {
        let text = format!("bytes,key,pts_s\n{text}");
        assert_eq!(Trace::parse_csv(&text), Err(TraceError::TooShort), "{text}");
    }
}

/// Each frame is a message, which has a byte at least and has a largest size.
#[test]
fn a_regular_trace_has_frames_of_valid_sizes_only() {
    let of = |size: usize| Trace::regular([1, size, MESSAGE_BYTES_MAX as usize], Nanos::from_millis(40));
    for bytes in [1, MESSAGE_BYTES_MAX as usize] {
        assert!(of(bytes).is_ok(), "{bytes} B");
    }
    for bytes in [0, MESSAGE_BYTES_MAX as usize + 1, usize::MAX] {
        assert_eq!(of(bytes), Err(TraceError::Size { frame: 1, bytes }));
    }
}

/// A frame of 40 packets lasts 39 us at least, a message each microsecond: in single packets it cannot be spread over 20 us,
/// and in larger messages at that rate it costs more than its peak.
#[test]
fn what_cannot_be_spread_within_its_wait_is_not_suggested() {
    let trace = Trace::regular([56_000; 3], Nanos::from_millis(40)).unwrap();
    let suggested = choices(&trace, Nanos::from_micros(40), &Packets::default());
    let smoothed = [Kind::SmoothedHalf, Kind::SmoothedThreeQuarters];
    assert!(suggested.iter().any(|choice| choice.kind == Kind::Peak));
    assert!(suggested.iter().all(|choice| !smoothed.contains(&choice.kind)), "{suggested:?}");
}

/// Frames that are sent at once are a burst, of as many messages as a contract may have and no more.
#[test]
fn a_burst_is_suggested_up_to_the_largest_of_a_contract() {
    let of = |together: u32| {
        let mut sent = vec![(0, 1); together as usize];
        sent.push((3_600_000, 1));
        let found = choices(&frames(&sent).expect("a stream"), DEADLINE, &Packets::default());
        found.iter().find(|choice| choice.kind == Kind::Peak).map(|choice| choice.contract.burst_messages_max)
    };
    assert_eq!([2, BURST_MESSAGES_MAX].map(of), [Some(2), Some(BURST_MESSAGES_MAX)]);
    assert_eq!(of(BURST_MESSAGES_MAX + 1), None);
}
