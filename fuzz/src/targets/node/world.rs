//! The hosts, their applications, and the state of every channel.

use std::collections::BTreeMap;

use punctual_proto::api::{CloseReason, Event, Grant, Incoming, OpenRequest, Port, UserId};
use punctual_proto::ids::{Address, ChannelId, LinkId, ListenerId, PathId};
use punctual_proto::wire::Header;
use punctual_proto::{Contract, Nanos};
use punctual_sim::ledger::Ledger;
use punctual_sim::memory::{Deliveries, InboxWatch, SimInbox, SimMemory, SimOutbox};
use punctual_sim::time::{HostClock, SimTime};

use super::operation::{Operation, Wish};
use crate::fault::Fault;
use crate::insider::{TAG_BYTES, sign};
use crate::net::{Net, Packet, name};

const HOSTS: usize = 3;
/// The clock of every host is the true one.
const CLOCK: HostClock = HostClock::new(0, 0);
/// Channels that applications open in one run.
const CHANNELS_MAX: usize = 24;
/// Messages between two runs of the checker.
const UNREAD_MAX: u32 = 20_000;
/// Messages in the ring of a best-effort flow.
const FLOW_MESSAGES: u32 = 16;
const FLOW_BYTES: u32 = 3_000;
/// Leads the messages of flows.
const FLOW_KEY: u64 = u64::MAX;

/// The state of a channel at the applications of both ends.
struct Channel {
    source: (usize, ChannelId),
    contract: Contract,
    outbox: Option<SimOutbox>,
    ledger: Option<Ledger>,
    /// An application has closed it.
    closing: bool,
    /// A fault or an insider touched it: it has no guarantee.
    touched: bool,
}

/// A host's applications.
#[derive(Default)]
struct Applications {
    listener: Option<ListenerId>,
    refuse: bool,
    silent: bool,
    flows: Vec<(ChannelId, SimOutbox)>,
    bound: bool,
}

/// See the module.
pub struct World {
    /// The hosts.
    pub net: Net<SimMemory>,
    applications: [Applications; HOSTS],
    channels: Vec<Channel>,
    /// The index of the channel of a path.
    paths: BTreeMap<PathId, usize>,
    sinks: BTreeMap<(usize, ChannelId), usize>,
    watches: Vec<InboxWatch>,
    delivered: Deliveries,
    sent: u64,
}

impl World {
    /// Three hosts that are connected to one another, each with a listener.
    ///
    /// # Panics
    /// If they do not start.
    pub fn new() -> Self {
        let mut world = Self {
            net: Net::line(HOSTS),
            applications: Default::default(),
            channels: Vec::new(),
            paths: BTreeMap::new(),
            sinks: BTreeMap::new(),
            watches: Vec::new(),
            delivered: Deliveries::default(),
            sent: 0,
        };
        (0..HOSTS).for_each(|node| world.listen(node, true));
        world.run(Nanos::from_millis(1));
        world
    }

    /// Does one thing.
    pub fn apply(&mut self, operation: Operation) {
        let node = |node: u8| usize::from(node) % HOSTS;
        match operation {
            Operation::Run(span) => self.run(span),
            Operation::Open(wish) => self.open(wish, None),
            Operation::Send { channel, messages, bytes } => self.send(channel, messages, bytes),
            Operation::Close { channel, sink } => self.close(channel, sink),
            Operation::Answer { node: at, refuse, silent } => {
                let applications = &mut self.applications[node(at)];
                (applications.refuse, applications.silent) = (refuse, silent);
            }
            Operation::Listen { node: at, on } => self.listen(node(at), on),
            Operation::Ask { from, to } => self.ask(node(from), node(to)),
            Operation::BestEffort { from, to, messages } => self.best_effort(node(from), node(to), messages),
            Operation::Lose(fault) => {
                self.net.fault = Fault::of(fault);
                self.touch_all();
            }
            Operation::Restart(at) => self.restart(node(at)),
            Operation::Replay { back, port } => self.repeat(back, port, |_| (), false),
            Operation::Forge { back, port, change, signed } => {
                let flip = |bytes: &mut Vec<u8>| {
                    let at = usize::from(change.at) % bytes.len().max(1);
                    if let Some(byte) = bytes.get_mut(at) {
                        *byte ^= change.by;
                    }
                };
                self.repeat(back, port, flip, signed);
            }
            Operation::MakeUp { node: at, link, port, bytes } => {
                let packet = Packet { node: node(at), link: LinkId(u16::from(link)), port, bytes };
                self.inject(&packet);
            }
            Operation::Stray { node: at, what, channel } => self.stray(node(at), what, channel),
        }
        self.net.settle();
        self.check();
    }

