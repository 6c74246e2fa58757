//! One object adapter: its policies, and who is active.

use std::collections::{HashMap, HashSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, MutexGuard, PoisonError, Weak};
use std::time::Instant;

use super::{Active, Registry};
use crate::counted::{Mutex, RwLock};
use crate::duty::may_wait_for_adapters;
use crate::poa::Poa;
use crate::poa::key::ObjectId;
use crate::poa::manager::{Managed, Manager};
use crate::poa::one_at_a_time::OneAtATime;
use crate::poa::policy::{Lifespan, Policies, RequestProcessing, ServantRetention, ThreadModel};
use crate::poa::refusal::{Refusal, ending};
use crate::poa::serving::{AdapterActivator, Ending, ServantActivator, Serving};
use crate::reply::Servant;

/// Which objects are active, by identifier and by servant.
#[derive(Debug, Default)]
pub(in crate::poa) struct Objects {
    pub by_id: HashMap<ObjectId, usize>,
    /// Only where a servant implements one object.
    pub by_servant: HashMap<usize, ObjectId>,
    /// How many objects each servant implements. Only where an activator is told.
    pub uses: HashMap<usize, usize>,
    /// Those whose activator is not told yet. Only where there is one.
    pub ending: HashSet<ObjectId>,
    last_id: u64,
}

impl Objects {
    /// The servant implements one object less. Whether it implements another one.
    pub fn unuse(&mut self, servant: usize) -> bool {
        let Some(uses) = self.uses.get_mut(&servant) else { return false };
        *uses -= 1;
        let is_used = *uses > 0;
        if !is_used {
            self.uses.remove(&servant);
        }
        is_used
    }

    /// An identifier that no object of this adapter had.
    pub fn next_id(&mut self) -> ObjectId {
        self.last_id = self.last_id.wrapping_add(1);
        ObjectId::System(self.last_id)
    }
}

/// What tells servants apart.
pub(in crate::poa) fn address(servant: &Arc<dyn Servant>) -> usize {
    Arc::as_ptr(servant).cast::<()>() as usize
}

/// An adapter.
pub(crate) struct Adapter {
    /// Names from the root on, without the root's.
    pub names: Vec<Box<str>>,
    pub place: usize,
    pub policies: Policies,
    pub manager: Manager,
    pub(in crate::poa) objects: Mutex<Objects>,
    pub(in crate::poa) children: Mutex<HashMap<Box<str>, Poa>>,
    pub(in crate::poa) serving: RwLock<Serving>,
    pub(in crate::poa) activator: RwLock<Option<Arc<dyn AdapterActivator>>>,
    pub(in crate::poa) turns: Option<OneAtATime>,
    /// Servants are made and given back one at a time (CORBA 11.3.6).
    pub(in crate::poa) incarnations: OneAtATime,
    /// Children are made one at a time, so that none is asked for twice.
    pub(in crate::poa) activations: OneAtATime,
    pub(in crate::poa) registry: Weak<Registry>,
    /// An activator was told of an object's end.
    pub(in crate::poa) ended: Condvar,
    /// Its activator is told nothing any more.
    pub(in crate::poa) is_silent: AtomicBool,
    /// All objects are ending.
    pub(in crate::poa) is_ending: AtomicBool,
    pub(in crate::poa) is_destroyed: AtomicBool,
    calls: AtomicUsize,
    /// How many wait until it is idle.
    waits: AtomicUsize,
    idle: (Mutex<()>, Condvar),
}

impl Adapter {
    pub fn new(
        registry: &Arc<Registry>,
        names: Vec<Box<str>>,
        place: usize,
        policies: Policies,
        manager: Manager,
    ) -> Self {
        // Numbers of a persistent adapter must be others in each process (CORBA 11.3.8.4).
        let last_id = if policies.lifespan == Lifespan::Persistent { registry.process } else { 0 };
        Self {
            names,
            place,
            policies,
            manager,
            objects: Mutex::new(Objects { last_id, ..Objects::default() }),
            children: Mutex::default(),
            serving: RwLock::new(Serving::Nobody),
            activator: RwLock::new(None),
            turns: (policies.thread_model == ThreadModel::SingleThread).then(OneAtATime::default),
            incarnations: OneAtATime::default(),
            activations: OneAtATime::default(),
            registry: Arc::downgrade(registry),
            ended: Condvar::new(),
            is_silent: AtomicBool::new(false),
            is_ending: AtomicBool::new(false),
            is_destroyed: AtomicBool::new(false),
            calls: AtomicUsize::new(0),
            waits: AtomicUsize::new(0),
            idle: (Mutex::new(()), Condvar::new()),
        }
    }

