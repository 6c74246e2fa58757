//! What the daemon does when a thread of it panics: it logs the panic and ends in order.
//!
//! No other thread can take over a thread's part: without a ringer a user's bells and memory are lost,
//! without the devices' thread their shapers, without the deciding thread the admission policies. A daemon
//! that continued without one of them would keep less than it promises. So a panicking thread makes the
//! daemon stop: channels are closed, the other ends are notified, and the service manager starts the daemon
//! again. Other checks ensure that a user cannot make a thread panic (`make fuzz`, `make attack`).

use std::os::fd::OwnedFd;
use std::panic;
use std::sync::OnceLock;

/// The name of the first thread that panicked.
static FAILED: OnceLock<String> = OnceLock::new();

/// From now on a panicking thread writes 8 bytes to `stop` (every thread's list of system calls permits
/// that), after the usual report of the panic. Call it once in a process.
pub fn end_on_panic(stop: OwnedFd) {
    let earlier_hook = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        earlier_hook(info);
        let _ = FAILED.set(std::thread::current().name().unwrap_or("without a name").to_owned());
        // If the write fails, the daemon is ending already.
        let _ = rustix::io::write(&stop, &1_u64.to_ne_bytes());
    }));
}

/// The thread whose panic made the daemon stop.
pub fn failed() -> Option<&'static str> {
    FAILED.get().map(String::as_str)
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn a_thread_that_panics_makes_the_daemon_stop() {
        let (mut stop, asked) = UnixStream::pair().expect("sockets");
        end_on_panic(asked.into());
        let thread = std::thread::Builder::new().name("punctual-bell".into());
        let panicking = thread.spawn(|| panic!("a panic of a test")).expect("a thread");
        assert!(panicking.join().is_err());
        stop.read_exact(&mut [0; 8]).expect("it is asked");
        assert_eq!(failed(), Some("punctual-bell"));
    }
}
