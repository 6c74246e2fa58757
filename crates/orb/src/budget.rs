//! Memory of the messages that clients send, over all connections of a server.
//!
//! A client whose message needs more than a small buffer has a share. When no more may be taken, the client goes
//! whose unfinished message has not grown for the longest time: its connection ends. If all messages are whole (they
//! are being served, or wait for it), the connection of the client that needs more ends.
//!
//! A thread with one connection waits until what it needs is free. A thread that reads all connections does not wait: the
//! ends that it has caused are free for it at once, so that more is used until it comes to them.
//!
//! Invariant: `used` is the sum of all shares and of all messages that were taken out of their connections. Shares
//! change without a lock. The table of shares is locked when one begins or ends, and to find who goes. A call that
//! takes no memory takes no lock.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, MutexGuard, PoisonError};
use std::thread;

use punctual_giop::reassembly::{Joined, Whole};

use crate::counted::Mutex;
use crate::duty::may_wait_for_adapters;
use crate::limits::{ENDED_WAIT, ENDED_WAITS_MAX};
use crate::options::Options;
use crate::tick::tick;
use crate::transport::Stream;

/// What all clients of a server may use.
#[derive(Debug)]
pub(crate) struct Budget {
    bytes_max: usize,
    used: AtomicUsize,
    shares: Mutex<HashMap<u64, Arc<Share>>>,
    last: AtomicU64,
}

/// What one client uses.
#[derive(Debug)]
struct Share {
    stream: Arc<Stream>,
    bytes: AtomicUsize,
    /// When bytes came, in nanoseconds of the kernel's tick.
    moved: AtomicU64,
    /// Whether its message is not there yet.
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
        let bytes_max = options.held_bytes_max.max(options.message_bytes_max.saturating_mul(2));
        Arc::new(Self {
            bytes_max,
            used: AtomicUsize::new(0),
            shares: Mutex::default(),
            last: AtomicU64::new(0),
        })
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

    /// Ends the connection whose unfinished message has not grown for the longest time, and waits for its memory if this
    /// thread may. `false` if there is none but this.
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
        slowest.is_ended.store(true, Ordering::Release);
        slowest.stream.shutdown();
        if may_wait_for_adapters() {
            drop(shares);
            self.wait_for(needed, own);
        } else {
            self.give_back(slowest.bytes.swap(0, Ordering::AcqRel));
        }
        true
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
}

/// The account of one client's connection.
#[derive(Debug)]
pub(crate) struct Account {
    budget: Arc<Budget>,
    stream: Arc<Stream>,
    share: Option<(u64, Arc<Share>)>,
    /// What the connection has. The share has less if the connection is to end.
    bytes: usize,
}

impl Account {
    pub fn new(budget: &Arc<Budget>, stream: &Arc<Stream>) -> Self {
        Self { budget: Arc::clone(budget), stream: Arc::clone(stream), share: None, bytes: 0 }
    }

    /// The connection has so many bytes from now on.
    ///
    /// # Errors
    /// `OutOfMemory` if it may not have them: it is to end.
    pub fn set(&mut self, bytes: usize) -> io::Result<()> {
        if bytes > self.bytes {
            self.grow(bytes - self.bytes)?;
        } else if bytes < self.bytes {
            let given = self.remove(self.bytes - bytes);
            self.budget.give_back(given);
        }
        self.bytes = bytes;
        if bytes == 0 {
            self.end_share();
        }
        Ok(())
    }

    fn grow(&mut self, more: usize) -> io::Result<()> {
        let (number, share) = self.share.get_or_insert_with(|| begin_share(&self.budget, &self.stream));
        while !self.budget.take(more) {
            if share.is_ended.load(Ordering::Acquire) || !self.budget.end_slowest(*number, share, more) {
                return Err(io::ErrorKind::OutOfMemory.into());
            }
        }
        share.bytes.fetch_add(more, Ordering::AcqRel);
        Ok(())
    }

    /// Takes bytes out of the share: as many as it has.
    fn remove(&self, bytes: usize) -> usize {
        let Some((_, share)) = &self.share else { return 0 };
        let less = |had: usize| Some(had.saturating_sub(bytes));
        let had = share.bytes.fetch_update(Ordering::AcqRel, Ordering::Acquire, less);
        had.unwrap_or_default().min(bytes)
    }

    /// This message is not the connection's any more.
    pub fn take(&mut self, message: Joined, bytes: usize) -> HeldMessage {
        let bytes = bytes.min(self.bytes);
        self.bytes -= bytes;
        HeldMessage { message, counted: Some((Arc::clone(&self.budget), self.remove(bytes))) }
    }

