//! Starting an engine and talking to it from other threads.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread::JoinHandle;

use punctual_os::heap::Lease;
use punctual_os::now;
use punctual_os::realtime::RealTime;
use punctual_proto::api::{Account, UserId};
use punctual_proto::ids::ChannelId;
use punctual_proto::memory::{Inbox, Outbox};
use punctual_proto::node::{Decided, Decision, Node};
use punctual_proto::{Instant, Nanos};
use thiserror::Error;

use crate::command::{Answer, Command, CommandQueue, question};
use crate::config::EngineConfig;
use crate::decider::Decider;
use crate::direct;
use crate::error::{EngineError, EngineGone};
use crate::events::Events;
use crate::memory::HostMemory;
use crate::processor::lead::{Lead, LeadError, Raised};
use crate::processor::{Mailboxes, Processor};
use crate::statistics::{EngineStatistics, LinkReport};

/// Stack of a processor's thread, all of it locked where memory is.
const STACK_BYTES: usize = 1 << 20;

/// A question to the engine that has no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum CallError {
    /// The engine has ended.
    #[error(transparent)]
    Gone(#[from] EngineGone),
    /// The thread would wait for itself.
    #[error("this thread does an engine's work (it leads, or runs a handler): call from another thread")]
    OnProcessor,
}

