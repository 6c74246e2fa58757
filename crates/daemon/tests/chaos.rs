//! What a machine does to a daemon: crowds of clients, too few descriptors, clients without memory, full disks, devices
//! that go down. Each costs whom it concerns, and nobody else.

mod common;

use std::path::Path;
use std::process::Command;
use std::sync::Barrier;

use common::program::{Program, folder, write};
use common::text::Text;
use common::{PATIENCE, contract, eventually, meet};
use punctual::{Consent, Endsystem, RecvError};
use rustix::process::Signal;

/// Does `work` with the configuration of `name` on loopback network `net`; `daemon` has more keys of that table.
fn with_text<R>(folder: &Path, name: &str, net: u8, daemon: &str, work: impl FnOnce(Text<'_>) -> R) -> R {
    let [own, peer] = if name == "a" { [1, 2] } else { [2, 1] };
    let link = format!(
        "driver = \"udp\"\nlocal = \"127.96.{net}.{own}\"\npeer = \"127.96.{net}.{peer}\"\nrate = \"100Mbit/s\""
    );
    let socket = folder.join(format!("{name}.sock"));
    work(Text {
        name,
        socket: &socket,
        processor: "profile_measure = false",
        daemon,
        signalling: "",
        link: &link,
    })
}

/// Two daemons with a channel between them that must not notice anything.
struct Hosts {
    a: Program,
    _b: Program,
    channel: punctual::Channel,
    receiver: punctual::Receiver,
    connections: [Endsystem; 2],
}

impl Hosts {
    /// `a` with more keys, its command line made by `line`.
    fn start(folder: &Path, net: u8, daemon: &str, line: impl FnOnce(&str) -> String) -> Self {
        let a = with_text(folder, "a", net, daemon, |text| Program::start(folder, text, line));
        let b = with_text(folder, "b", net, "", |text| Program::start(folder, text, str::to_owned));
        let (on_a, on_b) = (a.connect(), b.connect());
        meet([&on_a, &on_b]);
        let listener = on_b.listen("bystander", |_| Consent::Accept).expect("a listener");
        let channel = on_a.open("bystander@b", contract(200, 50, 300)).expect("a channel");
        let receiver = listener.accept_timeout(PATIENCE).expect("no error").expect("a channel");
        Self { a, _b: b, channel, receiver, connections: [on_a, on_b] }
    }

    /// Packets that b has sent: greetings of its neighbour, where nothing else happens.
    fn sent_by_b(&self) -> u64 {
        let status = self.connections[1].status().expect("status");
        status.engine["links"][0]["packets_out"].as_u64().expect("a counter")
    }

    fn are_undisturbed(&mut self) {
        self.channel.send(b"undisturbed").expect("sent");
        let mut buffer = [0; 200];
        let info = self.receiver.recv_timeout(&mut buffer, PATIENCE).expect("received");
        assert_eq!(&buffer[..info.len as usize], b"undisturbed");
    }
}

/// A network of loopback that no other test has.
fn net(test: u8) -> u8 {
    (std::process::id() % 40) as u8 * 6 + test
}

/// Time on a CPU so far, in ticks of 10 ms.
fn cpu_ticks(program: &Program) -> u64 {
    let path = format!("/proc/{}/stat", program.pid().as_raw_nonzero());
    let text = std::fs::read_to_string(path).expect("/proc");
    let fields: Vec<&str> = text.rsplit(')').next().expect("fields").split_whitespace().collect();
    // utime and stime, the 14th and 15th of all.
    [11, 12].iter().map(|at| fields[*at].parse::<u64>().expect("a number")).sum()
}

#[test]
fn a_thousand_clients_connect_at_once_and_are_all_served() {
    let folder = folder("crowd");
    let mut hosts = Hosts::start(&folder, net(0), "connections_per_user_max = 1100", str::to_owned);
    let start = Barrier::new(20);
    std::thread::scope(|scope| {
        let crowds: Vec<_> = (0..20)
            .map(|_| {
                scope.spawn(|| {
                    start.wait();
                    let clients: Vec<_> = (0..50).map(|_| hosts.a.connect()).collect();
                    assert!(clients.iter().all(|client| client.status().is_ok()));
                    clients
                })
            })
            .collect();
        let crowds: Vec<_> = crowds.into_iter().map(|crowd| crowd.join().expect("served")).collect();
        let clients = hosts.a.connect().status().expect("status").api.clients;
        assert!(clients >= 1_000, "{clients}");
        drop(crowds);
    });
    let watcher = hosts.a.connect();
    eventually("they are forgotten", || watcher.status().expect("status").api.clients == 2);
    hosts.are_undisturbed();
    std::fs::remove_dir_all(folder).expect("removed");
}

#[test]
fn clients_beyond_the_quota_are_told_so() {
    let folder = folder("quota");
    let mut hosts = Hosts::start(&folder, net(1), "connections_per_user_max = 8", str::to_owned);
    let (served, refused): (Vec<_>, Vec<_>) =
        (0..100).map(|_| Endsystem::connect_to(&hosts.a.socket)).partition(Result::is_ok);
    assert_eq!((served.len(), refused.len()), (7, 93), "one is connected already");
    for error in refused.into_iter().filter_map(Result::err) {
        let error = error.to_string();
        assert!(error.contains("quota") && error.lines().count() == 1, "{error}");
    }
    hosts.are_undisturbed();
    std::fs::remove_dir_all(folder).expect("removed");
}

#[test]
fn a_daemon_without_descriptors_rests_and_recovers() {
    let folder = folder("descriptors");
    let limited = |line: &str| format!("sh -c 'ulimit -n 64; exec {line}'");
    let mut hosts = Hosts::start(&folder, net(2), "connections_per_user_max = 1100", limited);
    // What it cannot accept waits in the kernel; connecting succeeds, greeting does not: only the sockets are made here.
    let address = rustix::net::SocketAddrUnix::new(&hosts.a.socket).expect("an address");
    let (family, kind) = (rustix::net::AddressFamily::UNIX, rustix::net::SocketType::SEQPACKET);
    let sockets: Vec<_> = (0..100)
        .map(|_| {
            let flags = rustix::net::SocketFlags::NONBLOCK | rustix::net::SocketFlags::CLOEXEC;
            let socket = rustix::net::socket_with(family, kind, flags, None).expect("a socket");
            // A full backlog is one way to be told that nobody has time.
            let _ = rustix::net::connect(&socket, &address);
            socket
        })
        .collect();
    let before = cpu_ticks(&hosts.a);
    for _ in 0..20 {
        hosts.are_undisturbed();
    }
    let spent = cpu_ticks(&hosts.a) - before;
    assert!(spent < 30, "{spent} ticks of 10 ms: it spins on a socket that it cannot accept");
    drop(sockets);
    let mut late = None;
    eventually("it accepts again", || {
        late = Endsystem::connect_to(&hosts.a.socket).ok();
        late.is_some()
    });
    hosts.are_undisturbed();
    std::fs::remove_dir_all(folder).expect("removed");
}

/// In its environment this program is a client that may not map what it is given.
const STARVED: &str = "PUNCTUAL_TEST_STARVED";

#[test]
fn starved_client() {
    let Some(socket) = std::env::var_os(STARVED) else { return };
    let host = Endsystem::connect_to(Path::new(&socket)).expect("connected");
    let limit = |bytes| rustix::process::Rlimit { current: Some(bytes), maximum: Some(bytes) };
    rustix::process::setrlimit(rustix::process::Resource::As, limit(1 << 20)).expect("a limit");
    // 40 MB of rings do not fit: an error, or the end of this process, and neither is the daemon's business.
    let opened = host.open("bystander@b", contract(4_000_000, 1, 2_000));
    assert!(opened.is_err(), "a ring without memory");
}

#[test]
fn a_client_without_memory_harms_only_itself() {
    let folder = folder("starved");
    let mut hosts = Hosts::start(&folder, net(3), "", str::to_owned);
    let watcher = hosts.a.connect();
    let before = watcher.status().expect("status");
    for _ in 0..3 {
        // However it ends.
        let own = std::env::current_exe().expect("this program");
        let _ = Command::new(own)
            .args(["--exact", "starved_client", "--nocapture"])
            .env(STARVED, &hosts.a.socket)
            .output()
            .expect("it runs");
    }
    eventually("all is given back", || {
        let now = watcher.status().expect("status");
        (now.node.channels, now.node.buffer_bytes, now.api.clients)
            == (before.node.channels, before.node.buffer_bytes, before.api.clients)
    });
    hosts.are_undisturbed();
    std::fs::remove_dir_all(folder).expect("removed");
}

/// A disk of one page at a folder, full; gone where the test drops it.
struct FullDisk<'a>(&'a Path);

