//! Memory files of rings: all that a program can do to files and mappings that it shares with a daemon. The processor's
//! thread takes no page fault, and the program has nothing of it.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use punctual_ipc::api::{Answer, Request};
use punctual_ipc::ring::RingShape;
use punctual_proto::ids::ChannelId;
use punctual_trial::Defence;
use rustix::fs::{FallocateFlags, OFlags, SealFlags};
use rustix::mm::{MapFlags, ProtFlags};

use crate::attacker::{Mechanism, lacks};
use crate::common::eventually;
use crate::common::raw::Raw;
use crate::field::{Field, SOURCE_SOCKET, flow, repeat, ring, threads};
use crate::judge::{Bounds, alone};
use crate::proc;
use crate::world::{SOURCE, World};

const HUGE_BYTES: usize = 2 << 20;
const SEALED: &str = "rings are sealed against later writes, and one page of each 2 MiB is held";
const RINGER: &str = "rings are unmapped and closed by the user's ringer";
const CHECKED: &str = "every value in a ring is read once and checked";
const HELD: &str = "rings count in the user's quota of memory";
/// Rings are opened and closed: those that still wait for the ringer count in the user's quota.
const OPENS_RINGS: Bounds = Bounds { grown_kib_max: 72 << 10, ..Bounds::DEFAULT };

pub const MECHANISMS: &[Mechanism] = &[
    Mechanism { bounds: OPENS_RINGS, ..Mechanism::new("pages-taken-away", SEALED, take_away) },
    Mechanism { bounds: OPENS_RINGS, ..Mechanism::new("files-opened-anew", SEALED, open_anew) },
    Mechanism { bounds: OPENS_RINGS, ..Mechanism::new("mapped-a-thousandfold", RINGER, map_often) },
    Mechanism { bounds: OPENS_RINGS, ..Mechanism::new("locks-on-files", RINGER, lock_files) },
    Mechanism { bounds: OPENS_RINGS, ..Mechanism::new("watched-files", RINGER, watch_files) },
    Mechanism { bounds: OPENS_RINGS, ..Mechanism::new("scribbled-rings", CHECKED, scribble) },
    Mechanism { bounds: OPENS_RINGS, ..Mechanism::new("hoarded-rings", HELD, hoard) },
];

/// At a multiple of what one huge page takes, in whole ones.
fn map(file: impl AsFd, len: usize, protection: ProtFlags) -> rustix::io::Result<*mut libc::c_void> {
    let len = len.next_multiple_of(HUGE_BYTES);
    // SAFETY: fresh mappings; the second one lies within the first.
    unsafe {
        let none = std::ptr::null_mut();
        let room = rustix::mm::mmap_anonymous(none, len + HUGE_BYTES, ProtFlags::empty(), MapFlags::PRIVATE)?;
        let at = room.wrapping_byte_add(room.align_offset(HUGE_BYTES));
        rustix::mm::mmap(at, len, protection, MapFlags::SHARED | MapFlags::FIXED, file, 0)
    }
}

/// A flow of the attacker's own: its two files and its doorbell.
struct Flow {
    channel: ChannelId,
    shape: RingShape,
    files: Vec<OwnedFd>,
    doorbell: OwnedFd,
}

impl Flow {
    fn open(raw: &Raw) -> Self {
        Self::open_with(raw, RingShape::new(64, 60_000).expect("a shape"))
    }

    fn open_with(raw: &Raw, shape: RingShape) -> Self {
        let (channel, shape, mut files) = flow(raw, shape);
        let doorbell = files.remove(3);
        files.truncate(2);
        Self { channel, shape, files, doorbell }
    }

    /// Maps the program's file and seals it, as the library does.
    fn seal(&self) -> *mut libc::c_void {
        let base = map(&self.files[1], self.shape.file_bytes() as usize, ProtFlags::READ | ProtFlags::WRITE);
        if !lacks(Defence::SealedRings) {
            let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::FUTURE_WRITE | SealFlags::SEAL;
            rustix::fs::fcntl_add_seals(&self.files[1], seals).expect("sealed");
        }
        base.expect("mapped")
    }

