//! Segments between two hosts: what happens to them on the way, and who gets them there. A host's driver has tables of flows and
//! listeners; everything else is its kernel's, which answers with a reset.

use punctual_analysis::{Instant, Nanos, Ppm};
use punctual_proto::api::RtuId;
use punctual_proto::config::Pacing;
use punctual_proto::ids::LinkId;

use super::{BUFFERS, CLIENT_PORT, ClassifiedPacket, Inlet, Role, World, hardware};
use crate::cut::FrameFault;
use crate::entry::Entry;
use crate::memory::SimFrame;
use crate::segment::{Seen, read, reset};
use crate::time::SimTime;
use crate::trace::Flight;
use crate::world::Event;

/// Longest time of a kernel until it replies.
const KERNEL_MAX: Nanos = Nanos::from_micros(200);

impl World {
    /// Hands a segment to the adapter of `host`; returns its departure.
    pub(in crate::world) fn launch_segment(
        &mut self,
        (host, link): (usize, LinkId),
        (handler, tag): (RtuId, u64),
        wire_bytes: u32,
        bytes: &mut [u8],
    ) -> SimTime {
        self.outcome.packets += 1;
        self.outcome.tcp.segments += 1;
        self.note(host, Entry::Transmit { link: link.0, bytes: wire_bytes });
        let index = usize::from(link.0);
        let adapter = &mut self.hosts[host].adapters[index];
        let overflows = adapter.overflows(self.now);
        let flight = (!overflows).then(|| adapter.accept(self.now, wire_bytes));
        let departs = flight.map_or(self.now, |flight| flight.departs);
        if self.scenario.hosts[host].config.links[index].pace == Pacing::Completion {
            let life = self.hosts[host].life;
            self.queue.schedule(departs, Event::Sent { host, life, link, wire_bytes });
        }
        self.watch_leaving((host, link), (handler, tag), bytes, departs);
        let Some(flight) = flight else { return departs };
        if self.hosts[host].wires[index].cuts > 0 || self.strikes(host, link, FrameFault::Loss) {
            return departs;
        }
        if self.strikes(host, link, FrameFault::Corrupt) {
            self.flip(bytes);
        }
        let mut at = self.hosts[host].wires[index].heap_until.unwrap_or(flight.arrives).max(flight.arrives);
        if self.strikes(host, link, FrameFault::Delay) {
            at = at + Nanos(self.tcp_dice.between(0, self.scenario.tcp.faults.delay_max.0));
        }
        self.fly_segment(host, index, bytes, at);
        if self.strikes(host, link, FrameFault::Duplicate) {
            let again = Nanos(self.tcp_dice.between(0, 1_000_000));
            self.fly_segment(host, index, bytes, at + again);
        }
        departs
    }

    /// Whether this fault hits the next segment: faults end when applications stop, so that connections can.
    fn strikes(&mut self, host: usize, link: LinkId, what: FrameFault) -> bool {
        let chance = *what.chance(&mut self.scenario.tcp.faults);
        if chance == Ppm(0) || self.now >= self.scenario.times.stops || !self.tcp_dice.chance(chance) {
            return false;
        }
        self.note(host, Entry::Fault { link: link.0, what });
        true
    }

    /// One bit of the segment flips: its checksum sees that.
    fn flip(&mut self, bytes: &mut [u8]) {
        let Some(seen) = read(bytes) else { return };
        let bit = self.tcp_dice.between(seen.tcp.start as u64 * 8, seen.tcp.end as u64 * 8 - 1) as usize;
        bytes[bit / 8] ^= 1 << (bit % 8);
    }

    fn fly_segment(&mut self, host: usize, index: usize, bytes: &[u8], at: SimTime) {
        let adapter = &self.hosts[host].adapters[index];
        let (peer, link) = (adapter.peer, LinkId(adapter.peer_link));
        self.journal.fly(|| Flight::of_segment(self.now, (host, index), bytes, at));
        let frame = SimFrame::new(bytes, &self.hosts[peer].frames);
        self.queue.schedule(at, Event::Segment { host: peer, link, address: hardware(host), frame });
    }

    /// What leaves is whole, goes to the right neighbour, in time, and leaves traces.
    fn watch_leaving(
        &mut self,
        (host, link): (usize, LinkId),
        (handler, tag): (RtuId, u64),
        bytes: &[u8],
        departs: SimTime,
    ) {
        let left = self.hosts[host].clock.read(departs);
        let Some(tcp) = &mut self.hosts[host].tcp else {
            return self.violate(&format!("host {host} sends a segment and has no TCP"));
        };
        let role = tcp.roles.get(&handler).copied();
        let account = tcp.accounts.get_mut(&handler);
        let is_connection = matches!(role, Some(Role::Output(_)));
        let late = account.filter(|_| is_connection).and_then(|account| {
            self.outcome.tcp.promised += u64::from(account.promises(tag));
            account.left(tag, left)
        });
        let peer = self.scenario.hosts[host].links[usize::from(link.0)].peer;
        if !is_connection && tag != 0 && tag != hardware(peer) {
            self.violate(&format!("host {host} answers a SYN at address {tag}, it came from {peer}"));
        }
        if let (Some(late), Some(role)) = (late, role) {
            self.judge_departure(host, link, role, late);
        }
        match read(bytes) {
            Some(seen) if seen.is_whole => self.trace_segment(host, &seen, true),
            _ => self.violate(&format!("host {host} sends a segment that is not whole")),
        }
    }

