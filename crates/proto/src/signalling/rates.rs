//! Messages between neighbours to measure a link (ADR 0030), and requests that wait for the link meanwhile.
//!
//! A link is *closed* while it is measured. A CREATE that would hold resources for a channel over it waits
//! unchanged, and continues when the link is open again: the filler packets have left by then. The wait is
//! bounded by the measurement's own times, and the number of waiting requests is bounded. Beyond that number,
//! and on a host that stops, they are refused.

use alloc::boxed::Box;
use alloc::collections::{BTreeSet, VecDeque};
use alloc::vec::Vec;

use punctual_analysis::{BitRate, Instant, Ppm};

use super::message::{Create, Message};
use super::rate_messages::RateWord;
use super::resources::Resources;
use super::{Attempt, Signalling};
use crate::api::{CloseReason, Event, OpenRequest, RefuseCause};
use crate::ids::{ChannelId, Cookie, LinkId, NodeId, PathId};
use crate::limits::RATE_WAITING_MAX;

/// A request that waits for a link.
#[derive(Debug)]
enum Waiting {
    /// A channel that starts here.
    Open(ChannelId, Box<(OpenRequest, Attempt)>),
    /// A CREATE that came over a link.
    Create(LinkId, Box<Create>),
}

/// Links that are being measured, and the requests that wait.
#[derive(Debug, Default)]
pub struct Closed {
    links: BTreeSet<LinkId>,
    waiting: VecDeque<(LinkId, Waiting)>,
    words: VecDeque<(LinkId, RateWord)>,
}

impl Closed {
    /// Number of waiting requests.
    pub fn len(&self) -> usize {
        self.waiting.len()
    }
}

impl Signalling {
    /// The next message of a neighbour about a measurement.
    pub fn poll_rate_word(&mut self) -> Option<(LinkId, RateWord)> {
        self.links.closed.words.pop_front()
    }
    pub(super) fn on_rate(&mut self, link: LinkId, word: RateWord) {
        self.links.closed.words.push_back((link, word));
    }
    /// Sends a message about a measurement.
    pub fn send_rate(&mut self, link: LinkId, word: RateWord) {
        self.queue_message(link, &Message::Rate(word));
    }
    /// A token for a measurement, which cannot be guessed without observing its packets.
    pub fn rate_token(&mut self) -> Cookie {
        Cookie(self.secrets.random.next() as u32)
    }
    /// Guaranteed channels that use a link, in whatever role and state.
    pub fn channels_on(&self, link: LinkId) -> u32 {
        let count = self.channels.count_on(link) + self.deciding.count_on(link);
        u32::try_from(count).unwrap_or(u32::MAX)
    }
    /// Sets the bytes received over a link, in bytes of the wire, for the report to its neighbour.
    pub fn set_received(&mut self, link: LinkId, bytes: u64) {
        self.with_peer(link, |peer| peer.set_received(bytes));
    }
    /// Whether the host stops: it begins nothing new.
    pub const fn is_leaving(&self) -> bool {
        self.leaving
    }
    /// Closes a link: requests for channels over it wait from now on, and its late HELLOs are no evidence.
    pub fn close_link(&mut self, link: LinkId) {
        self.links.closed.links.insert(link);
        self.set_excused(link, true);
    }
    /// Opens a link: waiting requests continue.
    pub fn open_link(&mut self, link: LinkId, now: Instant, resources: &mut dyn Resources) {
        if !self.links.closed.links.remove(&link) {
            return;
        }
        self.set_excused(link, false);
        let waiting = core::mem::take(&mut self.links.closed.waiting);
        let (go, stay): (Vec<_>, Vec<_>) = waiting.into_iter().partition(|(of, _)| *of == link);
        self.links.closed.waiting = stay.into();
        go.into_iter().for_each(|(_, waiting)| self.go_on(waiting, now, resources));
    }
    /// Whether a request waits for the link.
    pub fn has_waiting(&self, link: LinkId) -> bool {
        self.links.closed.waiting.iter().any(|(of, _)| *of == link)
    }
    /// Sets the drain rate of a link from now on.
    pub fn set_link_rate(&mut self, link: LinkId, rate: BitRate, error: Ppm) {
        if let Some(config) = self.config.links.get_mut(usize::from(link.0)) {
            (config.rate, config.rate_error) = (rate, error);
        }
    }

