//! A listener for TCP connections of this host's own.

use std::sync::Arc;
use std::time::{Duration, Instant};

use punctual_host::TcpListening;

use super::{TcpError, TcpStream};
use crate::connection::Connection;

/// Accepts TCP connections. Dropping it ends it; the connections that were accepted stay.
pub struct TcpListener {
    /// Dropped first: the engine goes with the last handle of the connection.
    listening: TcpListening,
    connection: Arc<Connection>,
}

impl TcpListener {
    pub(super) fn new(connection: &Arc<Connection>, listening: TcpListening) -> Self {
        Self { listening, connection: Arc::clone(connection) }
    }

    /// Waits for the next connection.
    ///
    /// # Errors
    /// See [`TcpError`]. A connection that admission refuses is reset; the listener goes on.
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

    fn next(&self, until: Option<Instant>) -> Result<Option<TcpStream>, TcpError> {
        let ends = self.listening.accept(until)?;
        Ok(ends.map(|ends| TcpStream::new(&self.connection, ends)))
    }
}
