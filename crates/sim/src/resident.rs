//! Memory of a run over time. Channels are opened and closed for days; neither nodes nor checkers may keep
//! state of them.

use punctual_analysis::Nanos;

/// Reads the number of bytes in use: of the process, or as counted by a test. The simulator itself does not
/// query the system.
pub type Scales = fn() -> u64;

/// Readings of a long run.
pub const READINGS: u64 = 24;
/// Largest growth from the second quarter of them to the last, in percent: the number of open channels varies
/// randomly.
const GROWTH_PERCENT_MAX: u64 = 5;

/// Memory in use at one time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    /// Virtual time since the run began.
    pub at: Nanos,
    /// Bytes.
    pub bytes: u64,
}

/// Resident memory of this process; 0 if the system does not report it. Without its code, which becomes
/// resident when it runs for the first time.
pub fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    let kib = line.and_then(|rest| rest.split_whitespace().next()).and_then(|word| word.parse::<u64>().ok());
    kib.unwrap_or(0) * 1_024
}

/// The means of the second quarter of a run's readings, when all state has been allocated once, and of the
/// last one. `None` if there are too few of them.
pub fn before_and_after(readings: &[Reading]) -> Option<[Reading; 2]> {
    let quarter = readings.len() / 4;
    let mean = |readings: &[Reading]| {
        let bytes = readings.iter().map(|reading| reading.bytes).sum::<u64>();
        Reading { at: readings[0].at, bytes: bytes / quarter as u64 }
    };
    (quarter > 0).then(|| [&readings[quarter..2 * quarter], &readings[readings.len() - quarter..]].map(mean))
}

/// Describes a growth in the readings of a run.
pub fn growth(readings: &[Reading]) -> Option<String> {
    let [before, after] = before_and_after(readings)?;
    (after.bytes > before.bytes + before.bytes * GROWTH_PERCENT_MAX / 100).then(|| {
        format!(
            "memory grows: {} B in use in the quarter from {} on, {} B in that from {} on",
            before.bytes, before.at, after.bytes, after.at
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn readings(bytes: fn(u64) -> u64) -> Vec<Reading> {
        (1..=READINGS)
            .map(|hour| Reading { at: Nanos::from_secs(hour * 3_600), bytes: bytes(hour) })
            .collect()
    }

    #[test]
    fn what_grows_all_the_time_is_seen_and_what_has_grown_is_not() {
        let wrong = |bytes| growth(&readings(bytes));
        assert_eq!(wrong(|_| 1_000_000), None);
        assert_eq!(wrong(|hour| if hour < 6 { 1_000 } else { 1_000_000 + hour % 5 * 10_000 }), None);
        let found = wrong(|hour| 1_000_000 + hour * 10_000).expect("a leak");
        assert!(found.contains("1095000 B") && found.contains("1215000 B"), "{found}");
        assert_eq!(growth(&readings(|hour| hour)[..3]), None, "too few to tell");
    }

    #[test]
    fn this_process_is_in_memory() {
        assert!(resident_bytes() > 100_000, "{}", resident_bytes());
    }
}
