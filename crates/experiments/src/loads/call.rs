//! Round trips: a message out, its answer back, one at a time.

use std::io;
use std::net::SocketAddrV4;

use anyhow::Context;
use punctual::{Channel, Instant, Lead, Nanos, Receiver, RecvError};
use punctual_os::clock::{duration, now, sleep_until};
use punctual_os::interrupt;

use super::Wait;
use super::channel::{received, was_sent};
use super::datagram::Datagrams;
use crate::measure::Sample;

/// After this an answer counts as lost.
pub const PATIENCE: Nanos = Nanos::from_millis(250);
/// Longest message of a round trip.
const BYTES_MAX: usize = 2_048;

/// A client that makes requests, on one thread.
pub trait Ask {
    /// Sends `message`, whose first eight bytes number it, and waits for the same number to come back;
    /// `false` if it does not within [`PATIENCE`].
    ///
    /// # Errors
    /// If the way is permanently broken.
    fn call(&mut self, message: &[u8]) -> anyhow::Result<bool>;

    /// Waits until it is time for the next one.
    fn rest(&mut self, until: Instant) {
        sleep_until(until);
    }
}

/// One who makes calls, on whatever thread.
pub trait Caller: Send {
    /// Makes the calls of `plan`, with numbers from `first` on.
    ///
    /// # Errors
    /// If the way breaks or the run is interrupted.
    fn run(&mut self, plan: Plan, first: u64) -> anyhow::Result<Calls>;
}

impl<A: Ask + Send> Caller for A {
    fn run(&mut self, plan: Plan, first: u64) -> anyhow::Result<Calls> {
        calls(self, plan, first)
    }
}

/// Which calls to make.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// End of the calls.
    pub until: Instant,
    /// Bytes of each message.
    pub bytes: usize,
    /// Interval of the calls; if an answer takes longer, the next call begins at once.
    pub interval: Nanos,
}

/// The results of a block of calls.
#[derive(Clone, Debug, Default)]
pub struct Calls {
    /// The answered ones.
    pub samples: Vec<Sample>,
    /// The others.
    pub lost: u64,
    /// Whether the client was to lead its engine and stayed away too long: some of the calls were waited for otherwise.
    pub led_no_more: bool,
}

pub(super) fn calls(asking: &mut impl Ask, plan: Plan, first: u64) -> anyhow::Result<Calls> {
    let mut found = Calls { samples: Vec::with_capacity(1 << 14), ..Calls::default() };
    let mut message = vec![0; plan.bytes.max(8)];
    let mut due = now();
    let mut number = first;
    while due < plan.until {
        interrupt::check()?;
        asking.rest(due);
        due = due.max(now()) + plan.interval;
        message[..8].copy_from_slice(&number.to_le_bytes());
        let begun = now();
        if asking.call(&message)? {
            found.samples.push(Sample { begun, span: now().since(begun) });
        } else {
            found.lost += 1;
        }
        number += 1;
        due = due.max(now());
    }
    Ok(found)
}

/// A caller over a UDP socket.
pub struct SocketCaller {
    datagrams: Datagrams,
    buffer: Box<[u8]>,
}

impl SocketCaller {
    /// Makes a new socket in the calling thread's namespace, connected to `server`.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn new(server: SocketAddrV4, wait: Wait) -> io::Result<Self> {
        let socket = std::net::UdpSocket::bind((std::net::Ipv4Addr::UNSPECIFIED, 0))?;
        socket.connect(server)?;
        Ok(Self { datagrams: Datagrams::new(socket, wait)?, buffer: vec![0; BYTES_MAX].into() })
    }
}

impl Ask for SocketCaller {
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

/// A caller over two guaranteed channels.
pub struct ChannelCaller {
    requests: Channel,
    answers: Receiver,
}

impl ChannelCaller {
    /// Makes a caller over the two.
    pub fn new(requests: Channel, mut answers: Receiver) -> Self {
        answers.set_recv_timeout(Some(duration(PATIENCE)));
        Self { requests, answers }
    }
}

impl Ask for ChannelCaller {
    fn call(&mut self, message: &[u8]) -> anyhow::Result<bool> {
        let sent = was_sent(self.requests.send(message))?;
        awaited(sent, || self.answers.recv_in_place(|bytes, _| is_answer(bytes, message)))
    }
}

/// Whether an answer comes, if the request was sent: a full queue is a lost call. `take` returns for each message whether it is
/// the answer.
fn awaited(sent: bool, mut take: impl FnMut() -> Result<bool, RecvError>) -> anyhow::Result<bool> {
    let until = now() + PATIENCE;
    while sent && now() < until {
        match received(take())? {
            Some(true) => return Ok(true),
            Some(false) => {}
            None => break,
        }
    }
    Ok(false)
}

/// A caller over two guaranteed channels of an engine in this process, whose work the calling thread does
/// while it waits.
pub struct LeadingCaller {
    requests: Channel,
    /// `None` while it leads.
    answers: Option<Receiver>,
}

impl LeadingCaller {
    /// Makes a caller over the two; the answers' listener has declared a time.
    pub fn new(requests: Channel, mut answers: Receiver) -> Self {
        answers.set_recv_timeout(Some(duration(PATIENCE)));
        Self { requests, answers: Some(answers) }
    }
}

impl Caller for LeadingCaller {
    fn run(&mut self, plan: Plan, first: u64) -> anyhow::Result<Calls> {
        let answers = self.answers.take().context("a former run has lost the answers' channel")?;
        let mut leading = Leading { requests: &mut self.requests, lead: answers.lead()? };
        let found = calls(&mut leading, plan, first);
        let led_no_more = !leading.lead.is_leading();
        self.answers = Some(leading.lead.end());
        Ok(Calls { led_no_more, ..found? })
    }
}

/// A client on the thread that leads.
struct Leading<'a> {
    requests: &'a mut Channel,
    lead: Lead,
}

impl Ask for Leading<'_> {
    fn call(&mut self, message: &[u8]) -> anyhow::Result<bool> {
        let sent = was_sent(self.lead.send(self.requests, message))?;
        awaited(sent, || self.lead.recv_in_place(|bytes, _| is_answer(bytes, message)))
    }

    fn rest(&mut self, until: Instant) {
        self.lead.rest(until);
    }
}

/// Whether that is the answer to `message`: an older one may come late.
pub fn is_answer(answer: &[u8], message: &[u8]) -> bool {
    answer.len() == message.len() && answer.get(..8) == message.get(..8)
}
