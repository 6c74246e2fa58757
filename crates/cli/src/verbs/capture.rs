//! `punctual capture`: a file of the packets that this host's daemon sends and receives.

use std::fs::File;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::Context;
use clap::Args;
use punctual::capture::{Capture as Packets, Kind, Link, Packet, Wish};
use punctual::{ChannelId, Endsystem, Nanos, counted, now};
use punctual_os::interrupt;
use serde::Serialize;
use thiserror::Error;

use crate::host::Host;
use crate::output::{Outcome, Output, Usage, begin_stream, print_note};
use crate::pcap::{Pcap, udp_headers};
use crate::values;

/// How often to look whether to end.
const CHECK: Duration = Duration::from_millis(100);

/// Write the packets that this host's daemon sends and receives to a file that tcpdump and tshark read.
#[derive(Args)]
#[command(after_help = "Examples:\n  punctual capture -w wire.pcap --duration 10s\n  \
                  punctual capture -w - --port 6379 | tcpdump -n -r -\n\
                  tcpdump alone does not see packets that the kernel does not process, for example packets on links over AF_XDP. \
                  Each packet in the file begins with its IP header. Packets of channels and of signalling (messages between hosts that \
                  open and close channels) get IP and UDP headers with the link's addresses. The capture does not delay the protocol: \
                  if its buffer (--packets-waiting) is full, packets are missing in the file, and counted as lost. Only one capture \
                  runs at a time. Root, the \
                  daemon's user and the users in capture_users of [daemon] may capture.\n\
                  Exit code 0: the limit was reached, or Ctrl-C. 1: refused, the file cannot be written, or the daemon has ended.")]
pub struct Capture {
    #[command(flatten)]
    host: Host,
    /// Write to this file; "-" is standard output.
    #[arg(short, long, value_name = "FILE")]
    write: PathBuf,
    /// Capture packets of this link only.
    #[arg(long, value_name = "NAME")]
    link: Option<String>,
    /// Capture segments of this TCP connection only: its id in 'punctual connections'.
    #[arg(long, value_name = "ID")]
    connection: Option<u64>,
    /// Capture only TCP segments that are from or to this port.
    #[arg(long)]
    port: Option<u16>,
    /// End after this many packets.
    #[arg(long, value_parser = values::count)]
    count: Option<u64>,
    /// End after this time.
    #[arg(long, value_name = "TIME", value_parser = values::span)]
    duration: Option<Nanos>,
    /// Write at most this many bytes of each packet.
    #[arg(long, value_name = "BYTES", default_value = "2048B", value_parser = values::bytes)]
    packet_bytes: u32,
    /// Size of the buffer: how many packets may wait until they are written.
    #[arg(long, value_name = "COUNT", default_value_t = 4_096)]
    packets_waiting: u32,
}

/// What was captured, as it is printed.
#[derive(Serialize)]
struct Captured {
    packets: u64,
    /// Packets that found no room, before the last one that was written.
    lost: u64,
}

impl Captured {
    fn text(&self) -> String {
        format!("captured {} packets, lost {}", self.packets, self.lost)
    }
}

impl Capture {
    pub fn run(self, output: Output) -> anyhow::Result<Outcome> {
        let is_piped = self.write.as_os_str() == "-";
        if is_piped && output.json {
            return Err(Usage("-w - and --json both need standard output: give a file".into()).into());
        }
        let endsystem = self.host.connect()?;
        let wish = Wish {
            link: self.link.clone(),
            ends: self.connection.map(|id| ends_of(&endsystem, ChannelId(id))).transpose()?,
            port: self.port,
            packet_bytes: self.packet_bytes,
            packets: self.packets_waiting,
        };
        interrupt::install()?;
        // Before the file is made: a capture that is refused leaves an older file as it is.
        let mut packets = endsystem.capture(wish)?;
        let out = if is_piped {
            begin_stream();
            // Without the buffer of the standard library: what is written is in the file.
            File::from(io::stdout().as_fd().try_clone_to_owned()?)
        } else {
            let file = self.write.display();
            File::create(&self.write).with_context(|| format!("creating {file}"))?
        };
        print_note("capture: begun");
        let captured = match self.copy(&mut packets, out) {
            // The reader of a pipe has seen enough.
            Err(error) if is_closed_pipe(&error) => return Ok(Outcome::Done),
            other => other?,
        };
        if is_piped {
            print_note(&format!("capture: {}", captured.text()));
        } else {
            output.print(&captured, Captured::text)?;
        }
        Ok(Outcome::Done)
    }

