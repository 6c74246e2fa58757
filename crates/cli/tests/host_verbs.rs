//! The verbs that connect to a daemon, as a script uses them: two hosts on loopback, every verb a process of
//! its own.

mod network;

use network::{MESSAGES, Network, eventually, noise, one_line_through, with_contract};
use serde_json::{Value, json};

#[test]
fn what_is_sent_is_received_byte_for_byte() {
    let network = Network::start();
    let receiver = network.b.start_verb(&["recv", "cam", "--json"]);
    network.b.await_listeners(1);
    // The last block is a short one.
    let stream = noise(MESSAGES * 1_000 - 300);
    let mut sender = network.a.start_verb(&with_contract("send", "cam@b", &["--split", "1KB", "--json"]));
    sender.write(&stream);
    let sent = sender.end().done().json();
    assert_eq!((&sent["messages"], &sent["bytes"]), (&json!(MESSAGES), &json!(stream.len())));
    assert_eq!(sent["grant"]["deadline"], json!(1_000_000_000_u64));
    let received = receiver.end().done();
    assert!(received.stdout == stream, "{} B came of {}", received.stdout.len(), stream.len());
    let summary: Value = serde_json::from_str(&received.stderr).expect("a summary");
    assert_eq!((&summary["messages"], &summary["lost"]), (&json!(MESSAGES), &json!(0)));
    assert_eq!((&summary["from"], &summary["bytes"]), (&json!("a"), &json!(stream.len())));
    assert!(summary["slack_ns_min"].is_i64());
    network.a.await_no_channels();
    network.b.await_no_channels();
}

#[test]
fn lines_are_messages_and_a_count_ends_the_receiver() {
    let network = Network::start();
    let receiver = network.b.start_verb(&["recv", "log", "--count", "2", "--info", "--json", "--from", "a"]);
    network.b.await_listeners(1);
    let mut sender = network.a.start_verb(&with_contract("send", "log@b", &["--split", "lines"]));
    sender.write(b"one\nthree\n");
    let received = receiver.end().done();
    assert_eq!(received.stdout, b"one\nthree\n");
    let lines: Vec<Value> =
        received.stderr.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let [first, second, summary] = lines.try_into().expect("two messages and a summary");
    assert_eq!((&first["number"], &first["bytes"]), (&json!(0), &json!(4)));
    assert_eq!((&second["number"], &second["bytes"]), (&json!(1), &json!(6)));
    assert_eq!(summary["messages"], json!(2));
}

#[test]
fn a_channel_shows_at_both_ends_while_it_is_open() {
    let network = Network::start();
    let (receiver, sender) = one_line_through(&network);
    let (source, sink) = (network.a.json(&["channels"]), network.b.json(&["channels"]));
    for (channels, role) in [(&source, "source"), (&sink, "sink")] {
        let channel = &channels[0];
        assert_eq!(channels.as_array().map(Vec::len), Some(1));
        assert_eq!((&channel["role"], &channel["state"]), (&json!(role), &json!("open")));
        assert_eq!((&channel["from"], &channel["to"]), (&json!("a"), &json!({"port": "cam", "host": "b"})));
        assert_eq!(channel["contract"]["message_bytes_max"], json!(1_000));
        assert_eq!(channel["contract"]["deadline"], json!(1_000_000_000_u64));
        assert_eq!(channel["counters"]["incomplete"], json!(0));
    }
    assert_eq!(source[0]["path"], sink[0]["path"]);
    let status = network.a.json(&["status"]);
    assert_eq!((&status["node"]["name"], &status["node"]["channels"]), (&json!("a"), &json!(1)));
    assert!(status["node"]["links"][0]["packets_guaranteed"].as_u64() >= Some(1));
    let text = String::from_utf8(network.b.verb(&["channels"]).done().stdout).expect("text");
    assert!(text.contains("cam@b") && text.contains("sink"), "{text}");
    sender.end().done();
    assert_eq!(receiver.end().done().stdout, b"a line\n");
    network.a.await_no_channels();
    network.b.await_no_channels();
}

