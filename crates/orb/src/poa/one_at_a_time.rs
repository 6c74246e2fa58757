//! Calls of one adapter's servants, one after the other; a servant may call another one of its adapter.

use std::sync::{Condvar, PoisonError};
use std::thread::{self, ThreadId};

use crate::counted::Mutex;

#[derive(Debug, Default)]
struct Turn {
    owner: Option<ThreadId>,
    levels: usize,
}

/// Who may call.
#[derive(Debug, Default)]
pub(super) struct OneAtATime {
    turn: Mutex<Turn>,
    ended: Condvar,
}

impl OneAtATime {
    /// Waits for this thread's turn. It lasts until the answer is dropped.
    pub fn enter(&self) -> Entered<'_> {
        let me = thread::current().id();
        let turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let taken = |turn: &mut Turn| turn.owner.is_some_and(|owner| owner != me);
        let mut turn = self.ended.wait_while(turn, taken).unwrap_or_else(PoisonError::into_inner);
        turn.owner = Some(me);
        turn.levels += 1;
        Entered(self)
    }
}

/// A turn.
pub(super) struct Entered<'a>(&'a OneAtATime);

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        let mut turn = self.0.turn.lock().unwrap_or_else(PoisonError::into_inner);
        turn.levels -= 1;
        if turn.levels == 0 {
            turn.owner = None;
            self.0.ended.notify_one();
        }
    }
}
