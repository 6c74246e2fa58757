//! TCP connections come and go in every way and leave nothing behind: no descriptor, port, flow, memory, handler or quota, in a
//! daemon and in an embedded endsystem. Alone in its program, whose descriptors are counted. `make tcp-leaks` runs 100,000
//! connections; this is a sample. Network namespaces; needs root.

mod common;
#[path = "../../tcp/tests/in_use/mod.rs"]
mod in_use;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use common::census::{Holdings, holdings, memory_kib};
use common::network::{Cable, Network};
use common::program::{Program, folder};
use common::text::{HELLO, Text};
use in_use::in_use_bytes;
use punctual::tcp::{Qos, Settings, TcpError, TcpListener as OurListener};
use punctual::{Endsystem, Nanos};
use rustix::net::sockopt::set_socket_linger;
use rustix::process::{Pid, getpid};

const CABLE: Cable = Cable { number: 0, hosts: [0, 1] };
const PATIENCE: Duration = Duration::from_secs(60);
/// Longer than TIME-WAIT.
const SETTLED_WITHIN: Duration = Duration::from_secs(100);
const OURS: u16 = 9_000;
const KERNELS: u16 = 8_080;
const CLOSED: u16 = 8_081;
const WORKERS: u64 = 4;
/// Flows of the driver: after all connections so many open at once again.
const FLOWS: usize = 256;
/// One of this many connections leaves the daemon in TIME-WAIT, if the run is long enough to wait for its end.
const TIME_WAITS: u64 = 256;
/// What a connection may leave at most, in bytes: noise of the allocator, not a leak.
const LEFT_BYTES_MAX: u64 = 48;
/// What the daemon's pages may grow by besides, in KiB.
const PAGES_SLACK_KIB: u64 = 4_096;
/// The same of what this program has allocated.
const ALLOCATED_SLACK_KIB: u64 = 128;

/// Rings of segments that may still be there when nothing changes any more, however many connections there were: before and
/// after 8,000 connections there were up to two.
const RINGS_LEFT_MAX: usize = 4;
/// Descriptors and mappings of such a ring.
const RING: [usize; 2] = [5, 2];

/// How a connection ends. The side that opened it sends the number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    OtherCloses,
    OpenerCloses,
    OpenerResets,
    OtherResets,
}

const KINDS: [Kind; 4] = [Kind::OtherCloses, Kind::OpenerCloses, Kind::OpenerResets, Kind::OtherResets];

/// One end of a connection.
trait End: Read + Write {
    fn reset(self);
}

impl End for TcpStream {
    fn reset(self) {
        set_socket_linger(&self, Some(Duration::ZERO)).expect("to set");
    }
}

impl End for punctual::tcp::TcpStream {
    fn reset(self) {
        self.abort().expect("it runs");
    }
}

/// Reads until the other end has closed or reset.
fn wait_for_end(mut end: impl End) {
    let _ = end.read_to_end(&mut Vec::new());
}

fn open_as(kind: Kind, mut end: impl End) {
    end.write_all(&[kind as u8]).expect("written");
    match kind {
        Kind::OtherCloses | Kind::OtherResets => wait_for_end(end),
        // The other end has read what was sent when it answers.
        Kind::OpenerCloses | Kind::OpenerResets => {
            end.read_exact(&mut [0]).expect("an answer");
            if kind == Kind::OpenerResets { end.reset() } else { drop(end) }
        }
    }
}

fn answer(mut end: impl End) {
    let mut kind = [0];
    end.read_exact(&mut kind).expect("a kind");
    match KINDS[usize::from(kind[0])] {
        Kind::OtherCloses => drop(end),
        Kind::OtherResets => end.reset(),
        Kind::OpenerCloses | Kind::OpenerResets => {
            end.write_all(&[0]).expect("written");
            wait_for_end(end);
        }
    }
}

fn at(end: usize, port: u16) -> SocketAddr {
    SocketAddr::new(CABLE.address(end).parse().expect("an address"), port)
}

fn patient(stream: TcpStream) -> TcpStream {
    stream.set_read_timeout(Some(PATIENCE)).expect("a time");
    stream
}

