//! The TCP of one endsystem, divided into the handlers of RTU (sections 4.3, 5.2 and 6; ADR 0054): each connection has an
//! input handler, which processes one segment a unit, and an output handler, which makes one. A listener has one handler for
//! both. The caller owns the schedule: it calls a handler when the node picks it, and asks [`Endsystem::due`] afterwards when
//! the output handler has work.
//!
//! Ownership: an entry owns its connection, the packets that came for it, and its program's rings. Invariants: a packet waits
//! in its own entry's queue alone; replies leave by the output handler, so a handler sends only what was admitted.

mod delays;
mod entry;
mod late;
mod listening;

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use punctual_analysis::{Instant, Nanos};
use punctual_proto::memory::Memory;

pub use self::delays::Delays;
use self::entry::Entry;
pub use self::entry::{CallOutcome, Rings};
pub use self::late::{Late, RESETS_MAX, Reset};
use self::listening::Listening;
pub use self::listening::{Accepted, ListeningStatus};
use crate::config::{Config, Setting};
use crate::connection::{Connection, Ended, State};
use crate::icmp;
use crate::secrets::Secrets;
use crate::wire::Flow;

/// Takes the segments that an output handler makes.
pub trait Segments {
    /// Whether there is room for one more.
    fn has_room(&self) -> bool;
    /// Takes an IP packet and the hardware address that it goes to (see `Mac`), 0 for the next hop of the flow.
    fn put(&mut self, packet: &[u8], address: u64);
}

/// Segments that `bytes` of data, written at once, take at most, if a full one has `segment_bytes`. One may be cut in two:
/// smoltcp sends what lies in one piece in its ring of bytes, so a segment ends where the ring begins again. The units of a
/// guaranteed period count with that, otherwise each time around the ring leaves the connection one segment behind.
pub const fn segments_max(bytes: u64, segment_bytes: u32) -> u64 {
    bytes.div_ceil(if segment_bytes == 0 { 1 } else { segment_bytes as u64 }) + 1
}

/// What is known of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    /// The two ends.
    pub flow: Flow,
    /// State of the connection.
    pub state: State,
    /// Why it ended, if it has.
    pub ended: Option<Ended>,
    /// Segments that came.
    pub segments_in: u64,
    /// Segments that were made.
    pub segments_out: u64,
    /// Segments that came and belonged to no connection, or were broken.
    pub dropped: u64,
    /// How long segments were on this host before the program had what they brought.
    pub delays: Delays,
    /// The largest packet that is sent now, in bytes.
    pub path_mtu_bytes: u16,
    /// Bytes that were received and not given to the program.
    pub readable_bytes: usize,
    /// Bytes that the peer has not acknowledged.
    pub unacknowledged_bytes: usize,
    /// Segments of data that were sent again.
    pub resent: u64,
    /// Bytes that the peer takes now, and that this end takes.
    pub windows_bytes: [u32; 2],
    /// The settings as they are now.
    pub config: Config,
}

/// All connections and listeners of one host. Their numbers are indices below the limits given at the start: those of the
/// driver's flows and listeners.
pub struct Endsystem<M: Memory> {
    secrets: Secrets,
    connections: Vec<Option<Box<Entry<M>>>>,
    /// Connections that have a number of a flow in the driver: the others run over channels.
    flows_max: usize,
    listeners: Vec<Option<Box<Listening<M>>>>,
    flows: BTreeMap<Flow, u32>,
    /// Connections that got packets from a listener's queue.
    woken: VecDeque<u32>,
    /// Where segments are made.
    packet: Vec<u8>,
}

impl<M: Memory> Endsystem<M> {
    /// Without connections, with room for so many and for so many listeners.
    pub fn new(secrets: Secrets, connections_max: usize, listeners_max: usize) -> Self {
        let mut connections = Vec::new();
        connections.resize_with(connections_max, || None);
        let mut listeners = Vec::new();
        listeners.resize_with(listeners_max, || None);
        let (flows, woken) = (BTreeMap::new(), VecDeque::new());
        Self {
            secrets,
            connections,
            flows_max: connections_max,
            listeners,
            flows,
            woken,
            packet: Vec::with_capacity(usize::from(u16::MAX)),
        }
    }

