//! A listener for TCP connections of this host's own.

use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use punctual_ipc::api::{Answer, Request};
#[cfg(feature = "embedded")]
use punctual_proto::Nanos;
use punctual_proto::ids::ChannelId;

#[cfg(feature = "embedded")]
use super::Qos;
use super::side;
use super::{TcpError, TcpStream};
use crate::connection::{Connection, Reply, lock};
use crate::error::Error;

/// Accepts TCP connections. Dropping it ends it; the connections that were accepted stay.
pub struct TcpListener {
    /// Dropped first: an embedded engine goes with the last handle of the connection.
    listening: Listening,
    local: SocketAddr,
    connection: Arc<Connection>,
    /// What its streams declare for a handler on the processor.
    #[cfg(feature = "embedded")]
    declared: Option<(Qos, Nanos)>,
}

/// A call that waits for a connection, and its answer.
pub(super) type AcceptCall = (u64, Receiver<Reply>);

/// The engine's side.
pub(super) enum Listening {
    #[cfg(feature = "embedded")]
    Embedded(Box<punctual_host::TcpListening>),
    /// At a daemon: the listener, and the call that waits for its next connection.
    Remote(ChannelId, Mutex<Option<AcceptCall>>),
}

impl TcpListener {
    pub(super) fn new(connection: &Arc<Connection>, local: SocketAddr, listening: Listening) -> Self {
        Self {
            listening,
            local,
            connection: Arc::clone(connection),
            #[cfg(feature = "embedded")]
            declared: None,
        }
    }

    /// Sets the time that handlers of the listener's streams declare.
    #[cfg(feature = "embedded")]
    pub(super) const fn declaring(mut self, qos: Qos, handler_time: Nanos) -> Self {
        self.declared = Some((qos, handler_time));
        self
    }

    /// The address and port at which it listens, as the program gave them.
    pub const fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// Waits for the next connection.
    ///
    /// # Errors
    /// See [`TcpError`]. A connection that admission refuses is reset, and [`TcpError::Peer`] names one that its peer has reset before;
    /// the listener goes on.
    pub fn accept(&self) -> Result<TcpStream, TcpError> {
        self.next(None)?.ok_or(TcpError::Gone)
    }

    /// Waits for the next connection for at most `timeout`; `None` if none came.
    ///
    /// # Errors
    /// See [`TcpListener::accept`].
    pub fn accept_timeout(&self, timeout: Duration) -> Result<Option<TcpStream>, TcpError> {
        self.next(Instant::now().checked_add(timeout))
    }

    /// Ends every [`TcpListener::accept`] that waits, and the listener.
    #[cfg(feature = "tokio")]
    pub(super) fn closer(&self) -> Box<dyn Fn() + Send + Sync> {
        match &self.listening {
            #[cfg(feature = "embedded")]
            Listening::Embedded(listening) => {
                let closer = Mutex::new(listening.closer());
                Box::new(move || lock(&closer).close())
            }
            Listening::Remote(channel, _) => {
                let (shared, channel) = (Arc::clone(&self.connection.shared), *channel);
                Box::new(move || shared.send_unanswered(Request::Close { channel }))
            }
        }
    }

    fn next(&self, until: Option<Instant>) -> Result<Option<TcpStream>, TcpError> {
        let opened = match &self.listening {
            #[cfg(feature = "embedded")]
            Listening::Embedded(listening) => {
                let host = self.connection.embedded.as_ref().ok_or(TcpError::NotEmbedded)?;
                super::embedded::accept(host, listening, until)?.map(side::embedded)
            }
            Listening::Remote(channel, call) => match self.next_reply(*channel, &mut lock(call), until)? {
                Some(reply) => Some(side::connected(&self.connection, reply)?),
                None => None,
            },
        };
        let stream = opened.map(|opened| TcpStream::new(&self.connection, opened));
        #[cfg(feature = "embedded")]
        if let Some((qos, handler_time)) = self.declared {
            return Ok(stream.map(|stream| stream.declaring(qos, handler_time)));
        }
        Ok(stream)
    }

    /// The answer to the call that waits for a connection. It goes on waiting when the time is over.
    fn next_reply(
        &self,
        channel: ChannelId,
        call: &mut Option<AcceptCall>,
        until: Option<Instant>,
    ) -> Result<Option<Reply>, TcpError> {
        let shared = &self.connection.shared;
        let waiting = match call.take() {
            Some(waiting) => waiting,
            None => shared.start_call(Request::AcceptTcp { channel })?,
        };
        let result = match until {
            Some(until) => waiting.1.recv_timeout(until.saturating_duration_since(Instant::now())),
            None => waiting.1.recv().map_err(|_| RecvTimeoutError::Disconnected),
        };
        match result {
            Ok(reply) => Ok(Some(reply)),
            Err(RecvTimeoutError::Timeout) => {
                *call = Some(waiting);
                Ok(None)
            }
            Err(RecvTimeoutError::Disconnected) => Err(shared.over().unwrap_or(Error::Disconnected).into()),
        }
    }

    /// Resets the connection that has come for a call which nobody waits for any more.
    fn refuse_next(&self, call: &mut Option<AcceptCall>) {
        let shared = &self.connection.shared;
        // The answer that is not there yet resets its connection when it comes.
        let Some((_, answer)) = call.take().filter(|(id, _)| !shared.abandon(*id)) else { return };
        if let Ok((Ok(Answer::TcpConnected { channel, .. }), _)) = answer.recv() {
            shared.refuse_tcp(channel);
        }
    }
}

impl Drop for TcpListener {
    fn drop(&mut self) {
        match &self.listening {
            #[cfg(feature = "embedded")]
            Listening::Embedded(_) => {}
            Listening::Remote(channel, call) => {
                self.refuse_next(&mut lock(call));
                self.connection.shared.forget(*channel);
                self.connection.shared.send_unanswered(Request::Close { channel: *channel });
            }
        }
    }
}
