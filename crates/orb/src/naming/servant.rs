//! The service: contexts as objects.

use std::collections::HashMap;
use std::sync::{Arc, MutexGuard, PoisonError};

use punctual_giop::reference::corbaname::{Corbaname, Name as TextName, NamePart};
use punctual_giop::{Completion, Reference, SystemException, SystemExceptionKind as Kind};

use super::cos_naming::naming_context::{
    AlreadyBound, BindContextError, BindError, BindNewContextError, CannotProceed, DestroyError, InvalidName,
    NotEmpty, NotFound, NotFoundReason, RebindContextError, RebindError, ResolveError, UnbindError,
};
use super::cos_naming::naming_context_ext::{
    InvalidAddress, ResolveStrError, ToNameError, ToStringError, ToUrlError,
};
use super::cos_naming::{
    Binding, BindingIterator, BindingList, BindingType, Name, NameComponent, NamingContext,
    NamingContextExtServant, NamingContextExtSkeleton, NamingContextServant,
};
use super::iterator::Iterators;
use super::tree::{Bound, ContextNumber, Refused, Tree};
use crate::counted::Mutex;
use crate::poa::{Poa, PoaError};
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
    let state = State { tree: Tree::default(), active: HashMap::new() };
    let iterators = Iterators::new(poa.clone());
    let service = Arc::new(Service { poa, iterators, state: Mutex::new(state) });
    let root = service.create(true)?;
    orb.set_key(ROOT_KEY, root.clone());
    Ok(root)
}

/// Contexts, and which object each is.
struct State {
    tree: Tree,
    /// By the keys of their references.
    active: HashMap<Box<[u8]>, ContextNumber>,
}

struct Service {
    poa: Poa,
    iterators: Arc<Iterators>,
    state: Mutex<State>,
}

/// Why an operation fails: each of them has some of these as its exceptions.
enum Failure {
    NotFound(NotFound),
    CannotProceed(CannotProceed),
    InvalidName,
    AlreadyBound,
    NotEmpty,
    System(SystemException),
}

fn system(kind: Kind) -> Failure {
    Failure::System(SystemException::new(kind, 0, Completion::No))
}

impl From<PoaError> for Failure {
    fn from(_: PoaError) -> Self {
        system(Kind::ObjAdapter)
    }
}

/// The exceptions that an operation declares: with a name that leads nowhere; then the others. What it does not declare does
/// not occur in it, and would be `INTERNAL`.
macro_rules! raises {
    ($($error:ident: $($pattern:pat => $exception:expr),*;)*) => { $(
        impl From<Failure> for $error {
            fn from(failure: Failure) -> Self {
                match failure {
                    $($pattern => $exception.into(),)*
                    Failure::System(exception) => exception.into(),
                    #[allow(unreachable_patterns, reason = "an operation may declare all of them")]
                    _ => SystemException::new(Kind::Internal, 0, Completion::Maybe).into(),
                }
            }
        }
    )* };
}

use Failure as F;

raises! {
    BindError: F::NotFound(e) => e, F::CannotProceed(e) => e, F::InvalidName => InvalidName {}, F::AlreadyBound => AlreadyBound {};
    RebindError: F::NotFound(e) => e, F::CannotProceed(e) => e, F::InvalidName => InvalidName {};
    BindContextError: F::NotFound(e) => e, F::CannotProceed(e) => e, F::InvalidName => InvalidName {}, F::AlreadyBound => AlreadyBound {};
    RebindContextError: F::NotFound(e) => e, F::CannotProceed(e) => e, F::InvalidName => InvalidName {};
    ResolveError: F::NotFound(e) => e, F::CannotProceed(e) => e, F::InvalidName => InvalidName {};
    UnbindError: F::NotFound(e) => e, F::CannotProceed(e) => e, F::InvalidName => InvalidName {};
    BindNewContextError: F::NotFound(e) => e, F::CannotProceed(e) => e, F::InvalidName => InvalidName {}, F::AlreadyBound => AlreadyBound {};
    DestroyError: F::NotEmpty => NotEmpty {};
    ResolveStrError: F::NotFound(e) => e, F::CannotProceed(e) => e, F::InvalidName => InvalidName {};
    ToStringError: F::InvalidName => InvalidName {};
    ToNameError: F::InvalidName => InvalidName {};
    ToUrlError: F::InvalidName => InvalidName {};
}

