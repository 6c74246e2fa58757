//! The output of verbs about channels and hosts: how streams end, which hosts guarantee nothing, in which
//! units.

mod network;

use std::os::unix::fs::PermissionsExt;

use network::{Network, eventually, one_line_through, with_contract};
use serde_json::{Value, json};

#[test]
fn a_sender_that_is_killed_is_no_end_of_the_stream() {
    let network = Network::start();
    for json in [false, true] {
        let more: &[&str] = if json { &["--json"] } else { &[] };
        let mut receiver = network.b.start_verb(&[&["recv", "cam"], more].concat());
        network.b.await_listeners(1);
        let mut sender = network.a.start_verb(&with_contract("send", "cam@b", &["--split", "lines"]));
        sender.write(b"a line\n");
        receiver.await_output(b"a line\n");
        sender.kill();
        let received = receiver.end();
        assert_eq!((received.code, received.stdout.as_slice()), (Some(1), b"a line\n".as_slice()));
        let printed = &received.stderr;
        assert!(
            printed.contains("ended without closing it") && printed.contains("after 1 message: "),
            "{printed}"
        );
        if json {
            let summary: Value =
                serde_json::from_str(printed.lines().next().unwrap_or_default()).expect("a summary");
            assert_eq!((&summary["ended"], &summary["messages"]), (&json!("peer-vanished"), &json!(1)));
            // Standard output is a stream by now.
            assert_eq!(summary["error"]["exit_code"], json!(1));
        }
        network.b.await_no_channels();
    }
}

#[test]
fn the_refusal_of_a_channel_names_a_neighbour_with_another_key() {
    let network = Network::of_unknown_senders();
    let why = "link to-b: packets from b FAIL AUTHENTICATION: compare [signalling] key";
    eventually("they hear each other", || {
        network.a.json(&["status"])["node"]["links"][0]["unauthenticated"].as_u64() > Some(0)
    });
    network.a.verb(&with_contract("send", "cam@b", &[])).complains(1, why);
    let no = network.a.verb(&with_contract("admit", "cam@b", &["--json"]));
    assert!(no.json()["reason"].as_str().is_some_and(|reason| reason.contains(why)), "{}", no.json());
    let report = network.a.verb(&["doctor", "--json"]).json();
    let findings = report["findings"].as_array().expect("a list");
    let has = |name: &str, found: &str| {
        let fits =
            |it: &&Value| it["name"] == name && it["found"].as_str().is_some_and(|it| it.contains(found));
        findings.iter().any(|finding| fits(&finding) && finding["state"] == "problem")
    };
    assert!(has("authentication", "packets from b fail authentication"), "{report}");
    assert!(has("link", "to-b: b is DOWN: nothing can be guaranteed over it until it is up"), "{report}");
    assert_eq!(report["ok"], json!(false));
}

#[test]
fn a_sender_that_fails_is_no_end_of_the_stream() {
    let network = Network::start();
    let mut receiver = network.b.start_verb(&["recv", "cam"]);
    network.b.await_listeners(1);
    let mut sender = network.a.start_verb(&with_contract("send", "cam@b", &["--split", "lines", "--json"]));
    sender.write(b"a line\n");
    receiver.await_output(b"a line\n");
    sender.write(&[&[b'x'; 100_000][..], b"\n"].concat());
    let sent = sender.end();
    let error = &sent.json()["error"];
    assert_eq!((sent.code, &error["exit_code"]), (Some(1), &json!(1)));
    assert!(error["message"].as_str().is_some_and(|printed| printed.contains("--size allows")), "{error}");
    let received = receiver.end();
    assert_eq!((received.code, received.stdout.as_slice()), (Some(1), b"a line\n".as_slice()));
    assert!(received.stderr.contains("ended without closing it"), "{}", received.stderr);
}

