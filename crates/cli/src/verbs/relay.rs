//! `punctual relay`: TCP connections that Punctual processes, for programs that only know the kernel's sockets.

mod refusals;
mod tally;
mod wire;

use std::net::{SocketAddr, TcpListener as KernelListener, TcpStream as KernelStream};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::Context;
use clap::{Args, ValueEnum};
use punctual::tcp::{Qos, TcpError, TcpStream};
use punctual::{BitRate, Endsystem, Error, Nanos, config};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::sockopt::set_socket_keepalive;

use crate::host::Host;
use crate::output::{Outcome, Output, Usage, print_note};
use crate::relay::{carry, reset_program};
use crate::values;

use refusals::Refusals;
use tally::{Ended, Tally, ended, lasted};
use wire::{WireEnd, WireListener, check_reserved, refusal_line};

/// How long to wait for a connection before the relay looks whether its daemon is still there.
const ACCEPT_WAIT: Duration = Duration::from_millis(200);
/// How long the relay goes on connecting for a program that has closed its direction: without having sent anything, and with it.
const CLOSED_WAIT: Duration = Duration::from_secs(10);
const SENT_WAIT: Duration = Duration::from_secs(60);
/// How long a program may take to accept a connection from the network.
const PROGRAM_WAIT: Duration = Duration::from_secs(30);
/// Pause after a listener has failed, for example because file descriptors have run out.
const RETRY: Duration = Duration::from_millis(100);

/// Give programs that use ordinary sockets TCP connections that Punctual processes. The relay forwards bytes between such a
/// connection to a peer on the network, and a kernel connection to the program.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  punctual relay --listen 10.0.0.1:6379 --to 127.0.0.1:6379 --class low-delay --interval 10ms --units 8\n  \
                  punctual relay --from 127.0.0.1:7000 --connect 10.0.0.2:80 --class guaranteed --rate 20Mbit/s --period 5ms\n  \
                  punctual relay --from 127.0.0.1:7000 --connect 80@b --reserve --class guaranteed --rate 20Mbit/s --period 5ms\n\
                  Without --reserve, the host needs a link whose flows_max is above 0; --listen also needs listeners_max above 0. \
                  Users other than root need an entry in [[daemon.tcp]] of the daemon's configuration. With --config, no daemon may \
                  use the same device. The kernel's firewall and tcpdump do not see the packets on the network (see 'punctual \
                  capture'). Each connection gets the class and the budget for itself. If one side closes or resets its connection, \
                  the relay does the same to the other side. For each connection that has ended, the relay prints a line. \
                  A program that closes its direction before the peer has answered may have given up: the relay goes on connecting for it \
                  for 10 s, or for 60 s if it has sent bytes.\n\
                  Exit code 0: --count connections have ended. 1: an address or a link was refused, the engine did not start, or the daemon has ended. Start the \
                  relay again then, for example by Restart=on-failure of its systemd unit."
)]
pub struct Relay {
    #[command(flatten)]
    host: Host,
    /// Run an engine in this process with this configuration file, instead of using the daemon.
    #[arg(long, value_name = "FILE", conflicts_with = "socket")]
    config: Option<PathBuf>,
    /// Accept connections from the network at this address and port of this host; with --reserve, at this port.
    #[arg(long, value_name = "ADDRESS:PORT|PORT", requires = "to", conflicts_with_all = ["from", "connect"])]
    listen: Option<String>,
    /// Address of the program that gets the connections from the network.
    #[arg(long, value_name = "ADDRESS:PORT", requires = "listen")]
    to: Option<SocketAddr>,
    /// Accept connections from programs of this host at this address and port.
    #[arg(long, value_name = "ADDRESS:PORT", requires = "connect")]
    from: Option<SocketAddr>,
    /// Peer on the network that gets the programs' connections; with --reserve, a port and the name of a host that runs Punctual.
    #[arg(long, value_name = "ADDRESS:PORT|PORT@HOST", requires = "from")]
    connect: Option<String>,
    /// Also reserve the path between the hosts: each connection gets a channel in each direction. Both hosts must run Punctual.
    /// Give the same class at both ends.
    #[arg(long)]
    reserve: bool,
    /// With --reserve: each packet must arrive within this time [default: the period or the interval].
    #[arg(long, value_name = "TIME", requires = "reserve", value_parser = values::span)]
    deadline: Option<Nanos>,
    /// How this host schedules each connection.
    #[arg(long, value_enum, default_value_t = Class::BestEffort)]
    class: Class,
    /// With --class low-delay: the interval that --units counts in.
    #[arg(long, value_name = "TIME", value_parser = values::span)]
    interval: Option<Nanos>,
    /// With --class low-delay: the budget. It is the largest number of TCP segments in any interval, in each direction.
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..))]
    units: Option<u32>,
    /// With --class low-delay: place among the low-delay connections and handlers of this host. A lower number goes first; without it, a
    /// connection goes behind all with one. Only the run policy "rmdp" accepts it.
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u8).range(0..=63))]
    priority: Option<u8>,
    /// With --class guaranteed: rate of the data that each connection gets in any case (20Mbit/s). It is no limit: the budget is
    /// counted in whole segments, so a source that is faster gets some more (48Mbit/s of 40Mbit/s in periods of 10 ms).
    #[arg(long, value_name = "RATE", value_parser = values::bit_rate)]
    rate: Option<BitRate>,
    /// With --class guaranteed: the period in which each connection gets its share of the processor.
    #[arg(long, value_name = "TIME", value_parser = values::span)]
    period: Option<Nanos>,
    /// Idle time after which the relay asks on the network whether the peer is still there, at least 100ms.
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = values::span)]
    keep_alive: Nanos,
    /// A connection ends if its peer leaves bytes, or the question of --keep-alive, unanswered for this time.
    #[arg(long, value_name = "TIME", default_value = "15min", value_parser = values::span)]
    user_timeout: Nanos,
    /// At most this many connections at a time; further ones wait. A connection that admission refuses is reset. If a quota of the
    /// user is full, a connection of a program is reset, and one from the network waits until there is room. Each
    /// connection takes about 1.2 MiB of its user's buffers (buffers_per_user_max) at the daemon: 64MiB are enough for 55. With --listen,
    /// the relay takes about 280 KiB more for each that it may have, from the beginning.
    #[arg(long, value_name = "COUNT", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=1_024))]
    connections_max: u32,
    /// Stop after this many connections have ended.
    #[arg(long, value_parser = values::count)]
    count: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Class {
    LowDelay,
    Guaranteed,
    BestEffort,
}

