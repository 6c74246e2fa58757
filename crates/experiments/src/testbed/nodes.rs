//! Two bare nodes on a null device: no driver, no clock, no thread. For the cost of protocol processing alone; [`driven`]
//! puts a driver below the source.
//!
//! Time is virtual: a message comes every interval of its contract, and every packet takes no time. What the source
//! hands to its device can be thrown away (it is the null device of HARTS 5.2.1) or brought to the sink.

mod driven;

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use anyhow::{Context, anyhow, bail};
use punctual_proto::api::{Event, OpenRequest, PacketOut, Port, UserId};
use punctual_proto::config::{
    Admission, CpuConfig, LinkConfig, NodeConfig, Pacing, RunPolicy, SignallingConfig,
};
use punctual_proto::ids::{Address, ChannelId, Epoch, LinkId, Name, NodeId};
use punctual_proto::memory::{Inbox, Memory, MessageInfo, MessageRead, MessageWrite, Outbox};
use punctual_proto::node::Node;
use punctual_proto::{BitRate, Contract, Instant, Nanos, Ppm, Rate};

/// Faster than any processing: nothing waits for the pace.
const RATE: BitRate = BitRate(1_000_000_000_000);
/// Between two messages.
const INTERVAL: Nanos = Nanos::from_millis(10);
const DEADLINE: Nanos = Nanos::from_millis(100);
/// The urgent channel's: so much shorter that its handler is the more urgent one however each channel's D is shared
/// among its stages (most of the long one's goes to the link).
const URGENT_DEADLINE: Nanos = Nanos::from_millis(5);
const URGENT_BYTES: u32 = 64;
/// Steps that establishing a channel may take, a millisecond each.
const STEPS_MAX: usize = 5_000;
const HEADER_BYTES: u32 = 64;
/// Signalling's packets must fit as well.
const PACKET_BYTES_MIN: u32 = 1_464;

/// A message that the application holds.
struct Bytes(Rc<[u8]>);

impl MessageRead for Bytes {
    fn len(&self) -> u32 {
        self.0.len() as u32
    }
    fn copy_to(&self, offset: u32, out: &mut [u8]) {
        let from = offset as usize;
        out.copy_from_slice(&self.0[from..from + out.len()]);
    }
}

/// A message and when it was put there.
type Queued = (Rc<[u8]>, Instant);

/// The application's queue.
#[derive(Clone, Default)]
struct Queue(Rc<RefCell<VecDeque<Queued>>>);

impl Outbox for Queue {
    type Message = Bytes;
    fn take(&mut self, _: Instant) -> Option<(Bytes, Instant)> {
        self.0.borrow_mut().pop_front().map(|(bytes, at)| (Bytes(bytes), at))
    }
    fn is_ready(&self) -> bool {
        !self.0.borrow().is_empty()
    }
}

/// The receiver's slots: one, used again and again; and how many messages came.
#[derive(Clone)]
struct Slots(Rc<RefCell<(Vec<u8>, u64)>>);

impl MessageWrite for Slots {
    fn copy_from(&mut self, offset: u32, bytes: &[u8]) {
        let from = offset as usize;
        self.0.borrow_mut().0[from..from + bytes.len()].copy_from_slice(bytes);
    }
}

impl Inbox for Slots {
    type Slot = Self;
    fn reserve(&mut self) -> Option<Self> {
        Some(self.clone())
    }
    fn publish(&mut self, _: Self, _: MessageInfo) {
        self.0.borrow_mut().1 += 1;
    }
}

struct Plain;

impl Memory for Plain {
    type Frame = Vec<u8>;
    type Outbox = Queue;
    type Inbox = Slots;
}

/// One channel as the applications hold it.
struct Lane {
    channel: ChannelId,
    queue: Queue,
    message: Rc<[u8]>,
}

/// Source and sink with a channel of long messages and an urgent one of single packets.
pub struct Nodes {
    source: Node<Plain>,
    sink: Node<Plain>,
    at: Instant,
    long: Lane,
    urgent: Lane,
    slots: Slots,
    buffer: Vec<u8>,
}