#[test]
fn status_and_doctor_show_that_the_host_guarantees_nothing() {
    let network = Network::start();
    let status = network.a.json(&["status"]);
    assert_eq!(status["engine"]["best_effort_host"], json!(true));
    assert_eq!((&status["node"]["id"], &status["node"]["channels"]), (&json!(1), &json!(0)));
    let link = &status["node"]["links"][0];
    assert_eq!((&link["name"], &link["neighbour"]), (&json!("to-b"), &json!(2)));
    for counter in ["malformed", "version", "unknown_path", "wrong_cookie", "unauthenticated", "replayed"] {
        assert_eq!(status["node"]["drops"][counter], json!(0), "{counter}");
    }
    for counter in ["requests", "errors", "malformed", "over_quota", "broken_rings"] {
        assert!(status["api"][counter].is_u64(), "{counter}");
    }
    let text = String::from_utf8(network.a.verb(&["status"]).done().stdout).expect("text");
    assert!(text.contains("host a (node 1)") && text.contains("DEGRADED"), "{text}");
    let doctor = network.a.verb(&["doctor", "--json"]);
    let report = doctor.json();
    assert_eq!((doctor.code, &report["ok"]), (Some(1), &json!(false)));
    let findings = report["findings"].as_array().expect("a list");
    let daemon = findings.iter().find(|finding| finding["name"] == "daemon").expect("it checks the daemon");
    assert_eq!(daemon["state"], json!("problem"));
    assert!(findings.iter().any(|finding| finding["name"] == "leftover namespaces"), "{report}");
    assert!(findings.iter().all(|finding| finding["state"] == "ok" || finding["fix"] != ""), "{report}");
}

#[test]
fn doctor_reads_the_configuration_and_names_what_is_wrong() {
    let network = Network::start();
    let finding = |path: &str| {
        let report = network.a.verb(&["doctor", "--json", "--config", path]).json();
        let findings = report["findings"].as_array().expect("a list");
        findings.iter().find(|finding| finding["name"] == "configuration").expect("it reads it").clone()
    };
    for host in ["a", "b"] {
        let path = format!("{}/../../docs/loopback/{host}.toml", env!("CARGO_MANIFEST_DIR"));
        assert_eq!(finding(&path)["state"], json!("ok"), "{path}");
    }
    let path = network.directory.join("bad.toml");
    std::fs::write(&path, "[node]\nname = \"a\"\ncolour = 1\n").expect("a file");
    let bad = finding(&path.display().to_string());
    assert_eq!(bad["state"], json!("problem"));
    assert!(
        bad["found"].as_str().is_some_and(|found| found.contains("bad.toml:3") && found.contains("colour"))
    );
    assert_eq!(finding("/no/such/file")["state"], json!("problem"));
}

