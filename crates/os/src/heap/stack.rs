//! Pieces of memory that wait until another thread takes them, each linked by its own first bytes: it
//! allocates nothing and takes no lock.

use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicPtr, Ordering};

/// The first bytes of a waiting piece.
#[derive(Debug)]
#[repr(transparent)]
pub(super) struct Link(*mut Link);

/// Any thread puts pieces on it one by one, and takes all of them at once: so no piece can be put back while
/// another thread reads it (no ABA problem).
#[derive(Debug)]
pub(super) struct Stack(AtomicPtr<Link>);

impl Stack {
    pub const fn new() -> Self {
        Self(AtomicPtr::new(ptr::null_mut()))
    }

    /// Adds a piece.
    ///
    /// # Safety
    /// `piece` is at least as large and as aligned as a [`Link`] and has no other owner; the thread that
    /// takes it from here owns it.
    pub unsafe fn push(&self, piece: NonNull<u8>) {
        let link: *mut Link = piece.as_ptr().cast();
        let mut next = self.0.load(Ordering::Relaxed);
        loop {
            // SAFETY: the piece is ours until the exchange has succeeded, and large enough.
            unsafe { link.write(Link(next)) };
            match self.0.compare_exchange_weak(next, link, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return,
                Err(found) => next = found,
            }
        }
    }

    /// Takes all pieces, the last one first.
    pub fn take(&self) -> Taken {
        // It is read before it is written: most of the time it is empty.
        if self.0.load(Ordering::Relaxed).is_null() {
            return Taken::NONE;
        }
        Taken(self.0.swap(ptr::null_mut(), Ordering::Acquire))
    }
}

/// Pieces that were taken.
#[derive(Debug)]
pub(super) struct Taken(*mut Link);

impl Taken {
    pub const NONE: Self = Self(ptr::null_mut());

    pub const fn is_empty(&self) -> bool {
        self.0.is_null()
    }
}

impl Iterator for Taken {
    type Item = NonNull<u8>;

    fn next(&mut self) -> Option<Self::Item> {
        let link = NonNull::new(self.0)?;
        // SAFETY: it was put on the stack, whole, before it was taken from there, and it is ours now.
        let Link(next) = unsafe { link.read() };
        self.0 = next;
        Some(link.cast())
    }
}
