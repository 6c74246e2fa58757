//! The API's socket file: made before the engine starts, removed when the daemon ends.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};

use punctual_host::config::DaemonConfig;
use punctual_ipc::socket::refuse_descriptors;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, listen, socket_with,
};
use thiserror::Error;

/// Connections that wait to be accepted.
const BACKLOG: i32 = 128;

/// A socket that could not be made.
#[derive(Debug, Error)]
pub enum SocketError {
    /// Another daemon answers there.
    #[error("another daemon serves {}: stop it, or give this one another [daemon] socket", .0.display())]
    InUse(PathBuf),
    /// Something that is no socket has the name.
    #[error("{} exists and is not a socket: remove it, or choose another [daemon] socket", .0.display())]
    NoSocket(PathBuf),
    /// The system returned an error.
    #[error("cannot make the API socket {}: {cause}; check [daemon] socket and the permissions of its \
             directory", path.display())]
    System {
        /// The socket.
        path: PathBuf,
        /// The system's error.
        cause: io::Error,
    },
}

/// A listening socket with its file. Dropping it removes the file.
#[derive(Debug)]
pub struct ApiSocket {
    path: PathBuf,
    socket: OwnedFd,
    refuses_descriptors: bool,
}

impl ApiSocket {
    /// Makes directory, file and socket. A socket file that no process serves any more is replaced.
    ///
    /// # Errors
    /// See [`SocketError`].
    pub fn bind(config: &DaemonConfig) -> Result<Self, SocketError> {
        let path = config.socket.clone();
        remove_stale(&path)?;
        let bound = bind_at(&path, config.socket_mode);
        bound
            .map(|(socket, refuses_descriptors)| Self { path: path.clone(), socket, refuses_descriptors })
            .map_err(|cause| SocketError::System { path, cause })
    }

    /// Whether programs cannot send descriptors, which the kernel supports since Linux 6.16.
    pub const fn refuses_descriptors(&self) -> bool {
        self.refuses_descriptors
    }

    /// Another descriptor of it.
    ///
    /// # Errors
    /// If descriptors run out.
    pub fn listening(&self) -> io::Result<OwnedFd> {
        self.socket.try_clone()
    }
}

impl Drop for ApiSocket {
    fn drop(&mut self) {
        // Another process may have removed it already.
        let _ = fs::remove_file(&self.path);
    }
}

fn new_socket() -> rustix::io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
}

/// The listening socket, and whether it refuses descriptors.
fn bind_at(path: &Path, mode: u32) -> io::Result<(OwnedFd, bool)> {
    if let Some(directory) = path.parent() {
        fs::create_dir_all(directory)?;
    }
    let socket = new_socket()?;
    bind(&socket, &SocketAddrUnix::new(path)?)?;
    fs::set_permissions(path, fs::Permissions::from_mode(mode))?;
    // Before the first connection: connections inherit it.
    let refuses_descriptors = refuse_descriptors(&socket)?;
    listen(&socket, BACKLOG)?;
    Ok((socket, refuses_descriptors))
}

/// Removes the file of a daemon that has ended.
fn remove_stale(path: &Path) -> Result<(), SocketError> {
    let system = |cause| SocketError::System { path: path.into(), cause };
    let Ok(about) = fs::symlink_metadata(path) else { return Ok(()) };
    if !about.file_type().is_socket() {
        return Err(SocketError::NoSocket(path.into()));
    }
    let probe = new_socket().map_err(|errno| system(errno.into()))?;
    let address = SocketAddrUnix::new(path).map_err(|errno| system(errno.into()))?;
    match connect(&probe, &address) {
        Err(rustix::io::Errno::CONNREFUSED) => fs::remove_file(path).map_err(system),
        Err(error) if error != rustix::io::Errno::AGAIN => Err(system(error.into())),
        _ => Err(SocketError::InUse(path.into())),
    }
}