#[test]
fn admit_answers_yes_or_no_with_an_offer_that_holds() {
    let network = Network::start();
    let _receiver = network.b.start_verb(&["recv", "cam"]);
    network.b.await_listeners(1);
    let yes = network.a.json(&with_contract("admit", "cam@b", &[]));
    assert_eq!((&yes["admitted"], &yes["refusal"]), (&json!(true), &Value::Null));
    let kinds: Vec<&Value> =
        yes["grant"]["stages"].as_array().expect("a list").iter().map(|s| &s["kind"]).collect();
    assert_eq!(kinds, ["source-cpu", "link", "sink-cpu"]);
    assert_eq!(yes["grant"]["route"], json!([1, 2]));
    let explained = network.a.verb(&with_contract("admit", "cam@b", &["--explain"])).done();
    let text = String::from_utf8(explained.stdout).expect("text");
    assert!(text.starts_with("yes: ") && text.contains("sink CPU") && text.contains("blocking"), "{text}");

    let video = ["--rate", "25/s", "--size", "110KB"];
    let ask = |deadline: &str| {
        network.a.verb(&[&["admit", "cam@b", "--json", "--deadline", deadline], &video[..]].concat())
    };
    let no = ask("5ms");
    let answer = no.json();
    assert_eq!((no.code, &answer["admitted"], &answer["grant"]), (Some(1), &json!(false), &Value::Null));
    assert!(answer["reason"].as_str().is_some_and(|reason| {
        reason.starts_with("refused: a deadline of 5000.0 us is too short, the whole route needs ")
    }));
    assert!(answer["reason"].as_str().is_some_and(|reason| reason.contains("; first refused by host a: ")));
    let offered = answer["refusal"]["offer"]["deadline"].as_u64().expect("an offer");
    assert!(offered > 5_000_000);
    assert_eq!(ask(&format!("{offered}ns")).done().json()["admitted"], json!(true));
    // The printed text agrees; and a deadline shorter by a microsecond is refused.
    let printed = answer["reason"].as_str().and_then(|reason| reason.rsplit("within ").next());
    let printed = printed.expect("a deadline").replace(' ', "");
    assert_eq!(ask(&printed).done().json()["admitted"], json!(true), "{printed}");
    assert_eq!(ask(&format!("{}ns", offered - 1_000)).json()["admitted"], json!(false));
    assert_eq!(answer["refusal"]["stages"].as_array().map(Vec::len), Some(3), "who would say yes");
    let explained = [&["admit", "cam@b", "--explain", "--deadline", "5ms"], &video[..]].concat();
    let text = String::from_utf8(network.a.verb(&explained).stdout).expect("text");
    assert!(text.contains("What it could offer is made of") && text.contains("sink CPU"), "{text}");
    // A dry run reserves nothing.
    assert_eq!(network.a.json(&["channels"]), json!([]));
}

#[test]
fn smaller_packets_of_best_effort_shorten_blocking_in_the_explanation() {
    let blocking = |link: &str| {
        let network = Network::start_with("", link);
        let _receiver = network.b.start_verb(&["recv", "cam"]);
        network.b.await_listeners(1);
        let answer = network.a.json(&with_contract("admit", "cam@b", &["--explain"]));
        let stages = answer["grant"]["stages"].as_array().expect("a list");
        let link = stages.iter().find(|stage| stage["kind"] == "link").expect("a link");
        link["made_of"]["blocking"].as_u64().expect("a time")
    };
    let usual = blocking("pipeline_depth = 1");
    let less = blocking("pipeline_depth = 1\npacket_best_effort = \"500B\"");
    // At 99 Mbit/s and 100 us of reaction: 1,530 B of best effort, or 630 B. The channel's own packet of 1,130 B blocks others,
    // not the channel.
    assert!((223_000..224_500).contains(&usual) && (150_500..151_500).contains(&less), "{less} and {usual}");
}

#[test]
fn a_daemon_serves_by_its_plan_and_refuses_other_flows() {
    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/plan/flows.toml");
    let plan = std::env::temp_dir().join(format!("punctual-plan-{}.toml", std::process::id()));
    let made = std::process::Command::new(env!("CARGO_BIN_EXE_punctual"))
        .args(["plan", example, "--output"])
        .arg(&plan)
        .output()
        .expect("punctual runs");
    assert!(made.status.success(), "{made:?}");
    let keys = format!("processor.policy = \"rmdp\"\nprocessor.plan = \"{}\"", plan.display());
    let network = Network::start_with(&keys, "");
    std::fs::remove_file(&plan).expect("it was there");
    let receiver = network.b.start_verb(&["recv", "cam", "--count", "1"]);
    network.b.await_listeners(1);
    let ask = |flow: &str, size: &str| {
        let asked = ["--flow", flow, "--rate", "100/s", "--size", size, "--deadline", "2s"];
        network.a.verb(&[&["admit", "cam@b", "--json"], &asked[..]].concat())
    };
    let planned = ask("camera", "11200B").json();
    assert_eq!(planned["admitted"], json!(true), "{planned}");
    for (flow, size, why) in [("nobody", "11200B", "no flow"), ("camera", "22400B", "packets")] {
        let no = ask(flow, size);
        assert_eq!(no.code, Some(1));
        let reason = no.json()["reason"].as_str().expect("a reason").to_owned();
        assert!(reason.contains(why), "{reason}");
    }
    let film = noise(11_200);
    let flow = ["--flow", "camera", "--rate", "100/s", "--size", "11200B", "--deadline", "2s"];
    let mut sender = network.a.start_verb(&[&["send", "cam@b"], &flow[..]].concat());
    sender.write(&film);
    sender.end().done();
    assert_eq!(receiver.end().done().stdout, film);
}

