//! Ctrl-C: the first one ends the run in order, so that every namespace and daemon is cleaned up; a second
//! one ends the program at once (the next run then cleans up).

use std::io::Read;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;
use signal_hook::low_level::pipe;

/// The program was requested to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("interrupted: everything that the run had set up was removed")]
pub struct Interrupted;

/// The conventional exit status of a program that ended on SIGINT.
const EXIT_STATUS: i32 = 130;

fn requested() -> &'static Arc<AtomicBool> {
    static REQUESTED: OnceLock<Arc<AtomicBool>> = OnceLock::new();
    REQUESTED.get_or_init(Arc::default)
}

/// Installs the handlers; once per process is enough, more do no harm.
///
/// # Errors
/// If the kernel refuses a handler.
pub fn install() -> std::io::Result<()> {
    static INSTALLED: AtomicBool = AtomicBool::new(false);
    if INSTALLED.swap(true, Ordering::SeqCst) {
        return Ok(());
    }
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        flag::register_conditional_shutdown(signal, EXIT_STATUS, Arc::clone(requested()))?;
        flag::register(signal, Arc::clone(requested()))?;
    }
    Ok(())
}

/// Waits until the program is requested to end.
///
/// # Errors
/// If the kernel refuses a handler, or a pair of sockets.
pub fn wait() -> std::io::Result<()> {
    install()?;
    let (mut requests, signalled) = UnixStream::pair()?;
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        pipe::register(signal, signalled.try_clone()?)?;
    }
    // One that came before is noted.
    if check().is_err() { Ok(()) } else { requests.read_exact(&mut [0]) }
}

/// Checks whether the run should continue.
///
/// # Errors
/// [`Interrupted`] once a signal has come.
pub fn check() -> Result<(), Interrupted> {
    if requested().load(Ordering::Relaxed) { Err(Interrupted) } else { Ok(()) }
}

/// Whether this process ignores a signal, 1 to 64, as its parent may have arranged.
pub fn is_ignored(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    is_in_mask(&status, signal)
}

fn is_in_mask(status: &str, signal: i32) -> bool {
    let digits = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = digits.and_then(|digits| u64::from_str_radix(digits.trim(), 16).ok());
    mask.is_some_and(|mask| (mask >> (signal - 1)) & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ignored_signals_are_in_the_kernels_mask() {
        let status = "SigBlk:\t0000000000000001\nSigIgn:\t0000000000001001\nSigCgt:\t00000000ffffffff\n";
        assert_eq!(
            [1, 2, 12, 13, 64].map(|signal| is_in_mask(status, signal)),
            [true, false, false, true, false]
        );
        assert!(!is_in_mask("", 1));
        assert!(is_ignored(13), "Rust's runtime ignores SIGPIPE");
    }
}
