//! What a daemon holds.

use punctual::Endsystem;
use rustix::process::Pid;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holdings {
    pub descriptors: usize,
    pub threads: usize,
    /// Of shared-memory files.
    pub mappings: usize,
    pub channels: u32,
    pub buffer_bytes: u64,
    pub clients: u32,
}

/// Entries of a folder of /proc.
fn entries(pid: Pid, what: &str) -> usize {
    std::fs::read_dir(format!("/proc/{}/{what}", pid.as_raw_nonzero())).expect("/proc").count()
}

pub fn descriptors(pid: Pid) -> usize {
    entries(pid, "fd")
}

/// Mappings of shared-memory files.
pub fn mappings(pid: Pid) -> usize {
    let maps = std::fs::read_to_string(format!("/proc/{}/maps", pid.as_raw_nonzero())).expect("/proc");
    maps.lines().filter(|line| line.contains("memfd:")).count()
}

pub fn holdings(pid: Pid, host: &Endsystem) -> Holdings {
    let status = host.status().expect("status");
    Holdings {
        descriptors: descriptors(pid),
        threads: entries(pid, "task"),
        mappings: mappings(pid),
        channels: status.node.channels,
        buffer_bytes: status.node.buffer_bytes,
        clients: status.api.clients,
    }
}

/// Resident, in KiB.
pub fn memory_kib(pid: Pid) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", pid.as_raw_nonzero())).expect("/proc");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("VmRSS");
    line.split_whitespace().next().and_then(|text| text.parse().ok()).expect("a number")
}
