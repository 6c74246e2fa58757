//! `punctuald`: one host's engine with its API on a Unix socket.
//!
//! [`run`] owns everything for one life of the host: the configured links, the engine (which runs its own
//! processor thread), the socket, and the API loop, which runs on the calling thread. It returns after a
//! graceful stop: channels closed, other ends notified, the socket removed.

mod descriptors;
mod panics;
mod privileges;
mod socket;

use std::os::fd::BorrowedFd;

use punctual_host::config::HostConfig;
use punctual_host::service::server::Server;
use punctual_host::{EngineHost, HostError, Prepared, quotas};
use punctual_link::Link;
use punctual_os::calls::{self, ThreadKind};
use thiserror::Error;
use tracing::{debug, info, warn};

pub use panics::{end_on_panic, failed};
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
    /// Rights that it does not need.
    #[error("cannot give up the capabilities that this host does not need: {0}")]
    Privileges(std::io::Error),
    /// The system has no filters that limit threads to their system calls.
    #[error(
        "this system has no filters of system calls ({0}): use a kernel with CONFIG_SECCOMP_FILTER on x86_64 or \
         aarch64, or set forbidden_calls = \"allow\" in [daemon]"
    )]
    Confine(std::io::Error),
    /// The API's loop.
    #[error("the daemon failed: {0}")]
    Failed(std::io::Error),
}

/// Runs a host until `stop` is readable; calls `ready` once programs can connect. The calling thread and all
/// others of the host permanently keep only the capabilities that the configuration requires, and the system
/// calls in their lists. If the processor is to have a heap of its own ([`HostConfig::use_own_heap`], as in
/// `punctuald`), the process can have only one such host.
///
/// # Errors
/// See [`DaemonError`]; everything is undone then.
pub fn run(config: &HostConfig, stop: BorrowedFd<'_>, ready: impl FnOnce()) -> Result<(), DaemonError> {
    let config = &confined(config)?;
    let socket = ApiSocket::bind(&config.daemon)?;
    let host = Prepared::new(config)?;
    let left = privileges::confine(privileges::needed(config))
        .map_err(|error| DaemonError::Privileges(error.into()))?;
    debug!("capabilities: {left:?}");
    let host = host.start(config.open_links().map_err(HostError::from)?)?;
    serve(config, &socket, host, stop, ready)
}

/// What of a configuration works here, and is no guarantee or does not fit into the limits of this process; a line each.
pub fn warnings(config: &HostConfig) -> Vec<String> {
    config.warnings().into_iter().chain(descriptors::warning(config)).collect()
}

/// As [`run`], on links that the program made, in the order of the configuration, with the capabilities and on the heap that
/// it has.
///
/// # Errors
/// See [`DaemonError`].
pub fn run_with(
    config: &HostConfig,
    links: Vec<Box<dyn Link>>,
    stop: BorrowedFd<'_>,
    ready: impl FnOnce(),
) -> Result<(), DaemonError> {
    let config = &confined(config)?;
    let socket = ApiSocket::bind(&config.daemon)?;
    serve(config, &socket, Prepared::new(config)?.start(links)?, stop, ready)
}

/// All threads of the host are the daemon's own.
fn confined(config: &HostConfig) -> Result<HostConfig, DaemonError> {
    // A limit that stays low is reported by `descriptors::warning` and in `status`.
    punctual_os::descriptors::raise_limit();
    let mut config = config.clone();
    config.confine_threads();
    calls::prepare().map_err(DaemonError::Confine)?;
    Ok(config)
}

fn serve(
    config: &HostConfig,
    socket: &ApiSocket,
    host: EngineHost,
    stop: BorrowedFd<'_>,
    ready: impl FnOnce(),
) -> Result<(), DaemonError> {
    info!("{}", host.profile());
    for warning in &host.profile().warnings {
        warn!("{warning}");
    }
    if !socket.refuses_descriptors() {
        warn!(
            "this kernel cannot keep programs from sending descriptors to the API socket (SO_PASSRIGHTS, Linux \
             6.16): closing those of a hostile program may delay the API, but no channel; docs/SECURITY.md"
        );
    }
    for warning in warnings(config) {
        warn!("{warning}");
    }
    let listening = socket.listening().map_err(DaemonError::Failed)?;
    let server = Server::new(host, quotas(&config.daemon), Some(listening)).map_err(DaemonError::Failed)?;
    calls::confine(ThreadKind::Service, config.forbidden_calls).map_err(DaemonError::Confine)?;
    ready();
    server.run(stop).map_err(DaemonError::Failed)
}
