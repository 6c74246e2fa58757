//! Carries out the schedule of faults, and determines which channels each of them touches (ADR 0015).
//!
//! A fault has a place and a time. It touches exactly the channels whose route passes that place: data,
//! signalling, or both. Data that was under way from D before the fault until the channel has recovered has
//! no promise; a channel whose signalling it touches may end within the time that soft state takes to detect
//! it. No other channel is excused, neither on other links of the same host nor beside it.

use punctual_analysis::Nanos;
use punctual_proto::limits::CLOCK_BOUND_AGE_MAX;

use super::channel::State;
use super::host::{Armed, Host};
use super::touch::Place;
use super::{Event, World};
use crate::entry::Entry;
use crate::faults::{FaultAction, Moment};
use crate::time::SimTime;

/// Down-time of a host when its version changes.
pub(super) const UPGRADE: Nanos = Nanos::from_millis(20);
/// Exchanges for which a clock's change may go undetected.
const EXCHANGES_UNTIL_NOTICED: u64 = 10;
/// Upper bound on the error of neighbours' clock offsets.
const NOTICEABLE: Nanos = Nanos::from_millis(10);
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
