//! Two hosts, and what is between a client on a and a server on b.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, bail};

use crate::experiments::Conditions;
use crate::loads::tcp::{Connection, KernelTcp, TcpCaller, answer_all};
use crate::loads::{Caller, Class};
use crate::testbed::scratch::Scratch;
use crate::testbed::{Pair, PairSetup, Place, Wait, echo};

const BUFFER_BYTES: usize = 200 << 10;
/// What a server on b is reached by: its port, and the class of a relay's connections.
pub(super) type Reached = (u16, &'static str);
/// Segments of each direction in any interval: more than a round trip of each 5 ms takes.
pub(super) const ECHO: Reached = (7_001, "low-delay --interval 4ms --units 8");
pub(super) const REDIS: Reached = (6_379, "best-effort");

/// What is between.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Between {
    Nothing,
    /// Two threads for each connection that copy.
    Proxy,
    /// `punctual relay` on b.
    Relay,
}

/// A process that ends with its world.
pub(super) struct Process(pub Child);

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Fields drop in this order.
pub(super) struct World {
    between: Between,
    port: u16,
    _relay: Option<Process>,
    _scratch: Scratch,
    pair: Pair,
}

impl World {
    pub fn create(
        between: Between,
        (port, class): Reached,
        setup: &PairSetup,
        conditions: &Conditions,
    ) -> anyhow::Result<Self> {
        let (pair, scratch) = (Pair::create(setup, conditions)?, Scratch::create()?);
        let network = pair.network().context("hosts on one machine")?;
        for (host, device) in network.hosts.iter().zip(["right", "left"]) {
            host.namespace.feed(&format!("ethtool -K {device} tso off gso off gro off"), "")?;
        }
        let address = SocketAddr::from((pair.address, port));
        let mut relay = None;
        match between {
            Between::Nothing => {}
            Between::Proxy => proxy(pair.far_place()?, address)?,
            Between::Relay => relay = Some(relay_of(&pair, conditions, &scratch, address, class)?),
        }
        Ok(Self { between, port, _relay: relay, _scratch: scratch, pair })
    }

    /// The port of its server.
    pub const fn port(&self) -> u16 {
        self.port
    }

    pub const fn pair(&self) -> &Pair {
        &self.pair
    }

    /// The address on b that a server listens at.
    pub const fn server_address(&self) -> Ipv4Addr {
        match self.between {
            Between::Nothing => self.pair.address,
            Between::Proxy | Between::Relay => Ipv4Addr::LOCALHOST,
        }
    }

    /// Round trips to an echo on b.
    pub fn caller(&mut self) -> anyhow::Result<Box<dyn Caller>> {
        let (server, client) = ((self.server_address(), self.port), (self.pair.address, self.port));
        let listener = self.pair.far_place()?.within(|| Ok(TcpListener::bind(server)?))?;
        let near = self.pair.place.within(|| Ok(TcpStream::connect(client)?))?;
        let far = listener.accept()?.0;
        let kernel = |stream| KernelTcp::new(stream, Wait::Block, BUFFER_BYTES);
        self.pair.serve(Class::Ordinary, Box::new(Echo(Box::new(kernel(far)?))))?;
        Ok(Box::new(TcpCaller::new(Box::new(kernel(near)?))))
    }
}

/// Answers over one connection.
struct Echo(Box<dyn Connection>);

impl echo::Server for Echo {
    fn serve(self: Box<Self>, stop: &AtomicBool, _: &AtomicBool) -> anyhow::Result<()> {
        answer_all(self.0, || stop.load(Ordering::Relaxed))
    }
}

/// A plain proxy from `address` to the same port of the loopback, as long as the process lives.
fn proxy(place: &Place, address: SocketAddr) -> anyhow::Result<()> {
    let listener = place.within(|| Ok(TcpListener::bind(address)?))?;
    let place = place.clone();
    let serve = move || {
        // A thread in the namespace makes the connections.
        let _ = place.within(|| {
            for stream in listener.incoming() {
                let outer = stream?;
                let inner = TcpStream::connect((Ipv4Addr::LOCALHOST, address.port()))?;
                for stream in [&outer, &inner] {
                    stream.set_nodelay(true)?;
                }
                let ends = [(outer.try_clone()?, inner.try_clone()?), (inner, outer)];
                for (from, to) in ends {
                    std::thread::Builder::new().name("proxy".into()).spawn(move || copy(from, to))?;
                }
            }
            Ok(())
        });
    };
    std::thread::Builder::new().name("proxy-accepts".into()).spawn(serve)?;
    Ok(())
}

fn copy(mut from: TcpStream, mut to: TcpStream) {
    let mut buffer = vec![0; 16 << 10];
    while let Ok(bytes @ 1..) = from.read(&mut buffer) {
        if to.write_all(&buffer[..bytes]).is_err() {
            break;
        }
    }
    // Whoever is gone needs no end.
    let _ = to.shutdown(Shutdown::Write);
}

/// `punctual relay` on b, once it listens. It is this program.
fn relay_of(
    pair: &Pair,
    conditions: &Conditions,
    scratch: &Scratch,
    address: SocketAddr,
    class: &str,
) -> anyhow::Result<Process> {
    let config = scratch.path().join(format!("{}.toml", address.port()));
    let link = "flows_max = 128\nlisteners_max = 2\npipeline_depth = 4\nreaction = \"20us\"\n";
    let mut options = conditions.options();
    options.link = link.into();
    options.processor = "release_latency = \"50us\"\n".into();
    std::fs::write(&config, pair.far_text(&options)).context("the relay's configuration")?;
    let program = std::env::current_exe().context("this program")?;
    let to = SocketAddr::from((Ipv4Addr::LOCALHOST, address.port()));
    let line = format!("relay --json --listen {address} --to {to} --class {class}");
    let mut child = pair.far_place()?.within(|| {
        let mut command = Command::new(program);
        command.args(line.split(' ')).arg("--config").arg(&config);
        Ok(command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn()?)
    })?;
    let mut errors = BufReader::new(child.stderr.take().context("a pipe")?);
    let process = Process(child);
    let mut line = String::new();
    while !line.starts_with("relay: listening on") {
        let before = std::mem::take(&mut line);
        if errors.read_line(&mut line)? == 0 {
            bail!("the relay ended before it listened: {}", before.trim());
        }
    }
    // What it writes later must not fill the pipe.
    std::thread::Builder::new().name("relay-log".into()).spawn(move || {
        let _ = std::io::copy(&mut errors, &mut std::io::sink());
    })?;
    Ok(process)
}
