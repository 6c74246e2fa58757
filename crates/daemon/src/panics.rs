//! What becomes of the daemon when a thread of it panics: it ends in order, and says so.
//!
//! Each thread has a part that no other takes over: with a ringer a user's bells and memory are lost, with the thread of
//! devices their shapers, with that of admission the policies. A daemon without one of them would go on and keep less than
//! it promises. So whoever panics asks the daemon to stop: channels are torn down, the other ends are told, and the
//! service manager starts it again. That a user's own doing cannot make a thread panic is held elsewhere (`make fuzz`,
//! `make attack`).

use std::os::fd::OwnedFd;
use std::panic;
use std::sync::OnceLock;

/// The name of the first thread that panicked.
static FAILED: OnceLock<String> = OnceLock::new();

/// From now on whoever panics writes 8 bytes to `stop` (every thread's list of system calls allows that), after what is
/// said of a panic in any case. Once in a process.
pub fn end_on_panic(stop: OwnedFd) {
    let told = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        told(info);
        let _ = FAILED.set(std::thread::current().name().unwrap_or("without a name").to_owned());
        // If nobody reads, the daemon is ending.
        let _ = rustix::io::write(&stop, &1_u64.to_ne_bytes());
    }));
}

/// The thread for whose panic the daemon was asked to stop.
pub fn failed() -> Option<&'static str> {
    FAILED.get().map(String::as_str)
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn a_thread_that_panics_asks_the_daemon_to_stop() {
        let (mut stop, asked) = UnixStream::pair().expect("sockets");
        end_on_panic(asked.into());
        let thread = std::thread::Builder::new().name("punctual-bell".into());
        let panicking = thread.spawn(|| panic!("what a test of this kind says")).expect("a thread");
        assert!(panicking.join().is_err());
        stop.read_exact(&mut [0; 8]).expect("it is asked");
        assert_eq!(failed(), Some("punctual-bell"));
    }
}
