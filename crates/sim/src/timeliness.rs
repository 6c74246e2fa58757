//! Checks a sink's report of a message's lateness against true time, which no node can read.

use punctual_analysis::Nanos;
use punctual_proto::memory::{MessageInfo, Timeliness};

use crate::time::{HostClock, SimTime};

/// Clock readings are whole nanoseconds, and latencies are never below zero.
const ROUNDING: Nanos = Nanos(100);

/// The report about one message, and the truth.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReportedTimeliness {
    /// It was later than its deadline by more than the stated error of the clocks.
    pub is_late: bool,
    /// It is reported as late, or perhaps late.
    pub reports: bool,
    /// It is reported as certainly late.
    pub reports_surely: bool,
    /// There is no report, because no clock offset is known.
    pub unmeasured: bool,
}

/// Checks the report `info` of a message that was due at `due`, `deadline` after its logical arrival, and was
/// delivered `now` at a host with `clock`. `Err`: the untrue part of the report.
pub fn check(
    info: &MessageInfo,
    deadline: Nanos,
    due: SimTime,
    now: SimTime,
    clock: &HostClock,
) -> Result<ReportedTimeliness, String> {
    let Some(error) = info.clock_error else {
        return Ok(ReportedTimeliness { unmeasured: true, ..ReportedTimeliness::default() });
    };
    let logical = clock.read(due - deadline);
    let off = info.logical_arrival.0.abs_diff(logical.0);
    if off > error.0 + ROUNDING.0 {
        return Err(format!(
            "message {}: its logical arrival is reported off by {off} ns, stated are {error}",
            info.number
        ));
    }
    let late = now.since(due);
    let reported = ReportedTimeliness {
        is_late: late > error + ROUNDING,
        reports: matches!(info.timeliness, Timeliness::Late | Timeliness::PerhapsLate),
        reports_surely: info.timeliness == Timeliness::Late,
        unmeasured: false,
    };
    if reported.is_late && !reported.reports {
        return Err(format!("message {} is late by {late} and reported as in time (+-{error})", info.number));
    }
    if reported.reports_surely && late == Nanos::ZERO {
        return Err(format!("message {} is in time and reported as surely late (+-{error})", info.number));
    }
    if late > error * 2 + ROUNDING && !reported.reports_surely {
        return Err(format!(
            "message {} is late by {late} and not reported as surely late (+-{error})",
            info.number
        ));
    }
    Ok(reported)
}

#[cfg(test)]
mod tests {
    use super::*;
    use punctual_analysis::Instant;

    const CLOCK: HostClock = HostClock::new(1_000_000, 0);

    fn judge(late: u64, timeliness: Timeliness, off: u64) -> Result<ReportedTimeliness, String> {
        let (deadline, due) = (Nanos(10_000), SimTime(50_000));
        let info = MessageInfo {
            logical_arrival: Instant(1_040_000 + off),
            clock_error: Some(Nanos(1_000)),
            timeliness,
            ..MessageInfo::default()
        };
        check(&info, deadline, due, SimTime(50_000) + Nanos(late) - Nanos(1_000), &CLOCK)
    }

    #[test]
    fn false_reports_are_caught() {
        use Timeliness::{InTime, Late, PerhapsLate};
        assert!(judge(0, InTime, 1_000).is_ok() && judge(0, InTime, 1_200).is_err(), "a logical arrival");
        assert!(judge(2_000, InTime, 0).is_ok() && judge(2_200, InTime, 0).is_err(), "hidden");
        assert!(judge(1_000, Late, 0).is_err() && judge(1_001, Late, 0).is_ok(), "slander");
        assert!(judge(3_000, PerhapsLate, 0).is_ok() && judge(3_200, PerhapsLate, 0).is_err(), "timid");
    }
}
