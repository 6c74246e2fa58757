//! A program's own code on the processor (RTU: real-time upcalls): registered with a class and a declared time, granted with a
//! bound or refused with an offer, and called on the engine's own thread in the order of all protocol work.
//!
//! Application and protocol handlers share one run queue. So the computation of a program for each message,
//! or in each period, keeps its bound beside the channels, and they keep theirs. Bodies must neither wait nor
//! take longer than they have declared: overruns are counted, and a body that overruns repeatedly is demoted
//! to the background.
//!
//! See `examples/handler.rs`.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use punctual_engine::{Body, CallError, Upcall};
use punctual_ipc::ring::{InboxWriter, OutboxReader};
use thiserror::Error;

use crate::connection::Connection;
use crate::endsystem::Endsystem;
use crate::processor::is_processor;

pub use punctual_engine::Progress;
pub use punctual_proto::api::{
    Misconduct, RtuClass as Class, RtuCost as Cost, RtuCounters as Counters, RtuGrant as Grant,
    RtuRefusal as Refusal, RtuStatus as Status, RtuTerms as Terms,
};

/// Why a handler cannot be registered or queried.
#[derive(Debug, Error)]
pub enum RtuError {
    /// Admission refused it. Has the offer, if there is one.
    #[error("the handler is refused: {}", refusal_text(.0))]
    Refused(Refusal),
    /// The endsystem is a daemon's: a body can only be called in the process of the engine.
    #[error(
        "handlers run on an engine in this process, and this endsystem is a daemon's: use Endsystem::embedded"
    )]
    NotEmbedded,
    /// The engine does not answer.
    #[error(transparent)]
    Engine(#[from] CallError),
}

fn refusal_text(refusal: &Refusal) -> String {
    let Refusal::Processor(offer) = refusal else { return refusal.to_string() };
    match (offer.bound_possible, offer.period_possible) {
        (_, Some(period)) => format!("{refusal}; it would be granted every {period}"),
        (Some(bound), None) => format!("{refusal}; it would be granted with a deadline of {bound}"),
        (None, None) => refusal.to_string(),
    }
}

/// A registered handler. Dropping it removes it. It holds a reference to its endsystem: a body that owns its
/// own handle is never removed.
pub struct Rtu {
    /// Dropped first: the next field may be the last reference to the engine.
    upcall: Upcall<OutboxReader, InboxWriter>,
    panicked: Arc<AtomicBool>,
    _connection: Arc<Connection>,
}

impl Endsystem {
    /// Registers `body` to be called on the processor of this embedded endsystem. It receives the number of
    /// data units that it may process in this call, and returns how many it processed and whether there are
    /// more. It is called after [`Rtu::make_ready`], as soon as its class allows. While it reports more
    /// units, it is called again.
    ///
    /// # Errors
    /// [`RtuError::Refused`] with the reason and an offer.
    pub fn register(
        &self,
        terms: Terms,
        body: impl FnMut(u32) -> Progress + Send + 'static,
    ) -> Result<Rtu, RtuError> {
        let embedded = self.connection.embedded.as_ref().ok_or(RtuError::NotEmbedded)?;
        let panicked = Arc::new(AtomicBool::new(false));
        let upcall = embedded.register(terms, guarded(body, &panicked))?.map_err(RtuError::Refused)?;
        Ok(Rtu { upcall, panicked, _connection: Arc::clone(&self.connection) })
    }

    /// All programs' handlers of this embedded endsystem.
    ///
    /// # Errors
    /// If there is no engine in this process, or none any more.
    pub fn handlers(&self) -> Result<Vec<Status>, RtuError> {
        let embedded = self.connection.embedded.as_ref().ok_or(RtuError::NotEmbedded)?;
        Ok(embedded.handlers()?)
    }
}

/// Wraps a body so that a panic ends this body only.
fn guarded(mut body: impl FnMut(u32) -> Progress + Send + 'static, panicked: &Arc<AtomicBool>) -> Body {
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
    /// Marks the handler as ready: the body is called as soon as its class allows. It can be called on any
    /// thread, also in a body or in a handler of messages on the processor.
    ///
    /// # Errors
    /// If the engine is gone.
    pub fn make_ready(&self) -> Result<(), RtuError> {
        Ok(self.upcall.make_ready().map_err(CallError::Gone)?)
    }

    /// The grant of the handler.
    pub const fn grant(&self) -> Grant {
        self.upcall.grant()
    }

    /// Whether the body has panicked: it is not called any more.
    pub fn has_panicked(&self) -> bool {
        self.panicked.load(Ordering::Relaxed)
    }

    /// The counters of the handler, and how it was served.
    ///
    /// # Errors
    /// If the engine is gone; [`CallError::OnProcessor`] on the processor's own thread.
    pub fn status(&self) -> Result<Status, RtuError> {
        Ok(self.upcall.status()?.ok_or(CallError::Gone(punctual_engine::EngineGone))?)
    }
}

impl Drop for Rtu {
    fn drop(&mut self) {
        // The processor cannot wait for itself: it lets the handler go as soon as it has time.
        if is_processor() {
            self.upcall.let_go();
        } else {
            // An error means that the engine is gone, and the body with it.
            let _ = self.upcall.remove();
        }
    }
}
