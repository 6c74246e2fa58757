//! A processor whose CPU is repeatedly taken by a thread of a higher class is blamed by its own clock, at a
//! source too, and the messages that it drops meanwhile are counted as lost there: between network namespaces
//! that the test makes (needs root and the real-time class).

mod common;

use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use common::hog::Hog;
use common::network::{Cable, Network};
use common::program::{Program, folder};
use common::text::{HELLO, Text};
use common::witness::may_be_real_time;
use common::{PATIENCE, contract, eventually, meet};
use punctual::{BrokenStage, Cause, Channel, ChannelEvent, Consent, Endsystem, Nanos, Receiver};

/// The CPU that the hog and the processor share.
const CPU: u32 = 1;
const BYTES: u32 = 200;
/// Lock for the CPU that these tests stop: one test at a time has it.
static ALONE: Mutex<()> = Mutex::new(());
/// A message each millisecond, with room to the contract.
const RATE: u64 = 1_100;

/// Hosts `a` and `b`; `slow` has its processor in real time on [`CPU`]. Each has its log in its folder.
struct Hosts {
    _network: Network,
    folder: PathBuf,
    programs: [Program; 2],
    ends: [Endsystem; 2],
    _alone: MutexGuard<'static, ()>,
}

fn log(folder: &Path, name: &str) -> PathBuf {
    folder.join(format!("{name}.log"))
}

fn start(network: &Network, cable: Cable, folder: &Path, end: usize, slow: &str) -> Program {
    let name = ["a", "b"][end];
    let socket = folder.join(format!("{name}.sock"));
    let link = format!("{}rate = \"95Mbit/s\"\nprediction_error = \"2ms\"\n", cable.link(end, "udp"));
    let here = format!("profile_measure = false\ncpu = {CPU}");
    let (processor, flags) =
        if name == slow { (here.as_str(), "") } else { ("profile_measure = false", "--best-effort-host") };
    let signalling = "lease = \"3s\"";
    let text = Text { name, socket: &socket, processor, daemon: "", hello: HELLO, signalling, link: &link };
    Program::start_as(folder, text, flags, |line| {
        network.inside(end, &format!("{line} 2>{}", log(folder, name).display()))
    })
}

impl Hosts {
    /// `None`, with a message, without namespaces or the real-time class.
    fn start(tag: &str, number: u8, slow: &str) -> Option<Self> {
        // A failed test has left no relevant state behind.
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let cable = Cable { number, hosts: [0, 1] };
        let network = Network::new(tag, 2).filter(|_| may_be_real_time())?;
        network.join(cable);
        let folder = folder(tag);
        let programs = [0, 1].map(|end| start(&network, cable, &folder, end, slow));
        let ends = [&programs[0], &programs[1]].map(Program::connect);
        meet([&ends[0], &ends[1]]);
        Some(Self { _network: network, folder, programs, ends, _alone: alone })
    }

    fn open(&self, deadline_ms: u64) -> (Channel, Receiver) {
        let [a, b] = &self.ends;
        let listener = b.listen("cam", |_| Consent::Accept).expect("a listener");
        let channel = a.open("cam@b", contract(BYTES, RATE, deadline_ms)).expect("a channel");
        (channel, listener.accept_timeout(PATIENCE).expect("no error").expect("a channel"))
    }

    fn has_logged(&self, name: &str, line: &str) -> bool {
        std::fs::read_to_string(log(&self.folder, name)).is_ok_and(|text| text.contains(line))
    }

    fn end(self) {
        let Self { folder, programs, ends, _alone, _network } = self;
        drop((ends, programs));
        std::fs::remove_dir_all(folder).expect("removed");
    }
}

/// A message each millisecond for `span`; how many were sent, and how many came.
fn exchange(channel: &mut Channel, receiver: &mut Receiver, span: Duration) -> (u64, u64) {
    std::thread::scope(|scope| {
        let received = scope.spawn(|| {
            let mut buffer = [0; BYTES as usize];
            let mut received = 0;
            while receiver.recv_timeout(&mut buffer, Duration::from_secs(1)).is_ok() {
                received += 1;
            }
            received
        });
        let (begin, mut sent) = (Instant::now(), 0);
        while begin.elapsed() < span {
            channel.send(&[7; BYTES as usize]).expect("it is taken");
            sent += 1;
            std::thread::sleep(Duration::from_millis(sent).saturating_sub(begin.elapsed()));
        }
        (sent, received.join().expect("no panic"))
    })
}

