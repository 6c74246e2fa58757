//! Measuring this machine through real nodes and drivers.

use std::io;
use std::path::Path;

use punctual_engine::profile::{Plan, Profile, Rings, Wires, measure, profile_of, udp_wires, xdp_wires};
use punctual_os::now;
use punctual_proto::Nanos;
use punctual_rig::{RemoteInbox, RemoteOutbox};

struct Plain;

impl Rings for Plain {
    type Outbox = RemoteOutbox;
    type Inbox = RemoteInbox;
    type Writer = RemoteOutbox;
    type Reader = RemoteInbox;

    fn outgoing(&self, messages: u32, bytes: u32) -> io::Result<(RemoteOutbox, RemoteOutbox)> {
        let ring = RemoteOutbox::new(messages as usize, bytes as usize);
        Ok((ring.clone(), ring))
    }
    fn incoming(&self, messages: u32, bytes: u32) -> io::Result<(RemoteInbox, RemoteInbox)> {
        let ring = RemoteInbox::new(messages as usize, bytes as usize);
        Ok((ring.clone(), ring))
    }
    fn send(&self, writer: &mut RemoteOutbox, message: &[u8]) -> io::Result<()> {
        assert!(writer.send(message, now()), "the ring has room");
        Ok(())
    }
    fn receive(&self, reader: &mut RemoteInbox) -> bool {
        reader.recv(|_, _| ())
    }
}

fn measured(driver: &str, wires: Wires) {
    // The time that a host needs while other tests run, and twice the expected number of cold starts, because
    // a disturbed one does not count.
    let plan = Plan { messages: 200, cold: 80, within: Nanos::from_secs(20) };
    let samples = measure(&Plain, wires, plan).unwrap_or_else(|error| panic!("{error}"));
    let profile = profile_of(&samples, driver, "a test", true);
    for (series, times) in samples.series() {
        let name = series.name();
        let is_rare = name.starts_with("cold_") || name == "segment_call";
        let least = if is_rare { 30 } else { 100 };
        assert!(times.len() >= least, "{name} has {} samples", times.len());
    }
    let costs = profile.costs;
    let segments = [costs.segment_ns, costs.segment_call_ns];
    for ns in [costs.send_packet_ns, costs.forward_packet_ns, costs.receive_packet_ns, costs.send_message_ns]
        .into_iter()
        .chain(segments)
    {
        assert!((10..1_000_000).contains(&ns), "{costs:?}");
    }
    assert!(costs.send_packet_later_ns <= costs.send_packet_ns, "{costs:?}");
    let text = profile.text().expect("text");
    let read = Profile::parse(&text, Path::new("p")).expect("its own text");
    assert_eq!(read, profile);
}

#[test]
fn the_paths_are_measured_over_memory() {
    measured("memory", Wires::memory().expect("rings"));
}

#[test]
fn the_paths_are_measured_over_kernel_sockets() {
    measured("udp", udp_wires().expect("loopback sockets"));
}

#[test]
fn the_paths_are_measured_over_xdp_and_nothing_stays_behind() {
    if !rustix::process::getuid().is_root() {
        punctual_skip::skipped!("network namespaces and XDP need root");
        return;
    }
    let devices = || std::fs::read_to_string("/proc/thread-self/net/dev").expect("devices").lines().count();
    let before = devices();
    // The thread ends in a network of its own.
    let measuring = std::thread::spawn(|| {
        measured("xdp", xdp_wires().unwrap_or_else(|error| panic!("{error}")));
        assert!(std::fs::read_to_string("/proc/thread-self/net/dev").expect("devices").contains("profile0a"));
    });
    measuring.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    assert_eq!(devices(), before, "the host's own network is as it was");
}
