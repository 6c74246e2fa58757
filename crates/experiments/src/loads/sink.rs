//! The receiving end: every message is checked byte for byte and logged; some are answered.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use anyhow::anyhow;
use punctual_analysis::{Instant, Nanos};
use punctual_os::clock::now;
use punctual_os::interrupt;

use super::{Class, Content, Inlet, Sending, Stamp};
use crate::measure::Live;

/// How long a waiting sink stays deaf to a request to stop.
const DEAF: Nanos = Nanos::from_millis(100);

/// One message at the receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// Its number.
    pub sequence: u64,
    /// When the application had it.
    pub delivered: Instant,
    /// Length, the stamp included.
    pub bytes: u32,
    /// Whether it is the message that was sent, byte for byte.
    pub intact: bool,
}

/// All messages of a receiver, in the order of delivery.
pub type ReceiveLog = Vec<Received>;

/// A stream's receiving end.
pub struct Receiving {
    /// Where from.
    pub inlet: Box<dyn Inlet>,
    /// Which stream; others' messages count as damaged.
    pub stream: u32,
    /// What should come.
    pub content: Content,
    /// Sends an answer to each message.
    pub answers: Option<Sending>,
    /// For the table of a running experiment.
    pub live: Arc<Live>,
}

/// A running sink.
pub struct Sink {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<anyhow::Result<(ReceiveLog, Option<Sending>)>>,
}

impl Sink {
    /// Receives until [`Sink::stop`].
    ///
    /// # Errors
    /// If the thread cannot start.
    pub fn start(receiving: Receiving, class: Class) -> std::io::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let name = format!("sink-{}", receiving.stream);
        let thread = std::thread::Builder::new().name(name).spawn(move || {
            class.enter()?;
            run(receiving, &stopped)
        })?;
        Ok(Self { stop, thread })
    }

    /// Ends it; gives the log and the answering end, if there was one.
    ///
    /// # Errors
    /// What broke the stream.
    pub fn stop(self) -> anyhow::Result<(ReceiveLog, Option<Sending>)> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().map_err(|_| anyhow!("a sink panicked"))?
    }
}

fn run(mut receiving: Receiving, stop: &AtomicBool) -> anyhow::Result<(ReceiveLog, Option<Sending>)> {
    let mut log = ReceiveLog::with_capacity(1 << 16);
    let mut message = Vec::with_capacity(receiving.content.len_max());
    while !stop.load(Ordering::Relaxed) && interrupt::check().is_ok() {
        if !receiving.inlet.take(&mut message, now() + DEAF)? {
            continue;
        }
        let delivered = now();
        let Some(stamp) = Stamp::read(&message) else {
            receiving.live.damaged();
            continue;
        };
        if let Some(answers) = receiving.answers.as_mut() {
            answers.answer(stamp.sequence)?;
        }
        let intact = stamp.stream == receiving.stream && receiving.content.matches(stamp.sequence, &message);
        let bytes = u32::try_from(message.len())?;
        receiving.live.received(&stamp, delivered, bytes, intact);
        log.push(Received { sequence: stamp.sequence, delivered, bytes, intact });
    }
    Ok((log, receiving.answers))
}
