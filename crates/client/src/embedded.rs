//! An endsystem with an engine in this process, and no daemon.

use punctual_host::config::HostConfig;
use punctual_host::{EmbeddedHost, EngineHost, HostError, Prepared};
use punctual_link::Link;

use crate::connection::Connection;
use crate::endsystem::Endsystem;
use crate::error::ConnectError;

impl Endsystem {
    /// Starts an engine in this process, with the same API and no daemon. It stops with the last handle.
    ///
    /// # Errors
    /// If a link, the real-time class or memory is refused: see [`ConnectError::Host`].
    pub fn embedded(config: &HostConfig) -> Result<Self, ConnectError> {
        Self::embedded_with(config, config.open_links().map_err(HostError::from)?)
    }

    /// Does what [`Endsystem::embedded`] does on links that the program made, in the order of the
    /// configuration. Two endsystems of one process can be joined by `memory` links in this way.
    ///
    /// # Errors
    /// See [`Endsystem::embedded`].
    pub fn embedded_with(config: &HostConfig, links: Vec<Box<dyn Link>>) -> Result<Self, ConnectError> {
        Self::around(Prepared::new(config)?.start(links)?)
    }

    fn around(host: EngineHost) -> Result<Self, ConnectError> {
        let (embedded, socket) = EmbeddedHost::start(host)?;
        Ok(Self { connection: Connection::start(socket, Some(embedded))? })
    }
}
