//! A daemon that is stopped takes connections, because its kernel does, and answers nothing.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::{Duration, Instant};

use punctual::{ConnectError, Endsystem};
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, listen, socket_with,
};

/// A connection that waits to be taken; not one that would wait for room in the queue.
fn dial(path: &Path) -> std::io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(socket)
}

#[test]
fn a_daemon_that_does_not_answer_is_no_endless_wait() {
    let folder = std::env::temp_dir().join(format!("punctual-silent-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let path = folder.join("api.sock");
    let kind = SocketType::SEQPACKET;
    let socket = socket_with(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None).expect("a socket");
    bind(&socket, &SocketAddrUnix::new(&path).expect("a path")).expect("a free path");
    listen(&socket, 4).expect("a listener");
    let began = Instant::now();
    let error = Endsystem::connect_to(&path).err().expect("nobody answers");
    assert!(matches!(error, ConnectError::Silent), "{error}");
    let line = error.to_string();
    assert!(
        line.contains("does not answer") && line.contains("kill -CONT") && !line.contains('\n'),
        "{line}"
    );
    // Those who have given up stay in its queue, until it is full.
    let more: Vec<_> = (0..8).map_while(|_| dial(&path).ok()).collect();
    assert!((1..8).contains(&more.len()), "{} connections wait", more.len());
    let error = Endsystem::connect_to(&path).err().expect("nobody answers");
    assert!(matches!(error, ConnectError::Silent), "{error}");
    assert!(began.elapsed() < Duration::from_secs(60));
    std::fs::remove_dir_all(&folder).expect("its own folder");
}
