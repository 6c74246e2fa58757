//! From a request to its servant: one look-up each for adapter, object and operation.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use punctual_giop::exception::minor;
use punctual_giop::message::{Message, Request, Target};
use punctual_giop::reassembly::Whole;
use punctual_giop::{
    Completion, Decode, Decoder, Encode, Reference, SystemException, SystemExceptionKind as Kind, TaggedList,
};

use super::Poa;
use super::key::{Key, NOWHERE, ObjectId};
use super::manager::State;
use super::policy::{Bidirectional, RequestProcessing, ServantRetention, ThreadModel};
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

/// Where an object is.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Located {
    /// Here. Its servant may yet be made, or send the caller elsewhere.
    Here,
    /// Nowhere.
    Unknown,
    /// There.
    Forward(Reference),
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
        (active.adapter == key.adapter).then_some(active)
    }

    /// The number of an operation of the object with this key, by the look-ups of a request.
    pub fn find_operation(&self, key: &[u8], operation: &str) -> Option<usize> {
        let key = Key::parse(key).filter(|key| key.process == self.process)?;
        self.adapter_at(key.adapter)?.manager.admit().ok()?;
        self.active(&key)?.servant.operations().find(operation)
    }

    /// The adapter of a key that another process made, or an adapter of this name that was destroyed.
    fn find(self: &Arc<Self>, key: &Key<'_>) -> Result<Poa, Refusal> {
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

    /// Where an object is.
    pub fn locate(self: &Arc<Self>, key: &[u8]) -> Located {
        let Some(key) = Key::parse(key) else {
            return match self.of_key(key) {
                // It never stands for a key that is none.
                Some(Chosen::Own(own)) if Key::is(&own) => self.locate(&own),
                Some(Chosen::Elsewhere(to)) => Located::Forward(to),
                Some(Chosen::Own(_)) | None => Located::Unknown,
            };
        };
        let here = (key.process == self.process).then(|| self.adapter_at(key.adapter)).flatten();
        let poa = match here {
            Some(adapter) => Ok(Poa::of(self, &adapter)),
            None => self.find(&key),
        };
        match poa {
            Ok(poa) if poa.may_serve(&key.id()) => Located::Here,
            // Its request waits.
            Err(Refusal::Held(_)) => Located::Here,
            Ok(_) | Err(Refusal::Diverted(_)) => Located::Unknown,
        }
    }

    /// Whether a request is for an adapter whose servants run in the main thread, and this is another one. A request that
    /// the adapter's manager does not let pass yet is not handed over.
    pub fn wants_main_thread(self: &Arc<Self>, whole: Whole<'_>) -> bool {
        if !self.uses_main.load(Ordering::Relaxed) {
            return false;
        }
        let Ok(Message::Request(request, _)) = Message::read_whole(whole) else { return false };
        self.wants_main_thread_of(&request.target)
    }

    /// The same for a target.
    pub fn wants_main_thread_of(self: &Arc<Self>, target: &Target<'_>) -> bool {
        self.uses_main.load(Ordering::Relaxed)
            && !self.main.is_here()
            && target.object_key().is_ok_and(|key| self.is_of_main_thread(key))
    }

    fn is_of_main_thread(self: &Arc<Self>, key: &[u8]) -> bool {
        let Some(key) = Key::parse(key) else {
            return match self.of_key(key) {
                Some(Chosen::Own(own)) if Key::is(&own) => self.is_of_main_thread(&own),
                _ => false,
            };
        };
        let here = (key.process == self.process).then(|| self.adapters.get(key.adapter)).flatten();
        let adapter = match here {
            Some(adapter) => Ok(Arc::clone(&adapter)),
            None => self.find(&key).map(|poa| Arc::clone(poa.adapter())),
        };
        let is_it = |adapter: Arc<Adapter>| {
            adapter.policies.thread_model == ThreadModel::MainThread
                && adapter.manager.state() == State::Active
        };
        adapter.is_ok_and(is_it)
    }

    /// Whether requests for the object with this key may use connections on which both ends call. Keys that name no
    /// adapter of this process lead to one elsewhere: they may.
    pub fn is_bidirectional(&self, key: &[u8]) -> bool {
        let Some(key) = Key::parse(key) else {
            return match self.of_key(key) {
                Some(Chosen::Own(own)) if Key::is(&own) => self.is_bidirectional(&own),
                _ => true,
            };
        };
        let here = (key.process == self.process).then(|| self.adapters.get(key.adapter)).flatten();
        let adapter = match (here, key.names()) {
            (Some(adapter), _) => Some(Arc::clone(&adapter)),
            (None, Some(mut names)) => {
                let root = self.root();
                names.try_fold(root, |poa, name| poa.child(name)).map(|poa| Arc::clone(poa.adapter()))
            }
            (None, None) => None,
        };
        adapter.is_none_or(|adapter| adapter.policies.bidirectional == Bidirectional::Both)
    }

    /// Whether a reference with this key is one of this process.
    pub fn is_own(&self, key: &[u8]) -> bool {
        Key::parse(key).is_some_and(|key| key.process == self.process)
    }
}

impl Poa {
    fn may_serve(&self, id: &ObjectId) -> bool {
        self.adapter().objects().place(id).is_some() || !matches!(self.adapter().serving(), Serving::Nobody)
    }

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
