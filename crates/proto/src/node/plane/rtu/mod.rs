//! Programs' handlers: registered, picked, charged and monitored like those of channels (RTU 3; ADR 0051).
//!
//! Ownership: the node owns the account and counters of a handler, the driver owns its body. A handler has at
//! most two places in the run queue: that of its class, where it runs within its budget, and one of best
//! effort, where it runs beyond it. Cancellation: a handler that is removed while its body runs is removed at
//! once; the effects of the call are ignored.

mod calls;
mod conduct;
mod outside;
mod releases;
mod remote;
mod sending;

use alloc::boxed::Box;
use alloc::collections::btree_map::Entry;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};

use punctual_analysis::mutation::{Mutation, active};
use punctual_analysis::{Class as Rank, Instant, Nanos};

use self::conduct::{Conduct, Verdict};
use self::releases::Releases;
use self::remote::Remote;
use self::sending::{Route, Sending};
use super::processor::best_effort_parameters;
use super::{Context, Links, Owner, Plane, Processor};
use crate::api::{
    Event, Misconduct, RtuClass, RtuCost, RtuCounters, RtuEvent, RtuGrant, RtuId, RtuRefusal, RtuSending,
    RtuTerms, UpcallDone,
};
use crate::config::NodeConfig;
use crate::ids::{ChannelId, LinkId, PathId};
use crate::limits::{RTU_HANDLERS_MAX, RTUS_DUE_MAX};
use crate::memory::Memory;
use crate::node::stages::{RtuAnswer, RtuPackets, RtuPlace};
use crate::sched::{Class, HandlerId, HandlerParameters, Trigger};

/// All programs' handlers of a node.
pub(super) struct Rtus<M: Memory> {
    handlers: BTreeMap<RtuId, Box<Rtu<M>>>,
    /// Those that send, and those of other processes, by their handles among flows and channels.
    senders: BTreeMap<ChannelId, RtuId>,
    next: u64,
    news: News,
    /// Idle time of the processor since its start.
    idle: Nanos,
    /// Handlers that become ready at a time.
    due: BTreeSet<(Instant, RtuId)>,
    /// Begin and end of the last call of a body.
    last_call: [Instant; 2],
}

impl<M: Memory> Default for Rtus<M> {
    fn default() -> Self {
        Self {
            handlers: BTreeMap::new(),
            senders: BTreeMap::new(),
            next: 0,
            news: News::default(),
            idle: Nanos::ZERO,
            due: BTreeSet::new(),
            last_call: [Instant::ZERO; 2],
        }
    }
}

impl<M: Memory> Rtus<M> {
    /// The handler that has this handle among flows and channels.
    fn of_channel(&mut self, channel: ChannelId) -> Option<(RtuId, &mut Rtu<M>)> {
        let id = *self.senders.get(&channel)?;
        self.handlers.get_mut(&id).map(|rtu| (id, &mut **rtu))
    }

    /// Takes the timer of a handler back, if it has one.
    fn forget_timer(&mut self, id: RtuId, due: Option<Instant>) {
        if let Some(at) = due {
            self.due.remove(&(at, id));
        }
    }
}

/// Events of handlers that the driver has not fetched yet.
#[derive(Default)]
struct News {
    /// Events of handlers whose body runs in this process.
    own: VecDeque<RtuEvent>,
    /// Events of handlers whose program is another process.
    remote: VecDeque<Event>,
}

impl News {
    /// Queues the admission decision about a handler. `remote` is the handle of a handler in another process.
    fn answer(&mut self, id: RtuId, remote: Option<ChannelId>, answer: Result<RtuGrant, RtuRefusal>) {
        match (remote, answer) {
            (Some(channel), answer) => self.remote.push_back(Event::Registered { channel, answer }),
            (None, Ok(grant)) => self.own.push_back(RtuEvent::Granted(id, grant)),
            (None, Err(refusal)) => self.own.push_back(RtuEvent::Refused(id, refusal)),
        }
    }
}

