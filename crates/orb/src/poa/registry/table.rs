//! Tables of adapters and objects.

use sharded_slab::{Config, Slab};

use crate::limits::TABLE_THREADS_MAX;

/// How many threads may add to tables at the same time, and how many bits a place has for what.
#[derive(Debug)]
pub(in crate::poa) struct Places;

impl Config for Places {
    // A thread beyond it would panic. The ORB has fewer threads, and the kernel allows hardly more.
    const MAX_THREADS: usize = TABLE_THREADS_MAX;
    // With 32 values in the first page, a thread can add 2^31: 2^16 generations are left for each place.
    const MAX_PAGES: usize = 26;
}

/// A table whose values are found by places, without a lock.
pub(in crate::poa) type Table<T> = Slab<T, Places>;

/// A value that is in use. It stays until this is dropped.
pub(in crate::poa) type Entry<'t, T> = sharded_slab::Entry<'t, T, Places>;

/// An empty table.
pub(in crate::poa) fn new<T>() -> Table<T> {
    Slab::new_with_config::<Places>()
}