    /// With room for so many connections over channels, too ([`Endsystem::connect_over_channels`]), whose numbers are no flow's.
    #[must_use]
    pub fn with_paths(mut self, paths_max: usize) -> Self {
        self.connections.resize_with(self.flows_max + paths_max, || None);
        self
    }

    /// Begins a connection, whose SYN leaves with the first call of its output handler.
    ///
    /// # Errors
    /// Gives the rings back if no index is free, or the flow is another connection's or invalid for one.
    pub fn connect(
        &mut self,
        flow: Flow,
        config: &Config,
        rings: Rings<M>,
        now: Instant,
    ) -> Result<u32, Rings<M>> {
        let index = self.free_index();
        self.connect_at(index, (flow, config, rings), now)
    }

    /// Begins a connection whose packets are messages of two channels. Both ends do this: they open at the same time (RFC 9293
    /// 3.5, figure 7), so no end has to listen before the other's SYN comes.
    ///
    /// # Errors
    /// See [`Endsystem::connect`].
    pub fn connect_over_channels(
        &mut self,
        flow: Flow,
        config: &Config,
        rings: Rings<M>,
        now: Instant,
    ) -> Result<u32, Rings<M>> {
        let index = self.connections[self.flows_max..].iter().position(Option::is_none);
        let index = index.and_then(|index| u32::try_from(self.flows_max + index).ok());
        self.connect_at(index, (flow, config, rings), now)
    }

    fn connect_at(
        &mut self,
        index: Option<u32>,
        (flow, config, rings): (Flow, &Config, Rings<M>),
        now: Instant,
    ) -> Result<u32, Rings<M>> {
        let index = index.filter(|_| !self.flows.contains_key(&flow));
        let begun = index.and_then(|at| Some((at, Connection::connect(flow, config, &self.secrets, now)?)));
        match begun {
            Some((index, connection)) => Ok(self.insert(index, Entry::new(connection, rings))),
            None => Err(rings),
        }
    }

    /// Adopts a connection that a listener has opened.
    ///
    /// # Errors
    /// Gives both back if no index is free: its peer is to be reset ([`Accepted::refuse`]).
    pub fn adopt(&mut self, accepted: Accepted<M>, rings: Rings<M>) -> Result<u32, (Accepted<M>, Rings<M>)> {
        let Some(index) = self.free_index() else { return Err((accepted, rings)) };
        Ok(self.insert(index, accepted.into_entry(rings)))
    }

    /// A connection cannot begin. Returns the reset for its peer if a listener had opened it: the peer has seen it open. The
    /// caller forgets it then ([`Endsystem::remove`]).
    pub fn refuse(&mut self, index: u32, now: Instant) -> Option<Reset> {
        self.entry(index)?.refuse(now)
    }

    /// Whether a number of a flow is free.
    pub fn has_room(&self) -> bool {
        self.free_index().is_some()
    }

    fn free_index(&self) -> Option<u32> {
        let index = self.connections[..self.flows_max].iter().position(Option::is_none)?;
        u32::try_from(index).ok()
    }

    fn insert(&mut self, index: u32, entry: Entry<M>) -> u32 {
        self.flows.insert(entry.flow(), index);
        self.connections[index as usize] = Some(Box::new(entry));
        index
    }

    /// Listens with at most `backlog` half-open connections. `None`: no index is free.
    pub fn listen(&mut self, config: &Config, backlog: usize) -> Option<u32> {
        let index = self.listeners.iter().position(Option::is_none)?;
        self.listeners[index] = Some(Box::new(Listening::new(config, backlog)));
        u32::try_from(index).ok()
    }

    /// Forgets a listener; the connections that it has opened stay.
    pub fn stop_listening(&mut self, index: u32) {
        if let Some(listening) = self.listeners.get_mut(index as usize) {
            *listening = None;
        }
    }

    fn entry(&mut self, index: u32) -> Option<&mut Entry<M>> {
        self.connections.get_mut(index as usize)?.as_deref_mut()
    }