/// Why a doorbell cannot be watched.
#[derive(Debug, Error)]
pub enum WatchError {
    /// The call failed, so the doorbell is not watched.
    #[error(transparent)]
    Call(#[from] CallError),
    /// The descriptor cannot be waited for.
    #[error("the doorbell cannot be watched: {0}")]
    Os(#[from] io::Error),
}

/// Runs one host: a processor thread with its node and its links.
pub struct Engine;

impl Engine {
    /// Starts the processor's thread and returns once it runs in its class with its node.
    ///
    /// # Errors
    /// If the configuration, the links or the host do not permit it; everything is undone then.
    pub fn start<O, I>(config: EngineConfig) -> Result<EngineHandle<O, I>, EngineError>
    where
        O: Outbox<Message: Send> + Send + 'static,
        I: Inbox<Slot: Send> + Send + 'static,
    {
        check_links(&config)?;
        let os = |what| move |error| EngineError::Os { what, error };
        let real_time = config.real_time;
        let connections = config.tcp.map_or(0, |tcp| tcp.connections_max.saturating_add(tcp.paths_max));
        let shared = Arc::new(Mailboxes::new(connections).map_err(os("eventfd"))?);
        let (started, starting) = question();
        let (deciding, failing) = (Arc::downgrade(&shared), Arc::downgrade(&shared));
        let decide = move |decision: Decision| give_back(&deciding, decision.decide(now));
        // Started here: it is not to share the processor's CPU.
        let decider = Decider::start(real_time.class, config.forbidden_calls, decide, move || {
            admission_failed(&failing)
        })
        .map_err(os("starting the thread of admission"))?;
        // The keeper of the heap is started here for the same reason.
        let lease = |sizes| Ok((Lease::claim(real_time.class, config.forbidden_calls)?, sizes));
        let heap = config.heap.map(lease).transpose().map_err(os("a heap of the processor's own"))?;
        let theirs = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("punctual-cpu".into())
            .stack_size(STACK_BYTES)
            .spawn(move || Processor::<O, I>::main(config, decider, heap, theirs, started))
            .map_err(os("starting the processor's thread"))?;
        let inner = Inner { shared, real_time, thread: Mutex::new(Some(thread)) };
        starting.wait().unwrap_or(Err(EngineError::Os {
            what: "starting the processor",
            error: io::Error::other("it failed at its start"),
        }))?;
        Ok(EngineHandle { inner: Arc::new(inner) })
    }
}

/// Returns a decision to the processor; `false` if the processor is gone.
fn give_back<O, I>(shared: &Weak<Mailboxes<O, I>>, decided: Decided) -> bool
where
    O: Outbox + 'static,
    I: Inbox + 'static,
{
    let Some(shared) = shared.upgrade() else { return false };
    let command =
        move |processor: &mut Processor<O, I>, now| processor.node_mut().handle_decided(decided, now);
    shared.commands().push(Box::new(command)).is_ok()
}

/// The deciding thread has panicked, and the policies of admission are lost. The engine ends its channels in
/// order, as when the host is stopped, and the threads that wait for the engine's events find that it has
/// stopped by itself.
fn admission_failed<O, I>(shared: &Weak<Mailboxes<O, I>>)
where
    O: Outbox + 'static,
    I: Inbox + 'static,
{
    tracing::error!(
        "the thread that decides on admission has failed (a bug: report the lines above): the engine stops"
    );
    // If the processor is gone, there is nothing to stop.
    let Some(shared) = shared.upgrade() else { return };
    let _ = shared.commands().push(Box::new(|processor, now| processor.shut_down(now)));
}

fn check_links(config: &EngineConfig) -> Result<(), EngineError> {
    let (configured, given) = (config.node.links.len(), config.links.len());
    if configured != given {
        return Err(EngineError::Links { configured, given });
    }
    for (link, driver) in config.node.links.iter().zip(&config.links) {
        let (configured, given) = (link.packet_bytes_max as usize, driver.packet_bytes_max());
        if configured > given {
            return Err(EngineError::PacketBytes { name: link.name.clone(), configured, given });
        }
    }
    Ok(())
}

/// A running engine. Clones share it; when the last is dropped the engine is stopped.
pub struct EngineHandle<O: Outbox, I: Inbox> {
    inner: Arc<Inner<O, I>>,
}

struct Inner<O: Outbox, I: Inbox> {
    shared: Arc<Mailboxes<O, I>>,
    /// Scheduling class and CPU of the thread that drives the processor.
    real_time: RealTime,
    thread: Mutex<Option<ProcessorThread<O, I>>>,
}

/// The thread returns what is left of the processor.
type ProcessorThread<O, I> = JoinHandle<Option<Box<Processor<O, I>>>>;

impl<O: Outbox, I: Inbox> Clone for EngineHandle<O, I> {
    fn clone(&self) -> Self {
        Self { inner: Arc::clone(&self.inner) }
    }
}

impl<O: Outbox + 'static, I: Inbox + 'static> EngineHandle<O, I> {
    /// Runs `request` on the processor's thread and returns its answer. It delays all other work there: it
    /// must be short, and only call the node.
    ///
    /// # Errors
    /// [`CallError::Gone`] if the engine has stopped, or stops before the answer; [`CallError::OnProcessor`] from
    /// within another request, a handler, or on a thread that leads.
    pub fn call<R, F>(&self, request: F) -> Result<R, CallError>
    where
        R: Send + 'static,
        F: FnOnce(&mut Node<HostMemory<O, I>>, Instant) -> R + Send + 'static,
    {
        self.ask(move |processor, now| request(processor.node_mut(), now))
    }

    /// Runs `request` on the processor's thread behind messages and returns its answer. It is done when no
    /// handler waits for the processor, one such request in a turn of the loop. If handlers always wait, one
    /// is done in 64 turns (some 3 ms). Everything else waits while it runs, so it must be short all the
    /// same.
    ///
    /// # Errors
    /// See [`Self::call`].
    pub fn call_in_background<R, F>(&self, request: F) -> Result<R, CallError>
    where
        R: Send + 'static,
        F: FnOnce(&mut Node<HostMemory<O, I>>, Instant) -> R + Send + 'static,
    {
        ask_on(self.inner.shared.background(), move |processor, now| request(processor.node_mut(), now))
    }

    /// Watches `doorbell` from now on: a ring of it makes the node check the outgoing ring of `channel`. A
    /// doorbell is any descriptor that becomes readable anew at each ring and is never read. It replaces the
    /// doorbell that the channel had. Closing a descriptor may wait for the process that holds the other end:
    /// the caller keeps a share of it until the engine has dropped its own. Rings beyond the channel's
    /// contract, which are all rings of a best-effort flow, count in the one allowance of `payer`; `None`:
    /// each doorbell has an allowance of its own. The request runs after messages, like
    /// [`Self::call_in_background`]. Returns how long it took.
    ///
    /// # Errors
    /// If the descriptor cannot be waited for, and the errors of [`EngineHandle::call`].
    pub fn watch(
        &self,
        channel: ChannelId,
        doorbell: Arc<OwnedFd>,
        payer: Option<UserId>,
    ) -> Result<Nanos, WatchError> {
        self.watch_with(move |processor, at| processor.watch(channel, doorbell, payer, at))
    }

    /// Runs `watch` after messages; returns how long it took.
    pub(crate) fn watch_with(
        &self,
        watch: impl FnOnce(&mut Processor<O, I>, Instant) -> io::Result<()> + Send + 'static,
    ) -> Result<Nanos, WatchError> {
        let timed = move |processor: &mut Processor<O, I>, at| {
            let begun = now();
            watch(processor, at).map(|()| now().since(begun))
        };
        Ok(ask_on(self.inner.shared.background(), timed)??)
    }

    /// Drops the channel's doorbell, if it has one, without waiting: soon only the caller holds it.
    ///
    /// # Errors
    /// [`EngineGone`]: the engine has dropped all its doorbells already.
    pub fn unwatch(&self, channel: ChannelId) -> Result<(), EngineGone> {
        self.inner.shared.commands().push(Box::new(move |processor, _| processor.unwatch(channel)))
    }

    /// The receiver of the node's events.
    pub fn events(&self) -> Events {
        self.inner.shared.events().clone()
    }

    /// Statistics of the processor.
    pub fn statistics(&self) -> EngineStatistics {
        self.inner.shared.counters().snapshot()
    }

    /// The drivers of the links and their counters, in the order of the links.
    ///
    /// # Errors
    /// See [`EngineHandle::call`].
    pub fn link_reports(&self) -> Result<Vec<LinkReport>, CallError> {
        self.ask(|processor, _| processor.link_reports())
    }

    /// Compares the filters of the drivers with the node's channels, behind messages (as [`Self::call_in_background`]).
    ///
    /// # Errors
    /// See [`Self::call`].
    pub fn filter_accounts(&self) -> Result<Vec<Account>, CallError> {
        ask_on(self.inner.shared.background(), Processor::filter_accounts)
    }

    /// Closes every channel, waits until the node is quiet or its grace period is over, and ends the thread.
    /// A second call is permitted.
    ///
    /// # Errors
    /// [`CallError::Gone`] if the processor had failed before; [`CallError::OnProcessor`], without effect, if
    /// the calling thread is the one that would have to end.
    pub fn stop(&self) -> Result<(), CallError> {
        may_wait()?;
        Ok(self.inner.stop()?)
    }

    /// Runs `request` on the processor's thread, and waits for an answer that may come later than its end.
    pub(crate) fn answered<R, F>(&self, request: F) -> Result<R, CallError>
    where
        R: Send + 'static,
        F: FnOnce(&mut Processor<O, I>, Answer<R>, Instant) + Send + 'static,
    {
        may_wait()?;
        let (answer, reply) = question();
        self.order(move |processor, now| request(processor, answer, now))?;
        Ok(reply.wait()?)
    }

    /// What this handle shares with the processor.
    pub(crate) fn mailboxes(&self) -> &Mailboxes<O, I> {
        &self.inner.shared
    }

    /// Runs `request` on the processor's thread, and does not wait.
    pub(crate) fn order<F>(&self, request: F) -> Result<(), EngineGone>
    where
        F: FnOnce(&mut Processor<O, I>, Instant) + Send + 'static,
    {
        self.inner.shared.commands().push(Box::new(request))
    }

    pub(crate) fn ask<R, F>(&self, request: F) -> Result<R, CallError>
    where
        R: Send + 'static,
        F: FnOnce(&mut Processor<O, I>, Instant) -> R + Send + 'static,
    {
        ask_on(self.inner.shared.commands(), request)
    }
}

fn ask_on<P, R, F>(queue: &CommandQueue<P>, request: F) -> Result<R, CallError>
where
    R: Send + 'static,
    F: FnOnce(&mut P, Instant) -> R + Send + 'static,
{
    may_wait()?;
    let (answer, reply) = question();
    let command: Command<P> = Box::new(move |processor, now| answer.send(request(processor, now)));
    queue.push(command)?;
    Ok(reply.wait()?)
}

/// A processor's thread that waited for an engine would wait for itself, or keep its own engine standing.
fn may_wait() -> Result<(), CallError> {
    if direct::is_processor() { Err(CallError::OnProcessor) } else { Ok(()) }
}

impl<O, I> EngineHandle<O, I>
where
    O: Outbox<Message: Send> + Send + 'static,
    I: Inbox<Slot: Send> + Send + 'static,
{
    /// Makes the calling thread drive the processor from now on, see [`Lead`]. The thread gets the
    /// processor's class and CPU.
    ///
    /// # Errors
    /// See [`LeadError`]; the engine's own thread continues then.
    pub fn lead(&self) -> Result<Lead<O, I>, LeadError> {
        may_wait().map_err(|_| LeadError::Twice)?;
        // Raise this thread before the processor is handed over: no thread drives it meanwhile, so no thread
        // of a lower class may run in between.
        let raised = Raised::to(&self.inner.real_time)?;
        let (answer, reply) = question();
        let command: Command<Processor<O, I>> = Box::new(move |processor, _| processor.hand_on(answer));
        self.inner.shared.commands().push(command)?;
        Lead::take(reply.wait()??, raised, &self.inner.real_time)
    }
}

impl<O: Outbox, I: Inbox> Inner<O, I> {
    fn stop(&self) -> Result<(), EngineGone> {
        let Some(thread) = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take() else {
            return Ok(());
        };
        // An error means that the thread has ended: joining it returns the reason.
        let _ = self.shared.commands().push(Box::new(|processor, now| processor.shut_down(now)));
        // The engine ends when this thread, which may be the one that drives it, continues its work.
        if direct::is_processor() {
            return Ok(());
        }
        // The waiting thread closes the links and what else it had: the engine's own thread makes no such
        // call.
        thread.join().map(drop).map_err(|_| EngineGone)
    }
}

impl<O: Outbox, I: Inbox> Drop for Inner<O, I> {
    fn drop(&mut self) {
        // A caller that needs the result calls `stop`.
        let _ = self.stop();
    }
}

#[cfg(test)]
mod tests;
