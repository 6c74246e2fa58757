//! Named network namespaces: made, entered, removed, and removed later if a run was killed.
//!
//! A name is `punctual-PID-NUMBER-HOST`: the process that made it and which of its networks. So concurrent
//! runs do not collide, and namespaces of ended processes can be distinguished from those in use.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::command::{ToolError, feed, run};

/// Folder in which `ip netns` keeps its namespaces.
const DIRECTORY: &str = "/run/netns";
const PREFIX: &str = "punctual-";

/// Moves the calling thread, and the threads that it starts from now on, into the namespace of that file.
///
/// # Errors
/// If it is gone or may not be entered.
pub fn enter(path: &Path) -> io::Result<()> {
    Ok(move_into_link_name_space(File::open(path)?.as_fd(), Some(LinkNameSpaceType::Network))?)
}

/// A number for a network that this process has not used yet.
pub fn next_number() -> u32 {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    NUMBER.fetch_add(1, Ordering::Relaxed)
}

/// A network namespace; removed when dropped.
#[derive(Debug)]
pub struct Namespace {
    name: String,
}

impl Namespace {
    /// Makes one for `host` of this process' network `number`, with loopback up.
    ///
    /// # Errors
    /// If `ip` refuses.
    pub fn create(number: u32, host: &str) -> Result<Self, ToolError> {
        let name = format!("{PREFIX}{}-{number}-{host}", std::process::id());
        run(&format!("ip netns add {name}"))?;
        let namespace = Self { name };
        namespace.feed("ip link set lo up", "")?;
        Ok(namespace)
    }

    /// Runs a command line inside with `input` on its standard input. By `nsenter`, since `ip -n` remounts the file
    /// system, which a root directory that is no mount point (chroot) refuses.
    ///
    /// # Errors
    /// If the tool is missing, fails or cannot be run.
    pub fn feed(&self, line: &str, input: &str) -> Result<String, ToolError> {
        feed(&format!("nsenter --net={} {line}", self.path().display()), input)
    }

    /// Name of the namespace for `ip`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// File of the namespace for `nsenter --net=`.
    pub fn path(&self) -> PathBuf {
        Path::new(DIRECTORY).join(&self.name)
    }

    /// Runs `work` on a thread of its own inside; sockets that it makes stay there.
    ///
    /// # Errors
    /// If the namespace cannot be entered or `work` fails.
    pub fn within<R: Send>(&self, work: impl FnOnce() -> io::Result<R> + Send) -> io::Result<R> {
        let path = self.path();
        std::thread::scope(|scope| {
            let inside = scope.spawn(move || {
                enter(&path)?;
                work()
            });
            inside.join().unwrap_or_else(|_| Err(io::Error::other("a thread inside a namespace panicked")))
        })
    }

    /// Writes a network parameter, `key` as below `/proc/sys/net/`.
    ///
    /// # Errors
    /// If there is no such parameter or it is refused.
    pub fn set_parameter(&self, key: &str, value: &str) -> io::Result<()> {
        self.within(|| std::fs::write(format!("/proc/sys/net/{key}"), value))
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        if let Err(error) = run(&format!("ip netns delete {}", self.name)) {
            eprintln!("warning: namespace {} stays behind: {error}", self.name);
        }
    }
}

/// Names of all our namespaces, in use or stale, with the process that made each.
pub fn list() -> Vec<(String, u32)> {
    let Ok(entries) = std::fs::read_dir(DIRECTORY) else { return Vec::new() };
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    names.filter_map(|name| owner(&name).map(|pid| (name, pid))).collect()
}

/// Names of the namespaces whose process has ended, in order.
pub fn stale() -> Vec<String> {
    let mut names: Vec<String> =
        list().into_iter().filter(|(_, pid)| !alive(*pid)).map(|(name, _)| name).collect();
    names.sort();
    names
}

/// Removes the namespaces of processes that have ended, and kills the processes in them; returns how many.
/// Other processes may do the same concurrently.
///
/// # Errors
/// If `ip` refuses.
pub fn remove_stale() -> Result<usize, ToolError> {
    let mut removed = 0;
    for name in stale() {
        match remove(&name) {
            Ok(()) => removed += 1,
            Err(_) if !Path::new(DIRECTORY).join(&name).exists() => {}
            Err(error) => return Err(error),
        }
    }
    Ok(removed)
}

fn remove(name: &str) -> Result<(), ToolError> {
    for pid in run(&format!("ip netns pids {name}"))?.split_whitespace().filter_map(parse_pid) {
        // It may have ended meanwhile.
        let _ = kill_process(pid, Signal::KILL);
    }
    run(&format!("ip netns delete {name}")).map(drop)
}

fn owner(name: &str) -> Option<u32> {
    name.strip_prefix(PREFIX)?.split('-').next()?.parse().ok()
}

fn parse_pid(text: &str) -> Option<Pid> {
    text.parse().ok().and_then(Pid::from_raw)
}

/// Whether there is a process of that number.
pub fn alive(pid: u32) -> bool {
    parse_pid(&pid.to_string()).is_some_and(|pid| test_kill_process(pid).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_contains_its_process() {
        assert_eq!(owner("punctual-4711-0-a"), Some(4711));
        assert_eq!(owner("punctual-x-0-a"), None);
        assert_eq!(owner("of-another-program"), None);
    }

    #[test]
    fn we_are_alive() {
        assert!(alive(std::process::id()));
        assert!(!alive(0));
        // Above the largest pid that Linux assigns.
        assert!(!alive(1 << 23));
    }
}
