//! Deliberately broken assumptions, and the check that the stage which cannot keep its promise is reported.
//!
//! The world has the identity of the stage. A report of another stage is wrong. Once messages have come later
//! than the clocks' error explains, in three slots of a second, both ends of their channel must get a report
//! of the right stage within a second.

use punctual_analysis::Nanos;
use punctual_proto::api::{self, CloseReason};
use punctual_proto::ids::ChannelId;
use punctual_proto::limits::{WATCH_SLOT, WATCH_SLOTS, WATCH_SLOTS_LATE};

use super::World;
use super::touch::{Place, REPORTED_WITHIN};
use crate::adapter::Broken;
use crate::faults::Breach;
use crate::time::SimTime;
use crate::timeliness::{self, ReportedTimeliness};

/// Longest time from a late message until the stage is reported.
const NAMED_WITHIN: Nanos = Nanos::from_secs(1);

/// The broken stage of a run.
#[derive(Clone, Debug)]
pub(super) struct BrokenStage {
    /// Name of its host and, for a link, of the neighbour; `None` for a clock, which is no stage.
    name: Option<(String, Option<String>)>,
    until: SimTime,
    /// Times of late messages, one per slot of [`WATCH_SLOT`], in the last second.
    late_at: Vec<SimTime>,
    /// The first message whose lateness is no accident: its time and channel.
    late: Option<(SimTime, usize)>,
    /// Reports to ends of channels: channel, whether at its sink, time.
    named: Vec<(usize, bool, SimTime)>,
    misnamed: bool,
}

impl BrokenStage {
    /// Notes that a message of channel `number` was late. One slot, or two, are no evidence about a stage
    /// (ADR 0026).
    fn note_late(&mut self, now: SimTime, number: usize) {
        self.late_at.retain(|at| now.since(*at) < WATCH_SLOT * WATCH_SLOTS as u64);
        if self.late_at.last().is_none_or(|last| now.since(*last) >= WATCH_SLOT) {
            self.late_at.push(now);
        }
        if self.late_at.len() >= WATCH_SLOTS_LATE {
            self.late.get_or_insert((now, number));
        }
    }
}

impl World {
    pub(super) fn breach(&mut self, breach: Breach, until: SimTime) {
        let host = breach.host();
        let called = |host: usize| self.scenario.hosts[host].config.name.to_string();
        let towards = breach.link().map(|link| called(self.hosts[host].adapters[usize::from(link)].peer));
        let is_stage = !matches!(breach, Breach::Drift { .. });
        let name = is_stage.then(|| (called(host), towards));
        self.broken = Some(BrokenStage {
            name,
            until,
            late_at: Vec::new(),
            late: None,
            named: Vec::new(),
            misnamed: false,
        });
        let place = breach.link().map_or(Place::Host(host), |link| self.between(host, link));
        // Its after-effects last until everything must work again.
        self.touch(place, self.scenario.times.heals, true, true);
        // A broken stage breaks its guarantee to best effort too.
        let heals = self.scenario.times.heals;
        self.hosts[host].backlogs.iter_mut().for_each(|backlog| backlog.forget(heals));
        let now = self.now;
        let broken = Broken { foreign_until: now, ..Broken::NOT };
        match breach {
            Breach::SlowLink { percent, .. } => {
                self.break_link(&breach, Broken { rate_percent: percent, ..broken })
            }
            Breach::Foreign { percent, .. } => {
                self.break_link(&breach, Broken { foreign_percent: percent, ..broken })
            }
            Breach::Longer { by, .. } => self.break_link(&breach, Broken { longer: by, ..broken }),
            Breach::SlowProcessor { percent, .. } => self.hosts[host].processor.set_cost_percent(percent),
            Breach::Drift { ppb, .. } => {
                self.misread(host, until, Nanos::ZERO);
                self.hosts[host].clock.drift_more(now, ppb);
            }
        }
    }

    pub(super) fn mend(&mut self, breach: Breach) {
        let (host, now) = (breach.host(), self.now);
        match breach {
            Breach::SlowProcessor { .. } => self.hosts[host].processor.set_cost_percent(100),
            Breach::Drift { ppb, .. } => self.hosts[host].clock.drift_more(now, -ppb),
            _ => self.break_link(&breach, Broken::NOT),
        }
    }

    fn break_link(&mut self, breach: &Breach, broken: Broken) {
        if let Some(link) = breach.link() {
            self.hosts[breach.host()].adapters[usize::from(link)].set_broken(broken);
        }
    }

    /// Whether a stage of this run was broken on purpose.
    pub(super) fn is_broken(&self) -> bool {
        self.broken.is_some()
    }