#[test]
fn a_no_of_network_or_receiver_is_one_line_and_exit_code_1() {
    let network = Network::start();
    let send = |peer: &str| network.a.verb(&with_contract("send", peer, &[]));
    send("cam@b").complains(1, "no program listens on \"cam\": start a receiver there first");
    send("cam@nowhere").complains(1, "add it to [[host]]");
    send("cam@far").complains(1, "no route to \"far\"");
    send("cam@a").complains(1, "\"a\" is this host");
    send("cam@fare").complains(1, "did you mean \"far\"?");
    for (verb, code, line) in [("admit", 1, "did you mean"), ("send", 1, "did you mean")] {
        let failed = network.a.verb(&with_contract(verb, "cam@farr", &["--json"]));
        let error = failed.json()["error"].clone();
        assert_eq!((failed.code, &error["exit_code"]), (Some(code), &json!(code)));
        assert!(error["message"].as_str().is_some_and(|message| message.contains(line)), "{error}");
        assert!(failed.stderr.starts_with("punctual: "), "{}", failed.stderr);
    }
    let receiver = network.b.start_verb(&["recv", "cam", "--from", "far"]);
    network.b.await_listeners(1);
    send("cam@b").complains(1, "only far may send");
    network.b.verb(&["recv", "cam"]).complains(1, "\"cam\" already has a listener");
    for (arguments, code, line) in [
        (&["recv", "cam", "--json"][..], 1, "\"cam\" already has a listener"),
        (&["recv", "cam", "--json", "--socket", "/no/such"], 1, "start punctuald"),
        (
            &["recv", "cam", "--json", "--from", "nowhere"],
            1,
            "--from: host \"nowhere\" is not in the directory: add it",
        ),
        (&["recv", "cam", "--json", "--from", "c/m"], 2, "no name"),
    ] {
        let failed = network.b.verb(arguments);
        let error = failed.json()["error"].clone();
        assert_eq!((failed.code, &error["exit_code"]), (Some(code), &json!(code)), "{arguments:?}");
        assert!(error["message"].as_str().is_some_and(|message| message.contains(line)), "{error}");
        assert_eq!(failed.stderr.lines().count(), 1, "{}", failed.stderr);
    }
    network.b.verb(&["recv", "other", "--from", "farr"]).complains(1, "did you mean \"far\"?");
    network.b.verb(&["recv", "other", "--from", "b"]).complains(1, "\"b\" is this host");
    let heavy = ["send", "cam@b", "--rate", "1000/s", "--size", "1MB", "--deadline", "1s"];
    network.a.verb(&heavy).complains(1, "% of the stage would be reserved");
    network.a.verb(&["status", "--socket", "/no/such"]).complains(1, "start punctuald");
    drop(receiver);
    network.b.await_listeners(0);
    send("cam@b").complains(1, "no program listens");
}

