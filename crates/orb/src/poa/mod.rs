//! The Portable Object Adapter (CORBA 11): which servant implements which object.
//!
//! | module | owns |
//! |---|---|
//! | `policy` | the seven policies |
//! | `key` | object keys: places with generations, and names |
//! | `registry` | all adapters and objects of an ORB, by place |
//! | `registry::adapter` | one adapter, and its objects by identifier |
//! | `manager` | whether requests are served, wait or are refused |
//! | `refusal` | why a request is not served now |
//! | `serving` | default servants, servant managers, adapter activators |
//! | `dispatch` | from a request to its servant |

mod dispatch;
mod error;
mod key;
mod manager;
mod one_at_a_time;
mod policy;
mod refusal;
mod registry;
mod serving;

use std::fmt;
use std::ptr;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError, Weak};

use punctual_giop::Reference;

use key::NOWHERE;
use manager::Managed as _;
use refusal::{Refusal, ending};
use registry::{Active, address};
use serving::Serving;

use crate::counted::{Counted, count};
use crate::exception::adapter_failed;
use crate::frames::innermost;
use crate::reply::Servant;

pub(crate) use dispatch::Located;
pub(crate) use key::id_of_key;
pub(crate) use refusal::Served;

pub use error::PoaError;
pub use key::ObjectId;
pub use manager::{Inactive, Manager, State};
pub use policy::{
    IdAssignment, IdUniqueness, ImplicitActivation, Lifespan, Policies, RequestProcessing, ServantRetention,
    ThreadModel,
};
pub(crate) use registry::{Adapter, Registry};
pub use serving::{AdapterActivator, Cookie, Diversion, Ending, ServantActivator, ServantLocator};

/// An object adapter.
#[derive(Clone)]
pub struct Poa {
    registry: Arc<Registry>,
    adapter: Arc<Adapter>,
}

impl fmt::Debug for Poa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Poa({})", self.adapter.names.join("/"))
    }
}

impl Poa {
    fn of(registry: &Arc<Registry>, adapter: &Arc<Adapter>) -> Self {
        Self { registry: Arc::clone(registry), adapter: Arc::clone(adapter) }
    }

    /// The adapter, as applications have it. `None` if its ORB has ended.
    pub(crate) fn of_adapter(adapter: &Arc<Adapter>) -> Option<Self> {
        Some(Self::of(&adapter.registry.upgrade()?, adapter))
    }

    fn root(registry: &Arc<Registry>) -> Self {
        Self::make(registry, Vec::new(), Policies::ROOT, Manager::new(&registry.managers))
    }

    fn make(registry: &Arc<Registry>, names: Vec<Box<str>>, policies: Policies, manager: Manager) -> Self {
        let entry = registry.adapters.vacant_entry().expect("the table has room for more than memory has");
        let adapter = Arc::new(Adapter::new(registry, names, entry.key(), policies, manager.clone()));
        entry.insert(Arc::clone(&adapter));
        let managed: Weak<Adapter> = Arc::downgrade(&adapter);
        manager.add(managed);
        Self::of(registry, &adapter)
    }

    fn adapter(&self) -> &Arc<Adapter> {
        &self.adapter
    }

    fn registry(&self) -> &Arc<Registry> {
        &self.registry
    }

    /// Its name; that of the root is empty.
    pub fn name(&self) -> &str {
        self.adapter.names.last().map_or("", |name| name)
    }

    /// Its policies.
    pub fn policies(&self) -> Policies {
        self.adapter.policies
    }

    /// What decides whether its requests are served.
    pub fn manager(&self) -> &Manager {
        &self.adapter.manager
    }

    /// Makes a child. Without a manager it gets a new one, which holds requests until it is activated.
    ///
    /// # Errors
    /// [`PoaError::AdapterAlreadyExists`], [`PoaError::InvalidPolicy`], [`PoaError::Destroyed`].
    pub fn create_poa(
        &self,
        name: &str,
        policies: Policies,
        manager: Option<&Manager>,
    ) -> Result<Self, PoaError> {
        if let Some(contradiction) = policies.contradiction() {
            return Err(PoaError::InvalidPolicy(contradiction));
        }
        let mut children = self.adapter.children();
        if self.adapter.is_destroyed.load(Ordering::SeqCst) {
            return Err(PoaError::Destroyed);
        }
        if children.contains_key(name) {
            return Err(PoaError::AdapterAlreadyExists);
        }
        if name.len() > usize::from(u16::MAX) || self.adapter.names.len() >= usize::from(u16::MAX) {
            return Err(PoaError::InvalidPolicy("a name has at most 65,535 bytes, a path as many names"));
        }
        let mut names = self.adapter.names.clone();
        names.push(name.into());
        let manager = manager.cloned().unwrap_or_else(|| Manager::new(&self.registry.managers));
        let child = Self::make(&self.registry, names, policies, manager);
        children.insert(name.into(), child.clone());
        Ok(child)
    }

