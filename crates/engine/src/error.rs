//! The errors of an engine that does not start, and of calls to an engine that has ended.

use std::io;

use punctual_os::realtime::RealTimeError;
use punctual_proto::config::NodeConfigError;
use thiserror::Error;

/// Why an engine did not start.
#[derive(Debug, Error)]
pub enum EngineError {
    /// The node refuses its configuration.
    #[error("configuration: {0}")]
    Node(#[from] NodeConfigError),
    /// The host refuses the real-time class.
    #[error(transparent)]
    RealTime(#[from] RealTimeError),
    /// The links are not those of the configuration.
    #[error("{configured} links are configured, {given} were opened: give one for each, in order")]
    Links {
        /// Number of links in the configuration.
        configured: usize,
        /// Given.
        given: usize,
    },
    /// A driver carries less than its link is configured for.
    #[error("link \"{name}\" is configured for packets of {configured} B, its driver carries {given} B")]
    PacketBytes {
        /// Name of the link.
        name: String,
        /// Packet length in the configuration, in bytes.
        configured: usize,
        /// Packet length that the driver carries, in bytes.
        given: usize,
    },
    /// The processor's thread cannot be held to its system calls.
    #[error(
        "this system has no filter of system calls for the processor's thread ({0}): use a kernel with \
         CONFIG_SECCOMP_FILTER on x86_64 or aarch64, or set forbidden_calls = \"allow\" in [daemon]"
    )]
    Confine(io::Error),
    /// The system refuses a thread or a descriptor.
    #[error("{what}: {error}")]
    Os {
        /// The attempted operation.
        what: &'static str,
        /// The system's answer.
        error: io::Error,
    },
}

/// The engine has stopped, or its processor has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the engine has stopped")]
pub struct EngineGone;
