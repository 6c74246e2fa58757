//! The first line of both sides, and the encoding of all lines.

use std::io::{BufRead, BufReader, Write};
use std::net::{IpAddr, Ipv4Addr, TcpStream};

use anyhow::{Context, bail};
use punctual_os::command::run;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::testbed::configuration::End;

/// Raised with every change of the orders.
const PROTOCOL: u32 = 1;
/// Longest line: a configuration of a host is a few kilobytes.
const LINE_BYTES_MAX: u64 = 1 << 20;

/// The first line of each side.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// Version of the program.
    pub punctual: String,
    /// Version of the orders.
    pub protocol: u32,
    /// End of the link at that host.
    pub end: End,
}

impl Hello {
    /// Ours, on a connection that ends at `address`.
    pub fn ours(end: End) -> Self {
        Self { punctual: env!("CARGO_PKG_VERSION").into(), protocol: PROTOCOL, end }
    }

    /// Checks whether the two may work together.
    ///
    /// # Errors
    /// If versions differ; the message names them.
    pub fn check(&self, theirs: &Self) -> anyhow::Result<()> {
        if (&self.punctual, self.protocol) != (&theirs.punctual, theirs.protocol) {
            bail!(
                "the other side is punctual {} (bench protocol {}), this is {} ({}): install the same version on both",
                theirs.punctual,
                theirs.protocol,
                self.punctual,
                self.protocol
            );
        }
        Ok(())
    }
}

/// A connection of lines.
pub struct Lines {
    reader: BufReader<TcpStream>,
    line: String,
}

impl Lines {
    /// Makes it over a stream.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn new(stream: TcpStream) -> anyhow::Result<Self> {
        stream.set_nodelay(true)?;
        Ok(Self { reader: BufReader::new(stream), line: String::new() })
    }

    /// The stream.
    pub fn stream(&self) -> &TcpStream {
        self.reader.get_ref()
    }

    /// Sends a value.
    ///
    /// # Errors
    /// If the connection is gone.
    pub fn send_words(&mut self, words: &impl Serialize) -> anyhow::Result<()> {
        let mut line = serde_json::to_string(words)?;
        line.push('\n');
        self.reader.get_mut().write_all(line.as_bytes()).context("the other side has ended")
    }

    /// Receives a value; `None` at the end.
    ///
    /// # Errors
    /// If the connection breaks or the line cannot be parsed.
    pub fn receive_words<T: DeserializeOwned>(&mut self) -> anyhow::Result<Option<T>> {
        self.line.clear();
        let mut limited = std::io::Read::take(&mut self.reader, LINE_BYTES_MAX);
        if limited.read_line(&mut self.line)? == 0 {
            return Ok(None);
        }
        let parsed = serde_json::from_str(&self.line);
        parsed
            .map(Some)
            .context("the other side does not use the protocol of `punctual bench --serve` of this version")
    }
}

/// The end of a link at one of this machine's addresses.
///
/// # Errors
/// If no interface has it.
pub fn end_at(address: IpAddr) -> anyhow::Result<End> {
    let IpAddr::V4(address) = address.to_canonical() else {
        bail!("{address}: experiments run over IPv4: give the peer's IPv4 address")
    };
    Ok(End { address, device: device_of(address)? })
}

fn device_of(address: Ipv4Addr) -> anyhow::Result<String> {
    // "2: eth0    inet 10.0.0.1/24 brd ..."
    let shown = run(&format!("ip -o -4 address show to {address}"))?;
    let device = shown.split_whitespace().nth(1);
    let device = device.with_context(|| format!("no network interface of this machine has {address}"))?;
    Ok(device.split('@').next().unwrap_or(device).into())
}
