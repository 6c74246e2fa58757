//! Round trips over TCP without a thread of their own: a client that leads its engine, and handlers on the engine's thread.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, ensure};
use punctual::Nanos;
use punctual::tcp::{TcpHandler, TcpLead, TcpReply, TcpStream};
use punctual_analysis::Instant;

use super::call::{Ask, Calls, Plan, calls};
use super::tcp::{BYTES_MAX, Exchange, LENGTH_AT, whole};
use super::{Caller, direct};
use crate::measure::Sample;

/// A caller over a connection of an engine in this process, whose work the calling thread does while it waits.
pub struct LeadingTcpCaller {
    /// `None` while it leads.
    stream: Option<TcpStream>,
    exchange: Exchange,
}

impl LeadingTcpCaller {
    /// Over `stream`, which has declared a time.
    pub fn new(stream: TcpStream) -> Self {
        Self { stream: Some(stream), exchange: Exchange::default() }
    }
}

impl Caller for LeadingTcpCaller {
    fn run(&mut self, plan: Plan, first: u64) -> anyhow::Result<Calls> {
        let stream = self.stream.take().context("a former run has lost the connection")?;
        let mut leading = Leading { lead: stream.lead()?, exchange: &mut self.exchange };
        let found = calls(&mut leading, plan, first);
        let led_no_more = !leading.lead.is_leading();
        self.stream = Some(leading.lead.end());
        Ok(Calls { led_no_more, ..found? })
    }
}

/// A client on the thread that leads.
struct Leading<'a> {
    lead: TcpLead,
    exchange: &'a mut Exchange,
}

impl Ask for Leading<'_> {
    fn call(&mut self, message: &[u8]) -> anyhow::Result<bool> {
        self.exchange.call(&mut self.lead, message)
    }

    fn rest(&mut self, until: Instant) {
        self.lead.rest(until);
    }
}

/// Bytes that a handler keeps until a message is whole, without allocating.
struct Gathered {
    bytes: Box<[u8]>,
    filled: usize,
}

impl Gathered {
    fn new() -> Self {
        Self { bytes: vec![0; BYTES_MAX].into(), filled: 0 }
    }

    /// Takes what came, and passes `answer` each whole message. Bytes beyond the longest message are dropped: the peer then waits
    /// in vain, and counts that.
    fn take(&mut self, came: &[u8], mut answer: impl FnMut(&[u8])) {
        let count = came.len().min(self.bytes.len() - self.filled);
        self.bytes[self.filled..self.filled + count].copy_from_slice(&came[..count]);
        self.filled += count;
        while let Some(length) = whole(&self.bytes[..self.filled])
            && (LENGTH_AT.end..=self.filled).contains(&length)
        {
            answer(&self.bytes[..length]);
            self.bytes.copy_within(length..self.filled, 0);
            self.filled -= length;
        }
    }
}

/// Writes all of `bytes`. A message that finds no room is cut, and its caller counts it as lost.
fn write(reply: &mut TcpReply<'_>, mut bytes: &[u8]) {
    while let Ok(count) = reply.write(bytes)
        && count > 0
    {
        bytes = &bytes[count..];
    }
}

/// Sends each message back on the processor's own thread, for as long as it is kept.
pub struct DirectTcpServer {
    handler: TcpHandler,
    has_ended: Arc<AtomicBool>,
}

impl DirectTcpServer {
    /// Over `stream`, which has declared a time.
    ///
    /// # Errors
    /// If the connection has ended, or declared no time.
    pub fn start(stream: TcpStream) -> anyhow::Result<Self> {
        let mut gathered = Gathered::new();
        let has_ended = Arc::new(AtomicBool::new(false));
        let ended = Arc::clone(&has_ended);
        let handler = stream.on_bytes(move |bytes, reply| {
            ended.fetch_or(bytes.is_empty(), Ordering::Relaxed);
            gathered.take(bytes, |message| write(reply, message));
        })?;
        Ok(Self { handler, has_ended })
    }

    /// Whether the peer has closed the connection.
    pub fn has_ended(&self) -> bool {
        self.has_ended.load(Ordering::Relaxed)
    }

    /// Whether the handler panicked.
    pub fn has_panicked(&self) -> bool {
        self.handler.has_panicked()
    }
}

/// Round trips of `bytes`, one after the other for `length`, by a handler over `stream`, whose peer answers.
///
/// # Errors
/// If the connection has ended or declared no time, or answers stop coming.
pub fn run(mut stream: TcpStream, bytes: usize, length: Nanos) -> anyhow::Result<Vec<Sample>> {
    ensure!((LENGTH_AT.end..=BYTES_MAX).contains(&bytes), "{bytes} B");
    let mut message = vec![7; bytes];
    message[LENGTH_AT].copy_from_slice(&u32::try_from(bytes)?.to_le_bytes());
    let mut gathered = Gathered::new();
    let (mut log, progress) = direct::log(length);
    stream.write_all(&message).context("the first request")?;
    let handler = stream.on_bytes(move |came, reply| {
        gathered.take(came, |_| {
            if log.answered() {
                write(reply, &message);
            }
        });
    })?;
    progress.samples(|| format!("{} calls of its handler", handler.calls()))
}
