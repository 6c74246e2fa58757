//! Judges a run: the promises, the observations, and whether every guarantee held.

use punctual::{ChannelRefusal, Contract, Nanos, Ppm};
use serde::Serialize;

use super::by_hand::{self, Comparison, PROMISES, PhaseOutcome, Promise};
use super::phase::Phase;
pub use super::ran::CompletedRun;
use super::{describe, scenario};
use crate::excuse::WatcherRecords;
use crate::excuse::{Excuses, HoleSummary, summarise};
use crate::measure::{LatencySummary, StreamSummary};
use crate::report::Check;
use crate::testbed::{Finished, Privilege, System};

/// Least of min(offered, reserved) that a guaranteed channel must deliver.
const DELIVERED_RATIO_MIN: f64 = 0.98;

/// The conditions of the run.
pub struct Setting {
    /// The privileges of the process.
    pub privilege: Privilege,
    /// g.
    pub guaranteed_load: Ppm,
    /// The channel too many.
    pub refused: Refused,
    /// The platform's holes.
    pub testimony: WatcherRecords,
}

/// The channel that was requested and refused.
#[derive(Clone, Debug, Serialize)]
pub struct Refused {
    /// The request.
    pub wanted: String,
    /// Whether it was refused, as it must be.
    pub refused: bool,
    /// The stage that refused, and the reason.
    pub reason: String,
    /// What could be had instead.
    pub offer: Option<String>,
}

impl Refused {
    /// The refusal that the demo expects.
    pub fn new(contract: Contract, refusal: &ChannelRefusal) -> Self {
        Self {
            wanted: describe(&contract),
            refused: true,
            reason: refusal.to_string(),
            offer: refusal.offer.as_ref().map(describe),
        }
    }

    /// The channel was granted, which is a fault of admission.
    pub fn granted(contract: Contract) -> Self {
        Self { wanted: describe(&contract), refused: false, reason: "it was granted".into(), offer: None }
    }
}

/// Whether the run shows that the promises hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Every guarantee held.
    Held,
    /// One did not.
    Missed,
    /// Without real-time classes nothing is guaranteed; no promise was broken for another reason.
    Degraded,
    /// The platform took too much time away for a conclusion.
    Inconclusive,
}

impl Verdict {
    /// The exit status of the program.
    pub const fn exit_status(self) -> i32 {
        match self {
            Self::Held => 0,
            Self::Missed => 1,
            Self::Degraded | Self::Inconclusive => 3,
        }
    }
}

/// One stream in all systems.
#[derive(Clone, Debug, Serialize)]
pub struct StreamOutcome {
    /// Name of the stream.
    pub name: &'static str,
    /// Contract of the stream as text; `None` for best effort.
    pub contract: Option<String>,
    /// D in ms.
    pub promised_ms: Option<f64>,
    /// Through Punctual.
    pub punctual: StreamSummary,
    /// Through the kernel.
    pub kernel: StreamSummary,
    /// Through the kernel with priorities by hand.
    #[serde(rename = "kernel-priority")]
    pub kernel_priority: StreamSummary,
}

impl StreamOutcome {
    /// The figures of one system.
    pub const fn of(&self, system: System) -> &StreamSummary {
        match system {
            System::Punctual => &self.punctual,
            System::Kernel => &self.kernel,
            System::KernelPriority => &self.kernel_priority,
        }
    }
}

/// Everything about a run.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    /// The outcome in one word.
    pub verdict: Verdict,
    /// The outcome in one sentence.
    pub summary: String,
    /// How real the test setup was.
    pub privilege: Privilege,
    /// Platform holes.
    pub holes: HoleSummary,
    /// What had to hold.
    pub checks: Vec<Check>,
    /// Every stream, over the phases that all systems ran.
    pub streams: Vec<StreamOutcome>,
    /// Round trip of the control loop through each system: p50, p99, max in ms.
    pub round_trip: [LatencySummary; 3],
    /// The channel too many.
    pub refused: Refused,
    /// What of the bottleneck was used in steady state, headers counted, by each system; packets of messages that
    /// never became whole do not count.
    pub link_filled: [f64; 3],
    /// What each system promises.
    pub promises: [Promise; 3],
    /// The run's phases one by one.
    pub phases: Vec<PhaseOutcome>,
    /// Punctual against priorities by hand.
    pub comparison: Vec<Comparison>,
    /// How long each system was loaded in the phases that all ran.
    #[serde(skip)]
    pub loaded: [Nanos; 3],
}

