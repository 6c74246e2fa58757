//! The relay's connections: how many run, and what became of those that ended.

use std::net::SocketAddr;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Instant;

use punctual::Nanos;
use serde::Serialize;

use crate::output::{Output, print_note};
use crate::relay::Carried;

/// A connection that ended, as it is printed.
#[derive(Serialize)]
pub(super) struct Ended {
    /// The peer on the network; `None` if no connection to it was made.
    pub peer: Option<SocketAddr>,
    pub program: SocketAddr,
    pub in_bytes: u64,
    pub out_bytes: u64,
    pub lasted_ns: u64,
    /// Both sides closed it, and the peer has acknowledged all bytes.
    pub acknowledged: bool,
    /// Why it ended, if both sides did not close it.
    pub error: Option<String>,
}

impl Ended {
    /// One that has carried nothing, and why.
    pub const fn without_bytes(peer: Option<SocketAddr>, program: SocketAddr, error: String) -> Self {
        let (in_bytes, out_bytes, lasted_ns) = (0, 0, 0);
        Self { peer, program, in_bytes, out_bytes, lasted_ns, acknowledged: false, error: Some(error) }
    }

    fn text(&self) -> String {
        let peer = self.peer.map_or_else(|| "-".into(), |peer| peer.to_string());
        let (lasted, program) = (Nanos(self.lasted_ns), self.program);
        let closed = if self.acknowledged {
            "both sides closed it"
        } else {
            "both sides closed it, and the peer has not acknowledged the last bytes yet"
        };
        let why = self.error.as_deref().unwrap_or(closed);
        format!("{peer} {program}: {} B in, {} B out, {lasted}: {why}", self.in_bytes, self.out_bytes)
    }
}

/// Connections that run, and those that ended.
#[derive(Default)]
struct Count {
    running: u32,
    ended: u64,
    /// It was said that no more may run, since fewer than half did.
    is_full_told: bool,
}

/// Counts connections, and prints a line for each that has ended.
pub(super) struct Tally {
    /// As many may run, and as many are to end.
    running_max: u32,
    ended_max: Option<u64>,
    count: Mutex<Count>,
    changed: Condvar,
    output: Output,
}

/// Time since the begin of a connection, in nanoseconds.
pub(super) fn lasted(begun: Instant) -> u64 {
    u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

/// A connection that has carried bytes, and has ended.
pub(super) fn ended(
    peer: Option<SocketAddr>,
    program: SocketAddr,
    begun: Instant,
    carried: Carried,
) -> Ended {
    let Carried { in_bytes, out_bytes, is_acknowledged: acknowledged, error } = carried;
    let error = error.map(|error| error.to_string());
    Ended { peer, program, in_bytes, out_bytes, lasted_ns: lasted(begun), acknowledged, error }
}

impl Tally {
    /// For at most `running_max` connections at a time, until `ended_max` have ended, if that is given.
    pub fn new(running_max: u32, ended_max: Option<u64>, output: Output) -> Self {
        Self { running_max, ended_max, count: Mutex::default(), changed: Condvar::new(), output }
    }

    /// Waits until one more connection may run; `false` when as many have ended as were asked for.
    pub fn admit(&self) -> bool {
        let Self { running_max, ended_max, .. } = *self;
        let mut count = self.count.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let begun = count.ended + u64::from(count.running);
            if ended_max.is_some_and(|most| count.ended >= most) {
                return false;
            }
            if count.running < running_max && ended_max.is_none_or(|most| begun < most) {
                count.running += 1;
                return true;
            }
            if count.running >= running_max && !count.is_full_told {
                count.is_full_told = true;
                print_note(&format!(
                    "relay: {running_max} connections are open, as many as --connections-max allows: further ones wait"
                ));
            }
            count = self.changed.wait(count).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Gives the place of [`Self::admit`] back: no connection came.
    pub fn withdraw(&self) {
        self.count.lock().unwrap_or_else(PoisonError::into_inner).running -= 1;
    }

    /// Prints and counts a connection that has ended.
    pub fn end(&self, ended: Ended) {
        // If standard output is closed, connections still run on.
        let _ = self.output.print(&ended, Ended::text);
        let mut count = self.count.lock().unwrap_or_else(PoisonError::into_inner);
        (count.running, count.ended) = (count.running - 1, count.ended + 1);
        count.is_full_told &= count.running >= self.running_max / 2;
        self.changed.notify_all();
    }
}
