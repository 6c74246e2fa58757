//! How many threads of this process serve clients: clients decide when one begins, so there is a limit.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::limits::SERVING_THREADS_MAX;

/// Places for threads.
#[derive(Debug)]
struct Seats {
    free: AtomicUsize,
}

static OF_PROCESS: Seats = Seats::new(SERVING_THREADS_MAX);

impl Seats {
    const fn new(count: usize) -> Self {
        Self { free: AtomicUsize::new(count) }
    }

    fn take(&'static self) -> Option<Seat> {
        let less = |free: usize| free.checked_sub(1);
        self.free.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).ok().map(|_| Seat(self))
    }
}

/// A thread may serve, until this is dropped.
#[derive(Debug)]
pub(crate) struct Seat(&'static Seats);

impl Seat {
    /// `None` if as many threads serve as may.
    pub fn take() -> Option<Self> {
        OF_PROCESS.take()
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.0.free.fetch_add(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seats_end_and_come_back() {
        static TWO: Seats = Seats::new(2);
        let (first, _second) = (TWO.take().expect("the first"), TWO.take().expect("the second"));
        assert!(TWO.take().is_none());
        drop(first);
        assert!(TWO.take().is_some());
    }
}
