//! One object adapter: its policies, and who is active.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock};

use super::Poa;
use super::key::ObjectId;
use super::manager::Manager;
use super::one_at_a_time::OneAtATime;
use super::policy::{Policies, ThreadModel};
use super::serving::{AdapterActivator, Serving};
use crate::reply::Servant;

/// Which objects are active, by identifier and by servant.
#[derive(Debug, Default)]
pub(super) struct Objects {
    pub by_id: HashMap<ObjectId, usize>,
    /// Only where a servant implements one object.
    pub by_servant: HashMap<usize, ObjectId>,
    last_id: u64,
}

impl Objects {
    /// An identifier that no object of this adapter had.
    pub fn next_id(&mut self) -> ObjectId {
        self.last_id += 1;
        ObjectId::System(self.last_id)
    }
}

/// What tells servants apart.
pub(super) fn address(servant: &Arc<dyn Servant>) -> usize {
    Arc::as_ptr(servant).cast::<()>() as usize
}

/// An adapter.
pub(crate) struct Adapter {
    /// Names from the root on, without the root's.
    pub names: Vec<Box<str>>,
    pub place: usize,
    pub policies: Policies,
    pub manager: Manager,
    pub(super) objects: Mutex<Objects>,
    pub(super) children: Mutex<HashMap<Box<str>, Poa>>,
    pub(super) serving: RwLock<Serving>,
    pub(super) activator: RwLock<Option<Arc<dyn AdapterActivator>>>,
    pub(super) turns: Option<OneAtATime>,
    pub(super) is_destroyed: AtomicBool,
    calls: AtomicUsize,
    idle: (Mutex<()>, Condvar),
}

impl Adapter {
    pub fn new(names: Vec<Box<str>>, place: usize, policies: Policies, manager: Manager) -> Self {
        Self {
            names,
            place,
            policies,
            manager,
            objects: Mutex::default(),
            children: Mutex::default(),
            serving: RwLock::new(Serving::Nobody),
            activator: RwLock::new(None),
            turns: (policies.thread_model == ThreadModel::SingleThread).then(OneAtATime::default),
            is_destroyed: AtomicBool::new(false),
            calls: AtomicUsize::new(0),
            idle: (Mutex::new(()), Condvar::new()),
        }
    }

    pub(super) fn objects(&self) -> MutexGuard<'_, Objects> {
        self.objects.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn children(&self) -> MutexGuard<'_, HashMap<Box<str>, Poa>> {
        self.children.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn serving(&self) -> Serving {
        self.serving.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// A request is being served, until the answer is dropped.
    pub(super) fn enter(&self) -> Serves<'_> {
        self.calls.fetch_add(1, Ordering::SeqCst);
        Serves(self)
    }

    /// Waits until no request is being served.
    pub(super) fn wait_until_idle(&self) {
        let (lock, changed) = &self.idle;
        let mut guard = lock.lock().unwrap_or_else(PoisonError::into_inner);
        while self.calls.load(Ordering::SeqCst) > 0 {
            guard = changed.wait(guard).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// A request that is being served.
pub(super) struct Serves<'a>(&'a Adapter);

impl Drop for Serves<'_> {
    fn drop(&mut self) {
        let is_last = self.0.calls.fetch_sub(1, Ordering::SeqCst) == 1;
        if is_last && self.0.is_destroyed.load(Ordering::SeqCst) {
            let (lock, changed) = &self.0.idle;
            drop(lock.lock().unwrap_or_else(PoisonError::into_inner));
            changed.notify_all();
        }
    }
}
