//! The program itself: `punctuald` with a configuration file, over kernel UDP sockets on loopback.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use punctual::{CloseReason, Consent, Contract, Endsystem, Nanos, Rate, RecvError};
use rustix::process::{Pid, Signal, kill_process};

const PATIENCE: Duration = Duration::from_secs(20);

struct Daemon {
    process: Child,
    socket: PathBuf,
}

impl Daemon {
    /// Starts one and waits for its word.
    fn start(folder: &Path, name: &str, neighbour: &str, net: u8) -> Self {
        let socket = folder.join(format!("{name}.sock"));
        let config = write_config(folder, name, neighbour, net, &socket);
        let mut process = Command::new(env!("CARGO_BIN_EXE_punctuald"))
            .args(["--best-effort-host", "--json", "--config"])
            .arg(config)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("punctuald runs");
        let mut line = String::new();
        BufReader::new(process.stdout.take().expect("its output")).read_line(&mut line).expect("a line");
        assert!(line.contains("\"state\":\"ready\""), "{line}");
        Self { process, socket }
    }

    /// Asks it to stop; whether it ended well.
    fn stop(&mut self) -> bool {
        let pid = Pid::from_child(&self.process);
        kill_process(pid, Signal::TERM).expect("it is there");
        self.process.wait().expect("it ends").success()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn write_config(folder: &Path, name: &str, neighbour: &str, net: u8, socket: &Path) -> PathBuf {
    let own = if name == "a" { 1 } else { 2 };
    let text = format!(
        r#"
        [node]
        name = "{name}"
        [daemon]
        socket = "{}"
        [signalling]
        key = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"
        hello = "250ms"
        [[host]]
        name = "a"
        id = 1
        [[host]]
        name = "b"
        id = 2
        [[link]]
        name = "lo"
        neighbour = "{neighbour}"
        driver = "udp"
        local = "127.99.{net}.{own}"
        peer = "127.99.{net}.{}"
        rate = "100Mbit/s"
        # A busy machine is late by any time: not what is tested here.
        prediction_error = "500ms"
        "#,
        socket.display(),
        3 - own
    );
    let path = folder.join(format!("{name}.toml"));
    std::fs::write(&path, text).expect("written");
    path
}

fn folder(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("punctuald-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    folder
}

#[test]
fn two_daemons_carry_a_channel_and_stop_gracefully() {
    let folder = folder("pair");
    let net = (std::process::id() % 250) as u8;
    let (mut on_a, mut on_b) = (Daemon::start(&folder, "a", "b", net), Daemon::start(&folder, "b", "a", net));
    let a = Endsystem::connect_to(&on_a.socket).expect("connected");
    let b = Endsystem::connect_to(&on_b.socket).expect("connected");
    let until = Instant::now() + PATIENCE;
    while ![&a, &b].iter().all(|host| host.status().expect("status").node.links[0].alive) {
        assert!(Instant::now() < until, "the hosts never saw one another");
        std::thread::yield_now();
    }
    let listener = b.listen("cam", |_| Consent::Accept).expect("a listener");
    let rate = Rate::per_second(100).expect("a rate");
    let contract = Contract::new(20_000, rate, 2, Nanos::from_millis(200)).expect("a contract");
    let mut channel = a.open("cam@b", contract).expect("a channel");
    let mut receiver = listener.accept_timeout(PATIENCE).expect("no error").expect("a channel");
    receiver.set_recv_timeout(Some(PATIENCE));
    for number in 0..10_u8 {
        channel.send(&[number; 20_000]).expect("sent");
        receiver
            .recv_in_place(|bytes, _| assert!(bytes.iter().all(|byte| *byte == number)))
            .expect("received");
    }
    assert!(on_a.stop(), "a graceful stop is a success");
    assert!(!on_a.socket.exists());
    let ended = receiver.recv(&mut [0; 20_000]);
    assert!(matches!(ended, Err(RecvError::Closed(Some(CloseReason::Peer)))), "{ended:?}");
    assert!(channel.send(b"nobody").is_err());
    assert!(on_b.stop());
    std::fs::remove_dir_all(folder).expect("removed");
}

#[test]
fn a_wrong_configuration_is_one_line_and_exit_code_1() {
    let folder = folder("wrong");
    let good = write_config(&folder, "a", "b", 1, &folder.join("a.sock"));
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
    assert!(String::from_utf8_lossy(&checked.stdout).starts_with("ok: host a, 1 links"));

    let bad = folder.join("bad.toml");
    let text = std::fs::read_to_string(&good).expect("read").replace("rate =", "speed =");
    std::fs::write(&bad, text).expect("written");
    for arguments in [&["--check"][..], &["--best-effort-host"][..]] {
        let failed = run(arguments, &bad);
        let said = String::from_utf8_lossy(&failed.stderr);
        assert_eq!((failed.status.code(), said.lines().count()), (Some(1), 1), "{said}");
        assert!(said.contains("speed"), "{said}");
    }
    std::fs::remove_dir_all(folder).expect("removed");
}

#[test]
fn wrong_usage_is_one_line_and_exit_code_2() {
    for arguments in [&[][..], &["--no-such-option"][..], &["--config"][..]] {
        let failed =
            Command::new(env!("CARGO_BIN_EXE_punctuald")).args(arguments).output().expect("punctuald runs");
        let said = String::from_utf8_lossy(&failed.stderr);
        assert_eq!((failed.status.code(), said.lines().count()), (Some(2), 1), "{said}");
        assert!(said.contains("punctuald --help"), "{said}");
    }
}