impl<'a> FullDisk<'a> {
    fn mount(at: &'a Path) -> Self {
        std::fs::create_dir_all(at).expect("a folder");
        let made = Command::new("mount").args(["-t", "tmpfs", "-o", "size=4k", "tmpfs"]).arg(at).status();
        assert!(made.expect("mount").success(), "a disk");
        let disk = Self(at);
        assert!(std::fs::write(at.join("filler"), [0; 8_192]).is_err(), "more than fits");
        disk
    }
}

impl Drop for FullDisk<'_> {
    fn drop(&mut self) {
        let gone = Command::new("umount").arg(self.0).status();
        if !gone.is_ok_and(|status| status.success()) {
            eprintln!("warning: the disk at {} stays behind", self.0.display());
        }
    }
}

#[test]
fn a_full_disk_is_one_line_with_its_cause() {
    if !rustix::process::getuid().is_root() {
        eprintln!("SKIPPED: mounting needs root");
        return;
    }
    let folder = folder("full");
    let at = folder.join("disk");
    let disk = FullDisk::mount(&at);
    let config = with_text(&folder, "a", net(4), "", |text| write(&folder, text));
    let text = std::fs::read_to_string(&config).expect("read");
    let epoch = format!("epoch_file = \"{}\"\n[processor]", at.join("epoch").display());
    std::fs::write(&config, text.replace("[processor]", &epoch)).expect("written");
    let failed = Command::new(env!("CARGO_BIN_EXE_punctuald"))
        .args(["--best-effort-host", "--config"])
        .arg(&config)
        .env("PUNCTUAL_LOG", "error")
        .output()
        .expect("punctuald runs");
    let said = String::from_utf8_lossy(&failed.stderr);
    assert_eq!((failed.status.code(), said.lines().count()), (Some(1), 1), "{said}");
    assert!(said.contains("epoch_file") && said.contains("No space left"), "{said}");
    drop(disk);
    std::fs::remove_dir_all(folder).expect("removed");
}

