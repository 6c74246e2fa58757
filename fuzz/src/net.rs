//! Hosts in a line, joined by perfect links: the objects of a fuzzer's operations.
//!
//! They have one common clock, processors without cost, and the same propagation everywhere. Packets can be
//! lost or late, in one direction or in all, repeated, changed and made up; the latest ones are stored for that.

use std::cell::{Ref, RefCell, RefMut};
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

use punctual_proto::api::Port;
use punctual_proto::config::{NodeConfig, SignallingConfig};
use punctual_proto::ids::{Epoch, LinkId};
use punctual_proto::memory::Memory;
use punctual_proto::node::Node;
use punctual_proto::{BitRate, Instant, Nanos};
use punctual_sim::memory::{FramePool, SimFrame};

use crate::fault::{Direction, Fault};

use punctual_rig::line_config;
pub use punctual_rig::name;

/// When every run begins.
pub const START: Instant = Instant(1_000_000_000);
/// The domain's key.
pub const DOMAIN_KEY: [u8; 32] = [7; 32];
/// Rate of every link.
pub const RATE: BitRate = BitRate(40_000_000);
const PROPAGATION: Nanos = Nanos::from_micros(50);
const FRAME_BYTES: usize = 2_048;
/// Packets that are remembered.
const RECENT: usize = 32;
/// More steps than any input can cause: the clock does not advance.
const STEPS_MAX: u32 = 400_000;
/// More units of work without time passing than any input can cause.
const UNITS_MAX: u32 = 200_000;

/// A packet with its destination.
#[derive(Clone, Debug)]
pub struct Packet {
    /// The receiving host.
    pub node: usize,
    /// Its link.
    pub link: LinkId,
    /// Data or signalling.
    pub port: Port,
    /// Bytes from our header on.
    pub bytes: Vec<u8>,
}

/// The hosts `h1` to `hN`.
pub struct Net<M: Memory<Frame = SimFrame>> {
    /// The common clock.
    pub now: Instant,
    nodes: Vec<Rc<RefCell<Node<M>>>>,
    frames: FramePool,
    flying: BTreeMap<(Instant, u64), Packet>,
    sequence: u64,
    recent: VecDeque<Packet>,
    /// What happens to packets from now on.
    pub fault: Fault,
    /// Packets that were lost or late, by the direction in which they were sent.
    pub worse: BTreeMap<Direction, u32>,
    /// Every packet, if requested.
    pub journal: Option<Vec<Packet>>,
    out: Box<[u8]>,
    steps: u32,
    /// Lives of hosts so far: no two have the same epoch, not even if they begin at the same instant.
    lives: u64,
}

/// Host `index` of a line of `hosts`.
pub fn config(index: usize, hosts: usize) -> NodeConfig {
    NodeConfig {
        signalling: SignallingConfig { domain_key: DOMAIN_KEY, ..SignallingConfig::default() },
        buffer_bytes_max: 8 << 20,
        ..line_config(index, hosts, RATE)
    }
}

impl<M: Memory<Frame = SimFrame>> Net<M> {
    /// A line of `hosts`, which have not exchanged HELLOs yet.
    ///
    /// # Panics
    /// If the configuration is refused.
    pub fn line(hosts: usize) -> Self {
        let node = |index| {
            let node = Node::new(config(index, hosts), 100 + index as u64, START).expect("a configuration");
            Rc::new(RefCell::new(node))
        };
        Self {
            now: START,
            nodes: (0..hosts).map(node).collect(),
            frames: FramePool::default(),
            flying: BTreeMap::new(),
            sequence: 0,
            recent: VecDeque::new(),
            fault: Fault::NONE,
            worse: BTreeMap::new(),
            journal: None,
            out: vec![0; FRAME_BYTES].into(),
            steps: 0,
            lives: 0,
        }
    }

    /// Hosts.
    pub fn hosts(&self) -> usize {
        self.nodes.len()
    }

    /// Host `index`, shared.
    pub fn share(&self, index: usize) -> Rc<RefCell<Node<M>>> {
        Rc::clone(&self.nodes[index])
    }

