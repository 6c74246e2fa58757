//! How many buffers a stream and a path have under way between the program and their release.
//!
//! The program must not hand out more packets than there are buffers for, and it never learns what becomes of one. So
//! every stream of a queue, and every path, has an *account*: two counters in memory that kernel and user space share.
//!
//! - `taken` is written by the program alone: one more for each packet that it steers.
//! - `returned` is written by user space alone: one more for each packet that is released.
//! - Where `taken - returned >= limit`, the program drops the packet: `no_buffer`.
//!
//! Both wrap at 2^32; only their difference, as a signed number, means something.
//!
//! A packet can be lost behind the program (a ring was full after all). Its [`Tag`] therefore carries the value that
//! `taken` had: what is missing before it counts as returned as soon as a later packet comes
//! ([`Accounts::received`]), and where none comes, after the ring was seen empty ([`Accounts::settle`]). A packet
//! that shows up later nevertheless is taken off again, so the counters never drift, whatever happened.
//!
//! Ownership: [`Accounts`] belongs to the driver's thread. [`Returns`] is shared and [`Returns::give_back`] may be
//! called on any thread, so a frame dropped by an application frees its buffer at once.

use std::io;
use std::marker::PhantomData;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use super::QUEUES_MAX;
use super::mapping::Mapping;
use super::tag::Tag;
use crate::Stream;

/// Accounts of streams; those of paths come behind.
pub(super) const STREAM_ACCOUNTS: u32 = QUEUES_MAX * Stream::ALL.len() as u32;

/// The account of a stream on a queue; also its place in the map of sockets.
pub(super) const fn account_of(queue: u32, stream: Stream) -> u32 {
    queue * Stream::ALL.len() as u32 + stream as u32
}

/// The elements of a map of the program, shared with it.
#[derive(Debug)]
pub(super) struct Array<T> {
    memory: Mapping,
    len: u32,
    of: PhantomData<T>,
}

impl<T: Shared> Array<T> {
    /// The first `len` elements of a map that was made with `BPF_F_MMAPABLE`.
    pub(super) fn map(map: BorrowedFd<'_>, len: u32) -> io::Result<Self> {
        let bytes = (len as usize * size_of::<T>()).next_multiple_of(rustix::param::page_size());
        Ok(Self { memory: Mapping::shared(map, 0, bytes)?, len, of: PhantomData })
    }

    const fn len(&self) -> u32 {
        self.len
    }

    fn get(&self, index: u32) -> Option<&T> {
        // SAFETY: the element lies inside the mapping, which lives as long as `self`, and is aligned, since mappings
        // begin on a page and `T`'s size is a multiple of its alignment. `T` is made of atomics (`Shared`), so that
        // what the program writes at the same time is no data race.
        (index < self.len).then(|| unsafe { self.memory.base().cast::<T>().add(index as usize).as_ref() })
    }
}

/// # Safety
/// Made of atomics only, any bit pattern is valid, the size is a multiple of 8 (as the kernel lays out elements).
pub(super) unsafe trait Shared {}

// SAFETY: four 32-bit atomics.
unsafe impl Shared for Taken {}
// SAFETY: two 32-bit atomics.
unsafe impl Shared for Returned {}

/// What the program counts of an account; `struct taken` in `punctual.bpf.h`.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Taken {
    taken: AtomicU32,
    /// Written by user space.
    limit: AtomicU32,
    /// What the program saw of `returned` when it last had to look.
    returned_seen: AtomicU32,
    _pad: AtomicU32,
}

/// What user space counts of an account; `struct returned` in `punctual.bpf.h`.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Returned {
    returned: AtomicU32,
    _pad: AtomicU32,
}

/// The accounts that a received packet is charged to: to be given back exactly once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a charge that is not given back takes a buffer away for ever"]
pub struct Charge {
    stream: u32,
    /// [`Tag::NO_PATH`] where it belongs to none.
    path: u32,
}

impl Charge {
    /// Both accounts in one number, for a frame's receipt.
    pub(super) const fn to_token(self) -> u64 {
        (self.path as u64) << 32 | self.stream as u64
    }

    pub(super) const fn from_token(token: u64) -> Self {
        Self { stream: token as u32, path: (token >> 32) as u32 }
    }

    /// Which stream it came in on.
    pub(super) const fn stream(self) -> Stream {
        Stream::ALL[self.stream as usize % Stream::ALL.len()]
    }
}

/// Where charges are given back, on any thread.
#[derive(Debug)]
pub struct Returns {
    returned: Array<Returned>,
}

