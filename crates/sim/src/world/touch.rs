//! Which channels a fault touches, and for how long (ADR 0015).

use punctual_analysis::{Nanos, Policing};
use punctual_proto::config::{LinkConfig, link_model};

use super::World;
use crate::faults::Lie;
use crate::scenario::{self, node_id};
use crate::time::SimTime;

/// Longer than any run with a broken assumption.
const BREACH_RECOVERY: Nanos = Nanos::from_secs(3_600);
/// Time within which all hosts have been notified that a stage has healed.
pub(super) const REPORTED_WITHIN: Nanos = Nanos::from_secs(2);

/// Place at which a fault acts.
#[derive(Clone, Copy, Debug)]
pub(super) enum Place {
    /// All packets that pass a host.
    Host(usize),
    /// All packets between two neighbours, in either direction.
    Between(usize, usize),
    /// Packets that a host sends on.
    SentBy(usize),
    /// Channels that end at a host.
    Sink(usize),
}

/// A fault's effect on channels.
#[derive(Clone, Copy, Debug)]
pub(super) struct Touch {
    place: Place,
    from: SimTime,
    until: SimTime,
    data: bool,
    signals: bool,
    /// Message numbers were forged.
    renumbered: bool,
}

impl Touch {
    /// Whether the fault may break the stage of `host`, or of its link `towards` a neighbour, at `now`:
    /// healing takes a lease, and its report some time.
    pub(super) fn disturbs(&self, host: usize, towards: Option<usize>, lease: Nanos, now: SimTime) -> bool {
        let here = match (self.place, towards) {
            (Place::Host(at), _) => at == host || Some(at) == towards,
            (Place::Between(a, b), Some(there)) => (a, b) == (host, there) || (b, a) == (host, there),
            (Place::Between(..) | Place::SentBy(_) | Place::Sink(_), _) => false,
        };
        here && now <= self.until + lease + REPORTED_WITHIN
    }
}

impl World {
    pub(super) fn between(&self, host: usize, link: u16) -> Place {
        Place::Between(host, self.scenario.hosts[host].links[usize::from(link)].peer)
    }

    /// A fault acts at `place` from now until `until`.
    pub(super) fn touch(&mut self, place: Place, until: SimTime, data: bool, signals: bool) {
        if let Place::Host(host) = place {
            self.hosts[host].unwell_until = self.hosts[host].unwell_until.max(until);
            self.hosts[host].backlogs.iter_mut().for_each(|backlog| backlog.forget(until));
        }
        let renumbered = matches!(place, Place::SentBy(host) if self.hosts[host].lies == Some(Lie::Numbers));
        let touch = Touch { place, from: self.now, until, data, signals, renumbered };
        self.touches.push(touch);
        for channel in self.channels.numbers() {
            self.feel(channel, touch);
        }
    }

    /// Applies to a newly opened channel the faults whose effects are not over.
    pub(super) fn feel_all(&mut self, channel: usize) {
        for touch in 0..self.touches.len() {
            self.feel(channel, self.touches[touch]);
        }
    }

    fn feel(&mut self, number: usize, touch: Touch) {
        if !self.reaches(touch.place, number) {
            return;
        }
        let is_of_tcp = self.channels[number].tcp.is_some();
        let recovery = match touch.place {
            // A connection does not pause: what it sends later waits behind what waited meanwhile.
            Place::Host(host) if is_of_tcp && host == self.channels[number].plan.from => BREACH_RECOVERY,
            _ => self.recovery(number),
        };
        let noticed = touch.until + self.notice_time();
        let channel = &mut self.channels[number];
        if touch.data && touch.until + recovery + channel.plan.contract.deadline >= self.now {
            channel.faulty = true;
            // A demoted message takes a number that may never arrive: then the sink's silence has no end.
            let gaps = !channel.sender.keeps_contract() && channel.plan.contract.policing == Policing::Demote;
            // A channel that is opened later has never had a forged number.
            match (touch.renumbered && touch.until >= self.now, gaps) {
                (false, _) => channel.ledger.excuse(touch.from, touch.until, recovery),
                (true, false) => channel.ledger.excuse_numbers(touch.from, touch.until, recovery),
                (true, true) => channel.ledger.excuse(touch.from, touch.until, Nanos::from_secs(3_600)),
            }
            // Its node counts no message as older than its own wake-up latency: messages that waited
            // meanwhile count from the end of the fault on. The application pauses until they are sent.
            if matches!(touch.place, Place::Host(host) if host == channel.plan.from) {
                let waiting = channel.grant.as_ref().map_or(0, |grant| grant.outbox_messages);
                let rest = channel.plan.contract.interval() * (u64::from(waiting) + 2);
                channel.rests_until = channel.rests_until.max(touch.until + rest);
            }
        }
        if touch.signals && noticed >= self.now {
            let (from, until) = channel.shaky.unwrap_or((touch.from, noticed));
            channel.shaky = Some((from.min(touch.from), until.max(noticed)));
        }
    }

    fn reaches(&self, place: Place, number: usize) -> bool {
        let Some(grant) = &self.channels[number].grant else { return false };
        let route = &grant.route;
        match place {
            Place::Host(host) => route.contains(&node_id(host)),
            Place::SentBy(host) => {
                route.split_last().is_some_and(|(_, before)| before.contains(&node_id(host)))
            }
            Place::Sink(host) => route.last() == Some(&node_id(host)),
            Place::Between(a, b) => {
                let (a, b) = (node_id(a), node_id(b));
                route.windows(2).any(|pair| pair == [a, b] || pair == [b, a])
            }
        }
    }

    /// Time in which a disturbed channel returns within its bounds, besides D (ADR 0015): 2 * I and 257 times
    /// J at its last stage. Stages recover at the same time: a packet that one demotes does not move the next
    /// one's chain.
    pub(super) fn recovery(&self, channel: usize) -> Nanos {
        let channel = &self.channels[channel];
        let Some(grant) = &channel.grant else { return Nanos::ZERO };
        // A source at its full rate catches up with a delay by a 256th of that rate: for the rest of the run.
        if self.is_broken() {
            return BREACH_RECOVERY;
        }
        let hops = grant.route.windows(2).filter_map(|pair| {
            let host = self.scenario.hosts.get(scenario::host_of(pair[0])?)?;
            host.config.links.iter().find(|link| link.neighbour == pair[1])
        });
        let fixed: Nanos = hops.map(arrival_error).sum();
        let drift = self.scenario.drift_max().of(channel.plan.contract.deadline);
        channel.plan.contract.interval() * 2 + (fixed + drift) * 257 + Nanos::from_millis(1)
    }
}

/// Contribution of a link to J: a packet may leave at once, where its slack was stamped with the latest time.
fn arrival_error(link: &LinkConfig) -> Nanos {
    let model = link_model(link);
    let window = u64::from(model.pipeline_depth.max(1)) * u64::from(model.mtu_wire_bytes);
    link.prediction_error + model.departure_latest(window) + (link.propagation_max - link.propagation_min)
}
