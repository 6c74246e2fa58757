//! Reports of stages that break their promise, as known to one node: its own and others', each by its
//! witness.

use alloc::vec::Vec;

use punctual_analysis::{Instant, Nanos};

use super::Breaches;
use super::message::{StageReport, Witness};
use crate::api::{Breach, StageName};
use crate::ids::{Epoch, NodeId};
use crate::limits::STAGES_BROKEN_MAX;

/// A report and its time of reception.
#[derive(Clone, Copy, Debug)]
pub struct StoredReport {
    report: StageReport,
    received: Instant,
}

/// The breach of a stage before and after a report.
#[derive(Clone, Copy, Debug)]
pub struct Changed {
    pub before: Option<Breach>,
    pub after: Option<Breach>,
}

impl Changed {
    /// Whether the change must be reported: the stage breaks its promise, keeps it again, or breaks it for
    /// another reason.
    pub fn is_news(&self) -> bool {
        let kind = |breach: Option<Breach>| breach.map(|breach| breach.cause.kind());
        kind(self.before) != kind(self.after)
    }
    /// Whether the stage is broken as before, and only the report of the witness that knew the cause better
    /// has ended.
    pub fn only_loses_cause(&self) -> bool {
        self.before.zip(self.after).is_some_and(|(before, after)| after.cause.kind() < before.cause.kind())
    }
    /// The stage's breach as it is now or, if the stage has healed, as it was until now.
    pub fn known(&self) -> Option<Breach> {
        self.after.or(self.before)
    }
}

impl Breaches {
    /// The breach of a stage. The owner's report has priority, because the owner knows the cause better than
    /// the receiver.
    pub fn of(&self, stage: &StageName) -> Option<Breach> {
        let by = |witness| self.reports.get(&(*stage, witness))?.report.breach;
        by(Witness::Owner).or_else(|| by(Witness::Receiver))
    }

    /// All stages that are broken, each once.
    pub fn stages(&self) -> Vec<(StageName, Breach)> {
        let mut stages: Vec<_> = self.reports.keys().map(|(stage, _)| *stage).collect();
        stages.dedup();
        stages.into_iter().filter_map(|stage| Some((stage, self.of(&stage)?))).collect()
    }

    /// The next report of this node in `epoch`.
    pub fn next_report(
        &mut self,
        stage: StageName,
        witness: Witness,
        breach: Option<Breach>,
        epoch: Epoch,
        now: Instant,
    ) -> StageReport {
        self.number += 1;
        let report = StageReport { stage, witness, epoch, number: self.number, breach };
        // Inserted whatever the number of others' reports: this node must repeat its own reports, and its
        // stages are few.
        self.reports.insert((stage, witness), StoredReport { report, received: now });
        report
    }

    /// Stores a report if it is newer than the known one; returns whether it is.
    pub fn take(&mut self, report: StageReport, now: Instant) -> bool {
        let key = (report.stage, report.witness);
        let known = self.reports.get(&key).map(|known| known.report);
        let newer = known.is_none_or(|known| known.epoch != report.epoch || known.number < report.number);
        let room = known.is_some() || self.reports.len() < STAGES_BROKEN_MAX;
        if newer && room {
            self.reports.insert(key, StoredReport { report, received: now });
        }
        newer && room
    }

    /// Reports of `node`, this node, about broken stages.
    pub fn own(&self, node: NodeId) -> Vec<StageReport> {
        let reports = self.reports.values().map(|known| known.report);
        reports.filter(|report| report.reporter() == Some(node) && report.breach.is_some()).collect()
    }

    /// Removes others' reports that were not repeated in the `lease` before `now`.
    pub fn expired(&mut self, node: NodeId, lease: Nanos, now: Instant) -> Vec<StageReport> {
        let over = |known: &StoredReport| known.is_of_another(node) && known.received + lease <= now;
        let gone = self.reports.values().filter(|known| over(known)).map(|known| known.report).collect();
        self.reports.retain(|_, known| !over(known));
        gone
    }

    /// Time at which a report must be repeated, or expires.
    pub fn poll_timeout(&self, node: NodeId, lease: Nanos) -> Option<Instant> {
        let others = self.reports.values().filter(|known| known.is_of_another(node));
        others.map(|known| known.received + lease).chain(self.repeat_at).min()
    }
}

impl StoredReport {
    fn is_of_another(&self, node: NodeId) -> bool {
        self.report.reporter() != Some(node)
    }
}

#[cfg(test)]
mod tests {
    use punctual_analysis::BitRate;

    use super::*;
    use crate::api::Cause;
    use crate::breach::Lateness;

    const LEASE: Nanos = Nanos::from_secs(20);
    const HERE: NodeId = NodeId(9);

    fn at(seconds: u64) -> Instant {
        Instant::ZERO + Nanos::from_secs(seconds)
    }

    fn report(witness: Witness, number: u64, cause: Option<Cause>) -> StageReport {
        let stage = StageName { node: NodeId(1), towards: Some(NodeId(2)) };
        let breach = cause.map(|cause| Breach { late: Lateness::default(), cause });
        StageReport { stage, witness, epoch: Epoch(1), number, breach }
    }

