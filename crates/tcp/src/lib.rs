//! TCP/IP for a node: pure, like `punctual-proto`. Packets, `now` and secrets are arguments; this crate reads
//! no clock, no socket and no random source.
//!
//! One [`Connection`] has two handlers (RTU 5.2): [`Connection::input`] processes one segment,
//! [`Connection::output`] makes one. Its timers are one instant, [`Connection::next_deadline`]. A
//! [`Listener`] replies to SYNs and hands over connections. [`Stack`] joins both for tests and simulations;
//! an engine that classifies packets early stores connections itself.
//!
//! The protocol machine is smoltcp's, one instance for each connection, behind the module `machine`. Missing
//! parts are implemented around it (docs/adr/0052): `guard` checks segments before the machine gets them (RFC
//! 5961, 7323, 9293), and `edge` translates those that leave (sequence numbers of RFC 6528, timestamps,
//! urgent data).

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod challenge;
mod config;
pub mod connection;
mod cookie;
mod edge;
pub mod endsystem;
mod guard;
mod handshake;
pub mod icmp;
mod limits;
mod listener;
mod machine;
mod pmtu;
mod ports;
mod recovery;
mod rtt;
mod sacked;
mod secrets;
mod sequence;
mod stack;
mod urgent;
pub mod wire;

pub use config::{Config, Setting};
pub use connection::{Connection, Ended, Received, SendError, State};
pub use handshake::Opening;
pub use icmp::{Quote, Trouble};
pub use limits::ACK_SEGMENTS_MAX;
pub use listener::{Answer, Listener, SynCounts};
pub use ports::EphemeralPorts;
pub use secrets::Secrets;
pub use stack::{Arrival, ConnectError, ConnectionId, Stack};
pub use wire::{Flags, Flow, Malformed, Segment};
