//! Checks the reports of lateness against stamps inside the messages while an assumption is broken: over a
//! wire that drains at a fifth of its rate, between network namespaces that the test makes (needs root).

mod common;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use common::network::{Cable, Network};
use common::program::{Program, folder};
use common::text::{HELLO, Text};
use common::{PATIENCE, contract, eventually, meet};
use punctual::{Cause, Channel, ChannelEvent, Consent, Endsystem, Nanos, Receiver, Timeliness};

const CABLE: Cable = Cable { number: 0, hosts: [0, 1] };
const DEADLINE_MS: u64 = 5;
/// The time that a message may take from `send` to its logical arrival, and from its delivery to `recv`, on a
/// busy machine.
const AROUND: Duration = Duration::from_millis(20);
const SLOW: &str = "tbf rate 5mbit burst 4kb latency 300ms";

fn start(network: &Network, folder: &Path, end: usize) -> Program {
    let name = ["a", "b"][end];
    let socket = folder.join(format!("{name}.sock"));
    let (own, peer) = (CABLE.address(end), CABLE.address(1 - end));
    let link = format!(
        "driver = \"udp\"\nkernel_traffic = \"exclusive\"\nlocal = \"{own}\"\npeer = \"{peer}\"\nrate = \"95Mbit/s\"\nprediction_error = \"2ms\"\n"
    );
    let (processor, signalling) = ("profile_measure = false", "lease = \"3s\"");
    let text = Text { name, socket: &socket, processor, daemon: "", hello: HELLO, signalling, link: &link };
    let log = log_of(folder, name);
    Program::start_as(folder, text, "--best-effort-host", |line| {
        format!("{} 2>{}", network.inside(end, line), log.display())
    })
}

/// Path of a host's log.
fn log_of(folder: &Path, name: &str) -> PathBuf {
    folder.join(format!("{name}.log"))
}

fn open(
    a: &Endsystem,
    b: &Endsystem,
    port: &str,
    bytes: u32,
    rate: u64,
    deadline_ms: u64,
) -> (Channel, Receiver) {
    let listener = b.listen(port, |_| Consent::Accept).expect("a listener");
    let channel = a.open(&format!("{port}@b"), contract(bytes, rate, deadline_ms)).expect("a channel");
    (channel, listener.accept_timeout(PATIENCE).expect("no error").expect("a channel"))
}

/// Fills the wire until `over`.
fn fill(channel: &mut Channel, receiver: &mut Receiver, over: &AtomicBool) {
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut buffer = [0; 1_400];
            while receiver.recv_timeout(&mut buffer, Duration::from_millis(500)).is_ok()
                || !over.load(Ordering::Relaxed)
            {}
        });
        while !over.load(Ordering::Relaxed) {
            channel.send(&[7; 1_400]).expect("it is taken");
        }
    });
}

/// Ends the filling however the test ends.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The outcome of one message: its latency by our own stamps, and its reported timeliness.
struct Delivery {
    took: Duration,
    timeliness: Timeliness,
    error: Nanos,
}

fn exchange(channel: &mut Channel, receiver: &mut Receiver, messages: usize) -> Vec<Delivery> {
    let origin = Instant::now();
    let now = || u64::try_from(origin.elapsed().as_nanos()).expect("no centuries");
    std::thread::scope(|scope| {
        let received = scope.spawn(|| {
            let mut delivered = Vec::with_capacity(messages);
            let mut buffer = [0; 64];
            while let Ok(info) = receiver.recv_timeout(&mut buffer, Duration::from_millis(1_500)) {
                let sent = u64::from_ne_bytes(buffer[..8].try_into().expect("eight bytes"));
                delivered.push(Delivery {
                    took: Duration::from_nanos(now().saturating_sub(sent)),
                    timeliness: info.timeliness,
                    error: info.clock_error.expect("the clocks are known"),
                });
            }
            delivered
        });
        for number in 0..messages {
            // The sender's pace, with room to its contract.
            let at = Duration::from_millis(6) * number as u32;
            std::thread::sleep(at.saturating_sub(origin.elapsed()));
            let mut message = [0; 64];
            message[..8].copy_from_slice(&now().to_ne_bytes());
            channel.send(&message).expect("it is taken");
        }
        received.join().expect("no panic")
    })
}