    fn set_excused(&mut self, link: LinkId, excused: bool) {
        self.with_peer(link, |peer| peer.excuse(excused));
    }
    fn go_on(&mut self, waiting: Waiting, now: Instant, resources: &mut dyn Resources) {
        match waiting {
            Waiting::Open(id, wanted) => {
                let (request, attempt) = *wanted;
                self.try_routes(id, &request, attempt, now, resources);
            }
            Waiting::Create(link, create) => self.on_create(link, *create, now, resources),
        }
    }
    fn is_closed(&self, link: Option<LinkId>) -> Option<LinkId> {
        let may_wait = !self.leaving && self.links.closed.waiting.len() < RATE_WAITING_MAX;
        link.filter(|link| may_wait && self.links.closed.links.contains(link))
    }

    /// The link to `next`, where it is measured: a channel that wants it waits.
    pub(super) fn closed_towards(&self, next: Option<NodeId>) -> Option<LinkId> {
        self.is_closed(next.and_then(|next| self.link_to(next)))
    }

    /// A channel waits for a link.
    pub(super) fn wait_to_open(
        &mut self,
        link: LinkId,
        id: ChannelId,
        request: &OpenRequest,
        attempt: Attempt,
    ) {
        self.links.closed.waiting.push_back((link, Waiting::Open(id, Box::new((request.clone(), attempt)))));
    }

    /// The same for a CREATE that came over a link; `true` if it waits.
    pub(super) fn wait_to_create(&mut self, from: LinkId, create: &Create) -> bool {
        let onward = create.route.next().and_then(|next| self.link_to(next));
        let Some(link) = self.is_closed(Some(from)).or_else(|| self.is_closed(onward)) else {
            return false;
        };
        let is_same =
            |waiting: &Waiting| matches!(waiting, Waiting::Create(_, known) if known.path == create.path);
        if !self.links.closed.waiting.iter().any(|(_, waiting)| is_same(waiting)) {
            self.links.closed.waiting.push_back((link, Waiting::Create(from, Box::new(create.clone()))));
        }
        true
    }

    /// Whether the CREATE of a path waits.
    pub(super) fn is_waiting(&self, path: PathId) -> bool {
        let is = |waiting: &Waiting| matches!(waiting, Waiting::Create(_, create) if create.path == path);
        self.deciding.knows(path) || self.links.closed.waiting.iter().any(|(_, waiting)| is(waiting))
    }

    /// Removes a waiting channel that its source has ended. The DESTROY must come over the link of its
    /// CREATE.
    pub(super) fn forget_waiting(&mut self, path: PathId, link: LinkId) {
        let is = |waiting: &Waiting| matches!(waiting, Waiting::Create(from, create) if *from == link && create.path == path);
        self.links.closed.waiting.retain(|(_, waiting)| !is(waiting));
        self.deciding.forget(path, link);
    }
    /// Removes all waiting requests of a link's neighbour, because the neighbour has lost its state.
    pub(super) fn forget_waiting_from(&mut self, link: LinkId) {
        let is = |waiting: &Waiting| matches!(waiting, Waiting::Create(from, _) if *from == link);
        self.links.closed.waiting.retain(|(_, waiting)| !is(waiting));
        self.deciding.forget_from(link);
    }
    /// Closes a waiting channel for its application; `false` if it does not wait.
    pub(super) fn close_waiting(&mut self, id: ChannelId, reason: CloseReason) -> bool {
        let is = |waiting: &Waiting| matches!(waiting, Waiting::Open(known, _) if *known == id);
        let waiting = &mut self.links.closed.waiting;
        let at = waiting.iter().position(|(_, waiting)| is(waiting));
        let Some((_, Waiting::Open(_, wanted))) = at.and_then(|at| waiting.remove(at)) else { return false };
        if let Some(asked) = &wanted.1.asked {
            self.answer_no(asked, self.refusal(RefuseCause::Receiver(super::transitions::CLOSED.into())));
        }
        self.announcements.events.push_back(Event::Closed { channel: id, reason, receipt: None });
        true
    }
    /// Refuses all waiting requests, because the host stops.
    pub(super) fn end_waiting(&mut self, now: Instant, resources: &mut dyn Resources) {
        let waiting = core::mem::take(&mut self.links.closed.waiting);
        waiting.into_iter().for_each(|(_, waiting)| self.go_on(waiting, now, resources));
    }
}
