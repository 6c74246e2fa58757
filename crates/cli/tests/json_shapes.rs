//! `--json` of every verb: keys, nesting and types stay as they were recorded, because scripts rely on them. Keys may be
//! added. Recordings are in `shapes/VERB.txt` (docs/adr/0049).

mod network;
mod shapes;

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use network::{Network, eventually, noise, with_contract};
use punctual::rtu::{Class, Cost, Progress, Rtu, Terms};
use punctual::{BitRate, BrokenStage, Cause, Endsystem, LateStage, Lateness, Nanos, WrongCount};
use punctual_experiments::testbed::Privilege;
use punctual_proto::api::SeenIn;
use punctual_proto::ids::LinkId;
use punctual_sim::Violation;
use serde_json::{Value, json};
use shapes::{Shape, compare};

/// How the shapes that one verb prints are found out.
type Run = fn(&Network) -> Found;
/// Shapes, by what was requested.
type Found = Vec<(&'static str, Shape)>;

/// Every verb. Slow verbs run only if experiments are requested: see [`SLOW`].
const VERBS: [(&str, Run); 19] = [
    ("admit", admit),
    ("analyze", analyze),
    ("bench", bench),
    ("call", call),
    ("capture", capture),
    ("channels", channels),
    ("connections", connections),
    ("demo", |_| mistake("demo")),
    ("doctor", doctor),
    ("ior", ior),
    ("naming", naming),
    ("plan", plan),
    ("profile", profile),
    ("recv", recv),
    ("relay", |_| mistake("relay")),
    ("send", send),
    ("sim", sim),
    ("status", status),
    ("suggest", suggest),
];

/// What takes up to a minute and needs root.
const SLOW: [(&str, Run); 2] = [("demo-whole", demo_whole), ("profile-whole", profile_whole)];

/// A soft contract with all options set.
const WISHES: [&str; 9] = [
    "--jitter",
    "2ms",
    "--policing",
    "drop",
    "--at-deadline",
    "--late=drop",
    "--miss-ratio=1%",
    "--mean-rate=50/s",
    "--mean-over=1s",
];

#[test]
fn every_verb_has_recorded_shapes() {
    let mut verbs = punctual_cli::verb_names();
    verbs.sort();
    assert_eq!(
        verbs,
        VERBS.map(|(verb, _)| verb),
        "add the new verb here, with a case for each kind of answer"
    );
}

#[test]
fn the_json_of_every_verb_has_its_recorded_shape() {
    check(&VERBS);
}

#[test]
fn the_json_of_what_takes_long_has_its_recorded_shape() {
    if std::env::var_os("PUNCTUAL_TEST_EXPERIMENTS").is_none() {
        punctual_skip::skipped!(
            "takes over a minute of real time: set PUNCTUAL_TEST_EXPERIMENTS=1, as `make test` does"
        );
        return;
    }
    if !Privilege::detect().is_ok_and(|privilege| privilege == Privilege::Root) {
        punctual_skip::skipped!(
            "the demo and profiles need network namespaces and the real-time class: run as root"
        );
        return;
    }
    check(&SLOW);
}

fn check(verbs: &[(&str, Run)]) {
    let network = Network::start();
    let mut wrong = Vec::new();
    for (verb, run) in verbs {
        let found = run(&network).into_iter().map(|(case, shape)| (case.to_owned(), shape));
        wrong.extend(compare(verb, &found.collect()));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// What `punctual ARGUMENTS --json` prints on standard output, from the source tree, where examples are.
fn printed(arguments: &[&str]) -> Value {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let mut command = Command::new(env!("CARGO_BIN_EXE_punctual"));
    let output = command.args(arguments).arg("--json").current_dir(root).output().expect("it starts");
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{arguments:?}: {error}: {}", String::from_utf8_lossy(&output.stderr)))
}

fn shape(arguments: &[&str]) -> Shape {
    Shape::of(&printed(arguments))
}

/// As [`shape`], of a command that must succeed.
fn shape_of_success(arguments: &[&str]) -> Shape {
    let value = printed(arguments);
    assert!(value.get("error").is_none(), "{arguments:?}: {value}");
    Shape::of(&value)
}

/// A wrong command line of a verb.
fn mistake(verb: &str) -> Found {
    vec![("wrong usage", shape(&[verb, "--no-such-option"]))]
}

/// A file for this test alone.
fn place(name: &str) -> String {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name).display().to_string()
}

fn admit(network: &Network) -> Found {
    let _receiver = network.b.start_verb(&["recv", "cam"]);
    network.b.await_listeners(1);
    let ask = |peer: &str, more: &[&str]| {
        let arguments = with_contract("admit", peer, more);
        Shape::of(&network.a.verb(&[&arguments[..], &["--json"]].concat()).json())
    };
    let too_short = ["admit", "cam@b", "--rate", "25/s", "--size", "110KB", "--deadline", "5ms", "--json"];
    vec![
        ("granted", ask("cam@b", &[])),
        ("granted, explained", ask("cam@b", &["--explain"])),
        ("granted, with a soft contract", ask("cam@b", &WISHES)),
        ("granted, low latency", ask("cam@b", &["--activation=low-latency:10ms,1"])),
        ("refused", Shape::of(&network.a.verb(&too_short).json())),
        ("refused, nobody listens", ask("none@b", &[])),
        ("no such host", ask("cam@nowhere", &[])),
        ("wrong usage", shape(&["admit", "--no-such-option"])),
    ]
}

fn analyze(_: &Network) -> Found {
    let task = "[[task]]\ncost_ns = 6\nperiod_ns = 10\ndeadline_ns = 10\n";
    let file = place("shape-tasks.toml");
    let of = |tasks: &str| {
        std::fs::write(&file, format!("policy = \"edf\"\n{tasks}")).expect("a file");
        shape(&["analyze", &file])
    };
    vec![
        ("schedulable", of(task)),
        ("not schedulable", of(&format!("{task}{task}"))),
        ("no tasks", of("")),
        ("wrong usage", shape(&["analyze", "--no-such-option"])),
    ]
}

fn bench(_: &Network) -> Found {
    let directory = place("shape-bench");
    let speed = shape(&["bench", "sim-speed", "--smoke", "--directory", &directory]);
    vec![
        ("list", shape(&["bench", "list"])),
        ("sim-speed", speed),
        ("wrong usage", shape(&["bench", "no-such-experiment"])),
    ]
}

fn capture(network: &Network) -> Found {
    let (file, none) = (place("shape-capture.pcap"), "--socket=/no/such");
    let hellos = network.a.verb(&["capture", "--write", &file, "--count", "2", "--json"]).done().json();
    vec![
        ("packets", Shape::of(&hellos)),
        ("no daemon", shape(&["capture", "--write", &file, none])),
        ("wrong usage", shape(&["capture", "--no-such-option"])),
    ]
}

fn channels(network: &Network) -> Found {
    let none = network.a.json(&["channels"]);
    let mut receiver = network.b.start_verb(&["recv", "cam"]);
    network.b.await_listeners(1);
    let mut sender = network.a.start_verb(&with_contract("send", "cam@b", &["--split", "lines"]));
    sender.write(b"one\n");
    receiver.await_output(b"one\n");
    let all = [&network.a, &network.b].map(|host| host.json(&["channels"]));
    sender.end().done();
    receiver.end().done();
    network.a.await_no_channels();
    let [source, sink] = &all;
    vec![
        ("none", Shape::of(&none)),
        ("source", Shape::of(source)),
        ("sink", Shape::of(sink)),
        ("no daemon", shape(&["channels", "--socket", "/no/such"])),
    ]
}

fn demo_whole(_: &Network) -> Found {
    vec![("whole", shape_of_success(&["demo", "--directory", &place("shape-demo")]))]
}

/// A host over this driver has none: the tests of `relay` compare one.
fn connections(network: &Network) -> Found {
    vec![
        ("none", Shape::of(&network.a.verb(&["connections", "--json"]).json())),
        ("no listeners", Shape::of(&network.a.verb(&["connections", "--listeners", "--json"]).json())),
        ("no daemon", shape(&["connections", "--socket", "/no/such"])),
    ]
}

fn doctor(network: &Network) -> Found {
    vec![
        ("with a daemon", Shape::of(&network.a.verb(&["doctor", "--json"]).json())),
        ("no daemon", shape(&["doctor", "--socket", "/no/such"])),
        ("wrong usage", shape(&["doctor", "--no-such-option"])),
    ]
}

fn plan(_: &Network) -> Found {
    let example = "examples/plan/flows.toml";
    let text = std::fs::read_to_string(format!("../../{example}")).expect("the example");
    let tight = place("shape-flows.toml");
    std::fs::write(&tight, text.replace("deadline = \"3ms\"", "deadline = \"0.5ms\"")).expect("a file");
    vec![
        ("schedulable", shape(&["plan", example])),
        ("not schedulable", shape(&["plan", &tight])),
        ("wrong usage", shape(&["plan", "--no-such-option"])),
    ]
}

fn profile(network: &Network) -> Found {
    let measured = network.a.verb(&["profile", "--link", "to-b", "--json"]).done().json();
    vec![
        ("one link", Shape::of(&measured)),
        ("no such link", Shape::of(&network.a.verb(&["profile", "--link", "no", "--json"]).json())),
    ]
}

fn profile_whole(_: &Network) -> Found {
    let (file, plot) = (place("shape-profile.toml"), place("shape-profile.svg"));
    vec![("quick", shape_of_success(&["profile", "--quick", "--force", "--output", &file, "--plot", &plot]))]
}

/// The summary of `recv`, which it writes to standard error, because standard output carries the messages.
fn recv(network: &Network) -> Found {
    let lines = |text: &str| -> Vec<Value> {
        text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
    };
    let listen = |more: &[&str]| {
        let receiver = network.b.start_verb(&[&["recv", "cam", "--json"], more].concat());
        network.b.await_listeners(1);
        let mut sender = network.a.start_verb(&with_contract("send", "cam@b", &["--split", "lines"]));
        sender.write(b"one\n");
        (receiver, sender)
    };
    let (receiver, sender) = listen(&["--info"]);
    sender.end().done();
    let received = lines(&receiver.end().done().stderr);
    let [line, summary] = &received[..] else { panic!("a message and a summary: {received:?}") };
    let (mut receiver, sender) = listen(&[]);
    receiver.await_output(b"one\n");
    sender.kill();
    let failed = lines(receiver.end().stderr.lines().next().expect("a summary"));
    network.b.await_no_channels();
    vec![
        ("a message", Shape::of(line)),
        ("ended", Shape::of(summary)),
        ("the sender failed", Shape::of_all(&failed)),
        ("no daemon", shape(&["recv", "cam", "--socket", "/no/such"])),
    ]
}

fn send(network: &Network) -> Found {
    let _receiver = network.b.start_verb(&["recv", "cam"]);
    network.b.await_listeners(1);
    let start = || network.a.start_verb(&with_contract("send", "cam@b", &["--split", "lines", "--json"]));
    let mut sender = start();
    sender.write(b"one\n");
    let sent = sender.end().done().json();
    let refused = network.a.verb(&with_contract("send", "none@b", &["--json"])).json();
    let _receiver = network.b.start_verb(&["recv", "cam"]);
    network.b.await_listeners(1);
    let mut sender = start();
    sender.write(&noise(100_000));
    let broken_off = sender.end().json();
    network.a.await_no_channels();
    vec![
        ("done", Shape::of(&sent)),
        ("broken off", Shape::of(&broken_off)),
        ("refused", Shape::of(&refused)),
        ("wrong usage", shape(&["send", "--no-such-option"])),
    ]
}

fn sim(_: &Network) -> Found {
    let small = |which: &[&str]| {
        let rest = ["--size", "small", "--faults", "none", "--traffic-ms", "200"];
        shape(&[&["sim"], which, &rest[..]].concat())
    };
    let (campaign, case) = (place("shape-campaign.json"), place("shape-case.toml"));
    // A campaign continues where its file ends.
    let _ = std::fs::remove_file(&campaign);
    std::fs::write(&case, "[[case]]\nseed = 1\nlesson = \"x\"\nsize = \"small\"\ntraffic_ms = 100\n")
        .expect("a file");
    vec![
        ("one seed", small(&["--seed", "1"])),
        ("some seeds", small(&["--seeds", "1..3"])),
        ("timeline", small(&["--seed", "1", "--trace"])),
        ("campaign", small(&["--campaign", &campaign, "--seeds", "1..3"])),
        ("case", shape(&["sim", "--case", &case])),
        ("minimised", small(&["--minimise", "3"])),
        ("a violation", Shape::of(&json!(Violation { seed: 1, what: String::new() }))),
        ("wrong usage", shape(&["sim"])),
    ]
}

fn status(network: &Network) -> Found {
    let mut receiver = network.b.start_verb(&["recv", "cam"]);
    network.b.await_listeners(1);
    let mut sender = network.a.start_verb(&with_contract("send", "cam@b", &["--split", "lines"]));
    sender.write(b"one\n");
    receiver.await_output(b"one\n");
    let program = Endsystem::connect_to(network.a.socket()).expect("a connection");
    let _handlers = handlers(&program);
    eventually("the counts were compared", || !network.a.json(&["status"])["audit"].is_null());
    let status = [&network.a, &network.b].map(|host| host.json(&["status"]));
    sender.end().done();
    receiver.end().done();
    network.a.await_no_channels();
    let mut cases =
        vec![("at work", Shape::of_all(&status)), ("no daemon", shape(&["status", "--socket", "/no/such"]))];
    cases.extend(troubles());
    cases
}

/// A handler of each class.
fn handlers(program: &Endsystem) -> Vec<Rtu> {
    let span = Nanos::from_millis(50);
    let low = Class::LowDelay { interval: span, units: 1, priority: None };
    let cost = Cost { run: Nanos::ZERO, unit: Nanos(1_000) };
    let classes = [low, Class::periodic(span, 1), Class::BestEffort];
    let terms = classes.map(|class| Terms { class, deadline: None, quantum: 1, cost });
    terms.map(|terms| program.register(terms, |_| Progress::default()).expect("granted")).into()
}

/// Parts of the status that a host has only if something is wrong.
fn troubles() -> Found {
    let late = Lateness { times: 1, by_max: Nanos(1) };
    let (host, towards) = ("a".to_owned(), Some("b".to_owned()));
    let cause = Cause::SlowLink { drains: BitRate(1), configured: BitRate(2) };
    let broken = BrokenStage { host: host.clone(), towards: towards.clone(), late, cause, channels: Some(1) };
    let late = LateStage { host, towards, late, seen_in: SeenIn::OwnClock };
    let wrong = WrongCount { what: String::new(), link: Some(LinkId(0)), counted: 1, held: 0 };
    vec![
        ("a stage that breaks its promise", Shape::of(&json!(broken))),
        ("a stage that is late", Shape::of(&json!(late))),
        ("a wrong count", Shape::of(&json!(wrong))),
    ]
}

/// A naming service that ends with this value, and what it printed.
struct Service(Child, Value);

impl Service {
    fn start() -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_punctual"));
        let command = command.args(["naming", "--listen", "127.0.0.1:0", "--json"]).stdout(Stdio::piped());
        let mut child = command.spawn().expect("it starts");
        let printed = child.stdout.take().expect("piped");
        let first = serde_json::Deserializer::from_reader(printed).into_iter().next();
        Self(child, first.expect("it prints").expect("JSON"))
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn naming(_: &Network) -> Found {
    let Service(_, printed) = &Service::start();
    let wrong = shape(&["naming", "--listen", "nowhere"]);
    vec![("started", Shape::of(printed)), ("wrong usage", wrong)]
}

fn call(_: &Network) -> Found {
    let service = Service::start();
    let reference = service.1["corbaloc"].as_str().expect("a reference");
    let call = |operation: &'static str, argument: &'static str| {
        let idl = "crates/orb/src/naming/CosNaming.idl";
        ["call", reference, operation, argument, "--idl", idl, "--interface", "CosNaming::NamingContextExt"]
    };
    vec![
        ("result", shape_of_success(&call("list", "1"))),
        ("exception", shape(&call("resolve_str", "a"))),
        ("system exception", shape(&["call", "corbaloc::127.0.0.1:1/x", "_is_a", "x"])),
        ("wrong usage", shape(&call("list", "x"))),
    ]
}

fn ior(_: &Network) -> Found {
    let of_omniorb = "IOR:010000000d00000049444c3a4563686f3a312e3000000000010000000000000079000000010102000a0000003132\
                      372e302e302e31009fc501000000780000000300000000000000080000000100000000545441010000001c0000000100\
                      0000010001000100000001000105090101000100000009010100025454411d0000000100000003000000766d00000d00\
                      00002f746d702f67696f70742f7300";
    vec![
        ("reference", shape_of_success(&["ior", of_omniorb])),
        ("service", shape_of_success(&["ior", "corbaname:rir:#a/b"])),
        ("wrong usage", shape(&["ior", "http://host"])),
    ]
}

fn suggest(_: &Network) -> Found {
    let trace = "examples/traces/bigbuckbunny-720p25-h264.csv";
    let of = |more: &[&str]| shape(&[&["suggest", trace, "--deadline", "80ms"], more].concat());
    vec![
        ("choices", of(&[])),
        ("choices and a contract", of(&["--contract", "110KB,25/s,1"])),
        ("no such file", shape(&["suggest", "/no/such", "--deadline", "80ms"])),
        ("wrong usage", shape(&["suggest", "--no-such-option"])),
    ]
}
