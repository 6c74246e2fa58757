//! Receiver-initiated channels: the receiver asks the source host's application to open one to it.
//!
//! A request travels along a route of the receiver's, and a refusal travels back. An acceptance is the CREATE
//! that carries the request's token. Both ends store the request no longer than it may take.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use punctual_analysis::{Contract, Instant};

use super::Signalling;
use super::accounts::Entry;
use super::message::{Message, Request, Route};
use super::source_turns::{Places, Source};
use crate::api::{ChannelRefusal, Event, RefuseCause, RequestError, UserId};
use crate::ids::{Address, Epoch, LinkId, Name, NodeId};
use crate::limits::{REASON_BYTES_MAX, REQUESTS_MAX};
use crate::text::Foreign;

/// A request to an application here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PendingRequest {
    /// The receiver's token and epoch.
    pub token: u64,
    pub epoch: Epoch,
    /// Route to the receiver; `user` is the requesting user there.
    pub back: Route,
    pub user: UserId,
    until: Instant,
}

impl PendingRequest {
    fn source(&self) -> Source {
        Source { node: self.back.last().unwrap_or_default(), user: self.user }
    }
}

/// A request of an application here.
#[derive(Debug)]
struct Sent {
    /// The node that is asked, and the user for whom.
    node: NodeId,
    user: UserId,
    /// Time at which the request is given up.
    until: Instant,
}

impl Sent {
    /// The source of the request: all of them are this node's.
    const fn source(&self) -> Source {
        Source { node: NodeId(0), user: self.user }
    }
}

/// The refusal of a request, on its way to the receiver.
#[derive(Debug, PartialEq, Eq)]
pub struct Refused {
    pub token: u64,
    pub epoch: Epoch,
    pub user: UserId,
    pub refusal: ChannelRefusal,
}

/// Requests that wait for their replies.
#[derive(Debug, Default)]
pub struct Requests {
    token: u64,
    /// Requests of this host to applications elsewhere, with their users.
    sent: BTreeMap<u64, Sent>,
    sent_by: Places,
    /// Requests of other hosts to applications here, with their sources.
    asked: BTreeMap<u64, PendingRequest>,
    asked_by: Places,
}

impl Requests {
    const fn next_token(&mut self) -> u64 {
        self.token += 1;
        self.token
    }
    /// Matches a CREATE of `source` to the request of this host that it answers.
    pub fn answered(&mut self, token: Option<u64>, source: NodeId) -> Option<u64> {
        let token = token?;
        let ours = self.sent.get(&token).is_some_and(|sent| sent.node == source);
        if ours { self.take_sent(token).map(|_| token) } else { None }
    }
    fn add_sent(&mut self, token: u64, sent: Sent) {
        self.sent_by.add(sent.source(), token);
        self.sent.insert(token, sent);
    }
    fn take_sent(&mut self, token: u64) -> Option<Sent> {
        let sent = self.sent.remove(&token)?;
        self.sent_by.remove(sent.source(), token);
        Some(sent)
    }
    fn add_asked(&mut self, token: u64, asked: PendingRequest) {
        self.asked_by.add(asked.source(), token);
        self.asked.insert(token, asked);
    }
    /// Removes a request when the application opens a channel in reply to `token`.
    pub fn take_asked(&mut self, token: u64) -> Option<PendingRequest> {
        let asked = self.asked.remove(&token)?;
        self.asked_by.remove(asked.source(), token);
        Some(asked)
    }
    /// Counts of this host's and others' requests that are kept, with the values computed from the tables.
    pub fn accounts(&self) -> [Entry; 4] {
        [
            ("requests to others", [self.sent_by.len(), self.sent.len()]),
            ("places of requests to others", self.sent_by.accounts()),
            ("requests of others", [self.asked_by.len(), self.asked.len()]),
            ("places of requests of others", self.asked_by.accounts()),
        ]
    }
    /// Number of this host's waiting requests, and of the others'.
    pub fn waiting(&self) -> [usize; 2] {
        [self.sent.len(), self.asked.len()]
    }
    pub fn poll_timeout(&self) -> Option<Instant> {
        let sent = self.sent.values().map(|sent| sent.until);
        sent.chain(self.asked.values().map(|asked| asked.until)).min()
    }
}

