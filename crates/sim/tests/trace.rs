//! The timeline as a trace file: well-formed, spans in order, lost messages are open to the end.

use std::collections::{BTreeMap, BTreeSet};

use punctual_analysis::{Nanos, Ppm};
use punctual_sim::trace::chrome;
use punctual_sim::{FaultChoice, Faults, Options, Topology, Traffic, run};
use serde_json::Value;

fn events(loss: Ppm) -> Vec<Value> {
    let topology = Topology::parse(include_str!("busy.toml")).expect("good");
    let options = Options {
        topology: Some(topology),
        faults: FaultChoice::These(Faults { loss, ..Faults::NONE }),
        traffic: Traffic::For(Nanos::from_millis(200)),
        trace: true,
        ..Options::default()
    };
    let outcome = run(1, &options).expect("runs");
    let mut bytes = Vec::new();
    chrome::write(&outcome.trace, &mut bytes).expect("a vector takes all");
    let document: Value = serde_json::from_slice(&bytes).expect("JSON");
    document["traceEvents"].as_array().expect("a list").clone()
}

fn named<'a>(events: &'a [Value], ph: &str, name: &str) -> Vec<&'a Value> {
    events.iter().filter(|e| e["ph"] == ph && e["name"].as_str().is_some_and(|n| n.contains(name))).collect()
}

/// Channels with a lost message.
fn losers(events: &[Value]) -> BTreeSet<u64> {
    let open = named(events, "B", "#").into_iter().filter_map(|e| e["tid"].as_u64());
    open.map(|tid| tid / 1_000).collect()
}

#[test]
fn every_message_and_packet_is_a_span_on_a_row_without_overlap() {
    let events = events(Ppm(0));
    let hosts: Vec<_> =
        named(&events, "M", "process_name").iter().map(|e| e["args"]["name"].clone()).collect();
    assert_eq!(hosts, ["channels", "a", "r", "s", "b"]);
    assert!(!named(&events, "X", "channel 0 message 0 part 1/").is_empty(), "packets fly");
    assert!(!named(&events, "X", "#0").is_empty(), "messages come");
    // One channel breaks its contract: its excess messages are dropped. No other channel's are.
    assert!(losers(&events).len() <= 1, "{:?}", losers(&events));
    assert!(!named(&events, "X", "Forward").is_empty(), "processors work");
    let mut rows: BTreeMap<(u64, u64), f64> = BTreeMap::new();
    for span in events.iter().filter(|e| e["ph"] == "X" && e["name"] != "open") {
        let row = (span["pid"].as_u64().expect("a number"), span["tid"].as_u64().expect("a number"));
        let (from, takes) = (span["ts"].as_f64().expect("a time"), span["dur"].as_f64().expect("a time"));
        let free = rows.insert(row, from + takes).unwrap_or(0.0);
        assert!(from >= free - 1e-3, "{span} overlaps what is on its row until {free}");
    }
}

#[test]
fn a_message_that_never_came_stays_open() {
    let lossy = events(Ppm(50_000));
    // Channels that keep their contract lose messages too.
    assert!(losers(&lossy).difference(&losers(&events(Ppm(0)))).count() > 0, "{:?}", losers(&lossy));
    assert!(named(&lossy, "B", "#").iter().all(|span| span["args"]["delivered"] == false));
}

/// Whoever reads of a refusal reads its reason on the next line.
#[test]
fn every_refusal_is_followed_by_its_reason() {
    let outcome = run(0, &Options { trace: true, ..Options::default() }).expect("runs");
    let lines: Vec<_> = outcome.trace.lines().collect();
    let refusals: Vec<_> = lines.windows(2).filter(|pair| pair[0].ends_with("refused")).collect();
    assert!(!refusals.is_empty(), "the seed draws a channel that is refused");
    assert!(refusals.iter().all(|pair| pair[1].starts_with(&" ".repeat(28))), "{refusals:?}");
}