#[test]
fn a_wire_that_is_slower_than_configured_is_named_at_both_ends_until_it_heals() {
    let Some(network) = Network::new("truth", 2) else { return };
    network.join(CABLE);
    let folder = folder("truth");
    let (on_a, on_b) = (start(&network, &folder, 0), start(&network, &folder, 1));
    let (a, b) = (on_a.connect(), on_b.connect());
    meet([&a, &b]);
    let (mut control, mut receiver) = open(&a, &b, "control", 64, 200, DEADLINE_MS);
    let (mut bulk, mut sink) = open(&a, &b, "bulk", 1_400, 1_000, 200);
    network.run(0, &format!("tc qdisc replace dev {} root {SLOW}", CABLE.device(0)));
    let over = AtomicBool::new(false);
    let delivered = std::thread::scope(|scope| {
        scope.spawn(|| fill(&mut bulk, &mut sink, &over));
        let _stop = Stop(&over);
        eventually("the wire is full", || !a.status().expect("status").node.broken.is_empty());
        exchange(&mut control, &mut receiver, 500)
    });

    let deadline = Duration::from_millis(DEADLINE_MS);
    let error = |delivered: &Delivery| Duration::from_nanos(delivered.error.0);
    let late = delivered.iter().filter(|delivered| delivered.took > deadline + error(delivered) * 2 + AROUND);
    let (mut surely, mut hidden) = (0, 0);
    for delivered in late {
        surely += 1;
        hidden += usize::from(delivered.timeliness != Timeliness::Late);
    }
    let slandered = delivered
        .iter()
        .filter(|delivered| delivered.timeliness == Timeliness::Late && delivered.took < deadline)
        .count();
    println!(
        "{} messages, {surely} surely late by their own stamps, {hidden} of them not reported so",
        delivered.len()
    );
    assert!(surely > 200, "the wire is slow: {surely} of {}", delivered.len());
    assert_eq!((hidden, slandered), (0, 0));

    let is_named = |event: &ChannelEvent| match event {
        ChannelEvent::Degraded(stage) => {
            stage.host == "a"
                && stage.towards.as_deref() == Some("b")
                && matches!(stage.cause, Cause::SlowLink { drains, .. } if (3_000_000..8_000_000).contains(&drains.0))
        }
        _ => false,
    };
    let events = (control.events(), receiver.events());
    assert!(events.0.iter().any(is_named) && events.1.iter().any(is_named), "{events:?}");
    let state = receiver.state().expect("state");
    assert!(!state.status.broken.is_empty() && state.misses >= surely as u64, "{state:?}");
    assert!(state.observed_max > Nanos::from_millis(50), "{:?}", state.observed_max);

    network.run(0, &format!("tc qdisc del dev {} root", CABLE.device(0)));
    // The processor may have been late, too, and heals before.
    let is_of_link = |event: &ChannelEvent| matches!(event, ChannelEvent::Healed(stage) if stage.towards.as_deref() == Some("b"));
    let healed = |events: Vec<ChannelEvent>| events.iter().any(is_of_link);
    eventually("it has healed for the sender", || healed(control.events()));
    eventually("and for the receiver", || healed(receiver.events()));
    // In both logs, also of the host that does not have the stage.
    for host in ["a", "b"] {
        let printed = std::fs::read_to_string(log_of(&folder, host)).expect("a log");
        let line = |begins: &str| {
            printed.lines().any(|line| line.contains(begins) && line.contains("channels here pass it"))
        };
        assert!(line("WARN punctual::journal: degraded: link a-b drains at "), "{host}: {printed}");
        assert!(line("INFO punctual::journal: healed: link a-b: "), "{host}: {printed}");
    }
    let again = exchange(&mut control, &mut receiver, 100);
    let late = again
        .iter()
        .filter(|delivered| delivered.timeliness == Timeliness::Late && delivered.took < deadline)
        .count();
    assert_eq!((again.len(), late), (100, 0));
    let ending = control.finish(PATIENCE).expect("a daemon").expect("an end");
    let receipt = ending.receipt.expect("the receiver's word");
    assert!(receipt.late >= surely as u64 && receipt.unmeasured == 0, "{receipt:?}");
    drop((receiver, bulk, sink, a, b));
    std::fs::remove_dir_all(folder).expect("removed");
}