#[test]
fn a_receiver_prints_that_it_listens_and_outlives_senders_that_fail_before_their_first_message() {
    let network = Network::start();
    let mut receiver = network.b.start_verb(&["recv", "cam"]);
    receiver.await_line("listening: senders open cam@b\n", 1);
    // A sender whose first message is too long, and one that is killed before its first message.
    let mut sender = network.a.start_verb(&with_contract("send", "cam@b", &["--split", "lines"]));
    sender.write(&[&[b'x'; 100_000][..], b"\n"].concat());
    sender.end().complains(1, "after 0 messages: a message of ");
    receiver.await_line("listening: senders open cam@b\n", 2);
    receiver.await_line(
        "the sender on a failed before its first message: the application at the other end ended",
        1,
    );
    let sender = network.a.start_verb(&with_contract("send", "cam@b", &["--split", "lines"]));
    eventually("it is open", || network.b.json(&["channels"])[0]["state"] == "open");
    sender.kill();
    receiver.await_line("listening: senders open cam@b\n", 3);
    let mut sender = network.a.start_verb(&with_contract("send", "cam@b", &["--split", "lines"]));
    sender.write(b"a line\n");
    sender.end().done();
    assert_eq!(receiver.end().done().stdout, b"a line\n");
}

#[test]
fn a_script_gets_the_failure_of_a_sender_as_json() {
    let network = Network::start();
    let mut receiver = network.b.start_verb(&["recv", "cam", "--json", "--stall", "200ms"]);
    network.b.await_listeners(1);
    let mut sender = network.a.start_verb(&with_contract("send", "cam@b", &["--split", "lines"]));
    sender.write(&[&[b'x'; 100_000][..], b"\n"].concat());
    sender.end().complains(1, "after 0 messages");
    receiver.await_line("\n", 1);
    network.b.await_listeners(1);
    let mut sender = network.a.start_verb(&with_contract("send", "cam@b", &["--split", "lines"]));
    sender.write(b"a line\n");
    sender.end().done();
    let received = receiver.end().done();
    let lines: Vec<Value> =
        received.stderr.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let [failed, last] = lines.try_into().expect("one for each sender");
    assert_eq!((&failed["messages"], &failed["ended"]), (&json!(0), &json!("peer-vanished")));
    assert_eq!((&failed["error"]["exit_code"], &last["error"]), (&json!(1), &Value::Null));
    assert_eq!((&last["messages"], &last["ended"]), (&json!(1), &json!("peer")));
}

#[test]
fn a_socket_that_this_user_may_not_use_is_not_taken_for_a_daemon_that_is_gone() {
    let network = Network::start();
    let socket = network.b.socket().to_owned();
    let no_permissions = std::fs::Permissions::from_mode(0o000);
    std::fs::set_permissions(&socket, no_permissions).expect("the socket is ours");
    let refused = std::thread::spawn(move || {
        // Root may use any socket; of this thread alone, another user.
        if rustix::process::geteuid().is_root() {
            let other = rustix::process::Uid::from_raw(65_534);
            rustix::thread::set_thread_res_uid(other, other, other).expect("root may");
        }
        punctual::Endsystem::connect_to(&socket).err().expect("no permission").to_string()
    });
    let line = refused.join().expect("no panic");
    assert!(
        line.starts_with("no permission to use the daemon's socket ") && line.contains("socket_mode"),
        "{line}"
    );
}

#[test]
fn both_ends_show_what_arrived_and_which_host_guarantees_nothing() {
    let network = Network::start();
    let receiver = network.b.start_verb(&["recv", "cam", "--json"]);
    network.b.await_listeners(1);
    let mut sender = network.a.start_verb(&with_contract("send", "cam@b", &["--split", "lines", "--json"]));
    sender.write(b"one\n");
    eventually("it is open", || {
        let channels = [&network.a, &network.b].map(|host| host.json(&["channels"])[0].clone());
        channels.iter().all(|channel| channel["state"] == "open")
    });
    for host in [&network.a, &network.b] {
        let channel = host.json(&["channels"])[0].clone();
        assert_eq!(
            (&channel["guarantee"], &channel["degraded_by"]),
            (&json!("degraded"), &json!(["a", "b"]))
        );
        let degraded = channel["degraded"].as_array().expect("a list");
        let printed: Vec<_> = degraded.iter().map(|it| (&it["place"], &it["cause_kind"])).collect();
        let kind = json!("no-real-time");
        assert_eq!(printed, [(&json!("host a"), &kind), (&json!("host b"), &kind)]);
        assert_eq!(channel["counters"]["late"], channel["counters"]["misses"]);
        let text = String::from_utf8(host.verb(&["channels"]).done().stdout).expect("text");
        assert!(text.contains("DEGRADED by a, b"), "{text}");
    }
    sender.write(b"two\nthree\n");
    let sent = sender.end().done().json();
    assert_eq!((&sent["messages"], &sent["delivered"], &sent["lost"]), (&json!(3), &json!(3), &json!(0)));
    assert_eq!((&sent["ended"], &sent["degraded_by"]), (&json!("local"), &json!(["a", "b"])));
    let received = receiver.end().done();
    let summary: Value = serde_json::from_str(&received.stderr).expect("a summary");
    assert_eq!((&summary["ended"], &summary["degraded_by"]), (&json!("peer"), &json!(["a", "b"])));

    let _receiver = network.b.start_verb(&["recv", "cam"]);
    network.b.await_listeners(1);
    let yes = network.a.json(&with_contract("admit", "cam@b", &[]));
    assert_eq!(yes["degraded_by"], json!(["a", "b"]));
    let text = network.a.verb(&with_contract("admit", "cam@b", &[])).done().stdout;
    assert!(String::from_utf8(text).expect("text").contains("DEGRADED by a, b"));
}