    pub(in crate::poa) fn objects(&self) -> MutexGuard<'_, Objects> {
        self.objects.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(in crate::poa) fn children(&self) -> MutexGuard<'_, HashMap<Box<str>, Poa>> {
        self.children.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(in crate::poa) fn serving(&self) -> Serving {
        self.serving.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// A request is being served, until the answer is dropped.
    pub(in crate::poa) fn enter(&self) -> Serves<'_> {
        self.calls.fetch_add(1, Ordering::SeqCst);
        Serves(self)
    }

    /// Whether an activator makes its servants.
    pub(in crate::poa) fn has_activator(&self) -> bool {
        self.policies.request_processing == RequestProcessing::ServantManager
            && self.policies.servant_retention == ServantRetention::Retain
    }

    /// Its objects are not active any more. An activator is told of each when its last request has ended.
    pub(in crate::poa) fn end_all(&self) {
        let Some(registry) = self.registry.upgrade() else { return };
        let places: Vec<usize> = {
            let mut objects = self.objects();
            objects.by_servant.clear();
            if self.has_activator() {
                let ids: Vec<ObjectId> = objects.by_id.keys().cloned().collect();
                objects.ending.extend(ids);
            }
            objects.by_id.drain().map(|(_, place)| place).collect()
        };
        places.into_iter().for_each(|place| _ = registry.objects.remove(place));
    }

    /// An object has ended: its activator is told, unless it is not to be.
    pub(in crate::poa) fn tell(&self, active: &Active, activator: &dyn ServantActivator, adapter: &Poa) {
        let _turn = self.incarnations.enter();
        let is_used = self.objects().unuse(address(&active.servant));
        if !self.is_silent.load(Ordering::SeqCst) {
            let ending = Ending { is_cleanup: self.is_ending.load(Ordering::SeqCst), is_used };
            let servant = Arc::clone(&active.servant);
            let told = AssertUnwindSafe(|| activator.etherealize(&active.id, adapter, servant, ending));
            // Whoever happens to end the last request is not to fail.
            let _ = catch_unwind(told);
        }
        self.objects().ending.remove(&active.id);
        self.ended.notify_all();
    }

    /// Waits until an object that was deactivated has ended: then it can be made again (CORBA 11.3.6.2).
    pub(in crate::poa) fn wait_for_end(&self, id: &ObjectId) -> Result<(), Refusal> {
        let until = Instant::now() + self.manager.hold_max();
        let mut objects = self.objects();
        while objects.ending.contains(id) {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() || !may_wait_for_adapters() {
                return Err(ending().into());
            }
            objects = self.ended.wait_timeout(objects, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        Ok(())
    }
}

impl Managed for Adapter {
    /// As [`Adapter::end_all`], for adapters with an activator.
    fn etherealize_all(&self) {
        if self.has_activator() {
            self.is_ending.store(true, Ordering::SeqCst);
            self.end_all();
        }
    }

    /// Waits until no request is being served.
    fn wait_until_idle(&self) {
        let (lock, changed) = &self.idle;
        let mut guard = lock.lock().unwrap_or_else(PoisonError::into_inner);
        self.waits.fetch_add(1, Ordering::SeqCst);
        while self.calls.load(Ordering::SeqCst) > 0 {
            guard = changed.wait(guard).unwrap_or_else(PoisonError::into_inner);
        }
        self.waits.fetch_sub(1, Ordering::SeqCst);
    }
}

/// A request that is being served.
pub(in crate::poa) struct Serves<'a>(&'a Adapter);

impl Drop for Serves<'_> {
    fn drop(&mut self) {
        let is_last = self.0.calls.fetch_sub(1, Ordering::SeqCst) == 1;
        if is_last && self.0.waits.load(Ordering::SeqCst) > 0 {
            let (lock, changed) = &self.0.idle;
            drop(lock.lock().unwrap_or_else(PoisonError::into_inner));
            changed.notify_all();
        }
    }
}