    fn attach(&self, raw: &Raw) -> Result<Answer, punctual_ipc::api::ApiError> {
        raw.ask(Request::Attached { channel: self.channel }).0
    }
}

/// Every known way to take a page from another process, once. Returns how many were allowed.
fn take_pages_away(file: &OwnedFd, base: *mut libc::c_void, len: usize) -> usize {
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    // Whole again, if it had a hole.
    let _ = rustix::fs::fallocate(file, FallocateFlags::empty(), 0, len as u64);
    let advise = |advice, len| {
        // SAFETY: the range is mapped, and no code relies on its content.
        unsafe { libc::madvise(base, len, advice) == 0 }
    };
    let whole = len.next_multiple_of(HUGE_BYTES);
    let done = [
        rustix::fs::fallocate(file, punch, 0, len as u64).is_ok(),
        rustix::fs::ftruncate(file, 0).is_ok(),
        rustix::io::pwrite(file, b"x", 0).is_ok(),
        advise(libc::MADV_REMOVE, len),
        advise(libc::MADV_COLLAPSE, whole),
    ];
    // Allowed to every process, with its own page tables.
    for advice in [libc::MADV_PAGEOUT, libc::MADV_COLD, libc::MADV_DONTNEED, libc::MADV_FREE] {
        advise(advice, len);
    }
    page_out_from_outside(base, len);
    done.into_iter().filter(|done| *done).count()
}

/// As one process may do it to another.
fn page_out_from_outside(base: *mut libc::c_void, len: usize) {
    // SAFETY: asked of this very process, whose range it is.
    unsafe {
        let process = libc::syscall(libc::SYS_pidfd_open, libc::getpid(), 0);
        let range = libc::iovec { iov_base: base, iov_len: len };
        for advice in [libc::MADV_PAGEOUT, libc::MADV_COLD, libc::MADV_WILLNEED, libc::MADV_COLLAPSE] {
            libc::syscall(libc::SYS_process_madvise, process, &raw const range, 1, advice, 0);
        }
        libc::close(process as i32);
    }
}

/// Files that are mapped, sealed and looked at by the daemon, or the program's own.
fn in_use(field: &Field) -> (Vec<OwnedFd>, Option<OwnedFd>, usize) {
    if field.own {
        let files = field.files();
        return (files.files, None, files.bytes);
    }
    let raw = Raw::greeted(Path::new(SOURCE_SOCKET));
    // The larger, the longer a hole takes.
    let flow = Flow::open_with(&raw, RingShape::new(512, 60_000).expect("a shape"));
    flow.seal();
    flow.attach(&raw).expect("attached");
    std::mem::forget(raw);
    let bytes = flow.shape.file_bytes() as usize;
    (flow.files, Some(flow.doorbell), bytes)
}

fn take_away(field: &Field) {
    let own = field.own || lacks(Defence::SealedRings);
    let (files, doorbell, bytes) = in_use(field);
    let bases: Vec<_> =
        files.iter().map(|file| map(file, bytes, ProtFlags::READ).expect("mapped") as usize).collect();
    std::thread::spawn(move || {
        loop {
            for (file, base) in files.iter().zip(&bases) {
                let allowed = take_pages_away(file, *base as *mut libc::c_void, bytes);
                assert!(own || allowed == 0, "of file {}", file.as_raw_fd());
            }
        }
    });
    // It is looked at while that goes on.
    repeat(Duration::from_micros(200), move || doorbell.iter().for_each(ring));
}

