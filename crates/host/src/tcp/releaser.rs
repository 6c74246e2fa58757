//! Releases what connections leave behind: their rings, once the processor has dropped its ends, and their ports.

use std::collections::HashMap;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use punctual_engine::tcp::EndedConnection;
use punctual_link::kernel::PortHold;

use super::segments::Keep;

/// A message for the thread that releases what connections leave behind, the *releaser*.
pub(super) enum Release {
    /// A connection was refused.
    NotBegun(u64),
    /// A connection has no program any more; its port is still in use.
    Parts(EndedConnection),
    /// A connection is over.
    Over(u64, EndedConnection),
}

/// What a connection keeps until it is over.
type Kept = (Keep, Option<PortHold>);

/// What connections keep, by the numbers of their lives. No real-time thread touches it.
#[derive(Clone, Default)]
pub(super) struct Living(Arc<Mutex<HashMap<u64, Kept>>>);

impl Living {
    /// A connection begins, which keeps a ring and perhaps a port.
    pub fn begins(&self, life: u64, keep: Keep, hold: Option<PortHold>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(life, (keep, hold));
    }

    /// The connection does not keep it: it has not begun, or is over.
    pub fn ends(&self, life: u64) -> Option<Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&life)
    }
}

/// How often to check whether the processor has dropped its end of a ring.
const CHECK: Duration = Duration::from_millis(10);

/// Drops what connections leave behind, until all who may send some are gone.
pub(super) fn release_all(releases: &Receiver<Release>, living: &Living) {
    let mut leaving: Vec<Kept> = Vec::new();
    loop {
        let release = if leaving.is_empty() {
            releases.recv().map_err(|_| RecvTimeoutError::Disconnected)
        } else {
            releases.recv_timeout(CHECK)
        };
        match release {
            Ok(Release::NotBegun(life)) => leaving.extend(living.ends(life)),
            Ok(Release::Parts(remains)) => drop(remains),
            Ok(Release::Over(life, remains)) => {
                // The port is free at once: the driver does not know its flow any more.
                leaving.extend(living.ends(life).map(|(keep, _)| (keep, None)));
                drop(remains);
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        leaving.retain(|(keep, _)| !keep.is_alone());
    }
}
