//! The sleep flag. The parent module says why no wake-up is lost.

use crate::sync::atomic::{AtomicU32, Ordering};

/// Says "I am about to sleep". The caller looks at the ring again *after* this.
pub fn arm(flag: &AtomicU32) {
    flag.swap(1, Ordering::AcqRel);
}

/// Whether the flag is up already.
pub fn is_armed(flag: &AtomicU32) -> bool {
    flag.load(Ordering::Relaxed) != 0
}

/// To be asked *after* publishing: whether the other side must be woken; takes the flag down.
pub fn must_wake(flag: &AtomicU32) -> bool {
    flag.swap(0, Ordering::AcqRel) != 0
}
