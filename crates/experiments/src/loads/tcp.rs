//! Messages over a TCP connection of the kernel or of Punctual: streams of messages of one length, and round trips.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::TcpStream;

use anyhow::ensure;
use punctual_analysis::{Instant, Nanos};
use punctual_os::clock::{duration, now};
use rustix::io::Errno;
use rustix::net::sockopt::{set_socket_recv_buffer_size, set_socket_send_buffer_size, set_tcp_congestion};
use rustix::net::{RecvFlags, recv};

use super::call::{Ask, PATIENCE};
use super::datagram::BUSY_POLL;
use super::{MessageReceiver, MessageSender, Offered, SPIN, Wait, is_passing, write_rest};

/// A peer that accepts no data for this long is full.
pub const FULL: Nanos = Nanos::from_millis(200);
/// Longest wait of one read.
pub const READ_WAIT: Nanos = Nanos::from_millis(50);
/// Bytes at the begin of a message of a round trip that hold its length, for the server.
pub(super) const LENGTH_AT: std::ops::Range<usize> = 8..12;
/// Longest message of a round trip.
pub(super) const BYTES_MAX: usize = 64 << 10;

/// An end of a connection that waits for at most [`READ_WAIT`] and [`FULL`].
pub trait Connection: Read + Write + Send {
    /// Segments of data that were sent again; `None`: not known.
    fn resent(&self) -> Option<u64> {
        None
    }
}

/// The kernel's counter needs a socket option that none of the libraries here has.
impl Connection for KernelTcp {}

impl Connection for punctual::tcp::TcpStream {
    fn resent(&self) -> Option<u64> {
        self.status().ok()?.map(|status| status.resent)
    }
}

/// An end of a connection of the kernel's TCP, and how its owner waits.
#[derive(Debug)]
pub struct KernelTcp {
    stream: TcpStream,
    wait: Wait,
}

impl KernelTcp {
    /// Of a connected socket, with `buffer_bytes` in each direction; small segments leave at once.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn new(stream: TcpStream, wait: Wait, buffer_bytes: usize) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        set_socket_recv_buffer_size(&stream, buffer_bytes)?;
        set_socket_send_buffer_size(&stream, buffer_bytes)?;
        stream.set_read_timeout(Some(duration(READ_WAIT)))?;
        stream.set_write_timeout(Some(duration(FULL)))?;
        Ok(Self { stream, wait })
    }

    /// This one with CUBIC as its congestion control.
    ///
    /// # Errors
    /// If the kernel has no CUBIC.
    pub fn with_cubic(self) -> io::Result<Self> {
        set_tcp_congestion(&self.stream, "cubic")?;
        Ok(self)
    }
}

impl Read for KernelTcp {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let polled = match self.wait {
            Wait::SpinThenBlock => BUSY_POLL,
            Wait::Spin => SPIN,
            _ => Nanos::ZERO,
        };
        let until = now() + polled;
        while now() < until {
            match recv(&self.stream, &mut *buffer, RecvFlags::DONTWAIT) {
                Err(Errno::AGAIN) => {}
                other => return Ok(other?.1),
            }
        }
        self.stream.read(buffer)
    }
}

impl Write for KernelTcp {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Messages of one length into a connection. A message that was begun is finished before the next one.
pub struct TcpSender {
    connection: Box<dyn Connection>,
    rest: Vec<u8>,
}

impl TcpSender {
    /// Into `connection`.
    pub const fn new(connection: Box<dyn Connection>) -> Self {
        Self { connection, rest: Vec::new() }
    }

    /// Whether nothing is left of the last message.
    fn finish(&mut self) -> io::Result<bool> {
        write_rest(&mut *self.connection, &mut self.rest)
    }
}

impl MessageSender for TcpSender {
    fn offer(&mut self, message: &[u8]) -> anyhow::Result<Offered> {
        if !self.finish()? {
            return Ok(Offered::Full);
        }
        self.rest.extend_from_slice(message);
        self.finish()?;
        Ok(Offered::Taken)
    }

