//! Memory whose pages are not present: a copy to them waits for another process.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

use rustix::fs::{FallocateFlags, MemfdFlags};
use rustix::mm::{MapFlags, ProtFlags};

use crate::attacker::NOBODY;
use crate::field::child;

/// Of the attacker's memory, most of which is taken away while its last page is written to.
const HOLLOW_BYTES: usize = 256 << 20;
const PAGE_BYTES: usize = 4_096;
/// Of a file that a file server never reads.
const SERVED_PAGES: usize = 256;

/// Whom a writer to the page waits for.
#[derive(Clone, Copy, Debug)]
pub enum Page {
    /// A server of files (FUSE) that is asked for the page and never answers.
    Served,
    /// A handler of page faults (`userfaultfd`) that does not handle them.
    Handled,
    /// A thread that takes all of the same file away, again and again.
    Hollow,
}

/// Where such pages are, and how many.
#[derive(Clone, Copy, Debug)]
pub struct Memory {
    at: usize,
    pages: usize,
}

impl Page {
    /// Done with the rights that a host gives to users by opening `/dev/fuse` or `/dev/userfaultfd` to them.
    pub fn lay(self) -> Memory {
        match self {
            Self::Served => Memory { at: served(), pages: SERVED_PAGES },
            Self::Handled => Memory { at: handled(), pages: SERVED_PAGES },
            Self::Hollow => Memory { at: hollow(), pages: 1 },
        }
    }
}

impl Memory {
    /// Where reader `number` reads to.
    pub fn page(self, number: usize) -> *mut libc::c_void {
        (self.at + number % self.pages * PAGE_BYTES) as *mut libc::c_void
    }
}

fn map(file: &OwnedFd, bytes: usize, flags: MapFlags) -> usize {
    // SAFETY: a fresh mapping, which is kept for ever and which no code relies on.
    let base = unsafe {
        rustix::mm::mmap(std::ptr::null_mut(), bytes, ProtFlags::READ | ProtFlags::WRITE, flags, file, 0)
    };
    base.expect("mapped") as usize
}

fn hollow() -> usize {
    let file = rustix::fs::memfd_create("hollow", MemfdFlags::CLOEXEC).expect("a file");
    rustix::fs::ftruncate(&file, HOLLOW_BYTES as u64).expect("a size");
    let base = map(&file, HOLLOW_BYTES, MapFlags::SHARED);
    std::thread::spawn(move || {
        let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        loop {
            rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, HOLLOW_BYTES as u64).expect("filled");
            rustix::fs::fallocate(&file, punch, 0, HOLLOW_BYTES as u64).expect("punched");
        }
    });
    base + HOLLOW_BYTES - PAGE_BYTES
}

