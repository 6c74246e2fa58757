//! The Portable Object Adapter (CORBA 11): which servant implements which object.
//!
//! | module | owns |
//! |---|---|
//! | `policy` | the seven policies |
//! | `key` | object keys: places with generations, and names |
//! | `registry` | all adapters and objects of an ORB, by place |
//! | `adapter` | one adapter, and its objects by identifier |
//! | `manager` | whether requests are served, wait or are refused |
//! | `serving` | default servants, servant managers, adapter activators |
//! | `dispatch` | from a request to its servant |

mod adapter;
mod dispatch;
mod error;
mod key;
mod manager;
mod one_at_a_time;
mod policy;
mod registry;
mod serving;

use std::fmt;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use punctual_giop::Reference;

use adapter::{Adapter, address};
use key::NOWHERE;
use registry::Active;
use serving::Serving;

use crate::reply::Servant;

pub(crate) use dispatch::Located;
pub use error::PoaError;
pub use key::ObjectId;
pub use manager::{Inactive, Manager, State};
pub use policy::{
    IdAssignment, IdUniqueness, ImplicitActivation, Lifespan, Policies, RequestProcessing, ServantRetention,
    ThreadModel,
};
pub(crate) use registry::Registry;
pub use serving::{AdapterActivator, Cookie, Diversion, ServantActivator, ServantLocator};

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

    fn root(registry: &Arc<Registry>) -> Self {
        Self::make(registry, Vec::new(), Policies::ROOT, Manager::new())
    }

    fn make(registry: &Arc<Registry>, names: Vec<Box<str>>, policies: Policies, manager: Manager) -> Self {
        let entry = registry.adapters.vacant_entry().expect("the table has room for more than memory has");
        let adapter = Arc::new(Adapter::new(names, entry.key(), policies, manager));
        entry.insert(Arc::clone(&adapter));
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
        let manager = manager.cloned().unwrap_or_else(Manager::new);
        let child = Self::make(&self.registry, names, policies, manager);
        children.insert(name.into(), child.clone());
        Ok(child)
    }

    /// The child with this name; if there is none and `activate` is set, the adapter activator may make it.
    ///
    /// # Errors
    /// [`PoaError::AdapterNonExistent`].
    pub fn find_poa(&self, name: &str, activate: bool) -> Result<Self, PoaError> {
        let find = || self.adapter.children().get(name).cloned();
        if let Some(child) = find() {
            return Ok(child);
        }
        let activator = self.adapter.activator.read().unwrap_or_else(PoisonError::into_inner).clone();
        match activator {
            Some(activator) if activate && activator.unknown_adapter(self, name) => {
                find().ok_or(PoaError::AdapterNonExistent)
            }
            _ => Err(PoaError::AdapterNonExistent),
        }
    }

    /// Who makes children that references name and that do not exist.
    pub fn set_adapter_activator(&self, activator: Option<Arc<dyn AdapterActivator>>) {
        *self.adapter.activator.write().unwrap_or_else(PoisonError::into_inner) = activator;
    }

    /// Ends the adapter and its children: their objects are not active any more. Waits for requests that are
    /// being served if `wait` is set; a servant must not wait for itself.
    pub fn destroy(&self, wait: bool) {
        let children: Vec<Self> = self.adapter.children().drain().map(|(_, child)| child).collect();
        children.iter().for_each(|child| child.destroy(wait));
        if self.adapter.is_destroyed.swap(true, Ordering::SeqCst) {
            return;
        }
        self.registry.adapters.remove(self.adapter.place);
        if let Some((name, above)) = self.adapter.names.split_last() {
            let mut parent = Some(self.registry.root());
            for name in above {
                parent = parent.and_then(|parent| parent.find_poa(name, false).ok());
            }
            if let Some(parent) = parent {
                parent.adapter.children().remove(name);
            }
        }
        let places: Vec<usize> = self.adapter.objects().by_id.drain().map(|(_, place)| place).collect();
        self.adapter.objects().by_servant.clear();
        for place in places {
            self.registry.objects.remove(place);
        }
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
        let activator = activator.map(|activator| Box::new((Arc::clone(activator), self.clone())));
        let active = Active { adapter: self.adapter.place, id: id.clone(), servant, activator };
        let place = self.registry.objects.insert(active);
        objects.by_id.insert(id, place.expect("the table has room for more than memory has"));
        Ok(())
    }

    /// Keeps what an activator made.
    fn keep(
        &self,
        id: &ObjectId,
        servant: &Arc<dyn Servant>,
        activator: &Arc<dyn ServantActivator>,
    ) -> Result<(), Diversion> {
        match self.activate(id.clone(), Arc::clone(servant), Some(activator)) {
            // Two requests came at once: the first one's servant serves those that come.
            Ok(()) | Err(PoaError::ObjectAlreadyActive) => Ok(()),
            Err(_) => Err(crate::exception::adapter_failed().into()),
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
        let place = self.adapter.objects().by_id.get(id).copied().unwrap_or(NOWHERE);
        let is_persistent = self.adapter.policies.lifespan == Lifespan::Persistent;
        let names = is_persistent.then_some(&self.adapter.names[..]);
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

    /// The identifier of the object that a servant implements; it is activated if policies say so.
    ///
    /// # Errors
    /// [`PoaError::ServantNotActive`].
    pub fn servant_to_id(&self, servant: &Arc<dyn Servant>) -> Result<ObjectId, PoaError> {
        if let Some(id) = self.adapter.objects().by_servant.get(&address(servant)) {
            return Ok(id.clone());
        }
        match self.adapter.policies.implicit_activation {
            ImplicitActivation::Yes => self.activate_object(Arc::clone(servant)),
            ImplicitActivation::No => Err(PoaError::ServantNotActive),
        }
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