    fn resent(&self) -> Option<u64> {
        self.connection.resent()
    }
}

/// Bytes of a connection until a message is whole.
#[derive(Default)]
struct Partial {
    bytes: Vec<u8>,
    filled: usize,
}

impl Partial {
    /// Reads until there are `wanted` bytes, at least once and then until `until`; `false` if they did not come. The end of
    /// the connection is [`io::ErrorKind::UnexpectedEof`].
    fn fill(
        &mut self,
        from: &mut (impl Read + ?Sized),
        wanted: usize,
        until: Instant,
    ) -> anyhow::Result<bool> {
        self.bytes.resize(self.bytes.len().max(wanted), 0);
        while self.filled < wanted {
            match from.read(&mut self.bytes[self.filled..wanted]) {
                Ok(0) => return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
                Ok(count) => self.filled += count,
                Err(error) if is_passing(&error) && now() >= until => return Ok(false),
                Err(error) if is_passing(&error) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(true)
    }
}

/// Messages of one length out of a connection.
pub struct TcpReceiver {
    connection: Box<dyn Connection>,
    partial: Partial,
    message_bytes: usize,
}

impl TcpReceiver {
    /// A receiver of messages of `message_bytes` bytes each.
    pub fn new(connection: Box<dyn Connection>, message_bytes: usize) -> Self {
        Self { connection, partial: Partial::default(), message_bytes }
    }
}

impl MessageReceiver for TcpReceiver {
    fn take(&mut self, message: &mut Vec<u8>, until: Instant) -> anyhow::Result<bool> {
        if !self.partial.fill(self.connection.as_mut(), self.message_bytes, until)? {
            return Ok(false);
        }
        message.clear();
        message.extend_from_slice(&self.partial.bytes[..self.message_bytes]);
        self.partial.filled = 0;
        Ok(true)
    }
}

/// A client of [`answer_all`].
pub struct TcpCaller {
    connection: Box<dyn Connection>,
    exchange: Exchange,
}

/// What a client knows of its calls.
#[derive(Default)]
pub(super) struct Exchange {
    message: Vec<u8>,
    partial: Partial,
    /// Lengths of the answers that are to come.
    owed: VecDeque<usize>,
}

impl TcpCaller {
    /// Over `connection`.
    pub fn new(connection: Box<dyn Connection>) -> Self {
        Self { connection, exchange: Exchange::default() }
    }
}

impl Ask for TcpCaller {
    fn call(&mut self, message: &[u8]) -> anyhow::Result<bool> {
        self.exchange.call(self.connection.as_mut(), message)
    }
}

impl Exchange {
    /// Sends `message` over `connection` and waits for its answer, which must be the same bytes; `false` if it does not come in
    /// time.
    ///
    /// # Errors
    /// If the connection breaks, or the answer differs.
    pub(super) fn call(
        &mut self,
        connection: &mut (impl Read + Write + ?Sized),
        message: &[u8],
    ) -> anyhow::Result<bool> {
        let until = now() + PATIENCE;
        ensure!(message.len() >= LENGTH_AT.end && message.len() <= BYTES_MAX, "{} B", message.len());
        self.message.clear();
        self.message.extend_from_slice(message);
        self.message[LENGTH_AT].copy_from_slice(&u32::try_from(message.len())?.to_le_bytes());
        connection.write_all(&self.message)?;
        self.owed.push_back(message.len());
        while let Some(&bytes) = self.owed.front() {
            if !self.partial.fill(connection, bytes, until)? {
                return Ok(false);
            }
            self.partial.filled = 0;
            self.owed.pop_front();
        }
        ensure!(
            self.partial.bytes[..message.len()] == self.message[..],
            "an answer differs from its message"
        );
        Ok(true)
    }
}

/// Sends each message of a [`TcpCaller`] back when it is whole, until `stops` or the other end closes.
///
/// # Errors
/// If the connection breaks.
pub fn answer_all(mut connection: Box<dyn Connection>, stops: impl Fn() -> bool) -> anyhow::Result<()> {
    let (mut buffer, mut filled) = (vec![0; BYTES_MAX], 0);
    while !stops() {
        filled += match connection.read(&mut buffer[filled..]) {
            Ok(0) => return Ok(()),
            Ok(count) => count,
            Err(error) if is_passing(&error) => 0,
            Err(error) => return Err(error.into()),
        };
        while let Some(bytes) = whole(&buffer[..filled]) {
            ensure!((LENGTH_AT.end..=BYTES_MAX).contains(&bytes), "a message of {bytes} B");
            if bytes > filled {
                break;
            }
            connection.write_all(&buffer[..bytes])?;
            buffer.copy_within(bytes..filled, 0);
            filled -= bytes;
        }
    }
    Ok(())
}

/// Length of the message at the front, if it has come.
pub(super) fn whole(bytes: &[u8]) -> Option<usize> {
    let length = bytes.get(LENGTH_AT)?.try_into().ok()?;
    usize::try_from(u32::from_le_bytes(length)).ok()
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, TcpListener};

    use super::*;

    fn connected(wait: Wait) -> [Box<dyn Connection>; 2] {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let near = TcpStream::connect(listener.local_addr().expect("bound")).expect("to connect");
        let far = listener.accept().expect("a connection").0;
        [near, far].map(|stream| {
            Box::new(KernelTcp::new(stream, wait, 200 << 10).expect("a socket")) as Box<dyn Connection>
        })
    }

    #[test]
    fn messages_come_whole_and_in_order() {
        let [near, far] = connected(Wait::Block);
        let (mut outlet, mut inlet) = (TcpSender::new(near), TcpReceiver::new(far, 5_000));
        for number in 0..4 {
            assert_eq!(outlet.offer(&[number; 5_000]).expect("sent"), Offered::Taken);
        }
        let (mut message, until) = (Vec::new(), now() + Nanos::from_secs(10));
        for number in 0..4 {
            assert!(inlet.take(&mut message, until).expect("a connection"));
            assert_eq!(message, [number; 5_000]);
        }
        assert!(!inlet.take(&mut message, now()).expect("a connection"));
        drop(outlet);
        assert!(inlet.take(&mut message, until).is_err());
    }

    #[test]
    fn a_message_that_finds_no_room_is_full_and_the_one_before_goes_first() {
        let [near, far] = connected(Wait::Block);
        let mut outlet = TcpSender::new(near);
        let mut taken = 0_u8;
        while outlet.offer(&[taken; 100_000]).expect("sent") == Offered::Taken {
            taken += 1;
        }
        let mut inlet = TcpReceiver::new(far, 100_000);
        let (mut message, until) = (Vec::new(), now() + Nanos::from_secs(10));
        for number in 0..taken - 1 {
            assert!(inlet.take(&mut message, until).expect("a connection"));
            assert_eq!(message, [number; 100_000]);
        }
        assert_eq!(outlet.offer(&[77; 100_000]).expect("sent"), Offered::Taken);
        for number in [taken - 1, 77] {
            assert!(inlet.take(&mut message, until).expect("a connection"));
            assert_eq!(message, [number; 100_000]);
        }
    }

    #[test]
    fn every_call_is_answered_with_its_own_bytes() {
        for wait in [Wait::Block, Wait::SpinThenBlock] {
            let [near, far] = connected(wait);
            let server = std::thread::spawn(move || answer_all(far, || false));
            let mut caller = TcpCaller::new(near);
            for bytes in [64, 8_192, 12, 3_000] {
                assert!(caller.call(&vec![9; bytes]).expect("a connection"));
            }
            assert!(caller.call(&[1; 11]).is_err(), "too short for a length");
            drop(caller);
            server.join().expect("a server").expect("no error at the end");
        }
    }

    #[test]
    fn an_answer_that_comes_late_is_not_the_next_ones() {
        let [near, mut far] = connected(Wait::Block);
        let mut caller = TcpCaller::new(near);
        assert!(!caller.call(&[3; 20]).expect("a connection"), "no answer comes");
        let server = std::thread::spawn(move || {
            let mut both = [0; 50];
            let mut filled = 0;
            while filled < both.len() {
                filled += far.read(&mut both[filled..]).unwrap_or_default();
            }
            far.write_all(&both).expect("sent");
        });
        assert!(caller.call(&[4; 30]).expect("a connection"));
        server.join().expect("a server");
    }
}
