//! All adapters of an ORB and their objects, found by the places in object keys.
//!
//! Both tables are slabs whose places have generations: a look-up takes no lock, and what is removed stays
//! until the last request that uses it has ended.

mod adapter;
mod objects;
mod table;

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock, PoisonError};
use std::time::Duration;

use punctual_giop::Reference;

use crate::poa::error::PoaError;
use crate::poa::key::ObjectId;
use crate::poa::manager::Common;
use crate::poa::serving::ServantActivator;
pub(crate) use adapter::Adapter;
pub(in crate::poa) use objects::address;
pub(in crate::poa) use table::{Entry, Table};

use crate::counted::{Counted, RwLock, count};
use crate::main_thread::MainThread;
use crate::poa::Poa;
use crate::reply::Servant;

/// An object that has a servant.
pub(in crate::poa) struct Active {
    /// Its adapter, so that a request finds both with one look-up. The adapter's end removes its objects.
    pub adapter: Arc<Adapter>,
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

/// What a key that an application chose stands for.
#[derive(Clone)]
pub(in crate::poa) enum Chosen {
    /// An object of this ORB, by its own key: whatever address its clients use.
    Own(Arc<[u8]>),
    /// An object to which requests are forwarded.
    Elsewhere(Reference),
}

/// All adapters and objects.
pub(crate) struct Registry {
    /// Tells the keys of this process from those of others.
    pub(in crate::poa) process: u64,
    pub(in crate::poa) adapters: Table<Arc<Adapter>>,
    pub(in crate::poa) objects: Arc<Table<Active>>,
    pub(in crate::poa) managers: Arc<Common>,
    /// Where some adapters want their servants to run.
    pub main: Arc<MainThread>,
    /// Whether there are such adapters: most ORBs have none.
    pub(in crate::poa) uses_main: AtomicBool,
    root: OnceLock<Poa>,
    publish: Box<Publish>,
    /// Keys that an application chose.
    keys: RwLock<HashMap<Box<[u8]>, Chosen>>,
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
            adapters: table::new(),
            objects: Arc::new(table::new()),
            managers: Arc::new(Common { hold_time, when_changed: OnceLock::new() }),
            main: Arc::new(MainThread::new(hold_time)),
            uses_main: AtomicBool::new(false),
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
        let keys = reference.iiop_profiles().filter_map(|profile| Some(profile.ok()?.object_key));
        let own = keys.filter(|key| self.is_own(key)).last();
        let chosen = own.map_or(Chosen::Elsewhere(reference), |own| Chosen::Own(own.into()));
        self.keys.write().unwrap_or_else(PoisonError::into_inner).insert(key.into(), chosen);
    }

    /// What a key that an application chose stands for.
    pub(in crate::poa) fn of_key(&self, key: &[u8]) -> Option<Chosen> {
        self.keys.read().unwrap_or_else(PoisonError::into_inner).get(key).cloned()
    }

    pub(in crate::poa) fn publish(&self, interface: &str, key: Vec<u8>) -> Result<Reference, PoaError> {
        (self.publish)(interface, key).ok_or(PoaError::NoAddress)
    }
}
