//! The program over AF_XDP, between two network namespaces that the test makes (needs root): channels, a daemon that
//! is killed, a device that vanishes, and devices that are as before in the end.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use punctual::{Consent, Contract, Endsystem, Nanos, Rate};
use rustix::process::{Pid, Signal, kill_process};

const PATIENCE: Duration = Duration::from_secs(30);

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

struct Daemon {
    process: Child,
    socket: PathBuf,
}

impl Daemon {
    fn start(network: &Network, folder: &Path, end: usize) -> Self {
        let socket = folder.join(format!("{end}.sock"));
        let config = write_config(folder, end, &socket);
        let program = env!("CARGO_BIN_EXE_punctuald");
        let line = format!("{program} --best-effort-host --json --config {}", config.display());
        let mut process = Command::new("sh")
            .args(["-c", &format!("exec {}", network.inside(end, &line))])
            .stdout(Stdio::piped())
            .spawn()
            .expect("punctuald runs");
        let mut line = String::new();
        BufReader::new(process.stdout.take().expect("its output")).read_line(&mut line).expect("a line");
        assert!(line.contains("\"state\":\"ready\""), "{line}");
        Self { process, socket }
    }

    fn connect(&self) -> Endsystem {
        Endsystem::connect_to(&self.socket).expect("a connection")
    }

    fn stop(mut self, signal: Signal) {
        kill_process(Pid::from_child(&self.process), signal).expect("it is there");
        let ended = self.process.wait().expect("it ends");
        assert_eq!(ended.success(), signal == Signal::TERM, "{ended}");
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn write_config(folder: &Path, end: usize, socket: &Path) -> PathBuf {
    let ([name, neighbour], own) = (if end == 0 { ["a", "b"] } else { ["b", "a"] }, end + 1);
    let text = format!(
        r#"
        [node]
        name = "{name}"
        [processor]
        profile_measure = false
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
        name = "to-{neighbour}"
        neighbour = "{neighbour}"
        driver = "xdp"
        device = "v{name}"
        local = "10.98.0.{own}"
        peer = "10.98.0.{}"
        kernel_rate = "10%"
        napi_priority = 40
        interrupt_defer = "20us"
        rate = "100Mbit/s"
        # A busy machine is late by any time: not what is tested here.
        prediction_error = "500ms"
        "#,
        socket.display(),
        3 - own
    );
    let path = folder.join(format!("{end}.toml"));
    std::fs::write(&path, text).expect("written");
    path
}

fn eventually(what: &str, mut so: impl FnMut() -> bool) {
    let until = Instant::now() + PATIENCE;
    while !so() {
        assert!(Instant::now() < until, "it never came to this: {what}");
        std::thread::yield_now();
    }
}

fn meet(hosts: [&Endsystem; 2]) {
    eventually("the hosts see one another", || {
        hosts.iter().all(|host| host.status().expect("status").node.links[0].alive)
    });
}

/// A channel from `a` to `b` carries ten messages.
fn carries(a: &Endsystem, b: &Endsystem) {
    let listener = b.listen("cam", |_| Consent::Accept).expect("a listener");
    let rate = Rate::per_second(100).expect("a rate");
    let contract = Contract::new(20_000, rate, 2, Nanos::from_millis(300)).expect("a contract");
    let mut channel = a.open("cam@b", contract).expect("a channel");
    let mut receiver = listener.accept_timeout(PATIENCE).expect("no error").expect("a channel");
    receiver.set_recv_timeout(Some(PATIENCE));
    for number in 0..10_u8 {
        channel.send(&[number; 20_000]).expect("sent");
        receiver.recv_in_place(|bytes, _| assert_eq!(bytes, [number; 20_000])).expect("received");
    }
}

#[test]
fn daemons_over_xdp_survive_devices_and_leave_none_changed() {
    let Some(network) = Network::new() else { return };
    let folder = std::env::temp_dir().join(format!("punctuald-xdp-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let before = [0, 1].map(|end| network.photograph(end));

    let (on_a, on_b) = (Daemon::start(&network, &folder, 0), Daemon::start(&network, &folder, 1));
    let (a, b) = (on_a.connect(), on_b.connect());
    meet([&a, &b]);
    carries(&a, &b);
    let link = a.status().expect("status").engine["links"][0].clone();
    assert!(link["mode"].as_str().is_some_and(|mode| mode.starts_with("xdp (")), "{link}");
    assert_eq!(link["facts"]["napi_priority"], "40", "{link}");
    assert!(network.photograph(0).contains("tbf 7075:") && network.photograph(0).contains("xdp"));

    // Killed, and started again: what the dead one left is taken over, and put back in the end.
    on_a.stop(Signal::KILL);
    assert!(network.photograph(0).contains("tbf 7075:"));
    let on_a = Daemon::start(&network, &folder, 0);
    let a = on_a.connect();
    meet([&a, &b]);
    carries(&a, &b);
    on_a.stop(Signal::TERM);
    on_b.stop(Signal::TERM);
    assert_eq!([0, 1].map(|end| network.photograph(end)), before);

    // The other one's device vanishes and comes back; both go on.
    let (on_a, on_b) = (Daemon::start(&network, &folder, 0), Daemon::start(&network, &folder, 1));
    let (a, b) = (on_a.connect(), on_b.connect());
    meet([&a, &b]);
    run(&network.inside(1, "ip link del vb")).expect("no cable");
    eventually("the link is lost", || !b.status().expect("status").node.links[0].alive);
    network.join();
    meet([&a, &b]);
    carries(&a, &b);
    on_a.stop(Signal::TERM);
    on_b.stop(Signal::TERM);
    for end in [0, 1] {
        let after = network.photograph(end);
        assert!(!after.contains("7075") && !after.contains("xdp"), "{after}");
    }
    std::fs::remove_dir_all(folder).expect("removed");
}