/// By their names in /proc, for writing: a file that is opened anew has another mode, and older mappings none of it.
fn open_anew(field: &Field) {
    let own = field.own || lacks(Defence::SealedRings);
    let (files, doorbell, bytes) = in_use(field);
    // It is looked at while that goes on.
    repeat(Duration::from_micros(200), move || doorbell.iter().for_each(ring));
    threads(1, move |_| {
        for file in &files {
            let path = format!("self/fd/{}", file.as_raw_fd());
            assert!(own || proc::open(&path, OFlags::RDONLY).is_ok(), "it may be opened anew");
            let modes = [OFlags::RDWR, OFlags::RDWR | OFlags::TRUNC, OFlags::WRONLY | OFlags::TRUNC];
            for mode in modes {
                // If a file must not be opened for writing at all, there is nothing to do.
                let Ok(anew) = proc::open(&path, mode) else { continue };
                let base = map(&anew, bytes, ProtFlags::READ | ProtFlags::WRITE);
                assert!(own || base.is_err(), "mapped for writing");
                let base = base.or_else(|_| map(&anew, bytes, ProtFlags::READ));
                let Ok(base) = base else { continue };
                let allowed = take_pages_away(&anew, base, bytes);
                assert!(own || allowed == 0, "of a file that was opened anew");
                // SAFETY: of this function alone.
                unsafe {
                    libc::mprotect(base, bytes, libc::PROT_READ | libc::PROT_WRITE);
                    libc::munmap(base, bytes);
                    libc::fchmod(anew.as_raw_fd(), 0);
                }
            }
        }
    });
}

/// The longer the list of a file's mappings, the longer it takes to remove one; it is changed all the time.
fn map_often(field: &Field) {
    const TIMES: usize = 4_000;
    let own = field.own;
    threads(1, move |_| {
        let raw = (!own).then(|| Raw::greeted(Path::new(SOURCE_SOCKET)));
        let (channel, files) = fresh(own, raw.as_ref());
        let bases: Vec<usize> = (0..TIMES)
            .filter_map(|number| {
                let file = &files[number % 2];
                // SAFETY: a fresh mapping, taken away below.
                let base = unsafe {
                    let none = std::ptr::null_mut();
                    rustix::mm::mmap(none, 4_096 * 8, ProtFlags::READ, MapFlags::SHARED, file, 0)
                };
                base.ok().map(|base| base as usize)
            })
            .collect();
        for base in bases.iter().map(|base| *base as *mut libc::c_void) {
            // SAFETY: of this function alone.
            unsafe {
                libc::mprotect(base, 4_096, libc::PROT_NONE);
                libc::msync(base, 4_096, libc::MS_SYNC);
                libc::mlock(base, 4_096);
                let moved = libc::mremap(base, 4_096 * 8, 4_096 * 16, libc::MREMAP_MAYMOVE);
                libc::madvise(moved, 4_096 * 8, libc::MADV_PAGEOUT);
            }
        }
        close(raw, channel);
        for base in bases {
            // SAFETY: where it was not moved it is this function's; else it is unused, or freed with the process.
            unsafe { libc::munmap(base as *mut libc::c_void, 4_096 * 8) };
        }
    });
}

/// Files of a ring that is not attached, and its channel.
fn fresh(own: bool, raw: Option<&Raw>) -> (Option<ChannelId>, Vec<OwnedFd>) {
    let Some(raw) = raw else {
        assert!(own);
        return (None, Field { own, page: None }.files().files);
    };
    let flow = Flow::open(raw);
    (Some(flow.channel), flow.files)
}

fn close(raw: Option<Raw>, channel: Option<ChannelId>) {
    if let (Some(raw), Some(channel)) = (raw, channel) {
        raw.ask(Request::Close { channel }).0.expect("closed");
    }
}

