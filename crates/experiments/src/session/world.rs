//! The systems under test: Punctual's daemons, or the kernel's sockets, each on a network of its own.

use anyhow::Context;
use punctual::Endsystem;
use serde::Serialize;

use super::StreamSpec;
use crate::loads::{Inlet, Outlet, channel, kernel};
use crate::testbed::{Daemons, Network};

/// Which system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum System {
    /// Guaranteed channels and best effort of Punctual.
    Punctual,
    /// Plain kernel UDP sockets: the baseline.
    Kernel,
}

impl System {
    /// For tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Punctual => "Punctual",
            Self::Kernel => "kernel UDP",
        }
    }
}

/// Both ends of a stream.
pub type Ends = (Box<dyn Outlet>, Box<dyn Inlet>);

/// A system on its network.
pub enum World {
    /// Daemons on every host. Fields drop in this order: processes before their namespaces.
    Punctual {
        /// The processes.
        daemons: Daemons,
        /// Where they live.
        network: Network,
    },
    /// Nothing but the kernel.
    Kernel {
        /// The hosts.
        network: Network,
        /// The next port that no stream has.
        next_port: u16,
    },
}

/// The first port of the baseline's streams.
const FIRST_PORT: u16 = 7_100;

impl World {
    /// The baseline on `network`.
    pub const fn kernel(network: Network) -> Self {
        Self::Kernel { network, next_port: FIRST_PORT }
    }

    /// Which system this is.
    pub const fn system(&self) -> System {
        match self {
            Self::Punctual { .. } => System::Punctual,
            Self::Kernel { .. } => System::Kernel,
        }
    }

    /// Opens a stream.
    ///
    /// # Errors
    /// Where the system refuses it.
    pub fn connect(&mut self, spec: &StreamSpec) -> anyhow::Result<Ends> {
        match self {
            Self::Punctual { daemons, .. } => {
                connect_channel(daemons.endsystem(spec.from)?, daemons.endsystem(spec.to)?, spec)
            }
            Self::Kernel { network, next_port } => {
                let host =
                    |name| network.host(name).with_context(|| format!("no host {name} in this network"));
                let (from, to) = (host(spec.from)?, host(spec.to)?);
                let port = *next_port;
                *next_port += 1;
                let ends = kernel::stream(&from.namespace, &to.namespace, to.address(), port)
                    .with_context(|| format!("sockets for {}", spec.name))?;
                Ok((Box::new(ends.0), Box::new(ends.1)))
            }
        }
    }
}

fn connect_channel(from: &Endsystem, to: &Endsystem, spec: &StreamSpec) -> anyhow::Result<Ends> {
    let (outlet, inlet) = match spec.contract {
        Some(contract) => channel::guaranteed(from, to, spec.name, contract)?,
        None => {
            let longest = u32::try_from(spec.content.len_max()).context("a message beyond 4 GiB")?;
            channel::best_effort(from, to, spec.name, longest)?
        }
    };
    Ok((Box::new(outlet), Box::new(inlet)))
}
