//! The program over AF_XDP, between network namespaces that the test makes (needs root): channels, a daemon that is
//! killed, a device that vanishes, a flood of signalling; and hosts that are as before in the end.

mod common;

use std::collections::BTreeSet;
use std::net::{SocketAddrV4, UdpSocket};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

use common::network::{Cable, Network, run};
use common::program::{Program, folder};
use common::text::{HELLO, Text};
use common::{PATIENCE, eventually, meet, stream};
use punctual::{DriverStatus, Endsystem};
use punctual_host::config::SIGNALLING_PORT_DEFAULT;
use punctual_proto::signalling::RTCOP_VERSION;
use rustix::net::{AddressFamily, SendFlags, SocketType};
use rustix::process::Signal;

/// Cables between `a` and `b`, and between `a` and a third host.
const CABLE: Cable = Cable { number: 0, hosts: [0, 1] };
const OTHER: Cable = Cable { number: 1, hosts: [0, 2] };

/// The configuration of `a` (end 0) or `b`, with `more` tables.
fn text<R>(folder: &Path, end: usize, more: &str, work: impl FnOnce(Text<'_>) -> R) -> R {
    let name = ["a", "b"][end];
    let socket = folder.join(format!("{name}.sock"));
    let link = format!("{}interrupt_defer = \"20us\"\nrate = \"100Mbit/s\"\n{more}", CABLE.link(end, "xdp"));
    let processor = "profile_measure = false";
    work(Text { name, socket: &socket, processor, daemon: "", hello: HELLO, signalling: "", link: &link })
}

fn start_with(network: &Network, folder: &Path, end: usize, more: &str) -> Program {
    text(folder, end, more, |text| Program::start(folder, text, |line| network.inside(end, line)))
}

fn start(network: &Network, folder: &Path, end: usize) -> Program {
    start_with(network, folder, end, "")
}

fn photographs(network: &Network) -> [String; 2] {
    [0, 1].map(|end| network.photograph(CABLE, end))
}

/// The output of bpftool; `None`, with a message, if it is not installed.
fn bpftool(line: &str) -> Option<serde_json::Value> {
    if run("command -v bpftool").is_err() {
        punctual_skip::skipped!("what is in the kernel is not looked at: no bpftool");
        return None;
    }
    let text = run(&format!("bpftool --json {line}")).expect("bpftool works");
    Some(serde_json::from_str(&text).expect("JSON"))
}

/// The number of the program of a device.
fn program(network: &Network, end: usize) -> u64 {
    let shown = network.run(end, &format!("ip -json -details link show {}", CABLE.device(end)));
    let shown: serde_json::Value = serde_json::from_str(&shown).expect("JSON");
    shown[0]["xdp"]["prog"]["id"].as_u64().expect("a program is attached")
}

/// All of the classifier of a device that is in the kernel: the arguments by which bpftool shows each of them.
fn in_kernel(network: &Network, end: usize) -> Vec<String> {
    let program = program(network, end);
    let Some(shown) = bpftool(&format!("prog show id {program}")) else { return Vec::new() };
    let maps = shown["map_ids"].as_array().expect("maps").iter().map(|id| format!("map show id {id}"));
    let links = bpftool("link show").expect("it is there");
    let links = links.as_array().into_iter().flatten().filter(|link| link["prog_id"] == program);
    let links: Vec<_> = links.map(|link| format!("link show id {}", link["id"])).collect();
    assert_eq!(links.len(), 1, "one link holds the program");
    let all: Vec<_> = maps.chain(links).chain([format!("prog show id {program}")]).collect();
    assert!(all.len() > 6, "{all:?}");
    all
}

/// Channels that the classifier of a device lets in, by the kernel's table.
fn filters(network: &Network, end: usize) -> Option<usize> {
    let shown = bpftool(&format!("prog show id {}", program(network, end)))?;
    let maps = shown["map_ids"].as_array().expect("maps");
    let is_filters = |id: &&serde_json::Value| {
        bpftool(&format!("map show id {id}")).is_some_and(|map| map["name"] == "filters")
    };
    let map = maps.iter().find(is_filters).expect("the table of channels");
    Some(bpftool(&format!("map dump id {map}"))?.as_array().expect("entries").len())
}

/// Checks that the classifier of `b` lets in so many channels, and that `b` counts nothing else: neither another filter nor a channel
/// without one.
fn check_filters(network: &Network, b: &Endsystem, channels: usize) {
    let is_so = || {
        let audit = b.status().expect("status").audit.expect("of its own user");
        audit.wrong.is_empty() && filters(network, 1).is_none_or(|filters| filters == channels)
    };
    eventually("the filters are those of the channels", is_so);
}

/// The kernel frees objects some time after the last user has gone, and does not reuse an id for a long time.
fn are_gone(objects: &[String]) {
    for object in objects {
        eventually("it is out of the kernel", || run(&format!("bpftool {object}")).is_err());
    }
}

/// Ids of all programs in the kernel that have this tag, whichever process loaded them.
fn programs(tag: &serde_json::Value) -> BTreeSet<u64> {
    let shown = bpftool("prog show").unwrap_or_default();
    let ours = shown.as_array().into_iter().flatten().filter(|program| program["tag"] == *tag);
    ours.filter_map(|program| program["id"].as_u64()).collect()
}

#[test]
fn daemons_over_xdp_survive_devices_and_leave_none_changed() {
    let Some(network) = Network::new("daemons", 2) else { return };
    network.join(CABLE);
    let folder = folder("xdp");
    let before = photographs(&network);

    let (on_a, on_b) = (start(&network, &folder, 0), start(&network, &folder, 1));
    let (a, b) = (on_a.connect(), on_b.connect());
    let (channel, receiver) = stream(&a, &b, 20_000);
    check_filters(&network, &b, 1);
    drop((channel, receiver));
    check_filters(&network, &b, 0);
    let link = a.status().expect("status").engine.links[0].clone();
    assert!(link.mode.starts_with("xdp ("), "{link:?}");
    assert_eq!(link.facts.get("napi_priority"), Some("40"), "{link:?}");
    let during = network.photograph(CABLE, 0);
    assert!(during.contains("tbf 7075:") && during.contains("xdp"), "{during}");
    let killed = in_kernel(&network, 0);

    // The daemon is killed and started again: it takes over the changes of the killed one, and restores the
    // device in the end.
    on_a.stop(Signal::KILL);
    are_gone(&killed);
    assert!(network.photograph(CABLE, 0).contains("tbf 7075:"));
    let on_a = start(&network, &folder, 0);
    let a = on_a.connect();
    drop(stream(&a, &b, 20_000));
    let stopped = [0, 1].map(|end| in_kernel(&network, end)).concat();
    assert!(on_a.stop(Signal::TERM).success());
    assert!(on_b.stop(Signal::TERM).success());
    assert_eq!(photographs(&network), before);
    are_gone(&stopped);

    // The other daemon's device vanishes and comes back; both continue, and its log tells it.
    let on_a = start(&network, &folder, 0);
    let log = folder.join("b.log");
    let on_b = text(&folder, 1, "", |text| {
        Program::start(&folder, text, |line| format!("{} 2>{}", network.inside(1, line), log.display()))
    });
    let lines = |what: &str| {
        std::fs::read_to_string(&log).expect("a log").lines().filter(|line| line.contains(what)).count()
    };
    let (a, b) = (on_a.connect(), on_b.connect());
    meet([&a, &b]);
    network.run(1, &format!("ip link del {}", CABLE.device(1)));
    eventually("the link is lost", || !b.status().expect("status").node.links[0].alive);
    eventually("the log tells it", || lines(&format!("interface {} is gone", CABLE.device(1))) == 1);
    assert_eq!(lines("is in order again"), 0);
    network.join(CABLE);
    drop(stream(&a, &b, 20_000));
    eventually("the log tells that it is back", || lines("the interface is in order again") >= 1);
    assert!(on_a.stop(Signal::TERM).success());
    assert!(on_b.stop(Signal::TERM).success());
    for after in photographs(&network) {
        assert!(!after.contains("7075") && !after.contains("xdp"), "{after}");
    }
    std::fs::remove_dir_all(folder).expect("removed");
}

/// What fails after the first link's program was loaded takes it out again.
#[test]
fn a_daemon_that_cannot_start_leaves_nothing_in_the_kernel() {
    let Some(network) = Network::new("bad", 2) else { return };
    network.join(CABLE);
    let folder = folder("xdp-bad");
    let before = photographs(&network);
    let good = start(&network, &folder, 0);
    let number = program(&network, 0);
    let tag =
        bpftool(&format!("prog show id {number}")).map(|shown| shown["tag"].clone()).unwrap_or_default();
    let seen = programs(&tag);
    assert!(tag.is_null() || seen.contains(&number), "{tag} is not in {seen:?}");
    assert!(good.stop(Signal::TERM).success());
    eventually("its program is gone", || !programs(&tag).contains(&number));
    let loaded = programs(&tag);
    // A device that does not exist, one without a link, and ports that are taken.
    let third =
        "[[host]]\nname = \"c\"\nid = 3\n[[link]]\nname = \"to-c\"\nneighbour = \"c\"\nrate = \"1Mbit/s\"\n";
    let none = format!("{third}{}prediction_error = \"1ms\"\n", OTHER.link(0, "xdp"));
    let loopback = none.replace(&OTHER.device(0), "lo");
    for (more, named) in [(&none, OTHER.device(0)), (&loopback, "lo".into())] {
        let more = format!("prediction_error = \"1ms\"\n{more}");
        let config = text(&folder, 0, &more, |text| common::program::write(&folder, text));
        let line =
            format!("{} --best-effort-host --config {}", env!("CARGO_BIN_EXE_punctuald"), config.display());
        let failed = Command::new("sh")
            .args(["-c", &network.inside(0, &line)])
            .env("PUNCTUAL_LOG", "error")
            .output()
            .expect("punctuald runs");
        let printed = String::from_utf8_lossy(&failed.stderr);
        assert_eq!((failed.status.code(), printed.lines().count()), (Some(1), 1), "{printed}");
        assert!(printed.contains(&named), "{printed}");
        assert_eq!(photographs(&network), before);
        // Other tests may have theirs loaded meanwhile, but not for that long.
        eventually("nothing of it is in the kernel", || programs(&tag).is_subset(&loaded));
    }
    std::fs::remove_dir_all(folder).expect("removed");
}

/// The driver's counters of a link of this host.
fn driver(host: &Endsystem, link: usize) -> DriverStatus {
    host.status().expect("status").engine.links[link].clone()
}

/// Only the driver sees unsealed packets beyond a quarter of `packets_per_second` and a burst of some dozens;
/// other neighbours' signalling continues.
#[test]
fn a_flood_of_signalling_is_dropped_in_the_driver_and_other_neighbours_get_through() {
    const FLOOD: u64 = 50_000;
    let Some(network) = Network::new("flood", 3) else { return };
    network.join(CABLE);
    network.join(OTHER);
    let folder = folder("xdp-flood");
    let third = "[[host]]\nname = \"c\"\nid = 3\n";
    let link = OTHER.link(0, "xdp");
    let second = format!(
        "prediction_error = \"500ms\"\n{third}[[link]]\nname = \"to-c\"\nneighbour = \"c\"\nrate = \"100Mbit/s\"\n\
         prediction_error = \"5ms\"\n{link}"
    );
    let (on_a, on_b) = (start_with(&network, &folder, 0, &second), start_with(&network, &folder, 1, third));
    let (a, b) = (on_a.connect(), on_b.connect());
    let is_alive =
        || a.status().expect("status").node.links[0].alive && b.status().expect("status").node.links[0].alive;
    eventually("they see each other", is_alive);
    let listener = b.listen("bystander", |_| punctual::Consent::Accept).expect("a listener");
    let mut channel = a.open("bystander@b", common::contract(200, 50, 300)).expect("a channel");
    let mut receiver = listener.accept_timeout(PATIENCE).expect("no error").expect("a channel");

    let begun = std::time::Instant::now();
    let sent = network.within(2, || {
        let socket =
            UdpSocket::bind((OTHER.address(1), SIGNALLING_PORT_DEFAULT)).expect("the neighbour's port");
        socket.connect((OTHER.address(0), SIGNALLING_PORT_DEFAULT)).expect("an address");
        (0..FLOOD).filter(|_| socket.send(&[1; 100]).is_ok()).count() as u64
    });
    assert!(sent > FLOOD / 2, "{sent} packets left");
    let received = b.status().expect("status").node.links[0].packets_signalling;
    let policed = || driver(&a, 1).drops.policed;
    eventually("most of it is policed", || policed() > sent / 2);
    let taken = driver(&a, 1).packets_in;
    // A quarter of 50 a second; 32 at once.
    let most = (begun.elapsed().as_secs_f64() * 12.5) as u64 + 33;
    assert!(taken > 0 && taken <= most, "{taken} of {sent} packets passed the driver, {most} may");

    for _ in 0..20 {
        channel.send(b"undisturbed").expect("sent");
        receiver.recv_timeout(&mut [0; 200], PATIENCE).expect("received");
        assert!(is_alive());
    }
    eventually("HELLOs go on", || {
        assert!(is_alive());
        b.status().expect("status").node.links[0].packets_signalling > received + 3
    });
    assert_eq!([&a, &b].map(|host| driver(host, 0).drops.policed), [0, 0]);
    println!("{sent} packets in {:?}: {} policed, {taken} taken", begun.elapsed(), policed());
    std::fs::remove_dir_all(folder).expect("removed");
}

/// UDP packets to the signalling port of end 0 that seem to come from the daemon at end 1, as fast as they go, until
/// `stop`; how many left.
fn forge(stop: &AtomicBool) -> u64 {
    let protocol = rustix::net::ipproto::UDP;
    let socket =
        rustix::net::socket(AddressFamily::INET, SocketType::RAW, Some(protocol)).expect("a raw socket");
    let [to, from] = [0, 1].map(|end| CABLE.address(end).to_string().parse().expect("an IPv4 address"));
    rustix::net::bind(&socket, &SocketAddrV4::new(from, 0)).expect("the neighbour's address");
    let port = SIGNALLING_PORT_DEFAULT.to_be_bytes();
    let packet = [port.as_slice(), &port, &[0, 40, 0, 0], &[RTCOP_VERSION; 32]].concat();
    let to = SocketAddrV4::new(to, 0);
    let mut left = 0;
    while !stop.load(Ordering::Relaxed) {
        left += u64::from(rustix::net::sendto(&socket, &packet, SendFlags::empty(), &to).is_ok());
    }
    left
}

/// The neighbour's packets carry a seal that the driver checks: who forges its addresses on the same link, as fast as it
/// can, ends no channel and keeps no new one from opening.
#[test]
fn a_forger_of_the_neighbours_addresses_ends_no_channel() {
    const FORGED_MIN: u64 = 100_000;
    let Some(network) = Network::new("forger", 2) else { return };
    network.join(CABLE);
    let folder = folder("xdp-forger");
    let (on_a, on_b) = (start(&network, &folder, 0), start(&network, &folder, 1));
    let (a, b) = (on_a.connect(), on_b.connect());
    meet([&a, &b]);
    let listener = b.listen("bystander", |_| punctual::Consent::Accept).expect("a listener");
    let mut channel = a.open("bystander@b", common::contract(200, 50, 300)).expect("a channel");
    let mut receiver = listener.accept_timeout(PATIENCE).expect("no error").expect("a channel");
    let received = |host: &Endsystem| host.status().expect("status").node.links[0].packets_signalling;

    let stop = AtomicBool::new(false);
    let left = std::thread::scope(|scope| {
        let flood = scope.spawn(|| network.within(1, || forge(&stop)));
        let dropped = || driver(&a, 0).drops.policed + driver(&a, 0).drops.no_buffer;
        // Strangers' are 13 a second at most, so this takes longer than the silence after which a neighbour is given up; that
        // would end the channel.
        let since = received(&a);
        eventually("HELLOs come through the flood", || received(&a) > since + 60 && dropped() > FORGED_MIN);
        for _ in 0..20 {
            channel.send(b"undisturbed").expect("sent");
            receiver.recv_timeout(&mut [0; 200], PATIENCE).expect("received");
        }
        drop(stream(&a, &b, 20_000));
        stop.store(true, Ordering::Relaxed);
        flood.join().expect("no panic")
    });
    println!("{left} forged, {} policed", driver(&a, 0).drops.policed);
    std::fs::remove_dir_all(folder).expect("removed");
}
