//! What bodies send, and when it has left: by an account of the packets that the node knows nothing of (ADR 0051).

use std::collections::BTreeMap;

use punctual_analysis::Instant;
use punctual_proto::api::{Port, RtuId, RtuSending, RtuSent, RtuTarget};
use punctual_proto::ids::LinkId;
use punctual_proto::limits::HEADER_BYTES;
use punctual_proto::wire::{Header, Kind};

use super::{Bodies, World};
use crate::memory::{Content, MESSAGE_BYTES_MIN, SimOutbox};
use crate::time::SimTime;

/// Keys of handlers' messages begin here: no channel and no flood has as many.
const KEYS: u64 = 1 << 40;
/// Messages that a ring holds.
const RING_MESSAGES: u32 = 4_096;
/// A port that is bound nowhere: what comes there is dropped.
const PORT: &str = "handlers";

/// How a body sends.
#[derive(Debug)]
pub(super) struct Sends {
    outbox: SimOutbox,
    packets: u32,
    payload_bytes: u32,
    /// Index of the next message.
    next: u64,
    /// Index of the next one that the node takes.
    taken: u64,
    /// Packets that the node has counted, within the budget and beyond.
    counted: [u64; 2],
    /// When messages must have left at the latest, by index.
    promised: BTreeMap<u64, Instant>,
}

/// A handler's key among all.
fn key_of(host: usize, id: RtuId) -> u64 {
    KEYS + ((host as u64) << 16) + id.0
}

fn handler_of(key: u64) -> Option<(usize, RtuId)> {
    let key = key.checked_sub(KEYS)?;
    Some(((key >> 16) as usize, RtuId(key & 0xffff)))
}

impl Bodies {
    /// Whether the next handler sends, and what: packets of a data unit, and payload of one.
    pub(super) fn draw_sending(&mut self) -> Option<(u32, u32)> {
        let dice = &mut self.dice;
        let sends = dice.between(0, 2) == 0;
        let (packets, bytes) =
            (dice.between(1, 3) as u32, dice.between(u64::from(MESSAGE_BYTES_MIN), 120) as u32);
        sends.then_some((packets, bytes))
    }
}

impl Sends {
    pub(super) fn new(
        host: usize,
        id: RtuId,
        (packets, payload_bytes): (u32, u32),
        outbox: SimOutbox,
    ) -> Self {
        debug_assert!(handler_of(key_of(host, id)) == Some((host, id)), "one key a handler");
        Self { outbox, packets, payload_bytes, next: 0, taken: 0, counted: [0; 2], promised: BTreeMap::new() }
    }

    /// A call has done so many data units: what they send is put into the ring.
    pub(super) fn put(&mut self, units: usize, now: Instant) {
        for _ in 0..units as u64 * u64::from(self.packets) {
            if self.outbox.send(self.next, self.payload_bytes, now) {
                self.next += 1;
            }
        }
    }

    /// The node has taken some: those within the budget are promised to leave in time after `released`.
    fn took(&mut self, status: &RtuSent, released: Option<Instant>) {
        let [within, beyond] = [status.packets, status.packets_beyond];
        let count = within - self.counted[0];
        if let (Some(released), Some(bound)) = (released, status.bound) {
            let taken = self.taken..self.taken + count;
            self.promised.extend(taken.map(|index| (index, released + bound)));
        }
        self.taken += count + beyond - self.counted[1];
        self.counted = [within, beyond];
    }
}

impl World {
    /// Where a handler of a host sends, and by what ring; `None` if its host has no neighbour.
    pub(super) fn sending_of(
        &self,
        host: usize,
        (packets, payload_bytes): (u32, u32),
        id: RtuId,
    ) -> Option<(RtuSending, SimOutbox)> {
        let neighbour = self.scenario.hosts[host].config.links.first()?.neighbour;
        let to = self.address(crate::scenario::host_of(neighbour)?, PORT).ok()?;
        let outbox = SimOutbox::new(key_of(host, id), RING_MESSAGES);
        Some((RtuSending { to: RtuTarget::Port(to), packets, payload_bytes }, outbox))
    }

    /// A call of a handler has ended, whose data units were released at `released` at the latest.
    pub(super) fn note_sent(&mut self, host: usize, id: RtuId, released: Option<Instant>) {
        let member = &mut self.hosts[host];
        let Some(sends) = member.bodies.bodies.get_mut(&id).and_then(|body| body.sends.as_mut()) else {
            return;
        };
        let status = member.node.handlers().find(|status| status.id == id).and_then(|status| status.sent);
        if let Some(status) = status {
            sends.took(&status, released);
        }
    }

    /// A packet has been handed to a link, whose adapter is done with it at `departs`: was it promised to leave sooner?
    pub(in crate::world) fn check_departure(
        &mut self,
        host: usize,
        link: LinkId,
        port: Port,
        bytes: &[u8],
        departs: SimTime,
    ) {
        if port == Port::Signalling || self.hosts[host].bodies.bodies.is_empty() {
            return;
        }
        let is_ours = Header::parse(bytes).is_ok_and(|(header, _)| header.kind == Kind::BestEffort);
        let content = bytes.get(HEADER_BYTES..).and_then(Content::read).filter(|_| is_ours);
        let Some((content, (of, id))) = content.and_then(|content| Some((content, handler_of(content.key)?)))
        else {
            return;
        };
        let member = &mut self.hosts[host];
        let left = member.clock.read(departs);
        let sends = member.bodies.bodies.get_mut(&id).and_then(|body| body.sends.as_mut());
        let promised = sends.filter(|_| of == host).and_then(|sends| sends.promised.remove(&content.index));
        self.outcome.upcall_packets += u64::from(promised.is_some());
        let Some(due) = promised.filter(|due| left > *due) else { return };
        // A link that the node itself finds slow promises nothing.
        let now = member.clock.read(self.now);
        let is_broken = member.node.status(now).links.get(usize::from(link.0)).is_none_or(|link| !link.alive)
            || !member.node.status(now).broken.is_empty();
        let wrong = format!("message {} left at {left:?}, promised by {due:?}", content.index);
        self.judge_handler(host, id, (!is_broken).then_some(wrong));
    }
}
