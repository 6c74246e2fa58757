//! All reachable states of a stage, starting from an idle one: all release patterns, not a sample of them.
//!
//! An idle stage whose senders, best effort and kernel have rested may do all that any idle stage may, so one
//! busy period from there on contains the worst case. A state is skipped if another with the same work and at
//! least the same freedom was visited: each of its successors is a successor of that one, too.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use crate::stage::{Channel, Done, Freedom, Stage, State, Step, TICK_NS, Work};

/// The result of a search.
#[derive(Clone, Debug, Default)]
pub struct Found {
    /// The longest response of each channel, in ticks.
    pub worst: Vec<Option<i16>>,
    /// A message later than its bound, and the steps that lead there.
    pub late: Option<(Done, Vec<Step>)>,
    pub states: usize,
    /// True if no state was left out.
    pub complete: bool,
}

/// Visited states, by the work under way: the freest of each.
#[derive(Default)]
struct Seen {
    by_work: HashMap<Work, Vec<Freedom>, BuildHasherDefault<Mixed>>,
    states: usize,
}

impl Seen {
    /// Whether `state` is new; it is known from now on.
    fn add(&mut self, state: &State) -> bool {
        let known = self.by_work.entry(state.work).or_default();
        if known.iter().any(|freedom| freedom.covers(&state.freedom)) {
            return false;
        }
        known.retain(|freedom| !state.freedom.covers(freedom));
        known.push(state.freedom);
        self.states += 1;
        true
    }
}

/// A state to be visited, and its origin: the index of the previous state, and the step from there.
struct Open {
    state: State,
    way: usize,
}

/// Visits up to `states_max` states.
pub fn search(stage: &Stage, channels: &[Channel], states_max: usize) -> Found {
    let mut found = Found { worst: vec![None; channels.len()], complete: true, ..Found::default() };
    let idle = State::idle(stage, channels);
    let mut seen = Seen::default();
    seen.add(&idle);
    let mut ways: Vec<(usize, Step)> = vec![(0, Step::See)];
    let mut open = vec![Open { state: idle, way: 0 }];
    let (mut steps, mut done) = (Vec::new(), Vec::new());
    while let Some(Open { state, way }) = open.pop() {
        if seen.states >= states_max {
            found.complete = false;
            break;
        }
        state.steps(stage, channels, &mut steps);
        for &step in &steps {
            done.clear();
            let Ok(next) = state.after(step, stage, channels, &mut done) else {
                found.complete = false;
                continue;
            };
            if let Some(late) = judge(&mut found.worst, channels, &done, &next) {
                found.late = Some((late, way_to(&ways, way, step)));
                found.states = seen.states;
                return found;
            }
            if seen.add(&next) {
                ways.push((way, step));
                open.push(Open { state: next, way: ways.len() - 1 });
            }
        }
    }
    found.states = seen.states;
    found
}

/// Notes what is done; a message that is late.
fn judge(worst: &mut [Option<i16>], channels: &[Channel], done: &[Done], next: &State) -> Option<Done> {
    for one in done {
        worst[one.channel] = worst[one.channel].max(Some(one.response));
    }
    let late = |one: &&Done| i64::from(one.response) * TICK_NS > channels[one.channel].bound_ns;
    done.iter().find(late).copied().or_else(|| next.overdue(channels))
}

fn way_to(ways: &[(usize, Step)], mut way: usize, last: Step) -> Vec<Step> {
    let mut steps = vec![last];
    while way != 0 {
        let (before, step) = ways[way];
        steps.push(step);
        way = before;
    }
    steps.reverse();
    steps
}

/// A quick hash of small numbers.
#[derive(Default)]
struct Mixed(u64);

impl Hasher for Mixed {
    fn finish(&self) -> u64 {
        self.0 ^ (self.0 >> 29)
    }
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.write_u64(u64::from_le_bytes(word));
        }
    }
    fn write_u8(&mut self, n: u8) {
        self.write_u64(n.into());
    }
    fn write_i8(&mut self, n: i8) {
        self.write_u64(n as u64);
    }
    fn write_usize(&mut self, n: usize) {
        self.write_u64(n as u64);
    }
    fn write_u64(&mut self, n: u64) {
        self.0 = (self.0.rotate_left(23) ^ n).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}
