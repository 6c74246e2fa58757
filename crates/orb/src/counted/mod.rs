//! What a call should do once or never: look something up, and take a lock. Tests count it, thread by thread;
//! outside of them counting is nothing.

#[cfg(test)]
mod tests;

use std::sync::{self, LockResult, MutexGuard, RwLockReadGuard, RwLockWriteGuard};

/// What is counted.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Counted {
    /// A lock is taken, whether another thread has it or not.
    Lock,
    /// An object adapter is looked up.
    Adapter,
    /// An object is looked up.
    Object,
    /// An operation is looked up.
    Operation,
}

#[cfg(test)]
thread_local! {
    static COUNTS: std::cell::Cell<[u64; 4]> = const { std::cell::Cell::new([0; 4]) };
}

/// Counts one in this thread.
#[inline(always)]
pub(crate) fn count(what: Counted) {
    #[cfg(test)]
    COUNTS.with(|counts| {
        let mut new = counts.get();
        new[what as usize] += 1;
        counts.set(new);
    });
    #[cfg(not(test))]
    let _ = what;
}

/// As the one of `std`.
#[derive(Debug, Default)]
pub(crate) struct Mutex<T>(sync::Mutex<T>);

impl<T> Mutex<T> {
    pub const fn new(value: T) -> Self {
        Self(sync::Mutex::new(value))
    }

    #[inline]
    pub fn lock(&self) -> LockResult<MutexGuard<'_, T>> {
        count(Counted::Lock);
        self.0.lock()
    }
}

/// As the one of `std`.
#[derive(Debug, Default)]
pub(crate) struct RwLock<T>(sync::RwLock<T>);

impl<T> RwLock<T> {
    pub const fn new(value: T) -> Self {
        Self(sync::RwLock::new(value))
    }

    #[inline]
    pub fn read(&self) -> LockResult<RwLockReadGuard<'_, T>> {
        count(Counted::Lock);
        self.0.read()
    }

    #[inline]
    pub fn write(&self) -> LockResult<RwLockWriteGuard<'_, T>> {
        count(Counted::Lock);
        self.0.write()
    }
}
