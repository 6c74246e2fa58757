//! The Portable Object Adapter (CORBA 11): which servant implements which object.
//!
//! | module | owns |
//! |---|---|
//! | `policy` | the seven policies |
//! | `key` | object keys: places with generations, and names |
//! | `registry` | all adapters and objects of an ORB, by place |
//! | `objects` | activating objects, and their references |
//! | `registry::adapter` | one adapter, and its objects by identifier |
//! | `manager` | whether requests are served, wait or are refused |
//! | `refusal` | why a request is not served now |
//! | `serving` | default servants, servant managers, adapter activators |
//! | `dispatch` | from a request to its servant |
//! | `questions` | what a key says without a call |

mod dispatch;
mod error;
mod key;
mod manager;
mod objects;
mod one_at_a_time;
mod policy;
mod questions;
mod refusal;
mod registry;
mod serving;

use std::fmt;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError, Weak};

use manager::Managed as _;
use serving::Serving;

use crate::counted::{Counted, count};

pub(crate) use key::id_of_key;
pub(crate) use questions::Located;
pub(crate) use refusal::Served;

pub use error::PoaError;
pub use key::ObjectId;
pub use manager::{Inactive, Manager, State};
pub use policy::{
    Bidirectional, IdAssignment, IdUniqueness, ImplicitActivation, Lifespan, Policies, RequestProcessing,
    ServantRetention, ThreadModel,
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
        if policies.thread_model == ThreadModel::MainThread {
            registry.uses_main.store(true, Ordering::SeqCst);
        }
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
}
