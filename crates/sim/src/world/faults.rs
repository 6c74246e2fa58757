//! Carries out the schedule of faults, and determines which channels each of them touches (ADR 0015).
//!
//! A fault has a place and a time. It touches exactly the channels whose route passes that place: data,
//! signalling, or both. Data that was under way from D before the fault until the channel has recovered has
//! no promise; a channel whose signalling it touches may end within the time that soft state takes to detect
//! it. No other channel is excused, neither on other links of the same host nor beside it.

use punctual_analysis::{Nanos, Policing, Ppm};
use punctual_proto::config::LinkConfig;
use punctual_proto::config::link_model;
use punctual_proto::limits::CLOCK_BOUND_AGE_MAX;

use super::channel::State;
use super::host::{Armed, Host};
use super::{Event, World};
use crate::entry::Entry;
use crate::faults::{FaultAction, Lie, Moment};
use crate::scenario::{self, node_id};
use crate::time::SimTime;

/// Down-time of a host when its version changes.
pub(super) const UPGRADE: Nanos = Nanos::from_millis(20);
/// Exchanges for which a clock's change may go undetected.
const EXCHANGES_UNTIL_NOTICED: u64 = 10;
/// Upper bound on the error of neighbours' clock offsets.
const NOTICEABLE: Nanos = Nanos::from_millis(10);
/// Longer than any run with a broken assumption.
const BREACH_RECOVERY: Nanos = Nanos::from_secs(3_600);
/// Time within which all hosts have been notified that a stage has healed.
pub(super) const REPORTED_WITHIN: Nanos = Nanos::from_secs(2);
/// Distance between the epochs of a host's lives.
const EPOCHS: u64 = 1 << 32;

