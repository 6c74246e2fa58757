//! Receiver-initiated channels: the receiver asks the source host's application to open one to it.
//!
//! A request travels along a route of the receiver's, and so does a no on its way back; a yes is the CREATE
//! that carries the request's token. Both ends remember it no longer than it may take.

use alloc::collections::BTreeMap;

use punctual_analysis::{Contract, Instant};

use super::Signalling;
use super::message::{Message, Request, Route};
use super::peer::Peer;
use crate::ids::{Address, Epoch, LinkId, Name, NodeId};
use crate::limits::{REASON_BYTES_MAX, REQUESTS_MAX};
use crate::node::api::{ChannelRefusal, Event, RefuseCause, RequestError, UserId};
use crate::text::Foreign;

/// A request that an application here was asked.
#[derive(Clone, Debug)]
pub struct Asked {
    /// The receiver's token and life.
    pub token: u64,
    pub epoch: Epoch,
    /// To the receiver.
    pub back: Route,
    until: Instant,
}

/// Requests that wait for their answers.
#[derive(Debug, Default)]
pub struct Requests {
    token: u64,
    /// Ours, to applications elsewhere: the source and when it is given up.
    sent: BTreeMap<u64, (NodeId, Instant)>,
    asked: BTreeMap<u64, Asked>,
}

impl Requests {
    const fn next_token(&mut self) -> u64 {
        self.token += 1;
        self.token
    }
    /// A CREATE of `source` answers our request.
    pub fn answered(&mut self, token: Option<u64>, source: NodeId) -> Option<u64> {
        let token = token?;
        let ours = self.sent.get(&token).is_some_and(|(asked, _)| *asked == source);
        if ours { self.sent.remove(&token).map(|_| token) } else { None }
    }
    /// The application opens a channel in answer to `token`.
    pub fn take_asked(&mut self, token: u64) -> Option<Asked> {
        self.asked.remove(&token)
    }
    pub fn poll_timeout(&self) -> Option<Instant> {
        let sent = self.sent.values().map(|(_, until)| *until);
        sent.chain(self.asked.values().map(|asked| asked.until)).min()
    }
}

