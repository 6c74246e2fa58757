//! Hosts as network namespaces, and cables (veth pairs) between them. Needs root.

use std::fs::File;
use std::os::fd::AsFd;
use std::process::Command;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::eventually;

/// Runs a command line; returns its output.
///
/// # Errors
/// The error output of the command.
pub fn run(line: &str) -> Result<String, String> {
    let output = Command::new("sh").args(["-c", line]).output().map_err(|error| error.to_string())?;
    let printed =
        String::from_utf8_lossy(if output.status.success() { &output.stdout } else { &output.stderr });
    if output.status.success() { Ok(printed.into_owned()) } else { Err(format!("{line}: {printed}")) }
}

/// Joins two hosts, by their places in the network.
#[derive(Clone, Copy)]
pub struct Cable {
    /// Different from others'.
    pub number: u8,
    pub hosts: [usize; 2],
}

impl Cable {
    /// The device at one end, 0 or 1.
    pub fn device(self, end: usize) -> String {
        format!("v{}{}", self.number, ["a", "b"][end])
    }

    pub fn address(self, end: usize) -> String {
        format!("10.98.{}.{}", self.number, end + 1)
    }

    /// Lines of `[[link]]` at one end; over xdp with a real-time NAPI thread and a shaper for kernel traffic.
    pub fn link(self, end: usize, driver: &str) -> String {
        let (own, peer) = (self.address(end), self.address(1 - end));
        let text = format!("driver = \"{driver}\"\nlocal = \"{own}\"\npeer = \"{peer}\"\n");
        if driver != "xdp" {
            return format!("{text}kernel_traffic = \"exclusive\"\n");
        }
        let device = self.device(end);
        format!("{text}device = \"{device}\"\nkernel_rate = \"10%\"\nnapi_priority = 40\n")
    }
}

/// Hosts in namespaces of their own, removed when the test drops them.
pub struct Network(Vec<String>);

impl Network {
    /// A network of so many hosts, with `tag` in their names; `None`, with a message, if namespaces cannot be
    /// made.
    pub fn new(tag: &str, hosts: usize) -> Option<Self> {
        if !rustix::process::getuid().is_root() || run("unshare --net true").is_err() {
            punctual_skip::skipped!("network namespaces need root");
            return None;
        }
        let name = |host| format!("punctual-{}-{tag}-{host}", std::process::id());
        let network = Self((0..hosts).map(name).collect());
        for namespace in &network.0 {
            run(&format!("ip netns add {namespace}")).expect("a namespace");
        }
        Some(network)
    }

    /// A command line that runs `line` on a host.
    pub fn inside(&self, host: usize, line: &str) -> String {
        format!("nsenter --net=/run/netns/{} {line}", self.0[host])
    }

    pub fn run(&self, host: usize, line: &str) -> String {
        run(&self.inside(host, line)).expect("it works")
    }

    /// Does `work` on a thread on that host.
    pub fn within<R: Send>(&self, host: usize, work: impl FnOnce() -> R + Send) -> R {
        let file = File::open(format!("/run/netns/{}", self.0[host])).expect("the namespace");
        std::thread::scope(|scope| {
            let inside = scope.spawn(move || {
                move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network)).expect("to enter");
                work()
            });
            inside.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// Lays a cable, and waits until it is up.
    pub fn join(&self, cable: Cable) {
        let one = "numrxqueues 1 numtxqueues 1";
        let [first, second] = [0, 1].map(|end| cable.device(end));
        let far = &self.0[cable.hosts[1]];
        self.run(
            cable.hosts[0],
            &format!("ip link add {first} {one} type veth peer name {second} {one} netns {far}"),
        );
        for end in [0, 1] {
            let (host, device) = (cable.hosts[end], cable.device(end));
            self.run(host, &format!("sh -c 'ip link set lo up && ip link set {device} up'"));
            self.run(host, &format!("ip address add {}/30 dev {device}", cable.address(end)));
        }
        // The kernel calls a device up some time after both ends are.
        for end in [0, 1] {
            let show = format!("ip link show {}", cable.device(end));
            eventually("the cable is up", || self.run(cable.hosts[end], &show).contains(" state UP "));
        }
    }

    /// Switches the device at one end of a cable.
    pub fn switch(&self, cable: Cable, end: usize, state: &str) {
        self.run(cable.hosts[end], &format!("ip link set {} {state}", cable.device(end)));
    }

    /// The state of a device that a user can see, without its neighbours.
    pub fn photograph(&self, cable: Cable, end: usize) -> String {
        let device = cable.device(end);
        let show_command = format!("sh -c 'ip -details link show {device}; tc qdisc show dev {device}'");
        self.run(cable.hosts[end], &show_command)
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        for namespace in &self.0 {
            let _ = run(&format!("ip netns delete {namespace}"));
        }
    }
}

/// `"xdp"` if this host can load our program and has AF_XDP, else `"udp"`, with a message.
pub fn driver() -> &'static str {
    use punctual_link::xdp::{ClassifierOptions, Program};
    let options = ClassifierOptions::new("lo", [10, 98, 0, 1].into(), [10, 98, 0, 2].into(), 7_001, 7_000);
    let family = rustix::net::AddressFamily::XDP;
    let socket = rustix::net::socket(family, rustix::net::SocketType::RAW, None);
    match (Program::load(&options), socket) {
        (Ok(_), Ok(_)) => "xdp",
        (loaded, socket) => {
            let why = loaded.err().map(|error| error.to_string());
            let why = why.or(socket.err().map(|error| error.to_string())).unwrap_or_default();
            punctual_skip::skipped!("driver xdp ({why}); driver udp instead");
            "udp"
        }
    }
}
