//! The receiving end: every message is checked byte for byte and logged; some are answered.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use punctual_analysis::Nanos;
use punctual_os::clock::now;
use punctual_os::interrupt;

use super::{Background, Class, Content, MessageReceiver, Place, Sending};
use crate::measure::{Live, ReceiveLog, Received, Stamp};

/// Maximum delay until a waiting sink notices a request to stop.
const STOP_CHECK_INTERVAL: Nanos = Nanos::from_millis(100);

/// A stream's receiving end.
pub struct Receiving {
    /// The source of its messages.
    pub receiver: Box<dyn MessageReceiver>,
    /// Which stream; others' messages count as damaged.
    pub stream: u32,
    /// What should come.
    pub content: Content,
    /// Sends an answer to each message.
    pub answers: Option<Sending>,
    /// For the table of a running experiment.
    pub live: Arc<Live>,
}

/// A running sink: at its end it gives the log and the answering end, if there was one.
pub type Sink = Background<(ReceiveLog, Option<Sending>)>;

impl Receiving {
    /// Receives in `class` until it is stopped.
    ///
    /// # Errors
    /// If the thread cannot start.
    pub fn start(self, class: Class) -> std::io::Result<Sink> {
        let name = format!("sink-{}", self.stream);
        Sink::start(&Place::default(), &name, class, |stop| run(self, stop))
    }
}

fn run(mut receiving: Receiving, stop: &AtomicBool) -> anyhow::Result<(ReceiveLog, Option<Sending>)> {
    let mut log = ReceiveLog::with_capacity(1 << 16);
    let mut message = Vec::with_capacity(receiving.content.len_max());
    while !stop.load(Ordering::Relaxed) && interrupt::check().is_ok() {
        if !receiving.receiver.take(&mut message, now() + STOP_CHECK_INTERVAL)? {
            continue;
        }
        let delivered = now();
        let Some(stamp) = Stamp::read(&message) else { continue };
        if let Some(answers) = receiving.answers.as_mut() {
            answers.answer(stamp.sequence)?;
        }
        let intact = stamp.stream == receiving.stream && receiving.content.matches(stamp.sequence, &message);
        let bytes = u32::try_from(message.len())?;
        receiving.live.received(&stamp, delivered, bytes);
        log.push(Received { sequence: stamp.sequence, delivered, bytes, intact });
    }
    Ok((log, receiving.answers))
}
