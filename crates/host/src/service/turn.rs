//! What each user gets of one turn of the service.

use std::collections::HashMap;

use punctual_analysis::Nanos;
use punctual_proto::api::UserId;
use punctual_trial::{Defence, holds};

/// Requests taken from all programs of one user in a turn, those that hang up included.
const REQUESTS_MAX: u32 = 16;
/// Once they have taken so long, no more of them are. One that has begun is done: the longest makes the largest ring.
const TIME_MAX: Nanos = Nanos::from_millis(1);

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Turn(HashMap<UserId, (u32, Nanos)>);

impl Turn {
    /// Whether one more request of `user` is taken.
    pub(super) fn may(&self, user: UserId) -> bool {
        let has_turn = |(requests, took): &(u32, Nanos)| *requests < REQUESTS_MAX && *took < TIME_MAX;
        !holds(Defence::ServiceTurns) || self.0.get(&user).is_none_or(has_turn)
    }

    /// One was, and took so long.
    pub(super) fn count(&mut self, user: UserId, took: Nanos) {
        let (requests, sum) = self.0.entry(user).or_default();
        *requests += 1;
        *sum += took;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_gets_so_many_requests_and_so_much_time_and_others_theirs() {
        let (ann, bob, eve) = (UserId(1), UserId(2), UserId(3));
        let mut turn = Turn::default();
        for _ in 0..REQUESTS_MAX {
            assert!(turn.may(ann));
            turn.count(ann, Nanos::from_micros(10));
        }
        assert!(!turn.may(ann) && turn.may(bob));
        turn.count(bob, Nanos::from_micros(600));
        assert!(turn.may(bob));
        turn.count(bob, Nanos::from_millis(30));
        assert!(!turn.may(bob) && turn.may(eve));
    }
}
