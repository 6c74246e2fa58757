//! Failures of a machine that a daemon must survive: crowds of clients, too few descriptors, clients without
//! memory, full disks, devices that go down. Each affects only those who use what failed.

mod common;

use std::path::Path;
use std::process::Command;
use std::sync::Barrier;
use std::time::Duration;

use common::harm::{self, Disk};
use common::hosts::{Hosts, Wanted, with_text};
use common::network::{Cable, Network, driver};
use common::program::{Program, folder, write};
use common::text::Text;
use common::{PATIENCE, contract, eventually, meet};
use punctual::{Channel, CloseReason, Consent, Endsystem, Receiver, RecvError, SendError};
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
    // Here and, inherited, in the daemons: with the usual limit of 1,024 a thousand do not fit.
    let descriptors = Resource::Nofile;
    let maximum = getrlimit(descriptors).maximum;
    setrlimit(descriptors, Rlimit { current: maximum, maximum }).expect("what is allowed");
    let mut hosts = Hosts::start(
        &folder,
        0,
        &Wanted {
            daemon: "connections_per_user_max = 1100\ndescriptors_per_user_max = 10000",
            ..Wanted::default()
        },
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
fn clients_beyond_the_quota_get_that_error() {
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
        &Wanted {
            daemon: "connections_per_user_max = 1100\ndescriptors_per_user_max = 10000",
            ..Wanted::default()
        },
        limited,
    );
    // Connections that it cannot accept wait in the kernel: connecting succeeds, but the hello gets no
    // answer. So only the sockets are made here.
    let address = rustix::net::SocketAddrUnix::new(&hosts.a.socket).expect("an address");
    let (family, kind) = (rustix::net::AddressFamily::UNIX, rustix::net::SocketType::SEQPACKET);
    let sockets: Vec<_> = (0..100)
        .map(|_| {
            let flags = rustix::net::SocketFlags::NONBLOCK | rustix::net::SocketFlags::CLOEXEC;
            let socket = rustix::net::socket_with(family, kind, flags, None).expect("a socket");
            // A full backlog is one of the ways to be refused.
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

#[test]
fn starved_client() {
    harm::be_starved();
}

#[test]
fn a_client_without_memory_harms_only_itself() {
    let folder = folder("starved");
    let mut hosts = Hosts::start(&folder, 3, &Wanted::default(), str::to_owned);
    let watcher = hosts.a.connect();
    let before = watcher.status().expect("status");
    for _ in 0..3 {
        harm::starve(&hosts.a.socket, "bystander@b");
    }
    eventually("all is given back", || {
        let now = watcher.status().expect("status");
        (now.node.channels, now.node.buffer_bytes, now.api.clients)
            == (before.node.channels, before.node.buffer_bytes, before.api.clients)
    });
    hosts.are_undisturbed();
    std::fs::remove_dir_all(folder).expect("removed");
}

/// A configuration whose log and epoch are on the disk, and the daemon's output at its start.
fn on_disk(folder: &Path, disk: &Disk, cable: u16) -> std::path::PathBuf {
    let config = with_text(folder, "a", cable, |text| write(folder, text));
    let text = std::fs::read_to_string(&config).expect("read");
    let epoch = format!("epoch_file = \"{}\"\n[processor]", disk.path("epoch").display());
    std::fs::write(&config, text.replace("[processor]", &epoch)).expect("written");
    config
}

#[test]
fn a_full_disk_is_one_line_with_its_cause() {
    let folder = folder("full");
    let Some(disk) = Disk::mount(&folder.join("disk")) else { return };
    disk.fill(&disk.log());
    let config = on_disk(&folder, &disk, 4);
    let failed = Command::new(env!("CARGO_BIN_EXE_punctuald"))
        .args(["--best-effort-host", "--config"])
        .arg(&config)
        .env("PUNCTUAL_LOG", "error")
        .output()
        .expect("punctuald runs");
    let printed = String::from_utf8_lossy(&failed.stderr);
    assert_eq!((failed.status.code(), printed.lines().count()), (Some(1), 1), "{printed}");
    assert!(printed.contains("epoch_file") && printed.contains("No space left"), "{printed}");
    drop(disk);
    std::fs::remove_dir_all(folder).expect("removed");
}

/// A running daemon writes nothing but its log. Lines without room there are lost, with no other effect.
#[test]
fn a_disk_that_fills_up_costs_lines_of_the_log() {
    let folder = folder("log");
    let Some(disk) = Disk::mount(&folder.join("disk")) else { return };
    let log = disk.log();
    let logged = |line: &str| format!("{line} 2>>{}", log.display());
    let mut hosts = Hosts::start(&folder, 6, &Wanted::default(), logged);
    let text = std::fs::read_to_string(&log).expect("the log");
    assert!(text.contains("ready"), "{text}");
    disk.fill(&log);
    for _ in 0..20 {
        hosts.are_undisturbed();
        assert!(hosts.a.connect().status().is_ok());
    }
    // It writes "stopped", or tries to; the other one continues.
    let Hosts { a, connections: [_, on_b], .. } = hosts;
    assert!(a.stop(Signal::TERM).success(), "a graceful stop is a success");
    assert!(!std::fs::read_to_string(&log).expect("the log").contains("stopped"), "there was room");
    // A daemon that cannot write its log still starts.
    let again = with_text(&folder, "a", 6, |text| Program::start(&folder, text, logged));
    meet([&again.connect(), &on_b]);
    disk.free();
    assert!(again.stop(Signal::TERM).success());
    assert!(std::fs::read_to_string(&log).expect("the log").contains("stopped"), "lines come again");
    drop(disk);
    std::fs::remove_dir_all(folder).expect("removed");
}

/// While a device is down, neither host can know a channel's fate: each end reports that, and recovers when
/// the device is up. Channels over another device are not affected.
#[test]
fn a_device_that_goes_down_ends_what_goes_over_it_and_nothing_else() {
    let Some(network) = Network::new("down", 3) else { return };
    let cables = [Cable { number: 0, hosts: [0, 1] }, Cable { number: 1, hosts: [0, 2] }];
    for cable in cables {
        network.join(cable);
    }
    let folder = folder("down");
    for driver in ["udp", driver()] {
        goes_down(&network, cables, &folder, driver);
    }
    std::fs::remove_dir_all(folder).expect("removed");
}

/// `a` in the middle, `b` and `c`, each on a cable.
fn three(network: &Network, cables: [Cable; 2], folder: &Path, driver: &str) -> [Program; 3] {
    let rate = "rate = \"100Mbit/s\"\nprediction_error = \"500ms\"\n";
    let third = "[[host]]\nname = \"c\"\nid = 3\n";
    let [to_b, to_c] = cables.map(|cable| [0, 1].map(|end| format!("{}{rate}", cable.link(end, driver))));
    let second = "[[link]]\nname = \"to-c\"\nneighbour = \"c\"\n";
    let hosts = [
        (0, "a", format!("{}{third}{second}{}", to_b[0], to_c[0])),
        (1, "b", format!("{}{third}", to_b[1])),
        (2, "c", format!("{}{third}", to_c[1])),
    ];
    hosts.map(|(host, name, link)| {
        let (socket, processor) = (folder.join(format!("{name}.sock")), "profile_measure = false");
        // A neighbour is considered down after five.
        let (daemon, hello, signalling) = ("", "500ms", "");
        let text = Text { name, socket: &socket, processor, daemon, hello, signalling, link: &link };
        Program::start(folder, text, |line| network.inside(host, line))
    })
}

fn carry((channel, receiver): &mut (Channel, Receiver)) {
    channel.send(&[5; 2_000]).expect("sent");
    let info = receiver.recv_timeout(&mut [0; 2_000], PATIENCE).expect("received");
    assert!(!info.demoted);
}

/// Both ends of `over` receive its end, while `beside` continues.
fn both_are_notified(over: &mut (Channel, Receiver), beside: &mut (Channel, Receiver)) {
    let at_sink = loop {
        match over.1.recv_timeout(&mut [0; 2_000], PATIENCE) {
            Err(RecvError::Closed(reason)) => break reason,
            other => drop(other.expect("what was under way")),
        }
        carry(beside);
    };
    let at_source = loop {
        match over.0.send(&[5; 2_000]) {
            Err(SendError::Closed(reason)) => break reason,
            other => other.expect("it does not know yet"),
        }
        carry(beside);
    };
    for reason in [at_sink, at_source] {
        let is_lost = matches!(reason, Some(CloseReason::PathLost | CloseReason::LeaseOver));
        assert!(is_lost, "{reason:?}");
    }
}

fn goes_down(network: &Network, cables: [Cable; 2], folder: &Path, driver: &str) {
    let hosts = three(network, cables, folder, driver);
    let [a, b, c] = [0, 1, 2].map(|host: usize| hosts[host].connect());
    let alive =
        |count| a.status().expect("status").node.links.iter().filter(|link| link.alive).count() == count;
    let open = |host: &Endsystem, to: &str| {
        let listener = host.listen("cam", |_| Consent::Accept).expect("a listener");
        let channel = a.open(to, contract(2_000, 50, 300)).expect("a channel");
        (channel, listener.accept_timeout(PATIENCE).expect("no error").expect("a channel"))
    };
    eventually("they see each other", || alive(2));
    let mut beside = open(&c, "cam@c");
    for down in [0, 1] {
        eventually("both are there", || alive(2));
        let mut over = open(&b, "cam@b");
        carry(&mut over);
        // Only for a moment: messages sent meanwhile are lost or late, and no other event occurs.
        network.switch(cables[0], down, "down");
        over.0.send(&[5; 2_000]).expect("it is not known yet");
        assert!(over.0.flush(PATIENCE).expect("it is not known yet"));
        carry(&mut beside);
        let came = over.1.try_recv(&mut [0; 2_000]);
        assert!(matches!(came, Err(RecvError::WouldBlock)), "{driver}: it is not down");
        network.switch(cables[0], down, "up");
        eventually("messages come again", || {
            over.0.send(&[5; 2_000]).expect("the channel is open");
            over.1.recv_timeout(&mut [0; 2_000], Duration::from_millis(20)).is_ok()
        });
        // For a long time: the reservations are free again.
        network.switch(cables[0], down, "down");
        both_are_notified(&mut over, &mut beside);
        eventually("nothing is reserved for it", || {
            b.status().expect("status").node.channels == 0 && a.status().expect("status").node.channels == 1
        });
        network.switch(cables[0], down, "up");
    }
    eventually("both are there", || alive(2));
    carry(&mut open(&b, "cam@b"));
    carry(&mut beside);
    for host in hosts {
        assert!(host.stop(Signal::TERM).success());
    }
}

/// Meanwhile its neighbour continues to work, and a client of its own sends.
#[test]
fn a_stopped_daemon_goes_on_where_it_was() {
    let folder = folder("stopped");
    // It is stopped for about one HELLO, and considered down only after five.
    let wanted = Wanted { hello: "1s", ..Wanted::default() };
    let mut hosts = Hosts::start(&folder, 5, &wanted, str::to_owned);
    for _ in 0..3 {
        hosts.a.freeze();
        let sent = hosts.settled_sent_by_b();
        hosts.channel.send(b"while it is stopped").expect("there is room");
        eventually("the neighbour has greeted it", || hosts.sent_by_b() > sent);
        let mut buffer = [0; 200];
        assert!(matches!(hosts.receiver.try_recv(&mut buffer), Err(RecvError::WouldBlock)), "it is stopped");
        hosts.a.signal(Signal::CONT);
        let info = hosts.receiver.recv_timeout(&mut buffer, PATIENCE).expect("received");
        assert_eq!(&buffer[..info.len as usize], b"while it is stopped");
        hosts.are_undisturbed();
    }
    std::fs::remove_dir_all(folder).expect("removed");
}
