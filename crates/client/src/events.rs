//! What a channel's application is told beside its messages.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use punctual_ipc::ring::RingCloser;
use punctual_proto::node::api::{BrokenStage, CloseReason, Notice, Receipt};

use crate::connection::lock;

/// Most events that wait for an application; the node tells each kind once until it is read.
const EVENTS_MAX: usize = 32;
/// How long the reason of an end may lag behind the end.
const REASON_WITHIN: Duration = Duration::from_millis(250);

/// Something that happened to a channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChannelEvent {
    /// Messages broke the contract and were delayed, dropped or demoted.
    Policed,
    /// A message was surely delivered later than its deadline.
    Late,
    /// A stage on the way breaks its promise: nothing is guaranteed until it is healed.
    Degraded(BrokenStage),
    /// It has kept its promise for a lease.
    Healed(BrokenStage),
    /// The receiver did not keep up; messages were dropped.
    Overrun,
    /// The costs that admission assumed are exceeded: guarantees are at risk.
    ProfileAtRisk,
    /// A link or node on the way is down: the channel has ended.
    PathLost,
    /// The other end has closed, vanished, stopped or restarted: the channel has ended.
    PeerGone,
    /// The daemon is gone: the channel has ended.
    DaemonGone,
}

/// How a channel ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ending {
    /// Why; `None` where the daemon is gone, or has not said.
    pub reason: Option<CloseReason>,
    /// At the source: what the receiver has of it, by the word of its host; `None` where that was not to be learnt.
    pub receipt: Option<Receipt>,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<ChannelEvent>,
    /// How it ended, where it has.
    closed: Option<Ending>,
    closer: Option<RingCloser>,
}

/// The events of one channel, filled by the reader thread.
#[derive(Default)]
pub(crate) struct ChannelEvents {
    state: Mutex<State>,
    closed: Condvar,
}

impl ChannelEvents {
    pub(crate) fn notice(&self, notice: Notice) {
        let event = match notice {
            Notice::Policed => ChannelEvent::Policed,
            Notice::Late => ChannelEvent::Late,
            Notice::Overrun => ChannelEvent::Overrun,
            Notice::ProfileAtRisk => ChannelEvent::ProfileAtRisk,
        };
        lock(&self.state).add(event);
    }

    pub(crate) fn stage(&self, stage: BrokenStage, healed: bool) {
        let event = if healed { ChannelEvent::Healed(stage) } else { ChannelEvent::Degraded(stage) };
        lock(&self.state).add(event);
    }

    /// The channel has ended: whoever waits for its ring wakes.
    pub(crate) fn close(&self, ending: Ending) {
        use CloseReason as R;
        let mut state = lock(&self.state);
        if state.closed.is_some() {
            return;
        }
        state.closed = Some(ending);
        match ending.reason {
            Some(R::Local | R::Vanished | R::Stopped) => {}
            Some(R::Peer | R::PeerVanished | R::PeerStopped | R::PeerRestarted) => {
                state.add(ChannelEvent::PeerGone);
            }
            Some(R::PathLost | R::LeaseOver | R::FilterRefused | R::RuntimeRefused) => {
                state.add(ChannelEvent::PathLost);
            }
            None => state.add(ChannelEvent::DaemonGone),
        }
        if let Some(closer) = &state.closer {
            closer.close();
        }
        self.closed.notify_all();
    }

    /// What closes the ring; at once where the end came first.
    pub(crate) fn set_closer(&self, closer: RingCloser) {
        let mut state = lock(&self.state);
        if state.closed.is_some() {
            closer.close();
        }
        state.closer = Some(closer);
    }

    /// How it ended. The ring says *that* it ended a moment before the daemon says how: waits for that moment.
    pub(crate) fn reason(&self) -> Option<CloseReason> {
        self.ending(REASON_WITHIN).and_then(|ending| ending.reason)
    }

    /// How it ended; `None` where it has not `within` that time.
    pub(crate) fn ending(&self, within: Duration) -> Option<Ending> {
        let unknown = |state: &mut State| state.closed.is_none();
        let waited = self.closed.wait_timeout_while(lock(&self.state), within, unknown);
        waited.unwrap_or_else(PoisonError::into_inner).0.closed
    }

    pub(crate) fn drain(&self) -> Vec<ChannelEvent> {
        lock(&self.state).waiting.drain(..).collect()
    }
}

impl State {
    fn add(&mut self, event: ChannelEvent) {
        if self.waiting.len() == EVENTS_MAX {
            self.waiting.pop_front();
        }
        self.waiting.push_back(event);
    }
}
