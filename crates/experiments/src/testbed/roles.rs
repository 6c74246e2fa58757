//! The roles of one host of a pair: engines, echo servers, sinks. They execute [`Order`]s.
//!
//! Ownership: a [`Roles`] owns its threads and engines; dropping it ends the servers and sinks first, then
//! the engines that they used. Each role has one thread, which checks a stop flag at least every [`STOP_CHECK_INTERVAL`].

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use anyhow::{Context, bail};
use punctual::{Consent, Endsystem, Instant, Listener, Nanos, RecvError};
use punctual_os::clock::{now, wait_until};

use super::echo::{STOP_CHECK_INTERVAL, await_channel};
use super::orders::{Answer, Counted, Echo, Hosting, Order, RoleId, Sink, Through};
use super::{Place, Wait, echo};
use crate::loads::channel::ChannelReceiver;
use crate::loads::kernel::KernelReceiver;
use crate::loads::stream::StreamReceiver;
use crate::loads::{Background, Class, MessageReceiver};
use crate::testbed::daemons::Daemon;

/// How long engines may take until they receive each other's HELLOs.
pub const READY_WITHIN: Nanos = Nanos::from_secs(10);
const POLL: Nanos = Nanos::from_millis(5);

/// An engine of a host.
pub enum Engine {
    /// In this process.
    Embedded(Endsystem),
    /// In a separate process.
    Daemon(Daemon),
}

impl Engine {
    /// Starts it on a host; does not wait for its neighbour.
    ///
    /// # Errors
    /// If the configuration or the system refuses.
    pub fn start(place: &Place, config: &str, hosting: Hosting) -> anyhow::Result<Self> {
        match hosting {
            Hosting::Embedded => place.within(|| {
                let host = punctual_host::config::parse(config, std::path::Path::new("bench"))?;
                Ok(Self::Embedded(Endsystem::embedded(&host)?))
            }),
            Hosting::Daemon => Ok(Self::Daemon(Daemon::start(place.namespace.as_deref(), config)?)),
        }
    }

    /// The endsystem by which programs use it.
    ///
    /// # Errors
    /// If the daemon is gone.
    pub fn endsystem(&self) -> anyhow::Result<&Endsystem> {
        match self {
            Self::Embedded(endsystem) => Ok(endsystem),
            Self::Daemon(daemon) => daemon.endsystem(),
        }
    }

    /// Waits until it receives its neighbours' HELLOs.
    ///
    /// # Errors
    /// If it does not.
    pub fn see_neighbours(&self) -> anyhow::Result<()> {
        see_neighbours(self.endsystem()?, now() + READY_WITHIN, || Ok(()))
    }
}

/// Waits until a host receives its neighbours' HELLOs; calls `is_well` repeatedly, and gives up when it
/// fails.
///
/// # Errors
/// If it does not before `until`, or is gone.
pub fn see_neighbours(
    endsystem: &Endsystem,
    until: Instant,
    mut is_well: impl FnMut() -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    while !endsystem.status()?.node.links.iter().all(|link| link.alive) {
        if now() >= until {
            bail!("{} does not receive from its neighbours within {READY_WITHIN}", endsystem.host());
        }
        is_well()?;
        wait_until(now() + POLL)?;
    }
    Ok(())
}

/// State that a sink or a server shares with the thread that reads its counters.
#[derive(Default)]
struct Counts {
    messages: AtomicU64,
    bytes: AtomicU64,
    cpu_ns: AtomicU64,
    demoted: AtomicBool,
}

/// A role with a thread.
struct Running {
    counts: Arc<Counts>,
    _thread: Background<()>,
}

/// All roles of a host.
pub struct Roles {
    place: Place,
    running: BTreeMap<RoleId, Running>,
    /// Dropped after the roles, which use them.
    engines: BTreeMap<RoleId, Engine>,
}

impl Roles {
    /// A host without roles, on `place`.
    pub const fn new(place: Place) -> Self {
        Self { place, running: BTreeMap::new(), engines: BTreeMap::new() }
    }

    /// Place where the roles run.
    pub const fn place(&self) -> &Place {
        &self.place
    }

    /// Executes an order.
    ///
    /// # Errors
    /// If the order cannot be executed.
    pub fn execute(&mut self, order: Order) -> anyhow::Result<Answer> {
        match order {
            Order::Engine { role, config, hosting } => {
                let engine = Engine::start(&self.place, &config, hosting)?;
                self.engines.insert(role, engine);
            }
            Order::Echo(wanted) => self.echo(wanted)?,
            Order::Sink(wanted) => self.sink(wanted)?,
            Order::Counted { role } => return self.counted(role),
            Order::End { role } => {
                self.running.remove(&role);
                self.engines.remove(&role);
            }
        }
        Ok(Answer::Done)
    }

    /// One of its engines.
    ///
    /// # Errors
    /// If there is none of that number.
    pub fn engine(&self, role: RoleId) -> anyhow::Result<&Engine> {
        self.engines.get(&role).with_context(|| format!("no engine {role} was started here"))
    }

