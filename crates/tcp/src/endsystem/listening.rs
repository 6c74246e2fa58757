//! A listener with the packets that came for it. One handler processes SYNs and makes the replies, within its own budget.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

use punctual_analysis::Instant;
use punctual_proto::memory::Memory;

use super::entry::{Entry, Rings};
use super::{CallOutcome, Reset, Segments};
use crate::config::Config;
use crate::connection::Connection;
use crate::listener::{Answer, Listener, SynCounts};
use crate::secrets::Secrets;
use crate::wire::{self, Flow};

/// Packets of a connection that wait with it until it is adopted: the one that has opened it, a first flight of ten segments (RFC 6928) and
/// a FIN. More are dropped, and counted at the connection: they come again.
const WAITING_MAX: usize = 12;

/// A connection that a listener has opened, and the packets that came for it, which its input handler processes first.
pub struct Accepted<M: Memory> {
    connection: Box<Connection>,
    arrived: VecDeque<M::Frame>,
    /// Packets that were more than may wait.
    dropped: u64,
    /// Hardware address that they came from.
    address: u64,
}

impl<M: Memory> Accepted<M> {
    /// The two ends.
    pub const fn flow(&self) -> Flow {
        self.connection.flow()
    }

    pub(super) fn into_entry(self, rings: Rings<M>) -> Entry<M> {
        let mut entry = Entry::new(*self.connection, rings).of_peer_at(self.address, self.dropped);
        self.arrived.into_iter().for_each(|packet| entry.arrived(packet, None));
        entry
    }

    /// Nobody adopts it: the reset for its peer, which has seen it open.
    pub fn refuse(mut self, now: Instant) -> Option<Reset> {
        Reset::ending(&mut self.connection, self.address, now)
    }
}

/// State of a listener.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ListeningStatus {
    /// Connections whose handshake is not complete.
    pub half_open: u32,
    /// Open connections that wait to be adopted.
    pub waiting: u32,
    /// What became of SYNs.
    pub counts: SynCounts,
}

pub(super) struct Listening<M: Memory> {
    listener: Listener,
    /// Packets with the hardware addresses that they came from.
    arrived: VecDeque<(M::Frame, u64)>,
    opened: VecDeque<Accepted<M>>,
    /// Connections that may wait to be adopted.
    opened_max: usize,
    /// Hardware address of the last peers that are half-open, for SYN-ACKs that are sent again.
    addresses: VecDeque<(Flow, u64)>,
}

impl<M: Memory> Listening<M> {
    pub fn new(config: &Config, backlog: usize) -> Self {
        Self {
            listener: Listener::new(config, backlog),
            arrived: VecDeque::new(),
            opened: VecDeque::new(),
            opened_max: backlog.max(1),
            addresses: VecDeque::new(),
        }
    }

    pub fn arrived(&mut self, packet: M::Frame, address: u64) {
        self.arrived.push_back((packet, address));
    }

    pub fn accept(&mut self) -> Option<Accepted<M>> {
        self.opened.pop_front()
    }

    pub fn has_opened(&self) -> bool {
        !self.opened.is_empty()
    }

    pub fn status(&self) -> ListeningStatus {
        let (half_open, waiting) = (self.listener.half_open() as u32, self.opened.len() as u32);
        ListeningStatus { half_open, waiting, counts: self.listener.counts() }
    }

    pub fn due(&self) -> Option<Instant> {
        self.listener.next_deadline()
    }

    pub fn call(
        &mut self,
        (units, now): (u32, Instant),
        secrets: &Secrets,
        packet: &mut Vec<u8>,
        out: &mut (impl Segments + ?Sized),
        mut forward: impl FnMut(&Flow, M::Frame) -> Option<M::Frame>,
    ) -> CallOutcome {
        let mut done = 0;
        while done < units && out.has_room() {
            if let Some((came, address)) = self.arrived.pop_front() {
                packet.clear();
                let flow = wire::parse(came.as_ref()).ok().map(|segment| segment.flow);
                let came = flow.and_then(|flow| forward(&flow, came));
                if let Some(came) = came {
                    self.input(came, address, now, secrets, packet);
                }
                if !packet.is_empty() {
                    out.put(packet, address);
                }
            } else if self.listener.output(now, secrets, packet) {
                let address = wire::parse(packet).ok().and_then(|segment| self.address_of(segment.flow));
                out.put(packet, address.unwrap_or(0));
            } else {
                break;
            }
            done += 1;
        }
        let is_due = self.due().is_some_and(|due| due <= now);
        CallOutcome { units: done, more: !self.arrived.is_empty() || is_due, ..CallOutcome::default() }
    }

    /// Processes one packet; its reply is in `reply`, which is empty otherwise.
    fn input(&mut self, came: M::Frame, address: u64, now: Instant, secrets: &Secrets, reply: &mut Vec<u8>) {
        let Ok(segment) = wire::parse(came.as_ref()) else { return };
        let opened = self.opened.iter_mut().find(|opened| opened.flow() == segment.flow);
        if let Some(Accepted { arrived, dropped, .. }) = opened {
            // The driver takes its packets for the listener's until it knows the flow.
            if arrived.len() < WAITING_MAX {
                arrived.push_back(came);
            } else {
                *dropped += 1;
            }
            return;
        }
        let has_room = self.opened.len() < self.opened_max;
        match self.listener.input(now, &segment, secrets, has_room, reply) {
            Answer::Opened(opening) => {
                let connection = Connection::accept(&opening, self.listener.config(), secrets, now);
                if let Some(connection) = connection {
                    let arrived = VecDeque::from([came]);
                    let connection = Box::new(connection);
                    self.opened.push_back(Accepted { connection, arrived, dropped: 0, address });
                }
            }
            Answer::Done if !reply.is_empty() => self.remember(segment.flow, address),
            Answer::Done => {}
        }
    }

    /// Notes where a reply went, for as many peers as may be half-open.
    fn remember(&mut self, flow: Flow, address: u64) {
        self.addresses.retain(|(of, _)| *of != flow);
        if self.addresses.len() > self.opened_max {
            self.addresses.pop_front();
        }
        self.addresses.push_back((flow, address));
    }

    /// The address of the peer of a segment that leaves.
    fn address_of(&self, leaving: Flow) -> Option<u64> {
        self.addresses.iter().find(|(flow, _)| flow.remote == leaving.local).map(|(_, address)| *address)
    }
}
