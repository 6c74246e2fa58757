//! Measuring this machine through real nodes and drivers, and what a host makes of it.

mod support;

use std::io;

use punctual_engine::profile::{Plan, Rings, Wires, measure, profile_of, udp_wires};
use punctual_proto::Nanos;
use support::{TestInbox, TestOutbox};

struct Plain;

impl Rings for Plain {
    type Outbox = TestOutbox;
    type Inbox = TestInbox;
    type Writer = TestOutbox;
    type Reader = TestInbox;

    fn outgoing(&self, _: u32, _: u32) -> io::Result<(TestOutbox, TestOutbox)> {
        let ring = TestOutbox::default();
        Ok((ring.clone(), ring))
    }
    fn incoming(&self, _: u32, _: u32) -> io::Result<(TestInbox, TestInbox)> {
        let ring = TestInbox::default();
        Ok((ring.clone(), ring))
    }
    fn send(&self, writer: &mut TestOutbox, message: &[u8]) -> io::Result<()> {
        writer.put(message.to_vec());
        Ok(())
    }
    fn receive(&self, reader: &mut TestInbox) -> bool {
        reader.take()
    }
}

fn measured(wires: Wires) {
    let driver = wires.driver.clone();
    // As long as a host that is busy with other tests needs.
    let plan = Plan { messages: 200, within: Nanos::from_secs(20) };
    let samples = measure(&Plain, wires, plan).unwrap_or_else(|error| panic!("{error}"));
    let profile = profile_of(&samples, &driver, "a test", true);
    for (name, series) in samples.series() {
        assert!(series.len() >= 100, "{name} has {} samples", series.len());
    }
    let costs = profile.costs;
    for ns in [costs.send_packet_ns, costs.forward_packet_ns, costs.receive_packet_ns, costs.send_message_ns]
    {
        assert!((10..1_000_000).contains(&ns), "{costs:?}");
    }
    assert!(costs.send_packet_later_ns <= costs.send_packet_ns, "{costs:?}");
    let text = profile.text().expect("text");
    let read =
        punctual_engine::profile::Profile::parse(&text, std::path::Path::new("p")).expect("its own text");
    assert_eq!(read, profile);
}

#[test]
fn the_paths_are_measured_over_memory() {
    measured(Wires::memory().expect("rings"));
}

#[test]
fn the_paths_are_measured_over_kernel_sockets() {
    measured(udp_wires().expect("loopback sockets"));
}