    /// Time passes in pieces, so that applications answer soon.
    fn run(&mut self, span: Nanos) {
        let until = self.net.now + span;
        while self.net.now < until {
            let left = until.since(self.net.now);
            let piece = if self.is_idle() { left } else { left.min(Nanos::from_millis(5)) };
            self.net.run_for(piece);
            self.check();
        }
    }

    /// Whether no event waits for an application.
    fn is_idle(&self) -> bool {
        let opening = self.channels.iter().any(|channel| channel.outbox.is_none() && !channel.closing);
        !opening && (0..HOSTS).all(|node| self.net.node(node).channels().iter().all(|c| c.state == "open"))
    }

    fn open(&mut self, wish: Wish, token: Option<u64>) {
        let (from, to) = (usize::from(wish.from) % HOSTS, usize::from(wish.to) % HOSTS);
        let Some(contract) = wish.contract().filter(|_| self.channels.len() < CHANNELS_MAX) else { return };
        let to = Address { port: name("port"), host: name(&format!("h{}", to + 1)) };
        let request = OpenRequest { to, contract, user: UserId(0), probe: wish.probe(), token };
        let opened = self.net.node_mut(from).open(request, self.net.now);
        if let (Ok(id), false) = (opened, wish.probe()) {
            self.channels.push(Channel {
                source: (from, id),
                contract,
                outbox: None,
                ledger: None,
                closing: false,
                // Packets may still be lost, or late.
                touched: !self.net.fault.is_over(),
            });
            let path = self.net.node(from).channel(id).map(|status| status.path);
            self.paths.extend(path.map(|path| (path, self.channels.len() - 1)));
        }
    }

    fn pick(&self, channel: u8) -> Option<usize> {
        usize::from(channel).checked_rem(self.channels.len())
    }

    fn send(&mut self, channel: u8, messages: u8, bytes: u16) {
        let Some(index) = self.pick(channel) else { return };
        let now = self.net.now;
        let channel = &mut self.channels[index];
        let (Some(outbox), Some(ledger)) = (&channel.outbox, &mut channel.ledger) else { return };
        if channel.closing {
            return;
        }
        let len = u32::from(bytes).clamp(16, channel.contract.message_bytes_max);
        for _ in 0..messages % 8 {
            if outbox.send(ledger.next_index(), len, now) {
                ledger.record(SimTime(now.0), now, len, &CLOCK);
            }
        }
        let (node, id) = channel.source;
        self.net.node_mut(node).handle_ring(id, now);
    }

    fn close(&mut self, channel: u8, sink: bool) {
        let Some(index) = self.pick(channel) else { return };
        let end = if sink {
            self.sinks.iter().find(|(_, of)| **of == index).map(|(end, _)| *end)
        } else {
            Some(self.channels[index].source)
        };
        if let Some((node, id)) = end {
            let closed = self.net.node_mut(node).close(id, self.net.now);
            if closed.is_ok() {
                self.end(index);
            }
        }
    }

    /// From now on the channel has no guarantee.
    fn end(&mut self, index: usize) {
        let channel = &mut self.channels[index];
        channel.closing = true;
        if let Some(ledger) = &mut channel.ledger {
            ledger.close(SimTime(self.net.now.0));
        }
    }

    fn listen(&mut self, node: usize, on: bool) {
        let applications = &mut self.applications[node];
        match (applications.listener, on) {
            (None, true) => applications.listener = self.net.node_mut(node).listen(name("port")).ok(),
            (Some(listener), false) => {
                applications.listener = None;
                self.net.node_mut(node).unlisten(listener, self.net.now).expect("it listens");
            }
            _ => {}
        }
    }

    fn ask(&mut self, from: usize, to: usize) {
        let source = Address { port: name("port"), host: name(&format!("h{}", from + 1)) };
        let contract = Wish::default().contract().expect("a contract");
        // Returns the error `Itself` if a host requests a channel from itself.
        let _ = self.net.node_mut(to).request(&source, name("port"), contract, UserId(0), self.net.now);
    }

    fn best_effort(&mut self, from: usize, to: usize, messages: u8) {
        let now = self.net.now;
        if !self.applications[to].bound {
            let inbox = SimInbox::new(FLOW_KEY, FLOW_MESSAGES, FLOW_BYTES, &self.delivered);
            self.net.node_mut(to).bind_best_effort(name("bulk"), FLOW_BYTES, inbox).expect("a free name");
            self.applications[to].bound = true;
        }
        let address = Address { port: name("bulk"), host: name(&format!("h{}", to + 1)) };
        let flows = &mut self.applications[from].flows;
        if flows.len() < 4 {
            let outbox = SimOutbox::new(FLOW_KEY, FLOW_MESSAGES);
            let opened = self.net.node_mut(from).open_best_effort(address, FLOW_BYTES, outbox.clone(), now);
            flows.extend(opened.map(|id| (id, outbox)));
        }
        let Some((id, outbox)) = flows.last() else { return };
        for _ in 0..messages % 32 {
            self.sent += u64::from(outbox.send(self.sent, FLOW_BYTES - messages as u32, now));
        }
        self.net.node_mut(from).handle_ring(*id, now);
    }