/// Which end of the relay is on the network.
enum Direction {
    /// Connections from the network go to the program at `to`.
    In { listen: WireEnd, to: SocketAddr },
    /// Connections of programs go to `peer` on the network.
    Out { from: SocketAddr, peer: WireEnd },
}

impl Relay {
    pub fn run(self, output: Output) -> anyhow::Result<Outcome> {
        let (qos, direction) = (self.qos()?, self.direction()?);
        let endsystem = match &self.config {
            Some(file) => Endsystem::embedded(&config::load(file)?)?,
            None => self.host.connect()?,
        };
        let tally = Tally::new(self.connections_max, self.count, output);
        match direction {
            Direction::In { listen, to } => self.serve_wire(&endsystem, qos, (&listen, to), &tally)?,
            Direction::Out { from, peer } => self.serve_programs(&endsystem, qos, (from, &peer), &tally)?,
        }
        Ok(Outcome::Done)
    }

    fn direction(&self) -> anyhow::Result<Direction> {
        match (self.listen.as_ref().zip(self.to), self.from.zip(self.connect.as_ref())) {
            (Some((listen, to)), _) => {
                Ok(Direction::In { listen: self.wire_end("--listen", listen)?, to: with_port("--to", to)? })
            }
            (_, Some((from, peer))) => Ok(Direction::Out { from, peer: self.wire_end("--connect", peer)? }),
            _ => Err(Usage("give --listen and --to, or --from and --connect".into()).into()),
        }
    }