fn is_processor_of(stage: &BrokenStage, host: &str) -> bool {
    stage.host == host && stage.towards.is_none() && stage.cause == Cause::SlowProcessor
}

#[test]
fn a_stopped_processor_at_the_source_is_named_at_both_ends() {
    let Some(hosts) = Hosts::start("still-source", 20, "a") else { return };
    let (mut channel, mut receiver) = hosts.open(5);
    exchange(&mut channel, &mut receiver, Duration::from_millis(500));
    let before = hosts.ends[0].status().expect("status").node.late_service.times;

    let hog = Hog::start(CPU, Nanos::from_millis(8), Nanos::from_millis(50));
    exchange(&mut channel, &mut receiver, Duration::from_millis(1_500));
    let node = hosts.ends[0].status().expect("status").node;
    drop(hog);
    let named = node.broken.iter().find(|stage| is_processor_of(stage, "a"));
    let named = named.unwrap_or_else(|| panic!("{:?}", node.broken));
    assert!(named.late.times >= 3 && node.late_service.by_max > Nanos::from_millis(2), "{named}");
    // A hole of the platform may come on top of the hog.
    assert!(named.late.by_max < Nanos::from_millis(500), "{named}");
    assert!(node.late_service.times > before + 10 && node.wakes.late > 10, "{:?}", node.wakes);
    for events in [channel.events(), receiver.events()] {
        let reported = events
            .iter()
            .any(|event| matches!(event, ChannelEvent::Degraded(stage) if is_processor_of(stage, "a")));
        assert!(reported, "{events:?}");
    }
    assert!(hosts.has_logged("a", "degraded: processor of a serves later than its bounds"));
    drop((channel, receiver));
    hosts.end();
}

#[test]
fn losses_of_a_stopped_processor_are_counted_there_and_its_first_stop_is_reported() {
    let Some(hosts) = Hosts::start("still-sink", 21, "b") else { return };
    let (mut channel, mut receiver) = hosts.open(20);
    exchange(&mut channel, &mut receiver, Duration::from_millis(500));
    let hog = Hog::start(CPU, Nanos::from_millis(150), Nanos::from_secs(1));
    let (sent, received) = exchange(&mut channel, &mut receiver, Duration::from_millis(300));
    let lines = ["late: processor of b was up to ", "degraded: processor of b serves later than"];
    eventually("it is in the log", || lines.iter().any(|line| hosts.has_logged("b", line)));
    let node = hosts.ends[1].status().expect("status").node;
    let is_shown = node.late.iter().any(|stage| stage.host == "b" && stage.towards.is_none());
    assert!(is_shown || node.broken.iter().any(|stage| is_processor_of(stage, "b")), "{:?}", node.late);
    let (more_sent, more_received) = exchange(&mut channel, &mut receiver, Duration::from_secs(3));
    drop(hog);
    let missing = sent + more_sent - received - more_received;

    let ending = channel.finish(PATIENCE).expect("a daemon").expect("an end");
    let lost_at = ending.receipt.expect("the receiver's word").lost_at.expect("much was lost");
    assert!(missing > 100 && lost_at.messages * 10 > missing * 9, "{lost_at:?} of {missing}");
    let b = hosts.ends[1].status().expect("status").node;
    assert_eq!((lost_at.stage.node, lost_at.stage.towards), (b.id, None), "{lost_at:?}");
    assert!(lost_at.why.is_some());
    drop(receiver);
    eventually("the channel is gone", || hosts.ends[1].status().expect("status").node.channels == 0);
    let total = hosts.ends[1].status().expect("status").node.channels_total;
    let thrown = total.overflows + total.demoted_dropped + total.overruns;
    assert!(thrown * 10 > missing * 9 && total.packets_in > 3_000, "{total:?} of {missing}");
    hosts.end();
}
