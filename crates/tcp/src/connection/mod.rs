//! One connection: the protocol machine, and the code around it. Two handlers and one timer (RTU 5.2):
//! `input` processes one segment and may return one reply; `output` makes one segment; `next_deadline`
//! returns the time at which `output` has work.

mod ahead;
mod fin;
mod forgotten;
mod input;
mod numbers;
mod output;
mod parts;
mod repair;
mod tail;

use punctual_analysis::Instant;
use punctual_analysis::mutation::{Mutation, active};

use crate::challenge::Challenges;
use crate::config::{Config, Setting};
use crate::guard::Guard;
use crate::icmp::{Quote, Trouble};
use crate::machine::{Machine, MachineState};
use crate::pmtu::PathMtu;
use crate::recovery::Recovery;
use crate::rtt::RoundTrip;
use crate::secrets::Secrets;
use crate::sequence::{later, within};
use crate::urgent::Urgent;
use crate::wire::{Flow, is_usable};

use ahead::Ahead;
use forgotten::Forgotten;
use numbers::Numbers;
use repair::Repair;
use tail::Tail;

/// States of RFC 9293 3.3.2, without LISTEN, which is a [`crate::Listener`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum State {
    SynSent,
    SynReceived,
    Established,
    FinWait1,
    FinWait2,
    CloseWait,
    Closing,
    LastAck,
    TimeWait,
    Closed,
}

/// Why a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Ended {
    /// Both ends closed it.
    #[error("both ends closed the connection")]
    Closed,
    /// The peer reset it.
    #[error("the peer reset the connection")]
    Reset,
    /// There is no listener at the peer's port.
    #[error("the peer refused the connection: it has no listener at that port")]
    Refused,
    /// The peer did not acknowledge within the user timeout.
    #[error("the peer did not answer in time")]
    TimedOut,
    /// The network reports that the peer is unreachable.
    #[error("the peer cannot be reached")]
    Unreachable,
    /// The program aborted it.
    #[error("the program aborted the connection")]
    Aborted,
}

/// Result for one segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    /// It was processed.
    Processed,
    /// It was dropped: old, forged or out of place. There may be a reply.
    Dropped,
    /// The connection is over: the segment belongs to no connection, or is a SYN that may open a new one (RFC
    /// 9293 3.10.7.4).
    ForNobody,
}

/// Why nothing can be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    /// This end closed its direction.
    #[error("this end closed the connection for sending")]
    Closed,
    /// The connection is over.
    #[error(transparent)]
    Ended(#[from] Ended),
}

/// Answers to segments that do not fit, and to an old connection of the same flow that only one end has (RFC 9293 3.5.1).
#[derive(Debug, Default)]
struct Misfits {
    challenges: Challenges,
    /// The SYN was sent again because the peer had an old connection.
    is_opened_again: bool,
    /// A SYN in TIME-WAIT was answered by an acknowledgement.
    has_answered_syn: bool,
}

/// Segments that leave beside the machine, to find out what has arrived.
#[derive(Debug, Default)]
struct Probes {
    tail: Tail,
    repair: Repair,
    forgotten: Option<Forgotten>,
}

/// A TCP connection.
#[derive(Debug)]
pub struct Connection {
    flow: Flow,
    config: Config,
    machine: Machine,
    guard: Option<Guard>,
    numbers: Numbers,
    urgent: Urgent,
    path: PathMtu,
    recovery: Recovery,
    ahead: Ahead,
    probes: Probes,
    rtt: RoundTrip,
    misfits: Misfits,
    timestamp_offset: u32,
    time_wait: Option<Instant>,
    ended: Option<Ended>,
}

impl Connection {
    /// Begins to connect; `output` makes the SYN. `None` if an address or port of `flow` is invalid for a
    /// connection.
    pub fn connect(flow: Flow, config: &Config, secrets: &Secrets, now: Instant) -> Option<Self> {
        let iss = secrets.initial_sequence(flow, now);
        let mut connection = Self::closed(flow, config, secrets, iss, now)?;
        connection.machine.connect(flow).then_some(connection)
    }

    fn closed(flow: Flow, config: &Config, secrets: &Secrets, iss: u32, now: Instant) -> Option<Self> {
        let is_one_version = flow.local.is_ipv4() == flow.remote.is_ipv4();
        let has_ports = flow.local.port() != 0 && flow.remote.port() != 0;
        if !is_one_version || !has_ports || !is_usable(flow.local.ip()) || !is_usable(flow.remote.ip()) {
            return None;
        }
        let config = config.bounded(flow.is_v6());
        Some(Self {
            flow,
            config,
            machine: Machine::new(flow, &config, now),
            guard: None,
            numbers: Numbers::new(iss),
            urgent: Urgent::default(),
            path: PathMtu::new(config.mtu_bytes, flow.is_v6()),
            recovery: Recovery::new(iss.wrapping_add(1), config.send_bytes),
            ahead: Ahead::new(iss.wrapping_add(1)),
            probes: Probes::default(),
            rtt: RoundTrip::default(),
            misfits: Misfits::default(),
            timestamp_offset: secrets.timestamp_offset(flow),
            time_wait: None,
            ended: None,
        })
    }

