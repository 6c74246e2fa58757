//! The operations on the hosts, and their encoding in a fuzzer's bytes.

use punctual_proto::api::Port;
use punctual_proto::{Activation, Contract, Delivery, Horizon, Late, Nanos, Policing, Rate};

use crate::input::{Input, put_bytes};

/// Longest time that passes at once.
const RUN_MAX: Nanos = Nanos::from_secs(30);

#[allow(missing_docs, reason = "the fields say what they are")]
/// An operation. Numbers of hosts, channels and packets are taken modulo the existing ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Time passes.
    Run(Nanos),
    /// An application opens a channel.
    Open(Wish),
    /// An application puts messages into its ring, all at once.
    Send { channel: u8, messages: u8, bytes: u16 },
    /// An application closes its end.
    Close { channel: u8, sink: bool },
    /// How the applications of a host answer from now on.
    Answer { node: u8, refuse: bool, silent: bool },
    /// A host's listener comes or goes.
    Listen { node: u8, on: bool },
    /// A receiver requests a channel.
    Ask { from: u8, to: u8 },
    /// A flow without promises.
    BestEffort { from: u8, to: u8, messages: u8 },
    /// Packets are lost or late: [`crate::fault::Fault::of`].
    Lose(u8),
    /// A host restarts.
    Restart(u8),
    /// A late packet comes again.
    Replay { back: u8, port: Port },
    /// It comes again, changed; `signed`: with a right tag.
    Forge { back: u8, port: Port, change: Change, signed: bool },
    /// A packet with arbitrary bytes.
    MakeUp { node: u8, link: u8, port: Port, bytes: Vec<u8> },
    /// A call with an id that may not exist.
    Stray { node: u8, what: u8, channel: u8 },
}

/// A byte of a packet becomes another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    /// Which, modulo the length.
    pub at: u16,
    /// The value that is combined with it.
    pub by: u8,
}

/// The channel that an application wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wish {
    /// Source host.
    pub from: u8,
    /// Sink host.
    pub to: u8,
    /// S less 16.
    pub bytes: u16,
    /// I in units of 500 us, from 1.
    pub interval: u8,
    /// B, from 1 to 4.
    pub burst: u8,
    /// D in ms, from 1.
    pub deadline: u8,
    /// Policing, delivery, horizon, activation, lateness, probe.
    pub options: u8,
}

impl Default for Wish {
    fn default() -> Self {
        Self { from: 0, to: 2, bytes: 2_900, interval: 39, burst: 1, deadline: 49, options: 0 }
    }
}

impl Wish {
    /// Whether it is only a probe.
    pub const fn probe(&self) -> bool {
        self.options & 0x80 != 0
    }

    /// The contract as the application states it; `None` if it is invalid.
    pub fn contract(&self) -> Option<Contract> {
        let interval = Nanos::from_micros(500) * (u64::from(self.interval) + 1);
        let rate = Rate::every(interval)?;
        let deadline = Nanos::from_millis(u64::from(self.deadline) + 1);
        let bytes = u32::from(self.bytes) % 8_192 + 16;
        let mut contract = Contract::new(bytes, rate, u32::from(self.burst % 4) + 1, deadline).ok()?;
        contract.policing = [Policing::Delay, Policing::Drop, Policing::Demote, Policing::Delay]
            [usize::from(self.options & 3)];
        contract.delivery = [Delivery::Asap, Delivery::AtDeadline][usize::from(self.options >> 2 & 1)];
        contract.horizon = [Horizon::Cumulative, Horizon::Regulated][usize::from(self.options >> 3 & 1)];
        contract.activation = match self.options >> 4 & 3 {
            2 => Activation::LowLatency { interarrival: interval, packets: 8 },
            3 => Activation::Periodic { period: interval, packets: 8 },
            _ => Activation::Deadline,
        };
        if self.options & 0x40 != 0 {
            contract.late = Late::Drop;
        }
        Some(contract)
    }
}

