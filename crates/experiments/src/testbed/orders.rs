//! The orders to the far host of a pair: the same whether it is a namespace of this machine or another
//! machine (`punctual bench --serve`).

use punctual::Contract;
use serde::{Deserialize, Serialize};

use crate::loads::{Class, Wait};

/// Names a role that was started, so that it can be queried and ended; the near side numbers them.
pub type RoleId = u32;

/// The process of an engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Hosting {
    /// In this program.
    #[default]
    Embedded,
    /// In `punctuald`.
    Daemon,
}

/// The way by which messages come.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Through {
    /// A UDP socket on this port.
    Kernel {
        /// Port to listen at.
        port: u16,
    },
    /// A TCP connection to this port.
    Stream {
        /// Port to listen at.
        port: u16,
    },
    /// A name at an engine that was started before.
    Engine {
        /// Which engine.
        engine: RoleId,
        /// Which name.
        name: String,
    },
}

/// One order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "order", rename_all = "kebab-case")]
pub enum Order {
    /// Start an engine and report when it receives its neighbour's HELLOs.
    Engine {
        /// Number of the role.
        role: RoleId,
        /// The configuration, as TOML.
        config: String,
        /// The process of the engine.
        hosting: Hosting,
    },
    /// Answer each message with its own bytes.
    Echo(Echo),
    /// Take messages and count them.
    Sink(Sink),
    /// Report the counters of a sink, or the state of an echo server.
    Counted {
        /// Number of the role.
        role: RoleId,
    },
    /// End one.
    End {
        /// Number of the role.
        role: RoleId,
    },
}

/// An echo server that is wanted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Echo {
    /// Number of the role.
    pub role: RoleId,
    /// The way by which requests come.
    pub through: Through,
    /// For engines: where answers go to (`port@host`) and under which contract.
    pub answers: Option<(String, Contract)>,
    /// How the server waits.
    pub wait: Wait,
    /// Class of the messages.
    pub class: Class,
    /// Longest message.
    pub bytes_max: u32,
}

/// A sink that is wanted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sink {
    /// Number of the role.
    pub role: RoleId,
    /// The way by which messages come.
    pub through: Through,
    /// Whether a guaranteed channel is awaited.
    pub guaranteed: bool,
    /// Class of the messages.
    pub class: Class,
    /// Longest message.
    pub bytes_max: u32,
}

/// The result of an order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "kebab-case")]
pub enum Answer {
    /// The order was carried out.
    Done,
    /// What a sink has taken, and how a server fares.
    Counted(Counted),
    /// The order failed.
    Failed {
        /// Why, in one line.
        why: String,
    },
}

/// What a sink has taken, and how a server fares.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counted {
    /// Messages.
    pub messages: u64,
    /// Bytes of these messages.
    pub bytes: u64,
    /// CPU time of its thread in ns.
    pub cpu_ns: u64,
    /// Whether it is an echo server whose handler took too long, and is a thread's affair since.
    pub demoted: bool,
}
