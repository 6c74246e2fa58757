//! From a request to its servant: one look-up each for adapter, object and operation.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use punctual_giop::exception::minor;
use punctual_giop::message::Request;
use punctual_giop::{
    Completion, Decode, Decoder, Encode, Reference, SystemException, SystemExceptionKind as Kind,
};

use super::Poa;
use super::adapter::Adapter;
use super::key::{Key, NOWHERE, ObjectId};
use super::policy::ServantRetention;
use super::registry::Registry;
use super::serving::{Diversion, Serving};
use crate::exception::{bad_operation, marshal, no_adapter, not_active, panicked};
use crate::reply::{Reply, Servant};

/// The interface that all objects have.
const OBJECT: &str = "IDL:omg.org/CORBA/Object:1.0";

/// What is called, and with what.
pub(crate) struct Incoming<'c, 'm> {
    pub operation: &'c str,
    pub arguments: Decoder<'m>,
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
    pub fn dispatch(self: &Arc<Self>, request: &Request<'_>, arguments: Decoder<'_>, reply: &mut Reply<'_>) {
        let mut call = Incoming { operation: request.operation, arguments };
        let served = match request.target.object_key() {
            Ok(key) => self.serve(key, &mut call, reply),
            Err(_) => Err(not_active().into()),
        };
        match served {
            Ok(()) => {}
            Err(Diversion::Exception(exception)) => reply.system(&exception),
            Err(Diversion::Forward(to)) => {
                if let Err(exception) = reply.forward(&to) {
                    reply.system(&exception);
                }
            }
        }
    }

    fn serve(
        self: &Arc<Self>,
        key: &[u8],
        call: &mut Incoming<'_, '_>,
        reply: &mut Reply<'_>,
    ) -> Result<(), Diversion> {
        let Some(key) = Key::parse(key) else {
            return Err(self.of_key(key).map_or_else(|| not_active().into(), Diversion::Forward));
        };
        if key.process != self.process {
            let poa = self.find(&key).ok_or_else(no_adapter)?;
            poa.adapter().manager.admit()?;
            return poa.serve_by_id(&key.id(), call, reply);
        }
        let adapter = self.adapters.get(key.adapter).ok_or_else(no_adapter)?;
        adapter.manager.admit()?;
        if key.object != NOWHERE
            && let Some(active) = self.objects.get(key.object)
            && active.adapter == key.adapter
        {
            return Ok(adapter.upcall(&*active.servant, call, reply)?);
        }
        Poa::of(self, &adapter).serve_by_id(&key.id(), call, reply)
    }

    /// The adapter of a key that another process made.
    fn find(self: &Arc<Self>, key: &Key<'_>) -> Option<Poa> {
        let mut poa = self.root();
        for name in key.names()? {
            poa = poa.find_poa(name, true).ok()?;
        }
        Some(poa)
    }

    /// Where an object is.
    pub fn locate(self: &Arc<Self>, key: &[u8]) -> Located {
        let Some(key) = Key::parse(key) else {
            return self.of_key(key).map_or(Located::Unknown, Located::Forward);
        };
        let is_own = key.process == self.process;
        let poa = match is_own {
            true => self.adapters.get(key.adapter).map(|adapter| Poa::of(self, &adapter)),
            false => self.find(&key),
        };
        match poa {
            Some(poa) if poa.may_serve(&key.id()) => Located::Here,
            _ => Located::Unknown,
        }
    }

    /// Whether a reference with this key is one of this process.
    pub fn is_own(&self, key: &[u8]) -> bool {
        Key::parse(key).is_some_and(|key| key.process == self.process)
    }
}

impl Poa {
    fn may_serve(&self, id: &ObjectId) -> bool {
        self.adapter().objects().by_id.contains_key(id)
            || !matches!(self.adapter().serving(), Serving::Nobody)
    }

    /// Serves a request for an object whose place is not known, or which is not active.
    fn serve_by_id(
        &self,
        id: &ObjectId,
        call: &mut Incoming<'_, '_>,
        reply: &mut Reply<'_>,
    ) -> Result<(), Diversion> {
        let adapter = self.adapter();
        let place = adapter.objects().by_id.get(id).copied();
        if let Some(active) = place.and_then(|place| self.registry().objects.get(place)) {
            return Ok(adapter.upcall(&*active.servant, call, reply)?);
        }
        match adapter.serving() {
            Serving::Nobody => {
                let is_missing = adapter.policies.servant_retention == ServantRetention::NonRetain;
                Err(if is_missing { no_servant() } else { not_active() }.into())
            }
            Serving::Default(servant) => Ok(adapter.upcall(&*servant, call, reply)?),
            Serving::Activator(activator) => {
                let servant = activator.incarnate(id, self)?;
                self.keep(id, &servant, &activator)?;
                Ok(adapter.upcall(&*servant, call, reply)?)
            }
            Serving::Locator(locator) => {
                let (servant, cookie) = locator.preinvoke(id, self, call.operation)?;
                let served = adapter.upcall(&*servant, call, reply);
                locator.postinvoke(id, self, call.operation, cookie, servant);
                Ok(served?)
            }
        }
    }
}

fn no_servant() -> SystemException {
    SystemException::new(Kind::ObjAdapter, minor::NO_SERVANT, Completion::No)
}

impl Adapter {
    /// Calls a servant.
    fn upcall(
        &self,
        servant: &dyn Servant,
        call: &mut Incoming<'_, '_>,
        reply: &mut Reply<'_>,
    ) -> Result<(), SystemException> {
        let _serves = self.enter();
        let _turn = self.turns.as_ref().map(|turns| turns.enter());
        let Some(operation) = servant.operations().find(call.operation) else {
            return implicit(servant, call, reply);
        };
        // A servant that panics answers UNKNOWN; its own state is its own matter.
        let dispatch = AssertUnwindSafe(|| servant.dispatch(operation, &mut call.arguments, reply));
        catch_unwind(dispatch).unwrap_or_else(|_| Err(panicked()))
    }
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