impl Outcome {
    /// Judges the logs of all systems, Punctual's first.
    pub fn judge(setting: Setting, worlds: &[CompletedRun; 3]) -> Self {
        let Setting { privilege, guaranteed_load, refused, testimony } = setting;
        let excuses = Excuses::new(&testimony.holes, guaranteed_load);
        let spans = worlds.each_ref().map(|world| world.timetable.of(&Phase::COMPARED));
        let summaries = [0, 1, 2].map(|index| worlds[index].summaries(&spans[index], &excuses));
        let link_filled = [0, 1, 2].map(|index| worlds[index].link_filled(&summaries[index]));
        let round_trip = [0, 1, 2].map(|index| worlds[index].round_trip(&spans[index]));
        let streams = join(&worlds[0].finished, summaries);
        let guaranteed = || streams.iter().filter(|stream| stream.promised_ms.is_some());
        let samples = guaranteed().map(|stream| stream.punctual.judged()).sum();
        let excused = guaranteed().map(|stream| stream.punctual.excused).sum();
        let holes = summarise(&testimony, samples, excused);
        let checks = checks(&streams, &refused, &worlds[0].finished);
        let verdict = verdict(&checks, privilege, &holes);
        let summary = sentence(verdict, &streams, &checks, &holes);
        let phases = by_hand::phases(worlds, &excuses);
        Self {
            verdict,
            summary,
            privilege,
            holes,
            checks,
            streams,
            round_trip,
            refused,
            link_filled,
            promises: PROMISES,
            comparison: by_hand::compare(&phases),
            phases,
            loaded: spans.map(|spans| spans.loaded.total()),
        }
    }
}

/// The streams that all systems have, with their figures.
fn join(finished: &[Finished], [punctual, kernel, by_hand]: [Vec<StreamSummary>; 3]) -> Vec<StreamOutcome> {
    let figures = punctual.into_iter().zip(kernel).zip(by_hand);
    let joined =
        finished.iter().zip(figures).map(|(one, ((punctual, kernel), kernel_priority))| StreamOutcome {
            name: one.spec.name,
            contract: one.spec.contract.as_ref().map(describe),
            promised_ms: one.spec.deadline().map(Nanos::as_millis_f64),
            punctual,
            kernel,
            kernel_priority,
        });
    joined.collect()
}

fn checks(streams: &[StreamOutcome], refused: &Refused, finished: &[Finished]) -> Vec<Check> {
    let mut checks = Vec::new();
    for stream in streams.iter().filter(|stream| stream.promised_ms.is_some()) {
        let (name, figures) = (stream.name, &stream.punctual);
        let missed = figures.unexcused() as f64;
        let late = format!("{name}: messages late, lost or refused (conforming) outside platform holes");
        let damaged = format!("{name}: messages that were not what was sent");
        let rate = format!("{name}: delivered rate against min(offered, reserved)");
        checks.extend([
            Check::at_most(late, missed, 0.0),
            Check::at_most(damaged, figures.damaged as f64, 0.0),
            Check::at_least(rate, figures.delivered_ratio, DELIVERED_RATIO_MIN),
        ]);
    }
    let (whole, all) = film_frames(finished);
    checks.push(Check::at_least("video: frames of the film received byte for byte", whole, all));
    let refused = f64::from(u8::from(refused.refused));
    checks.push(Check::at_least("a channel too many is refused", refused, 1.0));
    checks
}

/// How many different frames of the film came whole, and how many it has.
fn film_frames(finished: &[Finished]) -> (f64, f64) {
    let Some(film) = finished.iter().find(|one| one.spec.name == scenario::FILM) else { return (0.0, 1.0) };
    let count = film.spec.content.cycle_len() as u64;
    let mut frames: Vec<u64> =
        film.received.iter().filter(|one| one.intact).map(|one| one.sequence % count).collect();
    frames.sort_unstable();
    frames.dedup();
    (frames.len() as f64, count as f64)
}

fn verdict(checks: &[Check], privilege: Privilege, holes: &HoleSummary) -> Verdict {
    let ok = checks.iter().all(|check| check.ok);
    match (privilege, holes.inconclusive, ok) {
        (Privilege::Root, true, _) => Verdict::Inconclusive,
        (Privilege::Root, false, true) => Verdict::Held,
        (Privilege::Root, false, false) => Verdict::Missed,
        _ => Verdict::Degraded,
    }
}

fn sentence(verdict: Verdict, streams: &[StreamOutcome], checks: &[Check], holes: &HoleSummary) -> String {
    let failed: Vec<&str> =
        checks.iter().filter(|check| !check.ok).map(|check| check.name.as_str()).collect();
    let missed =
        |system| -> u64 { streams.iter().map(|stream: &StreamOutcome| stream.of(system).misses).sum() };
    let (of_kernel, by_hand) = (missed(System::Kernel), missed(System::KernelPriority));
    match verdict {
        Verdict::Held => format!(
            "Held: every one of {} guaranteed messages kept its bound ({} excused by platform holes); plain kernel \
             sockets missed {of_kernel}, with priority by hand {by_hand}.",
            holes.samples, holes.excused
        ),
        Verdict::Missed => format!("Not held: {}.", failed.join("; ")),
        Verdict::Degraded if failed.is_empty() => {
            "Degraded: no bound was missed, but without real-time classes nothing is guaranteed.".into()
        }
        Verdict::Degraded => {
            format!("Degraded: without real-time classes nothing is guaranteed; {}.", failed.join("; "))
        }
        Verdict::Inconclusive => format!(
            "Inconclusive: the platform took {:.1} % of the time away and {} of {} samples are excused; run it again.",
            holes.share * 100.0,
            holes.excused,
            holes.samples
        ),
    }
}