impl Nodes {
    /// A channel of messages of `packets` packets of `fragment_bytes`, under `policy`.
    ///
    /// # Errors
    /// If the channel does not open.
    pub fn open(policy: RunPolicy, packets: u32, fragment_bytes: u32) -> anyhow::Result<Self> {
        Self::start(policy, 1, packets, fragment_bytes)
    }

    /// The same by deadline, where handlers finish `quantum` packets before they yield.
    ///
    /// # Errors
    /// As [`Nodes::open`].
    pub fn with_quantum(quantum: u32, packets: u32, fragment_bytes: u32) -> anyhow::Result<Self> {
        Self::start(RunPolicy::Edf, quantum, packets, fragment_bytes)
    }

    fn start(policy: RunPolicy, quantum: u32, packets: u32, fragment_bytes: u32) -> anyhow::Result<Self> {
        let bytes = packets * fragment_bytes;
        let node = |id| -> anyhow::Result<Node<Plain>> {
            let mut config = config(id, policy, fragment_bytes)?;
            config.cpu.quantum_packets = quantum;
            Node::new(config, u64::from(id), Instant::ZERO).map_err(|error| anyhow!("{error}"))
        };
        let mut nodes = Self {
            source: node(1)?,
            sink: node(2)?,
            at: Instant::ZERO,
            long: Lane::new(bytes),
            urgent: Lane::new(URGENT_BYTES),
            slots: Slots(Rc::new(RefCell::new((vec![0; bytes as usize], 0)))),
            buffer: vec![0; PACKET_BYTES_MIN.max(fragment_bytes + HEADER_BYTES) as usize],
        };
        nodes.long.channel = nodes.establish("long", bytes, DEADLINE, nodes.long.queue.clone())?;
        nodes.urgent.channel =
            nodes.establish("urgent", URGENT_BYTES, URGENT_DEADLINE, nodes.urgent.queue.clone())?;
        Ok(nodes)
    }

    fn establish(
        &mut self,
        port: &str,
        bytes: u32,
        deadline: Nanos,
        queue: Queue,
    ) -> anyhow::Result<ChannelId> {
        let port = Name::new(port)?;
        self.sink.listen(port.clone()).map_err(|error| anyhow!("{error}"))?;
        let rate = Rate::every(INTERVAL).context("the interval is out of range")?;
        let contract = Contract::new(bytes, rate, 2, deadline)?;
        let mut asked = false;
        for _ in 0..STEPS_MAX {
            self.at = self.at + Nanos::from_millis(1);
            self.exchange();
            let alive = self.source.status(self.at).links.iter().all(|link| link.alive);
            if alive && !asked {
                let to = Address { port: port.clone(), host: Name::new("sink")? };
                let request = OpenRequest { to, contract, user: UserId(0), probe: false, token: None };
                self.source.open(request, self.at).map_err(|error| anyhow!("{error}"))?;
                asked = true;
            }
            while let Some(event) = self.sink.poll_event() {
                if let Event::Incoming(incoming) = event {
                    let consent = self.sink.consent(incoming.channel, self.slots.clone(), self.at);
                    consent.map_err(|error| anyhow!("{error}"))?;
                }
            }
            while let Some(event) = self.source.poll_event() {
                match event {
                    Event::Opened { channel, .. } => {
                        let attached = self.source.attach_outbox(channel, queue, self.at);
                        attached.map_err(|error| anyhow!("{error}"))?;
                        return Ok(channel);
                    }
                    Event::Refused { refusal, .. } => bail!("the null device's channel: {refusal}"),
                    _ => {}
                }
            }
        }
        bail!("the null device's channel did not open")
    }

    /// The application's next message is there, its time has come; not yet looked at.
    pub fn offer(&mut self) {
        self.at = self.at + INTERVAL;
        // The neighbours must go on hearing each other.
        self.exchange();
        self.long.put(self.at);
    }

    /// Protocol processing of what was offered: fragments into the link scheduler's queues. Returns its units.
    pub fn process(&mut self) -> u32 {
        self.source.handle_outbox(self.long.channel, self.at);
        work(&mut self.source, self.at)
    }