fn handled() -> usize {
    const NEW: libc::c_ulong = 0xaa00;
    const API: libc::c_ulong = 0xc018_aa3f;
    const REGISTER: libc::c_ulong = 0xc020_aa00;
    const VERSION: u64 = 0xaa;
    const MISSING: u64 = 1;
    let device = std::fs::OpenOptions::new().read(true).write(true).open("/dev/userfaultfd");
    let device = device.expect("/dev/userfaultfd");
    let bytes = SERVED_PAGES * PAGE_BYTES;
    // SAFETY: as the kernel's documentation has it; a fresh mapping, and structures of the sizes in the numbers.
    unsafe {
        let handler = libc::ioctl(device.as_raw_fd(), NEW, libc::O_CLOEXEC);
        assert!(handler >= 0, "a handler of faults");
        let mut api = [VERSION, 0, 0];
        assert_eq!(libc::ioctl(handler, API, api.as_mut_ptr()), 0, "its version");
        let none = std::ptr::null_mut();
        let base =
            rustix::mm::mmap_anonymous(none, bytes, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
        let base = base.expect("mapped") as usize;
        let mut range = [base as u64, bytes as u64, MISSING, 0];
        assert_eq!(libc::ioctl(handler, REGISTER, range.as_mut_ptr()), 0, "registered");
        base
    }
}

/// A file system of one file, mounted nowhere; a process serves it that ends with this one. All pages of the file are asked
/// for and never come.
fn served() -> usize {
    let device = std::fs::OpenOptions::new().read(true).write(true).open("/dev/fuse").expect("/dev/fuse");
    let device = OwnedFd::from(device);
    let number = device.as_raw_fd();
    let mount = mount(number);
    child(move || {
        // A process that ends with another user's process has to belong to that user.
        // SAFETY: of this process, which is a child.
        unsafe {
            libc::syscall(libc::SYS_setresuid, NOBODY, NOBODY, NOBODY);
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        }
        serve(number);
    });
    // Only the server has it now: where that ends, so does the file system, and all who wait for it.
    drop(device);
    let file = rustix::fs::openat(&mount, c"page", rustix::fs::OFlags::RDWR, rustix::fs::Mode::empty());
    map(&file.expect("the file"), SERVED_PAGES * PAGE_BYTES, MapFlags::PRIVATE)
}

fn mount(device: RawFd) -> OwnedFd {
    const SET_STRING: u32 = 1;
    const CREATE: u32 = 6;
    // SAFETY: strings of ours that end with zero; the kernel gives fresh descriptors.
    unsafe {
        let system = libc::syscall(libc::SYS_fsopen, c"fuse".as_ptr(), 1);
        assert!(system >= 0, "fuse");
        let set = |key: &str, value: &str| {
            let [key, value] = [key, value].map(|text| std::ffi::CString::new(text).expect("a text"));
            let [key, value] = [&key, &value].map(|text| text.as_ptr());
            assert_eq!(libc::syscall(libc::SYS_fsconfig, system, SET_STRING, key, value, 0), 0);
        };
        set("source", "attack");
        set("fd", &device.to_string());
        set("rootmode", "40000");
        set("user_id", "0");
        set("group_id", "0");
        let none = std::ptr::null::<libc::c_char>();
        assert_eq!(libc::syscall(libc::SYS_fsconfig, system, CREATE, none, none, 0), 0, "a file system");
        let mount = libc::syscall(libc::SYS_fsmount, system, 1, 0);
        assert!(mount >= 0, "a mount: {}", std::io::Error::last_os_error());
        libc::close(system as i32);
        OwnedFd::from_raw_fd(mount as i32)
    }
}

/// Answers whatever has to be answered before the file can be read, and nothing more. Allocates nothing.
fn serve(device: RawFd) {
    const LOOKUP: u32 = 1;
    const FORGET: u32 = 2;
    const GETATTR: u32 = 3;
    const OPEN: u32 = 14;
    const READ: u32 = 15;
    const INIT: u32 = 26;
    const INTERRUPT: u32 = 36;
    const FORGET_MANY: u32 = 42;
    let mut request = [0_u8; 1 << 17];
    loop {
        // SAFETY: the buffer is this function's own.
        let read = unsafe { libc::read(device, request.as_mut_ptr().cast(), request.len()) };
        if read < 40 {
            return;
        }
        let word =
            |at: usize| u32::from_ne_bytes([request[at], request[at + 1], request[at + 2], request[at + 3]]);
        let (operation, node) = (word(4), word(16));
        let mut answer = [0_u8; 16 + 128];
        answer[8..16].copy_from_slice(&request[8..16]);
        let mut put = |at: usize, value: u32| answer[16 + at..][..4].copy_from_slice(&value.to_ne_bytes());
        let bytes = match operation {
            READ | FORGET | FORGET_MANY | INTERRUPT => continue,
            INIT => {
                put(0, 7);
                put(4, 31);
                put(16, 0x10_0010);
                put(20, 4_096);
                64
            }
            LOOKUP => {
                put(0, 2);
                attributes(&mut put, 40, 2);
                128
            }
            GETATTR => {
                attributes(&mut put, 16, node);
                104
            }
            OPEN => 16,
            _ => {
                answer[4..8].copy_from_slice(&(-libc::ENOSYS).to_ne_bytes());
                0
            }
        };
        answer[..4].copy_from_slice(&(bytes as u32 + 16).to_ne_bytes());
        // SAFETY: as above.
        unsafe { libc::write(device, answer.as_ptr().cast(), bytes + 16) };
    }
}

/// Of the folder, node 1, or of the file in it.
fn attributes(put: &mut impl FnMut(usize, u32), at: usize, node: u32) {
    put(at, node);
    put(at + 8, (SERVED_PAGES * PAGE_BYTES) as u32);
    put(at + 60, if node == 1 { 0o40_755 } else { 0o100_666 });
    put(at + 64, 1);
    put(at + 80, 4_096);
}

/// Whether a process ends within 300 ms that writes a byte, without waiting, to a pipe that a thread of it reads into memory.
fn does_end(page: Option<Page>) -> bool {
    let process = child(move || {
        let (reading, writing) = std::io::pipe().expect("a pipe");
        let mut plain = [0_u8; 1];
        let to = page.map_or(plain.as_mut_ptr().cast(), |page| page.lay().page(0)) as usize;
        let (reading, writing) = (reading.as_raw_fd(), writing.as_raw_fd());
        // SAFETY: one byte of memory that is there until the process has ended.
        unsafe {
            libc::write(writing, [1_u8; 2].as_ptr().cast(), 2);
            std::thread::spawn(move || libc::read(reading, to as *mut libc::c_void, 1));
            std::thread::sleep(Duration::from_millis(50));
            // On a thread of its own: the file server ends with this one, which must be able to.
            let writer = std::thread::spawn(move || {
                libc::fcntl(writing, libc::F_SETFL, libc::O_NONBLOCK);
                libc::write(writing, [1_u8].as_ptr().cast(), 1)
            });
            let _ = writer.join();
        }
    });
    // SAFETY: a child of this process.
    unsafe {
        let has_ended = || {
            std::thread::sleep(Duration::from_millis(10));
            libc::waitpid(process, std::ptr::null_mut(), libc::WNOHANG) == process
        };
        let ended = (0..30).any(|_| has_ended());
        if !ended {
            libc::kill(process, libc::SIGKILL);
            libc::waitpid(process, std::ptr::null_mut(), 0);
        }
        ended
    }
}

/// Use of these pages: a process that reads a pipe into one keeps its lock, and so blocks all that write there.
#[test]
fn a_page_that_is_not_there_keeps_the_writer_of_a_pipe_waiting() {
    let _alone = crate::judge::alone();
    assert!(does_end(None), "into a page that is there");
    for page in [Page::Served, Page::Handled] {
        assert!(!does_end(Some(page)), "{page:?}");
    }
}
