//! What this process may do, and so how real a test setup can be.

use std::process::Command;

use rustix::process::geteuid;
use serde::Serialize;

use punctual_os::command::{ToolError, run};
use punctual_os::namespaces::{Namespace, next_number};

/// Set for the program when it runs again inside a user namespace of its own.
const INSIDE: &str = "PUNCTUAL_USER_NAMESPACE";

/// The three ways to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Privilege {
    /// Network namespaces and real-time classes.
    Root,
    /// Network namespaces inside a user namespace; no real-time class, so no guarantee is ever "held".
    UserNamespace,
    /// Neither: everything in one process over memory links.
    InProcess,
}

impl Privilege {
    /// Finds out by trying.
    ///
    /// # Errors
    /// If `ip` or `unshare` is not installed: that is mended, not worked around.
    pub fn detect() -> Result<Self, ToolError> {
        if std::env::var_os(INSIDE).is_some() {
            return Ok(Self::UserNamespace);
        }
        if geteuid().is_root() {
            match Namespace::create(next_number(), "probe") {
                Ok(_) => return Ok(Self::Root),
                Err(error @ ToolError::Missing { .. }) => return Err(error),
                Err(error) => eprintln!("warning: root, but no network namespaces: {error}"),
            }
        }
        match run("unshare --user --map-root-user --net --mount ip link show lo") {
            Ok(_) => Ok(Self::UserNamespace),
            Err(error @ ToolError::Missing { .. }) => Err(error),
            Err(_) => Ok(Self::InProcess),
        }
    }

    /// One line for people.
    pub const fn explain(self) -> &'static str {
        match self {
            Self::Root => "network namespaces, real-time classes",
            Self::UserNamespace => {
                "degraded: network namespaces in a user namespace, no real-time class; run as root for guarantees"
            }
            Self::InProcess => {
                "degraded: one process over memory links (no namespaces allowed here), the baseline on loopback without \
                 a link of any rate; run as root for the real thing"
            }
        }
    }
}

/// In an unprivileged process: runs this program again inside a user namespace and returns its exit status.
/// `None` inside: the caller continues.
///
/// # Errors
/// If `unshare` or the mount of a private /run fails.
pub fn enter_user_namespace() -> Result<Option<i32>, ToolError> {
    if std::env::var_os(INSIDE).is_some() {
        // `ip netns` wants to write below /run; the mount is private to this namespace.
        run("mount -t tmpfs tmpfs /run")?;
        return Ok(None);
    }
    let line = || "unshare --user --map-root-user --net --mount".to_owned();
    let own = std::env::current_exe().map_err(|source| ToolError::Io { command: line(), source })?;
    let status = Command::new("unshare")
        .args(["--user", "--map-root-user", "--net", "--mount", "--"])
        .arg(own)
        .args(std::env::args_os().skip(1))
        .env(INSIDE, "1")
        .status()
        .map_err(|source| ToolError::Io { command: line(), source })?;
    Ok(Some(status.code().unwrap_or(1)))
}
