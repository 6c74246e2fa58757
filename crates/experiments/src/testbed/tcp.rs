//! TCP connections between two hosts, by Punctual or by the kernel.

use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context;
use punctual::Nanos;
use punctual::tcp::{Qos, Settings};
use punctual_host::config::Driver;
use punctual_os::clock::{duration, now, sleep_until};

use super::echo::STOP_CHECK_INTERVAL;
use super::receive::{ReceiveClass, ReceiveThreads};
use super::{Conditions, Hosting, Options, Pair, PairSetup, RoleId, SPIN, Wait, Wire, echo};
use crate::loads::call::Ask;
use crate::loads::tcp::{
    Connection, FULL, KernelTcp, READ_WAIT, TcpCaller, TcpReceiver, TcpSender, answer_all,
};
use crate::loads::tcp_direct::{DirectTcpServer, LeadingTcpCaller};
use crate::loads::{Caller, Class, MessageReceiver, MessageSender, tcp_direct};
use crate::measure::Sample;

/// Buffer of each direction of a connection: RTU's (section 7.1).
pub const BUFFER_BYTES: usize = 200 << 10;
/// How long a connection may take from the listener to its program.
const ACCEPTED_WITHIN: Nanos = Nanos::from_secs(5);
/// Connections and listeners of a host at most; a pipeline so deep that a link of some hundred Mbit/s does not run empty before the
/// processor reacts.
const LINK: &str = "flows_max = 32\nlisteners_max = 16\npipeline_depth = 4\nreaction = \"20us\"\n";
/// How soon a processor of the real-time class notices an arrival.
const RELEASE: &str = "release_latency = \"50us\"\n";
/// What programs may do through a daemon; behind the last link.
const RIGHTS: &str = "[[daemon.tcp]]\nconnect = [\"*:*\"]\nlisten = [\"*:*\"]\n";
/// Port at a of connections that are idle, and how many of them may wait for their program.
const IDLE_PORT: u16 = 5_001;
const IDLE_BACKLOG: u32 = 1_024;
/// Declared time of a handler, or of a leading program between two waits: it copies a message and keeps a sample, on a CPU that
/// was halted just before.
const PROGRAM_TIME: Nanos = Nanos::from_micros(30);

/// System that processes TCP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TcpStack {
    /// The kernel, as it is, without the offloads of the devices.
    Plain,
    /// The kernel as an expert tunes it: connections that are not best effort have programs of the real-time class that poll
    /// for 50 us before they sleep, and a class of priority on both hosts; receive work is done in kernel threads of
    /// real-time priority.
    Tuned,
    /// Punctual.
    Punctual,
    /// Punctual on a; the plain kernel on b, with programs of the same classes.
    PunctualToKernel,
}

/// How Punctual runs TCP for the programs of both hosts, and whether programs and engines poll.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpPlan {
    /// In the programs' processes, or by daemons.
    pub hosting: Hosting,
    /// Whether what waits polls for [`SPIN`] before it sleeps: engines, and programs over the kernel's TCP.
    pub spins: bool,
    /// Lines for the links of both engines.
    pub link: &'static str,
    /// Whether the kernel's connections use CUBIC, whatever its default is.
    pub cubic: bool,
}

impl Default for TcpPlan {
    /// Embedded, sleeping.
    fn default() -> Self {
        Self { hosting: Hosting::Embedded, spins: false, link: LINK, cubic: false }
    }
}

/// Two hosts with TCP. Fields drop in this order.
pub struct TcpWorld {
    stack: TcpStack,
    plan: TcpPlan,
    conditions: Conditions,
    engine: Option<RoleId>,
    /// Ports at b of connections that are not best effort.
    ports: Vec<u16>,
    threads: Option<ReceiveThreads>,
    pair: Pair,
}

impl TcpWorld {
    /// Hosts like `setup`, on one machine; with engines where Punctual runs TCP.
    ///
    /// # Errors
    /// If a host or an engine is refused.
    pub fn create(stack: TcpStack, setup: &PairSetup, conditions: &Conditions) -> anyhow::Result<Self> {
        Self::create_as(stack, TcpPlan::default(), setup, conditions)
    }

