//! Loom's atomics. It takes sequentially consistent accesses for acquire and release; fences it knows, so such an
//! access gets one on either side.

pub(crate) use loom::cell::UnsafeCell;
pub(crate) use loom::sync::Arc;

pub(crate) mod atomic {
    pub(crate) use loom::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering, fence};

    /// See the module.
    #[derive(Debug)]
    pub(crate) struct AtomicU64(loom::sync::atomic::AtomicU64);

    fn fenced<R>(order: Ordering, access: impl FnOnce() -> R) -> R {
        let total = order == Ordering::SeqCst;
        if total {
            fence(Ordering::SeqCst);
        }
        let result = access();
        if total {
            fence(Ordering::SeqCst);
        }
        result
    }

    impl AtomicU64 {
        pub fn new(value: u64) -> Self {
            Self(loom::sync::atomic::AtomicU64::new(value))
        }
        pub fn load(&self, order: Ordering) -> u64 {
            fenced(order, || self.0.load(order))
        }
        pub fn store(&self, value: u64, order: Ordering) {
            fenced(order, || self.0.store(value, order));
        }
        pub fn fetch_max(&self, value: u64, order: Ordering) -> u64 {
            fenced(order, || self.0.fetch_max(value, order))
        }
        pub fn compare_exchange(
            &self,
            from: u64,
            to: u64,
            order: Ordering,
            failed: Ordering,
        ) -> Result<u64, u64> {
            fenced(order, || self.0.compare_exchange(from, to, order, failed))
        }
        /// Never fails for nothing: that would only repeat a loop.
        pub fn compare_exchange_weak(
            &self,
            from: u64,
            to: u64,
            order: Ordering,
            failed: Ordering,
        ) -> Result<u64, u64> {
            self.compare_exchange(from, to, order, failed)
        }
    }
}
