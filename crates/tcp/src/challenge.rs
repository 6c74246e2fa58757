//! The limit of our replies to segments that prove nothing (RFC 5961 7: an attacker must not make us send).

use punctual_analysis::{Instant, Nanos};

/// Replies in one span; the span is that of RFC 5961 7.
const ANSWERS: u8 = 10;
const SPAN: Nanos = Nanos::from_secs(5);

/// Counts the challenge ACKs of one connection, which an attacker cannot observe through another (CVE-2016-5696).
#[derive(Debug, Default)]
pub(crate) struct Challenges {
    since: Option<Instant>,
    sent: u8,
}

impl Challenges {
    /// Whether one more may be sent at `now`; if so, counts it.
    pub(crate) fn may_send(&mut self, now: Instant) -> bool {
        let is_over = self.since.is_none_or(|since| now >= since + SPAN);
        if is_over {
            *self = Self { since: Some(now), sent: 0 };
        }
        let may = self.sent < ANSWERS;
        self.sent += u8::from(may);
        may
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_in_five_seconds() {
        let mut challenges = Challenges::default();
        let sent = |challenges: &mut Challenges, at_ms: u64| {
            (0..50).filter(|_| challenges.may_send(Instant(at_ms * 1_000_000))).count()
        };
        assert_eq!(sent(&mut challenges, 0), 10);
        assert_eq!(sent(&mut challenges, 4_999), 0);
        assert_eq!(sent(&mut challenges, 5_000), 10);
    }
}