    /// Whether a fault stopped the stage, or held back its packets, so recently that it cannot have healed
    /// since.
    pub(super) fn was_disturbed(&self, stage: &str, towards: Option<&str>) -> bool {
        let called =
            |name: &str| self.scenario.hosts.iter().position(|plan| plan.config.name.to_string() == name);
        let Some(host) = called(stage) else { return false };
        let lease = self.scenario.hosts[host].config.signalling.lease;
        let towards = towards.and_then(called);
        // If a clock was moved by less than its error, lateness is reported that did not happen.
        let misread = |host: &usize| {
            let until = self.hosts[*host].clock_odd_until;
            until > SimTime(0) && self.now <= until + lease + REPORTED_WITHIN
        };
        if [Some(host), towards].iter().flatten().any(misread) {
            return true;
        }
        self.touches.iter().any(|touch| touch.disturbs(host, towards, lease, self.now))
    }

    /// Handles a host's report that a stage was late.
    pub(super) fn check_reported_late(&mut self, host: usize, stage: &api::LateStage) {
        let frames = !self.scenario.faults.is_none();
        if self.broken.is_none() && !frames && !self.was_disturbed(&stage.host, stage.towards.as_deref()) {
            self.violate(&format!("host {host} reports a late stage where nothing is broken: {stage}"));
        }
    }

    /// Handles a report to an end about a stage that breaks its promise.
    pub(super) fn check_reported_stages(
        &mut self,
        host: usize,
        channel: Option<ChannelId>,
        stage: &api::BrokenStage,
    ) {
        let known = channel.and_then(|channel| self.handles.get(&(host, channel)).copied());
        let now = self.now;
        let frames = !self.scenario.faults.is_none();
        if self.broken.is_none() && !frames && !self.was_disturbed(&stage.host, stage.towards.as_deref()) {
            self.violate(&format!(
                "host {host} gets a report of a broken stage where nothing is broken: {stage}"
            ));
        }
        let Some(broken) = &mut self.broken else { return };
        let is_right = broken.name.as_ref() == Some(&(stage.host.clone(), stage.towards.clone()));
        if is_right {
            broken.named.extend(known.map(|(number, at_sink)| (number, at_sink, now)));
        } else if now < broken.until {
            broken.misnamed = true;
            self.journal.explain(|| format!("misnamed: {stage}"));
        }
    }

    /// Compares the report about a delivered message with the truth; reports by clocks that faults have
    /// touched are not compared.
    pub(super) fn compare_reported(
        &mut self,
        host: usize,
        number: usize,
        info: &punctual_proto::memory::MessageInfo,
        due: SimTime,
    ) {
        let Some(grant) = &self.channels[number].grant else { return };
        let odd = |host: usize| self.hosts[host].clock_odd_until >= self.now;
        let on_way = grant.route.iter().filter_map(|node| crate::scenario::host_of(*node));
        if on_way.into_iter().any(odd) {
            return;
        }
        let deadline = self.channels[number].plan.contract.deadline;
        let counts = &mut self.outcome.reported;
        counts.compared += 1;
        match timeliness::check(info, deadline, due, self.now, &self.hosts[host].clock) {
            Ok(ReportedTimeliness { is_late, reports, reports_surely, unmeasured }) => {
                counts.unmeasured += u64::from(unmeasured);
                counts.late += u64::from(is_late);
                counts.late_reported += u64::from(is_late && reports);
                counts.surely_late += u64::from(reports_surely);
                let now = self.now;
                if let Some(broken) = self.broken.as_mut().filter(|broken| is_late && now < broken.until) {
                    broken.note_late(now, number);
                }
            }
            Err(wrong) => {
                let what = format!("{}: {wrong}", self.describe(number));
                self.violate(&what);
            }
        }
    }

    /// At the end of a run: checks that the broken stage was reported.
    pub(super) fn check_named(&mut self) {
        let Some(BrokenStage { name, until, late, named, misnamed, .. }) = self.broken.take() else { return };
        self.outcome.reported.misnamed += u64::from(misnamed);
        let Some((at, number)) = late.filter(|_| name.is_some()) else { return };
        let in_time = |at_sink: bool| {
            named
                .iter()
                .any(|(of, sink, when)| *of == number && *sink == at_sink && *when <= at + NAMED_WITHIN)
        };
        // There are no reports about closed channels.
        let was_open = at + NAMED_WITHIN < until
            && self
                .channels
                .get(number)
                .is_some_and(|channel| channel.ended_at.is_none_or(|(ended, _)| ended > at + NAMED_WITHIN));
        if was_open {
            let is_named = in_time(false) && in_time(true);
            self.outcome.reported.breaches += 1;
            self.outcome.reported.named += u64::from(is_named);
            if !is_named {
                self.journal.explain(|| {
                    format!("{name:?} is not named: channel {number}, late at {at:?}, told {named:?}")
                });
            }
        }
    }

    /// Handles the end of a channel, at one of its ends.
    pub(super) fn note_end(&mut self, number: usize, reason: CloseReason) {
        let now = self.now;
        self.channels[number].ended_at.get_or_insert((now, reason));
    }
}