/// What a refusal of the tree means for the last part of a name.
fn failure(refused: Refused, last: &[NameComponent], wanted: NotFoundReason) -> Failure {
    let not_found = |why| Failure::NotFound(NotFound { why, rest_of_name: last.to_vec() });
    match refused {
        Refused::Gone => system(Kind::ObjectNotExist),
        Refused::Missing => not_found(NotFoundReason::MissingNode),
        Refused::OtherKind => not_found(wanted),
        Refused::AlreadyBound => Failure::AlreadyBound,
        Refused::NotEmpty => Failure::NotEmpty,
        Refused::Full => system(Kind::ImpLimit),
    }
}

fn key_of(reference: &Reference) -> Option<Box<[u8]>> {
    reference.iiop_profiles().find_map(|profile| Some(profile.ok()?.object_key.into()))
}

impl Service {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A new context and its object.
    fn create(self: &Arc<Self>, is_root: bool) -> Result<Reference, PoaError> {
        let number = self.lock().tree.create().map_err(|_| PoaError::NoAddress)?;
        let context = Context { service: Arc::clone(self), number, is_root };
        let servant: Arc<dyn Servant> = Arc::new(NamingContextExtSkeleton::new(context));
        let id = self.poa.activate_object(servant)?;
        let reference = self.poa.id_to_reference(&id)?;
        let key = key_of(&reference).ok_or(PoaError::NoAddress)?;
        self.lock().active.insert(key, number);
        Ok(reference)
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
        let mut state = self.service.lock();
        let destroyed = state.tree.destroy(self.number);
        destroyed.map_err(|refused| failure(refused, &[], NotFoundReason::NotContext))?;
        state.active.retain(|_, number| *number != self.number);
        Ok(())
    }

    fn bindings(&self) -> Result<Vec<Binding>, Failure> {
        let listed = self.service.lock().tree.list(self.number);
        let listed = listed.map_err(|refused| failure(refused, &[], NotFoundReason::NotContext))?;
        let binding = |(part, is_context)| Binding {
            binding_name: vec![part],
            binding_type: if is_context { BindingType::Ncontext } else { BindingType::Nobject },
        };
        Ok(listed.into_iter().map(binding).collect())
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
        let created = self.service.create(false);
        created.map(NamingContext).map_err(|_| SystemException::new(Kind::ImpLimit, 0, Completion::No))
    }

    fn bind_new_context(&self, n: &[NameComponent]) -> Result<NamingContext, BindNewContextError> {
        let context = NamingContext(self.service.create(false).map_err(Failure::from)?);
        self.set(n, &context.0, true, false)?;
        Ok(context)
    }

    fn destroy(&self) -> Result<(), DestroyError> {
        Ok(self.end()?)
    }

    fn list(&self, how_many: u32) -> Result<(BindingList, BindingIterator), SystemException> {
        let unlisted = |failure| match failure {
            Failure::System(exception) => exception,
            _ => SystemException::new(Kind::Internal, 0, Completion::Maybe),
        };
        let mut first = self.bindings().map_err(unlisted)?;
        let rest = first.split_off(first.len().min(how_many as usize));
        let rest = self.service.iterators.begin(rest);
        Ok((first, rest.map_err(|refused| unlisted(refused.into()))?))
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
        let mut url = Corbaname::parse(addr).map_err(|_| InvalidAddress {})?;
        if url.name.is_some() {
            return Err(InvalidAddress {}.into());
        }
        url.name = Some(TextName::parse(sn).map_err(|_| Failure::InvalidName)?);
        Ok(url.to_string().into())
    }

    fn resolve_str(&self, n: &str) -> Result<Reference, ResolveStrError> {
        Ok(self.get(&parsed(n)?)?)
    }
}