/// Phase of a fault.
#[derive(Clone, Copy, Debug)]
pub(super) enum Turn {
    /// It begins.
    Begins,
    /// It is over.
    Ends,
}

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
    /// Reports about a host's messages by its clock may be wrong until its neighbours have detected the
    /// change, in their next exchanges. A change `by` less than the error of the clocks causes no
    /// contradiction: its effect ends when the bounds expire.
    pub(super) fn misread(&mut self, host: usize, until: SimTime, by: Nanos) {
        let exchanges = self.scenario.hosts[host].config.signalling.hello_interval * EXCHANGES_UNTIL_NOTICED;
        let noticed = until + if by < NOTICEABLE { exchanges.max(CLOCK_BOUND_AGE_MAX) } else { exchanges };
        let host = &mut self.hosts[host];
        host.clock_odd_until = host.clock_odd_until.max(noticed);
    }

    pub(super) fn schedule_faults(&mut self) {
        for fault in 0..self.scenario.schedule.len() {
            let at = self.scenario.schedule[fault].at;
            self.queue.schedule(at, Event::Fault { fault, turn: Turn::Begins });
        }
    }

    pub(super) fn turn(&mut self, fault: usize, turn: Turn) {
        match turn {
            Turn::Begins => self.begin(fault),
            Turn::Ends => self.end(fault),
        }
    }

    fn begin(&mut self, index: usize) {
        let fault = self.scenario.schedule[index];
        let until = fault.ends();
        let host = host_of(&fault.what);
        self.note(host, Entry::Trouble { fault: index, over: false });
        self.journal.explain(|| format!("{:?} for {}", fault.what, fault.lasts));
        if !matches!(fault.what, FaultAction::Crash { .. }) {
            self.queue.schedule(until, Event::Fault { fault: index, turn: Turn::Ends });
        }
        match fault.what {
            FaultAction::Partition { host, link, both } => {
                self.cut(host, link, both, true);
                self.touch(self.between(host, link), until, true, true);
            }
            FaultAction::Pause { host } => {
                self.hosts[host].paused_until = self.hosts[host].paused_until.max(until);
                self.hole(host, fault.lasts, until);
            }
            FaultAction::Crash { host, moment: Moment::Now } => self.crash(host, fault.lasts),
            FaultAction::Crash { host, moment } => {
                self.hosts[host].armed = Some(Armed { moment, lasts: fault.lasts });
            }
            FaultAction::Breach(breach) => self.breach(breach, until),
            FaultAction::Jump { host, by } => {
                self.misread(host, until, by);
                self.hosts[host].clock.jump(by);
                self.hole(host, by, self.now);
                self.wake(host);
            }
            FaultAction::Freeze { host } => {
                self.misread(host, until, fault.lasts);
                let now = self.now;
                self.hosts[host].clock.step_back(now, fault.lasts);
                self.hole(host, fault.lasts, until);
            }
            FaultAction::Restamp { host, by } => {
                self.misread(host, until, by);
                self.hosts[host].stamps_early = by;
                self.hole(host, by, until);
            }
            FaultAction::Heap { host, link } => {
                self.hosts[host].wires[usize::from(link)].heap_until = Some(until);
                self.touch(self.between(host, link), until, true, true);
            }
            FaultAction::Lie { host, about } => {
                self.hosts[host].lies = Some(about);
                self.touch(Place::SentBy(host), until, true, false);
            }
            FaultAction::Noise { host, link, kind, .. } => {
                if kind.is_signalling() {
                    self.touch(self.between(host, link), until, false, true);
                }
                self.queue.schedule(self.now, Event::Noise { fault: index });
            }
            FaultAction::Version { host } => {
                self.touch(Place::Host(host), until + UPGRADE, true, true);
                self.crash(host, UPGRADE);
                self.set_version(host, true);
                self.watch_versions(index);
            }
            FaultAction::Deaf { host } => {
                self.hosts[host].is_deaf = true;
                self.touch(Place::Sink(host), until, true, false);
            }
        }
    }

    fn end(&mut self, index: usize) {
        let fault = self.scenario.schedule[index];
        self.note(host_of(&fault.what), Entry::Trouble { fault: index, over: true });
        match fault.what {
            FaultAction::Partition { host, link, both } => self.cut(host, link, both, false),
            FaultAction::Restamp { host, .. } => self.hosts[host].stamps_early = Nanos::ZERO,
            FaultAction::Lie { host, .. } => self.hosts[host].lies = None,
            FaultAction::Heap { host, link } => {
                self.hosts[host].wires[usize::from(link)].heap_until = None;
            }
            FaultAction::Version { host } => {
                self.crash(host, UPGRADE);
                self.set_version(host, false);
            }
            FaultAction::Breach(breach) => self.mend(breach),
            FaultAction::Deaf { host } => {
                self.hosts[host].is_deaf = false;
                self.hosts[host].hoard.clear();
            }
            FaultAction::Pause { .. }
            | FaultAction::Crash { .. }
            | FaultAction::Jump { .. }
            | FaultAction::Freeze { .. }
            | FaultAction::Noise { .. } => {}
        }
    }

    fn cut(&mut self, host: usize, link: u16, both: bool, begins: bool) {
        let there = self.scenario.hosts[host].links[usize::from(link)];
        let back = both.then_some((there.peer, there.peer_link));
        for (host, link) in [Some((host, link)), back].into_iter().flatten() {
            let cuts = &mut self.hosts[host].wires[usize::from(link)].cuts;
            *cuts = if begins { *cuts + 1 } else { cuts.saturating_sub(1) };
        }
    }

    pub(super) fn between(&self, host: usize, link: u16) -> Place {
        Place::Between(host, self.scenario.hosts[host].links[usize::from(link)].peer)
    }

    /// Counts a signalling packet that `host` has handled (or else sent) towards its crash; returns whether
    /// it crashed.
    pub(super) fn count_signal(&mut self, host: usize, sent: bool) -> bool {
        let Some(Armed { moment, lasts }) = self.hosts[host].armed.as_mut() else { return false };
        let left = match (moment, sent) {
            (Moment::Handled(left), false) | (Moment::Sent(left), true) => left,
            _ => return false,
        };
        *left = left.saturating_sub(1);
        let (left, lasts) = (*left, *lasts);
        let crashes = left == 0 && self.now < self.scenario.times.calm;
        if crashes {
            self.crash(host, lasts);
        }
        crashes
    }

    /// `host` loses all state; it restarts after `lasts`, but not after the faults must be over.
    fn crash(&mut self, host: usize, lasts: Nanos) {
        let until = (self.now + lasts).min(self.scenario.times.calm.max(self.now + UPGRADE));
        self.note(host, Entry::Crash { until_ns: until.0 });
        self.touch(Place::Host(host), until, true, true);
        self.deliver(host);
        self.hosts[host].life += 1;
        self.hosts[host].is_up = false;
        self.hosts[host].armed = None;
        self.renew(host);
        self.forget_applications(host);
        let life = self.hosts[host].life;
        self.queue.schedule(until, Event::Restart { host, life });
    }

    pub(super) fn restart(&mut self, host: usize, life: u32) {
        if self.hosts[host].life != life {
            return;
        }
        self.note(host, Entry::Restart { life });
        self.renew(host);
        self.hosts[host].is_up = true;
        self.hosts[host].activity = super::host::Activity::Waking;
        if let Err(error) = self.listen_at(host) {
            self.violate(&format!("host {host} does not start again: {error}"));
        }
        self.queue.schedule(self.now, Event::Step { host, life });
    }

    /// A node without earlier state, in another life.
    fn renew(&mut self, host: usize) {
        let plan = &mut self.scenario.hosts[host];
        plan.config.epoch.0 = plan.config.epoch.0.wrapping_add(EPOCHS);
        let (now, seed) = (self.now, self.outcome.seed);
        if let Err(error) = self.hosts[host].renew(plan, host as u64, seed, now) {
            self.violate(&format!("host {host} does not start again: {error}"));
        }
    }

    /// The applications of a crashed host have ended.
    fn forget_applications(&mut self, host: usize) {
        let now = self.now;
        self.handles.retain(|(at, _), _| *at != host);
        self.forget_requests(host);
        self.forget_tcp(host);
        for flood in 0..self.floods.len() {
            if self.scenario.floods[flood].from == host {
                self.floods[flood].handle = None;
                self.floods[flood].outbox.empty();
            }
        }
        self.last_change = now;
        for channel in self.channels.iter_mut() {
            if channel.plan.from == host && !channel.source_gone {
                channel.outbox = None;
                channel.lose(false, now);
            }
            if channel.plan.to == host && !channel.sink_gone {
                channel.inbox = None;
                channel.lose(true, now);
            }
        }
    }

    /// `host` is stopped for `length`: the delayed work must still be done, which takes it length * g / (1 -
    /// g) more, g the largest reserved share of a resource.
    fn hole(&mut self, host: usize, length: Nanos, until: SimTime) {
        let status = self.hosts[host].node.status(self.hosts[host].clock.read(self.now));
        let links = status.links.iter().map(|link| link.utilisation.0);
        let given = u64::from(links.fold(status.cpu_utilisation.0, u32::max).min(990_000));
        let drained = until + Nanos(length.0.saturating_mul(given) / (1_000_000 - given));
        self.touch(Place::Host(host), drained.min(self.scenario.times.heals), true, true);
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
        let recovery = self.recovery(number);
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

    /// The longest time until all hosts have been notified of an end: a lease, a neighbour's silence, a
    /// request given up.
    pub(super) fn notice_time(&self) -> Nanos {
        let signalling = &self.scenario.hosts[0].config.signalling;
        let silence = signalling.hello_interval * 6;
        signalling.lease + silence + signalling.grace + Nanos::from_millis(300)
    }

    /// Whether signalling may fail at this time for a request made at `asked`.
    pub(super) fn may_be_silent(&self, asked: SimTime) -> bool {
        let frames = !self.scenario.faults.is_none();
        let endless = frames && !self.scenario.heals();
        endless || (frames || !self.touches.is_empty()) && asked < self.scenario.times.heals
    }

    /// Whether faults of frames have ended.
    pub(super) fn is_calm(&self) -> bool {
        self.scenario.heals() && self.now >= self.scenario.times.calm
    }

    /// Whether everything must work: there is no fault, or all after-effects are over.
    pub(super) fn is_well(&self) -> bool {
        if self.scenario.heals() {
            return self.touches.is_empty() && self.scenario.faults.is_none()
                || self.now >= self.scenario.times.heals;
        }
        self.scenario.faults.is_none()
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
        let drift = Ppm(200).of(channel.plan.contract.deadline);
        channel.plan.contract.interval() * 2 + (fixed + drift) * 257 + Nanos::from_millis(1)
    }

    /// Requests every channel that is not open, each once.
    pub(super) fn ask_again(&mut self) {
        let (from, to) = (self.scenario.times.heals, self.scenario.times.heals + Nanos::from_millis(300));
        for plan in 0..self.scenario.channels.len() {
            let wanted = self.scenario.channels[plan];
            let mut attempts = self.channels.iter().filter(|channel| channel.origin == plan);
            let there = attempts.any(|channel| matches!(channel.state, State::Open | State::Asked));
            if !there && !wanted.storm && wanted.opens_at < self.scenario.times.calm {
                let at = SimTime(self.dice.between(from.0, to.0));
                self.queue.schedule(at, Event::Act(super::Act::Ask { plan }));
            }
        }
    }
}

/// Contribution of a link to J: a packet may leave at once, where its slack was stamped with the latest time.
fn arrival_error(link: &LinkConfig) -> Nanos {
    let model = link_model(link);
    let window = u64::from(model.pipeline_depth.max(1)) * u64::from(model.mtu_wire_bytes);
    link.prediction_error + model.departure_latest(window) + (link.propagation_max - link.propagation_min)
}

fn host_of(what: &FaultAction) -> usize {
    match *what {
        FaultAction::Partition { host, .. }
        | FaultAction::Pause { host }
        | FaultAction::Crash { host, .. }
        | FaultAction::Jump { host, .. }
        | FaultAction::Freeze { host }
        | FaultAction::Restamp { host, .. }
        | FaultAction::Heap { host, .. }
        | FaultAction::Lie { host, .. }
        | FaultAction::Noise { host, .. }
        | FaultAction::Version { host }
        | FaultAction::Deaf { host } => host,
        FaultAction::Breach(ref breach) => breach.host(),
    }
}

impl Host {
    /// Whether its processor is stopped at `now`.
    pub(super) fn is_paused(&self, now: SimTime) -> bool {
        now < self.paused_until
    }
}
