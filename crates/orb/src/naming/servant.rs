//! The service: contexts as objects.

use std::collections::HashMap;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Instant;

use punctual_giop::reference::corbaname::{Corbaname, Name as TextName, NamePart};
use punctual_giop::{Reference, SystemException, SystemExceptionKind as Kind};

use super::cos_naming::naming_context::{
    BindContextError, BindError, BindNewContextError, CannotProceed, DestroyError, NotFoundReason,
    RebindContextError, RebindError, ResolveError, UnbindError,
};
use super::cos_naming::naming_context_ext::{
    InvalidAddress, ResolveStrError, ToNameError, ToStringError, ToUrlError,
};
use super::cos_naming::{
    BindingIterator, BindingList, Name, NameComponent, NamingContext, NamingContextExtServant,
    NamingContextExtSkeleton, NamingContextServant,
};
use super::failure::{Failure, Uncreated, failure, system, undeclared};
use super::iterator::{Iterators, Pages, bindings};
use super::tree::{Bound, ContextNumber, Page, Part, Refused, Tree};
use crate::counted::Mutex;
use crate::limits::NAMING_CONTEXT_IDLE;
use crate::poa::{ObjectId, Poa, PoaError};
use crate::{Cow, Orb, Servant};

/// The key of the root context, for `corbaloc::HOST/NameService`.
const ROOT_KEY: &str = "NameService";

/// Starts a naming service in this ORB, whose root context has the key `NameService`: its reference.
///
/// # Errors
/// If the ORB does not listen, or has one already.
pub fn serve(orb: &Orb) -> Result<Reference, PoaError> {
    let poa = orb.root_poa().create_poa("naming", crate::poa::Policies::default(), None)?;
    poa.manager().activate().map_err(|_| PoaError::NoAddress)?;
    let state = State::default();
    let iterators = Iterators::new(poa.clone());
    let service = Arc::new(Service { poa, iterators, state: Mutex::new(state) });
    let (root, _) = service.create(true).map_err(|uncreated| match uncreated {
        Uncreated::Adapter(error) => error,
        // It is the first context.
        Uncreated::Full => PoaError::NoAddress,
    })?;
    orb.set_key(ROOT_KEY, root.clone());
    Ok(root)
}

type Key = Box<[u8]>;

/// Contexts, and which object each is.
#[derive(Default)]
struct State {
    tree: Tree,
    /// By the keys of their references.
    active: HashMap<Key, ContextNumber>,
    objects: HashMap<ContextNumber, (ObjectId, Key)>,
}

impl State {
    /// Removes what is known of a context that the tree has no more: its object.
    fn forget(&mut self, number: ContextNumber) -> Option<ObjectId> {
        let (object, key) = self.objects.remove(&number)?;
        self.active.remove(&key);
        Some(object)
    }

    /// The object of a context. `false` if the context had to give way already.
    fn is_object(&mut self, number: ContextNumber, object: ObjectId, key: Key) -> bool {
        let is_there = self.tree.has(number);
        if is_there {
            self.active.insert(key.clone(), number);
            self.objects.insert(number, (object, key));
        }
        is_there
    }
}

struct Service {
    poa: Poa,
    iterators: Arc<Iterators>,
    state: Mutex<State>,
}

fn key_of(reference: &Reference) -> Option<Box<[u8]>> {
    reference.iiop_profiles().find_map(|profile| Some(profile.ok()?.object_key.into()))
}

impl Service {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A new context and its object.
    fn create(self: &Arc<Self>, is_root: bool) -> Result<(Reference, ContextNumber), Uncreated> {
        let number = self.new_number().map_err(|_| Uncreated::Full)?;
        let context = Context { service: Arc::clone(self), number, is_root };
        let servant: Arc<dyn Servant> = Arc::new(NamingContextExtSkeleton::new(context));
        let id = self.poa.activate_object(servant)?;
        let reference = self.poa.id_to_reference(&id)?;
        let key = key_of(&reference).ok_or(PoaError::NoAddress)?;
        if !self.lock().is_object(number, id.clone(), key) {
            self.end_object(&id);
            return Err(Uncreated::Full);
        }
        Ok((reference, number))
    }

