//! The attempts of a run by their number. Attempts that ended long ago are dropped, once they were judged: a
//! run of days would store thousands.

use std::collections::BTreeSet;
use std::ops::{Index, IndexMut};

use punctual_analysis::Nanos;

use super::World;
use super::channel::{Channel, State};
use crate::time::SimTime;

/// Attempts that ended this long ago are dropped: faults are shorter, and no further report concerns them.
const REMEMBERED: Nanos = Nanos::from_secs(20);

/// The attempts of a run (see the module).
pub(super) struct Attempts {
    /// `None` in place of dropped attempts.
    known: Vec<Option<Box<Channel>>>,
    /// Plans of the admitted attempts.
    admitted: BTreeSet<usize>,
    /// Time at which an attempt may be dropped.
    forgets_at: SimTime,
}

impl Attempts {
    pub(super) const fn new() -> Self {
        Self { known: Vec::new(), admitted: BTreeSet::new(), forgets_at: SimTime(0) }
    }

    /// Number of attempts that were made.
    pub(super) fn count(&self) -> usize {
        self.known.len()
    }

    pub(super) fn push(&mut self, channel: Channel) {
        self.known.push(Some(Box::new(channel)));
    }

    /// An attempt; `None` if it was dropped.
    pub(super) fn get(&self, number: usize) -> Option<&Channel> {
        self.known.get(number)?.as_deref()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Channel> {
        self.known.iter().flatten().map(Box::as_ref)
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Channel> {
        self.known.iter_mut().flatten().map(Box::as_mut)
    }

    /// Numbers of the attempts that were not dropped.
    pub(super) fn numbers(&self) -> Vec<usize> {
        (0..self.known.len()).filter(|number| self.known[*number].is_some()).collect()
    }

    /// The plan of an attempt was admitted.
    pub(super) fn admit(&mut self, number: usize) {
        self.admitted.insert(self[number].origin);
    }

    /// Plans that were admitted, in their order.
    pub(super) fn admitted(&self) -> impl Iterator<Item = usize> {
        self.admitted.iter().copied()
    }
}

impl Index<usize> for Attempts {
    type Output = Channel;

    /// # Panics
    /// If the attempt was dropped: use [`Attempts::get`] if that is possible.
    fn index(&self, number: usize) -> &Channel {
        self.known[number].as_ref().expect("it is not over for long")
    }
}

impl IndexMut<usize> for Attempts {
    fn index_mut(&mut self, number: usize) -> &mut Channel {
        self.known[number].as_mut().expect("it is not over for long")
    }
}

impl World {
    /// Drops attempts that had already ended at the previous call, [`REMEMBERED`] ago or longer; at the end
    /// all remaining ones are judged together.
    pub(super) fn forget_attempts(&mut self) {
        if self.now < self.channels.forgets_at || self.now >= self.scenario.times.closes {
            return;
        }
        self.channels.forgets_at = self.now + REMEMBERED;
        for number in self.channels.numbers() {
            let is_over = self.is_over(number);
            if is_over && self.channels[number].was_over {
                self.forget(number);
            } else {
                self.channels[number].was_over = is_over;
            }
        }
    }

    /// Whether an attempt has ended at both ends, and all its state is released.
    fn is_over(&self, number: usize) -> bool {
        let channel = &self.channels[number];
        let ended = matches!(channel.state, State::Closed | State::Refused)
            && channel.source_gone
            && (channel.sink_gone || channel.sink.is_none());
        ended
            && channel.held().is_empty()
            && !channel.path.is_some_and(|path| self.hosts.iter().any(|host| host.node.holds(path)))
    }

    /// Judges the remaining obligations of an attempt, and drops it.
    fn forget(&mut self, number: usize) {
        let lost = self.channels[number].ledger.lost(self.now);
        self.report_lost(number, &lost);
        self.judge_soft(number);
        let Some(channel) = self.channels.known[number].take() else { return };
        for at_sink in [false, true] {
            let Some(id) = channel.handle(at_sink) else { continue };
            let key = (channel.host(at_sink), id);
            // In a host's next life the same handle belongs to another attempt.
            if self.handles.get(&key) == Some(&(number, at_sink)) {
                self.handles.remove(&key);
            }
        }
        if let Some(path) = channel.path {
            self.paths.remove(&path);
        }
    }
}
