//! Something that one caller after the other has. Whoever waits for its turn has a deadline: the caller that has it may wait
//! for a server, for ever if it wants.

use std::io;
use std::ops::{Deref, DerefMut};
use std::sync::{Condvar, MutexGuard, PoisonError};

use crate::counted::Mutex;
use crate::transport::{Deadline, left};

/// Who has it.
pub(crate) struct Turns<T> {
    /// Nothing while a caller has it.
    free: Mutex<Option<T>>,
    returned: Condvar,
}

impl<T> Turns<T> {
    pub fn new(what: T) -> Self {
        Self { free: Mutex::new(Some(what)), returned: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, Option<T>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until nobody else has it.
    ///
    /// # Errors
    /// `TimedOut`.
    pub fn take(&self, deadline: Deadline) -> io::Result<Turn<'_, T>> {
        let mut free = self.lock();
        loop {
            if let Some(what) = free.take() {
                return Ok(Turn { what: Some(what), of: self });
            }
            free = match left(deadline)? {
                None => self.returned.wait(free).unwrap_or_else(PoisonError::into_inner),
                Some(left) => {
                    self.returned.wait_timeout(free, left).unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
    }

    /// The same if nobody has it now.
    pub fn try_take(&self) -> Option<Turn<'_, T>> {
        let what = self.lock().take()?;
        Some(Turn { what: Some(what), of: self })
    }
}

/// A turn, until it is dropped.
pub(crate) struct Turn<'a, T> {
    /// It is there until the end.
    what: Option<T>,
    of: &'a Turns<T>,
}

impl<T> Drop for Turn<'_, T> {
    fn drop(&mut self) {
        *self.of.lock() = self.what.take();
        self.of.returned.notify_one();
    }
}

impl<T> Deref for Turn<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.what.as_ref().expect("it is there until the end")
    }
}

impl<T> DerefMut for Turn<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.what.as_mut().expect("it is there until the end")
    }
}
