//! RTCOP against an attacker who has the domain's key and plays both neighbours of a host: datagrams with a
//! right tag and any content, messages in a stream that follows the protocol, data packets of any channels.
//!
//! Whatever packets come, the host does bounded work, keeps its counters consistent, and has no state left
//! when the leases are over.

use std::cell::RefCell;
use std::collections::BTreeSet;

use punctual_proto::api::{DropCounters, Event, OpenRequest, Port, UserId};
use punctual_proto::ids::{Address, LinkId};
use punctual_proto::node::Node;
use punctual_proto::{Instant, Nanos, Ppm};
use punctual_sim::memory::{Deliveries, FramePool, SimFrame, SimInbox, SimMemory, SimOutbox};

use crate::input::{Input, put_bytes};
use crate::insider::{self, Body, Insider, TAG_BYTES, sign};
use crate::net::{START, config, name};
use crate::targets::node::{Wish, honest_packets};

/// More packets or units than an input can cause without time passing.
const STEPS_MAX: u32 = 50_000;

/// The seed of the host: that of the middle host of an honest line, so that its answers to a recording are
/// the recorded ones.
const SEED: u64 = 101;
/// Operations that would advance the clock by zero encode applications' actions: open a channel, over the
/// first link or (with 0x10) the second,
const OPEN: u8 = 0x08;
/// and close their channels.
const CLOSE: u8 = 0x09;

struct Bench {
    node: Node<SimMemory>,
    now: Instant,
    frames: FramePool,
    neighbours: [Insider; 2],
    out: Vec<u8>,
    delivered: Deliveries,
    steps: u32,
}

impl Bench {
    fn new() -> Self {
        let node = Node::new(config(1, 3), SEED, START).expect("a configuration");
        let neighbours = [Insider::new(1, 2), Insider::new(3, 2)];
        let (frames, delivered) = (FramePool::default(), Deliveries::default());
        Self { node, now: START, frames, neighbours, out: vec![0; 2_048], delivered, steps: 0 }
    }

    fn handle(&mut self, link: usize, port: Port, bytes: &[u8]) {
        let frame = SimFrame::new(bytes, &self.frames);
        self.node.handle_frame(LinkId(link as u16), port, self.now, frame, self.now);
        self.settle();
    }

    fn settle(&mut self) {
        self.node.handle_timeout(self.now);
        let mut answers: Vec<(usize, Vec<u8>)> = Vec::new();
        loop {
            self.steps += 1;
            assert!(self.steps < STEPS_MAX, "work without end at {:?}", self.now);
            if let Some(work) = self.node.begin_work(self.now) {
                self.node.finish_work(work, self.now);
                continue;
            }
            while self.node.poll_filter().is_some() {}
            let mut active = false;
            for link in 0..2 {
                let sent = self.node.poll_transmit(LinkId(link as u16), self.now, &mut self.out);
                let Some(sent) = sent else { continue };
                active = true;
                let len = sent.packet.copy_to(&mut self.out);
                if sent.port == Port::Signalling {
                    let answer = self.neighbours[link].handle_datagram(&self.out[..len], self.now.0);
                    answers.extend(answer.map(|answer| (link, answer)));
                }
            }
            while let Some((link, answer)) = answers.pop() {
                active = true;
                let frame = SimFrame::new(&answer, &self.frames);
                self.node.handle_frame(LinkId(link as u16), Port::Signalling, self.now, frame, self.now);
            }
            if !active {
                return;
            }
        }
    }

    fn run_for(&mut self, span: Nanos) {
        let until = self.now + span;
        while let Some(next) = self.node.poll_timeout().filter(|next| *next <= until) {
            self.now = self.now.max(next);
            self.settle();
        }
        self.now = until;
        self.steps = 0;
    }

    /// An application wants a channel over `link`.
    fn open(&mut self, link: usize) {
        let to = Address { port: name("port"), host: name(["h1", "h3"][link]) };
        if let Some(contract) = Wish::default().contract() {
            let request = OpenRequest { to, contract, user: UserId(0), probe: false, token: None };
            let _ = self.node.open(request, self.now);
        }
        self.settle();
    }

    fn close(&mut self) {
        for channel in self.node.channels() {
            let _ = self.node.close(channel.channel, self.now);
        }
        self.settle();
    }