/// One handler.
struct Rtu<M: Memory> {
    terms: RtuTerms,
    /// Cost that admission assumes: the declared cost, and the node's own work to send the handler's packets.
    cost: RtuCost,
    sending: Option<Sending<M>>,
    /// The program's end, if the program is another process.
    remote: Option<Remote<M>>,
    /// Place in the run queue of the handler's class. `None` until admission has granted it, for best effort,
    /// and after a demotion.
    own: Option<Own>,
    /// Place and grant, while they wait for the shaper of the handler's link.
    waiting: Option<(RtuPlace, RtuGrant)>,
    /// Place in the run queue of best effort or of the background, if it has one.
    rest: Option<HandlerId>,
    /// Time since which the handler has work; `None` while it has none.
    since: Option<Instant>,
    /// Time of the last call that made the handler ready while its body ran.
    again: Option<Instant>,
    /// Time of the last call of the body.
    called: Instant,
    /// Time at which the handler becomes ready, if its timer is set.
    due: Option<Instant>,
    releases: Option<Releases>,
    conduct: Conduct,
    demoted: Option<Misconduct>,
    counters: RtuCounters,
}

/// What a registration adds to the terms of a handler.
enum Sends<'a, M: Memory> {
    Nothing,
    /// The handler sends packets: handle, route, declared packets, and the ring that they are taken from.
    Packets(ChannelId, Route, &'a RtuSending, M::Outbox),
    /// The handler's program is another process.
    Remote(Remote<M>),
}

impl<M: Memory> Sends<'_, M> {
    /// Packets that the admission of the link must take into account.
    const fn packets(&self) -> Option<RtuPackets> {
        let Self::Packets(_, route, sending, _) = self else { return None };
        let header_bytes = sending.header_bytes();
        let packet_bytes = sending.payload_bytes.saturating_add(header_bytes);
        Some(RtuPackets { link: route.link, packets: sending.packets, packet_bytes, header_bytes })
    }
}

/// A place in the run queue within the budget.
#[derive(Clone, Copy)]
struct Own {
    handler: HandlerId,
    bound: Nanos,
}

impl<M: Memory> Rtu<M> {
    fn new(terms: RtuTerms, cost: RtuCost) -> Self {
        Self {
            terms,
            cost,
            sending: None,
            remote: None,
            own: None,
            waiting: None,
            rest: None,
            since: None,
            again: None,
            called: Instant::ZERO,
            due: None,
            releases: Releases::of(terms.class),
            conduct: Conduct::default(),
            demoted: None,
            counters: RtuCounters::default(),
        }
    }

    /// Release of the next PDU within the budget.
    fn release(&self, now: Instant) -> Option<Instant> {
        Some(self.releases.as_ref()?.release(self.since?, now))
    }

    /// Whether the link has room for what it sends, and its program has reported the call before.
    fn may_run(&mut self, links: &mut Links<M>, within: bool) -> bool {
        if self.remote.as_ref().is_some_and(|remote| !remote.is_back()) {
            return false;
        }
        self.sending.as_mut().is_none_or(|sending| {
            let state = &mut links.states[usize::from(sending.link().0)];
            sending.may_run(state, within)
        })
    }

    /// PDUs of the next call, within the budget or beyond it.
    fn given(&self, within: bool, now: Instant) -> u32 {
        match (&self.releases, self.since) {
            (Some(releases), Some(since)) if within => releases.released(since, now, self.terms.quantum),
            _ => self.terms.quantum,
        }
    }

