//! Hosts in a line in virtual time: perfect links with a fixed propagation, free processors, one common clock.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::ops::Range;

use punctual_proto::api::{Event, Grant, OpenRequest, Port, UserId};
use punctual_proto::config::NodeConfig;
use punctual_proto::ids::{Address, ChannelId, LinkId};
use punctual_proto::node::Node;
use punctual_proto::{BitRate, Contract, Instant, Nanos};

use crate::audit::Audit;
use crate::line::{START, line_config, name};
use crate::rings::{Frame, Pool, TestInbox, TestMemory, TestOutbox};
use crate::slow::Slow;
use crate::tape;

/// The propagation of every link, unless a test changes it.
pub const PROPAGATION: Nanos = Nanos::from_micros(50);
/// Frames are at least as long as this.
pub(crate) const FRAME_BYTES: u32 = 2_048;
/// Frames of all hosts together.
const FRAMES: usize = 4_096;

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

/// Sees and may change a packet on its way: (from node, port, bytes) -> whether to deliver it.
pub type Tap = Box<dyn FnMut(usize, Port, &mut Vec<u8>) -> bool>;

/// Hosts `h1`..`hN` in a line.
pub struct World {
    /// The common clock.
    pub now: Instant,
    /// The hosts.
    pub nodes: Vec<Node<TestMemory>>,
    /// The frames of all drivers.
    pub pool: Pool,
    /// Of every link.
    pub propagation: Nanos,
    /// Adapters report each packet as sent at once.
    pub completes: bool,
    in_flight: BinaryHeap<Reverse<InFlight>>,
    sequence: u64,
    /// Events of each host that no test has taken yet.
    pub events: Vec<VecDeque<Event>>,
    /// Sees every packet that leaves a host.
    pub tap: Option<Tap>,
    /// A slow link.
    pub slow: Option<Slow>,
    /// A host whose processor gets no CPU time, and until when. Its drivers receive meanwhile.
    pub still: Option<(usize, Instant)>,
    /// Turns of processors are one unit long: each begins with the timers that are due. Otherwise one turn does all work of
    /// a moment.
    pub short_turns: bool,
    kept: Vec<InFlight>,
    /// When each host has something to do next.
    due: Vec<Option<Instant>>,
    out: Box<[u8]>,
    steps: u64,
    /// Checks each host against its drivers, and that it announces what it sends; `None`: no checks.
    pub audit: Option<Audit>,
    /// A record of units of work and packets; `None`: no record.
    pub tape: Option<Vec<String>>,
}

impl World {
    /// A line of `hosts` with every link at `rate`.
    ///
    /// # Panics
    /// If a host refuses its configuration.
    pub fn line(hosts: usize, rate: BitRate) -> Self {
        Self::of((0..hosts).map(|index| line_config(index, hosts, rate)).collect())
    }

    /// A line of hosts with these configurations.
    ///
    /// # Panics
    /// If one is refused.
    pub fn of(configs: Vec<NodeConfig>) -> Self {
        let build = |(index, config)| {
            Node::new(config, 100 + index as u64, START).unwrap_or_else(|error| panic!("{error}"))
        };
        let hosts = configs.len();
        let packets = configs.iter().flat_map(|config| &config.links).map(|link| link.packet_bytes_max);
        let frame_bytes = packets.chain([FRAME_BYTES]).max().unwrap_or_default() as usize;
        let audit = Some(Audit::of(&configs));
        Self {
            now: START,
            audit,
            tape: None,
            nodes: configs.into_iter().enumerate().map(build).collect(),
            pool: Pool::new(FRAMES, frame_bytes),
            propagation: PROPAGATION,
            completes: false,
            in_flight: BinaryHeap::with_capacity(FRAMES),
            sequence: 0,
            events: vec![VecDeque::new(); hosts],
            tap: None,
            slow: None,
            still: None,
            short_turns: false,
            kept: Vec::new(),
            due: vec![None; hosts],
            out: vec![0; frame_bytes].into(),
            steps: 0,
        }
    }

    /// Replaces a host by its restarted node.
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

    /// Does everything that needs no time.
    pub fn settle(&mut self) {
        self.settle_all(0..self.nodes.len());
    }

    /// The same for some hosts. One without CPU time does nothing.
    fn settle_all(&mut self, hosts: Range<usize>) {
        for host in hosts {
            if !self.is_stopped(host) {
                self.nodes[host].handle_timeout(self.now);
                self.nodes[host].show_counters();
                while self.work(host) | self.transmit_all(host) {}
                while let Some(event) = self.nodes[host].poll_event() {
                    self.events[host].push_back(event);
                }
            }
        }
    }

    fn is_stopped(&self, node: usize) -> bool {
        self.still.is_some_and(|(host, until)| host == node && self.now < until)
    }

    /// Hands over what arrived while a processor got no CPU time, after that time.
    fn take_kept(&mut self) {
        if self.still.is_some_and(|(_, until)| self.now >= until) {
            self.still = None;
            for InFlight { node, link, port, at, frame, .. } in std::mem::take(&mut self.kept) {
                self.nodes[node].handle_frame(link, port, at, frame, self.now);
            }
        }
    }

    /// Does all units of work that a host has. Returns whether there were any.
    // Inlined: the bench `node_round_trip` counts instructions, and they should be the node's.
    #[inline(always)]
    fn work(&mut self, host: usize) -> bool {
        let mut any = false;
        while let Some(work) = self.nodes[host].begin_work(self.now) {
            if let Some(tape) = &mut self.tape {
                tape.push(tape::work(self.now, host, &work, self.nodes[host].costs()));
            }
            self.nodes[host].finish_work(work, self.now);
            // A turn of a processor may end here.
            self.nodes[host].show_counters();
            if self.short_turns {
                self.nodes[host].handle_timeout(self.now);
            }
            any = true;
        }
        any
    }

