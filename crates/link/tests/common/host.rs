//! A network namespace, made by the test and removed with it, and commands in it.

// Each test binary uses its part.
#![allow(dead_code)]

use std::fs::File;
use std::io::Write;
use std::os::fd::AsFd;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// Whether hosts can be made here; prints a message if not.
pub fn privileged() -> bool {
    let made = rustix::process::getuid().is_root() && try_run("unshare --net true", "").is_ok();
    if !made {
        punctual_skip::skipped!("network namespaces and XDP need root");
    }
    made
}

/// A network namespace.
pub struct Host {
    name: String,
}

impl Host {
    pub fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let host = Self { name: format!("punctual-{}-{number}", std::process::id()) };
        run(&format!("ip netns add {}", host.name), "");
        host.run("ip link set lo up");
        host
    }

    /// As `ip` calls it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A command line that runs inside.
    pub fn line(&self, line: &str) -> String {
        format!("nsenter --net=/run/netns/{} {line}", self.name)
    }

    /// Runs a command inside; returns what it printed.
    pub fn run(&self, line: &str) -> String {
        run(&self.line(line), "")
    }

    /// Runs many commands of `ip` inside, one a line.
    pub fn ip_batch(&self, script: &str) {
        run(&self.line("ip -batch -"), script);
    }

    /// Waits until the kernel calls `device` up, which it does some time after both of its ends are.
    pub fn await_up(&self, device: &str) {
        let until = Instant::now() + Duration::from_secs(20);
        loop {
            let seen = self.run(&format!("ip link show {device}"));
            if seen.contains(" state UP ") {
                return;
            }
            assert!(Instant::now() < until, "it never came up: {seen}");
        }
    }

    /// Runs `work` on a thread of its own inside.
    pub fn within<R: Send>(&self, work: impl FnOnce() -> R + Send) -> R {
        let file = File::open(format!("/run/netns/{}", self.name)).expect("the namespace");
        std::thread::scope(|scope| {
            let inside = scope.spawn(move || {
                move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network)).expect("to enter");
                work()
            });
            inside.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        if let Err(error) = try_run(&format!("ip netns delete {}", self.name), "") {
            eprintln!("warning: namespace {} stays behind: {error}", self.name);
        }
    }
}

/// Runs a command line with `input`; returns what it printed.
pub fn run(line: &str, input: &str) -> String {
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
