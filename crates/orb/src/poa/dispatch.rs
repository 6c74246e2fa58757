//! From a request to its servant: one look-up each for adapter, object and operation.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use punctual_giop::exception::minor;
use punctual_giop::message::Request;
use punctual_giop::{
    Completion, Decode, Decoder, Encode, Reference, SystemException, SystemExceptionKind as Kind, TaggedList,
};

use super::Poa;
use super::key::{Key, NOWHERE, ObjectId};
use super::manager::State;
use super::policy::{RequestProcessing, ServantRetention, ThreadModel};
use super::refusal::{Refusal, Served, ending};
use super::registry::{Active, Adapter, Chosen, Entry, Registry};
use super::serving::{Diversion, Serving};
use crate::counted::{Counted, count};
use crate::exception::{bad_operation, marshal, no_adapter, no_thread, not_active, panicked};
use crate::frames;
use crate::reply::{Reply, Servant};

/// The interface that all objects have.
const OBJECT: &str = "IDL:omg.org/CORBA/Object:1.0";

/// What is called, and with what.
pub(crate) struct Incoming<'c, 'm> {
    pub key: &'c [u8],
    pub operation: &'c str,
    pub contexts: &'c TaggedList<'m>,
    pub arguments: Decoder<'m>,
}

fn incoming<'c, 'm>(key: &'c [u8], request: &'c Request<'m>, arguments: Decoder<'m>) -> Incoming<'c, 'm> {
    Incoming { key, operation: request.operation, contexts: &request.contexts, arguments }
}

impl Registry {
    /// Serves a request, and writes its reply.
    pub fn dispatch(
        self: &Arc<Self>,
        request: &Request<'_>,
        arguments: Decoder<'_>,
        reply: &mut Reply<'_>,
    ) -> Served {
        let served = match request.target.object_key() {
            Ok(key) if Key::is(key) => self.serve(&mut incoming(key, request, arguments), reply),
            Ok(chosen) => self.serve_chosen(chosen, request, arguments, reply),
            Err(_) => Err(not_active().into()),
        };
        match served {
            Ok(()) => {}
            Err(Refusal::Held(manager)) => return Served::Held(manager),
            Err(Refusal::Diverted(Diversion::Exception(exception))) => reply.system(&exception),
            Err(Refusal::Diverted(Diversion::Forward(to))) => {
                if let Err(exception) = reply.forward(&to) {
                    reply.system(&exception);
                }
            }
        }
        Served::Done
    }

    /// Serves a request for a key that an application chose.
    fn serve_chosen(
        self: &Arc<Self>,
        chosen: &[u8],
        request: &Request<'_>,
        arguments: Decoder<'_>,
        reply: &mut Reply<'_>,
    ) -> Result<(), Refusal> {
        match self.of_key(chosen) {
            Some(Chosen::Own(key)) => self.serve(&mut incoming(&key, request, arguments), reply),
            Some(Chosen::Elsewhere(to)) => Err(Diversion::Forward(to).into()),
            None => Err(not_active().into()),
        }
    }

    fn serve(self: &Arc<Self>, call: &mut Incoming<'_, '_>, reply: &mut Reply<'_>) -> Result<(), Refusal> {
        let key = Key::parse(call.key).ok_or_else(not_active)?;
        if let Some(active) = self.admitted(&key) {
            active.adapter.upcall(&*active.servant, call, reply);
            return Ok(());
        }
        let adapter = (key.process == self.process).then(|| self.adapter_at(key.adapter)).flatten();
        let Some(adapter) = adapter else {
            let poa = self.find(&key)?;
            poa.adapter().manager.admit()?;
            return poa.serve_by_id(&key.id(), call, reply);
        };
        adapter.manager.admit()?;
        if let Some(active) = self.active(&key) {
            adapter.upcall(&*active.servant, call, reply);
            return Ok(());
        }
        Poa::of(self, &adapter).serve_by_id(&key.id(), call, reply)
    }