    /// The link scheduler hands every packet to the device, which throws it away. Returns the packets.
    pub fn discard(&mut self) -> u32 {
        let mut packets = 0;
        while let Some(sent) = self.source.poll_transmit(LinkId(0), self.at, &mut self.buffer) {
            packets += u32::from(sent.port == Port::Data);
            self.source.handle_sent(LinkId(0), sent.wire_bytes, self.at);
        }
        packets
    }

    /// Brings everything to where it goes and does all work there.
    pub fn exchange(&mut self) {
        self.source.handle_outbox(self.long.channel, self.at);
        for _ in 0..2 {
            carry(&mut self.source, &mut self.sink, &mut self.buffer, self.at);
            carry(&mut self.sink, &mut self.source, &mut self.buffer, self.at);
        }
    }

    /// Messages that the sink's application got.
    pub fn delivered(&self) -> u64 {
        self.slots.0.borrow().1
    }
}

impl Lane {
    fn new(bytes: u32) -> Self {
        Self { channel: ChannelId(0), queue: Queue::default(), message: vec![7; bytes as usize].into() }
    }

    fn put(&self, at: Instant) {
        self.queue.0.borrow_mut().push_back((Rc::clone(&self.message), at));
    }
}

/// One unit of work, if there is any.
fn unit(node: &mut Node<Plain>, at: Instant) -> bool {
    let Some(work) = node.begin_work(at) else { return false };
    node.finish_work(work, at);
    true
}

fn work(node: &mut Node<Plain>, at: Instant) -> u32 {
    let mut units = 0;
    while unit(node, at) {
        units += 1;
    }
    units
}

fn carry(from: &mut Node<Plain>, to: &mut Node<Plain>, buffer: &mut [u8], at: Instant) {
    for node in [&mut *from, &mut *to] {
        if node.poll_timeout().is_some_and(|due| due <= at) {
            node.handle_timeout(at);
        }
    }
    work(from, at);
    while let Some(sent) = from.poll_transmit(LinkId(0), at, buffer) {
        let frame = match sent.packet {
            PacketOut::Written(len) => buffer[..len].to_vec(),
            PacketOut::Frame(frame) => frame,
        };
        from.handle_sent(LinkId(0), sent.wire_bytes, at);
        to.handle_frame(LinkId(0), sent.port, at, frame, at);
    }
    work(to, at);
}

fn config(id: u32, policy: RunPolicy, fragment_bytes: u32) -> anyhow::Result<NodeConfig> {
    let hosts = [("source", 1), ("sink", 2)];
    let link = LinkConfig {
        packet_bytes_max: PACKET_BYTES_MIN.max(fragment_bytes + HEADER_BYTES),
        pace: Pacing::Completion,
        propagation_max: Nanos::ZERO,
        prediction_error: Nanos::from_millis(5),
        ..LinkConfig::new("null", NodeId(3 - id), RATE)
    };
    let admission = if policy == RunPolicy::Fifo { Admission::FIFO } else { Admission::EDF };
    Ok(NodeConfig {
        id: NodeId(id),
        name: Name::new(hosts[id as usize - 1].0)?,
        epoch: Epoch(1),
        fragment_bytes,
        fragment_low_latency_bytes: None,
        clock_tolerance: Ppm(100),
        links: vec![link],
        cpu: CpuConfig { run: policy, admission, ..CpuConfig::default() },
        directory: hosts
            .into_iter()
            .map(|(host, id)| Ok((Name::new(host)?, NodeId(id))))
            .collect::<anyhow::Result<_>>()?,
        routes: Vec::new(),
        signalling: SignallingConfig { lease: Nanos::from_secs(3_600), ..SignallingConfig::default() },
        buffer_bytes_max: 256 << 20,
        wakeup_margin: Nanos::ZERO,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_becomes_its_packets_and_arrives() {
        for policy in [RunPolicy::Fifo, RunPolicy::Edf] {
            let mut nodes = Nodes::open(policy, 3, 2_048).expect("a channel");
            nodes.offer();
            nodes.exchange();
            assert_eq!(nodes.delivered(), 1);
            nodes.offer();
            assert!(nodes.process() >= 3, "one unit a packet at least");
            assert_eq!(nodes.discard(), 3);
            nodes.exchange();
            assert_eq!(nodes.delivered(), 1, "it was thrown away");
        }
    }
}