impl Signalling {
    /// Requests that the application `source` opens a channel to our listener `reply_to`. `Incoming` with the
    /// returned token or `RequestFailed` follows.
    ///
    /// # Errors
    /// If the request cannot even be tried.
    pub fn request(
        &mut self,
        source: &Address,
        reply_to: Name,
        contract: Contract,
        user: UserId,
        now: Instant,
    ) -> Result<u64, RequestError> {
        contract.validate()?;
        let node = self.config.resolve(&source.host)?;
        let candidates = self.candidates(node);
        if candidates.is_empty() {
            return Err(RequestError::NoRoute(source.host.clone()));
        }
        if self.leaving {
            return Err(RequestError::Exhausted);
        }
        self.make_room_to_send(user)?;
        let token = self.requests.next_token();
        let until = now + self.answer_time() + self.answer_time() + self.config.signalling.consent_timeout;
        self.requests.add_sent(token, Sent { node, user, until });
        let first = |nodes: &&Vec<NodeId>| nodes.first().is_some_and(|n| self.link_to(*n).is_some());
        let Some(via) = candidates.iter().find(first) else {
            let next = candidates.iter().find_map(|nodes| nodes.first().copied()).unwrap_or(node);
            self.request_failed(token, self.refusal(self.unreachable(next)));
            return Ok(token);
        };
        let nodes = core::iter::once(self.config.id).chain(via.iter().copied()).collect();
        let reply_to = Address { port: reply_to, host: self.config.name.clone() };
        let (epoch, port) = (self.config.epoch, source.port.clone());
        let route = Route { nodes, position: 0 };
        self.pass_request(Request { token, route, epoch, port, reply_to, contract, user }, now);
        Ok(token)
    }

    /// Refuses a `Requested`.
    ///
    /// # Errors
    /// If the request does not wait (any more).
    pub fn refuse_request(&mut self, token: u64, why: &str, now: Instant) -> Result<(), RequestError> {
        let asked = self.requests.take_asked(token).filter(|asked| asked.until > now);
        let asked = asked.ok_or(RequestError::Unknown)?;
        let why = Foreign::beginning(why, REASON_BYTES_MAX / 4);
        self.answer_no(&asked, self.refusal(RefuseCause::Receiver(why)));
        Ok(())
    }

    /// Notifies the receiver that requested the channel that there will be none.
    pub(super) fn answer_no(&mut self, asked: &PendingRequest, refusal: ChannelRefusal) {
        let PendingRequest { token, epoch, user, .. } = *asked;
        self.pass_refused_request(Refused { token, epoch, user, refusal }, asked.back.clone());
    }

    pub(super) fn on_request(&mut self, link: LinkId, request: Request, now: Instant) {
        if !request.route.leads(self.node_at(link), self.config.id) {
            self.counters.unexpected += 1;
        } else if !self.has_room(link) {
            self.counters.unanswered += 1;
        } else if request.route.next().is_some() {
            self.pass_request(request, now);
        } else if let Err(cause) = self.ask(&request, now) {
            self.refuse_here(&request, cause);
        }
    }
    /// Refuses a request at this node, on its way from the receiver.
    fn refuse_here(&mut self, request: &Request, cause: RefuseCause) {
        let refusal = self.refusal(cause);
        let Request { token, epoch, user, .. } = *request;
        if request.route.before().is_none() {
            self.request_failed(token, refusal);
        } else {
            self.pass_refused_request(Refused { token, epoch, user, refusal }, request.route.back());
        }
    }

    /// Passes the request to the application here.
    fn ask(&mut self, request: &Request, now: Instant) -> Result<(), RefuseCause> {
        let text = |error| RefuseCause::Unsuitable(alloc::format!("{error}").into());
        request.contract.validate().map_err(text)?;
        let listener = self.listener(&request.port).ok_or(RefuseCause::NoListener(request.port.clone()))?;
        if self.leaving {
            return Err(RefuseCause::Exhausted);
        }
        self.make_room_to_ask(request.source())?;
        let token = self.requests.next_token();
        let until = now + self.config.signalling.consent_timeout;
        let back = request.route.back();
        let asked =
            PendingRequest { token: request.token, epoch: request.epoch, back, user: request.user, until };
        self.requests.add_asked(token, asked);
        let to = request.reply_to.clone();
        let (contract, user) = (request.contract, request.user);
        self.announcements.events.push_back(Event::Requested { listener, to, contract, user, token });
        Ok(())
    }

