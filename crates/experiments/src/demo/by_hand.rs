//! Compares Punctual with the best that a user can configure by hand, phase by phase: whichever is
//! better.

use serde::Serialize;

use super::outcome::CompletedRun;
use super::phase::Phase;
use super::scenario;
use crate::excuse::Excuses;
use crate::measure::{LatencySummary, StreamSummary};
use crate::testbed::System;

/// Figures that differ by less of the larger one are equal.
const EQUAL_WITHIN: f64 = 0.05;

/// The properties of a system for its users, in words.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Promise {
    /// Which system.
    pub world: System,
    /// The promise to a message that keeps its contract.
    pub message: &'static str,
    /// The effect on others if a sender breaks its contract.
    pub breach: &'static str,
    /// The result if one more channel is requested.
    pub admission: &'static str,
}

/// What each system promises.
pub const PROMISES: [Promise; 3] = [
    Promise {
        world: System::Punctual,
        message: "arrives within the bound of its channel",
        breach: "harms its own channel only",
        admission: "granted with a bound, or refused with the reason and an offer",
    },
    Promise { world: System::Kernel, message: "nothing", breach: "harms everybody", admission: "none" },
    Promise {
        world: System::KernelPriority,
        message: "goes before bulk; no bound on its arrival",
        breach: "harms everybody in its class, and bulk",
        admission: "none: it joins the class",
    },
];

/// A phase, in each system that ran it.
#[derive(Clone, Debug, Serialize)]
pub struct PhaseOutcome {
    /// Which.
    pub phase: Phase,
    /// The results, in the order of the systems.
    pub worlds: Vec<WorldOutcome>,
}

/// A phase in one system.
#[derive(Clone, Debug, Serialize)]
pub struct WorldOutcome {
    /// Which.
    pub world: System,
    /// The streams that sent.
    pub streams: Vec<NamedSummary>,
    /// Round trip of the control loop.
    pub round_trip: LatencySummary,
    /// What of the bottleneck was used, as in the whole run.
    pub link_filled: f64,
}

/// A stream of a phase.
#[derive(Clone, Debug, Serialize)]
pub struct NamedSummary {
    /// Name of the stream.
    pub name: &'static str,
    /// Whether it has a contract.
    pub guaranteed: bool,
    /// The results of its messages.
    pub figures: StreamSummary,
}

impl PhaseOutcome {
    /// One system's part.
    pub fn of(&self, world: System) -> Option<&WorldOutcome> {
        self.worlds.iter().find(|one| one.world == world)
    }
}

impl WorldOutcome {
    /// The figures of a stream, if it sent.
    pub fn stream(&self, name: &str) -> Option<&StreamSummary> {
        self.streams.iter().find(|one| one.name == name).map(|one| &one.figures)
    }

    /// Messages of channels that were granted and keep their contracts: how many were late or lost, in holes or not, of
    /// how many.
    pub fn missed(&self, phase: Phase) -> (u64, u64) {
        let keeps = |name: &str| {
            name != scenario::EXTRA && (name != scenario::INTRUDER || phase != Phase::ContractBroken)
        };
        let kept = self.streams.iter().filter(|one| one.guaranteed && keeps(one.name));
        kept.fold((0, 0), |(missed, all), one| (missed + one.figures.misses, all + one.figures.judged()))
    }
}

/// The better system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Better {
    /// Punctual.
    Punctual,
    /// The kernel with priorities.
    ByHand,
    /// Neither: the difference is not significant.
    Neither,
}

/// One figure of both.
#[derive(Clone, Debug, Serialize)]
pub struct Comparison {
    /// When.
    pub phase: Phase,
    /// Which figure. Latencies are from sending.
    pub figure: &'static str,
    /// Unit of the figure.
    pub unit: &'static str,
    /// Through Punctual.
    pub punctual: f64,
    /// The figure with priorities by hand.
    pub by_hand: f64,
    /// The better system.
    pub better: Better,
}

/// Every phase that was run.
pub fn phases(worlds: &[CompletedRun], excuses: &Excuses) -> Vec<PhaseOutcome> {
    let all = [Phase::ContractsKept, Phase::ContractBroken, Phase::ChannelTooMany];
    let outcome = |phase| {
        let ran = worlds.iter().filter_map(|world| in_world(world, phase, excuses));
        PhaseOutcome { phase, worlds: ran.collect() }
    };
    all.map(outcome).into()
}

fn in_world(world: &CompletedRun, phase: Phase, excuses: &Excuses) -> Option<WorldOutcome> {
    let spans = world.timetable.of(&[phase]);
    if spans.loaded.spans().is_empty() {
        return None;
    }
    let summaries = world.summaries(&spans, excuses);
    let link_filled = world.link_filled(&summaries);
    let named = world.finished.iter().zip(summaries).map(|(one, figures)| NamedSummary {
        name: one.spec.name,
        guaranteed: one.spec.contract.is_some(),
        figures,
    });
    Some(WorldOutcome {
        world: world.system,
        streams: named.filter(|one| one.figures.offered > 0).collect(),
        round_trip: world.round_trip(&spans),
        link_filled,
    })
}

/// A figure, and whether larger or smaller is better.
struct Figure {
    name: &'static str,
    unit: &'static str,
    more_is_better: bool,
    of: fn(&WorldOutcome, Phase) -> Option<f64>,
}

