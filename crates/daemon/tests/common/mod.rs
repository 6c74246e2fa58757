//! Two daemons, `a` and `b`, in this process, joined by a memory link.
#![allow(dead_code, reason = "each test file uses a part")]

pub mod census;
pub mod harm;
pub mod hog;
pub mod hosts;
pub mod network;
pub mod program;
pub mod raw;
pub mod text;
pub mod users;
pub mod witness;

use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use punctual::{Channel, Consent, Contract, Endsystem, HostConfig, Nanos, Rate, Receiver};
use punctual_daemon::DaemonError;
use punctual_host::config::parse;
use punctual_ipc::wake::Alarm;
use punctual_link::{Link, MemoryLink, MemoryOptions};

use text::{HELLO, Text};

/// How long anything may take before a test gives up. Generous: the machine may be busy.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// The configuration of host `name`, one of `a` and `b`; `daemon` has more keys of that table.
pub fn config(name: &str, socket: &Path, daemon: &str) -> HostConfig {
    let text = Text {
        name,
        socket,
        processor: "best_effort_host = true\nprofile_measure = false",
        daemon,
        hello: HELLO,
        signalling: "grace = \"300ms\"\nconsent_timeout = \"5s\"",
        link: "driver = \"memory\"\nrate = \"400Mbit/s\"",
    };
    parse(&text.to_toml(), Path::new("test.toml")).expect("a configuration")
}

/// The links of one host.
pub type Links = Vec<Box<dyn Link>>;

pub fn memory_links() -> (Links, Links) {
    let (a, b) = MemoryLink::pair(MemoryOptions::default()).expect("a link");
    (vec![Box::new(a)], vec![Box::new(b)])
}

pub struct Daemon {
    pub socket: PathBuf,
    stop: Alarm,
    thread: Option<JoinHandle<Result<(), DaemonError>>>,
}

impl Daemon {
    pub fn start(config: HostConfig, links: Links) -> Self {
        let stop = Alarm::new().expect("an eventfd");
        let socket = config.daemon.socket.clone();
        let (ready, is_ready) = mpsc::channel();
        let stopping = stop.clone();
        let thread = std::thread::spawn(move || {
            punctual_daemon::run_with(&config, links, stopping.as_fd(), || {
                ready.send(()).expect("the test waits")
            })
        });
        is_ready.recv_timeout(PATIENCE).expect("the daemon starts");
        Self { socket, stop, thread: Some(thread) }
    }

    pub fn connect(&self) -> Endsystem {
        Endsystem::connect_to(&self.socket).expect("a connection")
    }

    pub fn stop(&mut self) -> Result<(), DaemonError> {
        self.stop.ring();
        self.thread.take().map_or(Ok(()), |thread| thread.join().expect("no panic in the daemon"))
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.stop().expect("a graceful stop");
        }
    }
}

pub struct Pair {
    pub a: Daemon,
    pub b: Daemon,
    pub directory: PathBuf,
}

impl Pair {
    pub fn start() -> Self {
        Self::start_with("")
    }

    /// Starts both with more keys for `[daemon]`.
    pub fn start_with(daemon: &str) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let directory = std::env::temp_dir().join(format!("punctual-test-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&directory).expect("a directory");
        let (to_b, to_a) = memory_links();
        let a = Daemon::start(config("a", &directory.join("a.sock"), daemon), to_b);
        let b = Daemon::start(config("b", &directory.join("b.sock"), daemon), to_a);
        let pair = Self { a, b, directory };
        let (on_a, on_b) = (pair.a.connect(), pair.b.connect());
        meet([&on_a, &on_b]);
        pair
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

/// Repeats the query until it is true. Every answer is a round trip to a daemon, so this does not spin.
pub fn eventually(what: &str, mut so: impl FnMut() -> bool) {
    let until = Instant::now() + PATIENCE;
    while !so() {
        assert!(Instant::now() < until, "it never came to this: {what}");
        std::thread::yield_now();
    }
}

/// Waits until the hosts see one another.
pub fn meet(hosts: [&Endsystem; 2]) {
    eventually("the hosts see one another", || {
        hosts.iter().all(|host| host.status().expect("status").node.links.iter().all(|link| link.alive))
    });
}

pub fn contract(bytes: u32, rate: u64, deadline_ms: u64) -> Contract {
    let rate = Rate::per_second(rate).expect("a rate");
    Contract::new(bytes, rate, 4, Nanos::from_millis(deadline_ms)).expect("a contract")
}

/// Opens a channel from `a` to `b`, two separate daemons, and checks that it carries ten of its longest
/// messages unaltered.
pub fn stream(a: &Endsystem, b: &Endsystem, bytes: u32) -> (Channel, Receiver) {
    meet([a, b]);
    let rate = Rate::per_second(100).expect("a rate");
    stream_to(a, b, "b", Contract::new(bytes, rate, 2, Nanos::from_millis(300)).expect("a contract"))
}

/// Opens a stream to a host of that name, which the sender knows already.
pub fn stream_to(from: &Endsystem, to: &Endsystem, name: &str, contract: Contract) -> (Channel, Receiver) {
    let listener = to.listen("cam", |_| Consent::Accept).expect("a listener");
    let mut channel = from.open(&format!("cam@{name}"), contract).expect("a channel");
    let mut receiver = listener.accept_timeout(PATIENCE).expect("no error").expect("a channel");
    receiver.set_recv_timeout(Some(PATIENCE));
    for number in 0..10_u8 {
        let message = vec![number; contract.message_bytes_max as usize];
        channel.send(&message).expect("sent");
        receiver.recv_in_place(|got, _| assert_eq!(got, message)).expect("received");
    }
    (channel, receiver)
}
