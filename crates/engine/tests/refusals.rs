//! Channels that a driver does not let in: refused with the reason, never silent.

mod support;

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use punctual_link::{
    Filter, Frame, Link, LinkError, LinkStatistics, MemoryLink, MemoryOptions, Port, Received,
};
use punctual_proto::api::{Event, RefuseCause};
use punctual_proto::ids::NodeId;
use punctual_proto::{Contract, Nanos, Rate};
use support::{Handle, expect, node, open, request, start};

/// A link whose driver's table is full from a moment on.
struct Full {
    link: MemoryLink,
    full: Arc<AtomicBool>,
}

impl Link for Full {
    fn receive(&mut self, out: &mut Vec<Received>, max: usize) -> Result<usize, LinkError> {
        self.link.receive(out, max)
    }
    fn transmit_buffer(&mut self) -> Option<&mut [u8]> {
        self.link.transmit_buffer()
    }
    fn transmit(&mut self, port: Port, len: usize, wire_bytes: u32) -> Result<(), LinkError> {
        self.link.transmit(port, len, wire_bytes)
    }
    fn transmit_frame(&mut self, port: Port, frame: Frame, wire_bytes: u32) -> Result<(), Frame> {
        self.link.transmit_frame(port, frame, wire_bytes)
    }
    fn set_filter(&mut self, _: &Filter) -> Result<(), LinkError> {
        match self.full.load(Ordering::Relaxed) {
            true => Err(LinkError::Options("the table of paths is full".into())),
            false => Ok(()),
        }
    }
    fn flush(&mut self) -> Result<(), LinkError> {
        self.link.flush()
    }
    fn is_pending(&self) -> bool {
        self.link.is_pending()
    }
    fn completed(&mut self) -> u32 {
        self.link.completed()
    }
    fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        self.link.descriptors()
    }
    fn packet_bytes_max(&self) -> usize {
        self.link.packet_bytes_max()
    }
    fn statistics(&self) -> LinkStatistics {
        self.link.statistics()
    }
    fn mode(&self) -> String {
        self.link.mode()
    }
}

fn contract() -> Contract {
    let rate = Rate::per_second(100).expect("a rate");
    Contract::new(1_000, rate, 2, Nanos::from_millis(100)).expect("a contract")
}

fn refusal_at_sink(a: &Handle) -> (NodeId, RefuseCause) {
    let wanted = request(contract());
    a.call(move |node, now| node.open(wanted, now)).expect("a runs").expect("can be tried");
    expect(&a.events(), |event| match event {
        Event::Refused { refusal, .. } => Some((refusal.node, refusal.cause)),
        Event::Opened { .. } => panic!("nothing of it can come in"),
        _ => None,
    })
}

#[test]
fn a_channel_whose_filter_the_driver_refuses_is_refused_with_the_reason() {
    let (link_a, link_b) = MemoryLink::pair(MemoryOptions::default()).expect("a pair");
    let full = Arc::new(AtomicBool::new(false));
    let driver = Full { link: link_b, full: Arc::clone(&full) };
    let (a, b) = (start(node(1), Box::new(link_a)), start(node(2), Box::new(driver)));
    let (standing, _) = open(&a, &b, contract());
    full.store(true, Ordering::Relaxed);
    let (host, cause) = refusal_at_sink(&a);
    assert_eq!(host, NodeId(2));
    assert!(cause.to_string().contains("driver does not let its packets in"), "{cause}");
    assert_eq!(b.statistics().filters_failed, 1);
    // The refused channel leaves no state behind, and the other one is still open.
    for (engine, channel) in [(&a, standing.source), (&b, standing.sink)] {
        let channels = engine.call(|node, _| node.channels()).expect("it runs");
        assert_eq!(channels.iter().map(|status| status.channel).collect::<Vec<_>>(), [channel]);
    }
}