const fn latency(name: &'static str, of: fn(&WorldOutcome, Phase) -> Option<f64>) -> Figure {
    Figure { name, unit: "ms", more_is_better: false, of }
}

const FIGURES: [Figure; 7] = [
    latency("control p50", |world, _| Some(world.stream("control")?.from_sending.p50_ms)),
    latency("control p99", |world, _| Some(world.stream("control")?.from_sending.p99_ms)),
    latency("control max", |world, _| Some(world.stream("control")?.from_sending.max_ms)),
    latency("control there and back p99", |world, _| Some(world.round_trip.p99_ms)),
    latency("video p99", |world, _| Some(world.stream(scenario::FILM)?.from_sending.p99_ms)),
    Figure {
        name: "late or lost of those that keep their contracts",
        unit: "messages",
        more_is_better: false,
        of: |world, phase| Some(world.missed(phase).0 as f64),
    },
    Figure {
        name: "bulk",
        unit: "Mbit/s",
        more_is_better: true,
        of: |world, _| Some(world.stream(scenario::BULK)?.delivered_mbit_s),
    },
];

/// Punctual against priorities by hand, in every phase that both ran.
pub fn compare(phases: &[PhaseOutcome]) -> Vec<Comparison> {
    let mut found = Vec::new();
    for one in phases {
        let (Some(ours), Some(theirs)) = (one.of(System::Punctual), one.of(System::KernelPriority)) else {
            continue;
        };
        for figure in &FIGURES {
            let value = |world| (figure.of)(world, one.phase);
            let (Some(punctual), Some(by_hand)) = (value(ours), value(theirs)) else { continue };
            let better = better(punctual, by_hand, figure.more_is_better);
            let Figure { name, unit, .. } = *figure;
            found.push(Comparison { phase: one.phase, figure: name, unit, punctual, by_hand, better });
        }
    }
    found
}

fn better(punctual: f64, by_hand: f64, more_is_better: bool) -> Better {
    if (punctual - by_hand).abs() <= EQUAL_WITHIN * punctual.max(by_hand) {
        Better::Neither
    } else if (punctual > by_hand) == more_is_better {
        Better::Punctual
    } else {
        Better::ByHand
    }
}

/// The figures in which priorities by hand are better, in one sentence.
pub fn where_by_hand_is_better(comparisons: &[Comparison]) -> String {
    let of = |phase: Phase| {
        let better = |one: &&Comparison| one.phase == phase && one.better == Better::ByHand;
        let printed = comparisons.iter().filter(better).map(|one| {
            format!("{} {} against {} {}", one.figure, number(one.by_hand), number(one.punctual), one.unit)
        });
        let printed: Vec<String> = printed.collect();
        (!printed.is_empty()).then(|| format!("while {}: {}", clause(phase), printed.join("; ")))
    };
    let printed: Vec<String> = Phase::COMPARED.into_iter().filter_map(of).collect();
    if printed.is_empty() {
        return "Priority by hand was better nowhere in this run.".into();
    }
    format!("Priority by hand is better, {}.", printed.join("; and "))
}

/// The effect of one channel too many on a system that does not refuse it, in one sentence.
pub fn what_too_many_did(phases: &[PhaseOutcome]) -> Option<String> {
    let one = phases.iter().find(|one| one.phase == Phase::ChannelTooMany)?;
    let world = one.of(System::KernelPriority)?;
    let (missed, all) = world.missed(one.phase);
    let control = world.stream("control")?;
    Some(format!(
        "By hand the channel too many is not refused: beside it {missed} of {all} messages of the others, \
         which all keep their contracts, were late or lost (control p99 {} ms).",
        number(control.from_sending.p99_ms)
    ))
}

const fn clause(phase: Phase) -> &'static str {
    match phase {
        Phase::ContractsKept => "all keep their contracts",
        Phase::ContractBroken => "the second video sends threefold",
        Phase::ChannelTooMany => "one channel too many sends",
    }
}

/// For tables and sentences.
pub fn number(value: f64) -> String {
    if value.fract() == 0.0 { format!("{value:.0}") } else { format!("{value:.2}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_better_side_depends_on_the_figure_and_needs_a_difference() {
        assert_eq!(better(0.4, 0.2, false), Better::ByHand);
        assert_eq!(better(0.2, 0.4, false), Better::Punctual);
        assert_eq!(better(33.0, 31.0, true), Better::Punctual);
        assert_eq!(better(31.0, 33.0, true), Better::ByHand);
        assert_eq!(better(32.0, 33.0, true), Better::Neither, "within 5 %");
        assert_eq!(better(0.0, 0.0, false), Better::Neither);
        assert_eq!(better(0.0, 1.0, false), Better::Punctual, "one miss more is a difference");
    }

    #[test]
    fn the_report_shows_where_by_hand_is_better() {
        let one = |figure, better| Comparison {
            phase: Phase::ContractsKept,
            figure,
            unit: "ms",
            punctual: 0.4,
            by_hand: 0.2,
            better,
        };
        let printed = where_by_hand_is_better(&[
            one("control p50", Better::ByHand),
            one("video p99", Better::Punctual),
        ]);
        assert_eq!(
            printed,
            "Priority by hand is better, while all keep their contracts: control p50 0.20 against 0.40 ms."
        );
        assert!(where_by_hand_is_better(&[]).contains("nowhere"));
    }
}
