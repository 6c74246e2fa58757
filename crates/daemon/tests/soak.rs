//! Real daemons for a while: programs and channels come and go, one daemon is killed, stopped and continued at random
//! moments; a channel between two hosts that no fault touches keeps its promise all the time, and nothing grows.
//!
//! `PUNCTUAL_SOAK_SECONDS` (15) says how long, `PUNCTUAL_SOAK_SEED` (1) which faults. `make soak` does it for 20 minutes.

mod common;

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use common::hosts::udp;
use common::program::{Program, folder};
use common::text::{HELLO, Text};
use common::{PATIENCE, contract, eventually};
use punctual::{Channel, Consent, Endsystem, Receiver};
use punctual_engine::os::realtime::{self, RealTime, SchedulingClass};
use rustix::process::{Pid, Signal};

/// Cycles before anything is compared: allocators and the kernel's caches settle.
const WARM_UP: usize = 4;
/// Cycles that are compared, at least: four in each quarter.
const COMPARED: usize = 16;
/// What memory may differ by, in KiB, besides a twentieth.
const MEMORY_SLACK_KIB: u64 = 1_024;

/// A number from the environment.
fn asked(name: &str, default: u64) -> u64 {
    std::env::var(name)
        .map_or(default, |text| text.parse().unwrap_or_else(|_| panic!("{name}: not a number")))
}

/// Draws; every run prints its seed.
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }
}

/// Whether daemons may run in their real-time class here; says so where not.
fn real_time() -> bool {
    let class = SchedulingClass::Fifo { priority: 50 };
    let wanted = RealTime { class, cpu: None, lock_memory: false };
    let may = std::thread::spawn(move || realtime::apply(&wanted)).join().expect("no panic").is_ok();
    if !may {
        eprintln!("SKIPPED: the real-time class (needs CAP_SYS_NICE); daemons run as best-effort hosts");
    }
    may
}

/// `a` in the middle; `b`, to which things happen; and `c`, to which nothing does.
struct Network<'a> {
    folder: &'a Path,
    flags: &'static str,
}

impl Network<'_> {
    fn start(&self, name: &str) -> Program {
        let wire = |number: u16| format!("{}rate = \"200Mbit/s\"\n", udp(number, u16::from(name != "a")));
        let third = "[[host]]\nname = \"c\"\nid = 3\n";
        let second = "[[link]]\nname = \"to-c\"\nneighbour = \"c\"\nprediction_error = \"500ms\"\n";
        let link = match name {
            "a" => format!("{}{third}{second}{}", wire(0), wire(1)),
            "b" => format!("{}{third}", wire(0)),
            _ => format!("{}{third}", wire(1)),
        };
        let socket = self.folder.join(format!("{name}.sock"));
        let processor = "profile_measure = false";
        let signalling = "lease = \"4s\"\ngrace = \"300ms\"";
        let text =
            Text { name, socket: &socket, processor, daemon: "", hello: HELLO, signalling, link: &link };
        Program::start_as(self.folder, text, self.flags, str::to_owned)
    }
}

/// What a daemon holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Holdings {
    descriptors: usize,
    threads: usize,
    mappings: usize,
    channels: u32,
    buffer_bytes: u64,
}

fn holdings(pid: Pid, host: &Endsystem) -> Holdings {
    let folder = format!("/proc/{}", pid.as_raw_nonzero());
    let entries = |what| std::fs::read_dir(format!("{folder}/{what}")).expect("/proc").count();
    let maps = std::fs::read_to_string(format!("{folder}/maps")).expect("/proc");
    let status = host.status().expect("status");
    Holdings {
        descriptors: entries("fd"),
        threads: entries("task"),
        mappings: maps.lines().filter(|line| line.contains("memfd:")).count(),
        channels: status.node.channels,
        buffer_bytes: status.node.buffer_bytes,
    }
}

fn memory_kib(pid: Pid) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", pid.as_raw_nonzero())).expect("/proc");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("VmRSS");
    line.split_whitespace().next().and_then(|text| text.parse().ok()).expect("a number")
}

/// Keeps the contract between `a` and `c` to the letter until told to end; counts messages in `carried`.
fn steady(channel: &mut Channel, receiver: &mut Receiver, over: &AtomicBool, carried: &AtomicU64) {
    let mut sent = 0_u64;
    while !over.load(Ordering::Relaxed) {
        channel.send(&sent.to_le_bytes()).expect("sent");
        let mut buffer = [0; 8];
        receiver.recv_timeout(&mut buffer, PATIENCE).expect("received");
        assert_eq!(u64::from_le_bytes(buffer), sent, "in order, none missing");
        sent += 1;
        carried.store(sent, Ordering::Relaxed);
    }
}

