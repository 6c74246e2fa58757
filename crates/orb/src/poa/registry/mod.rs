//! All adapters of an ORB and their objects, found by the places in object keys.
//!
//! Both tables are slabs whose places have generations: a look-up takes no lock, and what is removed stays
//! until the last request that uses it has ended.

mod adapter;
mod objects;

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, OnceLock, PoisonError};
use std::time::Duration;

use punctual_giop::Reference;
use sharded_slab::{Entry, Slab};

use crate::poa::error::PoaError;
use crate::poa::key::ObjectId;
use crate::poa::manager::Common;
use crate::poa::serving::ServantActivator;
pub(crate) use adapter::Adapter;
pub(in crate::poa) use objects::address;

use crate::counted::{Counted, RwLock, count};
use crate::poa::Poa;
use crate::reply::Servant;

/// An object that has a servant.
pub(in crate::poa) struct Active {
    /// The place of its adapter.
    pub adapter: usize,
    pub id: ObjectId,
    pub servant: Arc<dyn Servant>,
    /// Who is told when its last request has ended.
    pub activator: Option<Box<(Arc<dyn ServantActivator>, Poa)>>,
}

impl fmt::Debug for Active {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Active({:?})", self.id)
    }
}

impl Drop for Active {
    fn drop(&mut self) {
        if let Some(told) = self.activator.take() {
            let (activator, adapter) = *told;
            adapter.adapter().tell(self, &*activator, &adapter);
        }
    }
}

/// Makes a reference with this type and key.
type Publish = dyn Fn(&str, Vec<u8>) -> Option<Reference> + Send + Sync;

/// All adapters and objects.
pub(crate) struct Registry {
    /// Tells the keys of this process from those of others.
    pub(in crate::poa) process: u64,
    pub(in crate::poa) adapters: Slab<Arc<Adapter>>,
    pub(in crate::poa) objects: Arc<Slab<Active>>,
    pub(in crate::poa) managers: Arc<Common>,
    root: OnceLock<Poa>,
    publish: Box<Publish>,
    /// Keys that an application chose, whose requests are forwarded.
    keys: RwLock<HashMap<Box<[u8]>, Reference>>,
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registry").field("process", &self.process).finish_non_exhaustive()
    }
}

impl Registry {
    pub fn new(process: u64, hold_time: Duration, publish: Box<Publish>) -> Arc<Self> {
        let registry = Arc::new(Self {
            process,
            adapters: Slab::new(),
            objects: Arc::default(),
            managers: Arc::new(Common { hold_time, when_changed: OnceLock::new() }),
            root: OnceLock::new(),
            publish,
            keys: RwLock::default(),
        });
        let _ = registry.root.set(Poa::root(&registry));
        registry
    }

    /// The adapter at a place, without a lock.
    pub(in crate::poa) fn adapter_at(&self, place: usize) -> Option<Entry<'_, Arc<Adapter>>> {
        count(Counted::Adapter);
        self.adapters.get(place)
    }

    /// The object at a place, without a lock.
    pub(in crate::poa) fn object_at(&self, place: usize) -> Option<Entry<'_, Active>> {
        count(Counted::Object);
        self.objects.get(place)
    }

    /// The root adapter.
    pub fn root(&self) -> Poa {
        self.root.get().expect("it is set when the registry is made").clone()
    }

    /// Who is told that a manager lets requests pass which wait without a thread.
    pub fn when_managers_change(&self, tell: Box<dyn Fn() + Send + Sync>) {
        // Set once, by the server.
        let _ = self.managers.when_changed.set(tell);
    }

    pub fn set_key(&self, key: &[u8], reference: Reference) {
        self.keys.write().unwrap_or_else(PoisonError::into_inner).insert(key.into(), reference);
    }

    /// Where requests for a key that an application chose are forwarded to.
    pub(in crate::poa) fn of_key(&self, key: &[u8]) -> Option<Reference> {
        self.keys.read().unwrap_or_else(PoisonError::into_inner).get(key).cloned()
    }

    pub(in crate::poa) fn publish(&self, interface: &str, key: Vec<u8>) -> Result<Reference, PoaError> {
        (self.publish)(interface, key).ok_or(PoaError::NoAddress)
    }
}
