//! Two hosts, `a` and `b`: daemons in this process with UDP on loopback, and `punctual` as a program beside them.
//!
//! Addresses come from the process' id and ports from a counter, so that no two tests meet. Every wait ends: on a
//! condition, or after [`PATIENCE`] with the test's failure.
#![allow(dead_code, reason = "each test file uses a part")]

use std::io::{Read, Write};
use std::mem;
use std::net::Ipv4Addr;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use punctual_daemon::DaemonError;
use serde_json::Value;

/// How long anything may take before a test gives up. Generous: the machine may be busy.
pub const PATIENCE: Duration = Duration::from_secs(30);
/// The first port of the first host; on loopback addresses of this process' own.
const FIRST_PORT: u16 = 20_000;
/// Default first bytes of every host's key.
const KEY_BEGINS: &str = "000102";
/// Two ports for each of two hosts.
const PORTS_PER_NETWORK: u16 = 4;

/// A daemon on a thread.
pub struct Host {
    socket: PathBuf,
    stop: Option<UnixStream>,
    thread: Option<JoinHandle<Result<(), DaemonError>>>,
}

impl Host {
    /// Returns when programs can connect.
    fn start(text: &str, socket: PathBuf) -> Self {
        let mut config = punctual_host::config::parse(text, Path::new("host.toml")).expect("a configuration");
        config.run_on_best_effort_host();
        let (stop, stopping) = UnixStream::pair().expect("a pair of sockets");
        let (ready, is_ready) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            punctual_daemon::run(&config, stopping.as_fd(), || ready.send(()).expect("the test waits"))
        });
        is_ready.recv_timeout(PATIENCE).expect("the daemon starts");
        Self { socket, stop: Some(stop), thread: Some(thread) }
    }

    /// Stops gracefully.
    pub fn stop(&mut self) {
        // A closed socket is readable.
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            thread.join().expect("no panic in the daemon").expect("a graceful stop");
        }
    }

    /// The socket to which programs connect.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Starts `punctual ARGUMENTS` against this host.
    pub fn start_verb(&self, arguments: &[&str]) -> Running {
        let mut child = Command::new(env!("CARGO_BIN_EXE_punctual"))
            .args(arguments)
            .env("PUNCTUAL_SOCKET", &self.socket)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("punctual starts");
        let stdout = Printed::of(child.stdout.take().expect("a pipe"));
        let stderr = Printed::of(child.stderr.take().expect("a pipe"));
        Running { stdin: child.stdin.take(), child, stdout, stderr, what: arguments.join(" ") }
    }

    /// Runs a command of the shell, for which `$PUNCTUAL` is the program, to its end in a terminal of its
    /// own; returns the terminal's output.
    pub fn in_terminal(&self, command: &str) -> String {
        let mut script = Command::new("script");
        script.args(["--quiet", "--return", "--command", command, "/dev/null"]);
        script.env("PUNCTUAL", env!("CARGO_BIN_EXE_punctual")).env("PUNCTUAL_SOCKET", &self.socket);
        script.env("SHELL", "/bin/sh").stdin(Stdio::null());
        let ended = script.output().expect("script, of bsdutils, makes terminals");
        let shown = String::from_utf8_lossy(&ended.stdout).into_owned();
        assert!(ended.status.success(), "{command}: {shown} {}", String::from_utf8_lossy(&ended.stderr));
        shown
    }

    /// Runs `punctual ARGUMENTS` to its end without input.
    pub fn verb(&self, arguments: &[&str]) -> Ended {
        self.start_verb(arguments).end()
    }

    /// The `--json` output of a verb that succeeds.
    pub fn json(&self, arguments: &[&str]) -> Value {
        self.verb(&[arguments, &["--json"]].concat()).done().json()
    }

    /// Waits until `listeners` names are taken here.
    pub fn await_listeners(&self, listeners: u64) {
        eventually("the receiver listens", || {
            let users = self.json(&["status"])["users"].clone();
            let taken = users.as_array().expect("a list").iter();
            taken.filter_map(|user| user["listeners"].as_u64()).sum::<u64>() == listeners
        });
    }

    /// Waits until no channel is left here.
    pub fn await_no_channels(&self) {
        eventually("no channel is left", || self.json(&["channels"]).as_array().expect("a list").is_empty());
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.stop();
        }
    }
}

