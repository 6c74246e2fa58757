//! Texts to start from: the examples that the documentation and the tests have, and the words of their languages.

use std::collections::BTreeMap;

use punctual_engine::profile::{Costs, Machine, PROFILE_VERSION, Profile, Summary};

const EXAMPLE: &str = include_str!("../../docs/punctuald.example.toml");
const LOOPBACK: &str = include_str!("../../docs/loopback/a.toml");
const BUSY: &str = include_str!("../../crates/sim/tests/busy.toml");
const FLOWS: &str = include_str!("../../examples/plan/flows.toml");
const TRACE: &str = include_str!("../../examples/traces/bigbuckbunny-352x240p30-mpeg1.csv");

/// Longest input but one: a whole example, with room to grow.
const TEXT_BYTES_MAX: usize = 4_000;

fn texts(texts: impl IntoIterator<Item = String>) -> Vec<Vec<u8>> {
    texts.into_iter().map(String::into_bytes).collect()
}

/// A configuration, and the example's sections with every key enabled, each behind the sections that it
/// requires.
pub fn config() -> Vec<Vec<u8>> {
    let base = LOOPBACK.to_string();
    let sections = EXAMPLE.split("\n[").skip(1).map(|section| {
        let lines = section.lines().map(|line| {
            let key = line.strip_prefix("# ").filter(|rest| rest.contains(" = ") && !rest.contains("`"));
            key.unwrap_or(line)
        });
        let plain = lines.filter(|line| !line.starts_with('#') && !line.is_empty());
        let plain = plain.map(|line| line.split("  #").next().unwrap_or(line));
        plain.fold(String::from("["), |text, line| text + line + "\n")
    });
    let mut found: Vec<String> = sections.filter(|section| section.len() < TEXT_BYTES_MAX).collect();
    let whole: Vec<String> = found.iter().map(|section| format!("{base}\n{section}")).collect();
    found.extend(whole);
    found.push(base);
    texts(found)
}

/// Sets under each policy.
pub fn analyze() -> Vec<Vec<u8>> {
    let task = |cost: u64, period: u64, jitter: u64| {
        format!(
            "[[task]]\ncost_ns = {cost}\nperiod_ns = {period}\ndeadline_ns = {period}\njitter_ns = {jitter}\n"
        )
    };
    let policies = ["np-fp", "np-edf", "fp", "edf"];
    texts(policies.map(|policy| {
        let tasks =
            [task(1_000, 2_500, 0), task(1_000, 3_500, 10), task(900, 5_000, 0) + "blocks_ns = 400\n"];
        format!("policy = \"{policy}\"\nblocking_ns = 5\n{}", tasks.concat())
    }))
}

/// The example of a plan.
pub fn plan() -> Vec<Vec<u8>> {
    texts([FLOWS.to_string(), FLOWS.split("[[flow]]").take(2).collect::<Vec<_>>().join("[[flow]]")])
}

/// A network as TOML and as JSON.
pub fn topology() -> Vec<Vec<u8>> {
    let short = BUSY.chars().take(TEXT_BYTES_MAX).collect::<String>();
    let small = "[[host]]\nname = \"a\"\n[[host]]\nname = \"b\"\ndrift_ppm = -50\n[[link]]\nbetween = [\"a\", \"b\"]\n\
                 [[channel]]\nfrom = \"a\"\nto = \"b\"\nmessage_bytes_max = 100\ninterval_us = 1000\n\
                 deadline_us = 20000\npolicing = \"drop\"\narrivals = \"greedy\"\n";
    let json = r#"{"host":[{"name":"a"},{"name":"b"}],"link":[{"between":["a","b"],"rate_mbit":10}]}"#;
    texts([short, small.to_string(), json.to_string()])
}

/// A profile in its file format.
///
/// # Panics
/// If it cannot be written.
pub fn profile() -> Vec<Vec<u8>> {
    let costs = Costs {
        send_message_ns: 900,
        send_packet_ns: 4_000,
        send_packet_later_ns: 3_000,
        forward_packet_ns: 6_000,
        receive_packet_ns: 3_500,
        deliver_message_ns: 700,
        copy_kib_ns: 120,
        cold_start_ns: 21_000,
        segment_ns: 4_000,
        segment_call_ns: 2_000,
    };
    let profile = Profile {
        version: PROFILE_VERSION,
        measured: "some day".into(),
        short: false,
        machine: Machine { cpu: "abacus".into(), ..Machine::here("udp") },
        costs,
        turn_ns: 1_500,
        wake_up_ns: 60_000,
        measurements: BTreeMap::from([("send_first".into(), Summary::of(&[4_000; 64]))]),
    };
    texts([profile.text().expect("a text")])
}

