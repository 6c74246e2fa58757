//! The program itself: `punctuald` with a configuration file, over kernel UDP sockets on loopback.

mod common;

use std::path::Path;
use std::process::Command;

use common::hosts;
use common::program::{Program, folder, write};
use common::text::Text;
use common::{PATIENCE, stream};
use punctual::{CloseReason, Ending, Guarantee, RecvError};
use rustix::process::Signal;

/// Runs `work` with the configuration of a host that measures its profile. Its neighbour considers it down
/// only after ten seconds: until then the programs there are not affected.
fn with_text<R>(folder: &Path, name: &str, cable: u16, work: impl FnOnce(Text<'_>) -> R) -> R {
    hosts::with_text(folder, name, cable, |text| work(Text { processor: "", hello: "2s", ..text }))
}

fn start(folder: &Path, name: &str, cable: u16) -> Program {
    with_text(folder, name, cable, |text| Program::start(folder, text, str::to_owned))
}

#[test]
fn two_daemons_carry_a_channel_and_stop_gracefully() {
    let folder = folder("pair");
    let (on_a, on_b) = (start(&folder, "a", 0), start(&folder, "b", 0));
    let (a, b) = (on_a.connect(), on_b.connect());
    let (mut channel, mut receiver) = stream(&a, &b, 20_000);
    let socket = on_a.socket.clone();
    assert!(on_a.stop(Signal::TERM).success(), "a graceful stop is a success");
    assert!(!socket.exists());
    let ended = receiver.recv(&mut [0; 20_000]);
    assert!(matches!(ended, Err(RecvError::Closed(Some(CloseReason::PeerStopped)))), "{ended:?}");
    assert!(channel.send(b"nobody").is_err());
    assert!(on_b.stop(Signal::TERM).success());
    std::fs::remove_dir_all(folder).expect("removed");
}

#[test]
fn a_finished_sender_gets_the_receivers_count_or_that_it_is_unknown() {
    let folder = folder("finish");
    let (on_a, on_b) = (start(&folder, "a", 1), start(&folder, "b", 1));
    let (a, b) = (on_a.connect(), on_b.connect());
    let (channel, receiver) = stream(&a, &b, 2_000);
    let state = channel.state().expect("open");
    assert_eq!(state.guarantee, Guarantee::Degraded, "both are best-effort hosts");
    assert_eq!(state.status.degraded_by, ["a", "b"]);
    assert_eq!(receiver.state().expect("open").status.degraded_by, ["a", "b"]);
    assert_eq!(channel.grant().expect("of a channel").degraded_by(), ["a", "b"]);
    let ending = channel.finish(PATIENCE).expect("the daemon lives").expect("in time");
    assert_eq!(ending.reason, Some(CloseReason::Local));
    assert_eq!(ending.receipt.map(|receipt| receipt.delivered), Some(10));
    drop(receiver);

    // The receiver's daemon is killed with messages in transit: all were sent, and it is unknown whether they
    // arrived.
    let (mut channel, receiver) = stream(&a, &b, 2_000);
    on_b.stop(Signal::KILL);
    channel.send(&[1; 2_000]).expect("it does not know yet");
    assert!(channel.flush(PATIENCE).expect("it does not know yet"));
    let ending = channel.finish(PATIENCE).expect("the daemon lives").expect("in time");
    assert_eq!(ending, Ending { reason: Some(CloseReason::PathLost), receipt: None });
    drop(receiver);
    assert!(on_a.stop(Signal::TERM).success());
    std::fs::remove_dir_all(folder).expect("removed");
}

#[test]
fn a_wrong_configuration_is_one_line_and_exit_code_1() {
    let folder = folder("wrong");
    // Whatever the limit of descriptors is here, two users fit in.
    let daemon = "users_max = 2\ndescriptors_per_user_max = 100";
    let good = with_text(&folder, "a", 2, |text| write(&folder, Text { daemon, ..text }));
    let run = |arguments: &[&str], config: &Path| {
        Command::new(env!("CARGO_BIN_EXE_punctuald"))
            .args(arguments)
            .arg("--config")
            .arg(config)
            .output()
            .expect("punctuald runs")
    };
    let checked = run(&["--check"], &good);
    assert!(checked.status.success());
    assert!(String::from_utf8_lossy(&checked.stdout).starts_with("ok: host a, 1 link,"));
    assert!(checked.stderr.is_empty(), "{checked:?}");

    // A host that works without guarantees causes a warning, and no failure.
    let degraded = folder.join("degraded.toml");
    let link = "[[link]]\nname = \"m\"\nneighbour = \"c\"\ndriver = \"udp\"\nlocal = \"192.0.2.1\"\npeer = \"192.0.2.2\"\nrate = \"1Gbit/s\"\n";
    let text = std::fs::read_to_string(&good).expect("read");
    std::fs::write(&degraded, format!("{text}\n[[host]]\nname = \"c\"\nid = 77\n{link}")).expect("written");
    let checked = run(&["--check"], &degraded);
    let printed = String::from_utf8_lossy(&checked.stderr);
    assert!(checked.status.success() && printed.lines().count() == 1, "{printed}");
    assert!(
        printed.starts_with("punctuald: warning: link m is degraded: nothing bounds the kernel's traffic"),
        "{printed}"
    );
    assert!(printed.contains("kernel_traffic = \"shaped\""), "{printed}");
    let checked = run(&["--check", "--json"], &degraded);
    let object: serde_json::Value = serde_json::from_slice(&checked.stdout).expect("one object");
    assert_eq!(object["warnings"].as_array().map(Vec::len), Some(1), "{object}");

    // There is also a warning if the users' quotas together exceed the limit of this process.
    let limited = format!(
        "prlimit --nofile=500 {} --check --config {}",
        env!("CARGO_BIN_EXE_punctuald"),
        good.display()
    );
    let checked = Command::new("sh").args(["-c", &limited]).output().expect("punctuald runs");
    let printed = String::from_utf8_lossy(&checked.stderr);
    assert!(checked.status.success() && printed.lines().count() == 1, "{printed}");
    assert!(
        printed.contains("together are 596 descriptors") && printed.contains("LimitNOFILE=596"),
        "{printed}"
    );

    let bad = folder.join("bad.toml");
    let text = std::fs::read_to_string(&good).expect("read").replace("rate =", "speed =");
    std::fs::write(&bad, text).expect("written");
    for arguments in [&["--check"][..], &["--best-effort-host"][..]] {
        let failed = run(arguments, &bad);
        let printed = String::from_utf8_lossy(&failed.stderr);
        assert_eq!((failed.status.code(), printed.lines().count()), (Some(1), 1), "{printed}");
        assert!(printed.contains("speed"), "{printed}");
        let failed = run(&[arguments, &["--json"]].concat(), &bad);
        let object: serde_json::Value = serde_json::from_slice(&failed.stdout).expect("one object");
        assert_eq!((failed.status.code(), &object["error"]["exit_code"]), (Some(1), &1.into()));
        assert!(object["error"]["message"].as_str().is_some_and(|line| line.contains("speed")), "{object}");
        assert_eq!(String::from_utf8_lossy(&failed.stderr), printed, "the line is there all the same");
    }
    std::fs::remove_dir_all(folder).expect("removed");
}

/// The start would find that the file is not there.
#[test]
fn a_profile_that_is_not_there_is_found_by_the_check() {
    let folder = folder("unmeasured");
    let processor = "best_effort_host = true\nprofile = \"/nonexistent/profile.toml\"";
    let config = with_text(&folder, "a", 2, |text| write(&folder, Text { processor, ..text }));
    for arguments in [&["--check"][..], &[]] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_punctuald"));
        let failed = command.args(arguments).arg("--config").arg(&config).output().expect("punctuald runs");
        let printed = String::from_utf8_lossy(&failed.stderr);
        assert_eq!(failed.status.code(), Some(1), "{printed}");
        let why =
            "punctuald: profile /nonexistent/profile.toml: the file does not exist, and a best-effort host";
        assert!(printed.lines().any(|line| line.starts_with(why)), "{printed}");
    }
    std::fs::remove_dir_all(folder).expect("removed");
}