    fn echo(&mut self, wanted: Echo) -> anyhow::Result<()> {
        let Echo { role, through, answers, wait, class, bytes_max } = wanted;
        let server: Box<dyn echo::Server> = match through {
            Through::Kernel { port } => {
                let place = self.place.clone();
                Box::new(place.within(|| echo::SocketServer::bind(port, wait, bytes_max))?)
            }
            Through::Stream { .. } => bail!("round trips go over datagrams"),
            Through::Engine { engine, name } => {
                let endsystem = self.engine(engine)?.endsystem()?;
                let (to, contract) = answers.context("an echo through an engine needs a way back")?;
                let listener = match wait {
                    Wait::Direct => {
                        endsystem.listen_direct(&name, echo::handler_time(&contract), |_| Consent::Accept)?
                    }
                    Wait::Block => endsystem.listen(&name, |_| Consent::Accept)?,
                    other => bail!("a server of channels blocks or is a handler: {other:?} is none of these"),
                };
                let answers = endsystem.open(&to, contract).with_context(|| format!("channel to {to}"))?;
                Box::new(echo::ChannelServer { listener, answers, wait })
            }
        };
        self.serve(role, class, server)
    }

    fn sink(&mut self, wanted: Sink) -> anyhow::Result<()> {
        let Sink { role, through, guaranteed, class, bytes_max } = wanted;
        let source = match through {
            Through::Kernel { port } => {
                let address = std::net::SocketAddrV4::new(std::net::Ipv4Addr::UNSPECIFIED, port);
                Source::Receiver(Box::new(self.place.within(|| Ok(KernelReceiver::bind(address)?))?))
            }
            Through::Stream { port } => {
                Source::Receiver(Box::new(self.place.within(|| Ok(StreamReceiver::bind(port)?))?))
            }
            Through::Engine { engine, name } => {
                let endsystem = self.engine(engine)?.endsystem()?;
                if guaranteed {
                    Source::Awaited(endsystem.listen(&name, |_| Consent::Accept)?)
                } else {
                    Source::Receiver(Box::new(ChannelReceiver(endsystem.bind_best_effort(&name, bytes_max)?)))
                }
            }
        };
        self.run(role, class, move |stop, counts| take(source, stop, counts))
    }

    /// Starts the thread of an echo server.
    pub(super) fn serve(
        &mut self,
        role: RoleId,
        class: Class,
        server: Box<dyn echo::Server>,
    ) -> anyhow::Result<()> {
        self.run(role, class, move |stop, counts| server.serve(stop, &counts.demoted))
    }

    /// Starts the thread of a sink.
    pub(super) fn run_sink(
        &mut self,
        role: RoleId,
        class: Class,
        receiver: Box<dyn MessageReceiver>,
    ) -> anyhow::Result<()> {
        self.run(role, class, move |stop, counts| take(Source::Receiver(receiver), stop, counts))
    }

    fn run(
        &mut self,
        role: RoleId,
        class: Class,
        work: impl FnOnce(&AtomicBool, &Counts) -> anyhow::Result<()> + Send + 'static,
    ) -> anyhow::Result<()> {
        let counts = Arc::new(Counts::default());
        let counted = Arc::clone(&counts);
        let name = format!("role-{role}");
        let work = move |stop: &AtomicBool| work(stop, &counted);
        let thread = Background::start(&self.place, &name, class, work)?;
        self.running.insert(role, Running { counts, _thread: thread });
        Ok(())
    }

    fn counted(&self, role: RoleId) -> anyhow::Result<Answer> {
        let running = self.running.get(&role).with_context(|| format!("no role {role} here"))?;
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let counts = &running.counts;
        Ok(Answer::Counted(Counted {
            messages: read(&counts.messages),
            bytes: read(&counts.bytes),
            cpu_ns: read(&counts.cpu_ns),
            demoted: counts.demoted.load(Ordering::Relaxed),
        }))
    }
}

impl Drop for Roles {
    fn drop(&mut self) {
        self.running.clear();
    }
}

/// The source of a sink's messages.
enum Source {
    Receiver(Box<dyn MessageReceiver>),
    /// A channel that is not there yet.
    Awaited(Listener),
}

fn take(source: Source, stop: &AtomicBool, counts: &Counts) -> anyhow::Result<()> {
    let mut receiver: Box<dyn MessageReceiver> = match source {
        Source::Receiver(receiver) => receiver,
        Source::Awaited(listener) => match await_channel(&listener, stop)? {
            Some(receiver) => Box::new(ChannelReceiver(receiver)),
            None => return Ok(()),
        },
    };
    let mut message = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        let taken = match receiver.take(&mut message, now() + STOP_CHECK_INTERVAL) {
            Err(error) if is_end(&error) => return Ok(()),
            other => other?,
        };
        if taken {
            counts.messages.fetch_add(1, Ordering::Relaxed);
            counts.bytes.fetch_add(message.len() as u64, Ordering::Relaxed);
        }
        counts.cpu_ns.store(punctual_os::clock::thread_cpu().as_u64(), Ordering::Relaxed);
    }
    Ok(())
}

/// Whether the other end has closed a channel or a connection.
fn is_end(error: &anyhow::Error) -> bool {
    let closed = matches!(error.downcast_ref(), Some(RecvError::Closed(_)));
    let ended = |error: &std::io::Error| error.kind() == std::io::ErrorKind::UnexpectedEof;
    closed || error.downcast_ref().is_some_and(ended)
}