/// The head of a film.
pub fn trace() -> Vec<Vec<u8>> {
    let rows = |rows: usize| TRACE.lines().take(rows).fold(String::new(), |text, line| text + line + "\n");
    texts([rows(3), rows(100)])
}

/// Words of the API's JSON.
pub const API_WORDS: &[&str] = &[
    "hello",
    "version",
    "program",
    "listen",
    "port",
    "handler_time",
    "unlisten",
    "listener",
    "open",
    "to",
    "contract",
    "token",
    "probe",
    "ask",
    "source",
    "reply_to",
    "refuse-ask",
    "why",
    "consent",
    "channel",
    "refuse",
    "close",
    "co-schedule",
    "thread",
    "alternate",
    "open-best-effort",
    "bind-best-effort",
    "ring",
    "slots",
    "message_bytes_max",
    "resolve",
    "host",
    "status",
    "channels",
    "after",
    "null",
    "true",
    "\"h1\"",
    "\"h2\"",
    "\"port\"",
    "rate_max",
    "burst_messages_max",
    "deadline",
    "policing",
    "activation",
    "periodic",
    "low-latency",
    "{}",
    "[]",
    "answer",
    "push",
    "Ok",
    "Err",
];

/// Words of the daemon's configuration.
pub const CONFIG_WORDS: &[&str] = &[
    "[node]",
    "[processor]",
    "[signalling]",
    "[daemon]",
    "[[host]]",
    "[[link]]",
    "[[route]]",
    "[buffers]",
    "name",
    "id",
    "key",
    "neighbour",
    "rate",
    "driver",
    "\"udp\"",
    "\"xdp\"",
    "\"memory\"",
    "\"edf\"",
    "\"rmdp\"",
    "\"d-order\"",
    "\"fixed-priority\"",
    "\"fifo\"",
    "policy",
    "admission",
    "\"1Mbit/s\"",
    "\"100Gbit/s\"",
    "\"1ns\"",
    "\"3600s\"",
    "\"200us\"",
    "\"100%\"",
    "\"0%\"",
    "\"64KiB\"",
    "\"1TB\"",
    "true",
    "false",
    "\"clock\"",
    "\"completion\"",
    "pace",
    "via",
    "[",
    "]",
    "{",
    "}",
    "\"",
    "=",
];

/// Words of task sets.
pub const ANALYZE_WORDS: &[&str] = &[
    "policy",
    "\"np-fp\"",
    "\"np-edf\"",
    "\"fp\"",
    "\"edf\"",
    "blocking_ns",
    "[[task]]",
    "cost_ns",
    "period_ns",
    "deadline_ns",
    "jitter_ns",
    "blocks_ns",
    "=",
    "1000000",
    "31536000000000000",
    "3",
    "7",
];

/// Words of plans.
pub const PLAN_WORDS: &[&str] = &[
    "[[host]]",
    "[[flow]]",
    "name",
    "from",
    "to",
    "period",
    "packets",
    "size",
    "rate",
    "cost",
    "deadline",
    "after",
    "cpu_share_max",
    "release_latency",
    "quantum",
    "fragment",
    "neighbours",
    "best_effort_share_min",
    "interference_burst",
    "interference_share",
    "\"1ns\"",
    "\"1us\"",
    "\"10ms\"",
    "\"3600s\"",
    "\"1/s\"",
    "\"90%\"",
    "\"0%\"",
    "\"64MB\"",
    "\"1B\"",
    "\"a\"",
    "\"b\"",
    "[\"camera\"]",
    "=",
];

/// Words of networks.
pub const TOPOLOGY_WORDS: &[&str] = &[
    "[[host]]",
    "[[link]]",
    "[[channel]]",
    "name",
    "run",
    "admission",
    "cpu_cost_percent",
    "drift_ppm",
    "between",
    "rate_mbit",
    "propagation_max_us",
    "pace",
    "pipeline_depth",
    "from",
    "to",
    "message_bytes_max",
    "interval_us",
    "burst_messages_max",
    "deadline_us",
    "policing",
    "delivery",
    "horizon",
    "activation",
    "late",
    "arrivals",
    "\"greedy\"",
    "\"breaker\"",
    "\"a\"",
    "\"b\"",
    "=",
    "{",
    "}",
    "[",
    "]",
];

/// Words of profiles.
pub const PROFILE_WORDS: &[&str] = &[
    "version",
    "measured",
    "short",
    "[machine]",
    "[costs]",
    "[measurements]",
    "send_packet_ns",
    "turn_ns",
    "wake_up_ns",
    "# end of profile",
    "=",
    "true",
    "\"",
    "10000000",
];

/// Words of traces.
pub const TRACE_WORDS: &[&str] = &["frame", "pts_s", "bytes", "key", ",", "0.04", "-1", "1e9", "nan", "inf"];
