//! Round trips: a message out, its answer back, one at a time.

use std::io;
use std::net::SocketAddrV4;

use punctual::{Channel, Instant, Nanos, Receiver, RecvError, SendError};

use super::datagram::Datagrams;
use crate::clock::{duration, now, sleep_until};
use crate::interrupt;
use crate::measure::Sample;
use crate::session::Wait;

/// After this an answer counts as lost.
pub const PATIENCE: Nanos = Nanos::from_millis(250);
/// Longest message of a round trip.
const BYTES_MAX: usize = 2_048;

/// One who asks.
pub trait Caller: Send {
    /// Sends `message`, whose first eight bytes number it, and waits for the same number to come back; `false` where
    /// it does not within [`PATIENCE`].
    ///
    /// # Errors
    /// Where the way is broken for good.
    fn call(&mut self, message: &[u8]) -> anyhow::Result<bool>;
}

/// What a block of calls found.
#[derive(Clone, Debug, Default)]
pub struct Calls {
    /// The answered ones.
    pub samples: Vec<Sample>,
    /// The others.
    pub lost: u64,
}

/// Makes calls of `bytes` bytes until `until`, one every `interval` (or the next at once, where an answer takes longer).
///
/// # Errors
/// Where the way breaks or the run is interrupted.
pub fn calls(
    caller: &mut dyn Caller,
    until: Instant,
    bytes: usize,
    interval: Nanos,
    first: u64,
) -> anyhow::Result<Calls> {
    let mut found = Calls { samples: Vec::with_capacity(1 << 14), lost: 0 };
    let mut message = vec![0; bytes.max(8)];
    let mut due = now();
    let mut number = first;
    while due < until {
        interrupt::check()?;
        sleep_until(due);
        due = due.max(now()) + interval;
        message[..8].copy_from_slice(&number.to_le_bytes());
        let begun = now();
        if caller.call(&message)? {
            found.samples.push(Sample { begun, span: now().since(begun) });
        } else {
            found.lost += 1;
        }
        number += 1;
        due = due.max(now());
    }
    Ok(found)
}

/// Over a UDP socket.
pub struct SocketCaller {
    datagrams: Datagrams,
    buffer: Box<[u8]>,
}

impl SocketCaller {
    /// From a new socket in the calling thread's namespace to `server`.
    ///
    /// # Errors
    /// Where the kernel refuses.
    pub fn new(server: SocketAddrV4, wait: Wait) -> io::Result<Self> {
        let socket = std::net::UdpSocket::bind((std::net::Ipv4Addr::UNSPECIFIED, 0))?;
        socket.connect(server)?;
        Ok(Self { datagrams: Datagrams::new(socket, wait)?, buffer: vec![0; BYTES_MAX].into() })
    }
}

impl Caller for SocketCaller {
    fn call(&mut self, message: &[u8]) -> anyhow::Result<bool> {
        let until = now() + PATIENCE;
        match self.datagrams.socket().send(message) {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => return Ok(false),
            Err(error) => return Err(error.into()),
        }
        while now() < until {
            let Some(received) = self.datagrams.receive(&mut self.buffer, PATIENCE)? else { break };
            if is_answer(&self.buffer[..received.len], message) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// Over two guaranteed channels.
pub struct ChannelCaller {
    requests: Channel,
    answers: Receiver,
    wait: Wait,
}

impl ChannelCaller {
    /// Over the two.
    pub fn new(requests: Channel, mut answers: Receiver, wait: Wait) -> Self {
        answers.set_recv_timeout(Some(duration(PATIENCE)));
        Self { requests, answers, wait }
    }

    /// The next answer.
    fn next(&mut self, message: &[u8], until: Instant) -> Result<bool, RecvError> {
        let check = |bytes: &[u8]| is_answer(bytes, message);
        if self.wait == Wait::Spin {
            loop {
                match self.answers.try_recv_in_place(|bytes, _| check(bytes)) {
                    Err(RecvError::WouldBlock) if now() < until => std::hint::spin_loop(),
                    other => return other,
                }
            }
        }
        self.answers.recv_in_place(|bytes, _| check(bytes))
    }
}

impl Caller for ChannelCaller {
    fn call(&mut self, message: &[u8]) -> anyhow::Result<bool> {
        let until = now() + PATIENCE;
        match self.requests.send(message) {
            Ok(()) => {}
            Err(SendError::WouldBlock | SendError::TimedOut) => return Ok(false),
            Err(error) => return Err(error.into()),
        }
        while now() < until {
            match self.next(message, until) {
                Ok(true) => return Ok(true),
                Ok(false) => {}
                Err(RecvError::TimedOut | RecvError::WouldBlock) => break,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(false)
    }
}

/// An older answer may come late.
fn is_answer(answer: &[u8], message: &[u8]) -> bool {
    answer.len() == message.len() && answer.get(..8) == message.get(..8)
}
