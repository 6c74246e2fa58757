//! Loom's atomics. Loom treats sequentially consistent accesses as acquire and release, but it supports
//! fences, so such an access gets a fence on either side.

pub(crate) use loom::cell::UnsafeCell;
pub(crate) use loom::sync::Arc;

/// Between two checks: another thread's turn.
pub(crate) fn pause(_: u32) {
    loom::thread::yield_now();
}

pub(crate) mod atomic {
    pub(crate) use loom::sync::atomic::{AtomicUsize, Ordering, fence};

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

    macro_rules! fenced {
        ($($name:ident $value:ty)*) => {$(
            /// See the module.
            #[derive(Debug)]
            pub(crate) struct $name(loom::sync::atomic::$name);

            impl $name {
                pub fn new(value: $value) -> Self {
                    Self(loom::sync::atomic::$name::new(value))
                }
                pub fn load(&self, order: Ordering) -> $value {
                    fenced(order, || self.0.load(order))
                }
                pub fn store(&self, value: $value, order: Ordering) {
                    fenced(order, || self.0.store(value, order));
                }
                pub fn swap(&self, value: $value, order: Ordering) -> $value {
                    fenced(order, || self.0.swap(value, order))
                }
                pub fn compare_exchange(
                    &self,
                    from: $value,
                    to: $value,
                    order: Ordering,
                    failed: Ordering,
                ) -> Result<$value, $value> {
                    fenced(order, || self.0.compare_exchange(from, to, order, failed))
                }
                /// Never fails spuriously: that would only repeat a loop.
                pub fn compare_exchange_weak(
                    &self,
                    from: $value,
                    to: $value,
                    order: Ordering,
                    failed: Ordering,
                ) -> Result<$value, $value> {
                    self.compare_exchange(from, to, order, failed)
                }
            }
        )*};
    }

    fenced! { AtomicBool bool AtomicU32 u32 AtomicU64 u64 }

    impl Default for AtomicBool {
        fn default() -> Self {
            Self::new(false)
        }
    }

    impl AtomicU32 {
        pub fn fetch_add(&self, value: u32, order: Ordering) -> u32 {
            fenced(order, || self.0.fetch_add(value, order))
        }
    }

    impl AtomicU64 {
        pub fn fetch_max(&self, value: u64, order: Ordering) -> u64 {
            fenced(order, || self.0.fetch_max(value, order))
        }
    }

    /// See the module.
    #[derive(Debug)]
    pub(crate) struct AtomicPtr<T>(loom::sync::atomic::AtomicPtr<T>);

    impl<T> AtomicPtr<T> {
        pub fn new(value: *mut T) -> Self {
            Self(loom::sync::atomic::AtomicPtr::new(value))
        }
        pub fn load(&self, order: Ordering) -> *mut T {
            fenced(order, || self.0.load(order))
        }
        pub fn store(&self, value: *mut T, order: Ordering) {
            fenced(order, || self.0.store(value, order));
        }
        pub fn swap(&self, value: *mut T, order: Ordering) -> *mut T {
            fenced(order, || self.0.swap(value, order))
        }
        pub fn compare_exchange(
            &self,
            from: *mut T,
            to: *mut T,
            order: Ordering,
            failed: Ordering,
        ) -> Result<*mut T, *mut T> {
            fenced(order, || self.0.compare_exchange(from, to, order, failed))
        }
    }
}
