//! A small world for tests of `Node`: perfect links with a fixed propagation, free CPUs, one common clock.
//! (The `sim` crate is the real simulator; this one is for tests of single rules.)
#![allow(dead_code, unused_imports)]

mod audit;
pub mod hops;
mod inbox;
mod line;
pub mod rate;
pub mod rtu;
pub mod script;
pub mod story;
pub mod written;

use std::cell::RefCell;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::rc::Rc;

use punctual_proto::api::{ChannelCounters, Event, Grant, OpenRequest, Port, UserId};
use punctual_proto::config::NodeConfig;
use punctual_proto::ids::{Address, ChannelId, LinkId};
use punctual_proto::memory::{Inbox, Memory, MessageInfo, MessageRead, MessageWrite, Outbox};
use punctual_proto::node::Node;
use punctual_proto::{BitRate, Contract, Instant, Nanos};

use inbox::TestSlot;
pub use inbox::{TestInbox, Turns};
pub use line::{line_config, name};

pub const FRAME_BYTES: usize = 2_048;
pub const PROPAGATION: Nanos = Nanos::from_micros(50);

/// Frames come from a pool and go back to it.
#[derive(Clone)]
pub struct Pool(Rc<RefCell<Vec<Box<[u8]>>>>);

impl Pool {
    pub fn new(frames: usize) -> Self {
        Self(Rc::new(RefCell::new((0..frames).map(|_| vec![0; FRAME_BYTES].into()).collect())))
    }
    pub fn frame(&self, bytes: &[u8]) -> Frame {
        let mut buffer = self.0.borrow_mut().pop().expect("the test's pool has a frame");
        buffer[..bytes.len()].copy_from_slice(bytes);
        Frame { buffer: Some(buffer), len: bytes.len(), pool: self.clone() }
    }
    pub fn free(&self) -> usize {
        self.0.borrow().len()
    }
}

pub struct Frame {
    buffer: Option<Box<[u8]>>,
    len: usize,
    pool: Pool,
}
impl AsRef<[u8]> for Frame {
    fn as_ref(&self) -> &[u8] {
        &self.buffer.as_ref().unwrap()[..self.len]
    }
}
impl AsMut<[u8]> for Frame {
    fn as_mut(&mut self) -> &mut [u8] {
        &mut self.buffer.as_mut().unwrap()[..self.len]
    }
}
impl Drop for Frame {
    fn drop(&mut self) {
        self.pool.0.borrow_mut().push(self.buffer.take().unwrap());
    }
}

/// State of a ring that its application reads from shared memory.
#[derive(Clone, Debug, Default)]
pub struct Shown {
    is_touched: bool,
    pub counters: ChannelCounters,
    /// Number of changes of the status beside the counters.
    pub outdated: u64,
    pub times: u64,
}

impl Shown {
    fn touch(&mut self) -> bool {
        !std::mem::replace(&mut self.is_touched, true)
    }
    fn show(&mut self, counters: &ChannelCounters) {
        assert!(self.is_touched, "shown though nothing was counted");
        *self = Self { is_touched: false, counters: *counters, times: self.times + 1, ..*self };
    }
}

/// An outgoing ring: buffers circulate between `free` and `queued`.
#[derive(Default)]
pub struct OutRing {
    queued: VecDeque<(Vec<u8>, Instant)>,
    pub free: Vec<Vec<u8>>,
    pub shown: Shown,
}
impl OutRing {
    /// Messages that were not taken yet.
    pub fn waiting(&self) -> usize {
        self.queued.len()
    }
}
#[derive(Clone)]
pub struct TestOutbox(pub Rc<RefCell<OutRing>>);

