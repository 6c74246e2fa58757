//! One UDP socket with a choice of waiting: the baseline of the echo experiments.

use std::io;
use std::net::UdpSocket;

use punctual_analysis::{Instant, Nanos};
use punctual_os::clock::{duration, now};
use rustix::net::{RecvFlags, SendFlags, SocketAddrAny, recvfrom, sendto};

use super::{SPIN, Wait, is_passing};

/// How long [`Wait::SpinThenBlock`] polls before it sleeps: the value that the kernel's documentation
/// proposes for `net.core.busy_read`. The program polls, and not the kernel by `SO_BUSY_POLL`, since that
/// polls no virtual device.
pub(super) const BUSY_POLL: Nanos = Nanos::from_micros(50);

/// A socket and how its owner waits.
#[derive(Debug)]
pub struct Datagrams {
    socket: UdpSocket,
    wait: Wait,
    /// The current value of the socket's own timeout: setting it costs a system call.
    timeout: Option<Nanos>,
}

impl Datagrams {
    /// Makes it from a bound socket.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn new(socket: UdpSocket, wait: Wait) -> io::Result<Self> {
        Ok(Self { socket, wait, timeout: None })
    }

    /// The socket.
    pub const fn socket(&self) -> &UdpSocket {
        &self.socket
    }

    /// The next datagram and its sender; `None` when none came within `patience`.
    ///
    /// # Errors
    /// If the socket is broken.
    pub fn receive(&mut self, buffer: &mut [u8], patience: Nanos) -> io::Result<Option<Received>> {
        match self.wait {
            Wait::Spin => self.poll_then_sleep(buffer, SPIN, patience),
            Wait::SpinThenBlock => self.poll_then_sleep(buffer, BUSY_POLL, patience),
            Wait::Block | Wait::Direct | Wait::Lead => self.sleep(buffer, patience),
        }
    }

    fn poll_then_sleep(
        &mut self,
        buffer: &mut [u8],
        span: Nanos,
        patience: Nanos,
    ) -> io::Result<Option<Received>> {
        let found = self.poll(buffer, now() + span.min(patience))?;
        if found.is_some() { Ok(found) } else { self.sleep(buffer, patience) }
    }

    /// Polls without a pause, like the processors that this is compared with.
    fn poll(&self, buffer: &mut [u8], until: Instant) -> io::Result<Option<Received>> {
        loop {
            match self.take(buffer, RecvFlags::DONTWAIT)? {
                Some(found) => return Ok(Some(found)),
                None if now() >= until => return Ok(None),
                None => {}
            }
        }
    }

    fn sleep(&mut self, buffer: &mut [u8], patience: Nanos) -> io::Result<Option<Received>> {
        if self.timeout != Some(patience) {
            self.socket.set_read_timeout(Some(duration(patience)))?;
            self.timeout = Some(patience);
        }
        self.take(buffer, RecvFlags::empty())
    }

    fn take(&self, buffer: &mut [u8], flags: RecvFlags) -> io::Result<Option<Received>> {
        let taken = passing(recvfrom(&self.socket, buffer, flags).map_err(io::Error::from))?;
        Ok(taken.map(|(_, len, from)| Received { len, from }))
    }

    /// Sends to the sender of the received message; a packet that the network refuses is lost.
    ///
    /// # Errors
    /// If the socket is broken.
    pub fn answer(&self, bytes: &[u8], to: &Received) -> io::Result<()> {
        let Some(address) = &to.from else { return Ok(()) };
        let sent = sendto(&self.socket, bytes, SendFlags::empty(), address);
        passing(sent.map_err(io::Error::from)).map(drop)
    }
}

/// A datagram.
#[derive(Clone, Debug)]
pub struct Received {
    /// Length of the datagram.
    pub len: usize,
    from: Option<SocketAddrAny>,
}

/// Treats temporary errors as "nothing received".
fn passing<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if is_passing(&error) || error.kind() == io::ErrorKind::ConnectionRefused => Ok(None),
        Err(error) => Err(error),
    }
}