/// Kernels of `b`: they answer, and open as they are asked to.
fn kernels(network: &Network, listener: &TcpListener, orders: Receiver<Kind>) {
    network.within(1, move || {
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while let Ok((stream, from)) = listener.accept() {
                    if from.ip().is_loopback() {
                        return;
                    }
                    scope.spawn(|| answer(patient(stream)));
                }
            });
            for kind in orders {
                scope.spawn(move || {
                    open_as(kind, patient(TcpStream::connect(at(0, OURS)).expect("to connect")));
                });
            }
            // The last one ends the other thread.
            drop(TcpStream::connect(("127.0.0.1", KERNELS)));
        });
    });
}

/// One of the two hosts under test.
struct Subject<'a> {
    name: &'static str,
    endsystem: &'a Endsystem,
    pid: Pid,
    /// Whether its connections may choose how long TIME-WAIT is.
    is_embedded: bool,
}

impl Subject<'_> {
    fn settings() -> Settings {
        Settings { msl: Nanos::from_millis(5), ..Qos::BestEffort.settings() }
    }

    fn connect(&self, port: u16) -> Result<punctual::tcp::TcpStream, TcpError> {
        match self.is_embedded {
            true => self.endsystem.connect_tcp_with(at(1, port), Qos::BestEffort, Self::settings()),
            false => self.endsystem.connect_tcp(at(1, port), Qos::BestEffort),
        }
    }

    fn listen(&self) -> OurListener {
        let listener = match self.is_embedded {
            true => self.endsystem.bind_tcp_with(at(0, OURS), Qos::BestEffort, 16, Self::settings()),
            false => self.endsystem.bind_tcp(at(0, OURS), Qos::BestEffort, 16),
        };
        listener.expect("granted")
    }

    /// How the connection of this number ends; `ours_opens`: on which side it begins.
    fn kind(&self, number: u64, ours_opens: bool, total: u64) -> Kind {
        let kind = KINDS[(number / 2 % 4) as usize];
        let waits = kind == if ours_opens { Kind::OpenerCloses } else { Kind::OtherCloses };
        let may_wait = self.is_embedded || total > 10_000 && number.is_multiple_of(TIME_WAITS);
        if waits && !may_wait { Kind::OtherResets } else { kind }
    }

    /// Opens and ends so many connections.
    fn work(&self, total: u64, listener: &Mutex<OurListener>, orders: &Sender<Kind>) {
        let next = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for _ in 0..WORKERS {
                let orders = orders.clone();
                let next = &next;
                scope.spawn(move || {
                    loop {
                        let number = next.fetch_add(1, Ordering::Relaxed);
                        if number >= total {
                            return;
                        }
                        if number % 16 == 7 {
                            assert!(
                                matches!(self.connect(CLOSED), Err(TcpError::Peer { .. })),
                                "nothing listens"
                            );
                        } else if number.is_multiple_of(2) {
                            let kind = self.kind(number, true, total);
                            let stream = self.connect(KERNELS);
                            open_as(
                                kind,
                                stream.unwrap_or_else(|error| panic!("{}: {number}: {error}", self.name)),
                            );
                        } else {
                            orders.send(self.kind(number, false, total)).expect("kernels");
                            let accepted = listener.lock().expect("no panic").accept();
                            answer(accepted.expect("a connection"));
                        }
                    }
                });
            }
        });
    }

    /// Its memory in KiB: what this program has allocated, or the pages of the daemon.
    fn memory_kib(&self) -> u64 {
        match self.is_embedded {
            true => in_use_bytes() as u64 / 1_024,
            false => memory_kib(self.pid),
        }
    }

    /// What it holds when nothing changes any more, and its memory in KiB.
    fn settled(&self) -> (Holdings, u64) {
        let until = std::time::Instant::now() + SETTLED_WITHIN;
        loop {
            let before = holdings(self.pid, self.endsystem);
            // Longer than TIME-WAIT of an embedded endsystem, in which a connection has no handlers.
            std::thread::sleep(Duration::from_millis(500));
            let connections = self.endsystem.tcp_connections().expect("a list").len();
            let handlers = self.endsystem.status().expect("a status").handlers.len();
            let after = holdings(self.pid, self.endsystem);
            // Those of the listener and of late segments.
            let is_quiet = connections == 0 && handlers == 2;
            if is_quiet && before == after && after.lost.is_empty() {
                return (after, self.memory_kib());
            }
            let is_late = std::time::Instant::now() >= until;
            assert!(!is_late, "{}: {connections} connections, {handlers} handlers, {after:?}", self.name);
        }
    }

    /// As many connections at once as the driver has flows, and not one more.
    fn fill(&self) {
        let streams: Vec<_> = (0..FLOWS)
            .map(|at| self.connect(KERNELS).unwrap_or_else(|error| panic!("{at}: {error}")))
            .collect();
        let error = self.connect(KERNELS).err().map(|error| punctual::one_line(&error));
        assert!(error.as_ref().is_some_and(|error| error.contains("are in use")), "{error:?}");
        streams.into_iter().for_each(|stream| open_as(Kind::OtherCloses, stream));
    }

    fn check(&self, network: &Network, total: u64) {
        let kernels_listener =
            network.within(1, || TcpListener::bind(("0.0.0.0", KERNELS))).expect("a listener");
        let (orders, queue) = channel();
        std::thread::scope(|scope| {
            scope.spawn(move || kernels(network, &kernels_listener, queue));
            let listener = Mutex::new(self.listen());
            // What stays allocated is allocated by then.
            self.fill();
            self.work(total / 10, &listener, &orders);
            let (before, before_kib) = self.settled();
            let begun = std::time::Instant::now();
            self.work(total, &listener, &orders);
            let took = begun.elapsed();
            let (after, after_kib) = self.settled();
            println!(
                "{}: {total} connections in {took:.1?}; memory {before_kib} KiB before, {after_kib} after",
                self.name
            );
            let rest = |of: &Holdings| Holdings { descriptors: 0, mappings: 0, ..of.clone() };
            assert_eq!(rest(&after), rest(&before), "{}", self.name);
            let [descriptors, mappings] = RING.map(|of_one| RINGS_LEFT_MAX * of_one);
            let is_less = after.descriptors <= before.descriptors + descriptors;
            assert!(is_less && after.mappings <= before.mappings + mappings, "{after:?}, {before:?}");
            let slack_kib = if self.is_embedded { ALLOCATED_SLACK_KIB } else { PAGES_SLACK_KIB };
            let most = before_kib + slack_kib + total * LEFT_BYTES_MAX / 1_024;
            assert!(after_kib <= most, "{}: {after_kib} KiB, {before_kib} before", self.name);
            // The table of flows is as empty as in the beginning.
            self.fill();
            drop(orders);
        });
    }
}

