//! Handlers of programs in other processes: their call on the processor is a message that wakes the program, and the program
//! reports what it has done, one to one (RTU 5.1, 5.2; ADR 0051).
//!
//! The program is hostile: a report that fits no call is counted and otherwise ignored, and a program that reports nothing is
//! not called again. Its own time is not the processor's: it is measured from the call to the report, and only where the
//! program's thread runs at the priority that the host maps its class to.

use punctual_analysis::{Instant, Nanos};

use super::conduct::Disturbance;
use super::{Rtu, Sends};
use crate::api::{
    Event, Misconduct, RtuCost, RtuEvent, RtuId, RtuRefusal, RtuTerms, UPCALL_REPORT_BYTES, UpcallDone,
    UpcallReport, UpcallRequest,
};
use crate::ids::ChannelId;
use crate::limits::UPCALL_REPORTS_MAX;
use crate::memory::{Inbox, Memory, MessageInfo, MessageRead, MessageWrite, Outbox};
use crate::node::Node;
use crate::node::plane::Plane;

/// The program's end of a handler.
pub(super) struct Remote<M: Memory> {
    /// Its handle among channels.
    channel: ChannelId,
    calls: M::Inbox,
    reports: M::Outbox,
    /// The call that was not reported yet.
    outstanding: Option<Outstanding>,
    number: u32,
    /// Whether its time is compared with what it declares.
    timed: bool,
}

#[derive(Clone, Copy, Debug)]
struct Outstanding {
    number: u32,
    units: u32,
    /// When the program was called.
    since: Instant,
    /// Time since which there was work.
    work_since: Instant,
}

impl<M: Memory> Remote<M> {
    pub const fn channel(&self) -> ChannelId {
        self.channel
    }

    /// Whether the program has reported its last call.
    pub const fn is_back(&self) -> bool {
        self.outstanding.is_none()
    }

    /// Calls the program; whether there was room for that.
    pub fn call(&mut self, units: u32, work_since: Instant, now: Instant) -> bool {
        let Some(mut slot) = self.calls.reserve() else { return false };
        self.number = self.number.wrapping_add(1).max(1);
        let request = UpcallRequest { number: self.number, units };
        let bytes = request.to_bytes();
        slot.copy_from(0, &bytes);
        let info = MessageInfo {
            number: self.number.into(),
            len: bytes.len() as u32,
            logical_arrival: now,
            deadline: now,
            delivered: now,
            unpromised: true,
            ..MessageInfo::default()
        };
        self.calls.publish(slot, info);
        self.outstanding = Some(Outstanding { number: self.number, units, since: now, work_since });
        true
    }

    /// The next report.
    fn report(&mut self, now: Instant) -> Option<Option<UpcallReport>> {
        let (message, _) = self.reports.take(now)?;
        let mut bytes = [0; UPCALL_REPORT_BYTES];
        if message.len() as usize != bytes.len() {
            return Some(None);
        }
        message.copy_to(0, &mut bytes);
        Some(UpcallReport::read(&bytes))
    }
}

/// What one report means.
enum Reported {
    /// There is new work.
    Ready,
    /// The outstanding call, of `given` units, is over.
    Done { given: u32, work_since: Instant, done: UpcallDone },
    /// It fits no call.
    Unmatched,
}

impl<M: Memory> Remote<M> {
    /// What the next report has brought.
    fn next_report(&mut self, now: Instant) -> Option<Reported> {
        let report = self.report(now)?;
        Some(self.match_report(report, now))
    }

    fn match_report(&mut self, report: Option<UpcallReport>, now: Instant) -> Reported {
        match (report, self.outstanding) {
            (Some(UpcallReport::Ready), _) => Reported::Ready,
            (Some(UpcallReport::Done { number, units, more }), Some(call)) if number == call.number => {
                self.outstanding = None;
                let took = now.since(call.since);
                let done = UpcallDone { units, more, took };
                Reported::Done { given: call.units, work_since: call.work_since, done }
            }
            _ => Reported::Unmatched,
        }
    }
}