/// Every number in the verbs' `--json` output has its unit: in its key, or in a second key beside a key that
/// always existed, unless it is a count or a name.
#[test]
fn numbers_have_their_units() {
    const UNITS: [&str; 9] =
        ["_bps", "_ns", "_ms", "_s", "_bytes", "_ppm", "_ppb", "_percent", "_per_second"];
    const COUNTS: &str = "
        api at_risk best_effort_dropped broken_rings burst_messages_max bytes_out channel channels
        channels_soft clients delayed demoted driver_full dropped epoch errors expired filters_failed first fragmented id
        incomplete late late_wakes link links_failed listeners loop_ns_max loops malformed message_bytes_max
        messages_in messages_out misses neighbour no_buffer no_receiver node not_reading occupancy_max
        outbox_messages over_cap over_quota overflows overruns packets_best_effort packets_foreign
        packets_guaranteed packets_signalling periods quantum_packets receive_pool_dry receiver_full replayed
        requests retransmissions route runtimes_refused stalls too_large unauthenticated units unanswered unknown_path
        user users version wake_late_ns_max wakes work_units wrong_cookie wrong_link packets_in
        packets_out send_errors send_waits pool_dry truncated policed unknown priority listener dead quantum
        clock_breaks wire_bytes_in times messages lost perhaps_late unmeasured late_arrivals
        no_slot demoted_dropped recent recent_late system_calls_refused descriptors descriptors_max
        descriptors_needed heap_waits compared counted held count turned_away";
    fn check(verb: &str, key: &str, value: &Value, beside: Option<&serde_json::Map<String, Value>>) {
        match value {
            Value::Object(object) => {
                object.iter().for_each(|(key, value)| check(verb, key, value, Some(object)))
            }
            Value::Array(values) => values.iter().for_each(|value| check(verb, key, value, None)),
            Value::Number(_) => {
                let printed = UNITS.iter().any(|unit| key.ends_with(unit));
                let twin = beside.is_some_and(|object| {
                    let named = |unit: &&str| object.contains_key(&format!("{key}{unit}"));
                    UNITS.iter().any(named)
                });
                assert!(
                    printed || twin || COUNTS.split_whitespace().any(|count| count == key),
                    "{verb}: {key}: {value}"
                );
            }
            _ => {}
        }
    }
    let network = Network::start();
    let (_receiver, _sender) = one_line_through(&network);
    for verb in ["status", "channels"] {
        check(verb, "", &network.a.json(&[verb]), None);
        check(verb, "", &network.b.json(&[verb]), None);
    }
    // The first one has given its name back.
    let _listening = network.b.start_verb(&["recv", "cam"]);
    network.b.await_listeners(1);
    check("admit", "", &network.a.json(&with_contract("admit", "cam@b", &[])), None);
    let no = network.a.verb(&[
        "admit",
        "cam@b",
        "--rate",
        "25/s",
        "--size",
        "110KB",
        "--deadline",
        "1ms",
        "--json",
    ]);
    check("admit", "", &no.json(), None);
}
