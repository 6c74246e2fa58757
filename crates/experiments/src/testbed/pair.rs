//! Two hosts a - b: a is here, b executes orders. Experiments of two hosts run the same over namespaces and
//! machines.

mod traffic;

use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::atomic::{AtomicU16, Ordering};

use anyhow::{Context, bail};
use punctual::Endsystem;
use punctual_link::Link;
use punctual_os::cpus;

use super::conditions::{Conditions, Peer};
use super::orders::{Answer, Counted, Hosting, Order, RoleId};
use super::peer::Remote;
use super::{Place, Roles, adapter, echo};
use crate::loads::{Class, MessageReceiver};
use crate::testbed::configuration::{self, End};
use crate::testbed::network::WIRE_EXTRA_BYTES;
use crate::testbed::{LinkSpec, Network, NetworkSpec, Options, network};

/// The first port of the baseline.
const FIRST_PORT: u16 = 7_200;
/// Ports of one pair between machines, where all pairs share the hosts.
const PORTS: u16 = 16;

/// Rate of an htb just below the link, so that the queue stays in the shaper.
const HTB_RATE_PERCENT: u64 = 97;

/// The connection between the two.
#[derive(Clone, Copy, Debug)]
pub struct PairSetup {
    /// The link; between machines only its rate counts, and that is the real one's.
    pub link: LinkSpec,
    /// Whether each emulated host has its own CPU.
    pub pinned: bool,
}

/// The place of b.
enum Far {
    /// A namespace of this machine.
    Here(Roles),
    /// Another machine.
    There(Remote),
}

/// Two hosts. Fields drop in this order: threads and processes before their namespaces.
pub struct Pair {
    far: Far,
    near: Roles,
    /// The place of a's threads.
    pub place: Place,
    /// The address of b.
    pub address: Ipv4Addr,
    spec: NetworkSpec,
    ends: Option<[End; 2]>,
    cpus: Vec<u32>,
    key: String,
    next: RoleId,
    next_port: u16,
    /// Servers whose handlers run on the processor.
    direct: Vec<RoleId>,
    /// Handlers that were demoted, of loops that are over.
    demoted: u64,
    network: Option<Network>,
}

impl Pair {
    /// Sets both hosts up, or connects to the other machine.
    ///
    /// # Errors
    /// If a namespace is refused or the peer does not answer.
    pub fn create(setup: &PairSetup, conditions: &Conditions) -> anyhow::Result<Self> {
        match &conditions.peer {
            Some(peer) => Self::over_machines(setup, peer),
            None => Self::over_namespaces(setup),
        }
    }

    fn over_namespaces(setup: &PairSetup) -> anyhow::Result<Self> {
        let spec = NetworkSpec { hosts: vec!["a", "b"], links: vec![setup.link] };
        let network = Network::create(&spec)?;
        let usable = cpus::usable()?;
        let cpus = if setup.pinned && usable.len() >= 2 { usable[..2].to_vec() } else { Vec::new() };
        let place = |index: usize| Place {
            namespace: Some(network.hosts[index].namespace.path()),
            cpu: cpus.get(index).copied(),
        };
        let near = Roles::new(place(0));
        let far = Far::Here(Roles::new(place(1)));
        let pair = Self::new(near, far, network::address(0, 2), spec, FIRST_PORT)?;
        Ok(Self { cpus, network: Some(network), ..pair })
    }

    fn new(
        near: Roles,
        far: Far,
        address: Ipv4Addr,
        spec: NetworkSpec,
        first_port: u16,
    ) -> anyhow::Result<Self> {
        Ok(Self {
            far,
            place: near.place().clone(),
            near,
            address,
            spec,
            ends: None,
            cpus: Vec::new(),
            key: configuration::domain_key()?,
            next: 0,
            next_port: first_port,
            direct: Vec::new(),
            demoted: 0,
            network: None,
        })
    }