impl Returns {
    /// The packet is released: one more may come.
    pub fn give_back(&self, charge: Charge) {
        self.add(charge.stream, 1);
        self.add(charge.path, 1);
    }

    fn add(&self, account: u32, count: u32) {
        if let Some(account) = self.returned.get(account) {
            // Release: whoever sees the buffer as free also sees that nobody uses it any more.
            account.returned.fetch_add(count, Ordering::Release);
        }
    }

    fn returned(&self, account: u32) -> u32 {
        self.returned.get(account).map_or(0, |account| account.returned.load(Ordering::Acquire))
    }
}

/// All accounts of one classifier, as its driver's thread sees them.
#[derive(Debug)]
pub struct Accounts {
    taken: Array<Taken>,
    returns: Arc<Returns>,
    /// Of each account: packets up to this count have been received or given up.
    settled: Box<[u32]>,
}

impl Accounts {
    /// Over the program's two maps of accounts, as many of each.
    pub(super) fn new(taken: Array<Taken>, returned: Array<Returned>) -> Self {
        let settled = vec![0; taken.len() as usize].into();
        Self { taken, returns: Arc::new(Returns { returned }), settled }
    }

    /// Where charges are given back; to be shared.
    pub fn returns(&self) -> &Arc<Returns> {
        &self.returns
    }

    /// A packet came out of the ring of `stream` on `queue` with this tag: what has to be given back for it.
    pub fn received(&mut self, queue: u32, stream: Stream, tag: &Tag) -> Charge {
        let charge = Charge { stream: account_of(queue, stream), path: tag.path };
        self.arrive(charge.stream, tag.stream_count);
        self.arrive(charge.path, tag.path_count);
        charge
    }

    /// Gives up what the program steered to this stream, on any path, and what never came. To be called where the
    /// stream's ring has been empty for so long that nothing can be under way to it any more (a millisecond is
    /// plenty) and [`Accounts::free`] is lower than what is held explains, or the socket's statistics count losses.
    /// Visits every path that has a filter or had one: not for every packet.
    pub fn settle(&mut self, queue: u32, stream: Stream) {
        self.settle_account(account_of(queue, stream));
        for path in STREAM_ACCOUNTS..self.taken.len() {
            self.settle_account(path);
        }
    }

    /// Packets that the program may still steer to this stream before one is released.
    pub fn free(&self, queue: u32, stream: Stream) -> u32 {
        let account = account_of(queue, stream);
        let Some(taken) = self.taken.get(account) else { return 0 };
        let limit = taken.limit.load(Ordering::Relaxed);
        let under_way = self.under_way(account).max(0) as u32;
        limit.saturating_sub(under_way)
    }

    /// Most packets under way of a stream.
    pub fn set_limit(&mut self, queue: u32, stream: Stream, buffers: u32) {
        self.set_account_limit(account_of(queue, stream), buffers);
    }

    pub(super) fn set_account_limit(&mut self, account: u32, buffers: u32) {
        if let Some(taken) = self.taken.get(account) {
            taken.limit.store(buffers.min(i32::MAX as u32), Ordering::Relaxed);
        }
    }

    /// Packets under way of an account: below 0 for a moment while a packet that was given up shows up.
    pub(super) fn under_way(&self, account: u32) -> i32 {
        self.taken(account).wrapping_sub(self.returns.returned(account)).cast_signed()
    }

    pub(super) fn settle_account(&mut self, account: u32) {
        let missing = self.advance(account, self.taken(account));
        self.returns.add(account, missing);
    }

    /// Accounts, of streams and paths together.
    pub(super) fn len(&self) -> u32 {
        self.taken.len()
    }

    /// Packet number `count` of an account is here.
    fn arrive(&mut self, account: u32, count: u32) {
        match self.advance(account, count) {
            0 => self.returns.add(account, u32::MAX), // It had been given up: under way after all.
            ahead => self.returns.add(account, ahead - 1),
        }
    }

    /// Everything up to packet number `count` is settled; gives how many were not.
    fn advance(&mut self, account: u32, count: u32) -> u32 {
        let Some(settled) = self.settled.get_mut(account as usize) else { return 1 };
        let ahead = count.wrapping_sub(*settled).cast_signed().max(0).cast_unsigned();
        *settled = settled.wrapping_add(ahead);
        ahead
    }

    fn taken(&self, account: u32) -> u32 {
        self.taken.get(account).map_or(0, |taken| taken.taken.load(Ordering::Acquire))
    }
}