/// The configuration of `a`.
fn text(socket: &Path) -> String {
    let link = format!(
        "{}interrupt_defer = \"20us\"\nrate = \"1Gbit/s\"\nflows_max = {FLOWS}\nlisteners_max = 2\n",
        CABLE.link(0, "xdp")
    );
    configuration(socket, &link).to_toml()
}

const PROCESSOR: &str = r#"profile_measure = false
    best_effort_host = true
    costs = { send_message = "1us", send_packet = "1us", send_packet_later = "1us", forward_packet = "1us",
              receive_packet = "1us", deliver_message = "1us", copy_kib = "200ns", cold_start = "20us" }"#;
const DAEMON: &str =
    "channels_per_user_max = 1024\ndescriptors_per_user_max = 16384\nbuffers_per_user_max = \"2GiB\"\n";

fn configuration<'a>(socket: &'a Path, link: &'a str) -> Text<'a> {
    Text { name: "a", socket, processor: PROCESSOR, daemon: DAEMON, hello: HELLO, signalling: "", link }
}

#[test]
fn connections_leave_nothing_behind() {
    let Some(network) = Network::new("tcpleak", 2) else { return };
    network.join(CABLE);
    let total = std::env::var("PUNCTUAL_TCP_CONNECTIONS").ok().and_then(|count| count.parse().ok());
    let total: u64 = total.unwrap_or(2_000) / 2;
    let folder = folder("tcpleak");
    let socket = folder.join("a.sock");
    {
        let link = format!(
            "{}interrupt_defer = \"20us\"\nrate = \"1Gbit/s\"\nflows_max = {FLOWS}\nlisteners_max = 2\n",
            CABLE.link(0, "xdp")
        );
        let daemon = Program::start(&folder, configuration(&socket, &link), |line| network.inside(0, line));
        let endsystem = daemon.connect();
        Subject { name: "daemon", endsystem: &endsystem, pid: daemon.pid(), is_embedded: false }
            .check(&network, total);
    }
    let config = punctual::config::parse(&text(&socket), Path::new("/test/a.toml"));
    let config = config.unwrap_or_else(|error| panic!("{error}"));
    network.within(0, || {
        let endsystem = Endsystem::embedded(&config).unwrap_or_else(|error| panic!("{error}"));
        Subject { name: "embedded", endsystem: &endsystem, pid: getpid(), is_embedded: true }
            .check(&network, total);
    });
}