    /// A context. If there is no room, contexts that no name leads to give way.
    fn new_number(&self) -> Result<ContextNumber, Refused> {
        let mut state = self.lock();
        let mut gone = Vec::new();
        if state.tree.is_full() {
            gone = state.tree.make_room(Instant::now(), NAMING_CONTEXT_IDLE);
        }
        let objects: Vec<ObjectId> = gone.into_iter().filter_map(|number| state.forget(number)).collect();
        let number = state.tree.create();
        drop(state);
        objects.iter().for_each(|id| self.end_object(id));
        number
    }

    /// Removes an empty context and its object.
    fn destroy(&self, number: ContextNumber) -> Result<(), Refused> {
        let mut state = self.lock();
        state.tree.destroy(number)?;
        let object = state.forget(number);
        drop(state);
        object.iter().for_each(|id| self.end_object(id));
        Ok(())
    }

    fn end_object(&self, id: &ObjectId) {
        // It is active, unless the adapter has ended.
        let _ = self.poa.deactivate_object(id);
    }
}

impl Pages for Service {
    fn page(&self, context: ContextNumber, after: Option<&Part>, how_many: usize) -> Page {
        self.lock().tree.list(context, after, how_many).unwrap_or_default()
    }
}

/// A context.
struct Context {
    service: Arc<Service>,
    number: ContextNumber,
    is_root: bool,
}

impl Context {
    /// The context in which the last part of the name is, and that part.
    fn place<'n>(
        &self,
        state: &State,
        name: &'n [NameComponent],
    ) -> Result<(ContextNumber, &'n NameComponent), Failure> {
        let (last, parts) = name.split_last().ok_or(Failure::InvalidName)?;
        let mut here = self.number;
        for (number, part) in parts.iter().enumerate() {
            let bound = state.tree.get(here, part);
            let bound =
                bound.map_err(|refused| failure(refused, &name[number..], NotFoundReason::NotContext))?;
            here = match bound {
                Bound::Context(_, Some(inner)) => *inner,
                // It is in another service: the client continues there.
                Bound::Context(reference, None) => {
                    let (cxt, rest_of_name) = (NamingContext(reference.clone()), name[number + 1..].to_vec());
                    return Err(Failure::CannotProceed(CannotProceed { cxt, rest_of_name }));
                }
                Bound::Object(_) => {
                    return Err(failure(Refused::OtherKind, &name[number..], NotFoundReason::NotContext));
                }
            };
        }
        Ok((here, last))
    }

    fn set(
        &self,
        name: &[NameComponent],
        reference: &Reference,
        is_context: bool,
        replaces: bool,
    ) -> Result<(), Failure> {
        let mut state = self.service.lock();
        let (context, last) = self.place(&state, name)?;
        let bound = if is_context {
            if reference.is_nil() {
                return Err(system(Kind::BadParam));
            }
            let own = key_of(reference).and_then(|key| state.active.get(&key).copied());
            Bound::Context(reference.clone(), own)
        } else {
            Bound::Object(reference.clone())
        };
        let wanted = if is_context { NotFoundReason::NotContext } else { NotFoundReason::NotObject };
        let last = std::slice::from_ref(last);
        state.tree.bind(context, &last[0], bound, replaces).map_err(|refused| failure(refused, last, wanted))
    }

    fn get(&self, name: &[NameComponent]) -> Result<Reference, Failure> {
        let state = self.service.lock();
        let (context, last) = self.place(&state, name)?;
        let last = std::slice::from_ref(last);
        let bound = state.tree.get(context, &last[0]);
        let bound = bound.map_err(|refused| failure(refused, last, NotFoundReason::NotObject))?;
        Ok(bound.reference().clone())
    }

    fn remove(&self, name: &[NameComponent]) -> Result<(), Failure> {
        let mut state = self.service.lock();
        let (context, last) = self.place(&state, name)?;
        let last = std::slice::from_ref(last);
        let removed = state.tree.unbind(context, &last[0]);
        removed.map_err(|refused| failure(refused, last, NotFoundReason::NotObject))
    }

    fn end(&self) -> Result<(), Failure> {
        if self.is_root {
            return Err(system(Kind::NoPermission));
        }
        let destroyed = self.service.destroy(self.number);
        destroyed.map_err(|refused| failure(refused, &[], NotFoundReason::NotContext))
    }

    /// The first bindings, and an iterator that has the rest.
    fn begin_list(&self, how_many: u32) -> Result<(BindingList, BindingIterator), Failure> {
        let listed = self.service.lock().tree.list(self.number, None, how_many as usize);
        let mut listed = listed.map_err(|refused| failure(refused, &[], NotFoundReason::NotContext))?;
        let rest = match listed.continues.take() {
            Some(after) => {
                let pages = Arc::<Service>::clone(&self.service);
                self.service.iterators.begin(pages, self.number, after)?
            }
            None => BindingIterator::default(),
        };
        Ok((bindings(listed), rest))
    }
}

