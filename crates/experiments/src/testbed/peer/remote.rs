//! The near side: the other machine as the far host of a pair.

use std::net::{Shutdown, SocketAddr, TcpStream, ToSocketAddrs};
use std::time::Duration;

use anyhow::{Context, bail};
use punctual::BitRate;

use super::PORT_DEFAULT;
use super::words::{Hello, Lines, end_at};
use crate::testbed::configuration::End;
use crate::testbed::{Answer, Order};

/// How long the peer may take to send its version, and to execute an order (starting an engine is the
/// longest).
const ANSWERS_WITHIN: Duration = Duration::from_secs(30);

/// A machine that executes orders.
pub struct Remote {
    lines: Lines,
    address: String,
    ends: [End; 2],
}

impl Remote {
    /// Connects to HOST or HOST:PORT.
    ///
    /// # Errors
    /// If the address does not answer, or with another version.
    pub fn connect(address: &str) -> anyhow::Result<Self> {
        let target = resolve(address)?;
        let stream = TcpStream::connect_timeout(&target, ANSWERS_WITHIN).with_context(|| {
            format!("no answer from {target}: run `punctual bench --serve` on the other machine")
        })?;
        stream.set_read_timeout(Some(ANSWERS_WITHIN))?;
        let own = end_at(stream.local_addr()?.ip())?;
        let mut lines = Lines::new(stream)?;
        let ours = Hello::ours(own.clone());
        lines.send_words(&ours)?;
        let theirs: Hello = lines
            .receive_words()
            .with_context(|| silent(address))?
            .with_context(|| format!("{address} hung up at once"))?;
        ours.check(&theirs)?;
        Ok(Self { lines, address: address.into(), ends: [own, theirs.end] })
    }

    /// The two ends of the link: ours, theirs.
    ///
    /// # Errors
    /// If both are one address: that is no link.
    pub fn ends(&self) -> anyhow::Result<[End; 2]> {
        if self.ends[0].address == self.ends[1].address {
            bail!("{} is this very machine: leave --peer out to run over namespaces", self.address);
        }
        Ok(self.ends.clone())
    }

    /// The rate of the interface at our end.
    ///
    /// # Errors
    /// If it does not report it.
    pub fn rate(&self, own: &End) -> anyhow::Result<BitRate> {
        let path = format!("/sys/class/net/{}/speed", own.device);
        let speed = std::fs::read_to_string(&path).ok().and_then(|text| text.trim().parse::<u64>().ok());
        match speed {
            Some(mbit_s) if mbit_s > 0 => Ok(BitRate(mbit_s * 1_000_000)),
            _ => bail!("{} does not report its rate: give --rate (for example 1Gbit/s)", own.device),
        }
    }

    /// Sends it an order.
    ///
    /// # Errors
    /// If it is gone. A failed order is an answer.
    pub fn order(&mut self, order: &Order) -> anyhow::Result<Answer> {
        self.lines.send_words(order)?;
        let answer = self.lines.receive_words().with_context(|| silent(&self.address))?;
        answer.with_context(|| format!("{} hung up", self.address))
    }
}

impl Drop for Remote {
    /// Waits until the peer has ended all roles that were started there: the next connection needs its ports.
    fn drop(&mut self) {
        if self.lines.stream().shutdown(Shutdown::Write).is_ok() {
            while let Ok(Some(Answer::Done)) = self.lines.receive_words() {}
        }
    }
}

fn silent(address: &str) -> String {
    format!(
        "{address} does not answer within {} s: restart `punctual bench --serve` there",
        ANSWERS_WITHIN.as_secs()
    )
}

fn resolve(address: &str) -> anyhow::Result<SocketAddr> {
    let with_port =
        if address.contains(':') { address.to_owned() } else { format!("{address}:{PORT_DEFAULT}") };
    let mut found = with_port.to_socket_addrs().with_context(|| format!("--peer {address}: no such host"))?;
    found.find(SocketAddr::is_ipv4).with_context(|| format!("--peer {address}: it has no IPv4 address"))
}