    /// Copies packets to a file until a limit is reached.
    fn copy(&self, packets: &mut Packets, out: impl Write) -> anyhow::Result<Captured> {
        let mut file =
            Pcap::new(out, self.packet_bytes).map_err(|error| NotWritten::new(&self.write, 0, error))?;
        let copied = self.copy_to(packets, &mut file);
        // What has come so far is in the file, too, if the daemon has ended.
        let flushed = file.flush();
        copied.and_then(|captured| Ok(flushed.map(|()| captured)?)).map_err(|error| match error.downcast() {
            Ok(error) => NotWritten::new(&self.write, file.written(), error).into(),
            Err(other) => other,
        })
    }

    fn copy_to(&self, packets: &mut Packets, file: &mut Pcap<impl Write>) -> anyhow::Result<Captured> {
        let until = self.duration.and_then(|span| Instant::now().checked_add(Duration::from_nanos(span.0)));
        let (links, offset_ns) = (packets.links().to_vec(), unix_ns().saturating_sub(now().0));
        let mut count = 0;
        let is_over = |count| {
            let is_late = until.is_some_and(|until| Instant::now() >= until);
            is_late || self.count.is_some_and(|most| count >= most) || interrupt::check().is_err()
        };
        while !is_over(count) {
            let patience =
                until.map_or(CHECK, |until| until.saturating_duration_since(Instant::now()).min(CHECK));
            match packets.next(patience, |packet| write(file, &links, &packet, offset_ns))? {
                Some(written) => {
                    written?;
                    count += 1;
                }
                // A program that reads the file meanwhile gets all packets so far.
                None => file.flush()?,
            }
        }
        Ok(Captured { packets: count, lost: packets.lost() })
    }
}

/// The file takes no more.
#[derive(Debug, Error)]
#[error("writing {file}: {error}: it has {}{}", counted(*packets, "packet"), fix(error.kind()))]
struct NotWritten {
    file: String,
    /// That are in it as a whole.
    packets: u64,
    error: io::Error,
}

impl NotWritten {
    fn new(file: &Path, packets: u64, error: io::Error) -> Self {
        let file =
            if file.as_os_str() == "-" { "standard output".into() } else { file.display().to_string() };
        Self { file, packets, error }
    }
}

const fn fix(kind: io::ErrorKind) -> &'static str {
    match kind {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => {
            "; free space, write to another disk, or capture less (--packet-bytes, --port, --count, --duration)"
        }
        _ => "",
    }
}

fn is_closed_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<NotWritten>().is_some_and(|it| it.error.kind() == io::ErrorKind::BrokenPipe)
}

fn ends_of(endsystem: &Endsystem, id: ChannelId) -> anyhow::Result<[SocketAddr; 2]> {
    let connections = endsystem.tcp_connections()?;
    let found = connections.iter().find(|connection| connection.channel == id);
    let found = found.with_context(|| format!("no TCP connection {}: see 'punctual connections'", id.0))?;
    Ok([found.local, found.peer])
}

fn unix_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

/// Writes one packet.
fn write(file: &mut Pcap<impl Write>, links: &[Link], packet: &Packet<'_>, offset_ns: u64) -> io::Result<()> {
    let at = packet.at.0.saturating_add(offset_ns);
    let port = match packet.kind {
        Kind::Ip => return file.packet(at, packet.bytes, packet.bytes_whole),
        Kind::Data => 0,
        Kind::Signalling => 1,
    };
    let ends = links.get(packet.link).and_then(|link| link.ends);
    // A link without addresses is inside one process: it has no IP packets.
    let Some([ours, theirs]) = ends.map(|ends| ends[port]) else { return Ok(()) };
    let ends = if packet.is_sent { [ours, theirs] } else { [theirs, ours] };
    let headers = udp_headers(ends, packet.bytes, packet.bytes_whole);
    let whole = packet.bytes_whole.saturating_add(headers.len() as u32);
    file.packet(at, &[&headers, packet.bytes].concat(), whole)
}
