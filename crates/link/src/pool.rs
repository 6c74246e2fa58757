//! A bounded pool of packet buffers, allocated and touched once.
//!
//! The pool is shared by its frames. A buffer belongs to exactly one of: the free list, a [`Frame`], or a
//! driver that has taken its index out (the kernel holds it, in a ring). The free list is a lock-free stack
//! of indices (Treiber) whose head carries a tag against ABA, so a frame may be dropped on any thread while
//! the driver's thread takes others: no thread ever waits for a lock.
//!
//! The bytes are on the heap, or in a mapping that a kernel or an adapter writes to (`xdp`). A frame may
//! carry a [`Receipt`]: the object to notify when the frame is released.

use std::cell::UnsafeCell;
use std::fmt;
use std::ptr::NonNull;

use crate::sync::Arc;
use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// No buffer: the end of the free list.
const NIL: u32 = u32::MAX;
/// Is notified when frames are released.
pub(crate) trait Release: Send + Sync {
    /// The frame that was handed out with `token` is released: dropped, or in transmission. Called on any
    /// thread.
    fn release(&self, token: u64);
}

/// The object to notify of a frame's release, exactly once, and the token to pass.
pub(crate) struct Receipt {
    pub(crate) to: Arc<dyn Release>,
    pub(crate) token: u64,
}

/// A pool of frames. Cloning shares it.
#[derive(Clone)]
pub struct Pool {
    shared: Arc<SharedPool>,
}

struct SharedPool {
    base: NonNull<u8>,
    frame_bytes: usize,
    /// `next[i]` follows buffer `i` in the free list.
    next: Box<[AtomicU32]>,
    /// Tag in the upper half, index of the first free buffer in the lower.
    head: AtomicU64,
    /// Owns the memory at `base`.
    _storage: Storage,
}

/// The memory of a pool; only ever dropped.
#[expect(dead_code, reason = "held, never looked at")]
enum Storage {
    /// Not a box: moving a box asserts that there is no other pointer to its content, and the pool has one.
    Heap(Vec<UnsafeCell<u8>>),
    Elsewhere(Box<dyn Send + Sync>),
}

// SAFETY: bytes of a buffer are only reached through the one owner of its index; the free list hands an index
// to one taker at a time (acquire on take, release on give back). `base` points into `_storage`, which is
// kept as long.
unsafe impl Send for SharedPool {}
// SAFETY: as above; everything else in it is atomic or constant.
unsafe impl Sync for SharedPool {}

impl Pool {
    /// `frames` buffers of `frame_bytes` each, at least one, on the heap.
    pub fn new(frames: u32, frame_bytes: usize) -> Self {
        let frames = frames.clamp(1, NIL - 1);
        let bytes: Vec<UnsafeCell<u8>> =
            (0..frames as usize * frame_bytes).map(|_| UnsafeCell::new(0)).collect();
        let base = NonNull::from(&*bytes).cast();
        Self::with_storage(frames, frame_bytes, base, Storage::Heap(bytes))
    }

    /// `frames` contiguous buffers of `frame_bytes` each from `base` on.
    ///
    /// # Safety
    /// `frames * frame_bytes` bytes from `base` on are readable, writable and initialised as long as `keep`
    /// exists, and are accessed only through the pool's indices.
    pub(crate) unsafe fn over(
        base: NonNull<u8>,
        frames: u32,
        frame_bytes: usize,
        keep: Box<dyn Send + Sync>,
    ) -> Self {
        Self::with_storage(frames.clamp(1, NIL - 1), frame_bytes, base, Storage::Elsewhere(keep))
    }

    fn with_storage(frames: u32, frame_bytes: usize, base: NonNull<u8>, storage: Storage) -> Self {
        let next = (1..frames).chain([NIL]).map(AtomicU32::new).collect();
        let head = AtomicU64::new(0);
        Self { shared: Arc::new(SharedPool { base, frame_bytes, next, head, _storage: storage }) }
    }

    /// A free buffer as an empty frame; `None` while all are in use.
    pub fn take(&self) -> Option<Frame> {
        let index = self.take_index()?;
        let shared = Arc::clone(&self.shared);
        Some(Frame { shared, index, offset: 0, len: 0, receipt: None })
    }

    /// Takes a buffer out of the free list; the holder of the index owns the buffer.
    pub(crate) fn take_index(&self) -> Option<u32> {
        let shared = &*self.shared;
        let mut head = shared.head.load(Ordering::Acquire);
        loop {
            let index = index_of(head);
            if index == NIL {
                return None;
            }
            let after = shared.next[index as usize].load(Ordering::Relaxed);
            let new = retag(head, after);
            match shared.head.compare_exchange_weak(head, new, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return Some(index),
                Err(now) => head = now,
            }
        }
    }

