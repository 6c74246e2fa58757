//! Programs' handlers on an engine's processor: registered from any thread, called on the processor's own (RTU 3, ADR 0051).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use punctual_proto::api::{RtuGrant, RtuId, RtuRefusal, RtuSending, RtuStatus, RtuTerms};
use punctual_proto::memory::{Inbox, Outbox};

use crate::body::Body;
use crate::direct;
use crate::error::EngineGone;
use crate::handle::{CallError, EngineHandle};

/// A handler that is registered with an engine. Clones name the same one.
pub struct Upcall<O: Outbox, I: Inbox> {
    engine: EngineHandle<O, I>,
    id: RtuId,
    grant: RtuGrant,
    /// Whether a request to make it ready is on its way to the processor.
    asked: Arc<AtomicBool>,
}

impl<O: Outbox, I: Inbox> Clone for Upcall<O, I> {
    fn clone(&self) -> Self {
        Self { engine: self.engine.clone(), id: self.id, grant: self.grant, asked: Arc::clone(&self.asked) }
    }
}

impl<O: Outbox + 'static, I: Inbox + 'static> EngineHandle<O, I> {
    /// Registers a handler and waits for the answer of admission.
    ///
    /// # Errors
    /// The refusal with its offer inside; outside of it that of [`EngineHandle::call`].
    pub fn register(&self, terms: RtuTerms, body: Body) -> Result<Result<Upcall<O, I>, RtuRefusal>, CallError>
    where
        O: Send,
    {
        self.register_with(terms, None, body)
    }

    /// Registers a handler that sends what its body puts into the ring behind `outbox`, and waits for the answer of admission.
    ///
    /// # Errors
    /// See [`EngineHandle::register`].
    pub fn register_sender(
        &self,
        terms: RtuTerms,
        sending: RtuSending,
        outbox: O,
        body: Body,
    ) -> Result<Result<Upcall<O, I>, RtuRefusal>, CallError>
    where
        O: Send,
    {
        self.register_with(terms, Some((sending, outbox)), body)
    }

    fn register_with(
        &self,
        terms: RtuTerms,
        sends: Option<(RtuSending, O)>,
        body: Body,
    ) -> Result<Result<Upcall<O, I>, RtuRefusal>, CallError>
    where
        O: Send,
    {
        let registered = self.answered(move |processor, answer, now| {
            processor.register(terms, sends, body, answer, now);
        })?;
        Ok(registered.map(|(id, grant)| Upcall {
            engine: self.clone(),
            id,
            grant,
            asked: Arc::new(AtomicBool::new(false)),
        }))
    }

    /// Registered handlers of programs, with their counters.
    ///
    /// # Errors
    /// See [`EngineHandle::call`].
    pub fn handlers(&self) -> Result<Vec<RtuStatus>, CallError> {
        self.call(|node, _| node.handlers().collect())
    }
}

impl<O: Outbox + 'static, I: Inbox + 'static> Upcall<O, I> {
    /// Name of the handler.
    pub const fn id(&self) -> RtuId {
        self.id
    }

    /// The grant of the handler.
    pub const fn grant(&self) -> RtuGrant {
        self.grant
    }

    /// Marks the handler as ready: its body is called as soon as its class allows. May be called on any
    /// thread. On the processor's own thread (in a body, or in a handler of messages) it makes no system
    /// call.
    ///
    /// # Errors
    /// [`EngineGone`]: the engine has ended, so the body will not be called.
    pub fn make_ready(&self) -> Result<(), EngineGone> {
        if direct::make_ready(self.id) {
            return Ok(());
        }
        // The body checks for work after the flag was cleared, so it sees all work that was queued before
        // this.
        if self.asked.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        let (id, asked) = (self.id, Arc::clone(&self.asked));
        self.engine.order(move |processor, now| {
            asked.store(false, Ordering::Release);
            processor.node_mut().make_ready(id, now);
        })
    }

    /// Its status; `None` once it is removed.
    ///
    /// # Errors
    /// See [`EngineHandle::call`].
    pub fn status(&self) -> Result<Option<RtuStatus>, CallError> {
        let id = self.id;
        self.engine.call(move |node, _| node.handlers().find(|status| status.id == id))
    }

    /// Removes the handler without waiting for the removal: for calls on the processor's own thread.
    pub fn let_go(&self) {
        let id = self.id;
        // An error means that the processor is gone, and the body with it.
        let _ = self.engine.order(move |processor, now| drop(processor.remove(id, now)));
    }

    /// Removes the handler and returns its body; `None` if it was removed already.
    ///
    /// # Errors
    /// See [`EngineHandle::call`].
    pub fn remove(&self) -> Result<Option<Body>, CallError> {
        let id = self.id;
        self.engine.ask(move |processor, now| processor.remove(id, now))
    }
}
