//! Two hosts a - b: a is here, b executes orders. Experiments of two hosts run the same over namespaces and
//! machines.

use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::atomic::{AtomicU16, Ordering};

use anyhow::{Context, bail};
use punctual::{Channel, Consent, Contract, Endsystem, Listener, Nanos, Receiver};
use punctual_link::Link;
use punctual_os::cpus;

use super::bare::Bare;
use super::conditions::{Conditions, Peer};
use super::orders::{Answer, Counted, Echo, Hosting, Order, RoleId, Sink, Through};
use super::peer::Remote;
use super::{Place, Roles, Wait, adapter, echo};
use crate::loads::call::{ChannelCaller, LeadingCaller, SocketCaller};
use crate::loads::channel::{ChannelSender, accept};
use crate::loads::stream::StreamSender;
use crate::loads::{Caller, Class, MessageReceiver, MessageSender, direct};
use crate::measure::Sample;
use crate::testbed::configuration::{self, End};
use crate::testbed::network::WIRE_EXTRA_BYTES;
use crate::testbed::{LinkSpec, Network, NetworkSpec, Options, network};

/// Time that a client that leads declares for its work between two waits: it reads its clock and keeps a sample. The processor is
/// woken from a halt just before, with cold caches, and its kernel catches up with timers and its neighbours' packets.
const LEADER_TIME: Nanos = Nanos::from_micros(30);
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

    /// Round trips over plain sockets.
    ///
    /// # Errors
    /// If a socket is refused.
    pub fn call_sockets(&mut self, wait: Wait, class: Class) -> anyhow::Result<(Box<dyn Caller>, u16)> {
        let (role, port) = (self.role(), self.port());
        let through = Through::Kernel { port };
        self.order(Order::Echo(Echo { role, through, answers: None, wait, class, bytes_max: 2_048 }))?;
        let server = std::net::SocketAddrV4::new(self.address, port);
        let caller = self.place.within(|| Ok(SocketCaller::new(server, wait)?))?;
        Ok((Box::new(caller), port))
    }

    /// Round trips over two guaranteed channels of an engine; `waits` states how client and server wait, in
    /// that order.
    ///
    /// # Errors
    /// If a channel is refused, or an end of a channel cannot wait like that.
    pub fn call_channels(
        &mut self,
        engine: RoleId,
        contract: Contract,
        [client, wait]: [Wait; 2],
        class: Class,
    ) -> anyhow::Result<Box<dyn Caller>> {
        let role = self.role();
        let reply = format!("reply-{role}");
        let endsystem = self.endsystem(engine)?;
        let listener = match client {
            Wait::Lead => endsystem.listen_direct(&reply, LEADER_TIME, |_| Consent::Accept)?,
            Wait::Block => endsystem.listen(&reply, |_| Consent::Accept)?,
            other => bail!("a client of channels blocks or leads: {other:?} is none of these"),
        };
        let (requests, answers) = self.open_echo(role, engine, contract, wait, class, &listener)?;
        if wait == Wait::Direct {
            self.direct.push(role);
        }
        Ok(match client {
            Wait::Lead => Box::new(LeadingCaller::new(requests, answers)),
            _ => Box::new(ChannelCaller::new(requests, answers)),
        })
    }

    /// Makes b answer over an engine as role number `role`: opens the channel of the requests, and the
    /// channel of the answers, for which `listener` waits.
    fn open_echo(
        &mut self,
        role: RoleId,
        engine: RoleId,
        contract: Contract,
        wait: Wait,
        class: Class,
        listener: &Listener,
    ) -> anyhow::Result<(Channel, Receiver)> {
        let ask = format!("ask-{role}");
        let through = Through::Engine { engine, name: ask.clone() };
        let answers = Some((format!("reply-{role}@a"), contract));
        let bytes_max = contract.message_bytes_max;
        self.order(Order::Echo(Echo { role, through, answers, wait, class, bytes_max }))?;
        let answers = accept(listener)?;
        Ok((self.endsystem(engine)?.open(&format!("{ask}@b"), contract)?, answers))
    }

    /// Round trips of messages of `bytes` over the bare drivers of both hosts. Only over namespaces.
    ///
    /// # Errors
    /// As [`Pair::adapters`].
    pub fn call_adapters(
        &mut self,
        options: &Options,
        bytes: u32,
        wait: Wait,
        class: Class,
    ) -> anyhow::Result<Box<dyn Caller>> {
        let (near, far) = self.adapters(options)?;
        self.serve(class, Box::new(Bare::new(far, wait, bytes, [2, 1])))?;
        Ok(Box::new(Bare::new(near, wait, bytes, [1, 2])))
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

    /// Round trips of `bytes` for which no thread is woken: the processors of both hosts call handlers, and
    /// a's handler sends the next request with each answer. As many as fit into `length`, one after the
    /// other.
    ///
    /// # Errors
    /// If a channel is refused, or answers stop coming.
    pub fn loop_directly(
        &mut self,
        engine: RoleId,
        contract: Contract,
        bytes: usize,
        length: Nanos,
    ) -> anyhow::Result<Vec<Sample>> {
        let role = self.role();
        let time = echo::handler_time(&contract);
        let endsystem = self.endsystem(engine)?;
        let listener = endsystem.listen_direct(&format!("reply-{role}"), time, |_| Consent::Accept)?;
        let (wait, class) = (Wait::Direct, Class::Ordinary);
        let (requests, answers) = self.open_echo(role, engine, contract, wait, class, &listener)?;
        let looped = direct::run(requests, answers, bytes, length);
        self.demoted += u64::from(self.counted(role)?.demoted);
        self.order(Order::End { role })?;
        let (samples, is_demoted) = looped?;
        self.demoted += u64::from(is_demoted);
        Ok(samples)
    }

    /// Number of handlers until now that took too long for their processor, so that a thread was woken for
    /// the messages after that.
    ///
    /// # Errors
    /// If b does not report it.
    pub fn demoted(&mut self) -> anyhow::Result<u64> {
        let mut count = self.demoted;
        for role in self.direct.clone() {
            count += u64::from(self.counted(role)?.demoted);
        }
        Ok(count)
    }

    /// One-way blocks over a TCP connection, as the papers' bulk; and the sink's number.
    ///
    /// # Errors
    /// If a socket is refused.
    pub fn send_sockets(
        &mut self,
        bytes_max: u32,
        class: Class,
    ) -> anyhow::Result<(Box<dyn MessageSender>, RoleId)> {
        let (role, port) = (self.role(), self.port());
        let through = Through::Stream { port };
        self.order(Order::Sink(Sink { role, through, guaranteed: false, class, bytes_max }))?;
        let target = std::net::SocketAddrV4::new(self.address, port);
        let sender = self.place.within(|| Ok(StreamSender::connect(target)?))?;
        Ok((Box::new(sender), role))
    }

    /// One-way messages through an engine, guaranteed under a contract or as best effort; and the sink's number.
    ///
    /// # Errors
    /// If it is refused.
    pub fn send_engine(
        &mut self,
        engine: RoleId,
        contract: Option<Contract>,
        bytes_max: u32,
        class: Class,
    ) -> anyhow::Result<(Box<dyn MessageSender>, RoleId)> {
        let role = self.role();
        let name = format!("sink-{role}");
        let through = Through::Engine { engine, name: name.clone() };
        let guaranteed = contract.is_some();
        self.order(Order::Sink(Sink { role, through, guaranteed, class, bytes_max }))?;
        let endsystem = self.endsystem(engine)?;
        let peer = format!("{name}@b");
        let channel = match contract {
            Some(contract) => endsystem.open(&peer, contract)?,
            None => endsystem.best_effort(&peer, bytes_max)?,
        };
        Ok((Box::new(ChannelSender(channel)), role))
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