    fn over_machines(setup: &PairSetup, peer: &Peer) -> anyhow::Result<Self> {
        let remote = Remote::connect(&peer.address)?;
        let ends = remote.ends()?;
        let rate = match peer.rate {
            Some(rate) => rate,
            None => remote.rate(&ends[0])?,
        };
        static NUMBER: AtomicU16 = AtomicU16::new(0);
        let link = LinkSpec { rate, ..setup.link };
        let spec = NetworkSpec { hosts: vec!["a", "b"], links: vec![link] };
        let first_port = FIRST_PORT + PORTS * (NUMBER.fetch_add(1, Ordering::Relaxed) % PORTS);
        let near = Roles::new(Place::default());
        let pair = Self::new(near, Far::There(remote), ends[1].address, spec, first_port)?;
        Ok(Self { ends: Some(ends), ..pair })
    }

    /// The namespaces, if there are any.
    pub const fn network(&self) -> Option<&Network> {
        self.network.as_ref()
    }

    /// The hosts' CPUs; empty if they are machines, or there are not enough CPUs.
    pub fn cpus(&self) -> &[u32] {
        &self.cpus
    }

    /// b's CPU, if it is on this machine and has its own.
    pub fn far_cpu(&self) -> Option<u32> {
        self.cpus.get(1).copied()
    }

    /// The link between the two.
    pub fn link(&self) -> LinkSpec {
        self.spec.links[0]
    }

    /// Sends an order to b.
    ///
    /// # Errors
    /// If b cannot execute it.
    pub fn order(&mut self, order: Order) -> anyhow::Result<Answer> {
        let answer = match &mut self.far {
            Far::Here(roles) => roles.execute(order)?,
            Far::There(remote) => remote.order(&order)?,
        };
        match answer {
            Answer::Failed { why } => bail!("on b: {why}"),
            answer => Ok(answer),
        }
    }

    /// A number that no role has.
    pub const fn role(&mut self) -> RoleId {
        self.next += 1;
        self.next
    }

    /// A port that no stream of the baseline has.
    pub const fn port(&mut self) -> u16 {
        self.next_port += 1;
        self.next_port
    }

    /// Starts an engine on both hosts and waits until they receive each other's HELLOs; returns its number,
    /// the same on both.
    ///
    /// # Errors
    /// If one does not start.
    pub fn start_engines(&mut self, options: &Options, hosting: Hosting) -> anyhow::Result<RoleId> {
        let role = self.role();
        let options = Options { cpus: self.cpus.clone(), ends: self.ends.clone(), ..options.clone() };
        let config = |place| configuration::text(&self.spec, place, &options, &self.key, Path::new(""));
        let (near, far) = (config(0), config(1));
        let started = self.near.execute(Order::Engine { role, config: near, hosting });
        started.context("engine of a")?;
        self.order(Order::Engine { role, config: far, hosting }).context("engine of b")?;
        self.near.engine(role)?.see_neighbours()?;
        Ok(role)
    }

    /// The configuration of an engine of a, with a's end of the link at `end`.
    pub fn text_at(&self, end: End, options: &Options) -> String {
        let there = End { address: self.address, device: String::new() };
        let options = Options { ends: Some([end, there]), ..options.clone() };
        configuration::text(&self.spec, 0, &options, &self.key, Path::new(""))
    }

    /// The configuration of an engine of b.
    pub fn far_text(&self, options: &Options) -> String {
        let options = Options { cpus: self.cpus.clone(), ends: self.ends.clone(), ..options.clone() };
        configuration::text(&self.spec, 1, &options, &self.key, Path::new(""))
    }

    /// The bare drivers of both hosts: a's, b's. Only over namespaces.
    ///
    /// # Errors
    /// If b is another machine, or a driver refuses.
    pub fn adapters(&self, options: &Options) -> anyhow::Result<(Box<dyn Link>, Box<dyn Link>)> {
        let Far::Here(far) = &self.far else { bail!("b's driver is on another machine") };
        let config = |place| configuration::text(&self.spec, place, options, &self.key, Path::new(""));
        Ok((adapter::open(&self.place, &config(0))?, adapter::open(far.place(), &config(1))?))
    }

