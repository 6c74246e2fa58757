//! `punctuald`: one host's engine with its API on a Unix socket.
//!
//! [`run`] owns everything for one life of the host: the configured links and the engine (which runs its own
//! processor thread), the socket, and the API loop, which runs on the calling thread. It returns after a
//! graceful stop: channels torn down, other ends told, the socket removed.

mod socket;

use std::os::fd::BorrowedFd;

use punctual::host::{EngineHost, HostError, quotas};
use punctual_engine::config::HostConfig;
use punctual_ipc::service::server::Server;
use punctual_link::Link;
use thiserror::Error;
use tracing::{info, warn};

pub use socket::{ApiSocket, SocketError};

/// A daemon that did not start, or that failed.
#[derive(Debug, Error)]
pub enum DaemonError {
    /// The links or the engine.
    #[error(transparent)]
    Host(#[from] HostError),
    /// The API's socket.
    #[error(transparent)]
    Socket(#[from] SocketError),
    /// The API's loop.
    #[error("the daemon failed: {0}")]
    Failed(std::io::Error),
}

/// Runs a host until `stop` is readable; calls `ready` once programs can connect.
///
/// # Errors
/// See [`DaemonError`]; nothing is left behind then.
pub fn run(config: &HostConfig, stop: BorrowedFd<'_>, ready: impl FnOnce()) -> Result<(), DaemonError> {
    let links = config.open_links().map_err(HostError::from)?;
    run_with(config, links, stop, ready)
}

/// As [`run`], on links that the program made, in the order of the configuration.
///
/// # Errors
/// See [`DaemonError`].
pub fn run_with(
    config: &HostConfig,
    links: Vec<Box<dyn Link>>,
    stop: BorrowedFd<'_>,
    ready: impl FnOnce(),
) -> Result<(), DaemonError> {
    let socket = ApiSocket::bind(&config.daemon)?;
    let host = EngineHost::start_with(config, links)?;
    info!("{}", host.profile());
    for warning in &host.profile().warnings {
        warn!("{warning}");
    }
    let listening = socket.listening().map_err(DaemonError::Failed)?;
    let server = Server::new(host, quotas(&config.daemon), Some(listening)).map_err(DaemonError::Failed)?;
    ready();
    server.run(stop).map_err(DaemonError::Failed)
}
