//! The thread that drives the processor: its own, the *keeper*, or an application's thread that leads for a
//! while.
//!
//! A message that goes through two threads of a host costs one thread switch and one wake-up more each way
//! than a message that a kernel's socket takes, because the kernel's protocol code runs on its caller's
//! thread (`rio-roundtrip` measures the difference). So an embedding program may let one of its threads do
//! the protocol's work while it waits (leader and followers, Schmidt et al. 2000, with one leader). The
//! processor moves to that thread, with its class and CPU, and back when the thread stops leading. It is
//! never shared. While the leader does other work no thread drives the processor, as while a handler runs: so
//! the time for it is declared and admitted like a handler's time. During a hand-over no thread drives it
//! either, so both threads of a hand-over are in the processor's class.

use std::io;
use std::marker::PhantomData;
use std::sync::mpsc::{Sender, channel};

use punctual_os::attributes::{self, Attributes, SELF, attributes};
use punctual_os::now;
use punctual_os::realtime::{self, RealTime, RealTimeError, SchedulingClass, TimerSlack};
use punctual_proto::Instant;
use punctual_proto::memory::{Inbox, Outbox};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use thiserror::Error;

use super::{Processor, Step};
use crate::command::Answer;
use crate::direct;
use crate::error::EngineGone;

/// Why a thread cannot lead.
#[derive(Debug, Error)]
pub enum LeadError {
    /// The engine has ended, so it cannot be led.
    #[error(transparent)]
    Gone(#[from] EngineGone),
    /// The class cannot move from thread to thread.
    #[error(
        "a processor of class \"deadline\" cannot work on another thread: only its own thread has the runtime; \
         configure [processor] class = \"fifo\""
    )]
    Deadline,
    /// A processor's thread leads already.
    #[error("this thread already does an engine's work: a thread can lead only one engine")]
    Twice,
    /// Another thread leads.
    #[error("another thread already leads this engine: end that lead first")]
    Led,
    /// The thread does not get the class or the CPU.
    #[error(transparent)]
    RealTime(#[from] RealTimeError),
    /// The scheduling of the thread cannot be read.
    #[error("the thread's scheduling cannot be read: {0}")]
    Os(#[from] io::Error),
}

/// The way to the thread that is to lead.
pub(crate) type LeadAnswer<O, I> = Answer<Result<HandedProcessor<O, I>, LeadError>>;

/// A processor on its way, and the way back.
pub(crate) struct HandedProcessor<O: Outbox, I: Inbox> {
    processor: Box<Processor<O, I>>,
    back: Sender<Box<Processor<O, I>>>,
}

/// A thread in the processor's class. Dropping this restores the thread's scheduling.
pub(crate) struct Raised {
    class: Attributes,
    cpus: CpuSet,
    timer_slack: TimerSlack,
}

impl Raised {
    /// Raises the calling thread. It may still run on the same CPUs, because a processor that never sleeps
    /// has its CPU to itself.
    pub(crate) fn to(wanted: &RealTime) -> Result<Self, LeadError> {
        if matches!(wanted.class, SchedulingClass::Deadline { .. }) {
            return Err(LeadError::Deadline);
        }
        let raised = Self {
            class: attributes(SELF)?,
            cpus: sched_getaffinity(None).map_err(io::Error::from)?,
            timer_slack: TimerSlack::read(),
        };
        // Memory is locked already, for the whole process.
        realtime::apply(&RealTime { cpu: None, lock_memory: false, ..*wanted })?;
        Ok(raised)
    }
}

impl Drop for Raised {
    fn drop(&mut self) {
        // If the thread has lost the right to restore its scheduling, it stays as it is: no guarantee depends
        // on it any more.
        let _ = sched_setaffinity(None, &self.cpus);
        let _ = attributes::restore(SELF, self.class);
        self.timer_slack.set();
    }
}

/// The keeper's main function: drives until the processor stops, here or at a leader. Returns what is left of
/// the processor if it stopped here.
pub(super) fn keep<O: Outbox + 'static, I: Inbox + 'static>(
    mut processor: Box<Processor<O, I>>,
) -> Option<Box<Processor<O, I>>> {
    let mut started = now();
    loop {
        if let Some(successor) = processor.lead.successor.take() {
            let (back, returned) = channel();
            processor.lead.is_led = true;
            successor.send(Ok(HandedProcessor { processor, back }));
            // A processor that has stopped, or whose leader panicked, does not come back: `CloseOnDrop`
            // notifies the waiting threads.
            let Ok(given_back) = returned.recv() else { return None };
            processor = given_back;
            processor.lead.is_led = false;
            processor.timing.turn_begun = None;
            started = now();
            processor.timing.standstill.begin(started);
            continue;
        }
        // A thread that requests to lead does not have to wait for the next packet.
        match processor.step(started, None, &mut |processor| processor.lead.successor.is_some()) {
            Step::Goes(at) | Step::Done(at) => started = at,
            Step::Stopped => return Some(processor),
        }
    }
}

impl<O: Outbox, I: Inbox> Processor<O, I> {
    /// Hands the processor to another thread after this turn, or sends it the reason why not.
    pub(crate) fn hand_on(&mut self, successor: LeadAnswer<O, I>) {
        if self.lead.is_led || self.lead.successor.is_some() {
            successor.send(Err(LeadError::Led));
        } else {
            self.lead.successor = Some(successor);
        }
    }
}

/// The calling thread drives the processor, whenever it waits here. Dropping this hands the processor back to
/// its own thread and restores the thread's scheduling. If this is leaked (`std::mem::forget`), the engine is
/// blocked: its own thread waits for the processor without limit.
pub struct Lead<O: Outbox + 'static, I: Inbox + 'static> {
    /// `None` after the processor has stopped, or panicked.
    baton: Option<HandedProcessor<O, I>>,
    /// Time at which the thread drove last.
    left_at: Instant,
    /// Dropped after the processor is back: until then this thread is in its way.
    _raised: Raised,
    /// The thread is part of it.
    _here: PhantomData<*const ()>,
}

impl<O: Outbox + 'static, I: Inbox + 'static> Lead<O, I> {
    /// Takes the processor from the keeper, on a thread in the class `wanted`.
    pub(crate) fn take(
        baton: HandedProcessor<O, I>,
        raised: Raised,
        wanted: &RealTime,
    ) -> Result<Self, LeadError> {
        direct::prepare();
        // On an error `lead` is dropped and the keeper continues.
        let lead = Self { baton: Some(baton), left_at: now(), _raised: raised, _here: PhantomData };
        if let Some(cpu) = wanted.cpu {
            realtime::pin(cpu)?;
        }
        Ok(lead)
    }

    /// Drives the processor from `at`, a time just read, until `is_done`, which is called after each turn, or
    /// `until`. Returns the time.
    ///
    /// # Errors
    /// If the engine has stopped.
    pub fn drive(
        &mut self,
        mut at: Instant,
        until: Option<Instant>,
        mut is_done: impl FnMut() -> bool,
    ) -> Result<Instant, EngineGone> {
        // If this call panics, the processor is dropped with it: no thread may continue with it. The same
        // applies when it stops, which the keeper waits for.
        let mut baton = self.baton.take().ok_or(EngineGone)?;
        // The leader's time in between is no protocol work, and was admitted as a handler's time.
        baton.processor.node.record_idle(at.since(self.left_at));
        baton.processor.timing.turn_begun = None;
        baton.processor.timing.standstill.begin(at);
        baton.processor.serve_handlers(at);
        loop {
            match baton.processor.step(at, until, &mut |_| is_done()) {
                Step::Goes(next) => at = next,
                Step::Done(at) => {
                    self.baton = Some(baton);
                    self.left_at = at;
                    return Ok(at);
                }
                Step::Stopped => return Err(EngineGone),
            }
        }
    }
}

impl<O: Outbox + 'static, I: Inbox + 'static> Drop for Lead<O, I> {
    fn drop(&mut self) {
        direct::retire();
        if let Some(HandedProcessor { processor, back }) = self.baton.take() {
            // The keeper waits for it as long as it exists.
            let _ = back.send(processor);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timers_are_as_they_were_after_a_lead() {
        // Slack belongs to a thread.
        let found = std::thread::spawn(|| {
            let before = TimerSlack::read();
            let raised = Raised::to(&RealTime::BEST_EFFORT_HOST).expect("an ordinary thread");
            let meanwhile = TimerSlack::read();
            drop(raised);
            (before, meanwhile, TimerSlack::read())
        });
        let (before, meanwhile, after) = found.join().expect("no panic");
        assert_ne!(before, meanwhile);
        assert_eq!(before, after);
    }
}
