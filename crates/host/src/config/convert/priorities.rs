//! `[processor.priorities]`: the band and the table of co-scheduled threads.

use punctual_os::realtime::SchedulingClass;
use punctual_trial::{Defence, holds};
use toml::Spanned;

use super::super::file::{LevelActivation, LevelTable, PrioritiesTable, ProcessorTable};
use super::super::{ConfigError, Source};
use crate::priorities::{Level, Priorities};

/// `None` if co-scheduling is not allowed.
pub(super) fn of(
    table: &Spanned<ProcessorTable>,
    class: SchedulingClass,
    source: &Source<'_>,
) -> Result<Option<Priorities>, ConfigError> {
    let (at, table) = (table.span().start, table.get_ref());
    let priorities = read(&table.priorities, class)
        .map_err(|what| source.error(at, format!("[processor.priorities] {what}")))?;
    // Below a processor of the lowest priority there is no room.
    let allowed = table.co_schedule.unwrap_or(false) && priorities.high > 0;
    let priorities = match holds(Defence::BelowProcessor) {
        true => priorities,
        false => Priorities { low: 99, high: 99, levels: Vec::new() },
    };
    Ok(allowed.then_some(priorities))
}

fn read(table: &PrioritiesTable, class: SchedulingClass) -> Result<Priorities, String> {
    let default = Priorities::default();
    // Default priorities stay below the processor's.
    let most = match class {
        SchedulingClass::Fifo { priority } => priority - 1,
        SchedulingClass::Deadline { .. } | SchedulingClass::BestEffortHost => 97,
    };
    let high = table.high.unwrap_or(default.high.min(most));
    let low = table.low.unwrap_or(default.low.min(high));
    let levels: Vec<Level> = table.level.iter().map(level).collect();
    if low > high || (low == 0 && most > 0) {
        return Err(format!("low = {low}, high = {high}: give 1 or more, and low not above high"));
    }
    if high > most {
        return Err(format!("high = {high} is not below the processor's priority: give at most {most}"));
    }
    if let Some(level) = levels.iter().find(|level| !(low..=high).contains(&level.priority)) {
        return Err(format!("level priority = {}: give {low} to {high}", level.priority));
    }
    if !levels.windows(2).all(|pair| pair[0].period_max <= pair[1].period_max) {
        return Err("the levels are not in order: the shortest period_max first".into());
    }
    Ok(Priorities { low, high, levels })
}

fn level(table: &LevelTable) -> Level {
    Level {
        period_max: table.period_max.0,
        low_latency: table.activation.map(|activation| activation == LevelActivation::LowLatency),
        priority: table.priority,
    }
}