    /// The same by `plan`.
    ///
    /// # Errors
    /// See [`TcpWorld::create`].
    pub fn create_as(
        stack: TcpStack,
        plan: TcpPlan,
        setup: &PairSetup,
        conditions: &Conditions,
    ) -> anyhow::Result<Self> {
        let mut pair = Pair::create(setup, conditions)?;
        let (mut engine, mut threads) = (None, None);
        match stack {
            TcpStack::Plain => {}
            TcpStack::Tuned if !conditions.real_time => {}
            TcpStack::Tuned => {
                threads = Some(ReceiveThreads::start(&pair, Driver::default(), ReceiveClass::RealTime)?);
            }
            TcpStack::Punctual | TcpStack::PunctualToKernel => {
                let spin =
                    if plan.spins { format!("spin = \"{}us\"\n", SPIN.0 / 1_000) } else { String::new() };
                let rights = if plan.hosting == Hosting::Daemon { RIGHTS } else { "" };
                let options = Options {
                    link: format!("{}{spin}{rights}", plan.link),
                    processor: RELEASE.into(),
                    ..conditions.options()
                };
                engine = Some(pair.start_engines(&options, plan.hosting)?);
            }
        }
        let network = pair.network().context("TCP is compared on one machine")?;
        for (host, device) in network.hosts.iter().zip(super::receive::DEVICES) {
            // The receive threads of tuned hosts need the devices to aggregate packets.
            let aggregate = if threads.is_some() { "" } else { "gro off" };
            // A forwarder carries frames as they are: with their checksums.
            let checksums = if matches!(setup.link.wire, Wire::Far(_)) { "tx off" } else { "" };
            host.namespace
                .feed(&format!("ethtool -K {device} tso off gso off {aggregate} {checksums}"), "")?;
        }
        let conditions = conditions.clone();
        Ok(Self { stack, plan, conditions, engine, ports: Vec::new(), threads, pair })
    }

    /// The class of the programs of a connection.
    pub const fn class(&self, qos: Qos) -> Class {
        match (self.stack, qos) {
            (TcpStack::Plain, _) | (_, Qos::BestEffort) => Class::Ordinary,
            _ => self.conditions.class(),
        }
    }

    /// The hosts.
    pub const fn pair(&self) -> &Pair {
        &self.pair
    }

    /// A listener of the kernel at b, and its address.
    ///
    /// # Errors
    /// If the port is refused.
    pub fn listen_at_far(&mut self) -> anyhow::Result<(TcpListener, SocketAddr)> {
        let port = self.pair.port();
        let listener =
            self.pair.far_place()?.within(|| Ok(TcpListener::bind((Ipv4Addr::UNSPECIFIED, port))?))?;
        Ok((listener, SocketAddr::from((self.pair.address, port))))
    }

    /// A listener of Punctual at a for connections of best effort with buffers of `buffer_bytes`, and its address.
    ///
    /// # Errors
    /// If it is refused, or the kernel runs TCP.
    pub fn listen_at_near(
        &self,
        buffer_bytes: usize,
    ) -> anyhow::Result<(punctual::tcp::TcpListener, SocketAddr)> {
        let endsystem = self.pair.endsystem(self.engine.context("no engine")?)?;
        let network = self.pair.network().context("TCP is compared on one machine")?;
        let address = SocketAddr::from((network.hosts[0].address(), IDLE_PORT));
        let settings =
            Settings { send_bytes: buffer_bytes, receive_bytes: buffer_bytes, ..Settings::default() };
        let listen = || Ok(endsystem.bind_tcp_with(address, Qos::BestEffort, IDLE_BACKLOG, settings)?);
        Ok((self.pair.place.within(listen)?, address))
    }

