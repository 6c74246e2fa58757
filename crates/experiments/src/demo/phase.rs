//! The phases of a run: which streams send in each, and when each system ran it.

use punctual::Nanos;
use serde::Serialize;

use super::scenario;
use crate::measure::Windows;
use crate::testbed::StreamSpec;
use crate::testbed::track::Slice;

/// How long after its slice an answer may still be sent: more than full queues there and back delay it.
pub const SETTLE: Nanos = Nanos::from_millis(400);

/// A part of the run with traffic of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    /// Every sender keeps its contract.
    ContractsKept,
    /// The second video sends three times what its contract allows.
    ContractBroken,
    /// Every sender keeps its contract, and one that was refused sends too. Only on systems that refuse none.
    ChannelTooMany,
}

impl Phase {
    /// The phases that all systems run.
    pub const COMPARED: [Self; 2] = [Self::ContractsKept, Self::ContractBroken];

    /// Which one a system's slice number `number` belongs to.
    pub const fn of_slice(number: usize) -> Self {
        if number < scenario::SLICES / 2 { Self::ContractsKept } else { Self::ContractBroken }
    }

    /// For tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::ContractsKept => "all keep their contracts",
            Self::ContractBroken => "second video sends threefold",
            Self::ChannelTooMany => "one channel too many",
        }
    }

    /// Whether a stream sends in it.
    pub fn sends(self, spec: &StreamSpec) -> bool {
        match spec.name {
            scenario::INTRUDER => self != Self::ContractsKept,
            scenario::EXTRA => self == Self::ChannelTooMany,
            _ => true,
        }
    }
}

/// When one system ran which phase.
#[derive(Clone, Debug, Default)]
pub struct Timetable {
    slices: Vec<(Phase, Slice)>,
}

/// A set of phases of a system.
#[derive(Clone, Debug, Default)]
pub struct Spans {
    /// When its sources ran.
    pub loaded: Windows,
    /// Messages sent in these windows count: answers may be sent a little later.
    pub judged: Windows,
}

impl Timetable {
    /// Adds a slice; slices of a system do not meet within [`SETTLE`].
    pub fn push(&mut self, phase: Phase, slice: Slice) {
        self.slices.push((phase, slice));
    }

    /// When it ran these phases.
    pub fn of(&self, phases: &[Phase]) -> Spans {
        let mut spans = Spans::default();
        for (_, slice) in self.slices.iter().filter(|(phase, _)| phases.contains(phase)) {
            spans.loaded.push(slice.from, slice.until);
            spans.judged.push(slice.from, slice.until + SETTLE);
        }
        spans
    }
}
