//! Frames between adapters and drivers, and their faults in transit.

use punctual_analysis::{Instant, Nanos, Ppm};
use punctual_proto::api::Port;
use punctual_proto::config::Pacing;
use punctual_proto::ids::LinkId;
use punctual_proto::limits::HEADER_BYTES;
use punctual_proto::wire::Header;

use super::host::Arrived;
use super::{Event, World};
use crate::adapter::Flight as Flown;
use crate::cut::FrameFault;
use crate::entry::Entry;
use crate::memory::SimFrame;
use crate::options::Faults;
use crate::time::SimTime;
use crate::trace::Flight;

impl World {
    /// Hands a frame to an adapter of `host`; returns its departure.
    pub(super) fn launch(
        &mut self,
        host: usize,
        link: LinkId,
        port: Port,
        wire_bytes: u32,
        bytes: &mut [u8],
    ) -> SimTime {
        self.outcome.packets += 1;
        self.note(host, Entry::Transmit { link: link.0, bytes: wire_bytes });
        self.check_time(host, port, bytes);
        let index = usize::from(link.0);
        let overflows = self.hosts[host].adapters[index].overflows(self.now);
        let flight = match overflows {
            true => Flown { departs: self.now, arrives: self.now },
            false => self.hosts[host].adapters[index].accept(self.now, wire_bytes),
        };
        let config = &self.scenario.hosts[host].config.links[index];
        if config.pace == Pacing::Completion {
            let life = self.hosts[host].life;
            self.queue.schedule(flight.departs, Event::Sent { host, life, link, wire_bytes });
        }
        if overflows {
            return flight.departs;
        }
        let mut renumbered = self.renumber(host, index, port, bytes);
        let bytes = renumbered.as_deref_mut().unwrap_or(bytes);
        self.falsify(host, index, port, bytes);
        let cut = self.hosts[host].wires[index].cuts > 0;
        if self.sabotaged(port, bytes) || cut || self.lost(host, link, port, bytes) {
            return flight.departs;
        }
        let delay = self.delayed(host, link, port, bytes);
        let kept = self.hosts[host].wires[index].heap_until.unwrap_or(flight.arrives);
        self.fly(host, index, port, bytes, kept.max(flight.arrives) + delay);
        if self.is_hit(host, link, port, bytes, self.frame_faults().duplicate, FrameFault::Duplicate) {
            let again = Nanos(self.fault_dice.between(0, 1_000_000));
            self.fly(host, index, port, bytes, flight.arrives + delay + again);
        }
        flight.departs
    }

    fn fly(&mut self, host: usize, index: usize, port: Port, bytes: &[u8], at: SimTime) {
        let adapter = &self.hosts[host].adapters[index];
        let (peer, link) = (adapter.peer, LinkId(adapter.peer_link));
        let paths = &self.paths;
        self.journal
            .fly(|| Flight::of(self.now, host, index, port, bytes, at, |path| paths.get(&path).copied()));
        let frame = SimFrame::new(bytes, &self.hosts[peer].frames);
        self.queue.schedule(at, Event::Arrive { host: peer, link, port, frame });
    }

    /// Handles a frame that arrives at the driver of `host`.
    pub(super) fn arrive(&mut self, host: usize, link: LinkId, port: Port, frame: SimFrame) {
        self.note(host, Entry::Receive { link: link.0, bytes: frame.as_ref().len() as u32 });
        let there = &self.hosts[host];
        let ring = self.scenario.hosts[host].config.links[usize::from(link.0)].frames as usize;
        if !there.is_up || there.is_paused(self.now) && there.arrived.len() >= ring {
            return;
        }
        let clock = there.clock.read(self.now);
        let received = Instant(clock.0.saturating_sub(there.stamps_early.0));
        let frame = self.classify(host, link, frame, received);
        self.hosts[host].arrived.push_back(Arrived { link, port, received, frame });
        self.wake(host);
    }

    /// Checks that an honest path never exceeds its driver's filter.
    fn classify(&mut self, host: usize, link: LinkId, frame: SimFrame, received: Instant) -> SimFrame {
        self.hosts[host].give_back_sent(self.now);
        let (held, dropped) = self.hosts[host].filters.classify(link, frame.as_ref(), received);
        let path = dropped.and_then(|_| Header::parse(frame.as_ref()).ok()).map(|(header, _)| header.path);
        let channel = path.and_then(|path| self.paths.get(&path)).copied();
        let honest = channel.is_some_and(|channel| !self.channels[channel].faulty);
        if let (Some(why), true) = (dropped, honest) {
            self.violate(&format!(
                "channel {channel:?}: a packet that keeps its contract is {why} at host {host}"
            ));
        }
        frame.counted_in(held)
    }

    /// Violates the network's properties without telling the checker.
    fn sabotaged(&mut self, port: Port, bytes: &mut [u8]) -> bool {
        let sabotage = self.options.sabotage;
        if port == Port::Data
            && self.fault_dice.chance(sabotage.silent_corruption)
            && bytes.len() > HEADER_BYTES
        {
            let at = self.fault_dice.between(HEADER_BYTES as u64, bytes.len() as u64 - 1) as usize;
            bytes[at] ^= 0x10;
        }
        port == Port::Data && self.fault_dice.chance(sabotage.silent_loss)
    }

    fn lost(&mut self, host: usize, link: LinkId, port: Port, bytes: &[u8]) -> bool {
        let faults = self.frame_faults();
        self.is_hit(host, link, port, bytes, faults.loss, FrameFault::Loss)
            || self.is_hit(host, link, port, bytes, faults.corrupt, FrameFault::Corrupt)
    }

    fn delayed(&mut self, host: usize, link: LinkId, port: Port, bytes: &[u8]) -> Nanos {
        let faults = self.frame_faults();
        if self.is_hit(host, link, port, bytes, faults.delay, FrameFault::Delay) {
            Nanos(self.fault_dice.between(0, faults.delay_max.0))
        } else {
            Nanos::ZERO
        }
    }

    /// Present faults of frames.
    fn frame_faults(&self) -> Faults {
        if self.is_calm() { Faults::NONE } else { self.scenario.faults }
    }

    /// Whether a fault hits this frame; then only its channel is excused for a while.
    fn is_hit(
        &mut self,
        host: usize,
        link: LinkId,
        port: Port,
        bytes: &[u8],
        chance: Ppm,
        what: FrameFault,
    ) -> bool {
        if !self.fault_dice.chance(chance) {
            return false;
        }
        self.note(host, Entry::Fault { link: link.0, what });
        if port == Port::Data {
            self.excuse(bytes);
        }
        true
    }

    fn excuse(&mut self, bytes: &[u8]) {
        let Ok((header, _)) = Header::parse(bytes) else { return };
        let Some(&channel) = self.paths.get(&header.path) else { return };
        let recovery = self.recovery(channel);
        let channel = &mut self.channels[channel];
        channel.faulty = true;
        // A delayed or duplicated frame arrives later by this much.
        let until = self.now + self.scenario.faults.delay_max + Nanos::from_millis(1);
        channel.ledger.excuse(self.now, until, recovery);
    }
}
