//! Two network namespaces with a veth pair between them, made by the test and removed with it.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use crate::host::Host;
pub use crate::host::privileged;

/// Addresses of both ends.
pub const ADDRESSES: [&str; 2] = ["10.99.0.1", "10.99.0.2"];
/// Hardware addresses of both ends.
pub const MACS: [[u8; 6]; 2] = [[2, 0x70, 0x75, 0, 0, 1], [2, 0x70, 0x75, 0, 0, 2]];

/// `left` and `right`, joined by devices `va` (left) and `vb` (right).
pub struct Pair {
    left: Host,
    right: Host,
}

/// In its environment a test program is a host that sets something up and then hangs until it is killed.
const CHILD: &str = "PUNCTUAL_TEST_CHILD";

/// For tests that are such hosts: runs `work` and waits, if this program was started for it.
pub fn hang_with<T>(work: impl FnOnce() -> T) {
    if std::env::var_os(CHILD).is_none() {
        return;
    }
    let _held = work();
    println!("\nready");
    // The end of its standard input means that the parent process is gone, so no other process would end it.
    let _ = std::io::stdin().lines().count();
}

impl Pair {
    pub fn new() -> Self {
        let pair = Self { left: Host::new(), right: Host::new() };
        pair.join();
        pair
    }

    /// Connects the cable; when this returns, the kernel has finished its own initialisation of new devices.
    pub fn join(&self) {
        self.left(&format!(
            "ip link add va numrxqueues 2 numtxqueues 2 type veth peer name vb numrxqueues 1 numtxqueues 1 netns {}",
            self.right.name()
        ));
        // Without addresses that the kernel adds later; without IPv6 it adds none.
        let ipv6 = std::path::Path::new("/proc/sys/net/ipv6").exists();
        let ends = [(&self.left, "va", 0), (&self.right, "vb", 1)];
        for (host, device, end) in ends {
            let mac: Vec<String> = MACS[end].iter().map(|byte| format!("{byte:02x}")).collect();
            let no_addresses =
                if ipv6 { format!("link set {device} addrgenmode none\n") } else { String::new() };
            let script = format!(
                "{no_addresses}link set {device} address {}\nlink set {device} up\naddress add {}/30 dev {device}\n",
                mac.join(":"),
                ADDRESSES[end],
            );
            host.ip_batch(&script);
        }
        for (host, device, _) in ends {
            host.await_up(device);
        }
    }

    /// Runs a command in the left one; returns what it printed.
    pub fn left(&self, line: &str) -> String {
        self.left.run(line)
    }

    /// Runs a command in the right one.
    pub fn right(&self, line: &str) -> String {
        self.right.run(line)
    }

    /// A process in the left namespace that runs the test `name`, which calls [`hang_with`].
    pub fn hanging(&self, name: &str) -> Child {
        let own = std::env::current_exe().expect("this program");
        let line = self.left.line(&format!("{} --exact {name} --nocapture", own.display()));
        let mut child = Command::new("sh")
            .args(["-c", &format!("exec {line}")])
            .env(CHILD, "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a child");
        let output = BufReader::new(child.stdout.take().expect("its output"));
        assert!(output.lines().map_while(Result::ok).any(|line| line == "ready"), "the child failed");
        child
    }

    /// Runs `work` on a thread in the left one.
    pub fn within<R: Send>(&self, work: impl FnOnce() -> R + Send) -> R {
        self.left.within(work)
    }

    /// Runs `work` on a thread in the right one.
    pub fn within_right<R: Send>(&self, work: impl FnOnce() -> R + Send) -> R {
        self.right.within(work)
    }

    /// Everything about `va` that a user could see: link, qdiscs, NAPI files, addresses.
    pub fn photograph(&self) -> String {
        let files = "threaded napi_defer_hard_irqs gro_flush_timeout mtu address";
        let sysfs = format!(
            "unshare --mount --propagation unchanged sh -c 'mount --make-rprivate /sys && mount -t sysfs sysfs /sys && cd /sys/class/net/va && grep . {files}'"
        );
        let commands = ["ip -details link show va", "ip address show va", "tc qdisc show dev va", &sysfs];
        commands.map(|line| settings(&self.left(line))).join("--\n")
    }
}

/// The settings, without the kernel's own changes: for a second or two it checks its own addresses, and it
/// counts packets that it sends past an htb without classes.
fn settings(printed: &str) -> String {
    const COUNT: &str = "direct_packets_stat";
    let mut counted = false;
    let is_set = |word: &&str| *word != "tentative" && !std::mem::replace(&mut counted, *word == COUNT);
    printed.split(' ').filter(is_set).collect::<Vec<_>>().join(" ")
}
