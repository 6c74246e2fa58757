//! The events of a channel other than its messages.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use punctual_ipc::api::TcpEnd;
use punctual_ipc::ring::RingCloser;
use punctual_proto::api::{BrokenStage, CloseReason, Notice, Receipt};

use crate::connection::lock;

/// Maximum number of events that wait for an application. The node reports each kind once until the
/// application has read it.
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
    /// A stage on the way breaks its promise: nothing is guaranteed until it has recovered.
    Degraded(BrokenStage),
    /// The stage has kept its promise for a lease.
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
    /// Why it ended. `None` if the daemon is gone, or has given no reason.
    pub reason: Option<CloseReason>,
    /// At the source: how many messages the receiver got, as its host reported. `None` if there was no
    /// report.
    pub receipt: Option<Receipt>,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<ChannelEvent>,
    /// How the channel ended, if it has.
    closed: Option<Ending>,
    /// One for each of its rings.
    closers: Vec<RingCloser>,
    /// For a TCP connection: why it has ended, if it has.
    tcp_end: Option<TcpEnd>,
}

/// The events of one channel, filled by the reader thread.
#[derive(Default)]
pub(crate) struct ChannelEvents {
    state: Mutex<State>,
    /// An event was added, or the channel has ended.
    changed: Condvar,
}

/// Waits for the notices of a channel's application, on another thread than the channel's own.
/// [`Channel::events`](crate::Channel::events) does not return the notices that this returns. It ends when
/// the channel has ended or was dropped, and all notices were returned.
pub struct ChannelWatch {
    events: Arc<ChannelEvents>,
}

impl ChannelWatch {
    pub(crate) const fn of(events: Arc<ChannelEvents>) -> Self {
        Self { events }
    }
}

impl Iterator for ChannelWatch {
    type Item = ChannelEvent;

    fn next(&mut self) -> Option<ChannelEvent> {
        let quiet = |state: &mut State| state.waiting.is_empty() && state.closed.is_none();
        let waited = self.events.changed.wait_while(lock(&self.events.state), quiet);
        waited.unwrap_or_else(PoisonError::into_inner).waiting.pop_front()
    }
}

impl ChannelEvents {
    /// A TCP connection ended.
    pub(crate) fn end_tcp(&self, why: TcpEnd) {
        lock(&self.state).tcp_end = Some(why);
    }

    /// Why a TCP connection ended, if it has.
    pub(crate) fn tcp_end(&self) -> Option<TcpEnd> {
        lock(&self.state).tcp_end
    }

    pub(crate) fn notice(&self, notice: Notice) {
        let event = match notice {
            Notice::Policed => ChannelEvent::Policed,
            Notice::Late => ChannelEvent::Late,
            Notice::Overrun => ChannelEvent::Overrun,
            Notice::ProfileAtRisk => ChannelEvent::ProfileAtRisk,
        };
        self.add(event);
    }

    pub(crate) fn stage(&self, stage: BrokenStage, healed: bool) {
        let event = if healed { ChannelEvent::Healed(stage) } else { ChannelEvent::Degraded(stage) };
        self.add(event);
    }

    fn add(&self, event: ChannelEvent) {
        lock(&self.state).add(event);
        self.changed.notify_all();
    }

    /// The application has dropped the channel: from now on no program here gets its events.
    pub(crate) fn leave(&self) {
        lock(&self.state).closed.get_or_insert_default();
        self.changed.notify_all();
    }

    /// Records that the channel has ended, and wakes the threads that wait for its ring.
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
        for closer in &state.closers {
            closer.close();
        }
        self.changed.notify_all();
    }

    /// Sets what closes the ring. If the end came first, closes it at once.
    pub(crate) fn add_closer(&self, closer: RingCloser) {
        let mut state = lock(&self.state);
        if state.closed.is_some() {
            closer.close();
        }
        state.closers.push(closer);
    }

    /// Why it ended. The ring shows *that* the channel ended shortly before the daemon reports why: this
    /// waits for the report.
    pub(crate) fn reason(&self) -> Option<CloseReason> {
        self.ending(REASON_WITHIN).and_then(|ending| ending.reason)
    }

    /// How it ended; `None` if it has not `within` that time.
    pub(crate) fn ending(&self, within: Duration) -> Option<Ending> {
        let unknown = |state: &mut State| state.closed.is_none();
        let waited = self.changed.wait_timeout_while(lock(&self.state), within, unknown);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_watch_waits_for_events_and_ends_with_the_channel() {
        for leaves in [true, false] {
            let events = Arc::new(ChannelEvents::default());
            let watch = ChannelWatch::of(Arc::clone(&events));
            let watching = std::thread::spawn(move || watch.collect::<Vec<_>>());
            events.notice(Notice::Late);
            events.notice(Notice::Overrun);
            if leaves {
                events.leave();
            }
            events.close(Ending { reason: Some(CloseReason::Peer), receipt: None });
            let reported = watching.join().expect("no panic");
            let mut expected = vec![ChannelEvent::Late, ChannelEvent::Overrun];
            expected.extend((!leaves).then_some(ChannelEvent::PeerGone));
            assert_eq!(reported, expected);
        }
    }
}