    /// Charges a call. Returns when its first PDU was released, if that was within the budget, and how late it was.
    fn charge(
        &mut self,
        within: bool,
        given: u32,
        done: &UpcallDone,
        now: Instant,
    ) -> (Option<Instant>, Nanos) {
        self.counters.calls += 1;
        if self.remote.is_none() {
            self.counters.took_max = self.counters.took_max.max(done.took);
        }
        // A call that found nothing to do has cost one all the same, and a timed one goes on with a whole quantum.
        let whole = done.more && self.terms.class.periods().is_some();
        let charged = done.units.max(if whole { given } else { 1 });
        let (Some(releases), Some(since), true) = (self.releases.as_mut(), self.since, within) else {
            self.counters.units_beyond += u64::from(done.units);
            return (None, Nanos::ZERO);
        };
        self.counters.units += u64::from(done.units);
        let release = releases.charge(since, self.called, charged);
        let late = self.own.map_or(Nanos::ZERO, |own| now.since(release + own.bound));
        self.counters.late += u64::from(late > Nanos::ZERO);
        self.counters.late_max = self.counters.late_max.max(late);
        (Some(release), late)
    }

    fn count(&mut self, verdict: Verdict) {
        self.counters.overruns += u64::from(verdict.overran);
        self.counters.yields_ignored += u64::from(verdict.ignored_yield);
    }

    /// True if the handler has a reservation of the processor. A demoted handler keeps its reservation.
    const fn holds(&self) -> bool {
        self.own.is_some() || self.waiting.is_some() || self.demoted.is_some() && self.releases.is_some()
    }

    /// The handle among channels of a handler whose program is another process.
    fn remote_channel(&self) -> Option<ChannelId> {
        self.remote.as_ref().map(Remote::channel)
    }

    fn places(&self) -> usize {
        usize::from(self.own.is_some()) + usize::from(self.rest.is_some())
    }

    /// The reservation is complete: the handler may run from now on. Work that was ready before counts from now on.
    fn grant(
        &mut self,
        id: RtuId,
        place: &RtuPlace,
        config: &NodeConfig,
        context: &mut Context<M>,
        now: Instant,
    ) {
        self.give_slots(place, context);
        let class = match place.urgency.class {
            Rank::LowLatency => Class::LowLatency,
            Rank::Guaranteed => Class::Guaranteed,
        };
        let parameters = HandlerParameters {
            class,
            level: place.rank,
            period: place.urgency.rate,
            place: place.urgency.place,
            quantum_packets: self.terms.quantum,
            budget: None,
            trigger: Trigger::Reactive,
        };
        let handler = context.processor.add_handler(Owner::Rtu(id), parameters);
        self.own = Some(Own { handler, bound: place.bound });
        self.since = self.since.map(|_| now);
        if class == Class::LowLatency {
            self.run_beyond(id, Class::BestEffort, config, &mut context.processor);
        }
        self.arm(context, now);
    }

    /// Gives the handler a place in the run queue for work beyond its budget.
    fn run_beyond(&mut self, id: RtuId, class: Class, config: &NodeConfig, processor: &mut Processor) {
        let parameters = HandlerParameters {
            class,
            quantum_packets: self.terms.quantum,
            ..best_effort_parameters(config)
        };
        self.rest = Some(processor.add_handler(Owner::RtuRest(id), parameters));
    }
}

impl<M: Memory> Plane<M> {
    fn register_rtu(&mut self, terms: RtuTerms, sends: Sends<'_, M>) -> Result<RtuId, RtuRefusal> {
        if self.rtus.handlers.len() >= RTU_HANDLERS_MAX {
            return Err(RtuRefusal::Exhausted);
        }
        let packets = sends.packets();
        if let Some(packets) = &packets {
            self.stages.check_rtu_packets(&terms, packets)?;
        }
        let body = if matches!(sends, Sends::Remote(_)) { self.remote_cost() } else { terms.cost };
        let cost = self.stages.rtu_cost(body, packets.as_ref());
        self.stages.check_rtu(&RtuTerms { cost, ..terms }, &self.config)?;
        let id = RtuId(self.rtus.next);
        self.rtus.next += 1;
        let mut rtu = Box::new(Rtu::new(terms, cost));
        match sends {
            Sends::Nothing => {}
            Sends::Packets(channel, route, wanted, outbox) => {
                self.rtus.senders.insert(channel, id);
                rtu.sending = Some(self.sending(channel, route, wanted, outbox));
            }
            Sends::Remote(remote) => {
                self.rtus.senders.insert(remote.channel(), id);
                rtu.remote = Some(remote);
            }
        }
        if terms.class == RtuClass::BestEffort {
            rtu.run_beyond(id, Class::BestEffort, &self.config, &mut self.context.processor);
            let grant = RtuGrant { bound: None, sent: None, cpu_utilisation: self.stages.cpu_utilisation() };
            self.rtus.news.answer(id, rtu.remote_channel(), Ok(grant));
        }
        self.rtus.handlers.insert(id, rtu);
        self.stages.ask_rtu(id, &RtuTerms { cost, ..terms }, packets.as_ref());
        Ok(id)
    }