    fn listening(&mut self, index: u32) -> Option<&mut Listening<M>> {
        self.listeners.get_mut(index as usize)?.as_deref_mut()
    }

    /// A packet for a connection came to the driver at `at`: its input handler has new work.
    ///
    /// # Errors
    /// Gives the packet back if no connection has this number.
    pub fn arrived(&mut self, index: u32, packet: M::Frame, at: Instant) -> Result<(), M::Frame> {
        let Some(entry) = self.entry(index) else { return Err(packet) };
        entry.arrived(packet, Some(at));
        Ok(())
    }

    /// A packet came for a listener from this hardware address; whether its handler has new work.
    pub fn arrived_at_listener(&mut self, index: u32, packet: M::Frame, address: u64) -> bool {
        self.listening(index).map(|listening| listening.arrived(packet, address)).is_some()
    }

    /// An ICMP error came that quotes a segment of this host. Returns the connection that it changed: none over channels, whose
    /// packets pass no router, so that the error is forged.
    pub fn error(&mut self, packet: &[u8], now: Instant) -> Option<u32> {
        let quote = icmp::parse(packet)?;
        let index = *self.flows.get(&quote.flow).filter(|index| (**index as usize) < self.flows_max)?;
        self.entry(index)?.icmp(now, &quote).then_some(index)
    }

    /// The route of a connection carries packets of `mtu_bytes` from now on.
    pub fn route_changed(&mut self, index: u32, mtu_bytes: u32, now: Instant) {
        if let Some(entry) = self.entry(index) {
            entry.route_changed(mtu_bytes, now);
        }
    }

    /// Whether the input handler of a connection has work: a packet waits, or bytes or the end of the stream wait for room in
    /// the program's ring. A call without work would be charged to the budget all the same.
    pub fn has_input(&mut self, index: u32) -> bool {
        self.entry(index).is_some_and(|entry| entry.has_input())
    }

    /// The input handler of a connection: processes at most so many packets, and hands what they brought to the program.
    pub fn input(&mut self, index: u32, units: u32, now: Instant) -> CallOutcome {
        self.entry(index).map_or(CallOutcome::default(), |entry| entry.input(units, now))
    }

    /// A call of the input handler has ended so long after the first packet that it processed had come to the driver.
    pub fn observe(&mut self, index: u32, delay: Nanos) {
        if let Some(entry) = self.entry(index) {
            entry.observe(delay);
        }
    }

    /// The output handler of a connection: makes at most so many segments.
    pub fn output(
        &mut self,
        index: u32,
        units: u32,
        now: Instant,
        out: &mut (impl Segments + ?Sized),
    ) -> CallOutcome {
        let Self { connections, packet, .. } = self;
        let entry = connections.get_mut(index as usize).and_then(Option::as_deref_mut);
        entry.map_or(CallOutcome::default(), |entry| entry.output(units, now, packet, out))
    }

    /// The handler of a listener: processes at most so many packets, and makes the replies.
    pub fn listen_unit(
        &mut self,
        index: u32,
        units: u32,
        now: Instant,
        out: &mut (impl Segments + ?Sized),
    ) -> CallOutcome {
        let Self { listeners, connections, flows, woken, packet, secrets, .. } = self;
        let Some(listening) = listeners.get_mut(index as usize).and_then(Option::as_deref_mut) else {
            return CallOutcome::default();
        };
        // A packet may have been taken for the listener's just before the driver knew its flow.
        let forward = |flow: &Flow, came: M::Frame| {
            let index = flows.get(flow).copied();
            let entry = index.and_then(|index| connections.get_mut(index as usize)?.as_deref_mut());
            let Some((entry, index)) = entry.zip(index) else { return Some(came) };
            entry.arrived(came, None);
            woken.push_back(index);
            None
        };
        listening.call((units, now), secrets, packet, out, forward)
    }

    /// A connection whose input handler has work that came by way of a listener.
    pub fn poll_woken(&mut self) -> Option<u32> {
        self.woken.pop_front()
    }