#[test]
fn mistakes_are_one_line_and_exit_code_2() {
    let network = Network::start();
    for verb in ["send", "admit"] {
        let run = |peer: &str, rate: &str, size: &str, deadline: &str, burst: &str| {
            let contract = ["--rate", rate, "--size", size, "--deadline", deadline, "--burst", burst];
            network.a.verb(&[&[verb, peer], &contract[..]].concat())
        };
        run("cam", "25/s", "1KB", "80ms", "1").complains(2, "cam@hostb");
        run("c/m@b", "25/s", "1KB", "80ms", "1").complains(2, "\"c/m\" is no name");
        run("cam@b", "0/s", "1KB", "80ms", "1").complains(2, "25/s");
        run("cam@b", "-5/s", "1KB", "80ms", "1").complains(2, "give a rate as 25/s");
        run("cam@b", "25/s", "1KB", "-80ms", "1").complains(2, "is negative");
        run("cam@b", "25/s", "0B", "80ms", "1").complains(2, "message size 0 B: give 1 B");
        run("cam@b", "25/s", "110", "80ms", "1").complains(2, "give bytes with their unit as 256B, 110KB");
        run("cam@b", "25/s", "4000MB", "80ms", "1").complains(2, "message size");
        run("cam@b", "25/s", "1KB", "0ms", "1").complains(2, "deadline 0 ns");
        run("cam@b", "25/s", "1KB", "80", "1").complains(2, "80ms");
        run("cam@b", "25/s", "1KB", "80ms", "0").complains(2, "at least 1");
        run("cam@b", "25/s", "1KB", "80ms", "1000000").complains(2, "give 1 to 65536");
        network.a.verb(&[verb, "cam@b"]).complains(2, &format!("see 'punctual {verb} --help'"));
    }
    network.a.verb(&with_contract("send", "cam@b", &["--split", "0B"])).complains(2, "lines");
    network.b.verb(&["recv", "a@b"]).complains(2, "no name");
    network.b.verb(&["recv", "cam", "--count", "0"]).complains(2, "at least 1");
    for verb in ["status", "channels", "doctor"] {
        network.a.verb(&[verb, "--colour"]).complains(2, "--colour");
    }
}

#[test]
fn a_message_longer_than_the_contract_ends_the_sender_not_the_host() {
    let network = Network::start();
    let receiver = network.b.start_verb(&["recv", "cam"]);
    network.b.await_listeners(1);
    let mut sender = network.a.start_verb(&with_contract("send", "cam@b", &["--split", "lines"]));
    sender.write(format!("short\n{}\n", "long".repeat(1_000)).as_bytes());
    sender.end().complains(1, "1000 B");
    let received = receiver.end();
    assert_eq!((received.code, received.stdout.as_slice()), (Some(1), b"short\n".as_slice()));
    assert!(received.stderr.contains("the stream may be incomplete"), "{}", received.stderr);
    network.a.await_no_channels();
    assert_eq!(network.b.json(&["status"])["node"]["channels"], json!(0));
}

#[test]
fn a_receiver_that_is_killed_ends_its_sender_and_leaves_nothing() {
    let network = Network::start();
    let (receiver, mut sender) = one_line_through(&network);
    receiver.kill();
    network.a.await_no_channels();
    sender.write(b"another line\n");
    sender.end().complains(1, "after 1 message: the application at the other end ended without closing it");
    network.b.await_no_channels();
}

#[test]
fn a_daemon_that_stops_ends_the_verbs_that_need_it() {
    let mut network = Network::start();
    let (receiver, mut sender) = one_line_through(&network);
    network.b.stop();
    let received = receiver.end();
    assert_eq!((received.code, received.stdout.as_slice()), (Some(1), b"a line\n".as_slice()));
    assert!(received.stderr.contains("the stream may be incomplete"), "{}", received.stderr);
    network.a.await_no_channels();
    sender.write(b"another line\n");
    sender
        .end()
        .complains(1, "after 1 message: the daemon of the other host, or of one on the route, was shut down");
    network.b.verb(&["status"]).complains(1, "no daemon at");
    network.a.verb(&["status"]).done();
    eventually("its neighbour misses it", || {
        network.a.json(&["status"])["node"]["links"][0]["alive"] == Value::Bool(false)
    });
    let report = network.a.verb(&["doctor", "--json"]).json();
    let findings = report["findings"].as_array().expect("a list");
    let down = findings.iter().find(|it| it["name"] == "link").expect("it repeats what status reports");
    assert_eq!((&down["state"], &report["ok"]), (&json!("problem"), &json!(false)));
    assert!(down["found"].as_str().is_some_and(|found| found.starts_with("to-b: b is DOWN")), "{down}");
}

