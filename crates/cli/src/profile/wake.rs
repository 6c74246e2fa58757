//! Wake-up latency by scheduling class: from a timer's expiry to the thread, and from a ring of a doorbell on another
//! CPU to the thread.

use std::os::fd::AsFd;
use std::sync::mpsc::sync_channel;

use anyhow::{Context, anyhow};
use punctual::{Instant, Nanos};
use punctual_os::clock::{now, sleep_until};
use punctual_os::realtime;
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::{read, write};

use super::{Extent, PRIORITY};

/// Time between two wake-ups: long enough that the CPU becomes idle.
const PERIOD: Nanos = Nanos::from_millis(1);

/// Samples in ns, in the order in which they were taken.
#[derive(Clone, Debug)]
pub(crate) struct Wakes {
    /// Whether hogs took all the CPU.
    pub loaded: bool,
    /// `SCHED_FIFO`, by a timer.
    pub fifo: Vec<u64>,
    /// `SCHED_OTHER`, by a timer.
    pub other: Vec<u64>,
    /// `SCHED_FIFO`, by a doorbell that a thread of the same class rings.
    pub doorbell: Vec<u64>,
}

pub(super) fn measure(extent: Extent, loaded: bool) -> anyhow::Result<Wakes> {
    // Under hogs an ordinary thread waits milliseconds: fewer samples are enough.
    let other = if loaded { extent.wakes / 5 } else { extent.wakes };
    Ok(Wakes {
        loaded,
        fifo: by_timer(extent.wakes, Some(PRIORITY))?,
        other: by_timer(other, None)?,
        doorbell: by_doorbell(extent.wakes)?,
    })
}

fn by_timer(count: usize, priority: Option<u8>) -> anyhow::Result<Vec<u64>> {
    let measuring = std::thread::spawn(move || -> anyhow::Result<Vec<u64>> {
        if let Some(priority) = priority {
            realtime::enter_fifo(priority, None)?;
        }
        let wake = |_| {
            let due = now() + PERIOD;
            sleep_until(due);
            now().since(due).0
        };
        Ok((0..count).map(wake).collect())
    });
    measuring.join().map_err(|_| anyhow!("measuring wake-ups failed"))?
}

/// A thread waits at an eventfd; another writes it and notes when.
fn by_doorbell(count: usize) -> anyhow::Result<Vec<u64>> {
    // One token for each ring: a waiter that is late must not take two for one.
    let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::SEMAPHORE).context("eventfd")?;
    let theirs = bell.try_clone()?;
    let (sender, rung) = sync_channel::<Instant>(1);
    let ringing = std::thread::spawn(move || -> anyhow::Result<()> {
        realtime::enter_fifo(PRIORITY, None)?;
        for _ in 0..count {
            sleep_until(now() + PERIOD);
            let at = now();
            write(theirs.as_fd(), &1u64.to_ne_bytes())?;
            sender.send(at)?;
        }
        Ok(())
    });
    let waiting = std::thread::spawn(move || -> anyhow::Result<Vec<u64>> {
        realtime::enter_fifo(PRIORITY, None)?;
        let mut samples = Vec::with_capacity(count);
        for _ in 0..count {
            read(bell.as_fd(), &mut [0; 8])?;
            let woke = now();
            samples.push(woke.since(rung.recv()?).0);
        }
        Ok(samples)
    });
    let failed = |_| anyhow!("measuring doorbells failed");
    let samples = waiting.join().map_err(failed)??;
    ringing.join().map_err(failed)??;
    Ok(samples)
}
