//! The program's table of paths: which filter a path has, and which account its packets are charged to.
//!
//! The kernel's table is the only copy: its content is read when needed and not stored here. A filter that is
//! replaced keeps its account and the state of its token bucket (the bucket does not count a packet that
//! passes in between: at most one for each replacement). When an account gets another path it continues
//! counting, so the buffers that its former path still holds are given back correctly; the account that has
//! been unused longest is taken first.

use std::collections::VecDeque;

use aya::maps::{HashMap, MapData, MapError};

use punctual_os::clock;

use super::Rate;
use super::accounts::{Accounts, STREAM_ACCOUNTS};
use crate::{Filter, LinkError, PathKey};

/// A time that no clock reaches (146 years), and no sum with a clock's reading overflows.
const FOR_EVER_NS: u64 = 1 << 62;

/// `struct bucket` in `punctual.bpf.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub(super) struct Bucket {
    interval_ns: u64,
    depth_ns: u64,
    full_at_ns: u64,
}

impl Bucket {
    /// Lets everything through.
    pub(super) const UNBOUNDED: Self = Self { interval_ns: 0, depth_ns: 0, full_at_ns: 0 };

    /// `burst` packets at once, one more every `interval_ns`; full.
    pub(super) fn new(burst: u32, interval_ns: u64) -> Self {
        let interval_ns = interval_ns.min(FOR_EVER_NS);
        let depth_ns = interval_ns.saturating_mul(u64::from(burst)).min(FOR_EVER_NS);
        Self { interval_ns, depth_ns, full_at_ns: 0 }
    }

    /// Makes this bucket as empty as `old` was, at most quite empty.
    pub(super) fn inherit(&mut self, old: &Self, now_ns: u64) {
        self.full_at_ns = old.full_at_ns.min(now_ns.saturating_add(self.depth_ns));
    }
}

impl From<Rate> for Bucket {
    fn from(rate: Rate) -> Self {
        let burst = rate.burst_packets.max(1);
        let interval_ns = match rate.packets_per_second {
            0 => FOR_EVER_NS / u64::from(burst),
            packets => 1_000_000_000_u64.div_ceil(packets.into()),
        };
        Self::new(burst, interval_ns)
    }
}

/// `struct path` in `punctual.bpf.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub(super) struct Path {
    node: u32,
    channel: u32,
    epoch: u64,
}

impl From<PathKey> for Path {
    fn from(path: PathKey) -> Self {
        Self { node: path.node, channel: path.channel, epoch: path.epoch }
    }
}

/// `struct filter` in `punctual.bpf.h`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(super) struct Entry {
    bucket: Bucket,
    slack_ns_min: i64,
    cookie: u32,
    packet_bytes_max: u32,
    account: u32,
    stream: u32,
}

// SAFETY: 64-bit integers only: every bit pattern is valid and there is no padding.
unsafe impl aya::Pod for Bucket {}
// SAFETY: 32- and 64-bit integers without gaps.
unsafe impl aya::Pod for Path {}
// SAFETY: as above.
unsafe impl aya::Pod for Entry {}

impl Entry {
    fn new(filter: &Filter, account: u32) -> Self {
        Self {
            bucket: Bucket::new(filter.burst_packets, filter.interval_ns),
            slack_ns_min: filter.slack_ns_min.unwrap_or(i64::MIN),
            cookie: filter.cookie,
            packet_bytes_max: filter.packet_bytes_max,
            account,
            stream: filter.stream as u32,
        }
    }
}

/// The table.
pub(super) struct Filters {
    map: HashMap<MapData, Path, Entry>,
    /// Accounts that no path has, the longest rested first.
    free: VecDeque<u32>,
    packet_bytes_max: u32,
}

impl Filters {
    /// The filters in the program's empty map; `accounts` of paths follow those of the streams.
    pub(super) fn new(
        map: HashMap<MapData, Path, Entry>,
        accounts: &Accounts,
        packet_bytes_max: u32,
    ) -> Self {
        Self { map, free: (STREAM_ACCOUNTS..accounts.layout().path_end()).collect(), packet_bytes_max }
    }

    pub(super) fn set(&mut self, filter: &Filter, accounts: &mut Accounts) -> Result<(), LinkError> {
        self.check(filter)?;
        let path = filter.path.into();
        let old = self.get(&path)?;
        let account = match old {
            Some(old) => old.account,
            None => self.free.pop_front().ok_or_else(|| self.full())?,
        };
        let mut entry = Entry::new(filter, account);
        if let Some(old) = old {
            entry.bucket.inherit(&old.bucket, clock::monotonic_ns());
        }
        accounts.set_account_limit(account, filter.buffers);
        self.map.insert(path, entry, 0).map_err(|error| {
            if old.is_none() {
                self.free.push_front(account);
            }
            refused("setting a filter of the XDP program", error)
        })
    }

    pub(super) fn clear(&mut self, path: PathKey) -> Result<(), LinkError> {
        let path = path.into();
        let Some(old) = self.get(&path)? else { return Ok(()) };
        self.map.remove(&path).map_err(|error| refused("clearing a filter of the XDP program", error))?;
        self.free.push_back(old.account);
        Ok(())
    }

    fn get(&self, path: &Path) -> Result<Option<Entry>, LinkError> {
        match self.map.get(path, 0) {
            Ok(entry) => Ok(Some(entry)),
            Err(MapError::KeyNotFound) => Ok(None),
            Err(error) => Err(refused("reading a filter of the XDP program", error)),
        }
    }

    fn check(&self, filter: &Filter) -> Result<(), LinkError> {
        if filter.packet_bytes_max > self.packet_bytes_max {
            let (bytes, bytes_max) = (filter.packet_bytes_max as usize, self.packet_bytes_max as usize);
            return Err(LinkError::TooLong { bytes, bytes_max });
        }
        if filter.burst_packets == 0 || filter.interval_ns == 0 || filter.buffers == 0 {
            return Err(LinkError::Options(format!(
                "filter of {:?}: burst, interval and buffers are at least 1",
                filter.path
            )));
        }
        Ok(())
    }

    fn full(&self) -> LinkError {
        LinkError::Options(
            "the XDP program's table of paths is full: raise the link's filters_max, or close channels"
                .into(),
        )
    }
}

/// The kernel refused an operation although the required rights were checked before.
pub(super) fn refused(what: &str, error: MapError) -> LinkError {
    let error = match error {
        MapError::SyscallError(call) => call.io_error,
        MapError::IoError(error) => error,
        other => std::io::Error::other(other),
    };
    LinkError::Os { what: what.into(), error }
}