    /// The child with this name; if there is none and `activate` is set, the adapter activator may make it.
    ///
    /// # Errors
    /// [`PoaError::AdapterNonExistent`].
    pub fn find_poa(&self, name: &str, activate: bool) -> Result<Self, PoaError> {
        if let Some(child) = self.child(name) {
            return Ok(child);
        }
        match self.activator() {
            Some(activator) if activate => self.activate_child(name, &*activator),
            _ => Err(PoaError::AdapterNonExistent),
        }
    }

    fn child(&self, name: &str) -> Option<Self> {
        count(Counted::Adapter);
        self.adapter.children().get(name).cloned()
    }

    fn activator(&self) -> Option<Arc<dyn AdapterActivator>> {
        self.adapter.activator.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Lets the activator make a child. Whoever asks for it meanwhile waits.
    fn activate_child(&self, name: &str, activator: &dyn AdapterActivator) -> Result<Self, PoaError> {
        let _turn = self.adapter.activations.enter();
        if let Some(child) = self.child(name) {
            return Ok(child);
        }
        let is_made = activator.unknown_adapter(self, name);
        self.child(name).filter(|_| is_made).ok_or(PoaError::AdapterNonExistent)
    }

    /// The adapter above; `None` for the root, or if it was destroyed.
    pub fn parent(&self) -> Option<Self> {
        let (_, above) = self.adapter.names.split_last()?;
        above.iter().try_fold(self.registry.root(), |poa, name| poa.child(name))
    }

    /// The adapters below, by name.
    pub fn children(&self) -> Vec<Self> {
        let mut children: Vec<Self> = self.adapter.children().values().cloned().collect();
        children.sort_by(|one, other| one.name().cmp(other.name()));
        children
    }

    /// Who makes children that references name and that do not exist.
    pub fn set_adapter_activator(&self, activator: Option<Arc<dyn AdapterActivator>>) {
        *self.adapter.activator.write().unwrap_or_else(PoisonError::into_inner) = activator;
    }

    /// Ends the adapter and its children: their objects are not active any more. With `etherealize`, servant
    /// activators are told. Waits for requests that are being served if `wait` is set; a servant must not wait
    /// for itself.
    pub fn destroy(&self, etherealize: bool, wait: bool) {
        let children: Vec<Self> = self.adapter.children().drain().map(|(_, child)| child).collect();
        children.iter().for_each(|child| child.destroy(etherealize, wait));
        let parent = self.parent();
        if self.adapter.is_destroyed.swap(true, Ordering::SeqCst) {
            return;
        }
        self.adapter.is_silent.store(!etherealize, Ordering::SeqCst);
        self.adapter.is_ending.store(true, Ordering::SeqCst);
        self.registry.adapters.remove(self.adapter.place);
        if let Some(parent) = parent {
            parent.adapter.children().remove(self.name());
        }
        self.adapter.end_all();
        *self.adapter.serving.write().unwrap_or_else(PoisonError::into_inner) = Serving::Nobody;
        if wait {
            self.adapter.wait_until_idle();
        }
    }

    fn retains(&self) -> bool {
        self.adapter.policies.servant_retention == ServantRetention::Retain
    }

    /// Activates an object with an identifier of the adapter's.
    ///
    /// # Errors
    /// [`PoaError::WrongPolicy`], [`PoaError::ServantAlreadyActive`].
    pub fn activate_object(&self, servant: Arc<dyn Servant>) -> Result<ObjectId, PoaError> {
        if self.adapter.policies.id_assignment == IdAssignment::User || !self.retains() {
            return Err(PoaError::WrongPolicy);
        }
        let id = self.adapter.objects().next_id();
        self.activate(id.clone(), servant, None)?;
        Ok(id)
    }

    /// Activates the object with this identifier.
    ///
    /// # Errors
    /// [`PoaError::WrongPolicy`], [`PoaError::ObjectAlreadyActive`], [`PoaError::ServantAlreadyActive`].
    pub fn activate_object_with_id(&self, id: ObjectId, servant: Arc<dyn Servant>) -> Result<(), PoaError> {
        let is_own = matches!(id, ObjectId::System(_));
        if !self.retains() || is_own != (self.adapter.policies.id_assignment == IdAssignment::System) {
            return Err(PoaError::WrongPolicy);
        }
        self.activate(id, servant, None)
    }

    fn activate(
        &self,
        id: ObjectId,
        servant: Arc<dyn Servant>,
        activator: Option<&Arc<dyn ServantActivator>>,
    ) -> Result<(), PoaError> {
        let mut objects = self.adapter.objects();
        if self.adapter.is_destroyed.load(Ordering::SeqCst) {
            return Err(PoaError::Destroyed);
        }
        if objects.by_id.contains_key(&id) {
            return Err(PoaError::ObjectAlreadyActive);
        }
        if self.adapter.policies.id_uniqueness == IdUniqueness::Unique {
            if objects.by_servant.contains_key(&address(&servant)) {
                return Err(PoaError::ServantAlreadyActive);
            }
            objects.by_servant.insert(address(&servant), id.clone());
        }
        if self.adapter.has_activator() {
            *objects.uses.entry(address(&servant)).or_default() += 1;
        }
        let activator = activator.map(|activator| Box::new((Arc::clone(activator), self.clone())));
        let active = Active { adapter: self.adapter.place, id: id.clone(), servant, activator };
        let place = self.registry.objects.insert(active);
        objects.by_id.insert(id, place.expect("the table has room for more than memory has"));
        Ok(())
    }

    /// Lets an activator make the servant of an object, and keeps it: its place. Of requests that come at once,
    /// one does.
    fn incarnate(&self, id: &ObjectId, activator: &Arc<dyn ServantActivator>) -> Result<usize, Refusal> {
        self.adapter.wait_for_end(id)?;
        let _turn = self.adapter.incarnations.enter();
        let place = || self.adapter.objects().by_id.get(id).copied();
        if let Some(place) = place() {
            return Ok(place);
        }
        let servant = activator.incarnate(id, self)?;
        match self.activate(id.clone(), servant, Some(activator)) {
            // The second one: the activator has activated it by itself.
            Ok(()) | Err(PoaError::ObjectAlreadyActive) => place().ok_or_else(|| ending().into()),
            Err(_) => Err(adapter_failed().into()),
        }
    }

    /// Deactivates an object. Requests that are being served end as they would.
    ///
    /// # Errors
    /// [`PoaError::ObjectNotActive`], [`PoaError::WrongPolicy`].
    pub fn deactivate_object(&self, id: &ObjectId) -> Result<(), PoaError> {
        if !self.retains() {
            return Err(PoaError::WrongPolicy);
        }
        let mut objects = self.adapter.objects();
        let place = objects.by_id.remove(id).ok_or(PoaError::ObjectNotActive)?;
        if let Some(active) = self.registry.objects.get(place) {
            objects.by_servant.remove(&address(&active.servant));
            match active.activator {
                Some(_) => _ = objects.ending.insert(id.clone()),
                None => _ = objects.unuse(address(&active.servant)),
            }
        }
        drop(objects);
        self.registry.objects.remove(place);
        Ok(())
    }

    /// A reference to an object that need not be active.
    ///
    /// # Errors
    /// [`PoaError::NoAddress`], [`PoaError::WrongPolicy`].
    pub fn create_reference_with_id(&self, id: &ObjectId, interface: &str) -> Result<Reference, PoaError> {
        let is_own = matches!(id, ObjectId::System(_));
        if is_own != (self.adapter.policies.id_assignment == IdAssignment::System) {
            return Err(PoaError::WrongPolicy);
        }
        let place = self.adapter.objects().by_id.get(id).copied().unwrap_or(NOWHERE);
        let names = self.is_persistent().then_some(&self.adapter.names[..]);
        let key = key::write(self.registry.process, self.adapter.place, place, names, id);
        self.registry.publish(interface, key)
    }

    /// A reference to a new object that is not active.
    ///
    /// # Errors
    /// [`PoaError::NoAddress`], [`PoaError::WrongPolicy`].
    pub fn create_reference(&self, interface: &str) -> Result<Reference, PoaError> {
        if self.adapter.policies.id_assignment == IdAssignment::User {
            return Err(PoaError::WrongPolicy);
        }
        let id = self.adapter.objects().next_id();
        self.create_reference_with_id(&id, interface)
    }

    /// The reference of an active object.
    ///
    /// # Errors
    /// [`PoaError::ObjectNotActive`], [`PoaError::NoAddress`].
    pub fn id_to_reference(&self, id: &ObjectId) -> Result<Reference, PoaError> {
        let interface = *self.id_to_servant(id)?.interfaces().first().unwrap_or(&"");
        self.create_reference_with_id(id, interface)
    }

    /// The servant of an active object, or the default servant.
    ///
    /// # Errors
    /// [`PoaError::ObjectNotActive`].
    pub fn id_to_servant(&self, id: &ObjectId) -> Result<Arc<dyn Servant>, PoaError> {
        let place = self.adapter.objects().by_id.get(id).copied();
        if let Some(active) = place.and_then(|place| self.registry.objects.get(place)) {
            return Ok(Arc::clone(&active.servant));
        }
        match self.adapter.serving() {
            Serving::Default(servant) => Ok(servant),
            _ => Err(PoaError::ObjectNotActive),
        }
    }

    /// The identifier in a reference that this adapter made.
    ///
    /// # Errors
    /// [`PoaError::WrongAdapter`].
    pub fn reference_to_id(&self, reference: &Reference) -> Result<ObjectId, PoaError> {
        let own = |bytes: &[u8]| {
            let key = key::Key::parse(bytes)?;
            let is_here = key.process == self.registry.process && key.adapter == self.adapter.place;
            let is_named =
                || key.names().is_some_and(|names| names.eq(self.adapter.names.iter().map(|name| &**name)));
            (is_here || self.is_persistent() && is_named()).then(|| key.id())
        };
        let mut profiles = reference.iiop_profiles();
        profiles.find_map(|profile| own(&profile.ok()?.object_key)).ok_or(PoaError::WrongAdapter)
    }

    /// The servant of the object of a reference that this adapter made.
    ///
    /// # Errors
    /// [`PoaError::WrongAdapter`], [`PoaError::ObjectNotActive`].
    pub fn reference_to_servant(&self, reference: &Reference) -> Result<Arc<dyn Servant>, PoaError> {
        self.id_to_servant(&self.reference_to_id(reference)?)
    }

    fn is_persistent(&self) -> bool {
        self.adapter.policies.lifespan == Lifespan::Persistent
    }

    /// The identifier of the object that a servant implements; it is activated if policies say so. For the
    /// default servant, while it serves a request, that of the object that is called.
    ///
    /// # Errors
    /// [`PoaError::ServantNotActive`].
    pub fn servant_to_id(&self, servant: &Arc<dyn Servant>) -> Result<ObjectId, PoaError> {
        if let Serving::Default(default) = self.adapter.serving()
            && address(&default) == address(servant)
            && let Some(id) = self.called()
        {
            return Ok(id);
        }
        if let Some(id) = self.adapter.objects().by_servant.get(&address(servant)) {
            return Ok(id.clone());
        }
        match self.adapter.policies.implicit_activation {
            ImplicitActivation::Yes => self.activate_object(Arc::clone(servant)),
            ImplicitActivation::No => Err(PoaError::ServantNotActive),
        }
    }

    /// The object that is called by the request that this thread serves, if it is one of this adapter.
    fn called(&self) -> Option<ObjectId> {
        let called = innermost(|frame| {
            let adapter = frame.adapter.as_ref()?;
            ptr::addr_eq(Arc::as_ptr(adapter), Arc::as_ptr(&self.adapter)).then(|| id_of_key(&frame.key))
        });
        called.ok().flatten().flatten()
    }

    /// The reference of the object that a servant implements; it is activated if policies say so.
    ///
    /// # Errors
    /// [`PoaError::ServantNotActive`], [`PoaError::NoAddress`].
    pub fn servant_to_reference(&self, servant: &Arc<dyn Servant>) -> Result<Reference, PoaError> {
        let id = self.servant_to_id(servant)?;
        self.create_reference_with_id(&id, servant.interfaces().first().unwrap_or(&""))
    }

    /// Activates an object with this servant: its reference.
    ///
    /// # Errors
    /// Those of [`Poa::activate_object`] and [`Poa::id_to_reference`].
    pub fn serve(&self, servant: impl Servant + 'static) -> Result<Reference, PoaError> {
        let id = self.activate_object(Arc::new(servant))?;
        self.id_to_reference(&id)
    }

    fn set_serving(
        &self,
        needed: RequestProcessing,
        retains: bool,
        serving: Serving,
    ) -> Result<(), PoaError> {
        let policies = &self.adapter.policies;
        let is_default = needed == RequestProcessing::DefaultServant;
        if policies.request_processing != needed || !is_default && self.retains() != retains {
            return Err(PoaError::WrongPolicy);
        }
        *self.adapter.serving.write().unwrap_or_else(PoisonError::into_inner) = serving;
        Ok(())
    }

    /// The servant of all objects that are not active.
    ///
    /// # Errors
    /// [`PoaError::WrongPolicy`].
    pub fn set_default_servant(&self, servant: Arc<dyn Servant>) -> Result<(), PoaError> {
        self.set_serving(RequestProcessing::DefaultServant, true, Serving::Default(servant))
    }

    /// Who makes servants of objects that are not active.
    ///
    /// # Errors
    /// [`PoaError::WrongPolicy`].
    pub fn set_servant_activator(&self, activator: Arc<dyn ServantActivator>) -> Result<(), PoaError> {
        self.set_serving(RequestProcessing::ServantManager, true, Serving::Activator(activator))
    }

    /// Who names a servant for each request.
    ///
    /// # Errors
    /// [`PoaError::WrongPolicy`].
    pub fn set_servant_locator(&self, locator: Arc<dyn ServantLocator>) -> Result<(), PoaError> {
        self.set_serving(RequestProcessing::ServantManager, false, Serving::Locator(locator))
    }
}
