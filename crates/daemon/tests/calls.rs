//! The threads of daemons make no system calls but those in their lists (docs/adr/0034), whatever happens to links, devices
//! and programs. All other tests of daemons run with filters that end the daemon instead.

mod common;

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use common::network::{Cable, Network};
use common::program::{Program, folder};
use common::text::{HELLO, Text};
use common::{PATIENCE, contract, eventually, stream_to};
use punctual::{Consent, Endsystem};
use rustix::process::Signal;

/// Cables from `a`: to `b` over xdp, and to `c` over udp.
const XDP: Cable = Cable { number: 70, hosts: [0, 1] };
const UDP: Cable = Cable { number: 71, hosts: [0, 2] };

/// In its environment this program is a client of `a` that is killed.
const DYING: &str = "PUNCTUAL_TEST_DYING";

#[test]
fn dying_client() {
    let Some(socket) = std::env::var_os(DYING) else { return };
    let host = Endsystem::connect_to(Path::new(&socket)).expect("connected");
    let listener = host.listen("dying", |_| Consent::Accept).expect("a listener");
    let mut channel = host.open("bystander@b", contract(200, 50, 300)).expect("a channel");
    let flow = host.best_effort("bystander@b", 100).expect("a flow");
    channel.send(b"the last one").expect("sent");
    println!("open");
    std::thread::park();
    drop((listener, flow));
}

/// Starts it, and kills it with its channels open.
fn kill_a_client(socket: &Path) {
    let mut process = Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", "dying_client", "--nocapture"])
        .env(DYING, socket)
        .stdout(Stdio::piped())
        .spawn()
        .expect("it runs");
    let mut printed = BufReader::new(process.stdout.take().expect("its output")).lines();
    assert!(printed.any(|line| line.expect("a line").ends_with("open")), "the client has its channel");
    process.kill().expect("killed");
    process.wait().expect("it ends");
}

fn start(network: &Network, folder: &Path, name: &str, host: usize, processor: &str, link: &str) -> Program {
    let socket = folder.join(format!("{name}.sock"));
    let link = format!("{link}[[host]]\nname = \"c\"\nid = 3\n");
    // The default of the configuration.
    let daemon = "forbidden_calls = \"refuse\"";
    let text = Text { name, socket: &socket, processor, daemon, hello: HELLO, signalling: "", link: &link };
    Program::start_as(folder, text, "", |line| network.inside(host, line))
}

/// Names of the threads of a daemon, each of which has a filter.
fn confined(daemon: &Program) -> Vec<String> {
    let tasks = format!("/proc/{}/task", daemon.pid().as_raw_nonzero());
    let text_of =
        |task: std::fs::DirEntry| std::fs::read_to_string(task.path().join("status")).expect("a thread");
    let tasks = std::fs::read_dir(tasks).expect("threads").map(|task| text_of(task.expect("an entry")));
    let field = |text: &str, name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name)).expect("a line of it");
        line.trim().to_owned()
    };
    let mut names = Vec::new();
    for text in tasks {
        // Each thread has a filter, and signal handlers run only on the service's thread.
        assert_eq!(field(&text, "Seccomp:"), "2", "{text}");
        let blocked = u64::from_str_radix(&field(&text, "SigBlk:"), 16).expect("hexadecimal");
        let name = field(&text, "Name:");
        assert_eq!(blocked & 1 << (Signal::TERM.as_raw() - 1) != 0, name != "punctuald", "{text}");
        names.push(name);
    }
    names.sort();
    names
}

#[test]
fn daemons_make_only_the_calls_in_their_lists() {
    let Some(network) = Network::new("calls", 3) else { return };
    network.join(XDP);
    network.join(UDP);
    let folder = folder("calls");
    let link = |cable: Cable, end, driver| {
        format!("{}rate = \"100Mbit/s\"\nprediction_error = \"500ms\"\n", cable.link(end, driver))
    };
    let second = format!("[[link]]\nname = \"to-c\"\nneighbour = \"c\"\n{}", link(UDP, 0, "udp"));
    let measured = "profile_measure = false";
    let of_a = format!("{}{second}", link(XDP, 0, "xdp"));
    let a = start(&network, &folder, "a", 0, &format!("{measured}\nco_schedule = true"), &of_a);
    let of_b = format!("{measured}\nclass = \"deadline\"");
    let b = start(&network, &folder, "b", 1, &of_b, &link(XDP, 1, "xdp"));
    let c = start(&network, &folder, "c", 2, measured, &link(UDP, 1, "udp"));
    let daemons = [&a, &b, &c];
    let hosts = daemons.map(|daemon| daemon.connect());
    let alive = |host: usize, link: usize| hosts[host].status().expect("status").node.links[link].alive;
    eventually("they see one another", || alive(0, 0) && alive(0, 1) && alive(1, 0) && alive(2, 0));

    for (other, bytes) in [(1, 20_000), (2, 20_000), (1, 100), (2, 100)] {
        stream_to(&hosts[0], &hosts[other], ["", "b", "c"][other], contract(bytes, 100, 300));
    }
    let bystander = hosts[1].listen("bystander", |_| Consent::Accept).expect("a listener");
    kill_a_client(&a.socket);
    let mut orphan = bystander.accept_timeout(PATIENCE).expect("no error").expect("a channel");
    orphan.set_recv_timeout(Some(PATIENCE));
    assert!(orphan.recv(&mut [0; 200]).is_ok() && orphan.recv(&mut [0; 200]).is_err(), "its sender has died");
    // While bells of a client are to be rung.
    let flow = hosts[0].best_effort("bystander@b", 100).expect("a flow");
    let names = confined(&a);
    drop(flow);
    for name in ["punctual-bell", "punctual-cpu", "punctual-devic", "punctual-links", "punctuald"] {
        assert!(names.iter().any(|there| there.starts_with(name)), "{name} is not in {names:?}");
    }

    // The device vanishes and returns.
    network.run(1, &format!("ip link del {}", XDP.device(1)));
    eventually("the link is lost", || !alive(1, 0) && !alive(0, 0));
    network.join(XDP);
    eventually("they see each other again", || alive(0, 0) && alive(1, 0));
    stream_to(&hosts[0], &hosts[1], "b", contract(20_000, 100, 300));
    // And is switched off and on.
    network.switch(UDP, 1, "down");
    eventually("the link is lost", || !alive(0, 1));
    network.switch(UDP, 1, "up");
    eventually("they see each other again", || alive(0, 1) && alive(2, 0));

    for (host, name) in hosts.iter().zip(["a", "b", "c"]) {
        let status = host.status().expect("status");
        assert_eq!(status.engine.system_calls_refused, 0, "{name}: see what it said");
    }
    drop((orphan, bystander, hosts));
    for daemon in [a, b, c] {
        assert!(daemon.stop(Signal::TERM).success());
    }
    std::fs::remove_dir_all(folder).expect("removed");
}
