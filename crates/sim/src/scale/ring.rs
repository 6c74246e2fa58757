//! Nodes on a ring of perfect links.

use punctual_analysis::{BitRate, Contract, Instant, Nanos, Ppm, Rate};
use punctual_proto::api::{Event as NodeEvent, OpenRequest, Port, UserId};
use punctual_proto::config::{CpuConfig, LinkConfig, NodeConfig, RouteConfig, SignallingConfig};
use punctual_proto::ids::{Address, ChannelId, Epoch, LinkId, Name};
use punctual_proto::node::Node;

use super::{NODES_MIN, Size};
use crate::memory::{Deliveries, FramePool, SimFrame, SimInbox, SimMemory, SimOutbox};
use crate::queue::Queue;
use crate::scenario::{ScenarioError, node_id};
use crate::time::SimTime;

const RATE: BitRate = BitRate(100_000_000_000);
const PROPAGATION: Nanos = Nanos::from_micros(10);
const MESSAGE_BYTES: u32 = 64;
const INTERVAL: Nanos = Nanos::from_secs(10);
const DEADLINE: Nanos = Nanos::from_secs(5);
/// Interval between two requests of one node.
const OPENS_EVERY: Nanos = Nanos::from_millis(10);
/// Interval between the first requests, and the messages, of two neighbours. Few nodes of a large network are
/// then busy at once, so that a node finds its state in the caches of the one machine that runs all nodes, as
/// on a machine of its own.
const NODES_EVERY: Nanos = Nanos::from_millis(20);
const SENDERS_EVERY: Nanos = Nanos::from_millis(1);
/// Handshakes and messages are complete long before.
const ENOUGH: Nanos = Nanos::from_secs(10);
/// If a node requests more calls than this at one time, time does not advance.
const ROUNDS_MAX: u32 = 10_000;
const LISTENER: &str = "sink";
/// Numbers of links of channels, in turn.
const LINKS: [usize; 3] = [1, 2, 3];

enum Event {
    Arrive { node: usize, link: LinkId, port: Port, frame: SimFrame },
    Wake { node: usize },
    Open { node: usize, nth: usize },
}

struct Channel {
    id: ChannelId,
    outbox: Option<SimOutbox>,
}

struct Host {
    node: Node<SimMemory>,
    /// The only valid wake-up; others are stale.
    wakes: Option<SimTime>,
    delivered: Deliveries,
    /// Channels that start here, in order of handles.
    channels: Vec<Channel>,
}

/// The network.
pub(super) struct Ring {
    size: Size,
    now: SimTime,
    queue: Queue<Event>,
    hosts: Vec<Host>,
    open: u64,
    refused: u64,
    received: u64,
    packets: u64,
    signals: u64,
    hops: u64,
    frames: FramePool,
    scratch: Vec<u8>,
    /// Name of every node's listener, and of every channel's destination.
    listener: Name,
    contract: Contract,
}

fn failed(error: &dyn std::fmt::Display) -> ScenarioError {
    ScenarioError(format!("ring: {error}"))
}

fn name(node: usize) -> Result<Name, ScenarioError> {
    Name::new(&format!("n{node}")).map_err(|error| failed(&error))
}

fn config(size: Size, node: usize) -> Result<NodeConfig, ScenarioError> {
    let at = |offset: usize| (node + offset) % size.nodes;
    let link = |offset: usize| -> Result<LinkConfig, ScenarioError> {
        let peer = at(offset);
        Ok(LinkConfig {
            propagation_max: PROPAGATION,
            reaction: Nanos::from_micros(1),
            frames: 1 << 24,
            ..LinkConfig::new(name(peer)?.as_str(), node_id(peer), RATE)
        })
    };
    let route = |links: usize| RouteConfig { via: (1..=links).map(|offset| node_id(at(offset))).collect() };
    let known = [0, 1, 2, 3, size.nodes - 3, size.nodes - 2, size.nodes - 1];
    let mut directory = known
        .iter()
        .map(|offset| Ok((name(at(*offset))?, node_id(at(*offset)))))
        .collect::<Result<Vec<_>, ScenarioError>>()?;
    directory.sort_unstable_by_key(|(_, id)| *id);
    directory.dedup_by_key(|(_, id)| *id);
    Ok(NodeConfig {
        id: node_id(node),
        name: name(node)?,
        epoch: Epoch(node as u64 + 1),
        fragment_bytes: 1_400,
        fragment_low_latency_bytes: None,
        clock_tolerance: Ppm(100),
        links: vec![link(1)?, link(size.nodes - 1)?],
        cpu: CpuConfig::default(),
        directory,
        routes: LINKS.map(route).into(),
        signalling: SignallingConfig {
            lease: Nanos::from_secs(100),
            hello_interval: Nanos::from_secs(10),
            packets_per_second: 2_000,
            ..SignallingConfig::default()
        },
        buffer_bytes_max: u64::MAX / 2,
        wakeup_margin: Nanos::ZERO,
    })
}

