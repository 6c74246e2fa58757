//! Handlers of programs: registered by a client, called by messages in a ring of its own (RTU 5.1, 5.2; ADR 0051).
//!
//! A handler is an end like a channel's: it counts among its user's channels, with both rings and what the processor keeps for
//! it, and goes with its client. The thread that is called gets the priority that the host maps the handler's class to, if it
//! maps one; only then the time of the program's calls is compared with what it declares.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use punctual_analysis::{Activation, Contract, Rate};
use punctual_ipc::api::{Answer, ApiError, HandlerStatus, Resource};
use punctual_ipc::ring::RingHandles;
use punctual_proto::api::{
    RequestError, RtuClass, RtuGrant, RtuId, RtuRefusal, RtuTerms, UPCALL_BYTES, UPCALL_REPORT_BYTES, UserId,
};
use punctual_proto::ids::ChannelId;

use super::pages::keep_fitting;
use super::{NewRing, Outcome};
use crate::service::end::{Held, Registering};
use crate::service::{ClientId, End, Health, Host, Service, Stage};

/// Calls and reports that their rings hold: one call is under way, and a report of it beside some that say that there is work.
const RING_SLOTS: u32 = 4;
/// Bytes of the processor's heap for a handler, beside its budget's.
const HANDLER_BYTES: u64 = 1_024;
/// Bytes for each data unit of a budget.
const UNIT_BYTES: u64 = 8;
/// Handlers whose status the processor makes at once.
const HANDLERS_PER_PAGE: usize = 64;

/// A handler that the node knows, with what its end will hold.
struct NewHandler {
    channel: ChannelId,
    handler: RtuId,
    calls: RingHandles,
    reports: RingHandles,
    held: Held,
    health: Health,
    doorbell: OwnedFd,
}

/// The contract of a channel that is as urgent as a handler; `None` for best effort.
fn contract_of(terms: &RtuTerms) -> Option<Contract> {
    let (units, period) = terms.budget()?;
    let contract = Contract::new(1, Rate::every(period)?, 1, period).ok()?;
    let activation = match terms.class {
        RtuClass::LowDelay { .. } => Activation::LowLatency { interarrival: period, packets: units },
        _ => Activation::Deadline,
    };
    Some(Contract { activation, ..contract })
}

impl<H: Host> Service<H> {
    pub(super) fn register(
        &mut self,
        client: ClientId,
        account: UserId,
        call: u64,
        terms: RtuTerms,
        thread: Option<u32>,
    ) -> Outcome {
        self.take(account, Resource::Channels, 1)?;
        let room = HANDLER_BYTES + terms.budget().map_or(0, |(units, _)| u64::from(units) * UNIT_BYTES);
        let taken = self.take(account, Resource::BufferBytes, room);
        taken.inspect_err(|_| self.accounts.give_back(account, Resource::Channels, 1))?;
        let priority =
            thread.and(contract_of(&terms)).and_then(|contract| self.host.priority(&contract).ok());
        let made = self.make_handler(account, terms, priority.is_some());
        let NewHandler { channel, handler, calls, reports, held, health, doorbell } =
            made.inspect_err(|_| {
                self.accounts.give_back(account, Resource::BufferBytes, room);
                self.accounts.give_back(account, Resource::Channels, 1);
            })?;
        let waiting = Registering { call, handler, calls, reports, priority: None };
        let stage = Stage::Registering(Box::new(waiting));
        let end = End::new(client, account, stage, String::new());
        self.ends.insert(channel, End { held, health: Some(health), more_bytes: room, ..end });
        // From here on the end gives back what was taken.
        self.watch(channel, Arc::new(doorbell)).inspect_err(|_| self.close_end(channel))?;
        if let Some((thread, priority)) = thread.zip(priority) {
            let lent = self.lend(client, channel, thread, priority);
            let lent = lent.inspect_err(|_| self.close_end(channel))?;
            if let Some(End { stage: Stage::Registering(waiting), .. }) = self.ends.get_mut(&channel) {
                waiting.priority = Some(lent);
            }
        }
        Ok(None)
    }

