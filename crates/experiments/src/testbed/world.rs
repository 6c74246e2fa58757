//! The systems under test: Punctual's daemons, or the kernel's sockets, each on a network of its own.

use anyhow::{Context, bail};
use punctual::{Endsystem, Ppm};
use serde::Serialize;

use super::StreamSpec;
use crate::loads::kernel::Precedence;
use crate::loads::{MessageReceiver, MessageSender, channel, kernel};
use crate::testbed::{Daemons, Embedded, Network};

/// Which system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum System {
    /// Guaranteed channels and best effort of Punctual.
    Punctual,
    /// Plain kernel UDP sockets: the baseline.
    Kernel,
    /// The same sockets with strict priority at every hop: the best that a user can do by hand.
    KernelPriority,
}

impl System {
    /// The systems over which streams are compared.
    pub const COMPARED: [Self; 2] = [Self::Punctual, Self::Kernel];

    /// For tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Punctual => "Punctual",
            Self::Kernel => "kernel UDP",
            Self::KernelPriority => "priority by hand",
        }
    }
}

/// Both ends of a stream.
pub type Ends = (Box<dyn MessageSender>, Box<dyn MessageReceiver>);

/// A system under test.
pub enum World {
    /// Daemons on every host. Fields drop in this order: processes before their namespaces.
    Daemons {
        /// The processes.
        daemons: Daemons,
        /// Network of the hosts.
        network: Network,
    },
    /// Engines in this process.
    Embedded(Embedded),
    /// Only the kernel.
    Kernel {
        /// The hosts; without any, sockets on loopback: no link of any rate between them.
        network: Option<Network>,
        /// The next port that no stream has.
        next_port: u16,
        /// Whether guaranteed streams go before the others.
        priority: bool,
    },
}

/// The first port of the baseline's streams.
const FIRST_PORT: u16 = 7_100;

impl World {
    /// The baseline on `network`, or on loopback.
    pub const fn kernel(network: Option<Network>) -> Self {
        Self::Kernel { network, next_port: FIRST_PORT, priority: false }
    }

    /// The baseline with priorities on `network`, whose hosts have queues for them ([`prioritise`]), or on loopback.
    ///
    /// [`prioritise`]: crate::testbed::priority::prioritise
    pub const fn kernel_priority(network: Option<Network>) -> Self {
        Self::Kernel { network, next_port: FIRST_PORT, priority: true }
    }

    /// Which system this is.
    pub const fn system(&self) -> System {
        match self {
            Self::Daemons { .. } | Self::Embedded(_) => System::Punctual,
            Self::Kernel { priority: false, .. } => System::Kernel,
            Self::Kernel { priority: true, .. } => System::KernelPriority,
        }
    }

    /// A host of Punctual.
    ///
    /// # Errors
    /// If there is no such host, or this is the baseline.
    pub fn endsystem(&self, host: &str) -> anyhow::Result<&Endsystem> {
        match self {
            Self::Daemons { daemons, .. } => daemons.endsystem(host),
            Self::Embedded(embedded) => embedded.endsystem(host),
            Self::Kernel { .. } => bail!("the baseline has no endsystem"),
        }
    }

    /// g: the utilisation that is granted on the tightest link out of `hosts`.
    ///
    /// # Errors
    /// As [`World::endsystem`], or if a daemon is gone.
    pub fn guaranteed_load(&self, hosts: &[&str]) -> anyhow::Result<Ppm> {
        let mut load = Ppm(0);
        for host in hosts {
            let status = self.endsystem(host)?.status()?;
            load = status.node.links.iter().map(|link| link.utilisation).fold(load, Ppm::max);
        }
        Ok(load)
    }

    /// Opens a stream.
    ///
    /// # Errors
    /// If the system refuses it.
    pub fn connect(&mut self, spec: &StreamSpec) -> anyhow::Result<Ends> {
        match self {
            Self::Kernel { network, next_port, priority } => {
                *next_port += 1;
                connect_sockets(network.as_ref(), *next_port, *priority, spec)
                    .with_context(|| format!("sockets for {}", spec.name))
            }
            _ => connect_channel(self.endsystem(spec.from)?, self.endsystem(spec.to)?, spec),
        }
    }
}

fn connect_sockets(
    network: Option<&Network>,
    port: u16,
    priority: bool,
    spec: &StreamSpec,
) -> anyhow::Result<Ends> {
    let (sender, receiver) = match network {
        Some(network) => {
            let host = |name| network.host(name).with_context(|| format!("no host {name} in this network"));
            let (from, to) = (host(spec.from)?, host(spec.to)?);
            kernel::stream(&from.namespace, &to.namespace, to.address(), port)?
        }
        None => kernel::loopback()?,
    };
    if priority {
        sender.mark(if spec.contract.is_some() { Precedence::High } else { Precedence::Low })?;
    }
    Ok((Box::new(sender), Box::new(receiver)))
}

fn connect_channel(from: &Endsystem, to: &Endsystem, spec: &StreamSpec) -> anyhow::Result<Ends> {
    let (sender, receiver) = match spec.contract {
        Some(contract) => channel::guaranteed(from, to, spec.name, contract)?,
        None => {
            let longest = u32::try_from(spec.content.len_max()).context("a message beyond 4 GiB")?;
            channel::best_effort(from, to, spec.name, longest)?
        }
    };
    Ok((Box::new(sender), Box::new(receiver)))
}