    fn wire_end(&self, option: &str, text: &str) -> anyhow::Result<WireEnd> {
        if self.reserve {
            check_reserved(option, text)?;
            return Ok(WireEnd::Reserved(text.into(), self.deadline));
        }
        let address: SocketAddr = text.parse().map_err(|_| {
            Usage(format!(
                "{option} {text}: give an address and a port, like 10.0.0.1:80; a port or a host's name needs --reserve"
            ))
        })?;
        Ok(WireEnd::Address(with_port(option, address)?))
    }

    /// Each class takes its own options, and no others.
    fn qos(&self) -> Result<Qos, Usage> {
        if self.priority.is_some() && self.class != Class::LowDelay {
            return Err(Usage("--priority is for --class low-delay".into()));
        }
        let priority = self.priority;
        let needs = match (self.class, (self.interval, self.units), (self.rate, self.period)) {
            (Class::LowDelay, (Some(interval), Some(units)), (None, None)) => {
                return Ok(Qos::LowDelay { interval, units, priority });
            }
            (Class::Guaranteed, (None, None), (Some(rate), Some(period))) => {
                return Ok(Qos::Guaranteed { rate, period });
            }
            (Class::BestEffort, (None, None), (None, None)) => return Ok(Qos::BestEffort),
            (Class::LowDelay, ..) => "--class low-delay needs --interval and --units, and no other budget",
            (Class::Guaranteed, ..) => "--class guaranteed needs --rate and --period, and no other budget",
            (Class::BestEffort, ..) => {
                "--class best-effort has no budget: leave --interval, --units, --rate and --period out"
            }
        };
        Err(Usage(needs.into()))
    }

    /// Forwards connections from the network to a program.
    fn serve_wire(
        &self,
        endsystem: &Endsystem,
        qos: Qos,
        (listen, to): (&WireEnd, SocketAddr),
        tally: &Tally,
    ) -> anyhow::Result<()> {
        let listener = WireListener::bind(endsystem, listen, qos, self.connections_max)?;
        print_note(&format!("relay: listening on {listen}"));
        let mut refusals = Refusals::default();
        std::thread::scope(|scope| -> anyhow::Result<()> {
            while tally.admit() {
                let accepted = listener.accept_timeout(ACCEPT_WAIT);
                if let Err(TcpError::Peer { peer, why }) = &accepted {
                    // The listener is well, and the next connection may wait behind this one.
                    tally.end(Ended::without_bytes(Some(*peer), to, why.to_string()));
                    continue;
                }
                if let Some(refusal) = refusals.news(accepted.as_ref().err()) {
                    print_note(&format!("relay: {refusal}"));
                }
                match accepted {
                    Ok(Some(wire)) => {
                        scope.spawn(move || tally.end(self.to_program(endsystem, wire, to)));
                    }
                    Ok(None) => tally.withdraw(),
                    Err(error) if is_final(&error) => return Err(error.into()),
                    Err(_) => {
                        tally.withdraw();
                        std::thread::sleep(RETRY);
                    }
                }
            }
            Ok(())
        })
    }

    /// Forwards connections of programs to the peer on the network.
    fn serve_programs(
        &self,
        endsystem: &Endsystem,
        qos: Qos,
        (from, peer): (SocketAddr, &WireEnd),
        tally: &Tally,
    ) -> anyhow::Result<()> {
        let listener = KernelListener::bind(from).with_context(|| format!("listening on {from}"))?;
        listener.set_nonblocking(true)?;
        peer.check(endsystem)?;
        // Port 0 lets the kernel choose.
        print_note(&format!("relay: listening on {}", listener.local_addr()?));
        std::thread::scope(|scope| -> anyhow::Result<()> {
            while tally.admit() {
                let accepted = accept(&listener)?;
                if let Some(error) = endsystem.ended() {
                    accepted.iter().for_each(|(program, _)| reset_program(program));
                    return Err(error.into());
                }
                match accepted {
                    Some((program, address)) => {
                        scope.spawn(move || {
                            tally.end(self.to_peer(endsystem, qos, (&program, address), peer))
                        });
                    }
                    None => tally.withdraw(),
                }
            }
            Ok(())
        })
    }