impl TestOutbox {
    pub fn new(messages: usize, bytes: usize) -> Self {
        let mut ring = OutRing {
            queued: VecDeque::with_capacity(messages),
            free: Vec::with_capacity(messages),
            shown: Shown::default(),
        };
        ring.free.extend((0..messages).map(|_| Vec::with_capacity(bytes)));
        Self(Rc::new(RefCell::new(ring)))
    }
    /// Puts `copies` of a message in whatever the ring's size, as a hostile application can.
    pub fn stuff(&self, message: &[u8], copies: usize, now: Instant) {
        self.0.borrow_mut().queued.extend((0..copies).map(|_| (message.to_vec(), now)));
    }
    /// `false` where the ring is full: the application would block.
    pub fn send(&self, message: &[u8], now: Instant) -> bool {
        let mut ring = self.0.borrow_mut();
        let Some(mut buffer) = ring.free.pop() else { return false };
        buffer.clear();
        buffer.extend_from_slice(message);
        ring.queued.push_back((buffer, now));
        true
    }
}
pub struct TestMessage {
    bytes: Vec<u8>,
    ring: Rc<RefCell<OutRing>>,
}
impl Drop for TestMessage {
    fn drop(&mut self) {
        self.ring.borrow_mut().free.push(std::mem::take(&mut self.bytes));
    }
}
impl MessageRead for TestMessage {
    fn len(&self) -> u32 {
        self.bytes.len() as u32
    }
    fn copy_to(&self, offset: u32, out: &mut [u8]) {
        out.copy_from_slice(&self.bytes[offset as usize..offset as usize + out.len()]);
    }
}
impl Outbox for TestOutbox {
    type Message = TestMessage;
    fn take(&mut self, _: Instant) -> Option<(TestMessage, Instant)> {
        let (bytes, sent) = self.0.borrow_mut().queued.pop_front()?;
        Some((TestMessage { bytes, ring: self.0.clone() }, sent))
    }
    fn is_ready(&self) -> bool {
        !self.0.borrow().queued.is_empty()
    }
    fn touch(&mut self) -> bool {
        self.0.borrow_mut().shown.touch()
    }
    fn show(&mut self, counters: &ChannelCounters) {
        self.0.borrow_mut().shown.show(counters);
    }
    fn outdate(&mut self) {
        self.0.borrow_mut().shown.outdated += 1;
    }
}

pub struct TestMemory;
impl Memory for TestMemory {
    type Frame = Frame;
    type Outbox = TestOutbox;
    type Inbox = TestInbox;
}

struct InFlight {
    at: Instant,
    sequence: u64,
    node: usize,
    link: LinkId,
    port: Port,
    frame: Frame,
}
impl PartialEq for InFlight {
    fn eq(&self, other: &Self) -> bool {
        (self.at, self.sequence) == (other.at, other.sequence)
    }
}
impl Eq for InFlight {}
impl PartialOrd for InFlight {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for InFlight {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.sequence).cmp(&(other.at, other.sequence))
    }
}

/// Decides what happens to a packet on its way: (from node, bytes) -> deliver it?
pub type Tap = Box<dyn FnMut(usize, Port, &mut Vec<u8>) -> bool>;

/// Something below the driver of a host, towards the next one, that drains at its own rate: a queue behind a token bucket.
pub struct Slow {
    pub node: usize,
    pub rate: BitRate,
    /// Bytes that each packet adds on the wire.
    pub overhead_bytes: u64,
    /// How long a packet may wait; what would wait longer is lost.
    pub wait_max: Nanos,
    /// How far it may run ahead.
    pub burst: Nanos,
    /// Interval in which no packet leaves; at its end all of them do.
    pub stall: (Instant, Instant),
    free_at: Instant,
}

impl Slow {
    pub fn new(node: usize, rate: BitRate) -> Self {
        let (wait_max, burst) = (Nanos::from_millis(100), Nanos::ZERO);
        let stall = (Instant(0), Instant(0));
        Self { node, rate, overhead_bytes: 66, wait_max, burst, stall, free_at: Instant(0) }
    }

    /// Time at which a packet of `bytes` that arrives now is through; `None` if it is lost.
    fn drain(&mut self, bytes: usize, now: Instant) -> Option<Instant> {
        let begins = self.free_at.max(Instant(now.0.saturating_sub(self.burst.0)));
        if begins.since(now) > self.wait_max {
            return None;
        }
        self.free_at = begins + self.rate.time_of(bytes as u64 + self.overhead_bytes);
        let at = self.free_at.max(now);
        Some(if at >= self.stall.0 { at.max(self.stall.1) } else { at })
    }
}

/// Hosts `h1`..`hN` in a line.
pub struct World {
    pub now: Instant,
    pub nodes: Vec<Node<TestMemory>>,
    pub pool: Pool,
    in_flight: BinaryHeap<Reverse<InFlight>>,
    sequence: u64,
    pub events: Vec<VecDeque<Event>>,
    pub tap: Option<Tap>,
    pub slow: Option<Slow>,
    /// A host whose processor has no time, and until when. Its drivers go on receiving.
    pub still: Option<(usize, Instant)>,
    /// Turns of processors are one unit long: each begins with what is due. Otherwise one turn does all work of a moment.
    pub short_turns: bool,
    kept: Vec<InFlight>,
    out: Box<[u8]>,
    steps: u64,
    /// Frames that have passed each driver; `None`: no audit.
    pub audit: Option<audit::Audit>,
    /// Units of work and packets in order; `None`: not recorded.
    pub tape: Option<Vec<String>>,
}