    /// Makes both rings and asks the node; the answer is an event.
    fn make_handler(
        &mut self,
        account: UserId,
        terms: RtuTerms,
        timed: bool,
    ) -> Result<NewHandler, ApiError> {
        let NewRing { end: writer, handles: calls, held } =
            self.make_inbox(account, RING_SLOTS, UPCALL_BYTES as u32)?;
        let made = self.make_outbox(account, RING_SLOTS, UPCALL_REPORT_BYTES as u32);
        let (NewRing { end: reader, handles: reports, held: others }, doorbell) =
            made.inspect_err(|_| self.forget_ring(account, held))?;
        let health = Health::Both(reader.health(), writer.health());
        let held = held.and(others);
        let registered =
            self.on_node(move |node, now| node.register_upcall(terms, (writer, reader), timed, now))?;
        let (channel, handler) = registered.map_err(|refusal| {
            self.forget_ring(account, held);
            ApiError::Handler(refusal)
        })?;
        Ok(NewHandler { channel, handler, calls, reports, held, health, doorbell })
    }

    /// Admission has decided about a handler. If no client waits for the answer, the client is gone, and so is the handler.
    pub(in crate::service) fn registered(
        &mut self,
        channel: ChannelId,
        answer: Result<RtuGrant, RtuRefusal>,
    ) {
        let Some(end) = self.ends.get_mut(&channel) else { return };
        let waiting = match std::mem::replace(&mut end.stage, Stage::BestEffort) {
            Stage::Registering(waiting) => *waiting,
            other => {
                end.stage = other;
                return;
            }
        };
        let Registering { call, handler, calls, reports, priority } = waiting;
        end.stage = Stage::Handler { handler, reports: Some(reports) };
        let client = end.client;
        match (answer, client) {
            (Ok(grant), Some(client)) => {
                let ring = calls.shape;
                let answer = Answer::Registered { channel, handler, grant, priority, ring };
                self.answer(client, call, Ok(answer), calls.descriptors);
            }
            (Ok(_), None) => self.close_end(channel),
            (Err(refusal), client) => {
                self.close_end(channel);
                if let Some(client) = client {
                    self.answer(client, call, Err(ApiError::Handler(refusal)), Vec::new());
                }
            }
        }
    }

    pub(super) fn reports(&mut self, client: ClientId, channel: ChannelId) -> Outcome {
        let end = self.ends.get_mut(&channel).filter(|end| end.client == Some(client));
        let Some(End { stage: Stage::Handler { reports, .. }, .. }) = end else {
            return Err(RequestError::Unknown.into());
        };
        let handles = reports.take().ok_or(RequestError::Unknown)?;
        Ok(Some((Answer::Ring { channel, ring: handles.shape }, handles.descriptors)))
    }

    pub(super) fn handlers(&mut self, after: Option<RtuId>) -> Outcome {
        let statuses = self.on_node(move |node, _| {
            let behind = node.handlers().skip_while(|status| after.is_some_and(|after| status.id <= after));
            behind.take(HANDLERS_PER_PAGE + 1).collect::<Vec<_>>()
        })?;
        let owners: Vec<(RtuId, UserId)> = (self.ends.values())
            .filter_map(|end| match &end.stage {
                Stage::Handler { handler, .. } => Some((*handler, end.account)),
                Stage::Registering(waiting) => Some((waiting.handler, end.account)),
                _ => None,
            })
            .collect();
        let user_of = |id| owners.iter().find(|(handler, _)| *handler == id).map(|(_, user)| *user);
        let beyond_page = statuses.len() > HANDLERS_PER_PAGE;
        let mut handlers: Vec<HandlerStatus> = (statuses.into_iter().take(HANDLERS_PER_PAGE))
            .map(|handler| HandlerStatus { user: user_of(handler.id), handler })
            .collect();
        let more = keep_fitting(&mut handlers, 0) || beyond_page;
        Ok(Some((Answer::Handlers { handlers, more }, Vec::new())))
    }
}
