//! A killed process leaves no program on its device: run as one test without a harness, so that the same
//! program can be the killed child.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Command, Stdio, exit};
use std::time::{Duration, Instant};

use aya::programs::loaded_programs;
use punctual_link::kernel::{Device, XdpAttachment};
use punctual_link::xdp::{Classifier, ClassifierOptions};
use rustix::thread::{CapabilitySet, UnshareFlags, capabilities, unshare_unsafe};

/// The argument that makes this program the child.
const CHILD: &str = "--attach-and-wait";

fn main() {
    if std::env::args().nth(1).as_deref() == Some(CHILD) {
        attach_and_wait();
        return;
    }
    let rights = CapabilitySet::SYS_ADMIN | CapabilitySet::NET_ADMIN;
    if !capabilities(None).is_ok_and(|sets| sets.effective.contains(rights)) {
        punctual_skip::skipped!("XDP programs and network namespaces need CAP_SYS_ADMIN and CAP_NET_ADMIN");
        return;
    }
    // SAFETY: only the network namespace of this thread, the only one, changes.
    unsafe { unshare_unsafe(UnshareFlags::NEWNET) }.expect("to unshare");
    let made = Command::new("ip").args("link add va type veth peer name vb".split(' ')).status().expect("ip");
    assert!(made.success(), "a veth pair");
    for round in 0..3 {
        a_killed_process_leaves_nothing(round);
    }
    println!("test a_killed_process_leaves_nothing ... ok");
}

fn options() -> ClassifierOptions {
    ClassifierOptions::new("va", [10, 3, 0, 1].into(), [10, 3, 0, 2].into(), 7_001, 7_000)
}

fn attach_and_wait() {
    let _classifier = Classifier::attach(&options()).unwrap_or_else(|error| {
        eprintln!("{error}");
        exit(1)
    });
    println!("attached");
    std::io::stdout().flush().expect("the parent reads");
    // Wait until the parent closes our input, which it never does.
    let _ = std::io::stdin().read(&mut [0]);
}

fn attached() -> Option<XdpAttachment> {
    Device::named("va").expect("the device").xdp
}

fn a_killed_process_leaves_nothing(round: u32) {
    let mut child = Command::new(std::env::current_exe().expect("this program"))
        .arg(CHILD)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("to start");
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("its output")).read_line(&mut line).expect("to read");
    assert_eq!(line, "attached\n", "round {round}");
    let found = attached().expect("the child's program");
    let refused = Classifier::attach(&options()).expect_err("the device is taken").to_string();
    assert!(refused.contains(&format!("id {}", found.program)), "{refused}");

    child.kill().expect("SIGKILL");
    child.wait().expect("to be gone");
    assert_eq!(attached(), None, "round {round}: the program went with its process");
    let deadline = Instant::now() + Duration::from_secs(20);
    while loaded_programs().flatten().any(|program| program.id() == found.program) {
        assert!(Instant::now() < deadline, "round {round}: program {} is still loaded", found.program);
        std::thread::yield_now();
    }
    drop(Classifier::attach(&options()).expect("the device is free again"));
    assert_eq!(attached(), None);
}