    /// Host `index`.
    pub fn node(&self, index: usize) -> Ref<'_, Node<M>> {
        self.nodes[index].borrow()
    }

    /// Returns host `index`, for a call to it.
    pub fn node_mut(&self, index: usize) -> RefMut<'_, Node<M>> {
        self.nodes[index].borrow_mut()
    }

    /// Crashes the host and starts it again with another epoch.
    ///
    /// # Panics
    /// If the configuration is refused.
    pub fn restart(&mut self, index: usize) {
        self.lives += 1;
        let epoch = Epoch(1 + self.lives);
        let config = NodeConfig { epoch, ..config(index, self.nodes.len()) };
        *self.node_mut(index) = Node::new(config, 100 + epoch.0, self.now).expect("a configuration");
    }

    /// One of the latest packets, 0 the newest.
    pub fn recent(&self, back: usize) -> Option<&Packet> {
        self.recent.get(self.recent.len().checked_sub(back % RECENT + 1)?)
    }

    /// The other end of a link.
    fn peer(&self, node: usize, link: LinkId) -> (usize, LinkId) {
        let left = node > 0 && link.0 == 0;
        let peer = if left { node - 1 } else { node + 1 };
        (peer, LinkId(u16::from(left && peer > 0)))
    }

    /// Links of a host.
    pub fn links(&self, node: usize) -> u16 {
        u16::from(node > 0) + u16::from(node + 1 < self.nodes.len())
    }

    /// A packet comes in at once, wherever it is from.
    pub fn inject(&mut self, packet: &Packet) {
        let link = LinkId(packet.link.0 % self.links(packet.node));
        let bytes = &packet.bytes[..packet.bytes.len().min(FRAME_BYTES)];
        let frame = SimFrame::new(bytes, &self.frames);
        self.node_mut(packet.node).handle_frame(link, packet.port, self.now, frame, self.now);
        self.settle();
    }

    /// Everything that needs no time.
    pub fn settle(&mut self) {
        (0..self.nodes.len()).for_each(|node| self.settle_node(node));
    }

    fn settle_node(&mut self, index: usize) {
        let shared = self.share(index);
        let mut node = shared.borrow_mut();
        node.handle_timeout(self.now);
        let mut units = 0;
        loop {
            let mut active = false;
            while let Some(work) = node.begin_work(self.now) {
                node.finish_work(work, self.now);
                active = true;
                units += 1;
                assert!(units < UNITS_MAX, "work without end at {:?}", self.now);
            }
            while node.poll_filter().is_some() {}
            for link in (0..self.links(index)).map(LinkId) {
                while let Some(sent) = node.poll_transmit(link, self.now, &mut self.out) {
                    active = true;
                    let len = sent.packet.copy_to(&mut self.out);
                    self.carry(index, link, sent.port, len);
                }
            }
            if !active {
                return;
            }
        }
    }

    fn carry(&mut self, from: usize, out: LinkId, port: Port, len: usize) {
        let (node, link) = self.peer(from, out);
        let packet = Packet { node, link, port, bytes: self.out[..len].to_vec() };
        if let Some(journal) = &mut self.journal {
            journal.push(packet.clone());
        }
        if self.recent.len() == RECENT {
            self.recent.pop_front();
        }
        self.recent.push_back(packet.clone());
        let late = self.fault.pass((from, out), port);
        if late != Some(Nanos::ZERO) {
            *self.worse.entry((from, out)).or_default() += 1;
        }
        let Some(late) = late else { return };
        self.sequence += 1;
        self.flying.insert((self.now + PROPAGATION + late, self.sequence), packet);
    }

    /// Advances the clock.
    ///
    /// # Panics
    /// If the clock does not advance.
    pub fn run_for(&mut self, span: Nanos) {
        let until = self.now + span;
        self.settle();
        loop {
            let timeouts = self.nodes.iter().filter_map(|node| node.borrow().poll_timeout());
            let arrivals = self.flying.keys().next().map(|(at, _)| *at);
            let Some(next) = timeouts.chain(arrivals).min().filter(|next| *next <= until) else { break };
            self.steps += 1;
            assert!(self.steps < STEPS_MAX, "time does not advance at {:?}", self.now);
            self.now = self.now.max(next);
            while let Some(entry) = self.flying.first_entry().filter(|entry| entry.key().0 <= self.now) {
                let ((at, _), packet) = entry.remove_entry();
                let frame = SimFrame::new(&packet.bytes, &self.frames);
                self.node_mut(packet.node).handle_frame(packet.link, packet.port, at, frame, self.now);
            }
            self.settle();
        }
        self.now = until;
    }
}