const fn port_of(byte: u8) -> Port {
    if byte & 1 == 0 { Port::Data } else { Port::Signalling }
}

const fn byte_of(port: Port) -> u8 {
    match port {
        Port::Data => 0,
        Port::Signalling => 1,
    }
}

impl Operation {
    /// The next one.
    pub fn read(input: &mut Input<'_>) -> Option<Self> {
        Some(match input.u8()? % 14 {
            0 => Self::Run((Nanos::from_micros(100) * u64::from(input.u16()?)).min(RUN_MAX)),
            1 => Self::Open(Wish {
                from: input.u8()?,
                to: input.u8()?,
                bytes: input.u16()?,
                interval: input.u8()?,
                burst: input.u8()?,
                deadline: input.u8()?,
                options: input.u8()?,
            }),
            2 => Self::Send { channel: input.u8()?, messages: input.u8()?, bytes: input.u16()? },
            3 => Self::Close { channel: input.u8()?, sink: input.u8()? & 1 != 0 },
            4 => {
                let (node, how) = (input.u8()?, input.u8()?);
                Self::Answer { node, refuse: how & 1 != 0, silent: how & 2 != 0 }
            }
            5 => Self::Listen { node: input.u8()?, on: input.u8()? & 1 != 0 },
            6 => Self::Ask { from: input.u8()?, to: input.u8()? },
            7 => Self::BestEffort { from: input.u8()?, to: input.u8()?, messages: input.u8()? },
            8 => Self::Lose(input.u8()?),
            9 => Self::Restart(input.u8()?),
            10 => Self::Replay { back: input.u8()?, port: port_of(input.u8()?) },
            11 => {
                let (back, how) = (input.u8()?, input.u8()?);
                let change = Change { at: input.u16()?, by: input.u8()? };
                Self::Forge { back, port: port_of(how), change, signed: how & 2 != 0 }
            }
            12 => {
                let (node, how) = (input.u8()?, input.u8()?);
                let bytes = input.bytes()?.to_vec();
                Self::MakeUp { node, link: how >> 1, port: port_of(how), bytes }
            }
            _ => Self::Stray { node: input.u8()?, what: input.u8()?, channel: input.u8()? },
        })
    }

    /// The bytes that [`Operation::read`] reads.
    pub fn write(&self) -> Vec<u8> {
        match self {
            Self::Run(span) => {
                let [low, high] = ((span.0 / 100_000).min(u64::from(u16::MAX)) as u16).to_le_bytes();
                vec![0, low, high]
            }
            Self::Open(wish) => {
                let [low, high] = wish.bytes.to_le_bytes();
                vec![1, wish.from, wish.to, low, high, wish.interval, wish.burst, wish.deadline, wish.options]
            }
            Self::Send { channel, messages, bytes } => {
                let [low, high] = bytes.to_le_bytes();
                vec![2, *channel, *messages, low, high]
            }
            Self::Close { channel, sink } => vec![3, *channel, u8::from(*sink)],
            Self::Answer { node, refuse, silent } => {
                vec![4, *node, u8::from(*refuse) | u8::from(*silent) << 1]
            }
            Self::Listen { node, on } => vec![5, *node, u8::from(*on)],
            Self::Ask { from, to } => vec![6, *from, *to],
            Self::BestEffort { from, to, messages } => vec![7, *from, *to, *messages],
            Self::Lose(fault) => vec![8, *fault],
            Self::Restart(node) => vec![9, *node],
            Self::Replay { back, port } => vec![10, *back, byte_of(*port)],
            Self::Forge { back, port, change, signed } => {
                let [low, high] = change.at.to_le_bytes();
                vec![11, *back, byte_of(*port) | u8::from(*signed) << 1, low, high, change.by]
            }
            Self::MakeUp { node, link, port, bytes } => {
                let mut out = vec![12, *node, byte_of(*port) | link << 1];
                put_bytes(&mut out, bytes);
                out
            }
            Self::Stray { node, what, channel } => vec![13, *node, *what, *channel],
        }
    }
}
