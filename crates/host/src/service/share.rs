//! Limits each user's share of the processor's time for requests.
//!
//! Each user has a bucket of time. The time of a request is taken out when the request is done, so one
//! request may overdraw the bucket by its own time. A user that has overdrawn waits until the bucket is
//! positive again. Root and the daemon's own user are exempt.

use std::collections::HashMap;

use punctual_analysis::{Instant, Nanos, Ppm};
use punctual_proto::api::UserId;
use punctual_trial::{Defence, holds};

use super::quota::is_privileged;

/// How much time a user who has made no requests for long may take at once for requests.
pub(super) const REQUESTS_DEPTH: Nanos = Nanos::from_millis(100);
/// How much time a user who has not connected for long may take at once for connections: how they begin, how
/// they are refused and how they end.
pub(super) const CONNECTIONS_DEPTH: Nanos = Nanos::from_millis(10);
/// Number of buckets at which full ones are dropped.
const BUCKETS: usize = 1_024;

/// The bucket of one user, as it was at a time.
#[derive(Clone, Copy, Debug)]
struct Bucket {
    left_ns: i64,
    at: Instant,
}

/// The buckets of all users. A missing bucket is full.
#[derive(Debug)]
pub(super) struct Shares {
    share: Ppm,
    depth_ns: i64,
    buckets: HashMap<UserId, Bucket>,
}

impl Shares {
    /// Buckets of `depth` that fill up with `share` of the time.
    pub(super) fn new(share: Ppm, depth: Nanos) -> Self {
        let depth_ns = i64::try_from(depth.0).unwrap_or(i64::MAX);
        Self { share, depth_ns, buckets: HashMap::new() }
    }

    fn binds(&self, user: UserId) -> bool {
        self.share < Ppm(1_000_000) && !is_privileged(user) && holds(Defence::RequestShare)
    }

    fn left_ns(&self, bucket: &Bucket, now: Instant) -> i64 {
        let filled = i128::from(now.since(bucket.at).0) * i128::from(self.share.0) / 1_000_000;
        bucket.left_ns.saturating_add(i64::try_from(filled).unwrap_or(i64::MAX)).min(self.depth_ns)
    }

    /// Requests of `user` have taken `spent`.
    pub(super) fn charge(&mut self, user: UserId, spent: Nanos, now: Instant) {
        if !self.binds(user) || spent == Nanos::ZERO {
            return;
        }
        if self.buckets.len() >= BUCKETS && !self.buckets.contains_key(&user) {
            for user in self.full(now) {
                self.buckets.remove(&user);
            }
        }
        let before = self.buckets.get(&user).map_or(self.depth_ns, |bucket| self.left_ns(bucket, now));
        let spent = i64::try_from(spent.0).unwrap_or(i64::MAX);
        self.buckets.insert(user, Bucket { left_ns: before.saturating_sub(spent), at: now });
    }

    fn full(&self, now: Instant) -> Vec<UserId> {
        let full = self.buckets.iter().filter(|(_, bucket)| self.left_ns(bucket, now) >= self.depth_ns);
        full.map(|(user, _)| *user).collect()
    }

    /// How long `user` is not to be served; `None`: it is now.
    pub(super) fn wait(&self, user: UserId, now: Instant) -> Option<Nanos> {
        let missing = -self.left_ns(self.buckets.get(&user)?, now);
        if missing < 0 || !self.binds(user) {
            return None;
        }
        let share = i128::from(self.share.0).max(1);
        let wait = (i128::from(missing) + 1) * 1_000_000 / share + 1;
        Some(Nanos(u64::try_from(wait).unwrap_or(u64::MAX)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANN: UserId = UserId(4_000_001);

    fn ms(ms: u64) -> Nanos {
        Nanos::from_millis(ms)
    }

    #[test]
    fn a_user_that_sends_requests_without_end_gets_its_share_and_delays_no_other() {
        let mut shares = Shares::new(Ppm(5_000), REQUESTS_DEPTH);
        let (mut now, mut spent) = (Instant::ZERO + ms(1), Nanos::ZERO);
        let end = now + Nanos::from_secs(100);
        while now < end {
            match shares.wait(ANN, now) {
                Some(wait) => now = now + wait,
                None => {
                    shares.charge(ANN, ms(7), now);
                    (now, spent) = (now + ms(7), spent + ms(7));
                }
            }
            assert_eq!(shares.wait(UserId(4_000_002), now), None, "another user");
        }
        // The bucket, the share of 100 s, and the overdraft of the last request.
        assert!((ms(590)..=ms(607)).contains(&spent), "{spent}");
        assert_eq!(shares.wait(ANN, now + Nanos::from_secs(40)), None);
    }

    #[test]
    fn root_is_exempt_and_without_a_bound_all_users_are() {
        let (mut shares, mut free) =
            (Shares::new(Ppm(5_000), REQUESTS_DEPTH), Shares::new(Ppm(1_000_000), REQUESTS_DEPTH));
        shares.charge(UserId(0), Nanos::from_secs(9), Instant(1));
        free.charge(ANN, Nanos::from_secs(9), Instant(1));
        assert_eq!((shares.wait(UserId(0), Instant(1)), free.wait(ANN, Instant(1))), (None, None));
    }

    #[test]
    fn full_buckets_are_removed() {
        let mut shares = Shares::new(Ppm(5_000), REQUESTS_DEPTH);
        for user in 0..10 * BUCKETS as u32 {
            shares.charge(UserId(4_000_000 + user), ms(1), Instant(u64::from(user) * 1_000_000));
        }
        assert!(shares.buckets.len() <= BUCKETS, "{}", shares.buckets.len());
    }
}