    /// The two ends.
    pub const fn flow(&self) -> Flow {
        self.flow
    }

    /// State of the connection.
    pub fn state(&self) -> State {
        if self.ended.is_some() {
            return State::Closed;
        }
        match self.machine.state() {
            MachineState::Closed => State::Closed,
            MachineState::Listen | MachineState::SynReceived => State::SynReceived,
            MachineState::SynSent => State::SynSent,
            MachineState::Established => State::Established,
            MachineState::FinWait1 => State::FinWait1,
            MachineState::FinWait2 => State::FinWait2,
            MachineState::CloseWait => State::CloseWait,
            MachineState::Closing => State::Closing,
            MachineState::LastAck => State::LastAck,
            MachineState::TimeWait => State::TimeWait,
        }
    }

    /// Why the connection ended, if it has.
    pub const fn ended(&self) -> Option<Ended> {
        self.ended
    }

    /// The largest packet that is sent, in bytes.
    pub const fn path_mtu_bytes(&self) -> u16 {
        self.path.current()
    }

    /// The settings as they are now, in their ranges.
    pub const fn config(&self) -> &Config {
        &self.config
    }

    /// Changes a setting from now on.
    pub fn set(&mut self, setting: Setting) {
        self.config = self.config.with(setting);
        self.machine.follow(&self.config);
    }

    /// Segments of data that were sent again.
    pub const fn resent(&self) -> u64 {
        self.recovery.resent()
    }

    /// Bytes that the peer takes now beyond those that it has acknowledged, and those that this end takes.
    pub fn windows(&self) -> [u32; 2] {
        let place = self.place();
        let peers = self.guard.as_ref().map_or(0, |guard| guard.window(place.una));
        [peers, later(place.edge, place.next).wrapping_sub(place.next)]
    }

    /// Takes bytes to send; returns their number, which is less than all when the buffer is full and 0 before
    /// the connection is open.
    ///
    /// # Errors
    ///
    /// This end was closed, or the connection is over.
    pub fn send(&mut self, bytes: &[u8]) -> Result<usize, SendError> {
        self.send_with(bytes.len(), |at, room| room.copy_from_slice(&bytes[at..][..room.len()]))
    }

    /// Sends up to `bytes_max` bytes, as many as there is room for, that `fill` writes into the buffer: it gets the place of the
    /// first one among them and free memory. It is called twice where the buffer wraps. Returns their number.
    ///
    /// # Errors
    ///
    /// As `send`.
    pub fn send_with(
        &mut self,
        bytes_max: usize,
        mut fill: impl FnMut(usize, &mut [u8]),
    ) -> Result<usize, SendError> {
        match self.state() {
            State::SynSent | State::SynReceived => return Ok(0),
            State::Established | State::CloseWait => (),
            State::Closed => return Err(self.ended.unwrap_or(Ended::Closed).into()),
            _ => return Err(SendError::Closed),
        }
        let (socket, recovery, mut taken) = (self.machine.socket_mut(), &mut self.recovery, 0);
        loop {
            let part = socket.send(|room| {
                let part = room.len().min(bytes_max - taken);
                fill(taken, &mut room[..part]);
                recovery.enqueue(&room[..part]);
                (part, part)
            });
            let part = part.map_err(|_| SendError::Closed)?;
            taken += part;
            if part == 0 || taken == bytes_max {
                break;
            }
        }
        self.numbers.enqueue(taken);
        Ok(taken)
    }

    /// [`Connection::send`] of urgent bytes (RFC 6093): the peer gets the position of the last one that was
    /// taken.
    ///
    /// # Errors
    ///
    /// As `send`.
    pub fn send_urgent(&mut self, bytes: &[u8]) -> Result<usize, SendError> {
        let taken = self.send(bytes)?;
        if taken > 0 {
            self.urgent.mark(self.numbers.enqueued_end());
        }
        Ok(taken)
    }

    /// Reads bytes in order; returns their number, 0 when there are none now.
    pub fn recv(&mut self, bytes: &mut [u8]) -> usize {
        self.recv_with(bytes.len(), |at, part| bytes[at..][..part.len()].copy_from_slice(part))
    }

    /// Passes up to `bytes_max` of the bytes that came in order to `read`, where they are, with the place of the first one among
    /// them. It is called twice where the buffer wraps. Returns their number, 0 when there are none now.
    pub fn recv_with(&mut self, bytes_max: usize, mut read: impl FnMut(usize, &[u8])) -> usize {
        let (socket, mut taken) = (self.machine.socket_mut(), 0);
        loop {
            let part = socket.recv(|bytes| {
                let part = bytes.len().min(bytes_max - taken);
                read(taken, &bytes[..part]);
                (part, part)
            });
            let part = part.unwrap_or(0);
            taken += part;
            if part == 0 || taken == bytes_max {
                break;
            }
        }
        self.numbers.consume(taken);
        taken
    }

