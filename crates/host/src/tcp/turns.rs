//! Whose connections and listeners begin next. Each user has so many at a time with the thread that begins them. The others wait for
//! their turn, in order, so that a user who opens many delays others by a bounded number.

use std::collections::{HashMap, VecDeque};

use punctual_proto::api::UserId;
use punctual_proto::ids::ChannelId;

/// Jobs of a user that may be with the thread at a time.
const AT_ONCE: usize = 32;

/// What users want to begin. Bounded by their quotas of channels.
#[derive(Debug)]
pub(super) struct Turns<T>(HashMap<UserId, Turn<T>>);

/// A user who has a job with the thread; others have no entry.
#[derive(Debug)]
struct Turn<T> {
    with_thread: usize,
    waiting: VecDeque<(ChannelId, T)>,
}

impl<T> Default for Turns<T> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<T> Turns<T> {
    /// Returns the job if it is its turn. Otherwise it waits, and [`Self::next`] returns it later.
    pub fn enter(&mut self, user: UserId, channel: ChannelId, job: T) -> Option<T> {
        let turn = self.0.entry(user).or_insert_with(|| Turn { with_thread: 0, waiting: VecDeque::new() });
        if turn.with_thread < AT_ONCE {
            turn.with_thread += 1;
            return Some(job);
        }
        turn.waiting.push_back((channel, job));
        None
    }

    /// The thread is done with a job of this user: the one whose turn it is now.
    pub fn next(&mut self, user: UserId) -> Option<T> {
        let turn = self.0.get_mut(&user)?;
        if let Some((_, job)) = turn.waiting.pop_front() {
            return Some(job);
        }
        turn.with_thread -= 1;
        if turn.with_thread == 0 {
            self.0.remove(&user);
        }
        None
    }

    /// Takes a job back that waits; `None` if it is with the thread already.
    pub fn withdraw(&mut self, user: UserId, channel: ChannelId) -> Option<T> {
        let waiting = &mut self.0.get_mut(&user)?.waiting;
        let at = waiting.iter().position(|(of, _)| *of == channel)?;
        waiting.remove(at).map(|(_, job)| job)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANN: UserId = UserId(1);
    const BEN: UserId = UserId(2);

    #[test]
    fn a_users_jobs_wait_in_order_and_delay_no_other_user() {
        let mut turns = Turns::default();
        let mut enter = |user, job| turns.enter(user, ChannelId(job), job);
        assert!((0..32).all(|job| enter(ANN, job) == Some(job)));
        assert!((32..40).all(|job| enter(ANN, job).is_none()));
        assert_eq!(enter(BEN, 100), Some(100));
        assert_eq!(turns.next(BEN), None);
        assert_eq!(turns.withdraw(ANN, ChannelId(33)), Some(33));
        assert_eq!([turns.withdraw(ANN, ChannelId(33)), turns.withdraw(ANN, ChannelId(5))], [None, None]);
        let order: Vec<_> = std::iter::from_fn(|| turns.next(ANN)).collect();
        assert_eq!(order, [32, 34, 35, 36, 37, 38, 39]);
        // One is done without another that waits; 31 are with the thread.
        assert_eq!(
            [turns.enter(ANN, ChannelId(50), 50), turns.enter(ANN, ChannelId(51), 51)],
            [Some(50), None]
        );
        assert_eq!(turns.next(ANN), Some(51));
        assert!((0..32).all(|_| turns.next(ANN).is_none()));
        assert!(turns.0.is_empty(), "nothing is kept of users who open nothing");
    }
}
