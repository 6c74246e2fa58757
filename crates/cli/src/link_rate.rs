//! A link's rate, as text and as JSON: configured, measured, seen, and the conclusions.

use punctual::{Instant, MeasuredRate, RateStatus};
use serde::Serialize;

/// A link's rate as `profile --link` prints it.
#[derive(Debug, Serialize)]
pub struct LinkRate {
    /// The link's name.
    pub link: String,
    /// The link measures its rate itself.
    pub auto: bool,
    /// The rate that admission uses, without its error; of a link that measures it itself the measured one.
    pub rate_configured_bps: u64,
    /// Error of that rate, in parts per million.
    pub rate_configured_error_ppm: u32,
    /// The measured rate; absent if it was not measured.
    pub rate_measured_bps: Option<u64>,
    /// The most that this may be wrong by.
    pub error_bps: Option<u64>,
    /// The host could not fill the link: it drains so much at least.
    pub at_least: Option<bool>,
    /// The promises across the link require more than it drains.
    pub is_beyond: bool,
    /// The line for the configuration, if one is needed or useful.
    pub fix: Option<String>,
}

impl LinkRate {
    /// Takes it from the daemon's status.
    pub fn new(link: &str, rate: &RateStatus) -> Self {
        let measured = rate.measured;
        let is_beyond = is_beyond(rate);
        let is_below = measured.is_some_and(|measured| rate.rate.0 < measured.lower_bound().0 / 10 * 9);
        Self {
            link: link.into(),
            auto: rate.auto,
            rate_configured_bps: rate.rate.0,
            rate_configured_error_ppm: rate.error.0,
            rate_measured_bps: measured.map(|measured| measured.rate.0),
            error_bps: measured.map(|measured| measured.rate.0 - measured.lower_bound().0),
            at_least: measured.map(|measured| measured.at_least),
            is_beyond,
            fix: measured.filter(|_| !rate.auto && (is_beyond || is_below)).map(fix),
        }
    }
}

/// Whether admission counts on more than the link was measured to drain.
pub fn is_beyond(rate: &RateStatus) -> bool {
    let most =
        |measured: MeasuredRate| measured.rate.0.saturating_add(measured.rate.0 - measured.lower_bound().0);
    let printed = |measured: &MeasuredRate| !measured.at_least;
    rate.measured.filter(printed).is_some_and(|measured| rate.rate.less(rate.error).0 > most(measured))
}

/// The line that would be right.
pub fn fix(measured: MeasuredRate) -> String {
    let kbit = measured.lower_bound().0 / 1_000;
    match kbit {
        0..10_000 => format!("rate = \"{kbit}kbit/s\""),
        _ => format!("rate = \"{}.{}Mbit/s\"", kbit / 1_000, kbit % 1_000 / 100),
    }
}

fn mbit(bps: u64) -> String {
    format!("{:.1} Mbit/s", bps as f64 / 1e6)
}

/// For people.
pub fn text(rate: &LinkRate) -> String {
    let how = if rate.auto { "measures its rate itself" } else { "configured" };
    let measured = match (rate.rate_measured_bps, rate.error_bps) {
        (Some(bps), Some(error)) => {
            let least = if rate.at_least == Some(true) { "at least " } else { "" };
            format!("measured {least}{} +-{:.1}", mbit(bps), error as f64 / 1e6)
        }
        _ => "not measured".into(),
    };
    let in_use = match rate.auto {
        true => how.to_owned(),
        false => format!("{how} {}", mbit(rate.rate_configured_bps)),
    };
    let beyond = match rate.is_beyond {
        true => "\nit drains less than is promised across it: channels over it are late when it is full",
        false => "",
    };
    let fix = rate.fix.as_ref().map_or_else(String::new, |fix| {
        format!("\nfix: {fix} in [[link]] \"{}\" of the configuration, then restart punctuald", rate.link)
    });
    format!("link {}: {in_use}; {measured}{beyond}{fix}", rate.link)
}

/// A line of `status`: the rate and its source, `now` on the daemon's clock.
pub fn line(rate: &RateStatus, now: Instant) -> String {
    let ago =
        |measured: MeasuredRate| format!("{measured}, {} s ago", now.since(measured.at).0 / 1_000_000_000);
    let configured = match rate.auto {
        true => "auto".to_owned(),
        false => format!("configured {}", mbit(rate.rate.0)),
    };
    let measured = rate.measured.map_or_else(|| "not measured".into(), |it| format!("measured {}", ago(it)));
    let observed = rate.observed.map_or_else(String::new, |it| format!("; seen in use {}", ago(it)));
    let refused = match (rate.measured, rate.refused) {
        (None, Some(why)) => format!(" ({why})"),
        _ => String::new(),
    };
    let beyond = if is_beyond(rate) { "; DRAINS LESS THAN CONFIGURED" } else { "" };
    format!("{configured}; {measured}{refused}{observed}{beyond}")
}

#[cfg(test)]
mod tests {
    use punctual::{BitRate, Nanos, Ppm};

    use super::*;

    fn status(measured: Option<(u64, u32, bool)>) -> RateStatus {
        let of = |(rate, error, at_least)| MeasuredRate {
            rate: BitRate(rate),
            error: Ppm(error),
            at_least,
            at: Instant(0),
        };
        let (rate, error) = (BitRate(95_000_000), Ppm(10_000));
        RateStatus { rate, error, measured: measured.map(of), ..RateStatus::default() }
    }

    #[test]
    fn promises_beyond_the_measured_rate_are_shown_with_the_fix() {
        let now = Instant::ZERO + Nanos::from_secs(12);
        let slow = status(Some((20_320_000, 10_000, false)));
        assert_eq!(
            line(&slow, now),
            "configured 95.0 Mbit/s; measured 20.3 Mbit/s +-0.2, 12 s ago; DRAINS LESS THAN CONFIGURED"
        );
        let printed = text(&LinkRate::new("to-b", &slow));
        assert!(printed.contains("fix: rate = \"20.1Mbit/s\" in [[link]] \"to-b\""), "{printed}");
        // Within its error, at least so much, or never measured: no claim that it is too slow.
        for fine in [Some((94_500_000, 10_000, false)), Some((60_000_000, 10_000, true)), None] {
            assert!(!is_beyond(&status(fine)) && LinkRate::new("to-b", &status(fine)).fix.is_none());
        }
        assert_eq!(line(&status(None), now), "configured 95.0 Mbit/s; not measured");
        // A configured rate that is too low is worth a line, too.
        let fast = LinkRate::new("to-b", &status(Some((900_000_000, 10_000, false))));
        assert_eq!(fast.fix.as_deref(), Some("rate = \"891.0Mbit/s\""));
    }
}
