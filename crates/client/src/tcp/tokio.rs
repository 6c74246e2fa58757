//! TCP connections in programs that use tokio (feature `tokio`): [`AsyncTcpStream`] has its traits, [`AsyncTcpListener`] accepts.
//!
//! The rings' descriptors wake the program's reactor. No thread of ours runs tokio.

use std::io;
use std::net::{Shutdown, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};

use ::tokio::io::unix::AsyncFd;
use ::tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use ::tokio::sync::mpsc;
use ::tokio::task::coop::poll_proceed;
use ::tokio::task::{JoinHandle, spawn_blocking};

use super::stream_io::REASON_PAUSE;
use super::{Qos, TcpError, TcpListener, TcpStream};
use crate::endsystem::Endsystem;

/// A TCP connection with tokio's traits. Dropping it does what dropping a [`TcpStream`] does.
pub struct AsyncTcpStream {
    /// Dropped before the stream, whose descriptors these copy.
    readable: AsyncFd<OwnedFd>,
    writable: AsyncFd<OwnedFd>,
    /// The reason of the stream's end is looked for again when this is over: no thread that runs tasks waits for it.
    pause: Option<JoinHandle<()>>,
    stream: TcpStream,
}

#[allow(
    deprecated,
    reason = "its successor leaves it to the caller that the descriptor stays open: an owned one does"
)]
fn watch(descriptor: impl AsFd) -> io::Result<AsyncFd<OwnedFd>> {
    AsyncFd::with_interest(descriptor.as_fd().try_clone_to_owned()?, Interest::READABLE)
}

impl TcpStream {
    /// The stream with tokio's traits.
    ///
    /// # Errors
    /// If descriptors run out.
    ///
    /// # Panics
    /// Outside of a tokio runtime whose I/O driver is enabled.
    pub fn into_async(mut self) -> io::Result<AsyncTcpStream> {
        self.set_nonblocking(true);
        let (readable, writable) = (watch(&self.inbox)?, watch(&self.outbox)?);
        Ok(AsyncTcpStream { readable, writable, pause: None, stream: self })
    }
}

/// Whether a future still waits for a thread.
struct Waits(Arc<AtomicBool>);

impl Drop for Waits {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

impl Endsystem {
    /// Does what [`Endsystem::connect_tcp`] does, on a thread of tokio's for calls that wait. If the future is dropped, the connection
    /// ends within a tenth of a second, and what this host has reserved for it is given back: `tokio::time::timeout` bounds the wait.
    ///
    /// # Errors
    /// See [`Endsystem::connect_tcp`].
    pub async fn connect_tcp_async(&self, peer: SocketAddr, qos: Qos) -> Result<AsyncTcpStream, TcpError> {
        let (endsystem, waits) = (self.clone(), Waits(Arc::new(AtomicBool::new(true))));
        let goes_on = Arc::clone(&waits.0);
        let connecting = move || endsystem.connect_tcp_while(peer, qos, || goes_on.load(Ordering::Relaxed));
        let connected = spawn_blocking(connecting).await;
        drop(waits);
        // The runtime ends, or the thread has panicked.
        let stream = connected.map_err(|_| TcpError::Gone)??;
        Ok(stream.into_async().map_err(crate::error::Error::from)?)
    }
}

impl AsyncTcpStream {
    /// The stream, for options and status: these calls do not wait for the peer.
    pub const fn get_mut(&mut self) -> &mut TcpStream {
        &mut self.stream
    }

    /// The stream without tokio; it waits again.
    pub fn into_blocking(self) -> TcpStream {
        let mut stream = self.stream;
        stream.set_nonblocking(false);
        stream
    }
}

/// Calls `attempt` until it no longer would wait, and has the task woken when `bell` rings. It is a part of tokio's budget of a task: a
/// fast peer does not keep the thread from other tasks and timers.
fn poll_with<R>(
    bell: &AsyncFd<OwnedFd>,
    context: &mut Context<'_>,
    mut attempt: impl FnMut() -> io::Result<R>,
) -> Poll<io::Result<R>> {
    let turn = ready!(poll_proceed(context));
    loop {
        match attempt() {
            // A ring that comes after the attempt makes the descriptor ready anew.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                ready!(bell.poll_read_ready(context))?.clear_ready();
            }
            result => {
                turn.made_progress();
                return Poll::Ready(result);
            }
        }
    }
}

impl AsyncRead for AsyncTcpStream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let Self { readable, pause, stream, .. } = self.get_mut();
        loop {
            if let Some(pausing) = pause {
                // The runtime ends, or the pause is over.
                let _ = ready!(Pin::new(pausing).poll(context));
                *pause = None;
            }
            let count = ready!(poll_with(readable, context, || {
                match io::Read::read(stream, buffer.initialize_unfilled()) {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock && stream.awaits_reason() => {
                        Ok(None)
                    }
                    result => result.map(Some),
                }
            }))?;
            match count {
                Some(count) => {
                    buffer.advance(count);
                    return Poll::Ready(Ok(()));
                }
                None => *pause = Some(spawn_blocking(|| std::thread::sleep(REASON_PAUSE))),
            }
        }
    }
}

impl AsyncWrite for AsyncTcpStream {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(context, &[io::IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let Self { writable, stream, .. } = self.get_mut();
        poll_with(writable, context, || io::Write::write_vectored(stream, parts))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    /// Does nothing: what is written leaves as soon as the connection may send it.
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    /// Closes the program's direction behind what was written; does not wait for the peer.
    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(self.get_mut().stream.shutdown(Shutdown::Write))
    }
}

/// Accepts connections for tasks. A thread of its own waits for them; one connection may wait here, beyond the backlog.
pub struct AsyncTcpListener {
    streams: mpsc::Receiver<Result<TcpStream, TcpError>>,
    close: Box<dyn Fn() + Send + Sync>,
}

impl TcpListener {
    /// The listener for tasks.
    ///
    /// # Errors
    /// If the system refuses a thread.
    pub fn into_async(self) -> io::Result<AsyncTcpListener> {
        let (sender, streams) = mpsc::channel(1);
        let close = self.closer();
        std::thread::Builder::new().name("punctual-accept".into()).spawn(move || {
            // Without a receiver the program listens no more.
            while sender.blocking_send(self.accept()).is_ok() {}
        })?;
        Ok(AsyncTcpListener { streams, close })
    }
}

impl AsyncTcpListener {
    /// Waits for the next connection. A call that is dropped loses none.
    ///
    /// # Errors
    /// See [`TcpListener::accept`].
    ///
    /// # Panics
    /// As [`TcpStream::into_async`].
    pub async fn accept(&mut self) -> Result<AsyncTcpStream, TcpError> {
        let stream = self.streams.recv().await.ok_or(TcpError::Gone)??;
        Ok(stream.into_async().map_err(crate::error::Error::from)?)
    }
}

impl Drop for AsyncTcpListener {
    fn drop(&mut self) {
        self.streams.close();
        (self.close)();
    }
}