    /// Puts a buffer back into the free list. The caller owns `index` and forgets it.
    pub(crate) fn give_back(&self, index: u32) {
        self.shared.give_back(index);
    }

    /// Makes a frame of a buffer that the caller owns: `len` bytes from `offset` on, cut off at the end of
    /// the buffer.
    ///
    /// # Safety
    /// The caller owns `index` (from [`Pool::take_index`] or [`Frame::into_index`] of this pool), the buffer
    /// is not written any more, and the caller gives the index up.
    pub(crate) unsafe fn adopt(
        &self,
        index: u32,
        offset: usize,
        len: usize,
        receipt: Option<Receipt>,
    ) -> Frame {
        let offset = offset.min(self.shared.frame_bytes);
        let len = len.min(self.shared.frame_bytes - offset) as u32;
        Frame { shared: Arc::clone(&self.shared), index, offset: offset as u32, len, receipt }
    }

    /// The bytes of a buffer that the caller owns.
    ///
    /// # Safety
    /// The caller owns `index`, as for [`Pool::adopt`], and the buffer is not written while the slice exists.
    pub(crate) unsafe fn bytes_of(&self, index: u32) -> &[u8] {
        // SAFETY: as the caller promises; the buffer is within the storage.
        unsafe { std::slice::from_raw_parts(self.shared.start(index), self.shared.frame_bytes) }
    }

    /// Size of each buffer.
    pub fn frame_bytes(&self) -> usize {
        self.shared.frame_bytes
    }

    /// Number of buffers.
    pub fn frames(&self) -> u32 {
        self.shared.next.len() as u32
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pool({} x {} B)", self.shared.next.len(), self.shared.frame_bytes)
    }
}

impl SharedPool {
    fn give_back(&self, index: u32) {
        let mut head = self.head.load(Ordering::Relaxed);
        loop {
            self.next[index as usize].store(index_of(head), Ordering::Relaxed);
            let new = retag(head, index);
            match self.head.compare_exchange_weak(head, new, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return,
                Err(now) => head = now,
            }
        }
    }

    /// The first byte of a buffer.
    fn start(&self, index: u32) -> *mut u8 {
        debug_assert!((index as usize) < self.next.len());
        // SAFETY: indices are below the number of buffers, so this stays within the storage.
        unsafe { self.base.as_ptr().add(index as usize * self.frame_bytes) }
    }
}

const fn index_of(head: u64) -> u32 {
    head as u32
}

const fn retag(head: u64, index: u32) -> u64 {
    ((head >> 32).wrapping_add(1) << 32) | index as u64
}

/// A packet in an owned buffer of a [`Pool`], given back on drop.
pub struct Frame {
    shared: Arc<SharedPool>,
    index: u32,
    /// Offset of the packet in the buffer, in bytes.
    offset: u32,
    len: u32,
    receipt: Option<Receipt>,
}

impl Frame {
    /// The buffer from the packet's first byte on, to be filled.
    pub fn buffer_mut(&mut self) -> &mut [u8] {
        let offset = self.offset as usize;
        &mut self.whole_mut()[offset..]
    }

    /// Sets how many bytes of the buffer are the packet; at most the length of [`Frame::buffer_mut`].
    pub fn set_len(&mut self, len: usize) {
        self.len = len.min(self.shared.frame_bytes - self.offset as usize) as u32;
    }

    /// Whether it is a buffer of `pool`.
    pub(crate) fn is_of(&self, pool: &Pool) -> bool {
        Arc::ptr_eq(&self.shared, &pool.shared)
    }

    /// Offset of the packet in its buffer, in bytes.
    pub(crate) fn offset(&self) -> usize {
        self.offset as usize
    }

    /// Moves the packet's first byte by `offset` into the buffer and makes it empty.
    pub(crate) fn begin_at(&mut self, offset: usize) {
        self.offset = offset.min(self.shared.frame_bytes) as u32;
        self.len = 0;
    }

    /// `headroom` bytes in front of the packet and the packet behind them; `None` if there are not as many.
    pub(crate) fn with_headroom(&mut self, headroom: usize) -> Option<&mut [u8]> {
        let start = (self.offset as usize).checked_sub(headroom)?;
        let end = (self.offset + self.len) as usize;
        Some(&mut self.whole_mut()[start..end])
    }

    /// Gives the frame up: its buffer belongs to the caller, and the receipt's object is notified.
    pub(crate) fn into_index(mut self) -> u32 {
        self.release();
        let frame = std::mem::ManuallyDrop::new(self);
        // SAFETY: `frame` is never dropped nor used again, so the reference is moved out exactly once.
        drop(unsafe { std::ptr::read(&raw const frame.shared) });
        frame.index
    }

    fn release(&mut self) {
        if let Some(receipt) = self.receipt.take() {
            receipt.to.release(receipt.token);
        }
    }

