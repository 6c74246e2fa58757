//! Whole frames of a device, as a wire sees them (`AF_PACKET`, packet(7)).

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::addr::{SocketAddrArg, SocketAddrLen, SocketAddrOpaque};
use rustix::net::sockopt::set_socket_recv_buffer_size_force;
use rustix::net::{AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType};
use rustix::net::{bind, netdevice, recv, send, socket_with};

/// Bytes of frames that may wait to be received, as the kernel counts them.
const RECEIVE_BYTES: usize = 16 << 20;

/// A device's frames: those that come in, and those that leave through this socket. Frames that others send over the device come
/// in, too. Reads and writes never wait.
#[derive(Debug)]
pub struct FrameSocket(OwnedFd);

impl FrameSocket {
    /// Opens the device of that name in the calling thread's network namespace.
    ///
    /// # Errors
    /// If there is no such device, or the process has no `CAP_NET_RAW` and `CAP_NET_ADMIN`.
    pub fn open(device: &str) -> io::Result<Self> {
        // Without a protocol nothing is queued until `bind` names the device.
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let socket = socket_with(AddressFamily::PACKET, SocketType::RAW, flags, None::<Protocol>)?;
        set_socket_recv_buffer_size_force(&socket, RECEIVE_BYTES)?;
        let index = netdevice::name_to_index(&socket, device)?;
        bind(&socket, &AllFramesOf { index })?;
        Ok(Self(socket))
    }

    /// The next frame, cut to `buffer`; `None` if none waits.
    ///
    /// # Errors
    /// If the device is gone or down.
    pub fn receive(&self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        match recv(&self.0, buffer, RecvFlags::empty()) {
            Ok((count, _)) => Ok(Some(count)),
            Err(Errno::AGAIN | Errno::INTR) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Sends a frame with its Ethernet header; whether the device's queue has taken it.
    ///
    /// # Errors
    /// If the frame is longer than the device's MTU permits, or the device is gone or down.
    pub fn send(&self, frame: &[u8]) -> io::Result<bool> {
        match send(&self.0, frame, SendFlags::empty()) {
            Ok(_) => Ok(true),
            Err(Errno::AGAIN | Errno::NOBUFS | Errno::INTR) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}

impl AsFd for FrameSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// All frames of a device.
struct AllFramesOf {
    index: u32,
}

// SAFETY: the pointer is to a `sockaddr_ll` that lives until `f` has returned, and the length is its own.
unsafe impl SocketAddrArg for AllFramesOf {
    unsafe fn with_sockaddr<R>(&self, f: impl FnOnce(*const SocketAddrOpaque, SocketAddrLen) -> R) -> R {
        let address = libc::sockaddr_ll {
            sll_family: libc::AF_PACKET as u16,
            sll_protocol: (libc::ETH_P_ALL as u16).to_be(),
            sll_ifindex: self.index.cast_signed(),
            sll_hatype: 0,
            sll_pkttype: 0,
            sll_halen: 0,
            sll_addr: [0; 8],
        };
        f((&raw const address).cast(), size_of_val(&address) as SocketAddrLen)
    }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use rustix::event::{PollFd, PollFlags, poll};

    use super::*;
    use crate::network::enter_private_network;

    #[test]
    fn frames_of_a_device_come_and_go() {
        if enter_private_network().is_err() {
            punctual_skip::skipped!("a network of its own needs CAP_SYS_ADMIN");
            return;
        }
        crate::command::run("ip link set lo up").expect("loopback");
        let frames = FrameSocket::open("lo").expect("a socket");
        let mut buffer = [0; 256];
        assert_eq!(frames.receive(&mut buffer).expect("a device"), None);
        let receiver = UdpSocket::bind(("127.0.0.1", 0)).expect("a port");
        let sender = UdpSocket::bind(("127.0.0.1", 0)).expect("a port");
        sender.send_to(b"as on a wire", receiver.local_addr().expect("bound")).expect("sent");
        poll(&mut [PollFd::new(&frames, PollFlags::IN)], None).expect("a frame");
        let count = frames.receive(&mut buffer).expect("a device").expect("a frame");
        assert!(buffer[..count].ends_with(b"as on a wire"), "headers, then the message");
        receiver.recv(&mut [0; 64]).expect("the message itself");
        let other = FrameSocket::open("lo").expect("a second socket");
        assert!(frames.send(&buffer[..count]).expect("a device"), "the same frame again");
        let mut again = [0; 256];
        poll(&mut [PollFd::new(&other, PollFlags::IN)], None).expect("a frame");
        let came = other.receive(&mut again).expect("a device").expect("a frame");
        assert_eq!(again[..came], buffer[..count], "others see it whole");
        assert!(FrameSocket::open("none").is_err());
    }
}
