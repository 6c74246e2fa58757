//! The attempts of a run by their number. What is over for long is forgotten, once it was judged: a run of days would
//! remember thousands.

use std::collections::BTreeSet;
use std::ops::{Index, IndexMut};

use punctual_analysis::Nanos;

use super::World;
use super::channel::{Channel, State};
use crate::time::SimTime;

/// What is over so long is forgotten: faults are shorter, and nothing is told of it any more.
const REMEMBERED: Nanos = Nanos::from_secs(20);

/// See the module.
pub(super) struct Attempts {
    /// None in place of what is forgotten.
    known: Vec<Option<Box<Channel>>>,
    /// The plans of those that were admitted.
    admitted: BTreeSet<usize>,
    /// When there may be something to forget.
    forgets_at: SimTime,
}

impl Attempts {
    pub(super) const fn new() -> Self {
        Self { known: Vec::new(), admitted: BTreeSet::new(), forgets_at: SimTime(0) }
    }

    /// How many were made.
    pub(super) fn count(&self) -> usize {
        self.known.len()
    }

    pub(super) fn push(&mut self, channel: Channel) {
        self.known.push(Some(Box::new(channel)));
    }

    /// One that may be forgotten.
    pub(super) fn get(&self, number: usize) -> Option<&Channel> {
        self.known.get(number)?.as_deref()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Channel> {
        self.known.iter().flatten().map(Box::as_ref)
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Channel> {
        self.known.iter_mut().flatten().map(Box::as_mut)
    }

    /// Numbers of those that are not forgotten.
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
    /// For one that is forgotten: whoever may still speak of it asks with [`Attempts::get`].
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
    /// Forgets what was over already when this was done last, [`REMEMBERED`] ago or longer; in the end all that is left is
    /// judged together.
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

    /// Whether an attempt has ended at both ends, and nobody holds anything of it.
    fn is_over(&self, number: usize) -> bool {
        let channel = &self.channels[number];
        let ended = matches!(channel.state, State::Closed | State::Refused)
            && channel.source_gone
            && (channel.sink_gone || channel.sink.is_none());
        ended
            && channel.held().is_empty()
            && !channel.path.is_some_and(|path| self.hosts.iter().any(|host| host.node.holds(path)))
    }

    /// Judges what an attempt still owes, and forgets it.
    fn forget(&mut self, number: usize) {
        let lost = self.channels[number].ledger.lost(self.now);
        self.report_lost(number, &lost);
        self.judge_soft(number);
        let Some(channel) = self.channels.known[number].take() else { return };
        for at_sink in [false, true] {
            let Some(id) = channel.handle(at_sink) else { continue };
            let key = (channel.host(at_sink), id);
            // In a host's next life the same handle is somebody else's.
            if self.handles.get(&key) == Some(&(number, at_sink)) {
                self.handles.remove(&key);
            }
        }
        if let Some(path) = channel.path {
            self.paths.remove(&path);
        }
    }
}
