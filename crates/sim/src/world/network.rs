//! Frames between adapters and drivers, and what may happen to them on the way.

use punctual_analysis::{Instant, Nanos, Ppm};
use punctual_proto::ids::LinkId;
use punctual_proto::limits::HEADER_BYTES;
use punctual_proto::node::api::Port;
use punctual_proto::node::config::Pace;
use punctual_proto::wire::Header;

use super::host::Arrived;
use super::{Event, World};
use crate::journal::Entry;
use crate::memory::SimFrame;
use crate::time::SimTime;

impl World {
    /// Hands a frame to an adapter of `host`.
    pub(super) fn launch(
        &mut self,
        host: usize,
        link: LinkId,
        port: Port,
        wire_bytes: u32,
        bytes: &mut [u8],
    ) {
        self.outcome.packets += 1;
        self.note(host, Entry::Transmit { link: link.0, bytes: wire_bytes });
        self.check_time(host, port, bytes);
        let index = usize::from(link.0);
        let flight = self.hosts[host].adapters[index].accept(self.now, wire_bytes);
        let config = &self.scenario.hosts[host].config.links[index];
        if config.pace == Pace::Completion {
            self.queue.schedule(flight.departs, Event::Sent { host, link, wire_bytes });
        }
        if self.sabotaged(port, bytes) || self.lost(host, link, port, bytes) {
            return;
        }
        let delay = self.delayed(host, link, port, bytes);
        self.fly(host, index, port, bytes, flight.arrives + delay);
        if self.struck(host, link, port, bytes, self.scenario.faults.duplicate, "doubled") {
            let again = Nanos(self.fault_dice.between(0, 1_000_000));
            self.fly(host, index, port, bytes, flight.arrives + delay + again);
        }
    }

    fn fly(&mut self, host: usize, index: usize, port: Port, bytes: &[u8], at: SimTime) {
        let adapter = &self.hosts[host].adapters[index];
        let (peer, link) = (adapter.peer, LinkId(adapter.peer_link));
        let frame = SimFrame::new(bytes, &self.hosts[peer].frames);
        self.queue.schedule(at, Event::Arrive { host: peer, link, port, frame });
    }

    /// A frame comes to the driver of `host`.
    pub(super) fn arrive(&mut self, host: usize, link: LinkId, port: Port, frame: SimFrame) {
        self.note(host, Entry::Receive { link: link.0, bytes: frame.as_ref().len() as u32 });
        let received = self.hosts[host].clock.read(self.now);
        let frame = self.classify(host, link, frame, received);
        self.hosts[host].arrived.push_back(Arrived { link, port, received, frame });
        self.wake(host);
    }

    /// An honest path never meets what its driver would drop.
    fn classify(&mut self, host: usize, link: LinkId, frame: SimFrame, received: Instant) -> SimFrame {
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

    /// Breaks what the network promises, without telling the checker.
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
        let faults = self.scenario.faults;
        self.struck(host, link, port, bytes, faults.loss, "lost")
            || self.struck(host, link, port, bytes, faults.corrupt, "corrupted")
    }

    fn delayed(&mut self, host: usize, link: LinkId, port: Port, bytes: &[u8]) -> Nanos {
        let faults = self.scenario.faults;
        if self.struck(host, link, port, bytes, faults.delay, "delayed") {
            Nanos(self.fault_dice.between(0, faults.delay_max.0))
        } else {
            Nanos::ZERO
        }
    }

    /// Whether a fault hits this frame; then its channel, and nobody else, is excused for a while.
    fn struck(
        &mut self,
        host: usize,
        link: LinkId,
        port: Port,
        bytes: &[u8],
        chance: Ppm,
        what: &'static str,
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
        channel.ledger.excuse(self.now, recovery);
    }

    /// How long a disturbed channel may take to be back within its bounds, besides D: 2 * I and 129 times what its
    /// effective arrivals may lag behind (each message makes I/128 of that up), and the delay itself. A packet is
    /// accepted with e <= m + J and m <= n + J: the lag behind n is up to 2 * J.
    fn recovery(&self, channel: usize) -> Nanos {
        let channel = &self.channels[channel];
        let hops = channel.grant.as_ref().map_or(&[][..], |grant| &grant.route);
        let error: Nanos = hops
            .iter()
            .filter_map(|node| self.scenario.hosts.get(node.0 as usize - 1))
            .flat_map(|host| &host.config.links)
            .map(|link| link.prediction_error + link.propagation_max - link.propagation_min)
            .sum();
        let drift = Ppm(200).of(channel.plan.contract.deadline);
        let delay = self.scenario.faults.delay_max;
        channel.plan.contract.interval() * 2 + (error + drift) * (2 * 129) + delay + Nanos::from_millis(1)
    }
}
