//! Bells that are to be rung: a list without locks. Any thread adds a bell without allocating.
//!
//! Each bell is in the list at most once: repeated requests before it is rung cost nothing more. One thread
//! takes all of them at once, so no element returns to the list while another thread reads it.

use std::ptr;

use crate::sync::Arc;
use crate::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

/// An element of the list.
#[derive(Debug)]
pub struct BellNode<T> {
    /// The bell to ring.
    pub bell: T,
    is_listed: AtomicBool,
    next: AtomicPtr<Self>,
}

impl<T> BellNode<T> {
    /// A node that is in no list.
    pub fn new(bell: T) -> Self {
        Self { bell, is_listed: AtomicBool::new(false), next: AtomicPtr::new(ptr::null_mut()) }
    }
}

/// The list.
#[derive(Debug)]
pub struct BellList<T> {
    head: AtomicPtr<BellNode<T>>,
    /// True if the taking thread is asleep, or about to be.
    sleeps: AtomicBool,
}

impl<T> Default for BellList<T> {
    fn default() -> Self {
        Self { head: AtomicPtr::new(ptr::null_mut()), sleeps: AtomicBool::new(false) }
    }
}

impl<T> BellList<T> {
    /// Requests that `node` is rung. Returns whether the taking thread must be woken for it. Neither waits
    /// nor allocates.
    pub fn put(&self, node: &Arc<BellNode<T>>) -> bool {
        if node.is_listed.swap(true, Ordering::AcqRel) {
            // The taking thread has not yet checked what was published before this.
            return false;
        }
        let element = Arc::into_raw(Arc::clone(node)).cast_mut();
        let mut head = self.head.load(Ordering::Relaxed);
        loop {
            node.next.store(head, Ordering::Relaxed);
            match self.head.compare_exchange(head, element, Ordering::SeqCst, Ordering::Relaxed) {
                Ok(_) => break,
                Err(current) => head = current,
            }
        }
        self.sleeps.load(Ordering::SeqCst) && self.sleeps.swap(false, Ordering::SeqCst)
    }

    /// Gives every bell that waits to `ring`; how many. For one thread at a time.
    pub fn take(&self, mut ring: impl FnMut(&Arc<BellNode<T>>)) -> u32 {
        let mut element = self.head.swap(ptr::null_mut(), Ordering::SeqCst);
        let mut taken = 0;
        while !element.is_null() {
            // SAFETY: it came from `into_raw` in `put`, and the swap has made it this thread's alone.
            let node = unsafe { Arc::from_raw(element.cast_const()) };
            element = node.next.load(Ordering::Relaxed);
            // The node may be listed again from here on.
            node.is_listed.swap(false, Ordering::AcqRel);
            ring(&node);
            taken += 1;
        }
        taken
    }

    /// The taking thread is about to sleep. `false`: it must not, because a bell waits.
    pub fn may_sleep(&self) -> bool {
        self.sleeps.store(true, Ordering::SeqCst);
        self.head.load(Ordering::SeqCst).is_null()
    }

    /// Notes that the taking thread is awake.
    pub fn woken(&self) {
        self.sleeps.store(false, Ordering::Relaxed);
    }
}

impl<T> Drop for BellList<T> {
    fn drop(&mut self) {
        self.take(|_| ());
    }
}