/// Both hosts, each with the other one up.
pub struct Network {
    pub a: Host,
    pub b: Host,
    pub directory: PathBuf,
}

impl Network {
    pub fn start() -> Self {
        Self::start_with("", "")
    }

    /// Hosts whose packets do not authenticate to each other.
    pub fn of_unknown_senders() -> Self {
        Self::made("", "", |text| text.replace(KEY_BEGINS, "ff0102"))
    }

    /// Starts hosts with more keys of `[processor]`, written `processor.KEY`, and of `[[link]]` at both.
    pub fn start_with(processor: &str, link: &str) -> Self {
        let network = Self::made(processor, link, |text| text);
        for host in [&network.a, &network.b] {
            eventually("the neighbour lives", || {
                host.json(&["status"])["node"]["links"][0]["alive"] == Value::Bool(true)
            });
        }
        network
    }

    /// Starts both daemons; `at_b` changes the configuration at b.
    fn made(processor: &str, link: &str, at_b: fn(String) -> String) -> Self {
        static NETWORKS: AtomicU16 = AtomicU16::new(0);
        let number = NETWORKS.fetch_add(1, Ordering::Relaxed);
        let process = std::process::id();
        let directory = std::env::temp_dir().join(format!("punctual-verbs-{process}-{number}"));
        std::fs::create_dir_all(&directory).expect("a directory");
        let [_, high, middle, low] = process.to_be_bytes();
        let address = Ipv4Addr::new(127, 64 | (high & 63), middle, low);
        let port_a = FIRST_PORT + number * PORTS_PER_NETWORK;
        let port_b = port_a + PORTS_PER_NETWORK / 2;
        let start = |name, neighbour, port, peer_port| {
            let socket = directory.join(format!("{name}.sock"));
            let text = configuration(name, neighbour, &socket, address, port, peer_port);
            let text = format!("{processor}\n{text}{link}");
            Host::start(&if name == "b" { at_b(text) } else { text }, socket)
        };
        Self { a: start("a", "b", port_a, port_b), b: start("b", "a", port_b, port_a), directory }
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

fn configuration(
    name: &str,
    neighbour: &str,
    socket: &Path,
    address: Ipv4Addr,
    port: u16,
    peer_port: u16,
) -> String {
    format!(
        r#"
        node.name = "{name}"
        processor.profile_measure = false
        daemon.socket = "{}"
        [signalling]
        key = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"
        hello = "250ms"
        grace = "300ms"
        [[host]]
        name = "a"
        id = 1
        [[host]]
        name = "b"
        id = 2
        [[host]]
        name = "far"
        id = 3
        [[link]]
        name = "to-{neighbour}"
        neighbour = "{neighbour}"
        driver = "udp"
        local = "{address}"
        peer = "{address}"
        data_port = {port}
        signalling_port = {}
        peer_data_port = {peer_port}
        peer_signalling_port = {}
        rate = "100Mbit/s"
        # Ordinary threads on a busy machine are late by any time: not what is tested here.
        prediction_error = "500ms"
        "#,
        socket.display(),
        port + 1,
        peer_port + 1,
    )
}

/// A running verb; killed when the test drops it.
pub struct Running {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: Printed,
    stderr: Printed,
    what: String,
}

impl Running {
    /// Waits until it has printed this, and no more, on standard output.
    pub fn await_output(&mut self, expected: &[u8]) {
        while self.stdout.bytes.len() < expected.len() {
            assert!(self.stdout.more(&self.what), "punctual {} ended before it printed that", self.what);
        }
        assert!(self.stdout.bytes == expected, "punctual {} printed something else", self.what);
    }

    /// Waits until standard error contains this text so many times.
    pub fn await_line(&mut self, text: &str, times: usize) {
        while String::from_utf8_lossy(&self.stderr.bytes).matches(text).count() < times {
            assert!(self.stderr.more(&self.what), "punctual {} ended before it said that", self.what);
        }
    }

    /// Writes to its standard input, which stays open.
    pub fn write(&mut self, bytes: &[u8]) {
        let stdin = self.stdin.as_mut().expect("an open pipe");
        stdin.write_all(bytes).and_then(|()| stdin.flush()).expect("the verb reads");
    }

    /// Kills it without a chance to close anything.
    pub fn kill(mut self) {
        self.child.kill().expect("it runs");
    }

    /// Closes its standard input and waits for its end.
    pub fn end(mut self) -> Ended {
        self.stdin = None;
        for printed in [&mut self.stdout, &mut self.stderr] {
            while printed.more(&self.what) {}
        }
        let (stdout, stderr) = (mem::take(&mut self.stdout.bytes), mem::take(&mut self.stderr.bytes));
        let code = self.child.wait().expect("it ends").code();
        Ended { code, stdout, stderr: String::from_utf8(stderr).expect("text"), what: self.what.clone() }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Fails if it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A verb that has ended.
pub struct Ended {
    pub code: Option<i32>,
    pub stdout: Vec<u8>,
    pub stderr: String,
    pub what: String,
}

impl Ended {
    /// Fails unless the exit code is 0.
    pub fn done(self) -> Self {
        assert_eq!(self.code, Some(0), "punctual {}: {}", self.what, self.stderr);
        self
    }
    /// Standard output of the command, as JSON.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.stdout).unwrap_or_else(|error| panic!("{}: {error}", self.what))
    }
    /// Fails unless it ended with `code`, nothing on standard output, and one line on standard error that
    /// contains `part`.
    pub fn complains(&self, code: i32, part: &str) {
        let Self { stderr, what, .. } = self;
        assert_eq!(self.code, Some(code), "{what}: {stderr}");
        assert!(
            stderr.starts_with("punctual: ") && stderr.trim_end().lines().count() == 1,
            "{what}: {stderr}"
        );
        assert!(stderr.contains(part), "{what}: {stderr}");
        assert!(self.stdout.is_empty(), "{what}");
    }
}

/// The output of a verb into one pipe; read on a thread, so that a full pipe never blocks the verb.
struct Printed {
    bytes: Vec<u8>,
    pieces: mpsc::Receiver<Vec<u8>>,
}

impl Printed {
    fn of(mut pipe: impl Read + Send + 'static) -> Self {
        let (sender, pieces) = mpsc::channel();
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(len @ 1..) = pipe.read(&mut buffer) {
                // A test that has failed does not listen.
                let _ = sender.send(buffer[..len].to_vec());
            }
        });
        Self { bytes: Vec::new(), pieces }
    }

    /// Waits for more; false: the verb has closed its end.
    fn more(&mut self, what: &str) -> bool {
        match self.pieces.recv_timeout(PATIENCE) {
            Ok(piece) => self.bytes.extend(piece),
            Err(mpsc::RecvTimeoutError::Disconnected) => return false,
            Err(mpsc::RecvTimeoutError::Timeout) => panic!("punctual {what} neither prints nor ends"),
        }
        true
    }
}

/// Repeats the query until it is true. Every query runs a verb, so this does not spin.
pub fn eventually(what: &str, mut so: impl FnMut() -> bool) {
    let until = Instant::now() + PATIENCE;
    while !so() {
        assert!(Instant::now() < until, "it never came to this: {what}");
    }
}

/// The contract of most tests: its buffers hold more messages than the tests send, so that a busy machine loses none.
pub const CONTRACT: [&str; 6] = ["--rate", "100/s", "--size", "1KB", "--deadline", "1s"];
pub const MESSAGES: usize = 50;

/// `verb peer`, the contract, and more.
pub fn with_contract<'a>(verb: &'a str, peer: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    [&[verb, peer], &CONTRACT[..], more].concat()
}

/// A receiver and a sender of lines on an open channel, after one line, with the sender waiting for more input.
pub fn one_line_through(network: &Network) -> (Running, Running) {
    let mut receiver = network.b.start_verb(&["recv", "cam"]);
    network.b.await_listeners(1);
    let mut sender = network.a.start_verb(&with_contract("send", "cam@b", &["--split", "lines"]));
    sender.write(b"a line\n");
    receiver.await_output(b"a line\n");
    (receiver, sender)
}

/// Bytes without a pattern that a shifted or repeated message could hide in.
pub fn noise(len: usize) -> Vec<u8> {
    let step = |state: &mut u64| {
        *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        Some((*state >> 56) as u8)
    };
    let mut state = 1_u64;
    std::iter::from_fn(|| step(&mut state)).take(len).collect()
}
