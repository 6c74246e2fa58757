//! `punctual send`: standard input through a guaranteed channel.

use std::io::{self, Write};
use std::time::{Duration, Instant};

use clap::Args;
use punctual::{Address, Channel, Grant};
use serde::Serialize;

use crate::host::{Host, Traffic, not_opened};
use crate::output::{Outcome, Output};
use crate::split::{Messages, Split};
use crate::values;

/// How often progress is shown.
const PROGRESS: Duration = Duration::from_millis(500);
/// How long the last messages may take.
const FLUSH: Duration = Duration::from_secs(60);

/// Send standard input through a guaranteed channel, message by message, at most at the contract's rate.
#[derive(Args)]
#[command(after_help = "Example: ffmpeg -re -i film.mp4 -c:v copy -bsf:v h264_mp4toannexb -f h264 - \\\n  \
                        | punctual send cam@hostb --rate 25/s --size 110KB --deadline 80ms")]
pub struct Send {
    /// The listener and its host, as cam@hostb.
    #[arg(value_parser = values::address)]
    peer: Address,
    #[command(flatten)]
    traffic: Traffic,
    /// Where messages end: auto, h264 (a frame each), lines, or blocks as 1400B.
    #[arg(long, default_value = "auto")]
    split: Split,
    #[command(flatten)]
    host: Host,
}

#[derive(Serialize)]
struct Sent {
    messages: u64,
    bytes: u64,
    /// In seconds.
    took_s: f64,
    grant: Option<Grant>,
}

impl Send {
    /// Opens the channel and sends until the input ends.
    ///
    /// # Errors
    /// Where it is refused, a message is too long, or the channel ends.
    pub fn run(self, output: Output) -> anyhow::Result<Outcome> {
        let contract = self.traffic.contract()?;
        let channel = self.host.connect()?.open(&self.peer.to_string(), contract);
        let mut channel = channel.map_err(|error| anyhow::anyhow!(not_opened(&error)))?;
        let started = Instant::now();
        let mut sent = Sent { messages: 0, bytes: 0, took_s: 0.0, grant: channel.grant().cloned() };
        let mut messages = Messages::new(io::stdin().lock(), self.split, contract.message_bytes_max as usize);
        let mut shown = started;
        while let Some(message) = messages.next()? {
            channel.send(&message)?;
            sent.messages += 1;
            sent.bytes += message.len() as u64;
            sent.took_s = started.elapsed().as_secs_f64();
            if output.is_live() && shown.elapsed() >= PROGRESS {
                shown = Instant::now();
                progress(&self.peer, &sent, &channel);
            }
        }
        anyhow::ensure!(
            channel.flush(FLUSH)?,
            "the last messages were not sent within {} s",
            FLUSH.as_secs()
        );
        sent.took_s = started.elapsed().as_secs_f64();
        if output.is_live() {
            progress(&self.peer, &sent, &channel);
            eprintln!();
        } else if !output.json {
            eprintln!("{}", summary(&self.peer, &sent));
        }
        channel.close()?;
        if output.json {
            output.print(&sent, |_| String::new())?;
        }
        Ok(Outcome::Done)
    }
}

fn progress(peer: &Address, sent: &Sent, channel: &Channel) {
    // A terminal that cannot be written is no reason to stop sending.
    let _ = write!(io::stderr(), "\r\x1b[K{}, {} queued", summary(peer, sent), channel.outstanding());
}

fn summary(peer: &Address, sent: &Sent) -> String {
    let rate = sent.messages as f64 / sent.took_s.max(1e-9);
    let promised =
        sent.grant.as_ref().map_or_else(String::new, |grant| format!(", within {}", grant.deadline));
    let megabytes = sent.bytes as f64 / 1e6;
    format!("{peer}: {} messages, {megabytes:.1} MB, {rate:.1}/s{promised}", sent.messages)
}