impl Signalling {
    /// Asks the application `source` to open a channel to our listener `reply_to`; `Incoming` with the
    /// returned token or `RequestFailed` follows.
    ///
    /// # Errors
    /// It cannot even be tried.
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
        if self.requests.sent.len() >= REQUESTS_MAX || self.leaving || !self.peers.iter().all(Peer::has_room)
        {
            return Err(RequestError::Exhausted);
        }
        let token = self.requests.next_token();
        let until = now + self.answer_time() + self.answer_time() + self.config.signalling.consent_timeout;
        self.requests.sent.insert(token, (node, until));
        let first =
            |nodes: &&alloc::vec::Vec<NodeId>| nodes.first().is_some_and(|n| self.link_to(*n).is_some());
        let Some(via) = candidates.iter().find(first) else {
            let next = candidates.iter().find_map(|nodes| nodes.first().copied()).unwrap_or(node);
            self.request_failed(token, self.refusal(self.unreachable(next)));
            return Ok(token);
        };
        let nodes = core::iter::once(self.config.id).chain(via.iter().copied()).collect();
        let reply_to = Address { port: reply_to, host: self.config.name.clone() };
        let (epoch, port) = (self.config.epoch, source.port.clone());
        let route = Route { nodes, position: 0 };
        self.pass_request(Request { token, route, epoch, port, reply_to, contract, user });
        Ok(token)
    }

    /// Answers `Requested` with no.
    ///
    /// # Errors
    /// Nobody waits for it (any more).
    pub fn refuse_request(&mut self, token: u64, why: &str, now: Instant) -> Result<(), RequestError> {
        let asked = self.requests.take_asked(token).filter(|asked| asked.until > now);
        let asked = asked.ok_or(RequestError::Unknown)?;
        let why = Foreign::beginning(why, REASON_BYTES_MAX / 4);
        self.answer_no(&asked, self.refusal(RefuseCause::Receiver(why)));
        Ok(())
    }

    /// Tells the receiver that asked that there will be no channel.
    pub(super) fn answer_no(&mut self, asked: &Asked, refusal: ChannelRefusal) {
        let (token, epoch, route) = (asked.token, asked.epoch, asked.back.clone());
        self.pass_refused_request(token, epoch, route, refusal);
    }

    pub(super) fn on_request(&mut self, link: LinkId, request: Request, now: Instant) {
        if !request.route.leads(self.node_at(link), self.config.id) {
            self.counters.unexpected += 1;
        } else if request.route.next().is_some() {
            self.pass_request(request);
        } else if let Err(cause) = self.ask(&request, now) {
            let refusal = self.refusal(cause);
            self.pass_refused_request(request.token, request.epoch, request.route.back(), refusal);
        }
    }

    /// Asks the application here.
    fn ask(&mut self, request: &Request, now: Instant) -> Result<(), RefuseCause> {
        let text = |error| RefuseCause::Unsuitable(alloc::format!("{error}").into());
        request.contract.validate().map_err(text)?;
        let listener = self.listener(&request.port).ok_or(RefuseCause::NoListener(request.port.clone()))?;
        if self.requests.asked.len() >= REQUESTS_MAX || self.leaving {
            return Err(RefuseCause::Exhausted);
        }
        let token = self.requests.next_token();
        let until = now + self.config.signalling.consent_timeout;
        let back = request.route.back();
        let asked = Asked { token: request.token, epoch: request.epoch, back, until };
        self.requests.asked.insert(token, asked);
        let to = request.reply_to.clone();
        let (contract, user) = (request.contract, request.user);
        self.events.push_back(Event::Requested { listener, to, contract, user, token });
        Ok(())
    }

    fn pass_request(&mut self, request: Request) {
        let next = request.route.next().unwrap_or_default();
        if let Some(link) = self.link_to(next) {
            let route = request.route.advanced();
            if self.has_room(link) {
                self.say(link, &Message::Request(Request { route, ..request }));
            }
            return;
        }
        let refusal = self.refusal(self.unreachable(next));
        if request.route.before().is_none() {
            self.request_failed(request.token, refusal);
        } else {
            self.pass_refused_request(request.token, request.epoch, request.route.back(), refusal);
        }
    }

    /// `route` as its next receiver sees it.
    fn pass_refused_request(&mut self, token: u64, epoch: Epoch, route: Route, refusal: ChannelRefusal) {
        let link = self.link_along(&route);
        self.say_to(link, &Message::RequestRefused { token, epoch, route, refusal });
    }

    pub(super) fn on_refused_request(
        &mut self,
        link: LinkId,
        token: u64,
        epoch: Epoch,
        route: &Route,
        refusal: ChannelRefusal,
    ) {
        if !route.leads(self.node_at(link), self.config.id) {
            self.counters.unexpected += 1;
        } else if route.next().is_some() {
            self.pass_refused_request(token, epoch, route.advanced(), refusal);
        } else if epoch == self.config.epoch {
            self.request_failed(token, refusal);
        }
    }

    fn request_failed(&mut self, token: u64, refusal: ChannelRefusal) {
        if self.requests.sent.remove(&token).is_some() {
            let refusal = self.named(refusal);
            self.events.push_back(Event::RequestFailed { token, refusal });
        }
    }

    pub(super) fn expire_requests(&mut self, now: Instant) {
        if self.requests.poll_timeout().is_none_or(|first| first > now) {
            return;
        }
        self.requests.asked.retain(|_, asked| asked.until > now);
        let late: alloc::vec::Vec<u64> = self
            .requests
            .sent
            .iter()
            .filter(|(_, (_, until))| *until <= now)
            .map(|(token, _)| *token)
            .collect();
        for token in late {
            self.request_failed(token, self.refusal(RefuseCause::Timeout));
        }
    }
}
