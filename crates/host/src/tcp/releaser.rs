//! Releases what connections leave behind: their rings, once the processor has dropped its ends, and their ports.

use std::collections::HashMap;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use punctual_engine::tcp::EndedConnection;
use punctual_link::kernel::PortHold;

use super::segments::Keep;

/// A message for the thread that releases what connections leave behind, the *releaser*.
pub(super) enum Release {
    /// A connection begins, which keeps a ring and perhaps a port, by the number of its life.
    Begins(u64, Keep, Option<PortHold>),
    /// A connection was refused.
    NotBegun(u64),
    /// None waits to be accepted; the parts go to the next.
    Withdrawn(u64),
    /// A connection has no program any more; its port is still in use.
    Parts(EndedConnection),
    /// A connection is over.
    Over(u64, EndedConnection),
}

/// How often to check whether the processor has dropped its end of a ring.
const CHECK: Duration = Duration::from_millis(10);

/// Drops what connections leave behind, until all who may send some are gone.
pub(super) fn release_all(releases: &Receiver<Release>) {
    let mut living = HashMap::new();
    let mut leaving: Vec<(Keep, Option<PortHold>)> = Vec::new();
    loop {
        let release = if leaving.is_empty() {
            releases.recv().map_err(|_| RecvTimeoutError::Disconnected)
        } else {
            releases.recv_timeout(CHECK)
        };
        match release {
            Ok(Release::Begins(life, keep, hold)) => drop(living.insert(life, (keep, hold))),
            Ok(Release::NotBegun(life)) => leaving.extend(living.remove(&life)),
            Ok(Release::Withdrawn(life)) => drop(living.remove(&life)),
            Ok(Release::Parts(remains)) => drop(remains),
            Ok(Release::Over(life, remains)) => {
                // The port is free at once: the driver does not know its flow any more.
                leaving.extend(living.remove(&life).map(|(keep, _)| (keep, None)));
                drop(remains);
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        leaving.retain(|(keep, _)| !keep.is_alone());
    }
}
