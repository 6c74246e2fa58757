//! Memory of clients, over all connections of a server: of the messages that they send, and of replies that they do
//! not read.
//!
//! A client whose message needs more than a small buffer has a share, and so have its replies while the socket does
//! not take them. When no more may be taken, the client goes whose unfinished message, or whose reply, has not moved
//! for the longest time: its connection ends. If all messages are whole (they are being served, or wait for it), the
//! connection of the client that needs more ends.
//!
//! | module | owns |
//! |---|---|
//! | this one | what all clients use, and who goes |
//! | `account` | what one connection uses |
//!
//! A thread with one connection waits until what it needs is free. The threads of a reactor and of its pool do not
//! wait: the memory of a connection that they have ended is free for others at once, though the reactor frees it a
//! little later. What is counted twice so is *ending*, and limited.
//!
//! Invariant: `used` is the sum of all shares and of all messages that were taken out of their connections. `ending` is
//! the sum of what ended connections have beyond their shares: at most `ending_max`, or what one of them has. Shares
//! change without a lock. The table of shares is locked when one begins or ends, and to find who goes. A call that
//! takes no memory takes no lock.

mod account;
#[cfg(test)]
mod tests;

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, MutexGuard, PoisonError};
use std::thread;

use crate::counted::Mutex;
use crate::duty::may_wait_for_adapters;
use crate::limits::{ENDED_WAIT, ENDED_WAITS_MAX};
use crate::options::Options;
use crate::tick::tick;
use crate::transport::Stream;

pub(crate) use account::{Account, HeldMessage, large_bytes};

/// What all clients of a server may use.
#[derive(Debug)]
pub(crate) struct Budget {
    bytes_max: usize,
    ending_max: usize,
    used: AtomicUsize,
    ending: AtomicUsize,
    shares: Mutex<HashMap<u64, Arc<Share>>>,
    last: AtomicU64,
    /// Whether connections have ended that nobody has looked for yet.
    has_ended: AtomicBool,
}

/// What one client uses.
#[derive(Debug)]
struct Share {
    stream: Arc<Stream>,
    bytes: AtomicUsize,
    /// What others use already, because the connection has ended, but is not free yet.
    ending: AtomicUsize,
    /// When bytes moved, in nanoseconds of the kernel's tick.
    moved: AtomicU64,
    /// Whether its message is not there yet, or its reply not gone.
    is_unfinished: AtomicBool,
    /// Whether the connection was ended for others.
    is_ended: AtomicBool,
}

fn now() -> u64 {
    let (seconds, nanoseconds) = tick();
    seconds as u64 * 1_000_000_000 + nanoseconds as u64
}

impl Budget {
    /// As an ORB is configured: at least the longest message has room, whole and in its last fragment.
    pub fn of(options: &Options) -> Arc<Self> {
        let ending_max = options.message_bytes_max.saturating_mul(2);
        Arc::new(Self {
            bytes_max: options.held_bytes_max.max(ending_max),
            ending_max,
            used: AtomicUsize::new(0),
            ending: AtomicUsize::new(0),
            shares: Mutex::default(),
            last: AtomicU64::new(0),
            has_ended: AtomicBool::new(false),
        })
    }

    /// Whether connections were ended for their memory since the last question: a reactor looks for its own then.
    pub fn take_has_ended(&self) -> bool {
        self.has_ended.load(Ordering::Relaxed) && self.has_ended.swap(false, Ordering::AcqRel)
    }

    fn shares(&self) -> MutexGuard<'_, HashMap<u64, Arc<Share>>> {
        self.shares.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self, bytes: usize) -> bool {
        let more = |used: usize| used.checked_add(bytes).filter(|sum| *sum <= self.bytes_max);
        self.used.fetch_update(Ordering::AcqRel, Ordering::Acquire, more).is_ok()
    }

    fn give_back(&self, bytes: usize) {
        self.used.fetch_sub(bytes, Ordering::AcqRel);
    }

    /// What an ended connection had beyond its share is free.
    fn has_freed(&self, ending: usize) {
        self.ending.fetch_sub(ending, Ordering::AcqRel);
    }

    /// Ends the connection whose unfinished message has not grown for the longest time, and waits for its memory if this
    /// thread may. `false` if there is none but this, or if too much is ending already.
    fn end_slowest(&self, but: u64, own: &Share, needed: usize) -> bool {
        let shares = self.shares();
        let may_go = |(number, share): &(&u64, &Arc<Share>)| {
            **number != but
                && share.is_unfinished.load(Ordering::Acquire)
                && !share.is_ended.load(Ordering::Acquire)
                && share.bytes.load(Ordering::Acquire) > 0
        };
        let age = |(_, share): &(&u64, &Arc<Share>)| {
            (share.moved.load(Ordering::Relaxed), Reverse(share.bytes.load(Ordering::Relaxed)))
        };
        let Some((_, slowest)) = shares.iter().filter(may_go).min_by_key(age) else { return false };
        if may_wait_for_adapters() {
            self.end(slowest);
            drop(shares);
            self.wait_for(needed, own);
            return true;
        }
        let ending = self.ending.load(Ordering::Acquire);
        if ending > 0 && ending.saturating_add(slowest.bytes.load(Ordering::Acquire)) > self.ending_max {
            return false;
        }
        self.end(slowest);
        let bytes = slowest.bytes.swap(0, Ordering::AcqRel);
        slowest.ending.fetch_add(bytes, Ordering::AcqRel);
        self.ending.fetch_add(bytes, Ordering::AcqRel);
        self.give_back(bytes);
        true
    }

    fn end(&self, share: &Share) {
        share.is_ended.store(true, Ordering::Release);
        self.has_ended.store(true, Ordering::Release);
        share.stream.shutdown();
    }

    /// Waits until a thread has found the end of its connection, and has freed its memory; or this connection was ended, too.
    fn wait_for(&self, needed: usize, own: &Share) {
        let is_free = || self.used.load(Ordering::Acquire).saturating_add(needed) <= self.bytes_max;
        for _ in 0..ENDED_WAITS_MAX {
            if is_free() || own.is_ended.load(Ordering::Acquire) {
                return;
            }
            thread::sleep(ENDED_WAIT);
            // It is not its client that is slow.
            own.moved.store(now(), Ordering::Relaxed);
        }
    }

    fn begin_share(&self, stream: &Arc<Stream>) -> (u64, Arc<Share>) {
        let number = self.last.fetch_add(1, Ordering::Relaxed);
        let share = Arc::new(Share {
            stream: Arc::clone(stream),
            bytes: AtomicUsize::new(0),
            ending: AtomicUsize::new(0),
            moved: AtomicU64::new(now()),
            is_unfinished: AtomicBool::new(true),
            is_ended: AtomicBool::new(false),
        });
        self.shares().insert(number, Arc::clone(&share));
        (number, share)
    }

    fn end_share(&self, number: u64, share: &Share) {
        // Nobody ends it any more.
        self.shares().remove(&number);
        self.give_back(share.bytes.swap(0, Ordering::AcqRel));
        self.has_freed(share.ending.swap(0, Ordering::AcqRel));
    }
}