impl World {
    pub fn line(hosts: usize, rate: BitRate) -> Self {
        Self::of((0..hosts).map(|index| line_config(index, hosts, rate)).collect())
    }

    pub fn of(configs: Vec<NodeConfig>) -> Self {
        let now = Instant(1_000_000_000);
        let build = |(index, config)| Node::new(config, 100 + index as u64, now).unwrap();
        let hosts = configs.len();
        let audit = Some(audit::Audit::of(&configs));
        Self {
            now,
            audit,
            tape: None,
            nodes: configs.into_iter().enumerate().map(build).collect(),
            pool: Pool::new(4_096),
            in_flight: BinaryHeap::with_capacity(4_096),
            sequence: 0,
            events: vec![VecDeque::new(); hosts],
            tap: None,
            slow: None,
            still: None,
            short_turns: false,
            kept: Vec::new(),
            out: vec![0; FRAME_BYTES].into(),
            steps: 0,
        }
    }

    /// Another life of a host.
    pub fn restart(&mut self, index: usize, node: Node<TestMemory>) {
        self.nodes[index] = node;
        if let Some(audit) = &mut self.audit {
            audit.restarted(index);
        }
    }

    /// The other end of a link of a line.
    fn peer(&self, node: usize, link: LinkId) -> (usize, LinkId) {
        let left = node > 0 && link.0 == 0;
        let peer = if left { node - 1 } else { node + 1 };
        (peer, LinkId(u16::from(left && peer > 0)))
    }

    /// Lets everything happen that needs no time.
    pub fn settle(&mut self) {
        for node in 0..self.nodes.len() {
            if !self.stands_still(node) {
                self.settle_node(node);
            }
        }
    }

    fn stands_still(&self, node: usize) -> bool {
        self.still.is_some_and(|(host, until)| host == node && self.now < until)
    }

    /// Takes the packets that arrived while a processor was stopped.
    fn take_kept(&mut self) {
        if self.still.is_some_and(|(_, until)| self.now >= until) {
            self.still = None;
            for InFlight { node, link, port, at, frame, .. } in std::mem::take(&mut self.kept) {
                self.nodes[node].handle_frame(link, port, at, frame, self.now);
            }
        }
    }

    fn settle_node(&mut self, index: usize) {
        self.nodes[index].handle_timeout(self.now);
        self.nodes[index].show_counters();
        loop {
            let mut active = false;
            while let Some(work) = self.nodes[index].begin_work(self.now) {
                if let Some(tape) = &mut self.tape {
                    tape.push(script::work(self.now, index, &work, self.nodes[index].costs()));
                }
                self.nodes[index].finish_work(work, self.now);
                // A processor's turn may end here.
                self.nodes[index].show_counters();
                if self.short_turns {
                    self.nodes[index].handle_timeout(self.now);
                }
                active = true;
            }
            for link in 0..self.links(index) {
                active |= self.transmit(index, LinkId(link as u16));
            }
            if !active {
                break;
            }
        }
        while let Some(event) = self.nodes[index].poll_event() {
            self.events[index].push_back(event);
        }
    }

    /// Links of a host of the line.
    fn links(&self, node: usize) -> usize {
        usize::from(node > 0) + usize::from(node + 1 < self.nodes.len())
    }

    fn transmit(&mut self, node: usize, link: LinkId) -> bool {
        let mut active = false;
        loop {
            let may = self.nodes[node].may_transmit(link);
            let sent = self.nodes[node].poll_transmit(link, self.now, &mut self.out);
            assert!(may || sent.is_none(), "h{} has something that it has not announced", node + 1);
            let Some(sent) = sent else { break };
            active = true;
            self.nodes[node].show_counters();
            let len = sent.packet.copy_to(&mut self.out);
            if let Some(audit) = &mut self.audit {
                audit.sent(node, link, sent.port, &self.out[..len], sent.wire_bytes);
            }
            if let Some(tape) = &mut self.tape {
                tape.push(script::packet(self.now, node, link, sent.port, &self.out[..len]));
            }
            let frame = match &mut self.tap {
                None => Some(self.pool.frame(&self.out[..len])),
                Some(tap) => {
                    let mut bytes = self.out[..len].to_vec();
                    tap(node, sent.port, &mut bytes).then(|| self.pool.frame(&bytes))
                }
            };
            let (peer, peer_link) = self.peer(node, link);
            let slow = self.slow.as_mut().filter(|slow| slow.node == node && peer > node);
            let through = slow.map_or(Some(self.now), |slow| slow.drain(len, self.now));
            let (Some(frame), Some(through)) = (frame, through) else { continue };
            self.sequence += 1;
            self.in_flight.push(Reverse(InFlight {
                at: through + PROPAGATION,
                sequence: self.sequence,
                node: peer,
                link: peer_link,
                port: sent.port,
                frame,
            }));
        }
        active
    }

