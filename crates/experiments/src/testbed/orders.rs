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

/// Through what messages come.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Through {
    /// A UDP socket on this port.
    Kernel {
        /// Its port.
        port: u16,
    },
    /// A TCP connection to this port.
    Stream {
        /// Its port.
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
        /// Its number.
        role: RoleId,
        /// Its TOML.
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
        /// Which.
        role: RoleId,
    },
    /// End one.
    End {
        /// Which.
        role: RoleId,
    },
}

/// An echo server that is wanted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Echo {
    /// Its number.
    pub role: RoleId,
    /// Through what requests come.
    pub through: Through,
    /// For engines: where answers go to (`port@host`) and under which contract.
    pub answers: Option<(String, Contract)>,
    /// How the server waits.
    pub wait: Wait,
    /// Its class.
    pub class: Class,
    /// Longest message.
    pub bytes_max: u32,
}

/// A sink that is wanted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sink {
    /// Its number.
    pub role: RoleId,
    /// Through what messages come.
    pub through: Through,
    /// Whether a guaranteed channel is awaited.
    pub guaranteed: bool,
    /// Its class.
    pub class: Class,
    /// Longest message.
    pub bytes_max: u32,
}

/// The result of an order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "kebab-case")]
pub enum Answer {
    /// It is done.
    Done,
    /// What a sink has taken, and how a server fares.
    Counted(Counted),
    /// It failed.
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
    /// Their bytes.
    pub bytes: u64,
    /// CPU time of its thread in ns.
    pub cpu_ns: u64,
    /// Whether it is an echo server whose handler took too long, and is a thread's affair since.
    pub demoted: bool,
}
