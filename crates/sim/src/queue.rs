//! The event queue: by time, then by order of scheduling. This order makes a run reproducible.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use crate::time::SimTime;

#[derive(Debug)]
struct Entry<E> {
    at: SimTime,
    sequence: u64,
    event: E,
}

impl<E> PartialEq for Entry<E> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}
impl<E> Eq for Entry<E> {}
impl<E> PartialOrd for Entry<E> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl<E> Ord for Entry<E> {
    /// Reversed: `BinaryHeap` returns its largest element, and the earliest event is needed.
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at, other.sequence).cmp(&(self.at, self.sequence))
    }
}

/// Events in order of their times; initially empty.
#[derive(Debug)]
pub struct Queue<E> {
    heap: BinaryHeap<Entry<E>>,
    scheduled: u64,
}

impl<E> Default for Queue<E> {
    fn default() -> Self {
        Self { heap: BinaryHeap::new(), scheduled: 0 }
    }
}

impl<E> Queue<E> {
    /// Schedules `event` for `at`, after all events that are already scheduled for then.
    pub fn schedule(&mut self, at: SimTime, event: E) {
        let sequence = self.scheduled;
        self.scheduled += 1;
        self.heap.push(Entry { at, sequence, event });
    }

    /// The next event, if it happens until `end`.
    pub fn next_until(&mut self, end: SimTime) -> Option<(SimTime, E)> {
        if self.heap.peek()?.at > end {
            return None;
        }
        self.heap.pop().map(|entry| (entry.at, entry.event))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn by_time_then_by_order() {
        let mut queue = Queue::default();
        for (at, event) in [(5, 'c'), (1, 'a'), (5, 'd'), (2, 'b'), (9, 'z')] {
            queue.schedule(SimTime(at), event);
        }
        let order: String =
            std::iter::from_fn(|| queue.next_until(SimTime(8)).map(|(_, event)| event)).collect();
        assert_eq!(order, "abcd");
        assert_eq!(queue.next_until(SimTime(9)), Some((SimTime(9), 'z')));
    }
}