impl NamingContextServant for Context {
    fn bind(&self, n: &[NameComponent], obj: &Reference) -> Result<(), BindError> {
        Ok(self.set(n, obj, false, false)?)
    }

    fn rebind(&self, n: &[NameComponent], obj: &Reference) -> Result<(), RebindError> {
        Ok(self.set(n, obj, false, true)?)
    }

    fn bind_context(&self, n: &[NameComponent], nc: &NamingContext) -> Result<(), BindContextError> {
        Ok(self.set(n, &nc.0, true, false)?)
    }

    fn rebind_context(&self, n: &[NameComponent], nc: &NamingContext) -> Result<(), RebindContextError> {
        Ok(self.set(n, &nc.0, true, true)?)
    }

    fn resolve(&self, n: &[NameComponent]) -> Result<Reference, ResolveError> {
        Ok(self.get(n)?)
    }

    fn unbind(&self, n: &[NameComponent]) -> Result<(), UnbindError> {
        Ok(self.remove(n)?)
    }

    fn new_context(&self) -> Result<NamingContext, SystemException> {
        let created = self.service.create(false).map_err(|uncreated| undeclared(uncreated.into()));
        created.map(|(reference, _)| NamingContext(reference))
    }

    fn bind_new_context(&self, n: &[NameComponent]) -> Result<NamingContext, BindNewContextError> {
        let (context, number) = self.service.create(false).map_err(Failure::from)?;
        if let Err(failure) = self.set(n, &context, true, false) {
            // Nobody knows it.
            let _ = self.service.destroy(number);
            return Err(failure.into());
        }
        Ok(NamingContext(context))
    }

    fn destroy(&self) -> Result<(), DestroyError> {
        Ok(self.end()?)
    }

    fn list(&self, how_many: u32) -> Result<(BindingList, BindingIterator), SystemException> {
        self.begin_list(how_many).map_err(undeclared)
    }
}

/// A name as text.
fn text(name: &[NameComponent]) -> Result<String, Failure> {
    if name.is_empty() {
        return Err(Failure::InvalidName);
    }
    let part = |part: &NameComponent| NamePart { id: part.id.clone(), kind: part.kind.clone() };
    Ok(TextName(name.iter().map(part).collect()).to_string())
}

fn parsed(text: &str) -> Result<Name, Failure> {
    let name = TextName::parse(text).map_err(|_| Failure::InvalidName)?;
    Ok(name.0.into_iter().map(|part| NameComponent { id: part.id, kind: part.kind }).collect())
}

impl NamingContextExtServant for Context {
    fn to_string<'a>(&'a self, n: &'a [NameComponent]) -> Result<Cow<'a, str>, ToStringError> {
        Ok(text(n)?.into())
    }

    fn to_name(&self, sn: &str) -> Result<Name, ToNameError> {
        Ok(parsed(sn)?)
    }

    fn to_url<'a>(&'a self, addr: &'a str, sn: &'a str) -> Result<Cow<'a, str>, ToUrlError> {
        let url = Corbaname::parse(addr).map_err(|_| InvalidAddress {})?;
        if addr.contains('#') {
            return Err(InvalidAddress {}.into());
        }
        let name = Some(TextName::parse(sn).map_err(|_| Failure::InvalidName)?);
        let named = Corbaname { name, ..url }.to_string();
        // The address stays as it is written: only what is behind it is new.
        let behind = named.split_once('#').map_or("", |(_, name)| name);
        Ok(format!("corbaname:{addr}#{behind}").into())
    }

    fn resolve_str(&self, n: &str) -> Result<Reference, ResolveStrError> {
        Ok(self.get(&parsed(n)?)?)
    }
}
