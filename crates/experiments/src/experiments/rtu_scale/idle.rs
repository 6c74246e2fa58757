//! TCP connections that are open and idle: their ends at a's engine. The kernel of b has the other ends, in a process of its own,
//! because a process may have only so many descriptors.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, ChildStdin, Stdio};
use std::time::Duration;

use anyhow::{Context, ensure};
use punctual::tcp::TcpStream;
use punctual_host::tcp_rings_bytes;
use punctual_os::{descriptors, usage};

use super::super::worker::{self, Work};
use crate::testbed::TcpWorld;

/// Send buffer of an idle connection, and receive buffer.
const BUFFER_BYTES: usize = 4_096;
/// Packets of the link, in bytes: as it is without configuration.
const PACKET_BYTES: u32 = 1_472;
/// What a connection may take besides its buffers.
const OTHERWISE_BYTES: u64 = 64 << 10;
/// Descriptors of an accepted connection: a bell for bytes, and one for room.
const DESCRIPTORS_EACH: u64 = 2;
/// Descriptors of this process for everything else.
const DESCRIPTORS_ELSE: u64 = 1_000;
const ACCEPTED_WITHIN: Duration = Duration::from_secs(10);
/// How often progress is said.
const PROGRESS_EACH: usize = 1_000;

/// Idle connections. Fields drop in this order: the ends of the kernel last.
pub struct Idle {
    streams: Vec<TcpStream>,
    /// Resident memory of this process that each connection took, in bytes.
    pub each_bytes: f64,
    _peers: Peers,
}

/// The process that has the kernel's ends. It ends when its input does.
struct Peers {
    child: Child,
    input: Option<ChildStdin>,
}

impl Drop for Peers {
    fn drop(&mut self) {
        drop(self.input.take());
        // It has nothing else to do than to end.
        let _ = self.child.wait();
    }
}

/// How many of `wanted` connections this process has descriptors and this machine has memory for, of which it takes half at most.
///
/// # Errors
/// If the kernel does not say how much memory is there, or there are no such rings.
pub fn possible(wanted: usize) -> anyhow::Result<usize> {
    let by_descriptors = descriptors::raise_limit().saturating_sub(DESCRIPTORS_ELSE) / DESCRIPTORS_EACH;
    let by_memory = usage::available_bytes()? / 2 / (Idle::buffer_bytes_each()? + OTHERWISE_BYTES);
    Ok(wanted.min(usize::try_from(by_descriptors.min(by_memory)).unwrap_or(usize::MAX)))
}

impl Idle {
    /// Opens `count` connections of best effort from b's kernel to a's engine.
    ///
    /// # Errors
    /// If one is refused, or does not come in time.
    pub fn open(world: &TcpWorld, count: usize, mut progress: impl FnMut(usize)) -> anyhow::Result<Self> {
        let (listener, address) = world.listen_at_near(BUFFER_BYTES)?;
        let work = Work::Connect { to: address, count: u32::try_from(count)? };
        let mut child = world.pair().far_place()?.within(|| {
            let mut command = worker::command(&work, &[])?;
            command
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .context("this program cannot be started again")
        })?;
        let (input, output) = (child.stdin.take(), child.stdout.take().context("no output")?);
        let peers = Peers { child, input };
        let before = usage::resident_bytes()?;
        let mut streams = Vec::with_capacity(count);
        while streams.len() < count {
            let accepted = listener.accept_timeout(ACCEPTED_WITHIN)?;
            streams
                .push(accepted.with_context(|| format!("idle connection {} has not come", streams.len()))?);
            if streams.len() % PROGRESS_EACH == 0 {
                progress(streams.len());
            }
        }
        let each_bytes = usage::resident_bytes()?.saturating_sub(before) as f64 / count.max(1) as f64;
        let mut said = String::new();
        BufReader::new(output).read_line(&mut said)?;
        ensure!(said.trim() == CONNECTED, "the process with the kernel's ends has failed");
        Ok(Self { streams, each_bytes, _peers: peers })
    }

    /// Memory of the buffers of each connection, in bytes: what was received, what was sent and the copy of that, and its rings.
    ///
    /// # Errors
    /// If there are no such rings.
    pub fn buffer_bytes_each() -> anyhow::Result<u64> {
        Ok(3 * BUFFER_BYTES as u64 + tcp_rings_bytes(PACKET_BYTES)?)
    }

    /// How many of them are open still.
    ///
    /// # Errors
    /// If the engine has ended.
    pub fn open_count(&self) -> anyhow::Result<usize> {
        let mut open = 0;
        for stream in &self.streams {
            open += usize::from(stream.status()?.is_some_and(|status| status.ended.is_none()));
        }
        Ok(open)
    }
}

/// What the process says when it has all connections.
const CONNECTED: &str = "connected";

/// The work of the process with the kernel's ends: `count` connections to `to`, until its input ends.
///
/// # Errors
/// If one is refused.
pub fn connect(to: SocketAddr, count: u32) -> anyhow::Result<()> {
    descriptors::raise_limit();
    let mut ends = Vec::with_capacity(count as usize);
    for number in 0..count {
        let end = std::net::TcpStream::connect(to);
        ends.push(end.with_context(|| format!("idle connection {number} to {to}"))?);
    }
    println!("{CONNECTED}");
    std::io::copy(&mut std::io::stdin(), &mut std::io::sink())?;
    Ok(())
}
