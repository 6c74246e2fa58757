//! The program over AF_XDP, between two network namespaces that the test makes (needs root): channels, a daemon that
//! is killed, a device that vanishes, and devices that are as before in the end.

mod common;

use std::path::Path;
use std::process::Command;

use common::program::{Program, folder};
use common::text::{HELLO, Text};
use common::{eventually, meet, stream};
use rustix::process::Signal;

/// Runs a command line; returns what it printed.
fn run(line: &str) -> Result<String, String> {
    let output = Command::new("sh").args(["-c", line]).output().map_err(|error| error.to_string())?;
    let said = String::from_utf8_lossy(if output.status.success() { &output.stdout } else { &output.stderr });
    if output.status.success() { Ok(said.into_owned()) } else { Err(format!("{line}: {said}")) }
}

/// Two namespaces; a cable between them is `va` in the first and `vb` in the second.
struct Network([String; 2]);

impl Network {
    /// `None`, said aloud, where namespaces cannot be made.
    fn new() -> Option<Self> {
        let name = |end| format!("punctual-{}-d-{end}", std::process::id());
        let network = Self([name("a"), name("b")]);
        if !rustix::process::getuid().is_root() || run("unshare --net true").is_err() {
            eprintln!("SKIPPED: network namespaces need root");
            return None;
        }
        for namespace in &network.0 {
            run(&format!("ip netns add {namespace}")).expect("a namespace");
        }
        network.join();
        Some(network)
    }

    fn inside(&self, end: usize, line: &str) -> String {
        format!("nsenter --net=/run/netns/{} {line}", self.0[end])
    }

    fn join(&self) {
        let one = "numrxqueues 1 numtxqueues 1";
        let cable = format!("ip link add va {one} type veth peer name vb {one} netns {}", self.0[1]);
        run(&self.inside(0, &cable)).expect("a cable");
        for (end, device) in ["va", "vb"].into_iter().enumerate() {
            let up = format!("sh -c 'ip link set lo up && ip link set {device} up'");
            run(&self.inside(end, &up)).expect("a device");
            let address = format!("ip address add 10.98.0.{}/30 dev {device}", end + 1);
            run(&self.inside(end, &address)).expect("an address");
        }
        // The kernel calls a device up some time after both ends are.
        for (end, device) in ["va", "vb"].into_iter().enumerate() {
            let show = self.inside(end, &format!("ip link show {device}"));
            eventually("the cable is up", || run(&show).expect("a device").contains(" state UP "));
        }
    }

    /// What a user sees of a device, its neighbours left out.
    fn photograph(&self, end: usize) -> String {
        let device = ["va", "vb"][end];
        let look = format!("sh -c 'ip -details link show {device}; tc qdisc show dev {device}'");
        run(&self.inside(end, &look)).expect("a photograph")
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        for namespace in &self.0 {
            let _ = run(&format!("ip netns delete {namespace}"));
        }
    }
}

fn start(network: &Network, folder: &Path, end: usize) -> Program {
    let name = ["a", "b"][end];
    let socket = folder.join(format!("{name}.sock"));
    let link = format!(
        r#"
        driver = "xdp"
        device = "v{name}"
        local = "10.98.0.{}"
        peer = "10.98.0.{}"
        kernel_rate = "10%"
        napi_priority = 40
        interrupt_defer = "20us"
        rate = "100Mbit/s"
        "#,
        end + 1,
        2 - end
    );
    let processor = "profile_measure = false";
    let text =
        Text { name, socket: &socket, processor, daemon: "", hello: HELLO, signalling: "", link: &link };
    Program::start(folder, text, |line| network.inside(end, line))
}

#[test]
fn daemons_over_xdp_survive_devices_and_leave_none_changed() {
    let Some(network) = Network::new() else { return };
    let folder = folder("xdp");
    let before = [0, 1].map(|end| network.photograph(end));

    let (on_a, on_b) = (start(&network, &folder, 0), start(&network, &folder, 1));
    let (a, b) = (on_a.connect(), on_b.connect());
    drop(stream(&a, &b, 20_000));
    let link = a.status().expect("status").engine["links"][0].clone();
    assert!(link["mode"].as_str().is_some_and(|mode| mode.starts_with("xdp (")), "{link}");
    assert_eq!(link["facts"]["napi_priority"], "40", "{link}");
    assert!(network.photograph(0).contains("tbf 7075:") && network.photograph(0).contains("xdp"));

    // Killed, and started again: what the dead one left is taken over, and put back in the end.
    on_a.stop(Signal::KILL);
    assert!(network.photograph(0).contains("tbf 7075:"));
    let on_a = start(&network, &folder, 0);
    let a = on_a.connect();
    drop(stream(&a, &b, 20_000));
    assert!(on_a.stop(Signal::TERM).success());
    assert!(on_b.stop(Signal::TERM).success());
    assert_eq!([0, 1].map(|end| network.photograph(end)), before);

    // The other one's device vanishes and comes back; both go on.
    let (on_a, on_b) = (start(&network, &folder, 0), start(&network, &folder, 1));
    let (a, b) = (on_a.connect(), on_b.connect());
    meet([&a, &b]);
    run(&network.inside(1, "ip link del vb")).expect("no cable");
    eventually("the link is lost", || !b.status().expect("status").node.links[0].alive);
    network.join();
    drop(stream(&a, &b, 20_000));
    assert!(on_a.stop(Signal::TERM).success());
    assert!(on_b.stop(Signal::TERM).success());
    for end in [0, 1] {
        let after = network.photograph(end);
        assert!(!after.contains("7075") && !after.contains("xdp"), "{after}");
    }
    std::fs::remove_dir_all(folder).expect("removed");
}