    /// Bytes have come.
    pub fn moved(&self) {
        if let Some((_, share)) = &self.share {
            share.moved.store(now(), Ordering::Relaxed);
        }
    }

    /// Whether a message has begun that is not there yet.
    pub fn set_unfinished(&self, is_unfinished: bool) {
        if let Some((_, share)) = &self.share {
            share.is_unfinished.store(is_unfinished, Ordering::Release);
        }
    }

    fn end_share(&mut self) {
        if let Some((number, share)) = self.share.take() {
            self.budget.shares().remove(&number);
            self.budget.give_back(share.bytes.swap(0, Ordering::AcqRel));
        }
    }
}

fn begin_share(budget: &Budget, stream: &Arc<Stream>) -> (u64, Arc<Share>) {
    let number = budget.last.fetch_add(1, Ordering::Relaxed);
    let share = Arc::new(Share {
        stream: Arc::clone(stream),
        bytes: AtomicUsize::new(0),
        moved: AtomicU64::new(now()),
        is_unfinished: AtomicBool::new(true),
        is_ended: AtomicBool::new(false),
    });
    budget.shares().insert(number, Arc::clone(&share));
    (number, share)
}

impl Drop for Account {
    fn drop(&mut self) {
        self.end_share();
    }
}

/// A whole message that was taken out of its connection.
#[derive(Debug)]
pub(crate) struct HeldMessage {
    message: Joined,
    counted: Option<(Arc<Budget>, usize)>,
}

impl From<Joined> for HeldMessage {
    /// Nobody counts it.
    fn from(message: Joined) -> Self {
        Self { message, counted: None }
    }
}

impl HeldMessage {
    pub fn whole(&self) -> Whole<'_> {
        self.message.whole()
    }
}

impl Drop for HeldMessage {
    fn drop(&mut self) {
        if let Some((budget, bytes)) = &self.counted {
            budget.give_back(*bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;
    use crate::duty::never_wait_for_adapters;

    fn budget() -> Arc<Budget> {
        Budget::of(&Options { held_bytes_max: 100, message_bytes_max: 50, ..Options::default() })
    }

    fn client(budget: &Arc<Budget>) -> (Account, UnixStream) {
        let (ours, theirs) = UnixStream::pair().expect("a pair");
        theirs.set_nonblocking(true).expect("a socket");
        (Account::new(budget, &Arc::new(Stream::new(ours.into()))), theirs)
    }

    fn is_ended(client: &UnixStream) -> bool {
        io::Read::read(&mut &*client, &mut [0]).is_ok_and(|read| read == 0)
    }

    #[test]
    fn the_slowest_unfinished_message_gives_way_and_whole_ones_do_not() {
        // As the thread of a reactor does.
        never_wait_for_adapters();
        let budget = budget();
        let [mut whole, mut slow, mut quick, mut last] = [(); 4].map(|()| client(&budget));
        whole.0.set(40).expect("there is room");
        whole.0.set_unfinished(false);
        for client in [&mut slow, &mut quick] {
            client.0.set(30).expect("there is room");
        }
        slow.0.share.as_ref().expect("it has one").1.moved.store(0, Ordering::Relaxed);
        last.0.set(20).expect("the slow one gives way");
        assert_eq!(
            [&whole, &slow, &quick, &last].map(|(_, client)| is_ended(client)),
            [false, true, false, false]
        );
        assert_eq!(budget.used.load(Ordering::Relaxed), 90);
        drop(slow);
        assert_eq!(budget.used.load(Ordering::Relaxed), 90);
        quick.0.set_unfinished(false);
        assert!(last.0.set(31).is_err());
        let taken = whole.0.take(Joined::default(), 40);
        drop((whole, quick, last));
        assert_eq!(budget.used.load(Ordering::Relaxed), 40);
        drop(taken);
        assert_eq!((budget.used.load(Ordering::Relaxed), budget.shares().len()), (0, 0));
    }

    #[test]
    fn a_thread_waits_until_the_memory_is_free() {
        let budget = budget();
        let (mut first, end) = client(&budget);
        first.set(80).expect("there is room");
        let ends = thread::spawn(move || {
            while !is_ended(&end) {
                thread::sleep(ENDED_WAIT);
            }
            drop(first);
        });
        let mut second = client(&budget).0;
        second.set(30).expect("the first gives way");
        assert_eq!(budget.used.load(Ordering::Relaxed), 30);
        ends.join().expect("no panic");
    }

    #[test]
    fn the_longest_message_always_has_room() {
        let budget = Budget::of(&Options { held_bytes_max: 0, ..Options::default() });
        let mut client = client(&budget).0;
        client.set(2 * Options::default().message_bytes_max).expect("there is room");
    }
}
