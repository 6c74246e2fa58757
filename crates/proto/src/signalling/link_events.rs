//! Events of a link: it came up or went down, or packets on it do not authenticate.
//!
//! Each is reported once as an event; the reader of the events logs them. Packets that do not authenticate
//! may be a flood; they are reported at once and then at most once in [`AGAIN`], with their number.

use punctual_analysis::{Instant, Nanos};

use super::Signalling;
use super::peer::{Change, Presence};
use crate::api::{Event, LinkChange};
use crate::ids::LinkId;
use crate::limiter::Limiter;

/// Shortest interval between reports of packets that do not authenticate.
const AGAIN: Nanos = Nanos::from_secs(60);

/// What was reported about one link.
#[derive(Clone, Copy, Debug)]
pub(super) struct LinkNews {
    /// Whether its neighbour is up.
    is_up: bool,
    /// Packets that did not authenticate, or were not from its neighbour to this node.
    unauthenticated: u64,
    failures: Limiter,
}

impl LinkNews {
    pub const NEW: Self = Self { is_up: false, unauthenticated: 0, failures: Limiter::new(1, AGAIN) };

    /// Packets that did not authenticate, or were not from the link's neighbour to this node.
    pub fn unauthenticated(&self) -> u64 {
        self.unauthenticated
    }

    /// Counts such a packet. Returns what to report of it, if it is time for a report.
    fn on_unauthenticated(&mut self, now: Instant) -> Option<LinkChange> {
        self.unauthenticated += 1;
        self.failures.pass(now)?;
        Some(LinkChange::Unauthenticated { packets: self.unauthenticated })
    }
}

impl Signalling {
    /// Reports a change of the link's state, if there is one; `change`: the state that the neighbour lost.
    pub(super) fn report_link(&mut self, link: LinkId, change: Option<Change>) {
        let index = usize::from(link.0);
        let (Some(news), Some(peer)) = (self.links.news.get_mut(index), self.links.peers.get(index)) else {
            return;
        };
        let is_up = peer.presence() == Presence::Alive;
        let was_up = core::mem::replace(&mut news.is_up, is_up);
        let change = match (was_up, is_up) {
            (false, true) => LinkChange::Up,
            (true, false) => LinkChange::Down,
            // Neither end timed out: the neighbour replies in another life.
            (true, true) if change.is_some() => LinkChange::Restarted,
            _ => return,
        };
        self.announcements.events.push_back(Event::Link { link, change });
    }

    /// Counts and reports a packet on a link that is not from the link's neighbour, or not for this node.
    pub(super) fn on_unauthenticated(&mut self, link: LinkId, now: Instant) {
        self.counters.unauthenticated += 1;
        let Some(news) = self.links.news.get_mut(usize::from(link.0)) else { return };
        if let Some(change) = news.on_unauthenticated(now) {
            self.announcements.events.push_back(Event::Link { link, change });
        }
    }
}
