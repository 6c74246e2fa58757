//! A handler of a stream's bytes on the processor's own thread, for an engine in this process.
//!
//! Ownership: the handler and the outgoing ring are within the processor's end of the incoming ring, until the connection is over;
//! then an ordinary thread drops them. A handler that panics is not called again.

use std::io::{self, IoSlice};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use punctual_ipc::ring::outgoing::PushError;
use punctual_ipc::ring::{InboxReader, OutboxWriter, Upcall, now};

use super::side::LocalEnd;
use super::stream::{TcpStream, gone};
use super::{Ended, Status, TcpError};

/// How a handler answers.
pub struct TcpReply<'a> {
    outbox: &'a mut OutboxWriter,
}

impl TcpReply<'_> {
    /// Writes bytes to the stream, as many as there is room for, at most those of one slot of the ring; the output handler
    /// sends them as soon as this handler has returned.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] without room; [`io::ErrorKind::BrokenPipe`] if the connection has ended.
    pub fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = bytes.len().min(self.outbox.shape().message_bytes_max as usize);
        if count == 0 {
            return Ok(0);
        }
        // The processor looks at the ring behind each call of the input handler.
        match self.outbox.push_beside(&bytes[..count], now()) {
            Ok(_) => Ok(count),
            Err(PushError::Full) => Err(io::ErrorKind::WouldBlock.into()),
            Err(error) => Err(io::Error::new(io::ErrorKind::BrokenPipe, error)),
        }
    }

    /// Does what [`TcpReply::write`] does with several buffers, one after the other.
    ///
    /// # Errors
    /// See [`TcpReply::write`]: without room for all of them nothing is written.
    pub fn write_vectored(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        let mut count = 0;
        let filled = self.outbox.fill_beside(
            |slot| {
                count = super::stream_io::gather(slot, 0, parts);
                count
            },
            now(),
        );
        match filled {
            Ok(_) => Ok(count),
            Err(PushError::Full) => Err(io::ErrorKind::WouldBlock.into()),
            Err(error) => Err(io::Error::new(io::ErrorKind::BrokenPipe, error)),
        }
    }
}

#[derive(Default)]
struct Stage {
    calls: AtomicU64,
    panicked: AtomicBool,
}

/// A handler at work, and the connection that it serves. Dropping it closes the connection.
pub struct TcpHandler {
    end: LocalEnd,
    stage: Arc<Stage>,
    /// Without this end the ring would be closed.
    _inbox: InboxReader,
}

impl TcpStream {
    /// Calls `handler` on the processor's own thread with the bytes that come, from now on, beginning with those that wait. At the
    /// end of the stream, or of the connection, they are empty. No thread is woken and no byte is copied for it; what it writes
    /// leaves without another thread.
    ///
    /// In return it must neither wait nor allocate, and must keep to the time that was declared
    /// ([`Endsystem::connect_tcp_direct`](crate::Endsystem::connect_tcp_direct)). What it takes is the input handler's time: one
    /// that overruns repeatedly is demoted with that handler ([`crate::rtu`]).
    ///
    /// # Errors
    /// [`TcpError::HandlerTime`] without a declared time; [`TcpError::Gone`] if the connection or the engine has ended.
    pub fn on_bytes(
        self,
        handler: impl FnMut(&[u8], &mut TcpReply<'_>) + Send + 'static,
    ) -> Result<TcpHandler, TcpError> {
        let id = self.end.id().filter(|_| self.declared.is_some()).ok_or(TcpError::HandlerTime)?;
        let Self { end, outbox, inbox, read, .. } = self;
        let stage = Arc::new(Stage::default());
        let upcall = calling(handler, outbox, read, Arc::clone(&stage));
        let (inbox, is_there) = end.host()?.call_up_tcp(id, inbox, upcall).map_err(|_| TcpError::Gone)?;
        if is_there { Ok(TcpHandler { end, stage, _inbox: inbox }) } else { Err(TcpError::Gone) }
    }
}

/// Calls `handler` with each message but the first `read` bytes.
fn calling(
    mut handler: impl FnMut(&[u8], &mut TcpReply<'_>) + Send + 'static,
    mut outbox: OutboxWriter,
    mut read: usize,
    stage: Arc<Stage>,
) -> Upcall {
    Box::new(move |message, _| {
        stage.calls.fetch_add(1, Ordering::Relaxed);
        let bytes = &message[std::mem::take(&mut read).min(message.len())..];
        let mut reply = TcpReply { outbox: &mut outbox };
        let run = catch_unwind(AssertUnwindSafe(|| handler(bytes, &mut reply)));
        if run.is_err() {
            stage.panicked.store(true, Ordering::Release);
        }
        run.is_ok()
    })
}

impl TcpHandler {
    /// Times at which it was called.
    pub fn calls(&self) -> u64 {
        self.stage.calls.load(Ordering::Relaxed)
    }

    /// Whether it has panicked, and is not called again.
    pub fn has_panicked(&self) -> bool {
        self.stage.panicked.load(Ordering::Acquire)
    }

    /// State, segments and buffers of the connection; `None` once it is over.
    ///
    /// # Errors
    /// If the engine has ended, or this is its own thread.
    pub fn status(&self) -> io::Result<Option<Status>> {
        self.end.status().map_err(gone)
    }

    /// Closes the program's direction behind what the handler has written.
    ///
    /// # Errors
    /// If the engine has ended.
    pub fn shutdown(&self) -> io::Result<()> {
        self.end.shutdown().map_err(gone)
    }

    /// Why the connection ended, if it has.
    pub fn ended(&mut self) -> Option<Ended> {
        self.end.ended()
    }
}

impl Drop for TcpHandler {
    fn drop(&mut self) {
        if self.has_panicked() {
            // What came since is read by nobody. An error means that the connection is gone.
            let _ = self.end.abort();
        }
    }
}
