//! The listening part of an ORB.
//!
//! | module | owns |
//! |---|---|
//! | `listener` | sockets at which clients connect |
//! | `addresses` | the addresses of references |
//! | `threads`, `replies` | a thread for each connection |
//! | `reactor`, `connection`, `bell` | one thread that reads all connections |
//! | `pool` | threads that call servants for it |
//! | `adopted` | connections on which both ends call, from the offer on |
//! | `held` | requests that wait for their adapter |

mod addresses;
mod adopted;
mod bell;
mod connection;
mod held;
mod listener;
mod pool;
mod reactor;
mod replies;
mod threads;

use std::io;
use std::sync::{Arc, PoisonError};
use std::thread::{self, JoinHandle};

use crate::core::Core;
use crate::counted::Mutex;
use crate::options::Concurrency;
use crate::transport::Endpoint;
use addresses::published;
use bell::Bell;
use listener::Listener;
use pool::Pool;
use threads::Threads;

/// Servants run on it.
const STACK_BYTES: usize = 1 << 20;

/// Who serves.
#[derive(Debug)]
enum Model {
    Threads(Threads),
    Reactor(Arc<Bell>),
}

/// Listens at all of them, or at none: no Unix socket stays behind.
fn bind_all(endpoints: &[Endpoint]) -> io::Result<Vec<Arc<Listener>>> {
    let mut bound: Vec<Arc<Listener>> = Vec::new();
    for endpoint in endpoints {
        match Listener::bind(endpoint) {
            Ok(listener) => bound.push(Arc::new(listener)),
            Err(error) => {
                bound.iter().for_each(|listener| listener.shutdown());
                return Err(error);
            }
        }
    }
    Ok(bound)
}

/// The listening part of an ORB.
#[derive(Debug)]
pub(crate) struct Server {
    listeners: Vec<Arc<Listener>>,
    model: Model,
    /// Threads that end when the server stops. Those of a pool do when their servants let them.
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Server {
    /// Listens at all configured endpoints, and accepts clients.
    pub fn start(core: &Arc<Core>) -> io::Result<Self> {
        let options = &core.options;
        let listeners = bind_all(&options.listen)?;
        let started = Self::start_at(core, &listeners);
        if started.is_err() {
            listeners.iter().for_each(|listener| listener.shutdown());
        }
        started
    }

    fn start_at(core: &Arc<Core>, listeners: &[Arc<Listener>]) -> io::Result<Self> {
        let options = &core.options;
        let at = listeners.iter().map(|listener| listener.endpoint()).collect::<io::Result<Vec<_>>>()?;
        core.published.set(published(&at, &options.published)?);
        let is_client = listeners.is_empty();
        let (model, threads) = match &options.concurrency {
            Concurrency::ThreadPerConnection => Self::start_threads(core, listeners)?,
            _ if is_client => (Model::Threads(Threads::default()), Vec::new()),
            Concurrency::Reactive => Self::start_reactor(core, listeners, None)?,
            Concurrency::Pool(pool) => Self::start_reactor(core, listeners, Some(pool))?,
        };
        Ok(Self { listeners: listeners.to_vec(), model, threads: Mutex::new(threads) })
    }

    fn start_threads(
        core: &Arc<Core>,
        listeners: &[Arc<Listener>],
    ) -> io::Result<(Model, Vec<JoinHandle<()>>)> {
        let threads = Threads::default();
        let start = |listener: &Arc<Listener>| threads.accept(core, listener);
        let acceptors = listeners.iter().map(start).collect::<io::Result<_>>()?;
        Ok((Model::Threads(threads), acceptors))
    }

    fn start_reactor(
        core: &Arc<Core>,
        listeners: &[Arc<Listener>],
        pool: Option<&crate::options::Pool>,
    ) -> io::Result<(Model, Vec<JoinHandle<()>>)> {
        listeners.iter().try_for_each(|listener| listener.never_waits())?;
        let bell = Arc::new(Bell::new()?);
        let of_managers = Arc::clone(&bell);
        core.registry.when_managers_change(Box::new(move || of_managers.ring()));
        let pool = pool.map(|pool| Pool::start(core, &bell, pool)).transpose()?;
        let (core, of_thread, listeners) = (Arc::clone(core), Arc::clone(&bell), listeners.to_vec());
        let epoll = reactor::watch(&listeners, &bell)?;
        let builder = thread::Builder::new().name("punctual-react".to_owned()).stack_size(STACK_BYTES);
        let run = move || reactor::run(&core, listeners, epoll, of_thread, pool);
        Ok((Model::Reactor(bell), vec![builder.spawn(run)?]))
    }

    /// Accepts nobody any more, and ends all connections.
    pub fn stop(&self) {
        self.listeners.iter().for_each(|listener| listener.shutdown());
        if let Model::Reactor(bell) = &self.model {
            bell.stop();
        }
        let threads = std::mem::take(&mut *self.threads.lock().unwrap_or_else(PoisonError::into_inner));
        // A servant that stops the ORB does not wait for itself.
        let others = threads.into_iter().filter(|one| one.thread().id() != thread::current().id());
        for one in others {
            // It does not panic: what servants do is caught.
            let _ = one.join();
        }
        if let Model::Threads(threads) = &self.model {
            threads.close();
        }
    }
}
