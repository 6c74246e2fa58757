//! The basics of HARTS table 1: context switch, interrupt to thread, timer, copy bandwidth.

use std::hint::black_box;
use std::os::fd::{AsFd, OwnedFd};

use anyhow::Context;
use punctual::Nanos;
use punctual_engine::profile::Summary;
use punctual_os::clock::{now, sleep_until};
use punctual_os::{cpus, realtime};
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::{read, write};

use super::{Extent, PRIORITY};

/// What HARTS copied at a time.
const COPY_BYTES: usize = 4_096;
/// A word of the paper's machine.
const WORD_BYTES: usize = 4;
/// Larger than any cache of a core: measures a copy with cold caches.
const COLD_BYTES: usize = 64 << 20;

/// See the module; in ns.
#[derive(Clone, Debug, Default)]
pub(crate) struct Basics {
    /// One switch between two real-time threads on one CPU, a system call included.
    pub context_switch: Vec<u64>,
    /// Time from the expiry of a timer to the thread that waits for it.
    pub timer_to_thread: Vec<u64>,
    /// One reading of the clock, in picoseconds: it takes some ten nanoseconds.
    pub timer_read_ps: u64,
    /// The smallest step between two readings that differ.
    pub timer_resolution: u64,
    /// 4 KiB from and to the cache.
    pub copy_hot: Vec<u64>,
    /// 4 KiB from and to memory.
    pub copy_cold: Vec<u64>,
}

impl Basics {
    /// ns for each word of four bytes, the unit of HARTS.
    pub fn per_word(series: &[u64]) -> f64 {
        Summary::of(series).median_ns as f64 / (COPY_BYTES / WORD_BYTES) as f64
    }
}

pub(super) fn measure(extent: Extent) -> anyhow::Result<Basics> {
    let cpu = cpus::usable()?[0];
    let context_switch = context_switches(extent.rounds, cpu)?;
    std::thread::spawn(move || {
        realtime::enter_fifo(PRIORITY, Some(cpu))?;
        let (copy_hot, copy_cold) = copies(extent.rounds);
        Ok(Basics {
            context_switch,
            timer_to_thread: timers(extent.wakes),
            timer_read_ps: timer_read_ps(extent.rounds),
            timer_resolution: timer_resolution(extent.rounds),
            copy_hot,
            copy_cold,
        })
    })
    .join()
    .map_err(|_| anyhow::anyhow!("measuring the basics failed"))?
}

/// Two threads hand a token to and fro on one CPU: half a round is one switch.
fn context_switches(rounds: usize, cpu: u32) -> anyhow::Result<Vec<u64>> {
    let pipe = || eventfd(0, EventfdFlags::CLOEXEC).context("eventfd");
    let (there, back) = (pipe()?, pipe()?);
    let (their_there, their_back) = (there.try_clone()?, back.try_clone()?);
    let other = std::thread::spawn(move || -> anyhow::Result<()> {
        realtime::enter_fifo(PRIORITY, Some(cpu))?;
        for _ in 0..rounds {
            take(&their_there)?;
            give(&their_back)?;
        }
        Ok(())
    });
    let one = std::thread::spawn(move || -> anyhow::Result<Vec<u64>> {
        realtime::enter_fifo(PRIORITY, Some(cpu))?;
        let mut samples = Vec::with_capacity(rounds);
        for _ in 0..rounds {
            let begun = now();
            give(&there)?;
            take(&back)?;
            samples.push(now().since(begun).0 / 2);
        }
        Ok(samples)
    });
    let failed = |_| anyhow::anyhow!("measuring context switches failed");
    let samples = one.join().map_err(failed)??;
    other.join().map_err(failed)??;
    Ok(samples)
}

fn give(to: &OwnedFd) -> anyhow::Result<()> {
    write(to.as_fd(), &1u64.to_ne_bytes())?;
    Ok(())
}

fn take(from: &OwnedFd) -> anyhow::Result<()> {
    read(from.as_fd(), &mut [0; 8])?;
    Ok(())
}

fn timers(count: usize) -> Vec<u64> {
    let wake = |_| {
        let due = now() + Nanos::from_micros(500);
        sleep_until(due);
        now().since(due).0
    };
    (0..count).map(wake).collect()
}

fn timer_read_ps(rounds: usize) -> u64 {
    let begun = now();
    for _ in 0..rounds {
        black_box(now());
    }
    now().since(begun).0 * 1_000 / rounds as u64
}

fn timer_resolution(rounds: usize) -> u64 {
    let step = |_| {
        let from = now();
        let mut to = now();
        while to == from {
            to = now();
        }
        to.since(from).0
    };
    (0..rounds).map(step).min().unwrap_or(0)
}

fn copies(rounds: usize) -> (Vec<u64>, Vec<u64>) {
    let mut large = vec![1_u8; COLD_BYTES];
    let mut page = vec![2_u8; COPY_BYTES];
    let hot = (0..rounds)
        .map(|_| {
            let begun = now();
            large[..COPY_BYTES].copy_from_slice(black_box(&page));
            page.copy_from_slice(black_box(&large[..COPY_BYTES]));
            now().since(begun).0 / 2
        })
        .collect();
    let (from, to) = large.split_at_mut(COLD_BYTES / 2);
    let pages = COLD_BYTES / 2 / COPY_BYTES;
    let cold = (0..rounds.min(pages))
        // Far apart: no prefetcher runs ahead.
        .map(|round| round * 1_031 % pages * COPY_BYTES)
        .map(|at| {
            let begun = now();
            to[at..at + COPY_BYTES].copy_from_slice(black_box(&from[at..at + COPY_BYTES]));
            now().since(begun).0
        })
        .collect();
    black_box(&large);
    (hot, cold)
}