    /// Connects a to b: the ends of both.
    ///
    /// # Errors
    /// If the connection is refused.
    pub fn connect(&mut self, qos: Qos) -> anyhow::Result<[Box<dyn Connection>; 2]> {
        let port = self.pair.port();
        if qos != Qos::BestEffort {
            self.ports.push(port);
        }
        let address = SocketAddr::from((self.pair.address, port));
        let low_delay = matches!(qos, Qos::LowDelay { .. });
        let spins = self.stack == TcpStack::Tuned && low_delay;
        let wait = match (self.plan.spins, spins) {
            (true, _) => Wait::Spin,
            (false, true) => Wait::SpinThenBlock,
            (false, false) => Wait::Block,
        };
        let cubic = self.plan.cubic;
        let kernel = |stream| {
            let connection = KernelTcp::new(stream, wait, BUFFER_BYTES)?;
            if cubic { connection.with_cubic() } else { Ok(connection) }
        };
        let far = self.pair.far_place()?;
        let listen = || Ok(TcpListener::bind((Ipv4Addr::UNSPECIFIED, port))?);
        Ok(match self.stack {
            TcpStack::Plain | TcpStack::Tuned => {
                let listener = far.within(listen)?;
                let near = self.pair.place.within(|| Ok(TcpStream::connect(address)?))?;
                [Box::new(kernel(near)?), Box::new(kernel(listener.accept()?.0)?)]
            }
            TcpStack::PunctualToKernel => {
                let listener = far.within(listen)?;
                let near = self.connect_ours(address, qos)?;
                [Box::new(near), Box::new(kernel(listener.accept()?.0)?)]
            }
            TcpStack::Punctual => {
                let engine = self.engine.context("no engine")?;
                let endsystem = self.pair.far_endsystem(engine)?;
                let listener = far.within(|| Ok(endsystem.bind_tcp(address, qos, 1)?));
                let listener = listener.with_context(|| format!("listener of {qos:?}"))?;
                let near = self.connect_ours(address, qos)?;
                let accepted = listener.accept_timeout(duration(ACCEPTED_WITHIN));
                let far = accepted.with_context(|| format!("accepting {qos:?}"))?;
                let far = far.context("a connection never reached its listener")?;
                [Box::new(near), Box::new(waiting(far))]
            }
        })
    }

    fn connect_ours(&self, address: SocketAddr, qos: Qos) -> anyhow::Result<punctual::tcp::TcpStream> {
        let endsystem = self.pair.endsystem(self.engine.context("no engine")?)?;
        if self.plan.hosting == Hosting::Daemon {
            let near = endsystem.connect_tcp(address, qos);
            return Ok(waiting(near.with_context(|| format!("connecting as {qos:?}"))?));
        }
        let settings = Settings {
            send_bytes: BUFFER_BYTES,
            receive_bytes: BUFFER_BYTES,
            is_nodelay: true,
            ..Settings::default()
        };
        let near = self.pair.place.within(|| Ok(endsystem.connect_tcp_with(address, qos, settings)?));
        Ok(waiting(near.with_context(|| format!("connecting as {qos:?}"))?))
    }

    /// Round trips over a connection of its own.
    ///
    /// # Errors
    /// If the connection is refused.
    pub fn call(&mut self, qos: Qos) -> anyhow::Result<Box<dyn Caller>> {
        self.call_as(qos, self.class(qos))
    }

    /// The same with a server of `class`.
    ///
    /// # Errors
    /// If the connection is refused.
    pub fn call_as(&mut self, qos: Qos, class: Class) -> anyhow::Result<Box<dyn Caller>> {
        let [near, far] = self.connect(qos)?;
        self.pair.serve(class, Box::new(TcpServer(far)))?;
        Ok(Box::new(TcpCaller::new(near)))
    }

    /// Round trips over a connection of its own, for which no thread beside the engines is woken: the calling thread leads a's
    /// engine, and b's engine calls the server.
    ///
    /// # Errors
    /// If the connection is refused, or the kernel runs TCP.
    pub fn call_leading(&mut self, qos: Qos) -> anyhow::Result<Box<dyn Caller>> {
        Ok(Box::new(LeadingTcpCaller::new(self.connect_directly(qos)?)))
    }

    /// Round trips over `count` connections of their own, one after the other, in turns. The calling thread is woken; the servers
    /// are handlers of b's engine.
    ///
    /// # Errors
    /// As [`TcpWorld::call_leading`].
    pub fn call_in_turns(&mut self, qos: Qos, count: usize) -> anyhow::Result<Box<dyn Caller>> {
        let (mut callers, mut servers) = (Vec::with_capacity(count), Vec::with_capacity(count));
        for _ in 0..count {
            let [near, far] = self.connect_declared(qos)?;
            callers.push(TcpCaller::new(Box::new(near)));
            servers.push(DirectTcpServer::start(far)?);
        }
        self.pair.serve(Class::Ordinary, Box::new(DirectTcpServers(servers)))?;
        Ok(Box::new(InTurns { callers, next: 0 }))
    }

    /// Round trips of `bytes` for `length`, one after the other, by handlers of both engines over a connection of its own.
    ///
    /// # Errors
    /// As [`TcpWorld::call_leading`]; if answers stop coming.
    pub fn loop_directly(&mut self, qos: Qos, bytes: usize, length: Nanos) -> anyhow::Result<Vec<Sample>> {
        tcp_direct::run(self.connect_directly(qos)?, bytes, length)
    }