    fn to_program(&self, endsystem: &Endsystem, wire: TcpStream, to: SocketAddr) -> Ended {
        let (begun, peer) = (Instant::now(), Some(wire.peer_addr()));
        match KernelStream::connect_timeout(&to, PROGRAM_WAIT) {
            Ok(program) => {
                self.prepare(&wire, &program);
                ended(peer, to, begun, carry(wire, &program, endsystem))
            }
            Err(error) => {
                // If this fails, the peer is gone already.
                let _ = wire.abort();
                Ended {
                    lasted_ns: lasted(begun),
                    ..Ended::without_bytes(peer, to, io_error(&format!("{to}"), &error))
                }
            }
        }
    }

    fn to_peer(
        &self,
        endsystem: &Endsystem,
        qos: Qos,
        (program, address): (&KernelStream, SocketAddr),
        peer: &WireEnd,
    ) -> Ended {
        let begun = Instant::now();
        match peer.connect(endsystem, qos, || waits(program, begun.elapsed())) {
            Ok(wire) => {
                self.prepare(&wire, program);
                ended(Some(wire.peer_addr()), address, begun, carry(wire, program, endsystem))
            }
            Err(error) => {
                reset_program(program);
                Ended {
                    lasted_ns: lasted(begun),
                    ..Ended::without_bytes(None, address, refusal_line(&error, qos))
                }
            }
        }
    }

    /// Sets both sides up. Nagle's algorithm is off: the programs' own kernels have decided already how long bytes wait, and a second wait
    /// would hold back a part that the first has sent (a body written apart from its head, for a round trip). A peer or a program that is
    /// gone without a word is asked for.
    fn prepare(&self, wire: &TcpStream, program: &KernelStream) {
        let time = |time: Nanos| Duration::from_nanos(time.0);
        // If one of these fails, its connection is over, and forwarding reports that.
        let _ = wire.set_nodelay(true);
        let _ = wire.set_keep_alive(Some(time(self.keep_alive)));
        let _ = wire.set_user_timeout(time(self.user_timeout));
        let _ = program.set_nodelay(true);
        let _ = set_socket_keepalive(program, true);
    }
}

/// An address with a port: no program and no peer is at port 0.
fn with_port(option: &str, address: SocketAddr) -> Result<SocketAddr, Usage> {
    match address.port() {
        0 => Err(Usage(format!("{option} {address}: give a port of 1 to 65535"))),
        _ => Ok(address),
    }
}

/// A connection of a program; `None` if none came within [`ACCEPT_WAIT`].
fn accept(listener: &KernelListener) -> std::io::Result<Option<(KernelStream, SocketAddr)>> {
    let mut wait = [PollFd::new(listener, PollFlags::IN)];
    let timeout = Timespec::try_from(ACCEPT_WAIT).map_err(std::io::Error::other)?;
    match poll(&mut wait, Some(&timeout)) {
        Ok(_) | Err(Errno::INTR) => {}
        Err(error) => return Err(error.into()),
    }
    match listener.accept() {
        Ok(accepted) => Ok(Some(accepted)),
        Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => Ok(None),
        Err(error) => Err(error),
    }
}

/// Whether a program still waits for its connection, `waited` after it has asked for it. One that has reset its own does not. One that
/// has closed its direction may wait for bytes all the same, above all if it has sent some; but few do for so long.
fn waits(program: &KernelStream, waited: Duration) -> bool {
    let mut wait = [PollFd::new(program, PollFlags::RDHUP)];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    let seen = match poll(&mut wait, Some(&now)) {
        Ok(_) => wait[0].revents(),
        Err(_) => PollFlags::empty(),
    };
    if seen.intersects(PollFlags::HUP | PollFlags::ERR) {
        return false;
    }
    if !seen.contains(PollFlags::RDHUP) {
        return true;
    }
    // It has closed its direction, so this does not wait.
    let has_sent = program.peek(&mut [0]).is_ok_and(|bytes| bytes > 0);
    waited < if has_sent { SENT_WAIT } else { CLOSED_WAIT }
}

/// Whether no listener and no connection of this endsystem will work again.
const fn is_final(error: &TcpError) -> bool {
    matches!(error, TcpError::Daemon(Error::Disconnected) | TcpError::Gone)
}

fn io_error(what: &str, error: &std::io::Error) -> String {
    format!("{what}: {error}")
}
