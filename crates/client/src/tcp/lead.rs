//! A thread that does the engine's work while it waits for a stream, as [`Lead`](crate::Lead) does for channels: its segments pass
//! no other thread of this host.

use std::io::{self, Read, Write};
use std::time::Duration;

use punctual_ipc::ring::now;
use punctual_proto::{Instant, Nanos};

use super::stream::TcpStream;
use super::{Qos, TcpError};
use crate::lead::{EngineLead, LeadBudget, drive};

/// Makes the calling thread the engine's own thread, from [`TcpStream::lead`] until the drop or [`TcpLead::end`]. Calls that wait
/// in another way fail meanwhile ([`Error::OnProcessor`](crate::Error::OnProcessor)).
pub struct TcpLead {
    /// Dropped first: the stream may hold the last reference to the engine. `None`: this thread does not lead any more.
    engine: Option<EngineLead>,
    stream: TcpStream,
    away: LeadBudget,
    /// Time at which the thread went back to the program.
    left_at: Instant,
}

/// Segments that come at once, and the time between two: what admission has counted.
fn segments(qos: Qos) -> Option<(u32, Nanos)> {
    use punctual_proto::api::RtuClass::{BestEffort, Guaranteed, LowDelay};
    match qos.class() {
        LowDelay { interval, units, .. } => Some((units, interval / u64::from(units.max(1)))),
        Guaranteed { period, units, .. } => Some((units, period / u64::from(units.max(1)))),
        BestEffort => None,
    }
    .filter(|(_, interval)| interval.0 > 0)
}

impl TcpStream {
    /// Makes the calling thread do the engine's work from now on, whenever it waits. Between two waits it may take as long as was
    /// declared for each segment of its class ([`Endsystem::connect_tcp_direct`](crate::Endsystem::connect_tcp_direct)); one
    /// that repeatedly takes longer leads no more, and its calls then wait like those of any other thread.
    ///
    /// # Errors
    /// [`TcpError::HandlerTime`] without a declared time, [`TcpError::NoBudget`] for best effort; [`TcpError::Lead`] if the thread
    /// does not get the engine's class or CPU.
    pub fn lead(mut self) -> Result<TcpLead, TcpError> {
        let (qos, declared) = self.declared.ok_or(TcpError::HandlerTime)?;
        let terms = segments(qos).ok_or(TcpError::NoBudget)?;
        let engine = Some(self.end.host()?.lead()?);
        self.set_nonblocking(true);
        let left_at = now();
        Ok(TcpLead { engine, stream: self, away: LeadBudget::new(declared, terms, left_at), left_at })
    }
}

impl TcpLead {
    /// The stream, for calls that do not wait.
    pub const fn stream(&mut self) -> &mut TcpStream {
        &mut self.stream
    }

    /// Whether it leads still: not any more if it stayed away too long too often, or the engine has stopped.
    pub const fn is_leading(&self) -> bool {
        self.engine.is_some()
    }

    /// Times at which it stayed away longer than was declared.
    pub const fn overruns(&self) -> u64 {
        self.away.overruns
    }

    /// Does the engine's work until `until`: how a periodic program waits for its next turn.
    pub fn rest(&mut self, until: Instant) {
        self.come_back();
        drive(&mut self.engine, &mut self.left_at, Some(until), || false);
        self.stream.set_nonblocking(self.engine.is_some());
        // No thread leads the engine any more: sleep for the rest.
        std::thread::sleep(Duration::from_nanos(until.since(now()).0));
    }

    /// Leads no more; the stream serves on.
    pub fn end(self) -> TcpStream {
        let Self { engine, mut stream, .. } = self;
        drop(engine);
        stream.set_nonblocking(false);
        stream
    }

    /// The program was away until now.
    fn come_back(&mut self) {
        if self.engine.is_none() {
            return;
        }
        let at = now();
        let may_go_on = self.away.was(at.since(self.left_at), at);
        self.left_at = at;
        if !may_go_on {
            self.engine = None;
        }
        self.stream.set_nonblocking(self.engine.is_some());
    }

    fn until(&self, timeout: Option<Duration>) -> Option<Instant> {
        let nanos = |span: Duration| Nanos(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX));
        timeout.map(|timeout| self.left_at + nanos(timeout))
    }

    fn drive_for(&mut self, timeout: Option<Duration>, is_done: impl Fn(&TcpStream) -> bool) {
        let until = self.until(timeout);
        let stream = &self.stream;
        drive(&mut self.engine, &mut self.left_at, until, || is_done(stream));
        self.stream.set_nonblocking(self.engine.is_some());
    }
}

impl Read for TcpLead {
    /// Does the engine's work until bytes come, the stream ends, or the stream's read timeout.
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.come_back();
        if self.is_leading() && !self.stream.saw_end {
            let timeout = self.stream.read_timeout();
            self.drive_for(timeout, |stream| {
                stream.inbox.has_message() || stream.inbox.is_closed() || stream.awaits_reason()
            });
        }
        self.stream.read(buffer)
    }
}

impl Write for TcpLead {
    /// Puts bytes into the ring, and does the work for them, so that they have left or wait for their turn when this returns; does
    /// the engine's work until there is room, or the stream's write timeout.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.come_back();
        if self.is_leading() && self.stream.outbox.is_full() {
            let timeout = self.stream.write_timeout();
            self.drive_for(timeout, |stream| !stream.outbox.is_full() || stream.outbox.is_closed());
        }
        let written = self.stream.write(bytes)?;
        if self.is_leading() {
            drive(&mut self.engine, &mut self.left_at, None, || true);
        }
        Ok(written)
    }

    /// Does nothing, as that of the stream.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