    /// A connection with declared times, the far end of which answers by a handler.
    fn connect_directly(&mut self, qos: Qos) -> anyhow::Result<punctual::tcp::TcpStream> {
        let [near, far] = self.connect_declared(qos)?;
        let server = DirectTcpServers(vec![DirectTcpServer::start(far)?]);
        self.pair.serve(Class::Ordinary, Box::new(server))?;
        Ok(near)
    }

    /// A connection with declared times: both ends.
    fn connect_declared(&mut self, qos: Qos) -> anyhow::Result<[punctual::tcp::TcpStream; 2]> {
        let engine = self.engine.context("no engine")?;
        let address = SocketAddr::from((self.pair.address, self.pair.port()));
        let (endsystem, place) = (self.pair.far_endsystem(engine)?, self.pair.far_place()?);
        let listener = place.within(|| Ok(endsystem.bind_tcp_direct(address, qos, 1, PROGRAM_TIME)?));
        let listener = listener.with_context(|| format!("listener of {qos:?}"))?;
        let endsystem = self.pair.endsystem(engine)?;
        let near = self.pair.place.within(|| Ok(endsystem.connect_tcp_direct(address, qos, PROGRAM_TIME)?));
        let near = near.with_context(|| format!("connecting as {qos:?}"))?;
        let far = listener.accept_timeout(duration(ACCEPTED_WITHIN))?;
        Ok([waiting(near), far.context("a connection never reached its listener")?])
    }

    /// Messages of `bytes` from a to b over a connection of its own: where they go in and come out.
    ///
    /// # Errors
    /// If the connection is refused.
    pub fn send(
        &mut self,
        qos: Qos,
        bytes: u32,
    ) -> anyhow::Result<(Box<dyn MessageSender>, Box<dyn MessageReceiver>)> {
        let [near, far] = self.connect(qos)?;
        Ok((Box::new(TcpSender::new(near)), Box::new(TcpReceiver::new(far, bytes as usize))))
    }

    /// Bulk as best effort, and the number of its sink.
    ///
    /// # Errors
    /// If the connection is refused.
    pub fn bulk(&mut self, bytes: u32) -> anyhow::Result<(Box<dyn MessageSender>, RoleId)> {
        let (outlet, inlet) = self.send(Qos::BestEffort, bytes)?;
        Ok((outlet, self.pair.run_sink(Class::Ordinary, inlet)?))
    }

    /// After the last connection: tuned hosts give them their class of priority. Both must be kept; the hosts go last.
    ///
    /// # Errors
    /// If `tc` refuses.
    pub fn finish(self) -> anyhow::Result<(Option<ReceiveThreads>, Pair)> {
        if self.stack == TcpStack::Tuned {
            self.pair.prioritise(&self.ports)?;
        }
        Ok((self.threads, self.pair))
    }
}

/// Sets the timeouts of [`Connection`].
const fn waiting(mut stream: punctual::tcp::TcpStream) -> punctual::tcp::TcpStream {
    stream.set_read_timeout(Some(std::time::Duration::from_nanos(READ_WAIT.0)));
    stream.set_write_timeout(Some(std::time::Duration::from_nanos(FULL.0)));
    stream
}

/// Servers that are kept together: one thread looks after all.
struct DirectTcpServers(Vec<DirectTcpServer>);

impl echo::Server for DirectTcpServers {
    fn serve(self: Box<Self>, stop: &AtomicBool, is_demoted: &AtomicBool) -> anyhow::Result<()> {
        while !stop.load(Ordering::Relaxed) && !self.0.iter().all(DirectTcpServer::has_ended) {
            sleep_until(now() + STOP_CHECK_INTERVAL);
            is_demoted.fetch_or(self.0.iter().any(DirectTcpServer::has_panicked), Ordering::Relaxed);
        }
        Ok(())
    }
}

/// Clients of several connections that call one after the other.
struct InTurns {
    callers: Vec<TcpCaller>,
    next: usize,
}

impl Ask for InTurns {
    fn call(&mut self, message: &[u8]) -> anyhow::Result<bool> {
        let current = self.next;
        self.next = (current + 1) % self.callers.len();
        self.callers[current].call(message)
    }
}

/// Answers over one connection.
struct TcpServer(Box<dyn Connection>);

impl echo::Server for TcpServer {
    fn serve(self: Box<Self>, stop: &AtomicBool, _: &AtomicBool) -> anyhow::Result<()> {
        answer_all(self.0, || stop.load(Ordering::Relaxed))
    }
}
