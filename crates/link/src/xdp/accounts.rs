//! Counts how many buffers a stream and a path have in use between the program and their release.
//!
//! The program must not hand out more packets than there are buffers, and it gets no report of their release.
//! So every stream of a queue, and every path, has an *account*: two counters in memory that kernel and user
//! space share.
//!
//! - `taken` is written by the program only: it is incremented for each packet that is steered.
//! - `returned` is written by user space only: it is incremented for each packet that is released.
//! - If `taken - returned >= limit`, the program drops the packet: `no_buffer`.
//!
//! Both wrap at 2^32; only their difference, as a signed number, means something.
//!
//! A packet can be lost behind the program (a ring was full after all). Its [`Tag`] therefore carries the
//! value that `taken` had: packets that are missing before it count as returned as soon as a later packet
//! comes ([`Accounts::received`]), and if none comes, when the ring stays empty ([`Accounts::settle`]). If
//! such a packet arrives later nevertheless, that is undone, so the counters never drift.
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
use crate::{IpTarget, Stream};

/// Accounts of streams; those of paths come behind.
pub(super) const STREAM_ACCOUNTS: u32 = QUEUES_MAX * Stream::ALL.len() as u32;

/// The account of a stream on a queue; also its place in the map of sockets.
pub(super) const fn account_of(queue: u32, stream: Stream) -> u32 {
    queue * Stream::ALL.len() as u32 + stream as u32
}

/// Which account belongs to what: streams, paths, ICMP errors, listeners, flows, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    paths: u32,
    listeners: u32,
    flows: u32,
}

impl Layout {
    pub(super) const fn new(paths: u32, listeners: u32, flows: u32) -> Self {
        Self { paths, listeners, flows }
    }

    /// Accounts in all.
    pub(super) const fn len(self) -> u32 {
        self.flow_first() + self.flows
    }

    /// The first behind those of paths.
    pub(super) const fn path_end(self) -> u32 {
        STREAM_ACCOUNTS + self.paths
    }

    pub(super) const fn errors(self) -> u32 {
        self.path_end()
    }

    pub(super) const fn listener_first(self) -> u32 {
        self.errors() + 1
    }

    pub(super) const fn flow_first(self) -> u32 {
        self.listener_first() + self.listeners
    }

    /// Who a packet of this account is for, if it is an IP packet.
    pub(super) fn target(self, account: u32) -> Option<IpTarget> {
        if account < self.errors() || account >= self.len() {
            None
        } else if account == self.errors() {
            Some(IpTarget::Error)
        } else if account < self.flow_first() {
            Some(IpTarget::Listener(account - self.listener_first()))
        } else {
            Some(IpTarget::Flow(account - self.flow_first()))
        }
    }
}

/// The elements of a map of the program, shared with it.
#[derive(Debug)]
pub(super) struct Array<T> {
    memory: Mapping,
    len: u32,
    of: PhantomData<T>,
}

impl<T: SharedWithProgram> Array<T> {
    /// The first `len` elements of a map that was made with `BPF_F_MMAPABLE`.
    pub(super) fn map(map: BorrowedFd<'_>, len: u32) -> io::Result<Self> {
        let bytes = (len as usize * size_of::<T>()).next_multiple_of(rustix::param::page_size());
        Ok(Self { memory: Mapping::shared(map, 0, bytes)?, len, of: PhantomData })
    }

    fn get(&self, index: u32) -> Option<&T> {
        // SAFETY: the element is inside the mapping, which is kept as long as `self`, and is aligned, since
        // mappings begin on a page and `T`'s size is a multiple of its alignment. `T` consists of atomics
        // (`SharedWithProgram`), so a write of the program at the same time is no data race.
        (index < self.len).then(|| unsafe { self.memory.base().cast::<T>().add(index as usize).as_ref() })
    }
}

/// # Safety
/// Made of atomics only, any bit pattern is valid, the size is a multiple of 8 (as the kernel lays out elements).
pub(super) unsafe trait SharedWithProgram {}

// SAFETY: four 32-bit atomics.
unsafe impl SharedWithProgram for Taken {}
// SAFETY: two 32-bit atomics.
unsafe impl SharedWithProgram for Returned {}

/// The program's counter of an account; `struct taken` in `punctual.bpf.h`.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Taken {
    taken: AtomicU32,
    /// Written by user space.
    limit: AtomicU32,
    /// The value of `returned` when the program last had to read it.
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
#[must_use = "a charge that is not returned loses its buffer for ever"]
pub struct Charge {
    stream: u32,
    /// [`Tag::NO_PATH`] if it belongs to none.
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

    /// Stream that the packet came in on.
    pub(super) const fn stream(self) -> Stream {
        Stream::ALL[self.stream as usize % Stream::ALL.len()]
    }
}