    /// The applications' actions: consent to most channels, use those that open.
    fn answer_events(&mut self, refuse: bool) {
        while let Some(event) = self.node.poll_event() {
            match event {
                Event::Incoming(incoming) if refuse => {
                    let _ = self.node.refuse(incoming.channel, "no", self.now);
                }
                Event::Incoming(incoming) => {
                    // Like the service, refuse channels that do not fit into a quota.
                    let bytes = incoming.contract.message_bytes_max;
                    let fits = u64::from(bytes) * u64::from(incoming.inbox_messages) < 4 << 20;
                    let inbox = SimInbox::new(1, incoming.inbox_messages, bytes, &self.delivered);
                    let _ = match fits {
                        true => self.node.consent(incoming.channel, inbox, self.now),
                        false => self.node.refuse(incoming.channel, "too large", self.now),
                    };
                }
                Event::Opened { channel, grant } => {
                    let outbox = SimOutbox::new(1, grant.outbox_messages);
                    outbox.send(0, 16, self.now);
                    let _ = self.node.attach_outbox(channel, outbox, self.now);
                }
                Event::Requested { token, .. } => {
                    let _ = self.node.refuse_request(token, "no", self.now);
                }
                _ => {}
            }
        }
        drop(self.delivered.take());
        self.settle();
    }
}

thread_local! {
    /// A host and how many datagrams it has got.
    static KEPT: RefCell<(Bench, u32)> = RefCell::new((Bench::new(), 0));
}

/// Datagrams that one host gets before another one takes its place.
const DATAGRAMS_MAX: u32 = 1_000;

/// One message or segment from a member of the domain, or a signed datagram: the decoders alone, on a host
/// that is kept for some time, since making one takes longer than many datagrams.
pub fn datagram(data: &[u8]) {
    let mut input = Input::new(data);
    let (Some(operation), Some(bytes)) = (input.u8(), input.bytes()) else { return };
    KEPT.with_borrow_mut(|(bench, datagrams)| {
        *datagrams += 1;
        if *datagrams > DATAGRAMS_MAX {
            (*bench, *datagrams) = (Bench::new(), 0);
        }
        let link = usize::from(operation >> 4 & 1);
        match operation % 8 {
            2 => bench.handle(link, Port::Data, bytes),
            5 => {
                let segment = bench.neighbours[link].segment(bytes);
                bench.handle(link, Port::Signalling, &segment);
            }
            6 | 7 => {
                for segment in bench.neighbours[link].encode_message(bytes) {
                    bench.handle(link, Port::Signalling, &segment);
                }
            }
            _ => bench.handle(link, Port::Signalling, &sign(bytes)),
        }
        bench.answer_events(true);
        bench.run_for(Nanos::from_millis(1));
    });
}

/// Each message and datagram of the conversations alone.
pub fn datagram_seeds() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for packet in [(0, 2), (2, 0), (2, 1)].into_iter().flat_map(|(from, to)| honest_packets(from, to)) {
        let body = insider::read(&packet.bytes).map(|packet| packet.body);
        let (operation, bytes) = match (packet.port, body) {
            (Port::Data, _) => (2, packet.bytes),
            // Whole messages: the first segment of a message begins with its length.
            (Port::Signalling, Some(Body::Segment(_, bytes))) => {
                (6, bytes.get(2..).unwrap_or_default().to_vec())
            }
            (Port::Signalling, _) => {
                (4, packet.bytes[..packet.bytes.len().saturating_sub(TAG_BYTES)].to_vec())
            }
        };
        let mut seed = vec![operation | (packet.link.0 as u8) << 4];
        put_bytes(&mut seed, &bytes);
        seeds.push(seed);
    }
    let mut seen = std::collections::BTreeSet::new();
    seeds.retain(|seed| seen.insert((seed[0], seed.len())));
    seeds
}

/// The states of a host that an input has reached.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reached {
    /// States of channels that were seen there.
    pub states: BTreeSet<String>,
    /// The states at its end.
    pub left: Vec<String>,
    /// The packets dropped at its edge.
    pub drops: DropCounters,
}

/// Runs a sequence of the attacker's actions.
pub fn run(data: &[u8]) {
    sequence(data, |_| ());
}

