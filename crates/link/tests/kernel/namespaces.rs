//! Two network namespaces with a veth pair between them, made by the test and removed with it.

use std::fs::File;
use std::io::Write;
use std::os::fd::AsFd;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// Addresses of both ends.
pub const ADDRESSES: [&str; 2] = ["10.99.0.1", "10.99.0.2"];
/// Hardware addresses of both ends.
pub const MACS: [[u8; 6]; 2] = [[2, 0x70, 0x75, 0, 0, 1], [2, 0x70, 0x75, 0, 0, 2]];

/// `left` and `right`, joined by devices `va` (left) and `vb` (right).
pub struct Pair {
    left: String,
    right: String,
}

/// Whether namespaces can be made here; says so where not.
pub fn privileged() -> bool {
    let made = rustix::process::getuid().is_root() && try_run("unshare --net true", "").is_ok();
    if !made {
        eprintln!("SKIPPED: network namespaces need root");
    }
    made
}

impl Pair {
    pub fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = |end| format!("punctual-{}-k{number}-{end}", std::process::id());
        let pair = Self { left: name("left"), right: name("right") };
        for namespace in [&pair.left, &pair.right] {
            run(&format!("ip netns add {namespace}"), "");
        }
        pair.join();
        pair
    }

    /// Lays the cable.
    pub fn join(&self) {
        self.left(&format!(
            "ip link add va numrxqueues 2 numtxqueues 2 type veth peer name vb numrxqueues 1 numtxqueues 1 netns {}",
            self.right
        ));
        for (namespace, device, end) in [(&self.left, "va", 0), (&self.right, "vb", 1)] {
            let mac: Vec<String> = MACS[end].iter().map(|byte| format!("{byte:02x}")).collect();
            let script = format!(
                "link set lo up\nlink set {device} address {}\nlink set {device} up\naddress add {}/30 dev {device}\n",
                mac.join(":"),
                ADDRESSES[end],
            );
            run(&inside(namespace, "ip -batch -"), &script);
        }
    }

    /// Runs a command in the left one; returns what it printed.
    pub fn left(&self, line: &str) -> String {
        run(&inside(&self.left, line), "")
    }

    /// Runs a command in the right one.
    pub fn right(&self, line: &str) -> String {
        run(&inside(&self.right, line), "")
    }

    /// A command line that runs in the left one.
    pub fn inside_left(&self, line: &str) -> String {
        inside(&self.left, line)
    }

    /// Runs `work` on a thread in the left one.
    pub fn within<R: Send>(&self, work: impl FnOnce() -> R + Send) -> R {
        within(&self.left, work)
    }

    /// Runs `work` on a thread in the right one.
    pub fn within_right<R: Send>(&self, work: impl FnOnce() -> R + Send) -> R {
        within(&self.right, work)
    }

    /// Everything about `va` that a user could see: link, qdiscs, NAPI files, addresses.
    pub fn photograph(&self) -> String {
        let files = "threaded napi_defer_hard_irqs gro_flush_timeout mtu address";
        let sysfs = format!(
            "unshare --mount --propagation unchanged sh -c 'mount --make-rprivate /sys && mount -t sysfs sysfs /sys && cd /sys/class/net/va && grep . {files}'"
        );
        let commands = ["ip -details link show va", "ip address show va", "tc qdisc show dev va", &sysfs];
        // The kernel makes sure of its own addresses for a second or two: nothing that anybody changed.
        commands.map(|line| self.left(line).replace(" tentative", "")).join("--\n")
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        for namespace in [&self.left, &self.right] {
            if let Err(error) = try_run(&format!("ip netns delete {namespace}"), "") {
                eprintln!("warning: namespace {namespace} stays behind: {error}");
            }
        }
    }
}

fn within<R: Send>(namespace: &str, work: impl FnOnce() -> R + Send) -> R {
    let file = File::open(format!("/run/netns/{namespace}")).expect("the namespace");
    std::thread::scope(|scope| {
        let inside = scope.spawn(move || {
            move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network)).expect("to enter");
            work()
        });
        inside.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

fn inside(namespace: &str, line: &str) -> String {
    format!("nsenter --net=/run/netns/{namespace} {line}")
}

fn run(line: &str, input: &str) -> String {
    try_run(line, input).unwrap_or_else(|error| panic!("{error}"))
}

fn try_run(line: &str, input: &str) -> Result<String, String> {
    let failed = |what: &dyn std::fmt::Display| format!("{line}: {what}");
    let mut child = Command::new("sh")
        .args(["-c", line])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| failed(&error))?;
    let mut stdin = child.stdin.take().ok_or("no standard input")?;
    stdin.write_all(input.as_bytes()).map_err(|error| failed(&error))?;
    drop(stdin);
    let output = child.wait_with_output().map_err(|error| failed(&error))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(failed(&String::from_utf8_lossy(&output.stderr).trim()))
}
