//! Descriptors as conditions of loom: waiting for a descriptor that is never rung is a deadlock.

use std::cell::RefCell;
use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::rc::Rc;
use std::time::Instant;

use loom::sync::{Condvar, Mutex};

use crate::shm::descriptor;

#[path = "../../../crates/ipc/src/wake/flag.rs"]
mod flag;

#[path = "../../../crates/ipc/src/wake/bell_list.rs"]
pub(crate) mod bell_list;

pub use flag::{Answered, arm};

/// The model has no ringer thread.
#[derive(Clone, Debug)]
pub enum RingPath {
    Direct,
}

thread_local! {
    static SIGNALS: RefCell<HashMap<RawFd, Rc<Signal>>> = RefCell::default();
}

/// Whether it is signalled, and the condition for its waiters.
#[derive(Debug)]
pub(crate) struct Signal {
    up: Mutex<bool>,
    rung: Condvar,
}

impl Signal {
    pub(crate) fn new() -> Rc<Self> {
        Rc::new(Self { up: Mutex::new(false), rung: Condvar::new() })
    }

    pub(crate) fn ring(&self) {
        *self.up.lock().expect("no panic") = true;
        self.rung.notify_all();
    }

    fn clear(&self) {
        *self.up.lock().expect("no panic") = false;
    }

    /// Level-triggered: stays up.
    fn wait(&self) {
        let mut up = self.up.lock().expect("no panic");
        while !*up {
            up = self.rung.wait(up).expect("no panic");
        }
    }

    /// Edge-triggered: returns once for each ring, or once for several.
    pub(crate) fn wait_edge(&self) {
        self.wait();
        self.clear();
    }
}

/// A signal of the model. Loom's threads take turns on one thread of the system.
#[derive(Clone, Debug)]
pub(crate) struct Shared(pub(crate) Rc<Signal>);

// SAFETY: see the type; it contains only loom's own primitives.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

fn attach(signal: &Rc<Signal>) -> io::Result<OwnedFd> {
    let descriptor = descriptor()?;
    SIGNALS.with_borrow_mut(|signals| signals.insert(descriptor.as_raw_fd(), Rc::clone(signal)));
    Ok(descriptor)
}

/// The signal of a descriptor; can be called once.
pub(crate) fn signal_of(descriptor: &OwnedFd) -> Shared {
    let found = SIGNALS.with_borrow_mut(|signals| signals.remove(&descriptor.as_raw_fd()));
    Shared(found.expect("a descriptor of the model"))
}

/// The model has no receiver of it.
#[derive(Clone, Debug)]
pub struct Alarm;

impl Alarm {
    pub fn ring(&self) {}
}

#[derive(Debug)]
pub struct Doorbell(Option<Shared>);

impl Doorbell {
    pub fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
        let signal = Signal::new();
        Ok((attach(&signal)?, attach(&signal)?))
    }
    pub fn new(descriptor: OwnedFd) -> Self {
        Self(Some(signal_of(&descriptor)))
    }
    pub fn none() -> Self {
        Self(None)
    }
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(Self(self.0.clone()))
    }
    pub fn ring(&self) {
        if let Some(signal) = &self.0 {
            signal.0.ring();
        }
    }
}

#[derive(Debug)]
pub struct BellHandle(Shared);

impl BellHandle {
    pub fn ring(&self) {
        self.0.0.ring();
    }
}

#[derive(Clone, Debug)]
pub struct Bell {
    signal: Shared,
    descriptor: Rc<OwnedFd>,
}

// SAFETY: Loom's threads take turns on one thread of the system.
unsafe impl Send for Bell {}
// SAFETY: as above.
unsafe impl Sync for Bell {}

impl Bell {
    pub fn pair(_: &RingPath) -> io::Result<(OwnedFd, BellHandle)> {
        let signal = Signal::new();
        Ok((attach(&signal)?, BellHandle(Shared(signal))))
    }
    pub fn within() -> io::Result<(Self, BellHandle)> {
        let signal = Shared(Signal::new());
        Ok((Self { signal: signal.clone(), descriptor: Rc::new(descriptor()?) }, BellHandle(signal)))
    }
    pub fn new(descriptor: OwnedFd) -> Self {
        Self { signal: signal_of(&descriptor), descriptor: Rc::new(descriptor) }
    }
    pub fn ring(&self) {
        self.signal.0.ring();
    }
    pub fn clear(&self) {
        self.signal.0.clear();
    }
    pub fn wait(&self, _: Option<Instant>) -> io::Result<bool> {
        self.signal.0.wait();
        Ok(true)
    }
}

impl AsFd for Bell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}
