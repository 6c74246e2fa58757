//! How tests say what they skip. The harness keeps what a test prints by `eprintln!` to itself unless the test fails, so nobody would
//! see that it has checked nothing.

use std::fmt::Arguments;
use std::io::Write;

/// Says on standard error what is skipped, and why: `skipped!("tcpdump is not installed")`.
#[macro_export]
macro_rules! skipped {
    ($($why:tt)+) => { $crate::say(format_args!($($why)+)) };
}

/// The function behind [`skipped!`].
pub fn say(why: Arguments<'_>) {
    let thread = std::thread::current();
    let test =
        thread.name().filter(|name| *name != "main").map(|name| format!(" ({name})")).unwrap_or_default();
    // One write, so that lines of several tests do not mix. Without a standard error nobody reads it.
    let _ = std::io::stderr().write_all(format!("SKIPPED: {why}{test}\n").as_bytes());
}