    /// Puts a packet on a node's link as if its neighbour had sent it.
    pub fn inject(&mut self, node: usize, link: LinkId, port: Port, bytes: &[u8]) {
        let frame = self.pool.frame(bytes);
        self.nodes[node].handle_frame(link, port, self.now, frame, self.now);
        self.settle_node(node);
    }

    /// Runs until `until`.
    pub fn run_until(&mut self, until: Instant) {
        self.settle();
        loop {
            let awake = (0..self.nodes.len()).filter(|node| self.still.is_none_or(|(host, _)| host != *node));
            let timeouts = awake.filter_map(|node| self.nodes[node].poll_timeout());
            let timeouts = timeouts.chain(self.still.map(|(_, until)| until));
            let arrivals = self.in_flight.peek().map(|Reverse(packet)| packet.at);
            let Some(next) = timeouts.chain(arrivals).min().filter(|next| *next <= until) else { break };
            self.steps += 1;
            assert!(self.steps < 20_000_000, "time stands still at {:?}", self.now);
            self.now = self.now.max(next);
            while self.in_flight.peek().is_some_and(|Reverse(packet)| packet.at <= self.now) {
                let Some(Reverse(packet)) = self.in_flight.pop() else { break };
                if self.stands_still(packet.node) {
                    self.kept.push(packet);
                    continue;
                }
                self.nodes[packet.node].handle_frame(
                    packet.link,
                    packet.port,
                    packet.at,
                    packet.frame,
                    self.now,
                );
            }
            self.take_kept();
            self.settle();
        }
        self.now = until;
        if let Some(audit) = &mut self.audit {
            audit.look(&self.nodes, self.now);
        }
    }

    pub fn run_for(&mut self, span: Nanos) {
        self.run_until(self.now + span);
    }

    /// Opens a channel from `from` to `to`, whose application consents at once.
    #[allow(clippy::result_large_err, reason = "a test wants the event as it came")]
    pub fn open(&mut self, from: usize, to: usize, contract: Contract) -> Result<Open, Event> {
        let port = name("port");
        // A second channel to the same port finds the listener there.
        let _ = self.nodes[to].listen(port.clone());
        let host = name(&format!("h{}", to + 1));
        let request =
            OpenRequest { to: Address { port, host }, contract, user: UserId(0), probe: false, token: None };
        let channel = self.nodes[from].open(request, self.now).expect("the request can be tried");
        let mut sink = None;
        for _ in 0..1_000 {
            self.run_for(Nanos::from_millis(1));
            while let Some(event) = self.events[to].pop_front() {
                if let Event::Incoming(incoming) = event {
                    let bytes = contract.message_bytes_max as usize;
                    let inbox = TestInbox::new(incoming.inbox_messages as usize + 4, bytes);
                    self.nodes[to].consent(incoming.channel, inbox.clone(), self.now).unwrap();
                    sink = Some((incoming.channel, inbox));
                }
            }
            while let Some(event) = self.events[from].pop_front() {
                match event {
                    Event::Opened { channel: opened, grant } if opened == channel => {
                        let messages = grant.outbox_messages as usize;
                        let outbox = TestOutbox::new(messages, contract.message_bytes_max as usize);
                        self.nodes[from].attach_outbox(channel, outbox.clone(), self.now).unwrap();
                        let (sink, inbox) = sink.unwrap();
                        return Ok(Open { source: channel, sink, outbox, inbox, grant });
                    }
                    refused @ Event::Refused { .. } => return Err(refused),
                    _ => {}
                }
            }
        }
        panic!("no answer within a second");
    }
}

/// An open channel.
#[derive(Debug)]
pub struct Open {
    pub source: ChannelId,
    pub sink: ChannelId,
    pub outbox: TestOutbox,
    pub inbox: TestInbox,
    pub grant: Grant,
}
impl std::fmt::Debug for TestOutbox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TestOutbox")
    }
}

/// A message whose bytes identify its channel and number.
pub fn pattern(seed: u64, number: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ number;
    (0..len)
        .map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 56) as u8
        })
        .collect()
}