fn contract() -> Result<Contract, ScenarioError> {
    let rate_max = Rate::every(INTERVAL).ok_or_else(|| ScenarioError("no rate".into()))?;
    Contract::new(MESSAGE_BYTES, rate_max, 1, DEADLINE).map_err(|error| failed(&error))
}

impl Ring {
    pub(super) fn new(size: Size) -> Result<Self, ScenarioError> {
        if size.nodes < NODES_MIN {
            return Err(ScenarioError(format!("a ring of {} nodes: give at least {NODES_MIN}", size.nodes)));
        }
        let listener = Name::new(LISTENER).map_err(|error| failed(&error))?;
        let mut hosts = Vec::with_capacity(size.nodes);
        for number in 0..size.nodes {
            let node = Node::new(config(size, number)?, number as u64, Instant(0));
            let mut node = node.map_err(|error| failed(&error))?;
            node.listen(listener.clone()).map_err(|error| failed(&error))?;
            hosts.push(Host {
                node,
                wakes: None,
                delivered: Deliveries::default(),
                channels: Vec::with_capacity(size.channels_per_node),
            });
        }
        let mut queue = Queue::default();
        for (node, host) in hosts.iter_mut().enumerate() {
            queue.schedule(SimTime(0), Event::Wake { node });
            host.wakes = Some(SimTime(0));
        }
        Ok(Self {
            size,
            now: SimTime(0),
            queue,
            hosts,
            open: 0,
            refused: 0,
            received: 0,
            packets: 0,
            signals: 0,
            hops: 0,
            frames: FramePool::default(),
            scratch: vec![0; 1 << 16],
            listener,
            contract: contract()?,
        })
    }

    /// Signalling packets so far.
    pub(super) fn signals(&self) -> u64 {
        self.signals
    }

    /// Packets of data over links so far.
    pub(super) fn packets(&self) -> u64 {
        self.packets
    }

    /// Hosts on the routes of the open channels.
    pub(super) fn channel_hops(&self) -> u64 {
        self.hops
    }

    /// Runs until neighbours have met.
    pub(super) fn settle(&mut self) -> Result<(), ScenarioError> {
        self.run(ENOUGH)
    }

    /// Opens all channels; returns the numbers of open and of refused ones.
    pub(super) fn open_all(&mut self) -> Result<(u64, u64), ScenarioError> {
        let wanted = self.size.channels_per_node;
        for node in 0..self.size.nodes {
            self.queue.schedule(self.now + NODES_EVERY * node as u64, Event::Open { node, nth: 0 });
        }
        self.run(NODES_EVERY * self.size.nodes as u64 + OPENS_EVERY * wanted as u64 + ENOUGH)?;
        let asked = (wanted * self.size.nodes) as u64;
        let (open, refused) = (self.open, self.refused);
        if open + refused != asked {
            return Err(failed(&format!("of {asked} channels {open} are open and {refused} refused")));
        }
        Ok((open, refused))
    }

    /// Sends one message on each open channel.
    pub(super) fn send_all(&mut self) -> Result<(), ScenarioError> {
        let before = self.received;
        for number in 0..self.hosts.len() {
            let now = Instant(self.now.0);
            let host = &mut self.hosts[number];
            for channel in &host.channels {
                let Some(outbox) = &channel.outbox else { continue };
                outbox.send(0, MESSAGE_BYTES, now);
                host.node.handle_ring(channel.id, now);
            }
            self.step(number)?;
            self.run(SENDERS_EVERY)?;
        }
        self.run(ENOUGH)?;
        let (sent, received) = (self.open, self.received - before);
        if sent != received {
            return Err(failed(&format!("{received} of {sent} messages came")));
        }
        Ok(())
    }

