//! System calls that were refused: each fails and is counted, and each kind of call is reported once.
//!
//! The kernel sends `SIGSYS` in place of the call; the handler writes `EPERM` to the register of the call's
//! result. It neither allocates nor locks. If a thread blocks the signal, the kernel ends the process.

use std::cell::Cell;
use std::fmt::Write;
use std::io;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use super::ThreadKind;

/// Maximum number of different calls that are reported, by kind of thread; further ones are only counted.
const REPORTED_MAX: usize = 32;

static REFUSED: AtomicU64 = AtomicU64::new(0);
static REPORTED: [AtomicU64; REPORTED_MAX] = [const { AtomicU64::new(0) }; REPORTED_MAX];

thread_local! {
    /// Kind of this thread. It has no destructor, so that a signal handler may read it.
    static KIND: Cell<Option<ThreadKind>> = const { Cell::new(None) };
}

/// System calls that were refused to threads of this process since it began.
pub fn refused() -> u64 {
    REFUSED.load(Ordering::Relaxed)
}

/// Makes the calling thread one of `kind`, and makes this process survive calls that are refused to it.
pub(super) fn prepare(kind: ThreadKind) -> io::Result<()> {
    static HANDLED: OnceLock<Result<(), i32>> = OnceLock::new();
    HANDLED.get_or_init(handle).map_err(io::Error::from_raw_os_error)?;
    KIND.set(Some(kind));
    Ok(())
}

fn handle() -> Result<(), i32> {
    // SAFETY: plain data, for which all zeroes is valid: an empty mask, no flags.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = refuse as extern "C" fn(_, _, _) as usize;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
    // SAFETY: `action` is complete and valid during the call; `refuse` does only what a handler may do.
    let done = unsafe { libc::sigaction(libc::SIGSYS, &raw const action, std::ptr::null_mut()) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error().raw_os_error().unwrap_or(libc::EINVAL)) }
}

/// Blocks signals that have a handler, or may get one, on the calling thread.
pub(super) fn leave_signals_to_others() -> io::Result<()> {
    // Signals of a thread's own mistakes, which the kernel sends to that thread only.
    const OWN: [libc::c_int; 6] =
        [libc::SIGSYS, libc::SIGSEGV, libc::SIGBUS, libc::SIGILL, libc::SIGFPE, libc::SIGABRT];
    // SAFETY: the set is ours, filled before it is read; a null pointer for the old one is allowed.
    let error = unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&raw mut set);
        for signal in OWN {
            libc::sigdelset(&raw mut set, signal);
        }
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut())
    };
    if error == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(error)) }
}

extern "C" fn refuse(_: libc::c_int, about: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel hands both to a handler with `SA_SIGINFO`, valid until it returns.
    let (about, context) = unsafe { (&*about, &mut *context.cast::<libc::ucontext_t>()) };
    if about.si_code != SYS_SECCOMP {
        return;
    }
    let number = take_call(context);
    REFUSED.fetch_add(1, Ordering::Relaxed);
    if is_new(KIND.get(), number) {
        report(KIND.get(), number);
    }
}

/// `SYS_SECCOMP` of `siginfo.h`, which libc does not have.
const SYS_SECCOMP: libc::c_int = 1;

/// The number of the call; in its place its result.
#[cfg(target_arch = "x86_64")]
fn take_call(context: &mut libc::ucontext_t) -> u64 {
    let result = &mut context.uc_mcontext.gregs[libc::REG_RAX as usize];
    std::mem::replace(result, i64::from(-libc::EPERM)) as u64
}

/// The number of the call; its result is set.
#[cfg(target_arch = "aarch64")]
fn take_call(context: &mut libc::ucontext_t) -> u64 {
    let registers = &mut context.uc_mcontext.regs;
    registers[0] = i64::from(-libc::EPERM) as u64;
    registers[8]
}

/// On other architectures no thread is confined: `compile` fails.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn take_call(_: &mut libc::ucontext_t) -> u64 {
    u64::MAX
}

/// Whether this call is reported for the first time.
fn is_new(kind: Option<ThreadKind>, number: u64) -> bool {
    // Never zero, which is an empty place.
    let key = number << 8 | kind.map_or(0xff, |kind| kind as u64 + 1);
    for place in &REPORTED {
        match place.compare_exchange(0, key, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => return true,
            Err(there) if there == key => return false,
            Err(_) => {}
        }
    }
    false
}

/// Writes one line to standard error. It avoids the log, which this very thread may have locked.
fn report(kind: Option<ThreadKind>, number: u64) {
    let mut line = LineBuffer { bytes: [0; 200], len: 0 };
    let kind = kind.unwrap_or(ThreadKind::Service);
    // What does not fit is cut off.
    let _ = writeln!(
        line,
        "punctual: refused system call {number} of a {kind} thread, which its list does not have: report it, with \
         the version of libc; forbidden_calls = \"allow\" in [daemon] lets it pass"
    );
    // SAFETY: the bytes are there. A failed write to standard error is ignored.
    unsafe { libc::write(libc::STDERR_FILENO, line.bytes.as_ptr().cast(), line.len) };
}

struct LineBuffer {
    bytes: [u8; 200],
    len: usize,
}

impl Write for LineBuffer {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        let room = &mut self.bytes[self.len..];
        let taken = text.len().min(room.len());
        room[..taken].copy_from_slice(&text.as_bytes()[..taken]);
        self.len += taken;
        if taken == text.len() { Ok(()) } else { Err(std::fmt::Error) }
    }
}
