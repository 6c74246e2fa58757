//! The handler of a link for connections from which only late segments can come, in the order of `engine::processor::tcp`
//! (`time_wait`): they give their own handlers and their rings back.

use punctual_analysis::Instant;
use punctual_proto::api::{RtuClass, RtuEvent, RtuId};
use punctual_proto::ids::LinkId;
use punctual_tcp::endsystem::{CallOutcome, Late, Reset};

use super::{Role, SegmentRing, Stage, Tag, TcpHost, World, hardware, sending_over, terms_of};
use crate::scenario::tcp::segment_bytes;

/// The handler of a link.
pub(super) struct LateHandler {
    pub handler: RtuId,
    pub segments: SegmentRing,
    late: Late,
    /// Hardware address of the host at the other end.
    address: u64,
}

impl TcpHost {
    /// Calls the handler of a link.
    pub(super) fn call_late(&mut self, link: LinkId, units: u32, now: Instant) -> CallOutcome {
        let Some(LateHandler { late, segments, address, .. }) = self.lates.get_mut(&link) else {
            return CallOutcome::default();
        };
        segments.now = now;
        let (units, served) = late.call(&mut self.endsystem, (units, now), segments, |_| *address);
        self.served = served;
        CallOutcome { units, more: late.has_work(now), ..CallOutcome::default() }
    }

    /// A connection has work; the handler that does it.
    pub(super) fn wake(&mut self, index: u32, link: LinkId) -> Option<RtuId> {
        let place = self.places.get(&index)?;
        if !place.is_late {
            return Some(place.input);
        }
        let served = self.lates.get_mut(&link)?;
        served.late.wake(index);
        Some(served.handler)
    }

    /// A connection is over.
    pub(super) fn forget_late(&mut self, index: u32, link: LinkId) {
        if let Some(served) = self.lates.get_mut(&link) {
            served.late.remove(index);
        }
    }
}

impl World {
    /// Each link of a host that connections use has such a handler; admission decides at once.
    pub(super) fn serve_late(&mut self, host: usize) {
        let mut links: Vec<u16> = Vec::new();
        for talk in self.conversations.iter().filter(|talk| talk.path.is_none()) {
            let ends = (0..2).filter(|end| talk.plan.hosts[*end] == host);
            links.extend(ends.map(|end| talk.plan.links[end]));
        }
        links.sort_unstable();
        links.dedup();
        let now = self.hosts[host].clock.read(self.now);
        for link in links {
            let payload_bytes = segment_bytes(&self.scenario.hosts[host], link);
            let terms = terms_of(RtuClass::BestEffort, self.scenario.tcp.cost);
            let peer = self.scenario.hosts[host].links[usize::from(link)].peer;
            let (segments, link) = (SegmentRing::new(Tag::Address), LinkId(link));
            let member = &mut self.hosts[host];
            let sending = sending_over(link, payload_bytes);
            let asked = member.node.register_sender(terms, &sending, segments.ring.clone(), now);
            while let Some(decision) = member.node.poll_decision() {
                member.node.handle_decided(decision.decide(|| Instant::ZERO), now);
            }
            let is_granted = matches!(member.node.poll_rtu(), Some(RtuEvent::Granted(..)));
            let (Ok(handler), true, Some(tcp)) = (asked, is_granted, &mut member.tcp) else {
                self.violate(&format!("host {host}: link {link:?} has no handler for late segments"));
                continue;
            };
            let served = LateHandler { handler, segments, late: Late::default(), address: hardware(peer) };
            tcp.roles.insert(handler, Role::Late(link));
            tcp.lates.insert(link, served);
        }
    }

    /// A connection gives its handlers and its rings back, and goes on with the handler of its link.
    pub(super) fn enter_time_wait(&mut self, host: usize, index: u32, now: Instant) {
        let member = &mut self.hosts[host];
        let Some(tcp) = &mut member.tcp else { return };
        let Some(place) = tcp.places.get_mut(&index) else { return };
        place.is_late = true;
        let (number, end) = place.of;
        for handler in [place.input, place.output] {
            tcp.roles.remove(&handler);
            tcp.accounts.remove(&handler);
            member.node.remove_handler(handler, now);
        }
        let is_held = place.segments.ring.is_held();
        if let Some(served) = tcp.lates.get_mut(&LinkId(self.conversations[number].plan.links[end])) {
            served.late.add(index);
        }
        drop(tcp.endsystem.detach(index));
        self.last_change = self.now;
        self.outcome.tcp.late += 1;
        if is_held {
            self.violate(&format!(
                "connection {number}: the ring of its segments at host {host} is still held"
            ));
        }
        self.settle_late(host, index, now);
    }

    /// Notes when a connection has work again, or gives back what is over.
    pub(super) fn settle_late(&mut self, host: usize, index: u32, now: Instant) {
        let member = &mut self.hosts[host];
        let Some(tcp) = &mut member.tcp else { return };
        let Some((number, end)) = tcp.places.get(&index).map(|place| place.of) else { return };
        if tcp.endsystem.is_over(index, now) {
            let ended = tcp.endsystem.status(index).and_then(|status| status.ended);
            if let Some(ended) = ended.filter(|_| self.conversations[number].ends[end].stage < Stage::Ended) {
                self.ended_tcp(number, end, ended);
            }
            return self.give_back_tcp(host, index, now);
        }
        let due = tcp.endsystem.due(index, now);
        let Some(served) = tcp.lates.get_mut(&LinkId(self.conversations[number].plan.links[end])) else {
            return;
        };
        served.late.set_due(index, due);
        member.node.make_ready_at(served.handler, served.late.next_due());
    }

    /// The handler of a link was called: each connection that it served, and then the time of the next.
    pub(super) fn settle_served(&mut self, host: usize, link: LinkId, now: Instant) {
        let served = self.hosts[host].tcp.as_mut().map(|tcp| std::mem::take(&mut tcp.served));
        for index in served.into_iter().flatten() {
            self.settle_tcp(host, index, now);
        }
        let is_lost = self.options.sabotage.tcp_timers_lost;
        let member = &mut self.hosts[host];
        let served = member.tcp.as_ref().and_then(|tcp| tcp.lates.get(&link));
        // Those that are over have set no time: that of the others must not be lost with them.
        if let Some(LateHandler { handler, late, .. }) = served.filter(|_| !is_lost) {
            member.node.make_ready_at(*handler, late.next_due());
            if late.has_work(now) {
                member.node.make_ready(*handler, now);
            }
        }
    }

    /// The peer of a connection that cannot begin is reset.
    pub(super) fn reset_late(&mut self, host: usize, link: LinkId, reset: Option<Reset>, now: Instant) {
        let member = &mut self.hosts[host];
        let served = member.tcp.as_mut().and_then(|tcp| tcp.lates.get_mut(&link));
        if let (Some(reset), Some(served)) = (reset, served) {
            served.late.reset(reset);
            member.node.make_ready(served.handler, now);
        }
    }
}
