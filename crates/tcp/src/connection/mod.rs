//! One connection: the protocol machine, and the code around it. Two handlers and one timer (RTU 5.2):
//! `input` processes one segment and may return one reply; `output` makes one segment; `next_deadline`
//! returns the time at which `output` has work.

mod acknowledge;
mod ahead;
mod fin;
mod forgotten;
mod input;
mod numbers;
mod output;
mod parts;
mod path;
mod program;
mod repair;
mod state;
mod tail;
mod time_wait;

use punctual_analysis::mutation::{Mutation, active};
use punctual_analysis::{Instant, Nanos};

use crate::challenge::Challenges;
use crate::config::{Config, Setting};
use crate::guard::Guard;
use crate::machine::{Machine, MachineState};
use crate::pmtu::PathMtu;
use crate::recovery::Recovery;
use crate::rtt::RoundTrip;
use crate::secrets::Secrets;
use crate::sequence::later;
use crate::urgent::Urgent;
use crate::wire::{Flow, is_usable};

use ahead::Ahead;
use forgotten::Forgotten;
use numbers::Numbers;
use repair::Repair;
use tail::Tail;

pub use state::{Ended, Received, SendError, State};

/// Answers to segments that do not fit, and to an old connection of the same flow that only one end has (RFC 9293 3.5.1).
#[derive(Debug, Default)]
struct Misfits {
    challenges: Challenges,
    /// The SYN was sent again because the peer had an old connection.
    is_opened_again: bool,
    /// A SYN in TIME-WAIT was answered by an acknowledgement.
    has_answered_syn: bool,
    /// Keep-alives have been switched on: the machine makes one at once, and not after the idle time.
    skips_keep_alive: bool,
    /// The last reply to an old segment had the number of the peer's window.
    was_first_reply: bool,
}

/// Segments that leave beside the machine, to find out what has arrived.
#[derive(Debug, Default)]
struct Probes {
    tail: Tail,
    repair: Repair,
    forgotten: Option<Forgotten>,
    /// The ends of a segment that shows, if it passes whole, that the path carries its size.
    full: Option<(u32, u32)>,
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
            MachineState::CloseWait if self.numbers.close_waits() => State::LastAck,
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

    /// A peer that keeps its window closed, and answers, keeps the connection open for so long at most; by default without a limit
    /// (RFC 9293 3.8.6.1).
    pub const fn bound_answers(&mut self, most: Nanos) {
        self.machine.set_answers_most(most);
    }

    /// Changes a setting from now on.
    pub fn set(&mut self, setting: Setting) {
        let had_keep_alive = self.config.keep_alive.is_some();
        self.config = self.config.with(setting);
        self.misfits.skips_keep_alive |= !had_keep_alive && self.config.keep_alive.is_some();
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

    fn has_received_fin(&self) -> bool {
        use State::{CloseWait, Closing, LastAck, TimeWait};
        matches!(self.state(), CloseWait | Closing | LastAck | TimeWait)
    }
}