    /// If all places are taken, the last request of the user who has the most gives way.
    fn make_room_to_send(&mut self, user: UserId) -> Result<(), RequestError> {
        let source = Source { node: NodeId(0), user };
        let gives =
            self.requests.sent_by.make_room(source, REQUESTS_MAX).map_err(|_| RequestError::Crowded)?;
        gives.into_iter().for_each(|token| self.request_failed(token, self.refusal(RefuseCause::Crowded)));
        Ok(())
    }
    /// Makes room for a request that came from elsewhere: if all places are taken, the last request of the
    /// user who has the most gives way.
    fn make_room_to_ask(&mut self, source: Source) -> Result<(), RefuseCause> {
        let gives =
            self.requests.asked_by.make_room(source, REQUESTS_MAX).map_err(|_| RefuseCause::Crowded)?;
        if let Some(asked) = gives.and_then(|token| self.give_up_asked(token)) {
            self.answer_no(&asked, self.refusal(RefuseCause::Crowded));
        }
        Ok(())
    }

    /// Removes a request before its application has replied, and notifies the application, so that it does
    /// not store the request forever.
    fn give_up_asked(&mut self, token: u64) -> Option<PendingRequest> {
        let asked = self.requests.take_asked(token)?;
        self.announcements.events.push_back(Event::RequestOver { token });
        Some(asked)
    }

    fn pass_request(&mut self, request: Request, now: Instant) {
        let next = request.route.next().unwrap_or_default();
        let source = request.source();
        match self.link_to(next) {
            Some(link) if self.takes(link, source) => {
                let route = request.route.advanced();
                self.ask_for(link, source, &Message::Request(Request { route, ..request }), now);
            }
            Some(_) => self.refuse_here(&request, RefuseCause::Busy(next)),
            None => self.refuse_here(&request, self.unreachable(next)),
        }
    }

    /// `route` as its next receiver sees it.
    pub(super) fn pass_refused_request(&mut self, refused: Refused, route: Route) {
        let Refused { token, epoch, user, refusal } = refused;
        let link = self.link_along(&route);
        let source = Source { node: route.last().unwrap_or_default(), user };
        self.answer(link, source, &Message::RequestRefused { token, epoch, route, user, refusal });
    }

    pub(super) fn on_refused_request(&mut self, link: LinkId, refused: Refused, route: &Route) {
        if !route.leads(self.node_at(link), self.config.id) {
            self.counters.unexpected += 1;
        } else if route.next().is_some() {
            self.pass_refused_request(refused, route.advanced());
        } else if refused.epoch == self.config.epoch {
            self.request_failed(refused.token, refused.refusal);
        }
    }

    pub(super) fn request_failed(&mut self, token: u64, refusal: ChannelRefusal) {
        if self.requests.take_sent(token).is_some() {
            let refusal = self.named(refusal);
            self.announcements.events.push_back(Event::RequestFailed { token, refusal });
        }
    }

    pub(super) fn expire_requests(&mut self, now: Instant) {
        if self.requests.poll_timeout().is_none_or(|first| first > now) {
            return;
        }
        let over = |until: Instant| until <= now;
        let asked = self.requests.asked.iter().filter(|(_, asked)| over(asked.until));
        let asked: Vec<u64> = asked.map(|(token, _)| *token).collect();
        asked.into_iter().for_each(|token| drop(self.give_up_asked(token)));
        let sent = self.requests.sent.iter().filter(|(_, sent)| over(sent.until));
        let sent: Vec<u64> = sent.map(|(token, _)| *token).collect();
        for token in sent {
            self.request_failed(token, self.refusal(RefuseCause::Timeout));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A request that takes no place shows in the account of its kind, and in no other.
    #[test]
    fn a_request_without_a_place_shows_in_its_account() {
        let sent = || Sent { node: NodeId(2), user: UserId(1), until: Instant(9) };
        let asked = || PendingRequest {
            token: 1,
            epoch: Epoch(1),
            back: Route { nodes: Vec::from([NodeId(2), NodeId(1)]), position: 0 },
            user: UserId(1),
            until: Instant(9),
        };
        let wrong = |requests: &Requests| -> Vec<_> {
            let accounts = requests.accounts().into_iter();
            accounts.filter(|(_, [counted, held])| counted != held).collect()
        };
        let mut requests = Requests::default();
        requests.add_sent(1, sent());
        requests.add_asked(1, asked());
        assert_eq!(wrong(&requests), []);
        requests.sent.insert(2, sent());
        assert_eq!(wrong(&requests), [("requests to others", [1, 2])]);
        requests.take_sent(2);
        requests.asked.insert(2, asked());
        assert_eq!(wrong(&requests), [("requests of others", [1, 2])]);
    }
}