    /// a's engine of that number.
    ///
    /// # Errors
    /// If there is none.
    pub fn endsystem(&self, engine: RoleId) -> anyhow::Result<&Endsystem> {
        self.near.engine(engine)?.endsystem()
    }

    /// b's endsystem, if it is on this machine.
    ///
    /// # Errors
    /// If there is none, or it is on another machine.
    pub fn far_endsystem(&self, engine: RoleId) -> anyhow::Result<&Endsystem> {
        match &self.far {
            Far::Here(roles) => roles.engine(engine)?.endsystem(),
            Far::There(_) => bail!("b's engine is on another machine"),
        }
    }

    /// The place of b's threads, if it is on this machine.
    ///
    /// # Errors
    /// If it is on another machine.
    pub fn far_place(&self) -> anyhow::Result<&Place> {
        match &self.far {
            Far::Here(roles) => Ok(roles.place()),
            Far::There(_) => bail!("b is another machine"),
        }
    }

    /// Runs an echo server on b, if it is on this machine.
    ///
    /// # Errors
    /// If it is on another machine, or its thread cannot start.
    pub fn serve(&mut self, class: Class, server: Box<dyn echo::Server>) -> anyhow::Result<()> {
        let role = self.role();
        let Far::Here(roles) = &mut self.far else { bail!("b is another machine") };
        roles.serve(role, class, server)
    }

    /// Runs a sink on b, if it is on this machine; its number.
    ///
    /// # Errors
    /// If it is on another machine, or its thread cannot start.
    pub fn run_sink(&mut self, class: Class, inlet: Box<dyn MessageReceiver>) -> anyhow::Result<RoleId> {
        let role = self.role();
        let Far::Here(roles) = &mut self.far else { bail!("b is another machine") };
        roles.run_sink(role, class, inlet)?;
        Ok(role)
    }

    /// Gives packets from and to `ports` of b a class of priority on both hosts, as an expert would: an htb just below the
    /// link's rate, so that the queue is there and not in the link. Left out where b is another machine: its root
    /// qdisc is not ours to change.
    ///
    /// # Errors
    /// If `tc` refuses.
    pub fn prioritise(&self, ports: &[u16]) -> anyhow::Result<()> {
        let Some(network) = &self.network else { return Ok(()) };
        let rate = self.link().rate.0 / 100 * HTB_RATE_PERCENT;
        for (host, device, field) in [(0, "right", "dport"), (1, "left", "sport")] {
            let mut batch = format!(
                "qdisc add dev {device} root handle 1: htb default 20\n\
                 class add dev {device} parent 1: classid 1:1 htb rate {rate}bit overhead {WIRE_EXTRA_BYTES}\n\
                 class add dev {device} parent 1:1 classid 1:10 htb rate {half}bit ceil {rate}bit prio 0 overhead {WIRE_EXTRA_BYTES}\n\
                 class add dev {device} parent 1:1 classid 1:20 htb rate {half}bit ceil {rate}bit prio 1 overhead {WIRE_EXTRA_BYTES}\n",
                half = rate / 2,
            );
            batch.extend(ports.iter().map(|port| {
                format!("filter add dev {device} parent 1: protocol ip prio 1 u32 match ip {field} {port} 0xffff flowid 1:10\n")
            }));
            network.hosts[host].namespace.feed("tc -batch -", &batch)?;
        }
        Ok(())
    }

    /// What a sink on b has taken, and how a server fares.
    ///
    /// # Errors
    /// If there is none.
    pub fn counted(&mut self, role: RoleId) -> anyhow::Result<Counted> {
        match self.order(Order::Counted { role })? {
            Answer::Counted(counted) => Ok(counted),
            other => bail!("b answers {other:?} where its counters were requested"),
        }
    }
}