    fn whole_mut(&mut self) -> &mut [u8] {
        // SAFETY: this frame owns the buffer's index, so no other owner reaches these bytes; the exclusive
        // borrow of `self` keeps the pool and the ownership alive.
        unsafe { std::slice::from_raw_parts_mut(self.shared.start(self.index), self.shared.frame_bytes) }
    }
}

impl AsRef<[u8]> for Frame {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: `offset + len` is within the buffer; this frame owns its index and is borrowed shared, so
        // these bytes are not written.
        unsafe {
            let first = self.shared.start(self.index).add(self.offset as usize);
            std::slice::from_raw_parts(first, self.len as usize)
        }
    }
}

impl AsMut<[u8]> for Frame {
    /// The packet, to be rewritten in place.
    fn as_mut(&mut self) -> &mut [u8] {
        let len = self.len as usize;
        &mut self.buffer_mut()[..len]
    }
}

impl Drop for Frame {
    fn drop(&mut self) {
        self.release();
        self.shared.give_back(self.index);
    }
}

impl fmt::Debug for Frame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Frame({} B)", self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_is_bounded_and_a_dropped_frame_returns() {
        let pool = Pool::new(3, 100);
        let mut frames: Vec<Frame> = std::iter::from_fn(|| pool.take()).collect();
        assert_eq!(frames.len(), 3);
        for (n, frame) in frames.iter_mut().enumerate() {
            frame.buffer_mut().fill(n as u8);
            frame.set_len(100 + n);
        }
        for (n, frame) in frames.iter().enumerate() {
            assert_eq!(frame.as_ref(), vec![n as u8; 100]);
        }
        drop(frames.remove(1));
        assert!(pool.take().is_some_and(|f| f.as_ref().is_empty()));
    }

    #[test]
    fn frames_dropped_on_other_threads_are_never_shared_or_lost() {
        // Miri is some thousand times as slow.
        const COUNT: u64 = if cfg!(miri) { 200 } else { 20_000 };
        let pool = Pool::new(8, 8);
        let (give, take) = std::sync::mpsc::sync_channel::<Frame>(16);
        let checker = std::thread::spawn(move || {
            let mut expected = 0u64;
            for frame in take {
                assert_eq!(frame.as_ref(), expected.to_le_bytes());
                expected += 1;
            }
            expected
        });
        for n in 0..COUNT {
            let mut frame = loop {
                match pool.take() {
                    Some(frame) => break frame,
                    None => std::thread::yield_now(),
                }
            };
            frame.buffer_mut().copy_from_slice(&n.to_le_bytes());
            frame.set_len(8);
            give.send(frame).expect("the checker runs");
        }
        drop(give);
        assert_eq!(checker.join().expect("no buffer was shared"), COUNT);
        assert_eq!(std::iter::from_fn(|| pool.take()).collect::<Vec<_>>().len(), 8);
    }

    #[test]
    fn a_receipt_is_given_back_once_whichever_way_the_frame_goes() {
        #[derive(Default)]
        struct Notices(std::sync::Mutex<Vec<u64>>);
        impl Release for Notices {
            fn release(&self, token: u64) {
                self.0.lock().expect("no panic").push(token);
            }
        }
        let pool = Pool::new(4, 64);
        let notices = Arc::new(Notices::default());
        let received = |token| {
            let index = pool.take_index().expect("a free buffer");
            let receipt = Receipt { to: notices.clone(), token };
            // SAFETY: the index was just taken.
            unsafe { pool.adopt(index, 10, 100, Some(receipt)) }
        };
        let (one, two) = (received(1), received(2));
        assert_eq!((one.as_ref().len(), one.offset()), (54, 10));
        let index = two.into_index();
        assert_eq!(*notices.0.lock().expect("no panic"), [2]);
        pool.give_back(index);
        drop(one);
        drop(pool.take());
        assert_eq!(*notices.0.lock().expect("no panic"), [2, 1]);
        assert_eq!(std::iter::from_fn(|| pool.take_index()).count(), 4);
    }

    #[test]
    fn a_frame_is_rewritten_in_place_and_grows_to_the_front() {
        let pool = Pool::new(1, 32);
        let mut frame = pool.take().expect("a buffer");
        frame.begin_at(8);
        assert_eq!(frame.buffer_mut().len(), 24);
        frame.set_len(4);
        frame.as_mut().copy_from_slice(b"body");
        frame.with_headroom(4).expect("room of 8")[..4].copy_from_slice(b"head");
        assert_eq!(frame.with_headroom(4).expect("room of 8"), b"headbody");
        assert!(frame.with_headroom(9).is_none());
        assert_eq!(frame.as_ref(), b"body");
        assert!(frame.is_of(&pool) && !frame.is_of(&Pool::new(1, 32)));
    }
}
