//! Calls of TCP's handlers: a body runs when its unit begins, and its effects on the node come when the unit is done.

use punctual_analysis::{Instant, Nanos};
use punctual_proto::api::{RtuClass, RtuCounters, RtuId, RtuStatus, UpcallDone, Work};
use punctual_tcp::endsystem::CallOutcome;

use super::account::Call;
use super::{Place, Role, TcpHost, World};

/// The call under way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Running {
    id: RtuId,
    role: Role,
    worked: CallOutcome,
    began: Instant,
    took: Nanos,
    /// Declared time of what the node does to send for it.
    sending: Nanos,
}

impl TcpHost {
    /// Packets that an input handler, or a listener, has not processed; segments that an output handler has made.
    fn counted(&self, role: Role) -> [u64; 2] {
        let place = |index: &u32| self.places.get(index);
        match role {
            Role::Input(index) => [place(&index).map_or(0, |place| place.held.get().into()), 0],
            Role::Output(index) => [0, place(&index).map_or(0, |place| place.segments.puts)],
            Role::Listener(index) => {
                let listening = self.listeners.get(&index);
                listening.map_or([0; 2], |it| [it.held.get().into(), it.segments.puts])
            }
            Role::Late(link) => [0, self.lates.get(&link).map_or(0, |it| it.segments.puts)],
        }
    }

    fn call(&mut self, role: Role, units: u32, now: Instant) -> CallOutcome {
        match role {
            Role::Input(index) => self.endsystem.input(index, units, now),
            Role::Output(index) => match self.places.get_mut(&index) {
                Some(place) => {
                    place.segments.now = now;
                    self.endsystem.output(index, units, now, &mut place.segments)
                }
                None => CallOutcome::default(),
            },
            Role::Listener(index) => match self.listeners.get_mut(&index) {
                Some(listening) => {
                    listening.segments.now = now;
                    self.endsystem.listen_unit(index, units, now, &mut listening.segments)
                }
                None => CallOutcome::default(),
            },
            Role::Late(link) => self.call_late(link, units, now),
        }
    }
}

impl World {
    /// Calls the body if the unit is TCP's; its time follows from what the body did.
    pub(in crate::world) fn prepare_tcp(&mut self, host: usize, work: &mut Work, now: Instant) {
        let member = &mut self.hosts[host];
        let Some(tcp) = &mut member.tcp else { return };
        let Some(id) = member.node.upcall(work) else { return };
        let Some(&role) = tcp.roles.get(&id) else { return };
        let [waiting, made] = tcp.counted(role);
        let worked = tcp.call(role, work.packets, now);
        let [waits, makes] = tcp.counted(role);
        let cost = self.scenario.tcp.cost;
        let of_node = work.application - cost.of(work.packets);
        let sending = Nanos(of_node.0 / u64::from(work.packets.max(1)) * u64::from(worked.units));
        let given = work.packets;
        work.application = cost.of(worked.units) + sending;
        tcp.running = Some(Running { id, role, worked, began: now, took: Nanos::ZERO, sending });
        let units = match role {
            Role::Input(_) => waiting - waits,
            Role::Output(_) | Role::Late(_) => makes - made,
            // Each packet has at most one reply; SYN-ACKs that are sent again come without.
            Role::Listener(_) => (waiting - waits).max(makes - made),
        };
        self.outcome.tcp.calls += 1;
        if let Role::Output(index) = role {
            self.record_packets(host, index, now);
        }
        if units > u64::from(given) || units > u64::from(worked.units) {
            self.violate(&format!(
                "host {host}: {role:?} has processed or made {units} segments, reports {}, was given {given}",
                worked.units
            ));
        }
    }

    /// The unit occupies the processor for `cost`.
    pub(in crate::world) fn begin_tcp(&mut self, host: usize, cost: Nanos) {
        let member = &mut self.hosts[host];
        let dispatch = member.node.costs().dispatch();
        let running = member.tcp.as_mut().and_then(|tcp| tcp.running.as_mut());
        if let Some(running) = running {
            running.took = cost - dispatch - running.sending;
        }
    }

    /// A call is done; whether it was one of TCP.
    pub(in crate::world) fn finish_tcp(&mut self, host: usize, work: &Work, now: Instant) -> bool {
        let member = &mut self.hosts[host];
        let Some(tcp) = &mut member.tcp else { return false };
        let Some(Running { id, role, worked, began, took, .. }) = tcp.running.take() else { return false };
        // A ring that is full is looked at again later, not at once.
        let is_full =
            matches!(role, Role::Output(index) if tcp.places.get(&index).is_some_and(Place::is_full));
        let done = UpcallDone { units: worked.units, more: worked.more && !is_full, took };
        member.node.finish_upcall(work, done, now);
        tcp.called = Some(role);
        let status = member.node.handlers().find(|status| status.id == id);
        let is_low_delay =
            status.as_ref().is_some_and(|status| matches!(status.terms.class, RtuClass::LowDelay { .. }));
        if worked.delivered && is_low_delay {
            member.node.gave_program(id, now);
        }
        let wrong = tcp.accounts.get_mut(&id).zip(status).and_then(|(account, status)| {
            let RtuStatus { counters: RtuCounters { units, units_beyond, .. }, sent, .. } = status;
            let sent = sent.map(|sent| [sent.packets, sent.packets_beyond]);
            let call = Call {
                began,
                ended: now,
                units: worked.units,
                more: worked.more,
                counted: [units, units_beyond],
                sent,
            };
            account.finish(&call)
        });
        self.judge_tcp(host, role, wrong);
        true
    }

    /// What follows a call, outside of the node's own time.
    pub(in crate::world) fn settle_called(&mut self, host: usize, now: Instant) {
        let called = self.hosts[host].tcp.as_mut().and_then(|tcp| tcp.called.take());
        match called {
            Some(Role::Input(index)) => self.settle_tcp(host, index, now),
            Some(Role::Output(index)) => {
                let channel = self.outgoing_of(host, index);
                self.settle_tcp(host, index, now);
                if let Some(channel) = channel {
                    self.ring_channel(host, channel, now);
                }
            }
            Some(Role::Listener(index)) => self.settle_listener(host, index, now),
            Some(Role::Late(link)) => self.settle_served(host, link, now),
            None => {}
        }
    }

    /// Records a violation by a handler, unless its host was disturbed.
    pub(super) fn judge_tcp(&mut self, host: usize, role: Role, wrong: Option<String>) {
        let Some(wrong) = wrong.filter(|_| self.hosts[host].has_been_well()) else { return };
        let tcp = self.hosts[host].tcp.as_ref();
        let of = match role {
            Role::Input(index) | Role::Output(index) => {
                let of = tcp.and_then(|tcp| tcp.places.get(&index)).map(|place| place.of);
                of.map(|(number, end)| (number, self.conversations[number].plan.classes[end]))
            }
            Role::Listener(_) | Role::Late(_) => None,
        };
        self.violate(&format!("host {host}: {role:?} of {of:?} {wrong}"));
    }
}
