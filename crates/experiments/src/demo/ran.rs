//! One system after the run: owns its logs, and evaluates any of its phases.

use super::phase::{Spans, Timetable};
use super::scenario;
use crate::excuse::Excuses;
use crate::measure::{Latencies, LatencySummary, Question, SendLog, Sent, StreamSummary};
use crate::testbed::{Finished, System};

/// A system that has run.
pub struct CompletedRun {
    /// Which.
    pub system: System,
    /// When it ran what.
    pub timetable: Timetable,
    /// The logs of its streams.
    pub finished: Vec<Finished>,
}

impl CompletedRun {
    /// The results of each stream within `spans`.
    pub fn summaries(&self, spans: &Spans, excuses: &Excuses) -> Vec<StreamSummary> {
        let steady = spans.loaded.after(scenario::WARM_UP);
        let summary = |one: &Finished| {
            let contract = one.spec.contract.as_ref();
            let (judged, loaded) = (&spans.judged, &spans.loaded);
            let question = Question { contract, excuses, judged, loaded, steady: &steady };
            StreamSummary::new(&one.sent, &one.received, &question)
        };
        self.finished.iter().map(summary).collect()
    }

    /// Time from sending a request to receiving its answer, for requests within `spans`.
    pub fn round_trip(&self, spans: &Spans) -> LatencySummary {
        let find = |name: &str| self.finished.iter().find(|one| one.spec.name == name);
        let mut latencies = Latencies::default();
        if let (Some(control), Some(answer)) = (find("control"), find("answer")) {
            let sent: &SendLog = &control.sent;
            for received in &answer.received {
                let request = sent.binary_search_by_key(&received.sequence, |one: &Sent| one.sequence);
                let request = request.ok().map(|index| sent[index].sent);
                if let Some(at) = request.filter(|at| spans.judged.index(*at).is_some()) {
                    latencies.record(received.delivered.since(at));
                }
            }
        }
        latencies.summary()
    }

    /// The share of the bottleneck that was delivered towards b, headers counted; `summaries` are of its streams.
    pub fn link_filled(&self, summaries: &[StreamSummary]) -> f64 {
        let towards_b = self.finished.iter().zip(summaries).filter(|(one, _)| one.spec.to == "b");
        let mbit_s: f64 = towards_b.map(|(_, summary)| summary.delivered_wire_mbit_s).sum();
        mbit_s * 1e6 / scenario::BOTTLENECK.0 as f64
    }
}