/// The same; returns the reached states.
///
/// # Panics
/// If the host misbehaves.
pub fn reach(data: &[u8]) -> Reached {
    let (mut states, mut left) = (BTreeSet::new(), Vec::new());
    let drops = sequence(data, |node| {
        left = node.channels().into_iter().map(|channel| channel.state).collect();
        states.extend(left.iter().cloned());
    });
    Reached { states, left, drops }
}

/// Calls `check` with the host before and after applications answer, and returns its drop counters.
fn sequence(data: &[u8], mut check: impl FnMut(&Node<SimMemory>)) -> DropCounters {
    let mut bench = Bench::new();
    let before = bench.node.status(bench.now);
    bench.node.listen(name("port")).expect("a free name");
    bench.run_for(Nanos::from_millis(1));
    let mut input = Input::new(data);
    while let Some(operation) = input.u8() {
        let link = usize::from(operation >> 4 & 1);
        match operation % 8 {
            0 if operation & !0x10 == OPEN => bench.open(link),
            1 if operation == CLOSE => bench.close(),
            0 => bench.run_for(Nanos::from_millis(10) * u64::from(operation >> 5)),
            1 => bench.run_for(Nanos::from_secs(1) * u64::from(operation >> 4)),
            2 => {
                let Some(bytes) = input.bytes() else { break };
                bench.handle(link, Port::Data, bytes);
            }
            3 => {
                let Some(bytes) = input.bytes() else { break };
                bench.handle(link, Port::Signalling, bytes);
            }
            4 => {
                let Some(bytes) = input.bytes() else { break };
                bench.handle(link, Port::Signalling, &sign(bytes));
            }
            5 => {
                let Some(bytes) = input.bytes() else { break };
                let segment = bench.neighbours[link].segment(bytes);
                bench.handle(link, Port::Signalling, &segment);
            }
            _ => {
                let Some(bytes) = input.bytes() else { break };
                for segment in bench.neighbours[link].encode_message(bytes) {
                    bench.handle(link, Port::Signalling, &segment);
                }
            }
        }
        check(&bench.node);
        bench.answer_events(operation & 0x80 != 0);
        check(&bench.node);
        let status = bench.node.status(bench.now);
        assert!(status.cpu_utilisation <= Ppm::ONE, "{:?}", status.cpu_utilisation);
        assert!(status.links.iter().all(|link| link.utilisation <= Ppm::ONE));
        assert!(status.buffer_bytes <= 8 << 20, "{} B of buffers", status.buffer_bytes);
    }
    bench.answer_events(true);
    bench.node.shutdown(bench.now);
    for _ in 0..6 {
        bench.run_for(Nanos::from_secs(10));
        bench.answer_events(true);
    }
    let after = bench.node.status(bench.now);
    assert_eq!((after.channels, after.buffer_bytes), (0, 0), "{:?}", bench.node.channels());
    assert_eq!(after.cpu_utilisation, before.cpu_utilisation);
    assert!(
        after.links.iter().zip(&before.links).all(|(after, before)| after.utilisation == before.utilisation)
    );
    after.drops
}

/// The messages to the host in the middle from its neighbours when a channel passes it, ends at it and starts
/// at it.
pub fn seeds() -> Vec<Vec<u8>> {
    [(0, 2), (0, 1), (1, 2), (2, 1), (2, 0), (1, 0)]
        .into_iter()
        .map(|(from, to)| conversation(from, to))
        .collect()
}

fn conversation(from: usize, to: usize) -> Vec<u8> {
    let mut steps: Vec<Vec<u8>> = Vec::new();
    for packet in honest_packets(from, to).iter().filter(|packet| packet.node == 1) {
        let link = (packet.link.0 as u8) << 4;
        // The attacker makes HELLOs and acknowledgements itself.
        let (operation, bytes) = match (packet.port, insider::read(&packet.bytes).map(|packet| packet.body)) {
            (Port::Data, _) => (2, packet.bytes.clone()),
            (Port::Signalling, Some(Body::Segment(_, bytes))) => (5, bytes),
            _ => continue,
        };
        let mut step = vec![operation | link];
        put_bytes(&mut step, &bytes);
        steps.push(step);
    }
    if from == 1 {
        // The last message answers the end, once everything has left.
        let (open, second) = (OPEN | (to as u8 / 2) << 4, 1 | 1 << 4);
        steps.insert(steps.len() - 1, vec![CLOSE, second]);
        steps.insert(0, vec![open]);
    }
    steps.concat()
}
