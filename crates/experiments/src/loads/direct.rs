//! Round trips without a thread: the engine's own thread takes each answer and sends the next request.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::sync_channel;

use anyhow::{Context, bail};
use punctual::{Channel, Instant, Nanos, Receiver};
use punctual_os::clock::{now, wait_until};

use crate::measure::Sample;

/// Most round trips of a run: the log is made beforehand, handlers must not allocate.
const SAMPLES_MAX: usize = 1 << 18;
/// How often the runner checks.
const LOOK: Nanos = Nanos::from_millis(5);
/// Without an answer for so long the loop is broken: a message was lost.
const BROKEN: Nanos = Nanos::from_millis(500);

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
    let until = now() + length;
    let progress = Arc::new(AtomicU64::new(0));
    let done = Arc::new(AtomicBool::new(false));
    let (sender, finished) = sync_channel(1);
    let (seen, ended) = (Arc::clone(&progress), Arc::clone(&done));
    let mut log: Vec<Sample> = Vec::with_capacity(SAMPLES_MAX);
    let message = vec![7; bytes];
    let mut begun: Instant = now();
    requests.send(&message).context("the first request")?;
    let handler = answers.on_message(move |answer, _, reply| {
        let at = now();
        if ended.load(Ordering::Relaxed) || answer.len() != message.len() {
            return;
        }
        log.push(Sample { begun, span: at.since(begun) });
        seen.store(log.len() as u64, Ordering::Relaxed);
        if at >= until || log.len() == SAMPLES_MAX {
            ended.store(true, Ordering::Relaxed);
            // The runner waits for exactly this one.
            let _ = sender.try_send(std::mem::take(&mut log));
            return;
        }
        begun = at;
        // A message that finds no room ends the loop; the runner detects that.
        let _ = reply.send(&mut requests, &message);
    })?;
    let (mut last, mut since) = (0, now());
    loop {
        wait_until(now() + LOOK)?;
        if let Ok(samples) = finished.try_recv() {
            return Ok((samples, !handler.is_direct()));
        }
        let count = progress.load(Ordering::Relaxed);
        if count != last {
            (last, since) = (count, now());
        } else if now().since(since) > BROKEN {
            bail!(
                "round trips stopped after {count}: an answer was lost ({} overruns of its handler, direct: {})",
                handler.overruns(),
                handler.is_direct()
            );
        }
    }
}
