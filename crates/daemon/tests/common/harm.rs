//! Faults of a machine and its programs: full disks, wall clocks that jump, clients without memory, crowds.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Barrier;

use punctual::Endsystem;
use rustix::process::{Resource, Rlimit, setrlimit};

use super::contract;

/// Page size of the disk; the fill is a multiple of it, so that the disk becomes exactly full.
const PAGE_BYTES: usize = 4_096;

/// A small disk of its own; unmounted when the test drops it.
pub struct Disk(PathBuf);

impl Disk {
    /// `None`, with a message, if nothing may be mounted.
    pub fn mount(at: &Path) -> Option<Self> {
        if !rustix::process::getuid().is_root() {
            punctual_skip::skipped!("mounting needs root");
            return None;
        }
        std::fs::create_dir_all(at).expect("a folder");
        let made = Command::new("mount").args(["-t", "tmpfs", "-o", "size=64k", "tmpfs"]).arg(at).status();
        assert!(made.expect("mount").success(), "a disk");
        Some(Self(at.to_owned()))
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// A file on it that ends with a page: not a byte more fits behind it once the disk is full.
    pub fn log(&self) -> PathBuf {
        let path = self.path("log");
        std::fs::write(&path, [b'\n'; PAGE_BYTES]).expect("room for a page");
        path
    }

    /// Fills all free space. First pads the log to a page.
    pub fn fill(&self, log: &Path) {
        let bytes = std::fs::metadata(log).map_or(0, |file| file.len() as usize);
        let mut end = OpenOptions::new().append(true).create(true).open(log).expect("the log");
        end.write_all(&vec![b'\n'; bytes.next_multiple_of(PAGE_BYTES) - bytes]).expect("room in its page");
        let mut filler = std::fs::File::create(self.path("filler")).expect("a file");
        while filler.write_all(&[0; PAGE_BYTES]).is_ok() {}
        assert!(end.write_all(b"more").is_err(), "the disk is not full");
    }

    /// Frees it again.
    pub fn free(&self) {
        std::fs::remove_file(self.path("filler")).expect("it was there");
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // Lazily: a daemon that is still to be stopped may have a file there.
        let gone = Command::new("umount").arg("--lazy").arg(&self.0).status();
        if !gone.is_ok_and(|status| status.success()) {
            eprintln!("warning: the disk at {} stays behind", self.0.display());
        }
    }
}

/// The variable permits a test program to step the clock of the machine, which all programs share: `make
/// test` and `make soak` set it.
const MAY_STEP: &str = "PUNCTUAL_TEST_WALL_CLOCK";

/// The wall clock of this machine, which a test steps; dropping this sets it back. Time namespaces do not
/// cover the wall clock.
pub struct SteppedClock {
    wall_ns: i128,
    since: std::time::Instant,
}

impl SteppedClock {
    /// `None`, with a message, if the clock may not be set.
    pub fn take() -> Option<Self> {
        if std::env::var_os(MAY_STEP).is_none() {
            punctual_skip::skipped!(
                "steps of the wall clock of this machine: set {MAY_STEP}=1, as make test does"
            );
            return None;
        }
        let clock = Self { wall_ns: wall_ns(), since: std::time::Instant::now() };
        if !clock.step(0) {
            punctual_skip::skipped!("no right to set the clock (CAP_SYS_TIME)");
            return None;
        }
        Some(clock)
    }

    /// Sets the wall clock to its regular time plus `by_ms`.
    pub fn step(&self, by_ms: i128) -> bool {
        let ns = self.wall_ns + self.since.elapsed().as_nanos() as i128 + by_ms * 1_000_000;
        let time =
            rustix::time::Timespec { tv_sec: (ns / 1_000_000_000) as _, tv_nsec: (ns % 1_000_000_000) as _ };
        rustix::time::clock_settime(rustix::time::ClockId::Realtime, time).is_ok()
    }
}

impl Drop for SteppedClock {
    fn drop(&mut self) {
        if !self.step(0) {
            eprintln!("warning: the wall clock is not what it was");
        }
    }
}

pub fn wall_ns() -> i128 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
    i128::from(time.tv_sec) * 1_000_000_000 + i128::from(time.tv_nsec)
}

/// In its environment a test program is a client that may not map its rings: the daemon's socket, and the
/// peer's name.
const STARVED: [&str; 2] = ["PUNCTUAL_TEST_STARVED", "PUNCTUAL_TEST_STARVED_TO"];

/// The body of a program's test `starved_client`: it does nothing unless [`starve`] has started it.
pub fn be_starved() {
    let [Some(socket), Some(to)] = STARVED.map(std::env::var_os) else { return };
    let host = Endsystem::connect_to(Path::new(&socket)).expect("connected");
    let limit = |bytes| Rlimit { current: Some(bytes), maximum: Some(bytes) };
    setrlimit(Resource::As, limit(1 << 20)).expect("a limit");
    // 40 MB of rings do not fit: an error, or the end of this process, and neither is the daemon's business.
    let opened = host.open(to.to_str().expect("a name"), contract(4_000_000, 1, 2_000));
    assert!(opened.is_err(), "a ring without memory");
}

/// A client of `socket` opens a channel to `to` and has no memory for it; however it ends. The test program needs a test
/// `starved_client` that calls [`be_starved`].
pub fn starve(socket: &Path, to: &str) {
    let own = std::env::current_exe().expect("this program");
    let _ = Command::new(own)
        .args(["--exact", "starved_client", "--nocapture"])
        .envs(STARVED.into_iter().zip([socket.as_os_str(), to.as_ref()]))
        .output()
        .expect("it runs");
}

/// Many clients connect at once, each waits for an answer if it is served at all, and all leave. Returns how
/// many were served.
pub fn crowd(socket: &Path, threads: usize, clients: usize) -> usize {
    let start = Barrier::new(threads);
    std::thread::scope(|scope| {
        let crowds: Vec<_> = (0..threads)
            .map(|_| {
                scope.spawn(|| {
                    start.wait();
                    let clients: Vec<_> =
                        (0..clients).filter_map(|_| Endsystem::connect_to(socket).ok()).collect();
                    clients.iter().filter(|client| client.status().is_ok()).count()
                })
            })
            .collect();
        crowds.into_iter().map(|crowd| crowd.join().expect("no panic")).sum()
    })
}
