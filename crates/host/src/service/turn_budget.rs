//! How much of one turn of the service each user may take.

use std::collections::HashMap;

use punctual_analysis::Nanos;
use punctual_proto::api::UserId;
use punctual_trial::{Defence, holds};

/// Maximum number of requests from all programs of one user in a turn, those that hang up included.
const REQUESTS_MAX: u32 = 16;
/// Once a user's requests have taken this long in a turn, including sending, no more of them are taken. A
/// request that has begun is completed; the longest one makes the largest ring. Once sending alone has taken
/// this long, the other packets for the user's programs wait for the next turn.
pub(super) const TIME_MAX: Nanos = Nanos::from_millis(1);

/// The part of the turn that one user has used.
#[derive(Clone, Copy, Debug, Default)]
struct Used {
    requests: u32,
    time: Nanos,
    /// Time that sending to the user's programs took. It takes long where many wait at the other end of a
    /// connection.
    sending: Nanos,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct TurnBudget(HashMap<UserId, Used>);

impl TurnBudget {
    /// Whether one more request of `user` is taken.
    pub(super) fn may(&self, user: UserId) -> bool {
        let has_turn = |taken: &Used| taken.requests < REQUESTS_MAX && taken.time + taken.sending < TIME_MAX;
        !holds(Defence::ServiceTurns) || self.0.get(&user).is_none_or(has_turn)
    }

    /// Counts a request of `user` that took `took`, sending not included.
    pub(super) fn count(&mut self, user: UserId, took: Nanos) {
        let taken = self.0.entry(user).or_default();
        taken.requests += 1;
        taken.time += took;
    }

    /// Whether anything is sent to programs of `user`.
    pub(super) fn may_send(&self, user: UserId) -> bool {
        !holds(Defence::SendingTurns) || self.0.get(&user).is_none_or(|taken| taken.sending < TIME_MAX)
    }

    /// Counts that something was sent to programs of `user`, which took `took`.
    pub(super) fn count_sending(&mut self, user: UserId, took: Nanos) {
        self.0.entry(user).or_default().sending += took;
    }

    /// How long sending to programs of `user` took.
    pub(super) fn sending(&self, user: UserId) -> Nanos {
        self.0.get(&user).map_or(Nanos::ZERO, |taken| taken.sending)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_gets_so_many_requests_and_so_much_time_and_others_theirs() {
        let (ann, bob, eve) = (UserId(1), UserId(2), UserId(3));
        let mut turn = TurnBudget::default();
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

    #[test]
    fn sending_counts_in_the_turn_and_what_takes_long_is_sent_once() {
        let (ann, bob) = (UserId(1), UserId(2));
        let mut turn = TurnBudget::default();
        turn.count(ann, Nanos::from_millis(30));
        assert!(turn.may_send(ann), "its answers are sent however long they took to be made");
        turn.count_sending(bob, Nanos::from_micros(400));
        turn.count(bob, Nanos::from_micros(500));
        assert!(turn.may(bob) && turn.may_send(bob));
        turn.count_sending(bob, Nanos::from_micros(700));
        assert!(!turn.may(bob) && !turn.may_send(bob) && turn.may_send(ann));
        assert_eq!(turn.sending(bob), Nanos::from_micros(1_100));
    }
}