    #[test]
    fn a_link_is_broken_while_one_end_reports_it_and_its_owner_has_the_cause() {
        use Witness::{Owner, Receiver};
        let (slow, longer) = (Cause::SlowProcessor, Cause::LongerTravel);
        let mut known = Breaches::default();
        let stage = report(Owner, 1, None).stage;
        let mut take = |report| {
            assert!(known.take(report, at(0)));
            known.of(&stage).map(|breach| breach.cause)
        };
        assert_eq!(take(report(Receiver, 1, Some(longer))), Some(longer));
        assert_eq!(take(report(Owner, 1, Some(slow))), Some(slow));
        assert_eq!(take(report(Owner, 2, None)), Some(longer));
        assert_eq!(take(report(Receiver, 2, None)), None);
        assert!(!known.take(report(Owner, 2, Some(slow)), at(0)), "an old one");
    }

    #[test]
    fn foreign_reports_are_bounded_and_leave_room_for_own_ones() {
        let slow = Some(Cause::SlowProcessor);
        let of = |node: u32| {
            let stage = StageName { node: NodeId(100 + node), towards: None };
            StageReport { stage, ..report(Witness::Owner, 1, slow) }
        };
        let mut known = Breaches::default();
        assert!((0..STAGES_BROKEN_MAX as u32).all(|node| known.take(of(node), at(0))));
        assert!(!known.take(of(STAGES_BROKEN_MAX as u32), at(0)), "one more");
        assert!(known.take(StageReport { number: 2, ..of(7) }, at(0)), "one that is known");
        let own = StageName { node: HERE, towards: None };
        let breach = of(0).breach;
        let sent = known.next_report(own, Witness::Owner, breach, Epoch(1), at(0));
        assert_eq!((known.own(HERE), known.of(&own)), (Vec::from([sent]), breach));
        assert_eq!(known.expired(HERE, LEASE, at(20)).len(), STAGES_BROKEN_MAX);
        assert!(known.take(of(STAGES_BROKEN_MAX as u32), at(21)));
        assert_eq!(known.own(HERE), [sent]);
    }

    #[test]
    fn a_cause_that_is_no_longer_known_is_no_news_of_the_stage() {
        let breach = |cause| Some(Breach { late: Lateness::default(), cause });
        let slow = Cause::SlowLink { drains: BitRate(1), configured: BitRate(2) };
        let only_loses_cause = |before, after| Changed { before, after }.only_loses_cause();
        assert!(only_loses_cause(breach(slow), breach(Cause::LongerTravel)));
        assert!(!only_loses_cause(breach(Cause::LongerTravel), breach(slow)));
        assert!(
            !only_loses_cause(breach(slow), None) && !only_loses_cause(None, breach(Cause::LongerTravel))
        );
    }

    #[test]
    fn reports_that_are_not_repeated_within_a_lease_expire() {
        let mut known = Breaches::default();
        known.take(report(Witness::Owner, 1, Some(Cause::LongerTravel)), at(0));
        known.take(report(Witness::Owner, 2, Some(Cause::LongerTravel)), at(7));
        known.take(report(Witness::Receiver, 1, Some(Cause::LongerTravel)), at(9));
        assert_eq!(known.poll_timeout(HERE, LEASE), Some(at(27)));
        assert!(known.expired(HERE, LEASE, at(26)).is_empty());
        assert_eq!(known.expired(NodeId(1), LEASE, at(27)), [], "its own word stands");
        assert_eq!(known.expired(HERE, LEASE, at(27)).len(), 1);
        assert_eq!(known.stages().len(), 1);
        assert_eq!(known.expired(HERE, LEASE, at(29)).len(), 1);
        assert!(known.stages().is_empty() && known.poll_timeout(HERE, LEASE).is_none());
    }

    /// A host numbers its reports from 1 on, whatever stages they are about: a later one is newer everywhere.
    #[test]
    fn own_reports_are_numbered_one_after_the_other() {
        let (mut own, mut elsewhere) = (Breaches::default(), Breaches::default());
        let slow = report(Witness::Owner, 1, Some(Cause::SlowProcessor)).breach;
        for (number, stage) in (1..10).zip([1, 1, 2, 1, 3, 3, 2, 2, 1]) {
            let stage = StageName { node: HERE, towards: Some(NodeId(stage)) };
            let breach = slow.filter(|_| number % 2 == 0);
            let sent = own.next_report(stage, Witness::Owner, breach, Epoch(4), at(number));
            let expected = StageReport { stage, witness: Witness::Owner, epoch: Epoch(4), number, breach };
            assert_eq!((sent, own.of(&stage)), (expected, breach));
            assert!(elsewhere.take(sent, at(number)) && elsewhere.of(&stage) == breach, "{number}");
            assert!(!elsewhere.take(sent, at(number)), "{number}: it comes again");
        }
    }

    /// A new epoch restarts the numbers: its first report is newer than any of the previous epoch.
    #[test]
    fn a_host_that_began_anew_counts_anew() {
        let mut known = Breaches::default();
        let slow = Some(Cause::SlowProcessor);
        assert!(known.take(report(Witness::Owner, 9, slow), at(0)));
        assert!(!known.take(report(Witness::Owner, 9, None), at(0)), "the same again");
        let anew = StageReport { epoch: Epoch(2), ..report(Witness::Owner, 1, None) };
        assert!(known.take(anew, at(1)) && known.of(&anew.stage).is_none());
    }
}
