//! A program's own code as a real-time upcall (RTU): registered with a class and a declared time, granted with a bound or
//! refused with an offer, and called in the order of all protocol work.
//!
//! Application and protocol handlers share one run queue, that of the engine's processor. So what a program computes for each
//! message, or in each period, keeps its bound beside the channels, and they keep theirs.
//!
//! - *Embedded*, the processor itself calls the body. Bodies do not wait and take no longer than they have declared: one that
//!   does is counted, and demoted to the background if that is no accident. What a body sends can have slots of its own on a
//!   link ([`Endsystem::register_sending`]).
//! - *Through a daemon*, the processor wakes a thread of this process, which calls the body and reports: one call, one report,
//!   in turns. The thread gets the `SCHED_FIFO` priority that the host maps the class to, where it allows that
//!   (`co_schedule`). The bound is that of the wake-up: from then on the body's time is this process's own.
//!
//! See `examples/handler.rs`, `examples/alternation.rs` and `examples/upcall.rs`.

#[cfg(feature = "embedded")]
mod direct;
mod remote;
#[cfg(feature = "embedded")]
mod sending;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use punctual_ipc::api::ApiError;
use thiserror::Error;

use self::remote::Remote;
use crate::endsystem::Endsystem;
use crate::error::Error;

pub use punctual_proto::api::{
    Misconduct, RtuClass as Class, RtuCost as Cost, RtuCounters as Counters, RtuGrant as Grant,
    RtuProgress as Progress, RtuRefusal as Refusal, RtuStatus as Status, RtuTerms as Terms,
};
#[cfg(feature = "embedded")]
pub use sending::Sender;

/// Why a handler is not registered, or cannot be asked about.
#[derive(Debug, Error)]
pub enum RtuError {
    /// Admission refuses the handler; what it could offer.
    #[error("the handler is refused: {}", refusal_text(.0))]
    Refused(Refusal),
    /// What was asked for needs an engine in this process.
    #[error(
        "what a handler sends has slots of its own only on an engine in this process: use Endsystem::embedded"
    )]
    NotEmbedded,
    /// The engine or the daemon does not answer, or refuses for another reason.
    #[error(transparent)]
    Host(#[from] Error),
}

#[cfg(feature = "embedded")]
impl From<punctual_engine::CallError> for RtuError {
    fn from(error: punctual_engine::CallError) -> Self {
        Self::Host(error.into())
    }
}

impl RtuError {
    /// The error of a request.
    fn answered(error: Error) -> Self {
        match error {
            Error::Daemon(ApiError::Handler(refusal)) => Self::Refused(refusal),
            error => Self::Host(error),
        }
    }
}

fn refusal_text(refusal: &Refusal) -> String {
    let (Refusal::Processor(offer) | Refusal::Link(offer)) = refusal else { return refusal.to_string() };
    match (offer.bound_possible, offer.period_possible) {
        (_, Some(period)) => format!("{refusal}; it would be granted every {period}"),
        (Some(bound), None) => format!("{refusal}; it would be granted with a deadline of {bound}"),
        (None, None) => refusal.to_string(),
    }
}

/// A handler that is registered. Dropping it removes it. It keeps its endsystem alive: a body that owns its own handle is
/// never removed.
pub struct Rtu {
    at: Place,
    panicked: Arc<AtomicBool>,
}

/// Place where the handler's body is called.
enum Place {
    #[cfg(feature = "embedded")]
    Processor(direct::Direct),
    Thread(Remote),
}

/// A body, as it is called.
pub(crate) type BoxedBody = Box<dyn FnMut(u32) -> Progress + Send>;

impl Endsystem {
    /// Registers `body` to be called in the run queue of the engine's processor. It is given the number of data units that it
    /// may process in this call, and returns how many it did and whether there is more. It is called after [`Rtu::make_ready`],
    /// as soon as its class allows; while it reports more, it is called again.
    ///
    /// # Errors
    /// [`RtuError::Refused`] with the reason and an offer; else if the daemon or the system refuses a ring or a thread.
    pub fn register(
        &self,
        terms: Terms,
        body: impl FnMut(u32) -> Progress + Send + 'static,
    ) -> Result<Rtu, RtuError> {
        let panicked = Arc::new(AtomicBool::new(false));
        let body = guarded(body, &panicked);
        #[cfg(feature = "embedded")]
        if self.connection.embedded.is_some() {
            let direct = direct::Direct::register(&self.connection, terms, body)?;
            return Ok(Rtu { at: Place::Processor(direct), panicked });
        }
        let remote = Remote::register(&self.connection, terms, body)?;
        Ok(Rtu { at: Place::Thread(remote), panicked })
    }

    /// All programs' handlers of this host.
    ///
    /// # Errors
    /// If the engine or the daemon is gone, or this thread does the engine's work.
    pub fn handlers(&self) -> Result<Vec<Status>, RtuError> {
        let handlers = self.connection.shared.handlers()?;
        Ok(handlers.into_iter().map(|handler| handler.handler).collect())
    }
}

/// A body whose panic ends only itself.
fn guarded(mut body: impl FnMut(u32) -> Progress + Send + 'static, panicked: &Arc<AtomicBool>) -> BoxedBody {
    let panicked = Arc::clone(panicked);
    Box::new(move |units| {
        if panicked.load(Ordering::Relaxed) {
            return Progress::default();
        }
        catch_unwind(AssertUnwindSafe(|| body(units))).unwrap_or_else(|_| {
            panicked.store(true, Ordering::Relaxed);
            Progress::default()
        })
    })
}

impl Rtu {
    /// There is work: the body is called as soon as its class allows. On any thread, also in a body or in a handler of
    /// messages on the processor.
    ///
    /// # Errors
    /// If the engine is gone.
    pub fn make_ready(&self) -> Result<(), RtuError> {
        match &self.at {
            #[cfg(feature = "embedded")]
            Place::Processor(direct) => direct.make_ready(),
            Place::Thread(remote) => Ok(remote.make_ready()?),
        }
    }

    /// What the handler was granted.
    pub const fn grant(&self) -> Grant {
        match &self.at {
            #[cfg(feature = "embedded")]
            Place::Processor(direct) => direct.grant(),
            Place::Thread(remote) => remote.grant(),
        }
    }

    /// `SCHED_FIFO` priority of the thread on which the body is called; `None` if it is an ordinary one, or the processor.
    pub const fn priority(&self) -> Option<u8> {
        match &self.at {
            #[cfg(feature = "embedded")]
            Place::Processor(_) => None,
            Place::Thread(remote) => remote.priority(),
        }
    }

    /// Whether the body has panicked: it is not called any more.
    pub fn has_panicked(&self) -> bool {
        self.panicked.load(Ordering::Relaxed)
    }

    /// What the handler has done and how it was served.
    ///
    /// # Errors
    /// If the engine is gone; [`Error::OnProcessor`] on the processor's own thread.
    pub fn status(&self) -> Result<Status, RtuError> {
        match &self.at {
            #[cfg(feature = "embedded")]
            Place::Processor(direct) => direct.status(),
            Place::Thread(remote) => Ok(remote.status()?),
        }
    }
}