/// The wall clock of this machine, stepped; put back where it would be when this is dropped.
struct SteppedClock {
    wall_ns: i128,
    since: std::time::Instant,
}

impl SteppedClock {
    /// `None` where this process may not set the clock.
    fn take() -> Option<Self> {
        let clock = Self { wall_ns: wall_ns(), since: std::time::Instant::now() };
        clock.step(0).then_some(clock)
    }

    /// Sets the wall clock to what it would show by itself, and `by_ms` more.
    fn step(&self, by_ms: i128) -> bool {
        let ns = self.wall_ns + self.since.elapsed().as_nanos() as i128 + by_ms * 1_000_000;
        let time =
            rustix::time::Timespec { tv_sec: (ns / 1_000_000_000) as _, tv_nsec: (ns % 1_000_000_000) as _ };
        rustix::time::clock_settime(rustix::time::ClockId::Realtime, time).is_ok()
    }
}

impl Drop for SteppedClock {
    fn drop(&mut self) {
        if !self.step(0) {
            eprintln!("warning: the wall clock is not what it was");
        }
    }
}

fn wall_ns() -> i128 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
    i128::from(time.tv_sec) * 1_000_000_000 + i128::from(time.tv_nsec)
}

/// Who sets it lets this program step the clock of the machine, which is nobody's alone: `make test` does.
const MAY_STEP: &str = "PUNCTUAL_TEST_WALL_CLOCK";

/// Channels know `CLOCK_MONOTONIC` alone; the kernel's receive stamps are of the wall clock. Needs CAP_SYS_TIME: steps the
/// clock of the machine by less than half a second, and back.
#[test]
fn steps_of_the_wall_clock_are_not_noticed() {
    if std::env::var_os(MAY_STEP).is_none() {
        eprintln!("SKIPPED: it steps the wall clock of this machine: set {MAY_STEP}=1, as make test does");
        return;
    }
    let Some(clock) = SteppedClock::take() else {
        eprintln!("SKIPPED: no right to set the clock (CAP_SYS_TIME)");
        return;
    };
    let folder = folder("clock");
    let mut hosts = Hosts::start(&folder, net(4), "", str::to_owned);
    for by_ms in [400, -400, 300, -300, 0] {
        let (before, began) = (wall_ns(), std::time::Instant::now());
        assert!(clock.step(by_ms), "stepped by {by_ms} ms");
        for _ in 0..5 {
            hosts.are_undisturbed();
        }
        let moved = wall_ns() - before - began.elapsed().as_nanos() as i128;
        assert!(by_ms == 0 || moved.abs() > 200_000_000, "the wall clock did not move: {moved} ns");
    }
    drop(clock);
    let state = hosts.receiver.state().expect("a state");
    assert_eq!((state.misses, state.status.counters.demoted), (0, 0), "{state:?}");
    let drops = hosts.a.connect().status().expect("status").node.drops;
    assert_eq!(drops.replayed, 0, "{drops:?}");
    std::fs::remove_dir_all(folder).expect("removed");
}

/// Its neighbour works on meanwhile, and a client of its own sends.
#[test]
fn a_stopped_daemon_goes_on_where_it_was() {
    let folder = folder("stopped");
    let mut hosts = Hosts::start(&folder, net(5), "", str::to_owned);
    for _ in 0..3 {
        hosts.a.freeze();
        let sent = hosts.sent_by_b();
        hosts.channel.send(b"while it stands").expect("there is room");
        eventually("the neighbour has greeted it", || hosts.sent_by_b() > sent);
        let mut buffer = [0; 200];
        assert!(matches!(hosts.receiver.try_recv(&mut buffer), Err(RecvError::WouldBlock)), "it stands");
        hosts.a.signal(Signal::CONT);
        let info = hosts.receiver.recv_timeout(&mut buffer, PATIENCE).expect("received");
        assert_eq!(&buffer[..info.len as usize], b"while it stands");
        hosts.are_undisturbed();
    }
    std::fs::remove_dir_all(folder).expect("removed");
}