    /// Sends all packets that a host has. Returns whether there were any.
    fn transmit_all(&mut self, host: usize) -> bool {
        let mut any = false;
        for link in 0..self.links(host) {
            any |= self.transmit(host, LinkId(link as u16));
        }
        any
    }

    /// Links of a host of the line.
    fn links(&self, node: usize) -> usize {
        usize::from(node > 0) + usize::from(node + 1 < self.nodes.len())
    }

    fn transmit(&mut self, node: usize, link: LinkId) -> bool {
        let mut active = false;
        loop {
            let may = self.nodes[node].may_transmit(link);
            // Asking a host without a packet is part of the checks: it must have announced what it sends.
            if !may && self.audit.is_none() {
                break;
            }
            let sent = self.nodes[node].poll_transmit(link, self.now, &mut self.out);
            assert!(may || sent.is_none(), "h{} has a packet that it has not announced", node + 1);
            let Some(sent) = sent else { break };
            active = true;
            self.nodes[node].show_counters();
            if self.completes {
                self.nodes[node].handle_sent(link, sent.wire_bytes, self.now);
            }
            let len = sent.packet.copy_to(&mut self.out);
            if let Some(audit) = &mut self.audit {
                audit.sent(node, link, sent.port, &self.out[..len], sent.wire_bytes);
            }
            if let Some(tape) = &mut self.tape {
                tape.push(tape::packet(self.now, node, link, sent.port, &self.out[..len]));
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
                at: through + self.propagation,
                sequence: self.sequence,
                node: peer,
                link: peer_link,
                port: sent.port,
                frame,
            }));
        }
        active
    }

    /// Hands a node a packet as if its neighbour on this link had sent it.
    pub fn inject(&mut self, node: usize, link: LinkId, port: Port, bytes: &[u8]) {
        let frame = self.pool.frame(bytes);
        self.nodes[node].handle_frame(link, port, self.now, frame, self.now);
        self.settle_all(node..node + 1);
    }

    /// Lets time pass until `until`, event by event.
    ///
    /// # Panics
    /// If time does not pass, or if a host's accounts are wrong.
    pub fn run_until(&mut self, until: Instant) {
        self.settle();
        loop {
            let Some(next) = self.next_event().filter(|next| *next <= until) else { break };
            self.steps += 1;
            assert!(self.steps < 20_000_000, "time does not pass at {:?}", self.now);
            self.now = self.now.max(next);
            while self.in_flight.peek().is_some_and(|Reverse(packet)| packet.at <= self.now) {
                let Some(Reverse(packet)) = self.in_flight.pop() else { break };
                self.due[packet.node] = Some(packet.at);
                if self.is_stopped(packet.node) {
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
            for host in 0..self.nodes.len() {
                // The others have nothing to do before their next event.
                if self.due[host].is_some_and(|due| due <= self.now) {
                    self.settle_all(host..host + 1);
                }
            }
        }
        self.now = until;
        if let Some(audit) = &mut self.audit {
            audit.check(&self.nodes, self.now);
        }
    }

    /// When the next thing happens; and of each host, when its own next timer is due.
    fn next_event(&mut self) -> Option<Instant> {
        let stopped = self.still;
        for (host, (node, due)) in self.nodes.iter().zip(&mut self.due).enumerate() {
            *due = match stopped {
                Some((of, until)) if of == host => Some(until),
                _ => node.poll_timeout(),
            };
        }
        let arrival = self.in_flight.peek().map(|Reverse(packet)| packet.at);
        self.due.iter().flatten().copied().chain(arrival).min()
    }

    /// Lets a time pass.
    ///
    /// # Panics
    /// As [`World::run_until`].
    pub fn run_for(&mut self, span: Nanos) {
        self.run_until(self.now + span);
    }

    /// Lets a time pass in one step. At its end, the hosts handle everything that was due meanwhile, late, as after a sleep.
    ///
    /// # Panics
    /// As [`World::run_until`].
    pub fn skip(&mut self, span: Nanos) {
        self.now = self.now + span;
        self.run_until(self.now);
    }

    /// Opens a channel from `from` to `to`. The application there consents at once.
    ///
    /// # Errors
    /// The refusal, if the channel was refused.
    ///
    /// # Panics
    /// If the request cannot be sent, or has no answer within a second.
    #[allow(clippy::result_large_err, reason = "a test needs the event itself")]
    pub fn open(&mut self, from: usize, to: usize, contract: Contract) -> Result<Open, Event> {
        let port = name("port");
        // For a second channel to the same port, the listener exists already.
        let _ = self.nodes[to].listen(port.clone());
        let host = name(&format!("h{}", to + 1));
        let request =
            OpenRequest { to: Address { port, host }, contract, user: UserId(0), probe: false, token: None };
        let channel = self.nodes[from].open(request, self.now).expect("the request can be sent");
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
pub struct Open<O = TestOutbox, I = TestInbox> {
    /// Its identifier at the source.
    pub source: ChannelId,
    /// Its identifier at the sink.
    pub sink: ChannelId,
    /// The sender's ring.
    pub outbox: O,
    /// The receiver's ring.
    pub inbox: I,
    /// The promise of the network.
    pub grant: Grant,
}

/// A message whose bytes depend on its channel (`seed`) and number.
pub fn pattern(seed: u64, number: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ number;
    (0..len)
        .map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 56) as u8
        })
        .collect()
}
