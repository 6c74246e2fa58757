//! Tests of a node with one link: cases that take 2^31 handles, or a neighbour that forges messages.

use alloc::vec;
use alloc::vec::Vec;

use punctual_analysis::{BitRate, Instant, Nanos, Ppm};

use super::Node;
use super::plane::Portion;
use crate::api::{Notice, RtuClass, RtuCost, RtuEvent, RtuId, RtuSending, RtuTarget, RtuTerms, Tally};
use crate::config::{CpuConfig, LinkConfig, NodeConfig, SignallingConfig};
use crate::ids::{ChannelId, ChannelNumber, Epoch, LinkId, Name, NodeId, PathId};
use crate::memory::{Inbox, Memory, MessageInfo, MessageRead, MessageWrite, Outbox};
use crate::signalling::Resources;

pub(super) const LINK: LinkId = LinkId(0);
pub(super) const NOW: Instant = Instant(1_000_000_000);

/// Buffers of a host whose applications neither send nor receive.
pub(super) struct Nothing;

impl Memory for Nothing {
    type Frame = Vec<u8>;
    type Outbox = Self;
    type Inbox = Self;
}

impl MessageRead for Nothing {
    fn len(&self) -> u32 {
        0
    }
    fn copy_to(&self, _: u32, _: &mut [u8]) {}
}

impl MessageWrite for Nothing {
    fn copy_from(&mut self, _: u32, _: &[u8]) {}
}

impl Outbox for Nothing {
    type Message = Self;
    fn take(&mut self, _: Instant) -> Option<(Self, Instant)> {
        None
    }
    fn is_ready(&self) -> bool {
        false
    }
}

impl Inbox for Nothing {
    type Slot = Self;
    fn reserve(&mut self) -> Option<Self> {
        None
    }
    fn publish(&mut self, _: Self, _: MessageInfo) {}
}

/// Host 1, whose link to host 2 has a measured drain rate.
pub(super) fn node() -> Node<Nothing> {
    node_with(true)
}

/// The same host, whose link measures its rate by itself or not.
pub(super) fn node_with(rate_auto: bool) -> Node<Nothing> {
    let name = |text: &str| Name::new(text).expect("a name");
    let link = LinkConfig { rate_auto, ..LinkConfig::new("right", NodeId(2), BitRate(40_000_000)) };
    let config = NodeConfig {
        id: NodeId(1),
        name: name("h1"),
        epoch: Epoch(9),
        fragment_bytes: 1_400,
        fragment_low_latency_bytes: None,
        clock_tolerance: Ppm(100),
        links: vec![link],
        cpu: CpuConfig::default(),
        directory: vec![(name("h1"), NodeId(1)), (name("h2"), NodeId(2))],
        routes: Vec::new(),
        signalling: SignallingConfig::default(),
        buffer_bytes_max: 1 << 20,
        wakeup_margin: Nanos::ZERO,
    };
    Node::new(config, 7, NOW).expect("a configuration")
}

/// Numbers of flows repeat after 2^31 handles. A flow never gets a number that another flow still has: its
/// packets would join that flow's messages.
#[test]
fn no_flow_has_the_number_of_another() {
    let mut node = node();
    let open = |node: &mut Node<Nothing>| {
        let to = "bulk@h2".parse().expect("an address");
        node.open_best_effort(to, 100, Nothing, NOW).expect("a neighbour")
    };
    let old = open(&mut node);
    let others = ChannelNumber::of_flow(ChannelId(old.0 + 1)).0 - ChannelNumber::of_flow(old).0;
    assert_eq!(others, 1, "numbers are those of the handles");
    node.signalling.skip_channel_ids((1 << 31) - 1);
    let new = open(&mut node);
    assert_eq!(new, ChannelId(old.0 + (1 << 31) + 1), "the handle before has the old flow's number");
    assert_eq!(open(&mut node), ChannelId(new.0 + 1), "free ones are taken in turn");
    let path_of = |flow| PathId { node: NodeId(1), channel: ChannelNumber::of_flow(flow), epoch: Epoch(9) };
    assert!(node.plane.has_flow(path_of(old)) && node.plane.has_flow(path_of(new)));
    // Once the old one is closed, its number is free.
    node.close(old, NOW).expect("it is open");
    node.signalling.skip_channel_ids((1 << 31) - 3);
    assert_eq!(open(&mut node), ChannelId(old.0 + (2 << 31)));
}