/// Ends the steady channel, also where the test fails.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// One program's life: channels from `a` to `b`, messages on them, and something that happens to `b` meanwhile. What
/// programs see of that may be an error, never silence: every call ends.
fn cycle(network: &Network<'_>, on_a: &Program, on_b: &mut Program, dice: &mut Dice, carried: &AtomicU64) {
    let (a, b) = (on_a.connect(), on_b.connect());
    let fault = dice.below(4);
    let when = dice.below(3);
    let mut happen = |now: u64| {
        if now != when {
            return;
        }
        match fault {
            0 => {
                on_b.signal(Signal::KILL);
                on_b.wait();
            }
            1 => {
                on_b.freeze();
                // Meanwhile others go on: 20 messages, 200 ms.
                let until = carried.load(Ordering::Relaxed) + 20;
                eventually("others go on", || carried.load(Ordering::Relaxed) >= until);
                on_b.signal(Signal::CONT);
            }
            _ => {}
        }
    };
    let listener = b.listen("cam", |_| Consent::Accept);
    happen(0);
    let mut channels: Vec<Channel> = (0..1 + dice.below(6))
        .filter_map(|_| {
            let bytes = 100 + dice.below(20_000) as u32;
            a.open("cam@b", contract(bytes, 5 + dice.below(40), 500)).ok()
        })
        .collect();
    happen(1);
    for channel in &mut channels {
        channel.set_send_timeout(Some(Duration::from_millis(500)));
        for number in 0..dice.below(8) {
            if channel.send(&[number as u8; 100]).is_err() {
                break;
            }
        }
    }
    happen(2);
    // Some say goodbye, others vanish.
    if dice.below(2) == 0 {
        for channel in channels {
            let _ = channel.close();
        }
    }
    drop((listener, a, b));
    if fault == 0 {
        *on_b = network.start("b");
    }
}

#[test]
fn nothing_grows_and_what_no_fault_touches_keeps_its_promise() {
    let (seconds, seed) = (asked("PUNCTUAL_SOAK_SECONDS", 15), asked("PUNCTUAL_SOAK_SEED", 1));
    println!("{seconds} s, seed {seed}");
    let folder = folder("soak");
    let flags = if real_time() { "" } else { "--best-effort-host" };
    let network = Network { folder: &folder, flags };
    let (on_a, mut on_b, on_c) = (network.start("a"), network.start("b"), network.start("c"));
    let (a, c) = (on_a.connect(), on_c.connect());
    let alive =
        |count| a.status().expect("status").node.links.iter().filter(|link| link.alive).count() == count;
    eventually("the hosts see one another", || alive(2));
    let listener = c.listen("steady", |_| Consent::Accept).expect("a listener");
    let mut channel = a.open("steady@c", contract(100, 100, 1_000)).expect("a channel");
    let mut receiver = listener.accept_timeout(PATIENCE).expect("no error").expect("a channel");

    let (over, carried) = (AtomicBool::new(false), AtomicU64::new(0));
    let held = || [holdings(on_a.pid(), &a), holdings(on_c.pid(), &c)];
    let alone = held();
    let mut memory = Vec::new();
    std::thread::scope(|scope| {
        let sending = scope.spawn(|| steady(&mut channel, &mut receiver, &over, &carried));
        let _over = Over(&over);
        let mut dice = Dice(seed);
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(seconds) || memory.len() < WARM_UP + COMPARED {
            cycle(&network, &on_a, &mut on_b, &mut dice, &carried);
            eventually("hosts hold what they held, and see one another", || held() == alone && alive(2));
            memory.push([memory_kib(on_a.pid()), memory_kib(on_c.pid())]);
            if memory.len() % 50 == 0 {
                println!(
                    "{:4} s: {} cycles, {:?} KiB",
                    begun.elapsed().as_secs(),
                    memory.len(),
                    memory.last()
                );
            }
            assert!(!sending.is_finished(), "the steady channel broke in cycle {}", memory.len());
        }
        drop(Over(&over));
        sending.join().expect("the steady channel keeps its promise");
    });

    let state = receiver.state().expect("state");
    println!(
        "{} cycles, {} messages on the steady channel, at most {}",
        memory.len(),
        carried.load(Ordering::Relaxed),
        state.observed_max
    );
    assert_eq!((state.misses, state.policed), (0, 0), "{state:?}");
    let quarter = (memory.len() - WARM_UP).div_ceil(4);
    for host in [0, 1] {
        let most = |part: &[[u64; 2]]| part.iter().map(|sample| sample[host]).max().expect("samples");
        let (first, last) =
            (most(&memory[WARM_UP..WARM_UP + quarter]), most(&memory[memory.len() - quarter..]));
        assert!(last <= first + first / 20 + MEMORY_SLACK_KIB, "{first} KiB became {last}: {memory:?}");
    }
    std::fs::remove_dir_all(folder).expect("removed");
}
