//! What a machine does to a daemon: crowds of clients, too few descriptors, clients without memory, full disks, devices
//! that go down. Each costs whom it concerns, and nobody else.

mod common;

use std::path::Path;
use std::process::Command;
use std::sync::Barrier;

use common::hosts::{Hosts, Wanted, with_text};
use common::program::{Program, folder, write};
use common::{PATIENCE, contract, eventually};
use punctual::{Endsystem, RecvError};
use rustix::process::{Resource, Rlimit, Signal, getrlimit, setrlimit};

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
    // Here and, inherited, in the daemons: where no more than the usual 1,024 are allowed, a thousand do not fit.
    let descriptors = Resource::Nofile;
    let maximum = getrlimit(descriptors).maximum;
    setrlimit(descriptors, Rlimit { current: maximum, maximum }).expect("what is allowed");
    let mut hosts = Hosts::start(
        &folder,
        0,
        &Wanted { daemon: "connections_per_user_max = 1100", ..Wanted::default() },
        str::to_owned,
    );
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
    let mut hosts = Hosts::start(
        &folder,
        1,
        &Wanted { daemon: "connections_per_user_max = 8", ..Wanted::default() },
        str::to_owned,
    );
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
    let mut hosts = Hosts::start(
        &folder,
        2,
        &Wanted { daemon: "connections_per_user_max = 1100", ..Wanted::default() },
        limited,
    );
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
    let limit = |bytes| Rlimit { current: Some(bytes), maximum: Some(bytes) };
    setrlimit(Resource::As, limit(1 << 20)).expect("a limit");
    // 40 MB of rings do not fit: an error, or the end of this process, and neither is the daemon's business.
    let opened = host.open("bystander@b", contract(4_000_000, 1, 2_000));
    assert!(opened.is_err(), "a ring without memory");
}

#[test]
fn a_client_without_memory_harms_only_itself() {
    let folder = folder("starved");
    let mut hosts = Hosts::start(&folder, 3, &Wanted::default(), str::to_owned);
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
    let config = with_text(&folder, "a", 4, |text| write(&folder, text));
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

/// Its neighbour works on meanwhile, and a client of its own sends.
#[test]
fn a_stopped_daemon_goes_on_where_it_was() {
    let folder = folder("stopped");
    // It stands for about one HELLO, and is taken for dead after five.
    let wanted = Wanted { hello: "1s", ..Wanted::default() };
    let mut hosts = Hosts::start(&folder, 5, &wanted, str::to_owned);
    for _ in 0..3 {
        hosts.a.freeze();
        let sent = hosts.settled_sent_by_b();
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