/// Gives charges back, on any thread.
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
            // Release: a reader that sees the buffer as free also sees all earlier uses of it as finished.
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
    /// For each account: packets up to this count have been received or given up.
    settled: Box<[u32]>,
    /// For each stream's account: the value of `taken` when [`Accounts::settle`] last read it.
    taken_last: Box<[u32]>,
    /// Packets were lost, and paths may miss some of them.
    has_lost: bool,
    layout: Layout,
    /// Ends of the accounts that were ever used: of paths, and of what comes behind all paths.
    used: [u32; 2],
}

impl Accounts {
    /// Over the program's two maps of accounts, laid out alike.
    pub(super) fn new(taken: Array<Taken>, returned: Array<Returned>, layout: Layout) -> Self {
        let settled = vec![0; layout.len() as usize].into();
        let taken_last = vec![0; STREAM_ACCOUNTS as usize].into();
        let returns = Arc::new(Returns { returned });
        let used = [STREAM_ACCOUNTS, layout.path_end()];
        Self { taken, returns, settled, taken_last, has_lost: false, layout, used }
    }

    /// The handle with which charges are given back, to be shared.
    pub fn returns(&self) -> &Arc<Returns> {
        &self.returns
    }

    /// Records a packet that came out of the ring of `stream` on `queue` with this tag; returns what must be
    /// given back for it.
    pub fn received(&mut self, queue: u32, stream: Stream, tag: &Tag) -> Charge {
        let charge = Charge { stream: account_of(queue, stream), path: tag.path };
        self.arrive(charge.stream, tag.stream_count);
        self.arrive(charge.path, tag.path_count);
        charge
    }

    /// Gives up packets that the program steered to this stream and that never came. Call it from time to
    /// time when the stream's ring is empty, at intervals of a millisecond or more, since packets that are
    /// missing at two consecutive calls are considered lost. It costs a few loads if no packet is missing;
    /// after losses it visits every path once.
    pub fn settle(&mut self, queue: u32, stream: Stream) {
        let account = account_of(queue, stream);
        let taken = self.taken(account);
        let Some(last) = self.taken_last.get_mut(account as usize) else { return };
        let is_stopped = std::mem::replace(last, taken) == taken;
        if is_stopped && self.give_up(account) > 0 {
            self.has_lost = true;
        }
        if std::mem::take(&mut self.has_lost) {
            // A path that has buffers left heals with its next packet; one that has none would never get another.
            let [paths, others] = self.used;
            for path in (STREAM_ACCOUNTS..paths).chain(self.layout.path_end()..others) {
                if self.free_of(path) == 0 {
                    self.give_up(path);
                }
            }
        }
    }

    /// Packets that the program may still steer to this stream before one is released.
    pub fn free(&self, queue: u32, stream: Stream) -> u32 {
        self.free_of(account_of(queue, stream))
    }

    /// Most packets under way of a stream.
    pub fn set_limit(&mut self, queue: u32, stream: Stream, buffers: u32) {
        self.set_account_limit(account_of(queue, stream), buffers);
    }

    pub(super) fn set_account_limit(&mut self, account: u32, buffers: u32) {
        if let Some(taken) = self.taken.get(account) {
            taken.limit.store(buffers.min(i32::MAX as u32), Ordering::Relaxed);
            let used = &mut self.used[usize::from(account >= self.layout.path_end())];
            *used = (*used).max(account + 1);
        }
    }

    fn free_of(&self, account: u32) -> u32 {
        let Some(taken) = self.taken.get(account) else { return 0 };
        let limit = taken.limit.load(Ordering::Relaxed);
        // Temporarily below 0 if a packet arrives that was given up.
        let under_way = self.taken(account).wrapping_sub(self.returns.returned(account)).cast_signed();
        limit.saturating_sub(under_way.max(0).cast_unsigned())
    }

    /// Counts missing packets as returned; returns how many.
    fn give_up(&mut self, account: u32) -> u32 {
        let missing = self.advance(account, self.taken(account));
        self.returns.add(account, missing);
        missing
    }

    pub(super) const fn layout(&self) -> Layout {
        self.layout
    }

