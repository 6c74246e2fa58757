//! A client that sends requests of the API itself.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use punctual_ipc::api::{Answer, ApiError, Call, FromDaemon, PACKET_BYTES_MAX, Request, VERSION};
use punctual_ipc::socket::{self, Packet};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType};

use super::PATIENCE;

/// A client that sends requests of the API itself.
pub struct Raw(OwnedFd);

impl Raw {
    pub fn connect(path: &Path) -> Self {
        let socket =
            rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None);
        let socket = socket.expect("a socket");
        rustix::net::connect(&socket, &SocketAddrUnix::new(path).expect("an address")).expect("connected");
        rustix::net::sockopt::set_socket_timeout(
            &socket,
            rustix::net::sockopt::Timeout::Recv,
            Some(PATIENCE),
        )
        .expect("a timeout");
        Self(socket)
    }

    pub fn greeted(path: &Path) -> Self {
        Self::greeted_as(path, VERSION)
    }

    /// A client of that version of the API.
    pub fn greeted_as(path: &Path, version: u32) -> Self {
        let raw = Self::connect(path);
        let hello = Request::Hello { version, program: "raw".into() };
        assert!(matches!(raw.ask(hello).0, Ok(Answer::Hello { .. })));
        raw
    }

    pub fn send(&self, bytes: &[u8]) {
        self.send_with(bytes, Vec::new()).expect("sent");
    }

    /// Sends a packet with descriptors, which no request has: the kernel lets none through.
    pub fn send_with(&self, bytes: &[u8], descriptors: Vec<OwnedFd>) -> std::io::Result<()> {
        let packet = Packet { bytes: bytes.to_vec(), descriptors };
        socket::send(&self.0, &packet, SendFlags::empty())
    }

    /// Whether there was room for it.
    pub fn try_send(&self, packet: &Packet) -> bool {
        socket::send(&self.0, packet, SendFlags::DONTWAIT).is_ok()
    }

    /// Receives once, without treating an error as the end; `None` at the end of the connection.
    pub fn receive_once(&self) -> std::io::Result<Option<Packet>> {
        let mut buffer = vec![0; PACKET_BYTES_MAX];
        let (bytes, _) = rustix::net::recv(&self.0, &mut buffer[..], RecvFlags::empty())?;
        buffer.truncate(bytes);
        Ok((bytes > 0).then_some(Packet { bytes: buffer, descriptors: Vec::new() }))
    }

    /// Whether a packet is there.
    pub fn is_readable(&self) -> bool {
        let deadline = Some(std::time::Instant::now());
        punctual_ipc::wake::wait_readable(self.0.as_fd(), deadline).expect("a look")
    }

    /// The next packet; `None` at the end of the connection.
    pub fn receive(&self) -> Option<(FromDaemon, Vec<OwnedFd>)> {
        let mut buffer = vec![0; PACKET_BYTES_MAX];
        let packet = socket::receive(&self.0, &mut buffer, RecvFlags::empty()).expect("received")?;
        Some((packet.parse().expect("a message of the API"), packet.descriptors))
    }

    pub fn ask(&self, request: Request) -> (Result<Answer, ApiError>, Vec<OwnedFd>) {
        let call = Packet::new(&Call { id: 7, request }, Vec::new()).expect("small");
        self.send(&call.bytes);
        loop {
            match self.receive().expect("an answer") {
                (FromDaemon::Answer { id: 7, result }, descriptors) => return (result, descriptors),
                (FromDaemon::Push(_), _) => {}
                other => panic!("{other:?}"),
            }
        }
    }
}

impl AsFd for Raw {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