#[test]
fn profile_measures_a_link_of_the_running_daemon_while_no_channel_uses_it() {
    let network = Network::start();
    let status = || network.a.json(&["status"])["node"]["links"][0]["rate"].clone();
    assert_eq!((&status()["rate_bps"], &status()["measured"]), (&json!(100_000_000), &Value::Null));
    let rate = network.a.verb(&["profile", "--link", "to-b", "--json"]).done().json();
    assert_eq!((&rate["link"], &rate["rate_configured_bps"]), (&json!("to-b"), &json!(100_000_000)));
    let measured = rate["rate_measured_bps"].as_u64().expect("measured");
    // Loopback carries whatever this machine has time for.
    assert!(measured > 1_000_000 && measured <= 100_000_000, "{rate}");
    assert!(rate["error_bps"].is_u64() && rate["at_least"].is_boolean(), "{rate}");
    assert_eq!(status()["measured"]["rate_bps"], rate["rate_measured_bps"]);
    let text = String::from_utf8(network.a.verb(&["status"]).done().stdout).expect("text");
    assert!(text.contains("rate of to-b: configured 100.0 Mbit/s; measured "), "{text}");
    let (receiver, sender) = one_line_through(&network);
    let refused = network.a.verb(&["profile", "--link", "to-b"]);
    refused.complains(1, "link to-b is not measured: a guaranteed channel uses the link");
    sender.end().done();
    receiver.end().done();
    let quick = network.a.verb(&["profile", "--link", "to-b", "--quick"]);
    quick.complains(2, "--link alone asks the running daemon");
    network.a.verb(&["profile", "--link", "to-c"]).complains(1, "no link \"to-c\": this host has to-b");
}

#[test]
fn every_host_verb_shows_an_example() {
    let network = Network::start();
    for verb in ["status", "channels", "admit", "send", "recv", "doctor", "profile"] {
        let help = String::from_utf8(network.a.verb(&[verb, "--help"]).done().stdout).expect("text");
        assert!(
            (help.contains("Example: ") || help.contains("Examples: "))
                && help.contains("--json")
                && help.contains("--socket"),
            "{help}"
        );
    }
}

/// Text of a remote receiver contains no order to the terminal, and no line break.
#[test]
fn a_hostile_refusal_is_one_line_of_text() {
    let network = Network::start();
    let host = punctual::Endsystem::connect_to(network.b.socket()).expect("connected");
    let reason = "\x1b[2J\x1b]0;owned\x07\r\npunctual: ok\u{202e}ton\u{9b}31m";
    let listener = host.listen("evil", move |_| punctual::Consent::Refuse(reason.into()));
    let _listener = listener.expect("a listener");
    for verb in ["send", "admit"] {
        for json in [&[][..], &["--json"]] {
            let ended = network.a.verb(&with_contract(verb, "evil@b", json));
            let printed = format!("{}{}", ended.stderr, String::from_utf8_lossy(&ended.stdout));
            let order = printed.chars().find(|c| (c.is_control() && *c != '\n') || *c == '\u{202e}');
            assert_eq!(order, None, "{verb}: {printed:?}");
            assert!(
                verb == "admit" || ended.stderr.contains("punctual: ok") && ended.stderr.lines().count() == 1
            );
        }
    }
}