/// A valid plan, made for a faster host: only admission on this host can detect that it does not fit.
#[test]
fn a_plan_that_cannot_be_scheduled_here_is_one_line_with_the_flow_and_the_fix() {
    let folder = folder("plan");
    let flow = |name: &str, cost_ns: u64| {
        format!(
            "[[host.flow]]\nname = \"{name}\"\nperiod_ns = 10000000\npackets = 4\ncost_ns = {cost_ns}\n\
             unit_ns = 100000\ndeadline_ns = 9000000\nrate_ns = 9921875\nplace = 1\n"
        )
    };
    let plan = folder.join("plan.toml");
    let start = |second_cost_ns| {
        let flows = flow("cam", 4_000_000) + &flow("film", second_cost_ns);
        std::fs::write(&plan, format!("version = 1\n[[host]]\nname = \"a\"\n{flows}")).expect("written");
        let processor = format!("policy = \"rmdp\"\nplan = \"{}\"\nprofile_measure = false", plan.display());
        let config =
            hosts::with_text(&folder, "a", 3, |text| write(&folder, Text { processor: &processor, ..text }));
        let mut command = Command::new(env!("CARGO_BIN_EXE_punctuald"));
        command.args(["--best-effort-host", "--config"]).arg(config).env("PUNCTUAL_LOG", "error");
        command
    };
    // 10 ms in each 9.
    let failed = start(6_000_000).output().expect("punctuald runs");
    let printed = String::from_utf8_lossy(&failed.stderr);
    assert_eq!((failed.status.code(), printed.lines().count()), (Some(1), 1), "{printed}");
    assert!(printed.contains("the plan cannot be scheduled here: flow \"film\""), "{printed}");
    assert!(printed.contains("make it again with 'punctual plan'"), "{printed}");
    // A lighter one is served.
    let mut served =
        start(1_000_000).arg("--json").stdout(std::process::Stdio::piped()).spawn().expect("punctuald runs");
    let mut line = String::new();
    let mut out = std::io::BufReader::new(served.stdout.take().expect("its output"));
    std::io::BufRead::read_line(&mut out, &mut line).expect("a line");
    served.kill().expect("it runs");
    served.wait().expect("it ends");
    assert!(line.contains("\"state\":\"ready\""), "{line}");
    std::fs::remove_dir_all(folder).expect("removed");
}

#[test]
fn wrong_usage_is_one_line_and_exit_code_2() {
    for arguments in [&[][..], &["--no-such-option"][..], &["--config"][..]] {
        let failed =
            Command::new(env!("CARGO_BIN_EXE_punctuald")).args(arguments).output().expect("punctuald runs");
        let printed = String::from_utf8_lossy(&failed.stderr);
        assert_eq!((failed.status.code(), printed.lines().count()), (Some(2), 1), "{printed}");
        assert!(printed.contains("punctuald --help"), "{printed}");
    }
    let failed = Command::new(env!("CARGO_BIN_EXE_punctuald")).args(["--json", "--check"]).output();
    let failed = failed.expect("punctuald runs");
    let object: serde_json::Value = serde_json::from_slice(&failed.stdout).expect("one object");
    assert_eq!((failed.status.code(), &object["error"]["exit_code"]), (Some(2), &2.into()));
}
