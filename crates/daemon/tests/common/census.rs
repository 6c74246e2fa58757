//! The resources that a daemon holds.

use std::os::unix::fs::MetadataExt;

use punctual::{Audit, Endsystem};
use rustix::process::Pid;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holdings {
    pub descriptors: usize,
    pub threads: usize,
    /// Mappings of shared-memory files.
    pub mappings: usize,
    pub channels: u32,
    pub buffer_bytes: u64,
    pub clients: u32,
    /// What quotas count of all users together: clients, listeners, ends of channels, bytes of rings, descriptors.
    pub quotas: [u64; 5],
    /// Counters that are wrong, and requests that wait for an answer.
    pub lost: String,
}

impl Holdings {
    /// Lowers each figure to that of `now`; whether none of `now` was above. What the daemon is still giving back when it is
    /// first looked at would hide a leak as large, so the least that was ever seen counts.
    pub fn lower_to(&mut self, now: &Self) -> bool {
        fn lower<T: Ord + Copy>(least: &mut T, now: T) -> bool {
            let is_within = now <= *least;
            *least = now.min(*least);
            is_within
        }
        let figures = [
            lower(&mut self.descriptors, now.descriptors),
            lower(&mut self.threads, now.threads),
            lower(&mut self.mappings, now.mappings),
            lower(&mut self.channels, now.channels),
            lower(&mut self.buffer_bytes, now.buffer_bytes),
            lower(&mut self.clients, now.clients),
        ];
        let quotas = self.quotas.iter_mut().zip(now.quotas).map(|(least, now)| lower(least, now));
        figures.into_iter().chain(quotas).fold(now.lost.is_empty(), |all, is_within| all & is_within)
    }
}

/// The differences between counters and what is held, and the requests that wait for an answer: empty on an
/// idle host.
fn lost(audit: Option<&Audit>) -> String {
    let audit = audit.expect("the daemon's own user sees them");
    assert!(audit.compared > 20, "{audit:?}");
    let wrong = audit.wrong.iter().map(|wrong| {
        let link = wrong.link.map_or(String::new(), |link| format!(" of link {}", link.0));
        format!("{}{link}: {} counted, {} held; ", wrong.what, wrong.counted, wrong.held)
    });
    wrong.chain(audit.waiting.iter().map(|waits| format!("{} {} wait; ", waits.count, waits.what))).collect()
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
        quotas: status.users.iter().fold([0; 5], |sum, user| {
            let of = [user.clients, user.listeners, user.channels, user.buffer_bytes, user.descriptors];
            std::array::from_fn(|index| sum[index] + of[index])
        }),
        lost: lost(status.audit.as_ref()),
    }
}

/// Resident, in KiB.
pub fn memory_kib(pid: Pid) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", pid.as_raw_nonzero())).expect("/proc");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("VmRSS");
    line.split_whitespace().next().and_then(|text| text.parse().ok()).expect("a number")
}

/// What files in memory hold for clients that do not read, in bytes.
pub fn unread_files_bytes(pid: Pid) -> u64 {
    let folder = format!("/proc/{}/fd", pid.as_raw_nonzero());
    let files = std::fs::read_dir(folder).expect("/proc").filter_map(Result::ok).map(|entry| entry.path());
    let is_one = |path: &std::path::PathBuf| {
        std::fs::read_link(path).is_ok_and(|name| name.to_string_lossy().contains("punctual-unread"))
    };
    let blocks = |path: std::path::PathBuf| std::fs::metadata(path).map_or(0, |file| file.blocks());
    files.filter(is_one).map(blocks).sum::<u64>() * 512
}
