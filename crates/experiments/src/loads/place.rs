//! The place of a role: its network namespace, CPU and class.

use std::io;
use std::path::PathBuf;
use std::thread::JoinHandle;

use anyhow::Context;
use punctual_os::{cpus, namespaces};

use super::Class;

/// A host as its threads see it. Each emulated host has its own CPU if there are enough, in every world.
#[derive(Clone, Debug, Default)]
pub struct Place {
    /// The file of its namespace; none: this process' own.
    pub namespace: Option<PathBuf>,
    /// CPU of the thread; `None`: any.
    pub cpu: Option<u32>,
}

impl Place {
    /// Makes the calling thread one of this host.
    ///
    /// # Errors
    /// If the namespace, the CPU or the class is refused.
    pub fn settle(&self, class: Class) -> anyhow::Result<()> {
        if let Some(path) = &self.namespace {
            namespaces::enter(path).with_context(|| format!("entering {}", path.display()))?;
        }
        if let Some(cpu) = self.cpu {
            cpus::pin(cpu).with_context(|| format!("CPU {cpu}"))?;
        }
        Ok(class.enter()?)
    }

    /// Starts a thread on this host.
    ///
    /// # Errors
    /// If it cannot start; errors of the work come with its end.
    pub fn spawn<R: Send + 'static>(
        &self,
        name: &str,
        class: Class,
        work: impl FnOnce() -> anyhow::Result<R> + Send + 'static,
    ) -> io::Result<JoinHandle<anyhow::Result<R>>> {
        let place = self.clone();
        std::thread::Builder::new().name(name.into()).spawn(move || {
            place.settle(class)?;
            work()
        })
    }

    /// Runs something short on this host and waits for it.
    ///
    /// # Errors
    /// The error of the work.
    pub fn within<R: Send>(&self, work: impl FnOnce() -> anyhow::Result<R> + Send) -> anyhow::Result<R> {
        // Threads that `work` starts may run on any CPU: only the namespace is inherited.
        Self { namespace: self.namespace.clone(), cpu: None }.inside(Class::Ordinary, work)
    }

    /// Runs something on this host's CPU, in `class`, and waits for it; in this process' own namespace.
    ///
    /// # Errors
    /// The error of the work.
    pub fn on_cpu<R: Send>(
        &self,
        class: Class,
        work: impl FnOnce() -> anyhow::Result<R> + Send,
    ) -> anyhow::Result<R> {
        Self { namespace: None, cpu: self.cpu }.inside(class, work)
    }

    fn inside<R: Send>(
        self,
        class: Class,
        work: impl FnOnce() -> anyhow::Result<R> + Send,
    ) -> anyhow::Result<R> {
        std::thread::scope(|scope| {
            let inside = scope.spawn(move || {
                self.settle(class)?;
                work()
            });
            inside.join().unwrap_or_else(|_| Err(anyhow::anyhow!("a thread on a host panicked")))
        })
    }
}
