//! A daemon that is stopped takes connections, because its kernel does, and answers nothing.

use std::time::{Duration, Instant};

use punctual::{ConnectError, Endsystem};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen, socket_with};

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
    assert!(began.elapsed() < Duration::from_secs(30));
    std::fs::remove_dir_all(&folder).expect("its own folder");
}
