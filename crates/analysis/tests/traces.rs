//! `suggest` on the recorded streams of `examples/traces`.

use punctual_analysis::suggest::{Kind, Packets, Trace, TraceError, choices, fare};
use punctual_analysis::{Contract, Nanos, Rate};

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
fn broken_traces_are_told_apart() {
    assert_eq!(Trace::parse_csv(""), Err(TraceError::Header));
    assert_eq!(Trace::parse_csv("frame,pts_s,bytes\n0,0.0,5\n"), Err(TraceError::TooShort));
    let error = Trace::parse_csv("frame,pts_s,bytes\n0,0.0,5\n1,x,5\n").unwrap_err();
    assert_eq!(error.to_string(), "line 3: \"x\" is no time in seconds");
    let error = Trace::parse_csv("frame,pts_s,bytes\n0,0.0,-5\n").unwrap_err();
    assert_eq!(error.to_string(), "line 2: \"-5\" is no frame size in bytes");
}
