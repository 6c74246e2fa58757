//! How many threads of this process serve clients: clients decide when one begins, so there is a limit.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::limits::SERVING_THREADS_MAX;

/// Permits that are free.
#[derive(Debug)]
struct Permits {
    free: AtomicUsize,
}

static OF_PROCESS: Permits = Permits::new(SERVING_THREADS_MAX);

impl Permits {
    const fn new(count: usize) -> Self {
        Self { free: AtomicUsize::new(count) }
    }

    fn take(&'static self) -> Option<ServingPermit> {
        let less = |free: usize| free.checked_sub(1);
        self.free.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).ok().map(|_| ServingPermit(self))
    }
}

/// A thread may serve, until this is dropped.
#[derive(Debug)]
pub(crate) struct ServingPermit(&'static Permits);

impl ServingPermit {
    /// `None` if as many threads serve as may.
    pub fn take() -> Option<Self> {
        OF_PROCESS.take()
    }
}

impl Drop for ServingPermit {
    fn drop(&mut self) {
        self.0.free.fetch_add(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permits_end_and_come_back() {
        static TWO: Permits = Permits::new(2);
        let (first, _second) = (TWO.take().expect("the first"), TWO.take().expect("the second"));
        assert!(TWO.take().is_none());
        drop(first);
        assert!(TWO.take().is_some());
    }
}
