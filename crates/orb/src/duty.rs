//! What a thread must not do.

use std::cell::Cell;

thread_local! {
    static MAY_WAIT: Cell<bool> = const { Cell::new(true) };
}

/// This thread serves many connections: requests that an adapter holds wait without it.
pub(crate) fn never_wait_for_adapters() {
    MAY_WAIT.set(false);
}

/// Whether this thread may wait for an adapter.
pub(crate) fn may_wait_for_adapters() -> bool {
    MAY_WAIT.get()
}