    /// Advances time.
    pub(super) fn run(&mut self, span: Nanos) -> Result<(), ScenarioError> {
        let end = self.now + span;
        while let Some((at, event)) = self.queue.next_until(end) {
            self.now = at;
            match event {
                Event::Arrive { node, link, port, frame } => {
                    let now = Instant(at.0);
                    self.hosts[node].node.handle_frame(link, port, now, frame, now);
                    self.step(node)?;
                }
                Event::Wake { node } => {
                    if self.hosts[node].wakes == Some(at) {
                        self.hosts[node].wakes = None;
                        self.step(node)?;
                    }
                }
                Event::Open { node, nth } => {
                    self.ask(node, nth)?;
                    self.step(node)?;
                    if nth + 1 < self.size.channels_per_node {
                        self.queue.schedule(at + OPENS_EVERY, Event::Open { node, nth: nth + 1 });
                    }
                }
            }
        }
        self.now = end;
        Ok(())
    }

    fn ask(&mut self, number: usize, nth: usize) -> Result<(), ScenarioError> {
        let to = (number + LINKS[nth % LINKS.len()]) % self.size.nodes;
        let to = Address { port: self.listener.clone(), host: name(to)? };
        let contract = self.contract;
        let request = OpenRequest { to, contract, user: UserId(nth as u32), probe: false, token: None };
        let now = Instant(self.now.0);
        match self.hosts[number].node.open(request, now) {
            Ok(id) => self.hosts[number].channels.push(Channel { id, outbox: None }),
            Err(_) => self.refused += 1,
        }
        Ok(())
    }

    /// A node does all work that is due at this time: its processor takes no time here.
    fn step(&mut self, number: usize) -> Result<(), ScenarioError> {
        let now = Instant(self.now.0);
        for _ in 0..ROUNDS_MAX {
            self.hosts[number].node.handle_timeout(now);
            while let Some(event) = self.hosts[number].node.poll_event() {
                self.note_event(number, event, now)?;
            }
            while self.hosts[number].node.poll_filter().is_some() {}
            self.transmit(number, now);
            while let Some(work) = self.hosts[number].node.begin_work(now) {
                self.hosts[number].node.finish_work(work, now);
                self.transmit(number, now);
            }
            self.received += self.hosts[number].delivered.take().len() as u64;
            let timeout = self.hosts[number].node.poll_timeout();
            if timeout.is_none_or(|at| at > now) {
                self.sleep(number, timeout);
                return Ok(());
            }
        }
        Err(failed(&format!("node {number} has a timeout at {now:?} that handling does not move")))
    }

    fn sleep(&mut self, number: usize, timeout: Option<Instant>) {
        let Some(at) = timeout.map(|at| SimTime(at.0)) else { return };
        let wakes = &mut self.hosts[number].wakes;
        // A node that wakes too early sleeps again: the queue has few wake-ups of a node, however often they
        // move.
        if wakes.is_none_or(|earlier| at < earlier) {
            *wakes = Some(at);
            self.queue.schedule(at, Event::Wake { node: number });
        }
    }

    fn note_event(&mut self, number: usize, event: NodeEvent, now: Instant) -> Result<(), ScenarioError> {
        let host = &mut self.hosts[number];
        match event {
            NodeEvent::Incoming(incoming) => {
                let (slots, bytes) = (incoming.inbox_messages, incoming.contract.message_bytes_max);
                let inbox = SimInbox::new(0, slots, bytes, &host.delivered);
                host.node.consent(incoming.channel, inbox, now).map_err(|error| failed(&error))?;
            }
            NodeEvent::Opened { channel, grant } => {
                let outbox = SimOutbox::new(0, grant.outbox_messages);
                host.node.attach_outbox(channel, outbox.clone(), now).map_err(|error| failed(&error))?;
                let slot = host.channels.binary_search_by_key(&channel, |known| known.id);
                let slot = slot.map_err(|_| failed(&format!("{channel:?} opened without a request")))?;
                host.channels[slot].outbox = Some(outbox);
                self.open += 1;
                self.hops += grant.route.len() as u64;
            }
            NodeEvent::Refused { .. } => self.refused += 1,
            _ => {}
        }
        Ok(())
    }

    fn transmit(&mut self, number: usize, now: Instant) {
        for link in [LinkId(0), LinkId(1)] {
            while let Some(sent) = self.hosts[number].node.poll_transmit(link, now, &mut self.scratch) {
                let len = sent.packet.copy_to(&mut self.scratch);
                *(if sent.port == Port::Data { &mut self.packets } else { &mut self.signals }) += 1;
                let step = if link.0 == 0 { 1 } else { self.size.nodes - 1 };
                let node = (number + step) % self.size.nodes;
                let frame = SimFrame::new(&self.scratch[..len], &self.frames);
                let at = self.now + RATE.time_of(u64::from(sent.wire_bytes)) + PROPAGATION;
                let link = LinkId(1 - link.0);
                self.queue.schedule(at, Event::Arrive { node, link, port: sent.port, frame });
            }
        }
    }
}
