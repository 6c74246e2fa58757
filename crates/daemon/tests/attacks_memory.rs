//! A program that takes pages out of the files of its own ring, or never seals what it writes: the processor's thread takes
//! no page fault, and the program has nothing of it.

mod common;

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

use common::attack::{World, begun, orders};
use common::eventually;
use common::raw::Raw;
use punctual_ipc::api::{Answer, Request};
use punctual_ipc::ring::RingShape;
use punctual_proto::ids::ChannelId;
use rustix::fs::{FallocateFlags, SealFlags};
use rustix::mm::{MapFlags, ProtFlags};
use rustix::net::Shutdown;

const SPAN: Duration = Duration::from_secs(2);
const HUGE_BYTES: usize = 2 << 20;

/// A flow of the attacker's own: its two files and its doorbell.
struct Flow {
    channel: ChannelId,
    shape: RingShape,
    files: Vec<OwnedFd>,
    doorbell: OwnedFd,
}

impl Flow {
    fn open(raw: &Raw) -> Self {
        let ring = RingShape::new(64, 60_000).expect("a shape");
        let flow = Request::OpenBestEffort { to: "bulk@b".parse().expect("an address"), ring };
        let (answer, mut descriptors) = raw.ask(flow);
        let Ok(Answer::Ring { channel, .. }) = answer else { panic!("{answer:?}") };
        let doorbell = descriptors.remove(3);
        descriptors.truncate(2);
        Self { channel, shape: ring, files: descriptors, doorbell }
    }

    /// Maps the program's file and seals it, as the library does.
    fn seal(&self) -> *mut libc::c_void {
        let base = map(&self.files[1], self.shape.file_bytes() as usize, ProtFlags::READ | ProtFlags::WRITE);
        let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::FUTURE_WRITE | SealFlags::SEAL;
        rustix::fs::fcntl_add_seals(&self.files[1], seals).expect("sealed");
        base.expect("mapped")
    }

    fn attach(&self, raw: &Raw) -> Result<Answer, punctual_ipc::api::ApiError> {
        raw.ask(Request::Attached { channel: self.channel }).0
    }

    fn ring(&self) {
        let _ = rustix::io::write(&self.doorbell, &1_u64.to_ne_bytes());
        let _ = rustix::net::shutdown(&self.doorbell, Shutdown::Write);
    }
}

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

/// Everything that is known to take a page away from somebody else, once. How much of it was allowed.
fn take_pages_away(file: &OwnedFd, base: *mut libc::c_void, len: usize) -> usize {
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    let advise = |advice, len| {
        // SAFETY: the range is mapped, and nobody relies on what is in it.
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
    // Allowed to everybody, with their own page tables.
    for advice in [libc::MADV_PAGEOUT, libc::MADV_COLD, libc::MADV_DONTNEED, libc::MADV_FREE] {
        advise(advice, len);
    }
    done.into_iter().filter(|done| *done).count()
}

/// Not a test by itself: what the hostile program does.
#[test]
fn attacker() {
    let Some((attack, sockets)) = orders() else { return };
    assert_eq!(attack, "take-pages-away");
    let raw = Raw::greeted(&sockets[0]);
    let flow = Flow::open(&raw);
    flow.seal();
    flow.attach(&raw).expect("attached");
    let len = flow.shape.file_bytes() as usize;
    let bases: Vec<_> =
        flow.files.iter().map(|file| map(file, len, ProtFlags::READ).expect("mapped")).collect();
    begun();
    loop {
        for (file, base) in flow.files.iter().zip(&bases) {
            assert_eq!(take_pages_away(file, *base, len), 0, "of file {}", file.as_raw_fd());
        }
        flow.ring();
    }
}

#[test]
fn whoever_takes_pages_away_from_its_ring_gives_the_processor_no_fault() {
    let mut world = World::start("pages", 100);
    let mut attacker = world.attack("take-pages-away");
    let before = world.faults();
    let harm = world.observe(SPAN);
    assert_eq!(world.faults(), before, "page faults of the processors' threads");
    assert_eq!((harm.lost, harm.sent), (0, (SPAN.as_millis() / 10) as u64));
    assert!(attacker.is_running(), "nothing was allowed");
    drop(attacker);
    world.end();
}

#[test]
fn what_is_not_sealed_is_not_looked_at_and_counts_all_the_same() {
    let world = World::start("unsealed", 101);
    let raw = Raw::greeted(&world.daemons[0].socket);
    let used = || -> u64 {
        let users = world.watch[0].status().expect("status").users;
        users.iter().map(|user| user.buffer_bytes).sum()
    };
    let idle = used();
    let flow = Flow::open(&raw);
    assert_eq!(used(), idle + flow.shape.bytes(), "it counts from the beginning");
    // Sealed in no way, then in a wrong one, and written to, punched and rung all the while.
    let len = flow.shape.file_bytes() as usize;
    let base = map(&flow.files[1], len, ProtFlags::READ | ProtFlags::WRITE).expect("mapped");
    let before = world.faults();
    let until = Instant::now() + Duration::from_millis(300);
    while Instant::now() < until {
        // SAFETY: the first word of a mapping for writing, which only this thread touches.
        unsafe { base.cast::<u64>().write_volatile(u64::MAX / 3) };
        flow.ring();
        take_pages_away(&flow.files[1], base, len);
        assert!(flow.attach(&raw).is_err(), "it is not sealed");
    }
    assert_eq!(world.faults(), before, "page faults of the processors' threads");
    assert_eq!(world.watch[0].status().expect("status").api.broken_rings, 0, "nobody has looked");

    // Sealed, twice told, and full of nonsense: now it is looked at, and broken.
    // SAFETY: as above.
    unsafe { base.cast::<u64>().write_volatile(0) };
    flow.seal();
    assert_eq!(flow.attach(&raw), Ok(Answer::Done));
    assert_eq!(flow.attach(&raw), Ok(Answer::Done), "once or twice");
    // SAFETY: as above.
    unsafe { base.cast::<u64>().write_volatile(u64::MAX / 3) };
    flow.ring();
    eventually("the ring is given up", || world.watch[0].status().expect("status").api.broken_rings == 1);
    eventually("its memory is given back", || used() == idle);
    assert_eq!(world.faults(), before);

    // One that is never sealed is as good as any other to get rid of, and one whose file is sealed for ever without what
    // is needed never works.
    let (open, wrong) = (Flow::open(&raw), Flow::open(&raw));
    rustix::fs::fcntl_add_seals(&wrong.files[1], SealFlags::SEAL).expect("the wrong seal");
    assert!(wrong.attach(&raw).is_err());
    assert!(open.attach(&raw).is_err());
    drop(raw);
    eventually("its memory is given back", || used() == idle);
    world.end();
}
