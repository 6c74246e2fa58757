//! A hostile holder of either file cannot affect the daemon's mapping of it. The attacks run in this process;
//! another process would make no difference, because seals and page references belong to the file.

use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};

use super::mapping::{HUGE_BYTES, PAGE_BYTES};
use super::*;

const LEN: usize = (5 << 20) + 4_096;

/// A mapping aligned to the size of a huge page, as an attacker makes it.
struct Attacker {
    base: *mut std::ffi::c_void,
    len: usize,
}

impl Attacker {
    fn map(file: &OwnedFd, protection: ProtFlags) -> rustix::io::Result<Self> {
        let len = LEN.next_multiple_of(HUGE_BYTES);
        // SAFETY: fresh mappings; the second one is within the first.
        unsafe {
            let none = ProtFlags::empty();
            let room =
                rustix::mm::mmap_anonymous(ptr::null_mut(), len + HUGE_BYTES, none, MapFlags::PRIVATE)?;
            let at = room.wrapping_byte_add(room.align_offset(HUGE_BYTES));
            let base = mmap(at, len, protection, MapFlags::SHARED | MapFlags::FIXED, file, 0)?;
            Ok(Self { base, len })
        }
    }

    fn advise(&self, advice: i32, len: usize) -> Result<(), io::Error> {
        // SAFETY: the range is mapped, and no code relies on its content.
        let done = unsafe { libc::madvise(self.base, len, advice) };
        if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }
}

impl Drop for Attacker {
    fn drop(&mut self) {
        // SAFETY: it was mapped, and is not borrowed.
        unsafe { munmap(self.base, self.len).expect("unmapped") }
    }
}

/// Page faults of the calling thread.
fn faults() -> i64 {
    // SAFETY: plain numbers, for which all zeroes is valid; the call writes to them only.
    unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        assert_eq!(libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage), 0);
        usage.ru_minflt + usage.ru_majflt
    }
}

/// Faults of reading every page, and of writing too if that is possible.
fn faults_of_touching(mapping: &Mapping, write: bool) -> i64 {
    let before = faults();
    for offset in (0..mapping.len).step_by(PAGE_BYTES) {
        let value = mapping.half(offset).load(Ordering::Relaxed);
        if write {
            mapping.half(offset).store(value + 1, Ordering::Relaxed);
        }
    }
    faults() - before
}

/// All known attacks, through descriptor and mapping; the kernel must refuse them.
fn attack(file: &OwnedFd) {
    let attacker = Attacker::map(file, ProtFlags::READ).expect("for reading");
    assert!(Attacker::map(file, ProtFlags::READ | ProtFlags::WRITE).is_err(), "mapped for writing");
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    assert_eq!(rustix::fs::fallocate(file, punch, 0, LEN as u64), Err(Errno::PERM));
    assert_eq!(rustix::io::pwrite(file, b"x", 0), Err(Errno::PERM));
    assert_eq!(rustix::fs::ftruncate(file, 0), Err(Errno::PERM));
    assert_eq!(rustix::fs::fcntl_add_seals(file, SealFlags::WRITE), Err(Errno::PERM));
    assert!(attacker.advise(libc::MADV_REMOVE, LEN).is_err());
    let collapsed = attacker.advise(libc::MADV_COLLAPSE, attacker.len);
    assert!(collapsed.is_err(), "one huge page in place of many");
    for advice in
        [libc::MADV_PAGEOUT, libc::MADV_COLD, libc::MADV_DONTNEED, libc::MADV_HUGEPAGE, libc::MADV_MERGEABLE]
    {
        // Allowed or not: it is for the attacker's own page tables.
        let _ = attacker.advise(advice, LEN);
    }
    // SAFETY: the range is mapped.
    unsafe {
        let _ = rustix::mm::mlock(attacker.base, LEN);
        let _ = rustix::mm::munlock(attacker.base, LEN);
    }
}

#[test]
fn what_the_daemon_writes_is_its_own_whatever_a_reader_does() {
    for len in [4_096, LEN] {
        let (file, region) = Region::create(len as u64).expect("a region");
        assert_eq!(faults_of_touching(&region.0, true), 0, "all of it is there");
        attack(&file);
        assert_eq!(faults_of_touching(&region.0, true), 0, "{len} B");
        assert!(View::open(&file, len as u64).is_ok(), "a reader who means no harm");
    }
}

#[test]
fn what_the_application_writes_stays_where_it_is_once_it_is_sealed() {
    for len in [4_096, LEN] {
        let (file, offer) = Offer::create(len as u64).expect("a file");
        let region = Region::take(&file, len as u64).expect("sealed");
        region.word(8).store(7, Ordering::Relaxed);
        let view = offer.accept().expect("accepted");
        assert_eq!(view.word(8, Ordering::Relaxed), 7);
        assert_eq!(faults_of_touching(&view.0, false), 0);
        attack(&file);
        // Through the mapping that is older than the seals.
        // SAFETY: the range is mapped.
        let removed = unsafe { madvise(region.0.base.as_ptr().cast(), len, Advice::LinuxRemove) };
        assert_eq!(removed, Err(Errno::PERM));
        assert_eq!(faults_of_touching(&view.0, false), 0, "{len} B");
        region.word(8).store(9, Ordering::Relaxed);
        assert_eq!(view.word(8, Ordering::Relaxed), 9, "it may still be written, by its writer");
    }
}

#[test]
fn a_file_that_is_not_sealed_is_not_read() {
    let (file, offer) = Offer::create(8_192).expect("a file");
    assert!(offer.accept().is_err(), "nothing is sealed");
    let early = Region::map(&file, 8_192).expect("mapped");
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    rustix::fs::fallocate(&file, punch, 0, 8_192).expect("a hole, before it is sealed");
    rustix::fs::fcntl_add_seals(&file, SealFlags::SEAL).expect("the wrong seal");
    assert!(offer.accept().is_err(), "it can be punched for ever");
    drop((early, file, offer));

    let (file, offer) = Offer::create(8_192).expect("a file");
    rustix::fs::fallocate(&file, punch, 0, 8_192).expect("a hole, before it is sealed");
    let region = Region::take(&file, 8_192).expect("sealed");
    assert!(Region::take(&file, 8_192).is_err(), "mapped for writing twice");
    let view = offer.accept().expect("accepted");
    assert_eq!(faults_of_touching(&view.0, false), 0, "holes of before were filled");
    drop(region);
}

#[test]
fn a_foreign_file_is_checked_before_it_is_mapped() {
    let file = rustix::fs::memfd_create("unsealed", MemfdFlags::CLOEXEC).expect("a file");
    rustix::fs::ftruncate(&file, 8_192).expect("a size");
    assert!(View::open(&file, 4_096).is_err() && Region::take(&file, 4_096).is_err());
    let (file, _region) = Region::create(4_096).expect("a region");
    assert!(rustix::fs::ftruncate(&file, 0).is_err(), "it is sealed");
    assert!(View::open(&file, 8_192).is_err(), "it is shorter than promised");
    assert!(Region::create(0).is_err() && Offer::create(REGION_BYTES_MAX + 1).is_err());
}
