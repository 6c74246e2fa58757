//! What a program can do to the daemon as to any other process and any other socket of its host.

use std::net::UdpSocket;
use std::os::fd::AsRawFd;

use punctual_host::config::{DATA_PORT_DEFAULT, SIGNALLING_PORT_DEFAULT};

use crate::attacker::{Mechanism, Place};
use crate::field::{Field, child, threads};
use crate::judge::{Bounds, Losses};
use crate::proc;
use crate::world::{SINK, TO_SINK};

const TWICE: Bounds = Bounds { losses: Losses::TwiceControl, ..Bounds::DEFAULT };
/// Of the kernel's service that throws away what it is sent.
const DISCARD: u16 = 9;

pub const MECHANISMS: &[Mechanism] = &[
    Mechanism::new(
        "looked-at-in-proc",
        "the processor takes no lock that a look at its process takes",
        check,
    ),
    Mechanism {
        place: Place::Host(SINK),
        bounds: TWICE,
        ..Mechanism::new("flood-from-within", "sockets are connected to the neighbour", flood_from_within)
    },
];

/// All that any user may read of a process, and all that it may try.
fn check(field: &Field) {
    let process = if field.own {
        child(|| {
            // SAFETY: no memory is touched.
            unsafe { libc::pause() };
        })
    } else {
        peer(&field.greeted())
    };
    let names = [
        "stat",
        "status",
        "statm",
        "cmdline",
        "limits",
        "oom_score",
        "sched",
        "schedstat",
        "cgroup",
        "wchan",
    ];
    let tasks = proc::names(&format!("{process}/task"));
    assert!(!proc::read(&format!("{process}/stat")).is_empty(), "anybody may read this");
    let mut paths: Vec<String> = names.map(|name| format!("{process}/{name}")).into();
    paths.extend(tasks.iter().map(|task| format!("{process}/task/{task}/stat")));
    let bytes = [0_u8; 64];
    let at = bytes.as_ptr() as usize;
    threads(4, move |_| {
        for path in &paths {
            // Some are there, some may be read.
            drop(proc::read(path));
        }
        // SAFETY: refused, or answered into memory of this function's.
        unsafe {
            let part = libc::iovec { iov_base: at as *mut libc::c_void, iov_len: 64 };
            libc::kill(process, 0);
            libc::process_vm_readv(process, &raw const part, 1, &raw const part, 1, 0);
            libc::ptrace(libc::PTRACE_SEIZE, process, 0, 0);
            let mut set: libc::cpu_set_t = std::mem::zeroed();
            libc::sched_getaffinity(process, size_of::<libc::cpu_set_t>(), &raw mut set);
            libc::sched_setaffinity(process, size_of::<libc::cpu_set_t>(), &raw const set);
            libc::setpriority(libc::PRIO_PROCESS, process as u32, 19);
        }
    });
}

/// Who is at the other end.
fn peer(line: &impl AsRawFd) -> i32 {
    // SAFETY: the structure has the size that is passed.
    unsafe {
        let mut who: libc::ucred = std::mem::zeroed();
        let mut bytes = size_of::<libc::ucred>() as u32;
        let number = line.as_raw_fd();
        libc::getsockopt(number, libc::SOL_SOCKET, libc::SO_PEERCRED, (&raw mut who).cast(), &raw mut bytes);
        who.pid
    }
}

/// From the host itself to its own ports of data and signalling.
fn flood_from_within(field: &Field) {
    let own = field.own;
    let to = TO_SINK.address(1);
    threads(1, move |_| {
        let socket = UdpSocket::bind((to.as_str(), 0)).expect("a socket");
        loop {
            for port in [DATA_PORT_DEFAULT, SIGNALLING_PORT_DEFAULT] {
                let _ = socket.send_to(&[1; 100], (to.as_str(), if own { DISCARD } else { port }));
            }
        }
    });
}
