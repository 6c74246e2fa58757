//! Ctrl-C: the first one ends the run in order, so that every namespace and daemon is cleaned up; a second
//! one ends the program at once (the next run then cleans up).

use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;

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

/// Checks whether the run should continue.
///
/// # Errors
/// [`Interrupted`] once a signal has come.
pub fn check() -> Result<(), Interrupted> {
    if requested().load(Ordering::Relaxed) { Err(Interrupted) } else { Ok(()) }
}