/// Nor that of a program's handler that sends: its packets have a path like a flow's.
#[test]
fn no_flow_has_the_number_of_a_handler_that_sends() {
    let mut node = node_with(false);
    let to = || "bulk@h2".parse().expect("an address");
    let open =
        |node: &mut Node<Nothing>| node.open_best_effort(to(), 100, Nothing, NOW).expect("a neighbour");
    let before = open(&mut node);
    node.close(before, NOW).expect("it is open");
    let cost = RtuCost { run: Nanos::from_micros(2), unit: Nanos::from_micros(5) };
    let class = RtuClass::periodic(Nanos::from_millis(10), 1);
    let terms = RtuTerms { class, deadline: None, quantum: 1, cost };
    let sending = RtuSending { to: RtuTarget::Port(to()), packets: 1, payload_bytes: 100 };
    // One that sends nothing has no number.
    let silent = node.register_handler(terms, NOW).expect("can be granted");
    assert!(matches!(node.poll_rtu(), Some(RtuEvent::Granted(id, _)) if id == silent));
    let handler = node.register_sender(terms, &sending, Nothing, NOW).expect("can be granted");
    assert!(matches!(node.poll_rtu(), Some(RtuEvent::Granted(id, _)) if id == handler));
    let handle = before.0 + 1;
    node.signalling.skip_channel_ids((1 << 31) - 1);
    let flow = open(&mut node);
    assert_eq!(flow, ChannelId(handle + (1 << 31) + 1), "the handle before has the handler's number");
    // Once the handler is gone, its number is free.
    node.remove_handler(handler, NOW);
    node.signalling.skip_channel_ids((1 << 31) - 2);
    assert_eq!(open(&mut node), ChannelId(handle + (2 << 31)));
}

/// A unit of work, a signal and a notice of free room may refer to a channel end that was closed meanwhile. Each is ignored.
#[test]
fn what_comes_for_an_end_that_is_gone_changes_nothing() {
    let mut node = node();
    let (gone, before) = (ChannelId(999), node.accounts());
    let Node { plane, .. } = &mut node;
    let drops = *plane.drops();
    plane.run_source(gone, 1, NOW);
    plane.run_demoted(gone, NOW);
    plane.run_forward(gone, 1, NOW);
    plane.run_sink(gone, 1, NOW);
    plane.run_delivery(gone, NOW);
    plane.run_flow(gone, NOW);
    plane.run_arrivals(NOW);
    plane.run_backlog(NOW);
    plane.arm_clip(gone, NOW);
    plane.arm_flow(gone, NOW);
    plane.show_from_now_on(gone);
    plane.begin_closing(gone, NOW);
    plane.note_demoted_dropped(&PathId::default());
    plane.await_last(gone, Tally::default());
    plane.outdate(gone);
    plane.notice(gone, Notice::Policed);
    assert_eq!((plane.serve_ring(gone, Portion::ALONE, NOW), plane.end_filling(LINK)), (0, 0));
    assert!(plane.stop_filling(LINK, NOW) && !plane.has_drained() && *plane.drops() == drops);
    assert!(plane.attach_inbox(gone, Nothing).is_none() && plane.begin(NOW).is_none());
    assert!(plane.poll_notice().is_none(), "nobody would read it");
    node.make_ready(RtuId(999), NOW);
    node.remove_handler(RtuId(999), NOW);
    assert_eq!(node.accounts(), before);
}

/// A ring that knows nothing of what its program takes reports nothing.
#[test]
fn a_ring_has_nothing_unread_unless_it_says_so() {
    assert_eq!(Nothing.unread(), 0);
    assert!(Nothing.observed().is_none());
}