    /// Packet number `count` of an account is here.
    fn arrive(&mut self, account: u32, count: u32) {
        match self.advance(account, count) {
            0 => self.returns.add(account, u32::MAX), // It had been given up: under way after all.
            1 => {}
            ahead => {
                self.returns.add(account, ahead - 1);
                self.has_lost = true;
            }
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

#[cfg(test)]
mod tests {
    use super::*;

    const QUEUE: u32 = 3;
    const PATH: u32 = STREAM_ACCOUNTS + 1;
    const LAYOUT: Layout = Layout::new(2, 3, 4);

    fn array<T: SharedWithProgram>() -> Array<T> {
        let len = LAYOUT.len();
        let memory = Mapping::anonymous(len as usize * size_of::<T>(), false).expect("memory");
        Array { memory, len, of: PhantomData }
    }

    /// Accounts whose counters are about to wrap, with 4 buffers for the stream and 2 for the path.
    fn accounts() -> Accounts {
        let mut accounts = Accounts::new(array(), array(), LAYOUT);
        let start = u32::MAX - 5;
        for account in [account_of(QUEUE, Stream::Guaranteed), PATH] {
            accounts.taken.get(account).expect("it").taken.store(start, Ordering::Relaxed);
            accounts.returns.add(account, start);
            accounts.settled[account as usize] = start;
        }
        accounts.set_limit(QUEUE, Stream::Guaranteed, 4);
        accounts.set_account_limit(PATH, 2);
        accounts
    }

    /// Does what the program does for a packet that it steers.
    fn steer(accounts: &Accounts) -> Tag {
        let count = |account| {
            let taken = &accounts.taken.get(account).expect("it").taken;
            taken.fetch_add(1, Ordering::Relaxed).wrapping_add(1)
        };
        let stream_count = count(account_of(QUEUE, Stream::Guaranteed));
        Tag { received_ns: 0, stream_count, path_count: count(PATH), path: PATH, offset: 42, bytes: 64 }
    }

    fn free(accounts: &Accounts) -> (u32, u32) {
        (accounts.free(QUEUE, Stream::Guaranteed), accounts.free_of(PATH))
    }

    #[test]
    fn every_account_has_one_owner() {
        let first = STREAM_ACCOUNTS + 2;
        let of = |account| LAYOUT.target(account);
        assert_eq!((of(0), of(first - 1), of(LAYOUT.len()), of(Tag::NO_PATH)), (None, None, None, None));
        let behind: Vec<_> = (first..LAYOUT.len()).filter_map(of).collect();
        let listeners = (0..3).map(IpTarget::Listener);
        let expected: Vec<_> =
            [IpTarget::Error].into_iter().chain(listeners).chain((0..4).map(IpTarget::Flow)).collect();
        assert_eq!(behind, expected);
    }

    /// A flow that lost all its packets gets its buffers back too.
    #[test]
    fn accounts_behind_the_paths_settle() {
        let mut accounts = accounts();
        let flow = LAYOUT.flow_first() + 1;
        accounts.set_account_limit(flow, 1);
        accounts.taken.get(flow).expect("it").taken.fetch_add(1, Ordering::Relaxed);
        assert_eq!(accounts.free_of(flow), 0);
        accounts.has_lost = true;
        accounts.settle(QUEUE, Stream::Guaranteed);
        assert_eq!(accounts.free_of(flow), 1);
    }

    #[test]
    fn counters_wrap() {
        let mut accounts = accounts();
        for _ in 0..20 {
            let tag = steer(&accounts);
            let charge = accounts.received(QUEUE, Stream::Guaranteed, &tag);
            assert_eq!(free(&accounts), (3, 1));
            accounts.returns.give_back(charge);
            assert_eq!(free(&accounts), (4, 2));
        }
    }

    #[test]
    fn a_path_that_lost_all_its_packets_gets_them_back() {
        let mut accounts = accounts();
        let _lost = [steer(&accounts), steer(&accounts)];
        // A packet of another path heals the stream's account, but not the path's.
        let other = Tag { path: Tag::NO_PATH, ..steer(&accounts) };
        accounts.taken.get(PATH).expect("it").taken.fetch_sub(1, Ordering::Relaxed);
        let charge = accounts.received(QUEUE, Stream::Guaranteed, &other);
        accounts.returns.give_back(charge);
        assert_eq!(free(&accounts), (4, 0));
        accounts.settle(QUEUE, Stream::Guaranteed);
        assert_eq!(free(&accounts), (4, 2));
    }

    #[test]
    fn what_is_under_way_is_not_given_up_at_first_sight() {
        let mut accounts = accounts();
        let tag = steer(&accounts);
        accounts.settle(QUEUE, Stream::Guaranteed);
        assert_eq!(free(&accounts), (3, 1));
        accounts.settle(QUEUE, Stream::Guaranteed);
        assert_eq!(free(&accounts), (4, 1), "the path has a buffer left: it can wait");
        // A very late packet is counted once more, also in the path's account.
        let charge = accounts.received(QUEUE, Stream::Guaranteed, &tag);
        assert_eq!(free(&accounts), (3, 1));
        accounts.returns.give_back(charge);
        assert_eq!(free(&accounts), (4, 2));
    }
}
