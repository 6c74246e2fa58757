//! The program `punctuald` as a process.
#![allow(dead_code, reason = "each test file uses a part")]

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

use punctual::Endsystem;
use rustix::process::{Pid, Signal, kill_process};

use super::network::{Cable, Network};
use super::text::{HELLO, Text};

/// A daemon that has reported that it is ready; killed when the test drops it.
pub struct Program {
    pub socket: PathBuf,
    process: Child,
}

/// Writes a configuration into `folder`; returns where.
pub fn write(folder: &Path, text: Text<'_>) -> PathBuf {
    let path = folder.join(format!("{}.toml", text.name));
    std::fs::write(&path, text.to_toml()).expect("written");
    path
}

/// Starts a daemon as `a`, whose `xdp` link at the first end of `cable` has room for TCP connections; `daemon` are lines of its
/// table `[daemon]`, and of other tables.
pub fn with_flows(network: &Network, folder: &Path, cable: Cable, daemon: &str) -> Program {
    with_link(network, folder, &link_with_flows(cable), daemon)
}

/// Starts a daemon as `a` on the first host, with these lines of its link.
pub fn with_link(network: &Network, folder: &Path, link: &str, daemon: &str) -> Program {
    let socket = folder.join("a.sock");
    let processor = r#"profile_measure = false
        best_effort_host = true
        costs = { send_message = "1us", send_packet = "1us", send_packet_later = "1us", forward_packet = "1us",
                  receive_packet = "1us", deliver_message = "1us", copy_kib = "200ns", cold_start = "20us" }"#;
    let text = Text { name: "a", socket: &socket, processor, daemon, hello: HELLO, signalling: "", link };
    Program::start(folder, text, |line| network.inside(0, line))
}

/// Lines of a `[[link]]` with room for TCP connections, at the first end of `cable`.
pub fn link_with_flows(cable: Cable) -> String {
    let link = cable.link(0, "xdp");
    format!("{link}interrupt_defer = \"20us\"\nrate = \"1Gbit/s\"\nflows_max = 16\nlisteners_max = 2\n")
}

impl Program {
    /// Starts one with `text` as a best-effort host and waits for its word; `line` makes its command line, to run it
    /// elsewhere.
    pub fn start(folder: &Path, text: Text<'_>, line: impl FnOnce(&str) -> String) -> Self {
        Self::start_as(folder, text, "--best-effort-host", line)
    }

    /// The same as [`Self::start`], with additional `flags`.
    pub fn start_as(folder: &Path, text: Text<'_>, flags: &str, line: impl FnOnce(&str) -> String) -> Self {
        let config = write(folder, text);
        let program = env!("CARGO_BIN_EXE_punctuald");
        let line = line(&format!("{program} {flags} --json --config {}", config.display()));
        let mut process = Command::new("sh")
            .args(["-c", &format!("exec {line}")])
            .stdout(Stdio::piped())
            .spawn()
            .expect("punctuald runs");
        let mut line = String::new();
        BufReader::new(process.stdout.take().expect("its output")).read_line(&mut line).expect("a line");
        assert!(line.contains("\"state\":\"ready\""), "{line}");
        Self { process, socket: text.socket.to_path_buf() }
    }

    pub fn pid(&self) -> Pid {
        Pid::from_child(&self.process)
    }

    pub fn connect(&self) -> Endsystem {
        Endsystem::connect_to(&self.socket).expect("a connection")
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).expect("it is there");
    }

    /// Stops it, and waits until all its threads are stopped.
    pub fn freeze(&self) {
        self.signal(Signal::STOP);
        let tasks = format!("/proc/{}/task", self.pid().as_raw_nonzero());
        let is_stopped = |task: std::io::Result<std::fs::DirEntry>| {
            // A thread that has just ended is missing at the next check.
            let text = task.and_then(|task| std::fs::read_to_string(task.path().join("stat")));
            text.is_ok_and(|text| {
                text.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('T'))
            })
        };
        super::eventually("everything is open", || {
            std::fs::read_dir(&tasks).expect("its threads").all(is_stopped)
        });
    }

    /// Waits for its end.
    pub fn wait(&mut self) -> ExitStatus {
        self.process.wait().expect("it ends")
    }

    /// Ends it by a signal.
    pub fn stop(mut self, signal: Signal) -> ExitStatus {
        self.signal(signal);
        self.wait()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A folder of this test's own.
pub fn folder(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("punctuald-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    folder
}
