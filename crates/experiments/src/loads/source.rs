//! The sending end: messages at their times, each stamped and logged.

use std::sync::Arc;
use std::thread::JoinHandle;

use anyhow::anyhow;
use punctual_analysis::{Contract, Instant, LogicalArrivals, Nanos, Policing};
use punctual_os::clock::{now, sleep_until};
use punctual_os::interrupt;

use super::{Arrivals, Class, Content, MessageSender, Offered};
use crate::measure::{Live, SendLog, Sent, Stamp};

/// How long a continuous source waits when its queue is full: short against any interval of the experiments.
const FULL_WAIT: Nanos = Nanos::from_micros(500);
/// How far a message may be ahead of its contract and count as conforming: jitter of wake-ups.
const AHEAD_MAX: Nanos = Nanos::from_micros(250);
/// Maximum delay until a sleeper notices Ctrl-C.
const STOP_CHECK_INTERVAL: Nanos = Nanos::from_millis(100);

/// A stream's sending end. It keeps its regulator, its numbering and its log over many runs.
pub struct Sending {
    sender: Box<dyn MessageSender>,
    stream: u32,
    content: Content,
    /// l by the contract, as the promise counts it (HARTS 3.1).
    regulator: Option<LogicalArrivals>,
    next: u64,
    /// The log of the offered messages.
    pub log: SendLog,
    live: Arc<Live>,
    buffer: Vec<u8>,
}

impl Sending {
    /// Through `sender`, as stream number `stream`; `contract` for guaranteed streams.
    pub fn new(
        sender: Box<dyn MessageSender>,
        stream: u32,
        content: Content,
        contract: Option<&Contract>,
        live: Arc<Live>,
    ) -> Self {
        let buffer = Vec::with_capacity(content.len_max());
        let regulator = contract.map(LogicalArrivals::of);
        Self { sender, stream, content, regulator, next: 0, log: Vec::new(), live, buffer }
    }

    /// See [`MessageSender::resent`].
    pub fn resent(&self) -> Option<u64> {
        self.sender.resent()
    }

    /// Offers the next message. If it is not taken, it is logged as such and skipped; with `waits` neither.
    ///
    /// # Errors
    /// If the stream is broken.
    pub fn offer(&mut self, waits: bool) -> anyhow::Result<Offered> {
        let (offered, sent) = self.try_offer(self.next)?;
        if !waits || offered == Offered::Taken {
            self.next += 1;
            self.record(sent);
        }
        Ok(offered)
    }

    /// Offers message `sequence`: an answer to a message of that number.
    ///
    /// # Errors
    /// If the stream is broken.
    pub fn answer(&mut self, sequence: u64) -> anyhow::Result<Offered> {
        let (offered, sent) = self.try_offer(sequence)?;
        self.record(sent);
        Ok(offered)
    }

    fn try_offer(&mut self, sequence: u64) -> anyhow::Result<(Offered, Sent)> {
        self.content.fill(sequence, &mut self.buffer);
        let sent = now();
        let logical = self.regulator.as_ref().map_or(sent, |regulator| regulator.peek(sent));
        Stamp { stream: self.stream, sequence, sent, logical }.write(&mut self.buffer);
        let conforms = self.regulator.as_ref().is_none_or(|regulator| regulator.conforms(sent + AHEAD_MAX));
        let offered = self.sender.offer(&self.buffer)?;
        if let (Offered::Taken, Some(regulator)) = (offered, self.regulator.as_mut()) {
            regulator.accept(sent, Policing::Delay);
        }
        let bytes = u32::try_from(self.buffer.len())?;
        Ok((offered, Sent { sequence, sent, logical, bytes, taken: offered == Offered::Taken, conforms }))
    }

    fn record(&mut self, sent: Sent) {
        self.live.offered(&sent);
        self.log.push(sent);
    }
}

/// A running source.
pub struct Source {
    thread: JoinHandle<anyhow::Result<Sending>>,
}

impl Source {
    /// Sends at the times of `arrivals` from `from` until `until`.
    ///
    /// # Errors
    /// If the thread cannot start.
    pub fn start(
        sending: Sending,
        arrivals: Arrivals,
        class: Class,
        from: Instant,
        until: Instant,
    ) -> std::io::Result<Self> {
        let name = format!("source-{}", sending.stream);
        let thread = std::thread::Builder::new().name(name).spawn(move || {
            class.enter()?;
            run(sending, arrivals, from, until)
        })?;
        Ok(Self { thread })
    }

    /// Waits for its end and gives the stream's sending end back.
    ///
    /// # Errors
    /// What broke the stream.
    pub fn join(self) -> anyhow::Result<Sending> {
        self.thread.join().map_err(|_| anyhow!("a source panicked"))?
    }
}

fn run(mut sending: Sending, arrivals: Arrivals, from: Instant, until: Instant) -> anyhow::Result<Sending> {
    let mut index = 0;
    sleep_attentively(from);
    while now() < until && interrupt::check().is_ok() {
        match arrivals.due(index).map(|offset| from + offset) {
            Some(due) if due >= until => {
                sleep_attentively(until);
                break;
            }
            Some(due) => {
                sleep_attentively(due);
                sending.offer(false)?;
            }
            None => {
                if sending.offer(true)? == Offered::Full {
                    sleep_until(now() + FULL_WAIT);
                    continue;
                }
            }
        }
        index += 1;
    }
    Ok(sending)
}

/// Sleeps until `at`; gives up early when the run is interrupted.
fn sleep_attentively(at: Instant) {
    while now() < at && interrupt::check().is_ok() {
        sleep_until(at.min(now() + STOP_CHECK_INTERVAL));
    }
}