    /// Bytes that `recv` would return now.
    pub fn readable_bytes(&self) -> usize {
        self.machine.socket().recv_queue()
    }

    /// Bytes that `send` would take now.
    pub fn writable_bytes(&self) -> usize {
        let socket = self.machine.socket();
        if socket.may_send() { socket.send_capacity() - socket.send_queue() } else { 0 }
    }

    /// Bytes sent or to be sent that the peer has not acknowledged.
    pub fn unacknowledged_bytes(&self) -> usize {
        self.machine.socket().send_queue()
    }

    /// Whether the peer has closed its direction and all of it was read.
    pub fn is_finished(&self) -> bool {
        let has_fin = self.has_received_fin() || self.state() == State::Closed;
        has_fin && self.readable_bytes() == 0
    }

    /// Bytes until the urgent mark, if there is one ahead (RFC 6093 3.1: they stay in the stream).
    pub fn urgent_ahead(&self) -> Option<u32> {
        self.urgent.ahead(self.numbers.read_end())
    }

    /// Closes this end's direction: sent data still arrives, and the peer may continue to send (half-close,
    /// RFC 9293 3.6).
    pub fn close(&mut self) {
        let was_opening = self.state() == State::SynSent;
        self.machine.socket_mut().close();
        if was_opening {
            self.ended = Some(Ended::Closed);
        }
    }

    /// Ends the connection at once; `output` makes one reset for the peer (RFC 9293 3.10.5).
    pub fn abort(&mut self) {
        if self.ended.is_none() {
            let has_peer = !matches!(self.state(), State::SynSent | State::TimeWait);
            self.ended = Some(Ended::Aborted);
            self.time_wait = None;
            if has_peer {
                self.machine.socket_mut().abort();
            }
        }
    }

    /// Gives the buffers back if the connection is in TIME-WAIT and everything was read: no byte comes or leaves any more, and a
    /// minute is long (RFC 9293 3.6.1). It answers late segments as before.
    pub fn rest(&mut self) {
        if self.state() == State::TimeWait && self.readable_bytes() == 0 {
            self.machine.rest();
            self.recovery.rest();
        }
    }

    /// Whether the buffers were given back ([`Connection::rest`]).
    pub const fn rests(&self) -> bool {
        self.machine.rests()
    }

    /// Ends the connection at once because nothing can leave or come any more: without a reset. It was closed if both ends had
    /// closed and only acknowledgements were missing.
    pub fn lost(&mut self) {
        let is_closed = matches!(self.state(), State::TimeWait | State::LastAck | State::Closing)
            && !active(Mutation::AcknowledgedEndUnreachable);
        self.time_wait = None;
        self.ended.get_or_insert(if is_closed { Ended::Closed } else { Ended::Unreachable });
        if self.ended == Some(Ended::Aborted) {
            self.ended = Some(Ended::Unreachable);
        }
    }

    /// The route to the peer carries packets of `mtu_bytes` from now on. The connection follows, up to the size that it began
    /// with; what is in flight in larger segments is sent again.
    pub fn route_changed(&mut self, mtu_bytes: u32, now: Instant) {
        let before = self.path.current();
        let mtu = u16::try_from(mtu_bytes).unwrap_or(u16::MAX).min(self.config.mtu_bytes);
        if self.ended.is_some() || !self.path.device_changed(mtu) {
            return;
        }
        self.machine.set_mtu(self.flow, self.path.current(), now);
        if self.path.current() < before {
            self.recovery.path_shrank(self.place().sent);
        }
    }

    /// Handles an ICMP error that quotes a segment of this connection. Returns whether it was accepted.
    pub fn icmp(&mut self, now: Instant, quote: &Quote) -> bool {
        let place = self.place();
        // RFC 5927 4.1: the quoted segment must be in flight.
        if self.ended.is_some() || quote.flow != self.flow || !within(quote.seq, place.una, place.sent) {
            return false;
        }
        match quote.trouble {
            Trouble::TooBig(mtu) => {
                if self.path.too_big(mtu, now) {
                    self.machine.set_mtu(self.flow, self.path.current(), now);
                    self.recovery.path_shrank(place.sent);
                }
            }
            Trouble::Unreachable if self.state() == State::SynSent => self.ended = Some(Ended::Unreachable),
            Trouble::Unreachable | Trouble::Transient => (),
        }
        true
    }

    fn has_received_fin(&self) -> bool {
        use State::{CloseWait, Closing, LastAck, TimeWait};
        matches!(self.state(), CloseWait | Closing | LastAck | TimeWait)
    }
}
