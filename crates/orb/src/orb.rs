//! An ORB: what an application begins with.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Condvar, MutexGuard, PoisonError};

use punctual_giop::reference::text;
use punctual_giop::{Completion, Reference, SystemException, SystemExceptionKind as Kind};

use crate::core::Core;
use crate::counted::Mutex;
use crate::object::{Object, Stub};
use crate::options::Options;
use crate::poa::Poa;
use crate::server::Server;
use crate::transport::Endpoint;

/// An ORB. Copies are the same one.
#[derive(Clone, Debug)]
pub struct Orb(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    core: Arc<Core>,
    server: Server,
    ended: (Mutex<bool>, Condvar),
    /// Objects by the names that the application gave them.
    initial: Mutex<HashMap<String, Reference>>,
}

impl Orb {
    /// Starts an ORB, which listens where the options say.
    ///
    /// # Errors
    /// If an address cannot be used, or a thread cannot be started.
    pub fn new(options: Options) -> io::Result<Self> {
        let core = Arc::new(Core::new(options)?);
        let server = Server::start(&core)?;
        Ok(Self(Arc::new(Inner {
            core,
            server,
            ended: (Mutex::new(false), Condvar::new()),
            initial: Mutex::default(),
        })))
    }

    /// The addresses that its references have.
    pub fn published(&self) -> &[Endpoint] {
        self.0.core.published.endpoints()
    }

    /// The root of its object adapters. Its manager holds requests until it is activated.
    pub fn root_poa(&self) -> Poa {
        self.0.core.registry.root()
    }

    /// Requests for this key go to the object of the reference: so that a `corbaloc` can name it. If the object is one of
    /// another ORB, they are forwarded.
    pub fn set_key(&self, key: &str, reference: Reference) {
        self.0.core.registry.set_key(key.as_bytes(), reference);
    }

    /// The number of an operation of the object with this key, found as requests find it, if the object is active
    /// and its adapter serves requests. Nothing is called: it is for measurements.
    pub fn find_operation(&self, key: &[u8], operation: &str) -> Option<usize> {
        self.0.core.registry.find_operation(key, operation)
    }

    /// The object of a reference.
    ///
    /// # Errors
    /// `INV_OBJREF` if the reference is nil or damaged; `TRANSIENT` if it has no way that this ORB can use.
    pub fn object(&self, reference: &Reference) -> Result<Object, SystemException> {
        Object::new(&self.0.core, reference)
    }

    /// References to this name lead to that object: `corbaloc:rir:/NAME`, and `corbaname:rir:#NAME` where it is the
    /// naming context `NameService`. It is what other ORBs are told with `-ORBInitRef NAME=REFERENCE`.
    pub fn set_initial_reference(&self, name: &str, reference: Reference) {
        self.initial().insert(name.into(), reference);
    }

    /// The object that this ORB was told for this name, if any.
    pub fn initial_reference(&self, name: &str) -> Option<Reference> {
        self.initial().get(name).cloned()
    }

    fn initial(&self) -> MutexGuard<'_, HashMap<String, Reference>> {
        self.0.initial.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The object of a reference, as [`Orb::resolve`].
    ///
    /// # Errors
    /// As [`Orb::resolve`].
    pub fn narrow<S: Stub>(&self, reference: &Reference) -> Result<S, SystemException> {
        let object = self.object(reference)?;
        match object.is_a(S::REPOSITORY_ID)? {
            true => Ok(S::new(object)),
            false => Err(SystemException::new(Kind::BadParam, 0, Completion::No)),
        }
    }

    /// A reference as `IOR:` and hexadecimal digits.
    ///
    /// # Errors
    /// `MARSHAL` if the reference has no bytes.
    pub fn stringify(&self, reference: &Reference) -> Result<String, SystemException> {
        text::stringify(reference).map_err(|error| crate::exception::marshal(error, Completion::No))
    }

    /// Whether a request waits for the main thread: [`Orb::perform_work`] serves it.
    pub fn work_pending(&self) -> bool {
        self.0.core.registry.main.has_work()
    }

    /// Serves a request that waits for the main thread, if there is one. The thread that calls this or [`Orb::run`] first is
    /// the main thread; in others it does nothing.
    pub fn perform_work(&self) {
        self.0.core.registry.main.perform();
    }

    /// Waits until the ORB is shut down. The main thread (the first that calls this or [`Orb::perform_work`]) serves the
    /// requests for adapters with [`ThreadModel::MainThread`](crate::poa::ThreadModel::MainThread) meanwhile.
    pub fn run(&self) {
        self.0.core.registry.main.run();
        let (ended, changed) = &self.0.ended;
        let ended = ended.lock().unwrap_or_else(PoisonError::into_inner);
        drop(changed.wait_while(ended, |ended| !*ended).unwrap_or_else(PoisonError::into_inner));
    }

    /// Ends the ORB: connections are closed, adapters destroyed. Waits for requests that are being served if
    /// `wait` is set; a servant must not wait for itself.
    pub fn shutdown(&self, wait: bool) {
        if !self.0.core.shut_down() {
            return;
        }
        self.0.core.registry.main.end();
        self.root_poa().destroy(true, wait);
        self.0.server.stop();
        let (ended, changed) = &self.0.ended;
        *ended.lock().unwrap_or_else(PoisonError::into_inner) = true;
        changed.notify_all();
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if self.core.shut_down() {
            self.core.registry.main.end();
            self.core.registry.root().destroy(true, false);
            self.server.stop();
        }
    }
}