    fn judge_departure(&mut self, host: usize, link: LinkId, role: Role, late: Nanos) {
        // A link that the node itself finds slow promises nothing.
        let member = &mut self.hosts[host];
        let status = member.node.status(member.clock.read(self.now));
        let is_alive = status.links.get(usize::from(link.0)).is_some_and(|link| link.alive);
        let is_kept = is_alive && status.broken.is_empty();
        let wrong = is_kept.then(|| format!("has sent a segment of its budget {late} too late"));
        self.judge_tcp(host, role, wrong);
    }

    /// Notes resets and ends of streams that leave or come.
    pub(super) fn trace_segment(&mut self, host: usize, seen: &Seen, leaves: bool) {
        let (here, there) = if leaves { (seen.from, seen.to) } else { (seen.to, seen.from) };
        let Some((number, end)) = self.end_of(host, here, there) else { return };
        let now = self.now;
        let wire = &mut self.conversations[number].ends[end].wire;
        wire.was_reset |= seen.is_rst;
        if seen.is_fin {
            let first = if leaves { &mut wire.fin_left } else { &mut wire.fin_came };
            first.get_or_insert(now);
        }
    }

    /// The connection between these ends, and which end is at `host`.
    fn end_of(
        &self,
        host: usize,
        here: std::net::SocketAddr,
        there: std::net::SocketAddr,
    ) -> Option<(usize, usize)> {
        let port = here.port().max(there.port());
        let number = usize::from(port.checked_sub(CLIENT_PORT)?);
        let plan = &self.conversations.get(number)?.plan;
        let end = (0..2).find(|end| {
            plan.hosts[*end] == host && (plan.end(number, *end), plan.end(number, 1 - end)) == (here, there)
        })?;
        Some((number, end))
    }

    /// A segment arrives at the driver of `host`: early demultiplexing (RTU 4.3).
    pub(in crate::world) fn arrive_segment(
        &mut self,
        host: usize,
        link: LinkId,
        address: u64,
        frame: SimFrame,
    ) {
        self.note(host, Entry::Receive { link: link.0, bytes: frame.as_ref().len() as u32 });
        let there = &self.hosts[host];
        let ring = self.scenario.hosts[host].config.links[usize::from(link.0)].frames as usize;
        let Some(tcp) = &there.tcp else { return };
        if !there.is_up || there.is_paused(self.now) && tcp.arrived.len() >= ring {
            return;
        }
        let Some(seen) = read(frame.as_ref()) else { return };
        if seen.is_whole {
            self.trace_segment(host, &seen, false);
        }
        let Some(tcp) = &mut self.hosts[host].tcp else { return };
        let flow = tcp.driver.flows.get(&(seen.to, seen.from)).map(|inlet| (inlet, true));
        let listener = || tcp.driver.listeners.get(&(link.0, seen.to)).map(|inlet| (inlet, false));
        let Some((Inlet { index, held }, is_flow)) = flow.or_else(listener) else {
            return self.reach_kernel(host, link, &seen);
        };
        if held.get() >= BUFFERS {
            self.outcome.tcp.unbuffered += 1;
            return;
        }
        held.set(held.get() + 1);
        let to = if is_flow { Role::Input(*index) } else { Role::Listener(*index) };
        let frame = frame.counted_in(Some(held.clone()));
        tcp.arrived.push_back(ClassifiedPacket { to, address, frame });
        self.wake(host);
    }

    /// A segment that is in no table: the kernel answers it with a reset. It must not see one of a connection that is alive.
    fn reach_kernel(&mut self, host: usize, link: LinkId, seen: &Seen) {
        if !seen.is_whole {
            return;
        }
        let of = self.end_of(host, seen.to, seen.from);
        if of.is_some_and(|(number, end)| self.conversations[number].ends[end].is_alive()) {
            self.violate(&format!("host {host}: its kernel sees a segment of connection {of:?}"));
        }
        let Some(packet) = reset(seen) else { return };
        let index = usize::from(link.0);
        if self.hosts[host].wires[index].cuts > 0 {
            return;
        }
        let config = &self.scenario.hosts[host].config.links[index];
        let takes = self.tcp_dice.span(Nanos(1_000), KERNEL_MAX) + config.propagation_max;
        self.fly_segment(host, index, &packet, self.now + takes);
    }

    /// The processor takes what its drivers have classified.
    pub(in crate::world) fn take_segments(&mut self, host: usize, now: Instant) {
        loop {
            let member = &mut self.hosts[host];
            let Some(tcp) = &mut member.tcp else { return };
            let Some(ClassifiedPacket { to, address, frame }) = tcp.arrived.pop_front() else { return };
            let (handler, is_known) = match to {
                Role::Input(index) => {
                    let is_known = tcp.endsystem.arrived(index, frame, now).is_ok();
                    let of = tcp.places.get(&index).map(|place| place.of);
                    let link = of.map(|(number, end)| LinkId(self.conversations[number].plan.links[end]));
                    (link.and_then(|link| tcp.wake(index, link)), is_known)
                }
                Role::Listener(index) => (
                    tcp.listeners.get(&index).map(|listening| listening.handler),
                    tcp.endsystem.arrived_at_listener(index, frame, address),
                ),
                Role::Output(_) | Role::Late(_) => (None, false),
            };
            let Some(handler) = handler.filter(|_| is_known) else { continue };
            member.node.make_ready(handler, now);
            let wrong = tcp.accounts.get_mut(&handler).and_then(|account| account.came(now));
            self.judge_tcp(host, to, wrong);
        }
    }
}
