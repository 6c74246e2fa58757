//! Attacks by a hostile neighbour or on its cable: forged values in frames, and forged frames.

use punctual_analysis::Nanos;
use punctual_proto::api::Port;
use punctual_proto::ids::{ChannelNumber, Cookie, LinkId};
use punctual_proto::signalling::{RTCOP_VERSION, renumbered};
use punctual_proto::wire::{self, Header, Kind};

use super::host::Wire;
use super::{Event, World};
use crate::dice::mix;
use crate::faults::{FaultAction, Lie, Noise};
use crate::memory::SimFrame;

/// Signalling packets of a link that are recorded.
const RECORDED: usize = 16;
/// Distance of forged message numbers. (A near one that is delivered costs the message that has it later.)
const NUMBERS_AHEAD: u64 = 1 << 40;

impl Wire {
    fn record(&mut self, signal: Vec<u8>) {
        if self.signals.len() == RECORDED {
            self.signals.pop_front();
        }
        self.signals.push_back(signal);
    }
}

impl World {
    /// Changes a frame that a hostile `host` sends.
    pub(super) fn falsify(&mut self, host: usize, index: usize, port: Port, bytes: &mut [u8]) {
        let peer = self.hosts[host].adapters[index].peer;
        self.translate(host, peer, port, bytes);
        if let (Some(about), Port::Data) = (self.hosts[host].lies, port) {
            self.lie(about, bytes);
        }
        if self.scenario.schedule.is_empty() {
            return;
        }
        let wire = &mut self.hosts[host].wires[index];
        match port {
            Port::Data => {
                wire.data.clear();
                wire.data.extend_from_slice(bytes);
            }
            Port::Signalling => wire.record(bytes.to_vec()),
        }
    }

    /// A signalling packet of a host whose stream has an insider's packets: renumbered as if those were its
    /// own.
    pub(super) fn renumber(&self, host: usize, index: usize, port: Port, bytes: &[u8]) -> Option<Vec<u8>> {
        let insertions = self.hosts[host].wires[index].insertions;
        if port != Port::Signalling || insertions == 0 {
            return None;
        }
        let key = &self.scenario.hosts[host].config.signalling.domain_key;
        renumbered(key, bytes, |number| number + insertions).map(|(_, bytes)| bytes)
    }

    fn lie(&mut self, about: Lie, bytes: &mut [u8]) {
        let Ok((header, _)) = Header::parse(bytes) else { return };
        if header.kind != Kind::Guaranteed {
            return;
        }
        let slack = |slack_ns| Header { slack_ns, ..header };
        let reported = match about {
            Lie::SlackMore(by) => slack(header.slack_ns.saturating_add_unsigned(by.0)),
            Lie::SlackLess(by) => slack(header.slack_ns.saturating_sub_unsigned(by.0)),
            Lie::SlackRandom => slack(self.fault_dice.bits() as i64),
            // All fragments of a message get the same number, because mixing them would change payload, which
            // any host on the path can do anyway.
            Lie::Numbers if mix(header.message).is_multiple_of(4) => {
                Header { message: header.message.wrapping_add(NUMBERS_AHEAD), ..header }
            }
            Lie::Numbers => header,
        };
        reported.write(bytes);
    }

    /// Sends the next frame of a fault that makes noise.
    pub(super) fn make_noise(&mut self, fault: usize) {
        let plan = self.scenario.schedule[fault];
        let FaultAction::Noise { host, link, kind, interval } = plan.what else { return };
        if self.now >= plan.ends() {
            return;
        }
        if let Some(bytes) = self.invent(host, usize::from(link), kind) {
            let adapter = &self.hosts[host].adapters[usize::from(link)];
            let (peer, there) = (adapter.peer, LinkId(adapter.peer_link));
            let frame = SimFrame::new(&bytes, &self.hosts[peer].frames);
            let port = if kind.is_signalling() { Port::Signalling } else { Port::Data };
            // A frame cannot be faster than the wire.
            let least = self.scenario.hosts[host].config.links[usize::from(link)].propagation_min;
            self.queue.schedule(self.now + least, Event::Arrive { host: peer, link: there, port, frame });
        }
        self.queue.schedule(self.now + interval.max(Nanos(1)), Event::Noise { fault });
    }

    fn invent(&mut self, host: usize, link: usize, kind: Noise) -> Option<Vec<u8>> {
        let wire = &self.hosts[host].wires[link];
        match kind {
            Noise::Replays => {
                let which = self.fault_dice.between(0, wire.signals.len().checked_sub(1)? as u64);
                wire.signals.get(which as usize).cloned()
            }
            Noise::Insider => {
                let which = self.fault_dice.between(0, wire.signals.len().checked_sub(1)? as u64);
                let key = &self.scenario.hosts[host].config.signalling.domain_key;
                let (newest, _) = renumbered(key, wire.signals.back()?, |number| number)?;
                let (_, bytes) = renumbered(key, wire.signals.get(which as usize)?, |_| newest + 1)?;
                let wire = &mut self.hosts[host].wires[link];
                wire.insertions += 1;
                wire.record(bytes.clone());
                Some(bytes)
            }
            Noise::Signals | Noise::Garbage => {
                let version = if kind == Noise::Signals { RTCOP_VERSION } else { wire::VERSION };
                let len = self.fault_dice.between(1, 400);
                let mut bytes: Vec<u8> = (0..len).map(|_| self.fault_dice.bits() as u8).collect();
                if self.fault_dice.between(0, 3) > 0 {
                    bytes[0] = version;
                }
                Some(bytes)
            }
            Noise::Cookies | Noise::Strangers => {
                let mut bytes = wire.data.clone();
                let (header, _) = Header::parse(&bytes).ok().filter(|(h, _)| h.kind == Kind::Guaranteed)?;
                let mut forged = header;
                if kind == Noise::Cookies {
                    forged.cookie = Cookie(header.cookie.0 ^ (1 + (self.fault_dice.bits() as u32 >> 1)));
                } else {
                    forged.path.channel = ChannelNumber(header.path.channel.0 ^ 0x8000_0000);
                }
                forged.write(&mut bytes);
                Some(bytes)
            }
        }
    }
}
