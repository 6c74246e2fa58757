//! Handlers whose program is another process. A call is a message that wakes the program. The program answers each
//! call with one report of what it has done (RTU 5.1, 5.2; ADR 0051).
//!
//! The program is not trusted. A report that fits no call is counted and otherwise ignored. A program that does not
//! report is not called again. The program's time does not count as the processor's. It is measured from the call to
//! the report, but only if the program's thread runs at the priority that the host maps its class to.

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
    /// The handler's handle among channels.
    channel: ChannelId,
    calls: M::Inbox,
    reports: M::Outbox,
    /// The call for which no report has come yet.
    outstanding: Option<Outstanding>,
    number: u32,
    /// True if the program's time is compared with the declared time.
    timed: bool,
}

#[derive(Clone, Copy, Debug)]
struct Outstanding {
    number: u32,
    units: u32,
    /// Time of the call.
    since: Instant,
    /// Time since which there was work when the program was called.
    work_since: Instant,
}

impl<M: Memory> Remote<M> {
    pub const fn channel(&self) -> ChannelId {
        self.channel
    }

    /// True if the program has reported its last call.
    pub const fn is_back(&self) -> bool {
        self.outstanding.is_none()
    }

    /// Calls the program. Returns false if its ring has no room.
    pub fn call(&mut self, units: u32, work_since: Instant, now: Instant) -> bool {
        let Some(mut slot) = self.calls.reserve() else { return false };
        self.number = number_after(self.number);
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

/// Number of the call after `number`: they are counted from 1 on.
fn number_after(number: u32) -> u32 {
    number.wrapping_add(1).max(1)
}

/// What one report means.
enum Reported {
    /// There is new work.
    Ready,
    /// The outstanding call, of `given` units, is over.
    Done { given: u32, work_since: Instant, done: UpcallDone },
    /// The report fits no call.
    Unmatched,
}

impl<M: Memory> Remote<M> {
    /// Handles the next report.
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
    /// Registers a handler of a program in another process. Calls are messages in `calls` ([`UpcallRequest`]), reports
    /// are messages in `reports` ([`UpcallReport`]). Returns a handle. To have the reports read, call
    /// [`Node::handle_ring`] with it. [`Event::Registered`] follows. The processor is charged for waking the program,
    /// not for the declared time. If `timed`, the time from a call to its report is compared with the declared time.
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

    /// A handle for something that an engine has beside the node. No channel, flow or handler ever gets the same
    /// handle.
    pub fn reserve_handle(&mut self) -> ChannelId {
        self.signalling.next_channel_id()
    }

    /// The handler in another process that has this handle among channels, if there is one.
    pub fn upcall_of(&self, channel: ChannelId) -> Option<RtuId> {
        self.plane.rtus.senders.get(&channel).copied()
    }
}

impl<M: Memory> Plane<M> {
    /// Reads the reports of a handler's program. Returns false if `channel` is no handler's handle.
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
                    // Work that is left has waited since before the call, so it may run in the same period.
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

    /// Additional cost of a call of a handler in another process: the processor reads the report.
    pub(super) const fn remote_cost(&self) -> RtuCost {
        RtuCost { run: self.config.cpu.costs.dispatch(), unit: Nanos(1) }
    }

    /// The next admission decision about a handler in another process.
    pub(in crate::node) fn poll_registered(&mut self) -> Option<Event> {
        self.rtus.news.remote.pop_front()
    }
}

impl<M: Memory> Rtu<M> {
    /// Handles the report of a call. Returns the reason if the handler is demoted for it.
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Calls are counted from 1 on, and after 2^32 - 1 of them from 1 on again.
    #[test]
    fn no_call_has_number_0() {
        for (number, next) in [(0, 1), (1, 2), (u32::MAX - 1, u32::MAX), (u32::MAX, 1)] {
            assert_eq!(number_after(number), next);
        }
    }
}