    /// Applies the reply for a handler. If the handler was removed meanwhile, what was granted is released.
    fn install_rtu(&mut self, (id, answer): RtuAnswer, now: Instant) {
        let Entry::Occupied(mut entry) = self.rtus.handlers.entry(id) else { return };
        let rtu = entry.get_mut();
        let remote = rtu.remote_channel();
        match answer {
            Ok((place, grant)) if rtu.has_share(&place, &mut self.context.links) => {
                rtu.grant(id, &place, &self.config, &mut self.context, now);
                self.rtus.news.answer(id, remote, Ok(grant));
            }
            Ok(waiting) => rtu.waiting = Some(waiting),
            Err(refusal) => {
                let rtu = entry.remove();
                self.rtus.forget_timer(id, rtu.due);
                self.part_with(*rtu, now);
                self.rtus.news.answer(id, remote, Err(refusal));
            }
        }
    }

    /// How long ago a message may have been sent that is noticed at `now`. The release latency covers units of the node. A call
    /// of a program's handler may be longer, and nothing is noticed meanwhile. Admission counts a call as blocking, from the
    /// time that the message was sent. Without such a call no source may claim more, or it would be more urgent than others
    /// were promised.
    pub(super) fn notice_delay_max(&self, now: Instant) -> Nanos {
        let (latency, [called, returned]) = (self.config.cpu.release_latency, self.rtus.last_call);
        if now.since(returned) <= latency { latency + returned.since(called) } else { latency }
    }

    fn ready_rtu(&mut self, id: RtuId, now: Instant) {
        let Some(rtu) = self.rtus.handlers.get_mut(&id) else { return };
        if rtu.since.is_some() {
            // The body may have checked for work already.
            rtu.again = rtu.again.or(Some(now));
            return;
        }
        rtu.since = Some(now);
        rtu.arm(&mut self.context, now);
    }

    /// Notes that the handler's body is called: it sees all work that is present now.
    pub(super) fn call_rtu(&mut self, id: RtuId, now: Instant) {
        self.rtus.last_call = [now; 2];
        if let Some(rtu) = self.rtus.handlers.get_mut(&id) {
            (rtu.again, rtu.called) = (None, now);
        }
    }

    fn remove_rtu(&mut self, id: RtuId, now: Instant) {
        self.schedule_rtu(id, None);
        let Some(rtu) = self.rtus.handlers.remove(&id) else { return };
        for handler in rtu.own.map(|own| own.handler).into_iter().chain(rtu.rest) {
            self.context.processor.remove_handler(handler);
        }
        if rtu.terms.class != RtuClass::BestEffort && !active(Mutation::RemovedHandlerKeepsPlaces) {
            self.stages.release_rtu(id, rtu.sending.as_ref().map(Sending::link));
        }
        self.part_with(*rtu, now);
    }

