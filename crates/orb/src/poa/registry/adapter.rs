//! One object adapter: its policies, and who is active.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, MutexGuard, PoisonError, Weak};
use std::time::Instant;

use super::objects::{Objects, address};
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
            objects: Mutex::new(Objects::new(&registry.objects, last_id)),
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
            if self.has_activator() {
                objects.end_all();
            }
            objects.drain()
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