    /// The object that has the place of a key of this process.
    fn active(&self, key: &Key<'_>) -> Option<Entry<'_, Active>> {
        let is_somewhere = key.object != NOWHERE;
        let active = is_somewhere.then(|| self.object_at(key.object)).flatten()?;
        (active.adapter.place == key.adapter).then_some(active)
    }

    /// The same, if its adapter serves requests now: what most requests need. The object leads to its adapter. While
    /// requests wait, nobody may have the object: it may end meanwhile.
    fn admitted(&self, key: &Key<'_>) -> Option<Entry<'_, Active>> {
        let active = (key.process == self.process).then(|| self.active(key)).flatten()?;
        count(Counted::Adapter);
        (active.adapter.manager.state() == State::Active).then_some(active)
    }

    /// The number of an operation of the object with this key, by the look-ups of a request.
    pub fn find_operation(&self, key: &[u8], operation: &str) -> Option<usize> {
        self.admitted(&Key::parse(key)?)?.servant.operations().find(operation)
    }

    /// The adapter of a key that another process made, or an adapter of this name that was destroyed.
    pub(super) fn find(self: &Arc<Self>, key: &Key<'_>) -> Result<Poa, Refusal> {
        let mut poa = self.root();
        for name in key.names().ok_or_else(no_adapter)? {
            poa = match (poa.child(name), poa.activator()) {
                (Some(child), _) => child,
                (None, None) => return Err(no_adapter().into()),
                (None, Some(activator)) => {
                    // Whoever makes adapters for requests is a part of their parent (CORBA 11.3.3).
                    poa.adapter().manager.admit()?;
                    poa.activate_child(name, &*activator).map_err(|_| no_adapter())?
                }
            };
        }
        Ok(poa)
    }
}

impl Poa {
    /// Serves a request for an object whose place is not known, or which is not active.
    fn serve_by_id(
        &self,
        id: &ObjectId,
        call: &mut Incoming<'_, '_>,
        reply: &mut Reply<'_>,
    ) -> Result<(), Refusal> {
        let adapter = self.adapter();
        count(Counted::Object);
        let place = adapter.objects().place(id);
        if let Some(active) = place.and_then(|place| self.registry().object_at(place)) {
            adapter.upcall(&*active.servant, call, reply);
            return Ok(());
        }
        match adapter.serving() {
            Serving::Nobody => {
                let is_missing = adapter.policies.servant_retention == ServantRetention::NonRetain
                    || adapter.policies.request_processing != RequestProcessing::ActiveObjectsOnly;
                return Err(if is_missing { no_servant() } else { not_active() }.into());
            }
            Serving::Default(servant) => adapter.upcall(&*servant, call, reply),
            Serving::Activator(activator) => {
                let place = self.incarnate(id, &activator)?;
                // It may have been deactivated at once.
                let active = self.registry().object_at(place).ok_or_else(ending)?;
                adapter.upcall(&*active.servant, call, reply);
            }
            Serving::Locator(locator) => {
                let (servant, cookie) = locator.preinvoke(id, self, call.operation)?;
                adapter.upcall(&*servant, call, reply);
                locator.postinvoke(id, self, call.operation, cookie, servant);
            }
        }
        Ok(())
    }
}

fn no_servant() -> SystemException {
    SystemException::new(Kind::ObjAdapter, minor::NO_SERVANT, Completion::No)
}

impl Adapter {
    /// Calls a servant, and writes what it answers.
    fn upcall(self: &Arc<Self>, servant: &dyn Servant, call: &mut Incoming<'_, '_>, reply: &mut Reply<'_>) {
        if self.policies.thread_model == ThreadModel::MainThread && !is_main_thread(self) {
            // The adapter or its manager has changed since the request came: a later one is handed over.
            return reply.system(&no_thread());
        }
        let _serves = self.enter();
        let _turn = self.turns.as_ref().map(|turns| turns.enter());
        let _current = frames::Serves::begin(Arc::<Self>::clone(self), call.key, call.contexts);
        let answered = match servant.operations().find(call.operation) {
            None => implicit(servant, call, reply),
            Some(operation) => {
                reply.acknowledge();
                // A servant that panics answers UNKNOWN; its own state is its own matter.
                let dispatch = AssertUnwindSafe(|| servant.dispatch(operation, &mut call.arguments, reply));
                catch_unwind(dispatch).unwrap_or_else(|_| Err(panicked()))
            }
        };
        if let Err(exception) = answered {
            reply.system(&exception);
        }
    }
}

fn is_main_thread(adapter: &Adapter) -> bool {
    adapter.registry.upgrade().is_some_and(|registry| registry.main.is_here())
}

/// The operations that all objects have (CORBA 15.4.2.3).
fn implicit(
    servant: &dyn Servant,
    call: &mut Incoming<'_, '_>,
    reply: &mut Reply<'_>,
) -> Result<(), SystemException> {
    match call.operation {
        "_is_a" => {
            let asked = String::decode(&mut call.arguments);
            let asked = asked.map_err(|error| marshal(error, Completion::No))?;
            let is_a = asked == OBJECT || servant.interfaces().contains(&&*asked);
            reply.result(|to| is_a.encode(to))
        }
        "_non_existent" | "_not_existent" => reply.result(|to| false.encode(to)),
        "_repository_id" => reply.result(|to| servant.interfaces().first().unwrap_or(&OBJECT).encode(to)),
        "_interface" => Err(SystemException::new(Kind::IntfRepos, 0, Completion::No)),
        "_component" => reply.result(|to| Reference::default().encode(to)),
        _ => Err(bad_operation()),
    }
}