impl<M: Memory> Node<M> {
    /// Registers a handler of a program in another process: a call is a message in `calls`, a report one in `reports`
    /// ([`UpcallRequest`], [`UpcallReport`]); [`Node::handle_ring`] with the handle that is returned has the reports read.
    /// [`Event::Registered`] follows. What the processor does for a call is to wake the program, whatever the program
    /// declares; `timed`: the program's time from a call to its report is compared with what it declares.
    ///
    /// # Errors
    /// As [`Node::register_handler`].
    pub fn register_upcall(
        &mut self,
        terms: RtuTerms,
        (calls, reports): (M::Inbox, M::Outbox),
        timed: bool,
        now: Instant,
    ) -> Result<(ChannelId, RtuId), RtuRefusal> {
        let channel = self.signalling.next_channel_id();
        let remote = Remote { channel, calls, reports, outstanding: None, number: 0, timed };
        let id = self.plane.register_rtu(terms, Sends::Remote(remote))?;
        self.settle_rtus(now);
        Ok((channel, id))
    }

    /// A handle among those of channels, for something that an engine has beside the node: no channel, flow or handler ever
    /// gets it.
    pub fn reserve_handle(&mut self) -> ChannelId {
        self.signalling.next_channel_id()
    }

    /// The handler of a program in another process that has this handle among channels.
    pub fn upcall_of(&self, channel: ChannelId) -> Option<RtuId> {
        self.plane.rtus.senders.get(&channel).copied()
    }
}

impl<M: Memory> Plane<M> {
    /// Reads what the program of a handler has reported; whether `channel` is a handler's.
    pub(in crate::node) fn read_reports(&mut self, channel: ChannelId, now: Instant) -> bool {
        let idle = self.rtus.idle;
        let Some((id, rtu)) = self.rtus.of_channel(channel) else { return false };
        let (burst, rho) = (self.config.cpu.burst(), self.config.cpu.interference.rho);
        let disturbance = Disturbance { burst, rho, idle };
        let mut demote = None;
        for _ in 0..UPCALL_REPORTS_MAX {
            let report = rtu.remote.as_mut().and_then(|remote| remote.next_report(now));
            let Some(report) = report else { break };
            match report {
                Reported::Ready => drop(rtu.since.get_or_insert(now)),
                Reported::Done { given, work_since, done } => {
                    // What is left has waited since before the call: it may run in the same period.
                    rtu.since = if done.more { Some(work_since) } else { rtu.since };
                    demote = rtu.judge_remote(given, done, disturbance, now).or(demote);
                }
                Reported::Unmatched => rtu.counters.reports_unmatched += 1,
            }
        }
        let is_news = demote.filter(|why| rtu.demote(id, *why, &self.config, &mut self.context.processor));
        rtu.arm(&mut self.context, now);
        self.rtus.news.own.extend(is_news.map(|why| RtuEvent::Demoted(id, why)));
        true
    }

    /// What a call of a handler in another process costs the processor, beside what any call does: its report is read.
    pub(super) const fn remote_cost(&self) -> RtuCost {
        RtuCost { run: self.config.cpu.costs.dispatch(), unit: Nanos(1) }
    }

    /// The next decision of admission about a handler of another process.
    pub(in crate::node) fn poll_registered(&mut self) -> Option<Event> {
        self.rtus.news.remote.pop_front()
    }
}

impl<M: Memory> Rtu<M> {
    /// A program has reported what it did in a call; what for it is demoted, if it is.
    fn judge_remote(
        &mut self,
        given: u32,
        done: UpcallDone,
        disturbance: Disturbance,
        now: Instant,
    ) -> Option<Misconduct> {
        let timed = self.remote.as_ref().is_some_and(|remote| remote.timed);
        let declared = self.terms.cost.of(done.units.clamp(1, given.max(1)));
        self.counters.took_max = self.counters.took_max.max(done.took);
        let took = if timed { done.took } else { Nanos::ZERO };
        let span = (Instant(now.0.saturating_sub(took.0)), now);
        let verdict = self.conduct.judge(&UpcallDone { took, ..done }, (given, declared), disturbance, span);
        self.count(verdict);
        verdict.demote
    }
}