    fn restart(&mut self, node: usize) {
        self.touch_all();
        self.net.restart(node);
        self.applications[node] = Applications::default();
        for index in 0..self.channels.len() {
            if self.channels[index].source.0 == node {
                self.end(index);
                self.channels[index].outbox = None;
                // After a restart the host gives its id to another channel.
                self.channels[index].source.1 = ChannelId(u64::MAX);
            }
        }
        self.sinks.retain(|(at, _), _| *at != node);
        self.listen(node, true);
    }

    fn touch_all(&mut self) {
        self.channels.iter_mut().for_each(|channel| channel.touched = true);
    }

    /// Repeats the packet of a port that is `back` packets before the latest.
    fn repeat(&mut self, back: u8, port: Port, change: impl Fn(&mut Vec<u8>), signed: bool) {
        let mut recent = (usize::from(back)..).take(32).filter_map(|back| self.net.recent(back));
        let Some(mut packet) = recent.find(|packet| packet.port == port).cloned() else { return };
        if signed && port == Port::Signalling {
            let whole = packet.bytes.len().saturating_sub(TAG_BYTES);
            packet.bytes.truncate(whole);
            change(&mut packet.bytes);
            packet.bytes = sign(&packet.bytes);
            // A member of the domain may end or change whatever it likes on its links.
            self.touch_all();
        } else {
            change(&mut packet.bytes);
        }
        self.inject(&packet);
    }

    /// Packets of a channel touch that channel, and no other.
    fn inject(&mut self, packet: &Packet) {
        if let (Port::Data, Ok((header, _))) = (packet.port, Header::parse(&packet.bytes))
            && let Some(index) = self.paths.get(&header.path)
        {
            self.channels[*index].touched = true;
        }
        self.net.inject(packet);
    }

    fn stray(&mut self, node: usize, what: u8, channel: u8) {
        let now = self.net.now;
        let id = ChannelId(u64::from(channel) % 32);
        let inbox = SimInbox::new(FLOW_KEY, 1, FLOW_BYTES, &self.delivered);
        let shared = self.net.share(node);
        let mut node = shared.borrow_mut();
        // All calls may be refused; an existing object that waits for the call may be affected.
        match what % 8 {
            0 => drop(node.attach_outbox(id, SimOutbox::new(FLOW_KEY, 1), now)),
            1 => drop(node.consent(id, inbox, now)),
            2 => drop(node.refuse(id, &"no".repeat(200), now)),
            3 => node.handle_ring(id, now),
            4 => drop(node.refuse_request(u64::from(channel), "no", now)),
            5 => drop(node.abort_newest(CloseReason::FilterRefused, now)),
            6 => node.handle_sent(LinkId(0), u32::from(channel) * 100, now),
            _ => drop(node.unlisten(ListenerId(u64::from(channel) + 1_000), now)),
        }
        drop(node);
        if matches!(what % 8, 0 | 1 | 2 | 5) {
            self.touch_all();
        }
    }

    /// Applications handle their hosts' events, and the checker gets what was delivered.
    fn check(&mut self) {
        for node in 0..HOSTS {
            loop {
                let event = self.net.node_mut(node).poll_event();
                let Some(event) = event else { break };
                self.note_event(node, event);
            }
        }
        let delivered = self.delivered.take();
        for message in delivered.iter().filter(|message| message.inbox != FLOW_KEY) {
            let Some(channel) = self.channels.get_mut(message.inbox as usize) else { continue };
            let Some(ledger) = channel.ledger.as_mut().filter(|_| !channel.touched) else { continue };
            let at = SimTime(message.info.delivered.0);
            let judgement = ledger.deliver(at, &message.info, message.bytes(), &CLOCK);
            assert!(judgement.wrong.is_empty(), "channel {}: {:?}", message.inbox, judgement.wrong);
        }
    }