    /// Whether a connection that a listener has opened waits to be adopted.
    pub fn has_opened(&mut self, index: u32) -> bool {
        self.listening(index).is_some_and(|listening| listening.has_opened())
    }

    /// A connection that a listener has opened and that is not adopted yet.
    pub fn accept(&mut self, index: u32) -> Option<Accepted<M>> {
        self.listening(index)?.accept()
    }

    /// When the output handler of a connection has work: `now` if at once, `None` if only a packet or the program can bring
    /// some.
    pub fn due(&mut self, index: u32, now: Instant) -> Option<Instant> {
        self.entry(index)?.due(now)
    }

    /// When the handler of a listener has work without a packet.
    pub fn listener_due(&mut self, index: u32) -> Option<Instant> {
        self.listening(index)?.due()
    }

    /// State of a listener; `None`: there is none.
    pub fn listening_status(&self, index: u32) -> Option<ListeningStatus> {
        self.listeners.get(index as usize)?.as_deref().map(Listening::status)
    }

    /// Changes a setting of a connection from now on.
    pub fn set(&mut self, index: u32, setting: Setting) {
        if let Some(entry) = self.entry(index) {
            entry.set(setting);
        }
    }

    /// The rings of a connection's program.
    pub fn rings_mut(&mut self, index: u32) -> Option<&mut Rings<M>> {
        self.entry(index)?.rings_mut()
    }

    /// The program closes its direction: what it has written leaves first.
    pub fn close(&mut self, index: u32) {
        if let Some(entry) = self.entry(index) {
            entry.close();
        }
    }

    /// The program is gone and reads no more. Bytes that it has not read, or that come later, reset the connection
    /// (RFC 2525 2.17); otherwise it closes.
    pub fn release(&mut self, index: u32, now: Instant) {
        if let Some(entry) = self.entry(index) {
            entry.release(now);
        }
    }

    /// Ends the connection at once; its output handler makes one reset.
    pub fn abort(&mut self, index: u32) {
        if let Some(entry) = self.entry(index) {
            entry.abort();
        }
    }

    /// A channel of the connection is gone, so nothing can leave or come any more. Packets that came before are processed; then
    /// the connection is over. It ends as closed if only its last acknowledgement was missing.
    pub fn cut(&mut self, index: u32) {
        if let Some(entry) = self.entry(index) {
            entry.cut();
        }
    }

    /// Whether no work is left and nothing can come: its flow and its handlers are of no use any more.
    pub fn is_over(&mut self, index: u32, now: Instant) -> bool {
        self.entry(index).is_none_or(|entry| entry.is_over(now))
    }

    /// Whether only late segments of the peer can come, and none waits: the connection is in TIME-WAIT, or in FIN-WAIT-2
    /// without a program. It needs no rings any more ([`Endsystem::detach`]), and little time.
    pub fn only_waits(&self, index: u32) -> bool {
        self.connections.get(index as usize).and_then(Option::as_deref).is_some_and(Entry::only_waits)
    }

    /// Whether a connection without rings has given its buffers back, too: it is in TIME-WAIT.
    pub fn rests(&self, index: u32) -> bool {
        self.connections.get(index as usize).and_then(Option::as_deref).is_some_and(Entry::rests)
    }

    /// Gives the rings of a connection back, which goes on without a program. `None` if it has none.
    pub fn detach(&mut self, index: u32) -> Option<Rings<M>> {
        self.entry(index)?.detach()
    }

    /// The SYN that came for a connection which is over: the caller gives it to the listener at its address, if there is one, once
    /// the flow is free. With the hardware address that it came from.
    pub fn take_successor(&mut self, index: u32) -> Option<(M::Frame, u64)> {
        self.entry(index)?.take_successor()
    }

    /// Forgets a connection at once, and gives its rings back if it still has them.
    pub fn remove(&mut self, index: u32) -> Option<Rings<M>> {
        let mut entry = self.connections.get_mut(index as usize)?.take()?;
        self.flows.remove(&entry.flow());
        entry.detach()
    }

    /// What is known of a connection.
    pub fn status(&self, index: u32) -> Option<Status> {
        self.connections.get(index as usize)?.as_deref().map(Entry::status)
    }
}
