//! Calls the bodies of programs' handlers on the processor's own thread when the node schedules them (RTU 3,
//! ADR 0051).
//!
//! Ownership: the processor owns a body from its registration to its removal. Then the body goes back to the
//! thread that removes it, because dropping it must take time of the program's own thread.

use std::collections::BTreeMap;

use punctual_os::now;
use punctual_proto::Instant;
use punctual_proto::api::{RtuEvent, RtuGrant, RtuId, RtuRefusal, RtuSending, RtuTerms, UpcallDone, Work};
use punctual_proto::memory::{Inbox, Outbox};

use super::Processor;
use crate::body::{Body, Progress};
use crate::command::Answer;
use crate::direct;

/// The answer to a registration.
pub(crate) type Registered = Result<(RtuId, RtuGrant), RtuRefusal>;

/// The bodies of one processor.
#[derive(Default)]
pub(super) struct Bodies {
    bodies: BTreeMap<RtuId, Entry>,
}

struct Entry {
    body: Body,
    /// Set while a program waits for the answer of admission.
    asker: Option<Answer<Registered>>,
}

impl<O: Outbox + 'static, I: Inbox + 'static> Processor<O, I> {
    /// Registers a handler; `answer` follows when admission has decided. One that `sends` puts messages into the ring behind
    /// the outbox.
    pub fn register(
        &mut self,
        terms: RtuTerms,
        sends: Option<(RtuSending, O)>,
        body: Body,
        answer: Answer<Registered>,
        at: Instant,
    ) {
        let asked = match sends {
            Some((sending, outbox)) => self.node.register_sender(terms, &sending, outbox, at),
            None => self.node.register_handler(terms, at),
        };
        match asked {
            Ok(id) => {
                self.programs.bodies.bodies.insert(id, Entry { body, asker: Some(answer) });
                self.process_handler_events();
            }
            Err(refusal) => answer.send(Err(refusal)),
        }
    }

    /// Forgets a handler, and gives its body back.
    pub fn remove(&mut self, id: RtuId, at: Instant) -> Option<Body> {
        self.node.remove_handler(id, at);
        self.programs.bodies.bodies.remove(&id).map(|entry| entry.body)
    }

    /// Answers the requests whose handlers were granted or refused.
    pub(super) fn process_handler_events(&mut self) {
        while let Some(event) = self.node.poll_rtu() {
            let (id, answer) = match event {
                RtuEvent::Granted(id, grant) => (id, Ok((id, grant))),
                RtuEvent::Refused(id, refusal) => (id, Err(refusal)),
                // The handler's status reports this.
                RtuEvent::Demoted(id, _) => {
                    self.tcp_demoted(id);
                    continue;
                }
            };
            if self.tcp_decided(id, &answer.map(|(_, grant)| grant), now()) {
                continue;
            }
            let asker = self.programs.bodies.bodies.get_mut(&id).and_then(|entry| entry.asker.take());
            if answer.is_err() {
                self.programs.bodies.bodies.remove(&id);
            }
            if let Some(asker) = asker {
                asker.send(answer);
            }
        }
    }

    /// Does a unit of work: the node's own, or the call of a body.
    pub(super) fn finish_unit(&mut self, work: Work, at: Instant) {
        let Some(work) = self.call_tcp(work) else { return };
        let entry = self.node.upcall(&work).and_then(|id| self.programs.bodies.bodies.get_mut(&id));
        let Some(entry) = entry else { return self.node.finish_work(work, at) };
        let begun = now();
        let Progress { units, more } = (entry.body)(work.packets);
        let ended = now();
        let done = UpcallDone { units, more, took: ended.since(begun) };
        self.node.finish_upcall(&work, done, ended);
    }

    /// Handlers that bodies and message handlers on this thread have just made ready.
    pub(super) fn ready_handlers(&mut self, at: Instant) {
        while let Some(id) = direct::next_ready() {
            self.node.make_ready(id, at);
        }
    }
}