/// Closing a file searches all record locks on it, also those of others.
fn lock_files(field: &Field) {
    const LOCKS: i64 = 4_000;
    let own = field.own;
    threads(1, move |_| {
        let raw = (!own).then(|| Raw::greeted(Path::new(SOURCE_SOCKET)));
        let (channel, files) = fresh(own, raw.as_ref());
        for number in files.iter().map(AsRawFd::as_raw_fd) {
            // SAFETY: a structure of this function's.
            unsafe {
                let mut lock: libc::flock = std::mem::zeroed();
                lock.l_len = 1;
                for place in 0..LOCKS {
                    lock.l_start = place * 2;
                    lock.l_type = libc::F_RDLCK as i16;
                    libc::fcntl(
                        number,
                        if place % 2 == 0 { libc::F_SETLK } else { libc::F_OFD_SETLK },
                        &raw const lock,
                    );
                }
                libc::fcntl(number, 1024 /* F_SETLEASE */, libc::F_RDLCK);
                libc::flock(number, libc::LOCK_EX | libc::LOCK_NB);
            }
        }
        close(raw, channel);
    });
}

/// Watches of every kind on a file: each closing tells all of them.
fn watch_files(field: &Field) {
    const WATCHERS: usize = 100;
    let own = field.own;
    threads(1, move |_| {
        let raw = (!own).then(|| Raw::greeted(Path::new(SOURCE_SOCKET)));
        let (channel, files) = fresh(own, raw.as_ref());
        let watchers: Vec<i32> = (0..WATCHERS)
            // SAFETY: fresh descriptors, closed below.
            .map(|_| unsafe { libc::inotify_init1(libc::IN_NONBLOCK | libc::IN_CLOEXEC) })
            .take_while(|watcher| *watcher >= 0)
            .collect();
        for file in &files {
            let path = std::ffi::CString::new(format!("self/fd/{}", file.as_raw_fd())).expect("a path");
            proc::inside(|| {
                for watcher in &watchers {
                    // SAFETY: a path of this function's.
                    let watch =
                        unsafe { libc::inotify_add_watch(*watcher, path.as_ptr(), libc::IN_ALL_EVENTS) };
                    assert!(own || watch >= 0, "it may be watched");
                }
            });
        }
        close(raw, channel);
        for watcher in watchers {
            // SAFETY: no other code has this number.
            unsafe { libc::close(watcher) };
        }
    });
}

/// Positions, tickets and lengths that change all the time, in ring after ring.
fn scribble(field: &Field) {
    let own = field.own;
    threads(1, move |_| {
        if own {
            let files = Field { own, page: None }.files();
            let base = map(&files.files[1], files.bytes, ProtFlags::READ | ProtFlags::WRITE).expect("mapped");
            write_nonsense(base, files.bytes);
            return;
        }
        let raw = Raw::greeted(Path::new(SOURCE_SOCKET));
        let flow = Flow::open(&raw);
        let base = flow.seal();
        flow.attach(&raw).expect("attached");
        for _ in 0..4 {
            write_nonsense(base, flow.shape.file_bytes() as usize);
            ring(&flow.doorbell);
        }
        // Broken by now, or not.
        let _ = raw.ask(Request::Close { channel: flow.channel });
        // SAFETY: of this function alone.
        unsafe { libc::munmap(base, (flow.shape.file_bytes() as usize).next_multiple_of(HUGE_BYTES)) };
    });
}

/// As many rings of 4 MiB as can be had, all in use and never given back.
fn hoard(field: &Field) {
    let own = field.own;
    std::thread::spawn(move || {
        let raw = (!own).then(|| Raw::greeted(Path::new(SOURCE_SOCKET)));
        loop {
            match &raw {
                None => drop(Field { own, page: None }.files()),
                Some(raw) => {
                    // Waits where the quota is full.
                    let flow = Flow::open(raw);
                    flow.seal();
                    flow.attach(raw).expect("attached");
                    std::mem::forget(flow);
                }
            }
        }
    });
}

fn write_nonsense(base: *mut libc::c_void, bytes: usize) {
    let begin = Instant::now();
    let mut state = begin.elapsed().as_nanos() as u64 | 1;
    for _ in 0..2_000 {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        // The first page more often than all others: positions and lengths are there.
        let at = (state >> 33) as usize % if state & 1 == 0 { 512 } else { bytes / 8 };
        let value = if state & 2 == 0 { state >> 40 } else { state };
        // SAFETY: a word of the mapping, which only this thread touches.
        unsafe { base.cast::<u64>().add(at).write_volatile(value) };
    }
}