    fn note_event(&mut self, node: usize, event: Event) {
        match event {
            Event::Opened { channel, grant } => self.opened(node, channel, &grant),
            Event::Incoming(incoming) => self.incoming(node, &incoming),
            Event::Requested { token, to, .. } => {
                let sink = to.host.as_str().trim_start_matches('h').parse::<u8>().unwrap_or(1) - 1;
                let wish = Wish { from: node as u8, to: sink, ..Wish::default() };
                self.open(wish, Some(token));
            }
            Event::Refused { channel, .. } => {
                let found = self.channels.iter().position(|known| known.source == (node, channel));
                found.into_iter().for_each(|index| self.end(index));
            }
            Event::Closed { channel, .. } => self.closed(node, channel),
            Event::Probed { .. }
            | Event::Registered { .. }
            | Event::Established { .. }
            | Event::RequestFailed { .. }
            | Event::RequestOver { .. }
            | Event::Decided { .. }
            | Event::Link { .. }
            | Event::Rate { .. }
            | Event::Notice { .. }
            | Event::Late(_)
            | Event::Stage { .. } => {}
        }
    }

    fn opened(&mut self, node: usize, id: ChannelId, grant: &Grant) {
        let now = self.net.now;
        let Some(index) = self.channels.iter().position(|known| known.source == (node, id)) else { return };
        let channel = &mut self.channels[index];
        assert!(channel.touched || grant.deadline <= channel.contract.deadline, "{grant:?}");
        let outbox = SimOutbox::new(index as u64, grant.outbox_messages.min(4_096));
        let attached = self.net.node_mut(node).attach_outbox(id, outbox.clone(), now);
        if attached.is_ok() {
            channel.outbox = Some(outbox);
            channel.ledger = Some(Ledger::new(index as u64, &channel.contract, grant.deadline));
        }
    }

    fn incoming(&mut self, node: usize, incoming: &Incoming) {
        let now = self.net.now;
        let path = self.net.node(node).channel(incoming.channel).map(|status| status.path);
        let index = path.and_then(|path| self.paths.get(&path).copied());
        let applications = &self.applications[node];
        if applications.silent {
            return;
        }
        let bytes = incoming.contract.message_bytes_max;
        let too_large = u64::from(bytes) * u64::from(incoming.inbox_messages) > 4 << 20;
        if applications.refuse || too_large {
            let _ = self.net.node_mut(node).refuse(incoming.channel, "no", now);
            return;
        }
        let key = index.map_or(FLOW_KEY, |index| index as u64);
        // The checker reads now and then, an application would at once.
        let inbox = SimInbox::new(key, incoming.inbox_messages + UNREAD_MAX, bytes, &self.delivered);
        self.watches.push(inbox.watch());
        let consented = self.net.node_mut(node).consent(incoming.channel, inbox, now);
        if let (Ok(()), Some(index)) = (consented, index) {
            self.sinks.insert((node, incoming.channel), index);
        }
    }

    fn closed(&mut self, node: usize, id: ChannelId) {
        let source = self.channels.iter().position(|known| known.source == (node, id));
        let Some(index) = source.or_else(|| self.sinks.remove(&(node, id))) else { return };
        let channel = &self.channels[index];
        assert!(channel.closing || channel.touched, "channel {index} ends by itself on host {node}");
        self.end(index);
    }

    /// Closes everything; then no state is left.
    ///
    /// # Panics
    /// If state is left, or a message is lost.
    pub fn finish(mut self) {
        self.net.fault = Fault::NONE;
        self.run(Nanos::from_secs(1));
        for (index, channel) in self.channels.iter().enumerate() {
            let Some(ledger) = channel.ledger.as_ref().filter(|_| !channel.touched) else { continue };
            let lost = ledger.lost(SimTime(self.net.now.0));
            assert!(lost.is_empty(), "channel {index} has lost {lost:?}");
        }
        for index in 0..self.channels.len() {
            self.end(index);
        }
        (0..HOSTS).for_each(|node| self.net.node_mut(node).shutdown(self.net.now));
        for _ in 0..8 {
            self.net.run_for(Nanos::from_secs(10));
            self.check();
        }
        for node in 0..HOSTS {
            let node = self.net.node(node);
            let status = node.status(self.net.now);
            assert!(node.is_quiet(), "{status:?} {:?}", node.channels());
            assert_eq!((status.channels, status.buffer_bytes), (0, 0));
            assert!(status.links.iter().all(|link| link.alive), "neighbours stay neighbours");
        }
        let held = self.channels.iter().filter_map(|channel| channel.outbox.as_ref());
        assert!(held.into_iter().all(|outbox| !outbox.is_held()), "an outgoing ring is still held");
        assert!(self.watches.iter().all(|watch| !watch.is_held()), "an incoming ring is still held");
    }
}

impl Default for World {
    fn default() -> Self {
        Self::new()
    }
}
