//! Numbers that an off-path attacker cannot guess: keyed hashes of a flow. The key is an argument; the caller
//! draws it once from the system's random source and never discloses it.

use core::hash::{Hash, Hasher};

use punctual_analysis::Instant;
use siphasher::sip::SipHasher24;

use crate::wire::Flow;

/// Purpose of a hash: the same flow gives unrelated numbers for each purpose.
#[derive(Clone, Copy, Hash)]
pub(crate) enum Use {
    InitialSequence,
    TimestampOffset,
    Port,
    PortTable,
    Cookie,
}

/// The secret key of a host's TCP: 128 random bits. Two hosts, or two boots, must have different ones.
#[derive(Clone)]
pub struct Secrets([u8; 16]);

impl core::fmt::Debug for Secrets {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Secrets(..)")
    }
}

impl Secrets {
    /// Secrets under `key`, which must come from a cryptographic random source.
    pub const fn new(key: [u8; 16]) -> Self {
        Self(key)
    }

    /// Keyed hash (SipHash-2-4, a pseudo-random function) of `what` for `purpose`.
    pub(crate) fn hash(&self, purpose: Use, what: impl Hash) -> u64 {
        let mut hasher = SipHasher24::new_with_key(&self.0);
        purpose.hash(&mut hasher);
        what.hash(&mut hasher);
        hasher.finish()
    }

    /// Initial sequence number of `flow`: M + F(flow, secret), M a clock of 4 us (RFC 6528 3).
    pub fn initial_sequence(&self, flow: Flow, now: Instant) -> u32 {
        let clock = (now.0 / 4_000) as u32;
        clock.wrapping_add(self.hash(Use::InitialSequence, flow) as u32)
    }

    /// Offset of the timestamp clock of `flow` (RFC 7323 5.4): peers cannot compare the clocks of two connections.
    pub(crate) fn timestamp_offset(&self, flow: Flow) -> u32 {
        self.hash(Use::TimestampOffset, flow) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flow(port: u16) -> Flow {
        Flow { local: ([10, 0, 0, 1], port).into(), remote: ([10, 0, 0, 2], 80).into() }
    }

    /// RFC 6528 3: the number of one flow grows by one each 4 us, so that an old segment is not mistaken for
    /// a new one.
    #[test]
    fn one_flow_sees_a_clock_of_four_microseconds() {
        let secrets = Secrets::new([7; 16]);
        let at = |us: u64| secrets.initial_sequence(flow(5000), Instant(us * 1000));
        assert_eq!(at(4).wrapping_sub(at(0)), 1);
        assert_eq!(at(4_000_000).wrapping_sub(at(0)), 1_000_000);
    }

    /// RFC 6528 1: numbers of other flows, or under another key, give no information about this one's.
    #[test]
    fn flows_and_keys_are_unrelated() {
        let (a, b) = (Secrets::new([7; 16]), Secrets::new([8; 16]));
        let now = Instant(0);
        let numbers = [
            a.initial_sequence(flow(5000), now),
            a.initial_sequence(flow(5001), now),
            b.initial_sequence(flow(5000), now),
            a.timestamp_offset(flow(5000)),
        ];
        for (i, x) in numbers.iter().enumerate() {
            assert!(numbers[i + 1..].iter().all(|y| x.abs_diff(*y) > 1_000), "{numbers:?}");
        }
    }
}
