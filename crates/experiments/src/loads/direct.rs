//! Round trips without a thread: the engine's own thread takes each answer and sends the next request.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, SyncSender, sync_channel};

use anyhow::{Context, bail};
use punctual::{Channel, Instant, Nanos, Receiver};
use punctual_os::clock::{now, wait_until};

use crate::measure::Sample;

/// Most round trips of a run: the log is made beforehand, handlers must not allocate.
const SAMPLES_MAX: usize = 1 << 18;
/// How often the runner checks.
const LOOK: Nanos = Nanos::from_millis(5);
/// Without an answer for so long the loop is broken: a message was lost. TCP has sent it again several times by then.
const BROKEN: Nanos = Nanos::from_secs(5);

/// The round trips of a handler, one after the other.
pub(super) struct Log {
    samples: Vec<Sample>,
    begun: Instant,
    until: Instant,
    progress: Arc<AtomicU64>,
    /// `None`: the run is over.
    finished: Option<SyncSender<Vec<Sample>>>,
}

/// How far a [`Log`] is.
pub(super) struct Progress {
    progress: Arc<AtomicU64>,
    finished: mpsc::Receiver<Vec<Sample>>,
}

/// A log for `length` from now on: the first request is sent now.
pub(super) fn log(length: Nanos) -> (Log, Progress) {
    let (sender, finished) = sync_channel(1);
    let (begun, progress) = (now(), Arc::new(AtomicU64::new(0)));
    let samples = Vec::with_capacity(SAMPLES_MAX);
    let until = begun + length;
    let log = Log { samples, begun, until, progress: Arc::clone(&progress), finished: Some(sender) };
    (log, Progress { progress, finished })
}

impl Log {
    /// An answer is there. Whether the next request is to be sent.
    pub(super) fn answered(&mut self) -> bool {
        let at = now();
        if self.finished.is_none() {
            return false;
        }
        self.samples.push(Sample { begun: self.begun, span: at.since(self.begun) });
        self.progress.store(self.samples.len() as u64, Ordering::Relaxed);
        self.begun = at;
        let is_over = at >= self.until || self.samples.len() == SAMPLES_MAX;
        if let Some(finished) = self.finished.take_if(|_| is_over) {
            // The runner waits for exactly this one.
            let _ = finished.try_send(std::mem::take(&mut self.samples));
        }
        !is_over
    }
}

impl Progress {
    /// The round trips, when the run is over. `state` describes the handler if it stopped before.
    ///
    /// # Errors
    /// If answers stop coming.
    pub(super) fn samples(&self, state: impl Fn() -> String) -> anyhow::Result<Vec<Sample>> {
        let (mut last, mut since) = (0, now());
        loop {
            wait_until(now() + LOOK)?;
            if let Ok(samples) = self.finished.try_recv() {
                return Ok(samples);
            }
            let count = self.progress.load(Ordering::Relaxed);
            if count != last {
                (last, since) = (count, now());
            } else if now().since(since) > BROKEN {
                bail!("round trips stopped after {count}: an answer was lost ({})", state());
            }
        }
    }
}

/// Round trips one after the other for `length`, and whether the handler here was demoted meanwhile.
///
/// # Errors
/// If a channel breaks or answers stop coming at once.
pub fn run(
    mut requests: Channel,
    answers: Receiver,
    bytes: usize,
    length: Nanos,
) -> anyhow::Result<(Vec<Sample>, bool)> {
    let message = vec![7; bytes];
    let (mut log, progress) = log(length);
    requests.send(&message).context("the first request")?;
    let handler = answers.on_message(move |answer, _, reply| {
        if answer.len() == message.len() && log.answered() {
            // A message that finds no room ends the loop; the runner detects that.
            let _ = reply.send(&mut requests, &message);
        }
    })?;
    let state = || format!("{} overruns of its handler, direct: {}", handler.overruns(), handler.is_direct());
    let samples = progress.samples(state)?;
    Ok((samples, !handler.is_direct()))
}
