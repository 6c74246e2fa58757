//! Which lines about a device go into the log: one for each change, and no more than one a second, so that a loose plug
//! fills no log.

use std::time::{Duration, Instant};

/// Shortest time between two lines about one device.
const EVERY: Duration = Duration::from_secs(1);

/// What the log says about a device.
#[derive(Debug, Default)]
pub struct DeviceLog {
    told: Option<String>,
    at: Option<Instant>,
}

impl DeviceLog {
    /// Whether the log says something else than `trouble`.
    pub fn is_outdated(&self, trouble: Option<&str>) -> bool {
        self.told.as_deref() != trouble
    }

    /// Writes the line that is due at `now`, if one is.
    pub fn tell(&mut self, device: &str, trouble: Option<String>, now: Instant) {
        if !self.take(trouble.as_deref(), now) {
            return;
        }
        match &trouble {
            Some(trouble) => tracing::warn!(device, "{trouble}"),
            None => tracing::info!(device, "the interface is in order again"),
        }
        self.told = trouble;
    }

    /// Whether a line is due; if so, the next one must wait.
    fn take(&mut self, trouble: Option<&str>, now: Instant) -> bool {
        let may = self.at.is_none_or(|at| now.duration_since(at) >= EVERY);
        let is_due = self.is_outdated(trouble) && may;
        if is_due {
            self.at = Some(now);
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_for_each_change_and_one_a_second() {
        let (begin, ms) = (Instant::now(), Duration::from_millis);
        let mut log = DeviceLog::default();
        assert!(!log.take(None, begin), "all is well from the start");
        for (at, trouble, is_due) in [
            (0, Some("down"), true),
            (1, Some("down"), false),
            (999, None, false),
            (1_000, None, true),
            (1_999, Some("gone"), false),
            (5_000, Some("gone"), true),
            (9_000, Some("gone"), false),
        ] {
            let was_outdated = log.is_outdated(trouble);
            assert_eq!(log.take(trouble, begin + ms(at)), is_due, "{at} ms: {trouble:?}");
            if is_due {
                assert!(was_outdated);
                log.told = trouble.map(str::to_owned);
            }
            assert_eq!(log.is_outdated(trouble), !is_due && was_outdated);
        }
    }
}