    /// Makes a handler ready at `at`, instead of at the time of the call before; `None`: at no time.
    fn schedule_rtu(&mut self, id: RtuId, at: Option<Instant>) {
        let Some(rtu) = self.rtus.handlers.get_mut(&id) else { return };
        let before = core::mem::replace(&mut rtu.due, at);
        self.rtus.forget_timer(id, before);
        let is_lost = before.is_some() && active(Mutation::MovedTimerLost);
        if let Some(at) = at.filter(|_| !is_lost) {
            self.rtus.due.insert((at, id));
        }
    }

    /// Time at which a handler becomes ready next.
    pub(in crate::node) fn rtus_due(&self) -> Option<Instant> {
        self.rtus.due.first().map(|(at, _)| *at)
    }

    /// Makes handlers ready whose time has come, at most [`RTUS_DUE_MAX`] in a call.
    pub(in crate::node) fn ready_due_rtus(&mut self, now: Instant) {
        for _ in 0..RTUS_DUE_MAX {
            let Some(&(at, id)) = self.rtus.due.first().filter(|(at, _)| *at <= now) else { return };
            self.schedule_rtu(id, None);
            // It has had work since then, whenever this is noticed.
            self.ready_rtu(id, at);
        }
    }

    /// Releases what a removed handler had beside its places: handles and slots.
    fn part_with(&mut self, rtu: Rtu<M>, now: Instant) {
        if let Some(remote) = rtu.remote {
            self.rtus.senders.remove(&remote.channel());
        }
        if let Some(sending) = rtu.sending {
            self.drop_sending(sending, now);
        }
    }

    /// Counts idle time of the processor. After it, caches may be cold: the cost of that is charged once a busy period.
    pub(super) fn rtus_idle(&mut self, span: Nanos) {
        if span > Nanos::ZERO {
            self.rtus.idle += span.max(self.config.cpu.costs.cold_start);
        }
    }

    /// Number of handlers that have or have requested a place on a link. While there are any, the rate of the
    /// link cannot be measured.
    pub(in crate::node) fn senders_on(&self, link: LinkId) -> u32 {
        let promised = self.rtus.handlers.values().filter(|rtu| rtu.terms.class != RtuClass::BestEffort);
        let links = promised.filter_map(|rtu| rtu.sending.as_ref()).map(Sending::link);
        links.filter(|on| *on == link).count() as u32
    }

    /// True if a handler sends over this path.
    pub(super) fn has_sender(&self, path: PathId) -> bool {
        self.rtus.handlers.values().any(|rtu| rtu.sending.as_ref().is_some_and(|sending| sending.has(path)))
    }

    /// Number of messages that handlers have queued and that have not left, for the audit of accounts.
    pub(super) fn sent_messages(&self) -> usize {
        self.rtus.handlers.values().filter_map(|rtu| rtu.sending.as_ref()).map(Sending::messages).sum()
    }

    /// Number of a link's queues that belong to handlers, for the audit of accounts.
    pub(super) fn sender_queues(&self, link: LinkId) -> usize {
        let on = |sending: &&Sending<M>| sending.link() == link && sending.has_slots();
        self.rtus.handlers.values().filter_map(|rtu| rtu.sending.as_ref()).filter(on).count()
    }

    /// Number of handles of senders, and of handlers that should have one, for the audit of accounts.
    pub(super) fn sender_handles(&self) -> [usize; 2] {
        let with_handle =
            self.rtus.handlers.values().filter(|rtu| rtu.sending.is_some() || rtu.remote.is_some());
        [self.rtus.senders.len(), with_handle.count()]
    }

    /// Number of places of programs' handlers in the run queue, for the audit of accounts.
    pub(super) fn rtu_places(&self) -> usize {
        self.rtus.handlers.values().map(|rtu| rtu.places()).sum()
    }

    /// Number of reservations of the processor for handlers, and of handlers that should have one, for the
    /// audit of accounts.
    pub(super) fn rtu_accounts(&self) -> Option<[usize; 2]> {
        let held = self.rtus.handlers.values().filter(|rtu| rtu.holds()).count();
        self.stages.rtus_held().map(|counted| [counted, held])
    }
}