#[test]
fn pages_removed_from_a_ring_cause_no_fault_in_the_processor() {
    const SPAN: Duration = Duration::from_secs(1);
    let _alone = alone();
    let mechanism = Mechanism::find("pages-taken-away");
    let mut world = World::start("faults", mechanism.setup);
    let mut attacker = crate::attacker::begin(&world, mechanism, false);
    let before = world.faults();
    let memory = world.memory();
    let harm = world.observe(SPAN, &memory);
    assert_eq!(world.faults(), before, "page faults of the processor's thread");
    assert_eq!((harm.lost, harm.sent), (0, (SPAN.as_millis() / 10) as u64));
    assert!(attacker.is_running(), "nothing was allowed");
    drop(attacker);
    world.end();
}

#[test]
fn unsealed_files_are_not_read_and_still_count() {
    let _alone = alone();
    let world = World::start("unsealed", Mechanism::find("pages-taken-away").setup);
    let raw = Raw::greeted(&world.daemons[SOURCE].socket);
    let status = || world.watch[SOURCE].status().expect("status");
    let used = || -> u64 { status().users.iter().map(|user| user.buffer_bytes).sum() };
    let idle = used();
    let flow = Flow::open(&raw);
    assert_eq!(used(), idle + flow.shape.outbox_bytes(), "it counts from the beginning");
    // Sealed in no way, then in a wrong one, and written to, punched and rung all the while.
    let len = flow.shape.file_bytes() as usize;
    let base = map(&flow.files[1], len, ProtFlags::READ | ProtFlags::WRITE).expect("mapped");
    let before = world.faults();
    let until = Instant::now() + Duration::from_millis(300);
    while Instant::now() < until {
        // SAFETY: the first word of a mapping for writing, which only this thread touches.
        unsafe { base.cast::<u64>().write_volatile(u64::MAX / 3) };
        ring(&flow.doorbell);
        take_pages_away(&flow.files[1], base, len);
        assert!(flow.attach(&raw).is_err(), "it is not sealed");
    }
    assert_eq!(world.faults(), before, "page faults of the processor's thread");
    assert_eq!(status().api.broken_rings, 0, "they are not checked yet");

    // Sealed, notified twice, and full of nonsense: now it is checked, and found broken.
    // SAFETY: as above.
    unsafe { base.cast::<u64>().write_volatile(0) };
    let sealed = flow.seal();
    assert_eq!(flow.attach(&raw), Ok(Answer::Done));
    assert_eq!(flow.attach(&raw), Ok(Answer::Done), "once or twice");
    // SAFETY: as above.
    unsafe { base.cast::<u64>().write_volatile(u64::MAX / 3) };
    ring(&flow.doorbell);
    eventually("the ring is given up", || status().api.broken_rings == 1);
    // SAFETY: of this function alone.
    let done = [base, sealed].map(|base| unsafe { libc::munmap(base, len.next_multiple_of(HUGE_BYTES)) });
    assert_eq!(done, [0, 0], "no process holds the files any more");
    drop(flow);
    eventually("its memory is given back", || used() == idle);
    assert_eq!(world.faults(), before);

    // One that is never sealed is as good as any other to get rid of, and one whose file is sealed for ever without what
    // is needed never works.
    let (open, wrong) = (Flow::open(&raw), Flow::open(&raw));
    rustix::fs::fcntl_add_seals(&wrong.files[1], SealFlags::SEAL).expect("the wrong seal");
    assert!(wrong.attach(&raw).is_err());
    assert!(open.attach(&raw).is_err());
    drop((raw, open, wrong));
    eventually("its memory is given back", || used() == idle);
    world.end();
}
