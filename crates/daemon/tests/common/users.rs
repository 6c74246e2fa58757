//! Programs of other users. Needs root.

use rustix::fs::Uid;
use rustix::thread::{CapabilitySet, CapabilitySets};

/// Runs `work` on a thread of user `user`; open sockets keep their owner. `None`, with a message, without
/// root.
pub fn as_user<R: Send>(user: u32, work: impl FnOnce() -> R + Send) -> Option<R> {
    if !rustix::process::getuid().is_root() {
        punctual_skip::skipped!("other users need root");
        return None;
    }
    let user = Uid::from_raw(user);
    let run = move || {
        // Changes this thread only; the C library would change all threads. It keeps the right to search
        // folders, because other users cannot search some systems' root folders.
        rustix::thread::set_keep_capabilities(true).expect("kept");
        rustix::thread::set_thread_res_uid(user, user, user).expect("another user");
        let search = CapabilitySet::DAC_READ_SEARCH;
        let sets =
            CapabilitySets { effective: search, permitted: search, inheritable: CapabilitySet::empty() };
        rustix::thread::set_capabilities(None, sets).expect("the right to search");
        work()
    };
    Some(std::thread::scope(|scope| scope.spawn(run).join().expect("no panic")))
}
