//! A bounded pool of receive buffers, allocated and touched once.
//!
//! The pool is shared by its frames; a buffer belongs to exactly one [`Frame`] or to the free list. The free
//! list is a lock-free stack of indices (Treiber) whose head carries a tag against ABA, so a frame may be
//! dropped on any thread while the driver's thread takes others: no one ever waits for a lock.

use std::cell::UnsafeCell;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// No buffer: the end of the free list.
const NIL: u32 = u32::MAX;

/// Where frames come from. Cloning shares it.
#[derive(Clone)]
pub struct Pool {
    shared: Arc<Shared>,
}

struct Shared {
    bytes: Box<[UnsafeCell<u8>]>,
    frame_bytes: usize,
    /// `next[i]` follows buffer `i` in the free list.
    next: Box<[AtomicU32]>,
    /// Tag in the upper half, index of the first free buffer in the lower.
    head: AtomicU64,
}

// SAFETY: bytes of a buffer are only reached through the one `Frame` that owns its index; the free list hands
// an index to one taker at a time (acquire on take, release on give back).
unsafe impl Send for Shared {}
// SAFETY: as above; everything else in it is atomic or constant.
unsafe impl Sync for Shared {}

impl Pool {
    /// `frames` buffers of `frame_bytes` each, at least one.
    pub fn new(frames: u32, frame_bytes: usize) -> Self {
        let frames = frames.clamp(1, NIL - 1);
        let next = (1..frames).chain([NIL]).map(AtomicU32::new).collect();
        let bytes = (0..frames as usize * frame_bytes).map(|_| UnsafeCell::new(0)).collect();
        Self { shared: Arc::new(Shared { bytes, frame_bytes, next, head: AtomicU64::new(0) }) }
    }

    /// A free buffer as an empty frame; `None` while all are in use.
    pub fn take(&self) -> Option<Frame> {
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
                Ok(_) => return Some(Frame { shared: Arc::clone(&self.shared), index, len: 0 }),
                Err(now) => head = now,
            }
        }
    }

    /// Size of each buffer.
    pub fn frame_bytes(&self) -> usize {
        self.shared.frame_bytes
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pool({} x {} B)", self.shared.next.len(), self.shared.frame_bytes)
    }
}

impl Shared {
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
}

const fn index_of(head: u64) -> u32 {
    head as u32
}

const fn retag(head: u64, index: u32) -> u64 {
    ((head >> 32).wrapping_add(1) << 32) | index as u64
}

/// A received packet: an owned buffer of a [`Pool`], given back on drop.
pub struct Frame {
    shared: Arc<Shared>,
    index: u32,
    len: u32,
}

impl Frame {
    /// The whole buffer, to be filled.
    pub fn buffer_mut(&mut self) -> &mut [u8] {
        let size = self.shared.frame_bytes;
        let cells = &self.shared.bytes[self.index as usize * size..][..size];
        // SAFETY: this frame owns the buffer's index, so nobody else reaches these cells; `UnsafeCell<u8>` has
        // the layout of `u8`, and the borrow of `self` keeps the pool and the ownership alive.
        unsafe { std::slice::from_raw_parts_mut(UnsafeCell::raw_get(cells.as_ptr()), size) }
    }

    /// Says how many bytes of the buffer are the packet; at most the buffer's size.
    pub fn set_len(&mut self, len: usize) {
        self.len = len.min(self.shared.frame_bytes) as u32;
    }
}

impl AsRef<[u8]> for Frame {
    fn as_ref(&self) -> &[u8] {
        let cells = &self.shared.bytes[self.index as usize * self.shared.frame_bytes..][..self.len as usize];
        // SAFETY: this frame owns the buffer's index and is borrowed shared, so nobody writes to these cells.
        unsafe { std::slice::from_raw_parts(cells.as_ptr().cast::<u8>(), cells.len()) }
    }
}

impl AsMut<[u8]> for Frame {
    fn as_mut(&mut self) -> &mut [u8] {
        let len = self.len as usize;
        &mut self.buffer_mut()[..len]
    }
}

impl Drop for Frame {
    fn drop(&mut self) {
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
        for n in 0..20_000u64 {
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
        assert_eq!(checker.join().expect("no buffer was shared"), 20_000);
        assert_eq!(std::iter::from_fn(|| pool.take()).collect::<Vec<_>>().len(), 8);
    }
}
