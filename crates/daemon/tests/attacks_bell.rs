//! A receiver that does to its bell what it can: others lose nothing, and the processor does not wait for it.

mod common;

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::Duration;

use common::attack::{Losses, PERIOD, World, assert_no_worse, begun, crowd, exchange, orders, own_channel};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fs::{FallocateFlags, MemfdFlags, OFlags, fcntl_setfl};

const SPAN: Duration = Duration::from_secs(4);
/// Of the attacker's memory, most of which is taken away while its last page is written to.
const HOLLOW_BYTES: usize = 1 << 30;

/// Not a test by itself: what the hostile program does.
#[test]
fn attacker() {
    let Some((attack, sockets)) = orders() else { return };
    match attack.as_str() {
        "crowd-at-the-bell" => {
            let mut own = own_channel(&sockets);
            crowd(own.1.as_fd());
            begun();
            loop {
                exchange(&mut own);
            }
        }
        "crowd-at-its-own" => {
            let bell = eventfd(0, EventfdFlags::NONBLOCK).expect("an eventfd");
            crowd(bell.as_fd());
            begun();
            loop {
                std::thread::sleep(PERIOD);
                rustix::io::write(&bell, &1_u64.to_ne_bytes()).expect("rung");
            }
        }
        "reader-into-a-hole" => {
            let mut own = own_channel(&sockets);
            read_into_a_hole(own.1.as_fd().as_raw_fd());
            begun();
            loop {
                exchange(&mut own);
            }
        }
        "reader-of-its-own" => {
            let bell = eventfd(0, EventfdFlags::empty()).expect("an eventfd");
            read_into_a_hole(bell.as_raw_fd());
            begun();
            loop {
                std::thread::sleep(PERIOD);
                rustix::io::write(&bell, &1_u64.to_ne_bytes()).expect("rung");
            }
        }
        "bell-that-takes-no-more" => {
            let mut own = own_channel(&sockets);
            let bell = own.1.as_fd().try_clone_to_owned().expect("a descriptor");
            // All copies are of one file: whoever writes it waits from now on.
            fill(&bell);
            begun();
            loop {
                let _ = own.0.try_send(&[0; 100]);
                fill(&bell);
                std::thread::sleep(PERIOD);
            }
        }
        other => panic!("{other}"),
    }
}

/// The bell's counter takes not one ring more.
fn fill(bell: &OwnedFd) {
    let mut set = [PollFd::new(bell, PollFlags::OUT)];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    for count in [u64::MAX - 1, 1 << 62, 1 << 61, 1 << 40, 1 << 20, 1 << 10, 1] {
        // Nobody else writes but the daemon, whose ring counts one.
        if poll(&mut set, Some(&now)).is_ok_and(|ready| ready > 0) {
            fcntl_setfl(bell, OFlags::NONBLOCK).expect("for this write");
            while rustix::io::write(bell, &count.to_ne_bytes()).is_ok() {}
            fcntl_setfl(bell, OFlags::empty()).expect("blocking");
        }
    }
}

/// Threads that read the bell into a page that another one is just taking away: whoever writes to that page waits.
fn read_into_a_hole(bell: i32) {
    let file = rustix::fs::memfd_create("hollow", MemfdFlags::CLOEXEC).expect("a file");
    rustix::fs::ftruncate(&file, HOLLOW_BYTES as u64).expect("a size");
    // SAFETY: a fresh mapping of a file of that size.
    let base = unsafe {
        rustix::mm::mmap(
            std::ptr::null_mut(),
            HOLLOW_BYTES,
            rustix::mm::ProtFlags::READ | rustix::mm::ProtFlags::WRITE,
            rustix::mm::MapFlags::SHARED,
            &file,
            0,
        )
    };
    let last = base.expect("mapped") as usize + HOLLOW_BYTES - 4_096;
    std::thread::spawn(move || {
        let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        loop {
            rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, HOLLOW_BYTES as u64).expect("filled");
            rustix::fs::fallocate(&file, punch, 0, HOLLOW_BYTES as u64).expect("punched");
        }
    });
    for _ in 0..4 {
        std::thread::spawn(move || {
            loop {
                let mut wait = libc::pollfd { fd: bell, events: libc::POLLIN, revents: 0 };
                // SAFETY: one entry; the page is mapped for ever, and nobody reads it.
                unsafe {
                    libc::poll(&raw mut wait, 1, -1);
                    libc::read(bell, last as *mut libc::c_void, 8);
                }
            }
        });
    }
}

#[test]
fn a_crowd_at_a_bell_makes_no_turn_longer() {
    // Before bells had ringers turns took 54 to 84 ms, and 32 to 97 of the messages were lost.
    assert_no_worse("crowd-at-its-own", "crowd-at-the-bell", 70, SPAN, Losses::AsControl);
}

#[test]
fn a_bell_whose_writer_waits_keeps_nobody_else_waiting() {
    let mut world = World::start("bell-that-takes-no-more", 78);
    let mut attacker = world.attack("bell-that-takes-no-more");
    let harm = world.observe(SPAN);
    eprintln!("{harm:?}");
    assert_eq!((harm.lost, attacker.is_running()), (0, true));
    let [gently, killed] = world.end();
    assert!(gently < Duration::from_secs(5) && killed < Duration::from_secs(2), "{gently:?}, {killed:?}");
}

#[test]
fn a_reader_whose_page_is_not_there_stops_nobody() {
    assert_no_worse("reader-of-its-own", "reader-into-a-hole", 80, SPAN, Losses::AsControl);
}
