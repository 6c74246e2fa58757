//! Two hosts on a cable, of which `a` runs Punctual.

// Each test binary uses its part.
#![allow(dead_code)]

#[path = "basics.rs"]
mod basics;

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::host::Host;

pub use basics::basics;

pub const PUNCTUAL: &str = env!("CARGO_BIN_EXE_punctual");
pub const A: &str = "10.96.0.1";
pub const B: &str = "10.96.0.2";

/// Hosts `a` and `b` on one cable.
pub fn cable() -> (Host, Host) {
    let (a, b) = (Host::new(), Host::new());
    a.run(&format!("ip link add va type veth peer name vb netns {}", b.name()));
    for (host, device, ip) in [(&a, "va", A), (&b, "vb", B)] {
        host.ip_batch(&format!("link set lo up\nlink set {device} up\naddress add {ip}/30 dev {device}\n"));
    }
    a.await_up("va");
    b.await_up("vb");
    (a, b)
}

/// A configuration of `a` in a file of its own.
pub fn configuration(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("punctual-cable-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let file = folder.join("a.toml");
    let text = format!(
        r#"
        {basics}
        [[link]]
        name = "to-b"
        neighbour = "b"
        driver = "xdp"
        device = "va"
        local = "{A}"
        peer = "{B}"
        rate = "1Gbit/s"
        kernel_traffic = "exclusive"
        prediction_error = "500ms"
        flows_max = 16
        listeners_max = 2
        [daemon]
        socket = "{socket}"
        forbidden_calls = "end"
        "#,
        basics = basics("a", true),
        socket = folder.join("a.sock").display(),
    );
    std::fs::write(&file, text).expect("written");
    file
}

/// A command on `a`.
pub fn on(a: &Host, program: &Path, arguments: &[&str]) -> Command {
    // `ip netns exec` would mount /sys anew, which not every container allows.
    let mut command = Command::new("nsenter");
    command.arg(format!("--net=/run/netns/{}", a.name())).arg(program).args(arguments);
    command
}

/// A daemon on `a`, which ends when it is dropped.
pub struct Daemon(Child);

impl Daemon {
    pub fn start(a: &Host, file: &Path) -> Self {
        let program = Path::new(PUNCTUAL).with_file_name("punctuald");
        assert!(program.is_file(), "{} is not there: cargo build -p punctual-daemon", program.display());
        let mut command = on(a, &program, &["--config"]);
        let mut daemon = command.arg(file).stderr(Stdio::piped()).spawn().expect("a daemon");
        let lines = BufReader::new(daemon.stderr.take().expect("piped")).lines();
        let mut log = lines.map_while(Result::ok);
        assert!(log.any(|line| line.contains("ready")), "the daemon has ended");
        // Its log goes on, and is not read: nothing of this test fills the pipe.
        std::mem::forget(log);
        Self(daemon)
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
