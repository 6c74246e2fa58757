//! TCP of a host in this process: the parts of connections and listeners that take system calls, which the processor's thread
//! may not make (rings, ports, ways), and their end.
//!
//! Ownership: a local port is held from before its connection or listener begins until its engine has given the flow back. One
//! thread, the *burier*, drops what connections leave behind.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant as Time};

use punctual_engine::tcp::{
    Accepted, EphemeralPorts, Flow, Remains, Rings, Secrets, Segments, TcpConfig, TcpConnect, TcpEvent,
    TcpId, TcpListen, TcpParts, TcpRefusal, TcpTerms, TcpTimeWait,
};
use punctual_engine::{CallError, EngineHandle};
use punctual_ipc::ring::{
    InboxReader, InboxWriter, OutboxReader, OutboxWriter, RingError, RingShape, inbox, now, outbox,
};
use punctual_ipc::wake::{Alarm, RingPath};
use punctual_link::kernel::{HopRoute, HopState, KernelError, PortHold};
use punctual_link::{Inlet, NextHop, Stream};
use punctual_os::random_u64;
use punctual_proto::Nanos;
use punctual_proto::api::{RtuClass, RtuCost, RtuSending, RtuTarget, RtuTerms};
use punctual_proto::config::{CpuCosts, WorkKind};
use punctual_proto::ids::LinkId;
use punctual_proto::limits::RAW_TAG_BYTES;
use thiserror::Error;

type Handle = EngineHandle<OutboxReader, InboxWriter>;

/// Messages of a program's ring in each direction, and the bytes of one: what a program may write, or leave unread, beside the
/// connection's own buffers.
const RING: (u32, u32) = (64, 4_096);
/// Segments that wait between an output handler and the node.
const SEGMENTS: u32 = 64;
/// Packets of a connection between the wire and its input handler at most.
const BUFFERS: u32 = 256;
/// Time that a segment is declared to take, in each direction, the copy to or from the program's ring included. A profile does
/// not measure it yet.
const SEGMENT_COST: RtuCost = RtuCost { run: Nanos::from_micros(5), unit: Nanos::from_micros(15) };
/// Segments of a call of best effort.
const QUANTUM: u32 = 2;

/// Time of the longest call of a best-effort handler of TCP, with the node's part of it.
pub(crate) fn best_effort_call(costs: &CpuCosts, packet_bytes: u32) -> Nanos {
    let sent = costs.of_unit(WorkKind::Send, 1, packet_bytes, true);
    costs.dispatch() + SEGMENT_COST.of(QUANTUM) + sent * u64::from(QUANTUM)
}
/// Packets that every path carries, over IPv4 (RFC 791) and IPv6 (RFC 8200 5), in bytes.
const IP_PACKET_BYTES_MIN: [u32; 2] = [576, 1_280];
/// How long the kernel is given to find the way to a peer.
const ROUTE_WAIT: Duration = Duration::from_secs(3);
/// Local ports that are tried before the kernel is taken to have none.
const PORT_TRIES: u32 = 32;

/// Why a connection or a listener cannot be had.
#[derive(Debug, Error)]
pub enum TcpError {
    /// Admission, the driver or the configuration refuses.
    #[error(transparent)]
    Refused(#[from] TcpRefusal),
    /// No link of this host leads to the peer.
    #[error("no link with flows_max above 0 leads to {peer}: {why}")]
    NoRoute {
        /// The peer.
        peer: IpAddr,
        /// What the kernel answers.
        why: String,
    },
    /// The link's packets are shorter than those that IP requires.
    #[error(
        "packets of {bytes} B are too short for TCP: set packet and packet_best_effort of the link to {least} B or more"
    )]
    ShortPackets {
        /// Bytes of a packet of the link.
        bytes: u32,
        /// Bytes that TCP over this version of IP needs.
        least: u32,
    },
    /// The local address or port cannot be held.
    #[error(transparent)]
    Port(#[from] KernelError),
    /// A ring cannot be made.
    #[error("a ring for a TCP connection: {0}")]
    Ring(#[from] RingError),
    /// The system refuses a descriptor.
    #[error("a ring for a TCP connection: {0}")]
    Os(#[from] io::Error),
    /// The engine has ended, or this is its own thread.
    #[error(transparent)]
    Call(#[from] CallError),
}

/// What a connection asks of the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpWish {
    /// Class of both handlers of the connection, whose data units are segments.
    pub class: RtuClass,
    /// Settings of the connection.
    pub config: TcpConfig,
}

/// A program's ends of a connection.
pub struct TcpEnds {
    /// The connection.
    pub id: TcpId,
    /// The two ends.
    pub flow: Flow,
    /// Where the program puts what it sends.
    pub outbox: OutboxWriter,
    /// Where it finds what came.
    pub inbox: InboxReader,
    /// What happens to the connection.
    pub news: Receiver<TcpNews>,
}

/// What happens to a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TcpNews {
    /// It is open.
    Open,
    /// It ended.
    Ended(punctual_engine::tcp::Ended),
}

/// A listener of a host in this process. Dropping it ends it.
pub struct TcpListening {
    handle: Handle,
    number: u32,
    wish: TcpWish,
    /// The link, and its longest segment.
    on: (LinkId, u32),
    opened: Receiver<()>,
    burier: Sender<Burial>,
    _hold: PortHold,
}

/// For the burier.
enum Burial {
    /// The port of a connection, by the number of its life.
    Hold(u64, PortHold),
    /// A connection was refused.
    NotBegun(u64),
    /// A connection has no program any more; its port is still in use.
    Parts(Remains),
    /// A connection is over.
    Over(u64, Remains),
}

/// TCP of an engine in this process.
pub(super) struct EmbeddedTcp {
    handle: Handle,
    /// Links with room for flows, and the longest packet of each.
    links: Vec<(LinkId, u32)>,
    burier: Sender<Burial>,
    lives: AtomicU64,
    /// Chooses local ports that are hard to guess (RFC 6056).
    ports: Mutex<(EphemeralPorts, Secrets)>,
}

/// The end of a ring of segments that an output handler fills.
struct SegmentRing {
    ring: OutboxWriter,
    /// Where a segment and its tag are put together; it has room for the longest.
    message: Vec<u8>,
}

impl SegmentRing {
    /// For segments of at most `segment_bytes`.
    fn new(ring: OutboxWriter, segment_bytes: u32) -> Self {
        Self { ring, message: Vec::with_capacity(segment_bytes as usize + RAW_TAG_BYTES) }
    }
}

impl Segments for SegmentRing {
    fn has_room(&self) -> bool {
        !self.ring.is_full()
    }

    fn put(&mut self, packet: &[u8], address: u64) {
        self.message.clear();
        self.message.extend_from_slice(packet);
        self.message.extend_from_slice(&address.to_le_bytes());
        // There is room (`has_room`), and no segment is longer than the connection's MTU.
        let _ = self.ring.push_beside(&self.message, now());
    }
}

/// A ring between two threads of this process.
fn out_ring(slots: u32, bytes: u32) -> Result<(OutboxReader, OutboxWriter), TcpError> {
    let shape = RingShape::new(slots, bytes)?;
    let (reader, handles, _doorbell) = outbox(shape, &Alarm::new()?, &RingPath::Direct)?;
    let writer = OutboxWriter::attach(handles)?;
    reader.health().accept()?;
    Ok((reader, writer))
}

fn in_ring(slots: u32, bytes: u32) -> Result<(InboxWriter, InboxReader), TcpError> {
    let (writer, handles) = inbox(RingShape::new(slots, bytes)?, &Alarm::new()?, &RingPath::Direct)?;
    let reader = InboxReader::attach(handles)?;
    writer.health().accept()?;
    Ok((writer, reader))
}

fn terms(class: RtuClass, link: LinkId, segment_bytes: u32) -> TcpTerms {
    let quantum = if class == RtuClass::BestEffort { QUANTUM } else { 1 };
    let terms = RtuTerms { class, deadline: None, quantum, cost: SEGMENT_COST };
    let sending = RtuSending { to: RtuTarget::Link(link), packets: 1, payload_bytes: segment_bytes };
    let stream = match class {
        RtuClass::LowDelay { .. } => Stream::LowLatency,
        RtuClass::Guaranteed { .. } => Stream::Guaranteed,
        RtuClass::BestEffort => Stream::BestEffort,
    };
    let inlet = Inlet { stream, burst_packets: BUFFERS, interval_ns: 1_000, buffers: BUFFERS };
    TcpTerms { input: terms, output: terms, sending, inlet }
}

/// Bytes of the longest segment on a link, behind which a tag has room.
fn segment_bytes(packet_bytes: u32, peer: IpAddr) -> Result<u32, TcpError> {
    let least = IP_PACKET_BYTES_MIN[usize::from(peer.is_ipv6())];
    let bytes = packet_bytes.saturating_sub(RAW_TAG_BYTES as u32);
    if bytes < least {
        return Err(TcpError::ShortPackets { bytes: packet_bytes, least: least + RAW_TAG_BYTES as u32 });
    }
    Ok(bytes)
}

/// Drops what connections leave behind, until all who may send some are gone.
fn bury(burials: &Receiver<Burial>) {
    let mut holds = HashMap::new();
    for burial in burials {
        match burial {
            Burial::Hold(life, hold) => drop(holds.insert(life, hold)),
            Burial::NotBegun(life) => drop(holds.remove(&life)),
            Burial::Parts(remains) => drop(remains),
            Burial::Over(life, remains) => drop((holds.remove(&life), remains)),
        }
    }
}

/// What both ways to a connection need: the parts for the engine, and the program's ends.
struct Made {
    parts: TcpParts<OutboxReader, InboxWriter>,
    outbox: OutboxWriter,
    inbox: InboxReader,
    news: Receiver<TcpNews>,
}

fn make(
    wish: &TcpWish,
    (link, segment_bytes): (LinkId, u32),
    life: u64,
    burier: &Sender<Burial>,
) -> Result<Made, TcpError> {
    let (slots, bytes) = RING;
    let (outbox_reader, outbox) = out_ring(slots, bytes)?;
    let (inbox_writer, inbox) = in_ring(slots, bytes)?;
    let (segments_out, segments) = out_ring(SEGMENTS, segment_bytes + RAW_TAG_BYTES as u32)?;
    let (sender, news) = channel();
    let burier = burier.clone();
    let notify = move |event| {
        // Whoever is gone needs no news; without a burier the process ends.
        match event {
            TcpEvent::Open => drop(sender.send(TcpNews::Open)),
            TcpEvent::Ended(why) => drop(sender.send(TcpNews::Ended(why))),
            TcpEvent::TimeWait(remains) => drop(burier.send(Burial::Parts(remains))),
            TcpEvent::Over(remains) => drop(burier.send(Burial::Over(life, remains))),
        }
    };
    let rings = Rings { outbox: outbox_reader, inbox: inbox_writer, chunk_bytes: bytes };
    let parts = TcpParts {
        terms: terms(wish.class, link, segment_bytes),
        rings,
        segments_out,
        segments_in: Box::new(SegmentRing::new(segments, segment_bytes)),
        notify: Box::new(notify),
    };
    Ok(Made { parts, outbox, inbox, news })
}

/// Lets a link have connections.
fn serve(handle: &Handle, link: LinkId, packet_bytes: u32) -> Result<(), TcpError> {
    let segment_bytes = packet_bytes.saturating_sub(RAW_TAG_BYTES as u32);
    let (segments_out, segments) = out_ring(SEGMENTS, packet_bytes)?;
    let TcpTerms { output, sending, .. } = terms(RtuClass::BestEffort, link, segment_bytes);
    let segments_in = Box::new(SegmentRing::new(segments, segment_bytes));
    Ok(handle.serve_tcp(link, TcpTimeWait { terms: output, sending, segments_out, segments_in })??)
}

impl EmbeddedTcp {
    /// For links with room for flows: each with its longest packet.
    pub fn start(handle: Handle, links: Vec<(LinkId, u32)>) -> Result<Self, TcpError> {
        links.iter().try_for_each(|(link, packet_bytes)| serve(&handle, *link, *packet_bytes))?;
        let (burier, burials) = channel();
        std::thread::Builder::new().name("punctual-tcp".into()).spawn(move || bury(&burials))?;
        let secret = u128::from(random_u64()?) << 64 | u128::from(random_u64()?);
        let ports = Mutex::new((EphemeralPorts::default(), Secrets::new(secret.to_le_bytes())));
        Ok(Self { handle, links, burier, lives: AtomicU64::new(0), ports })
    }

    /// The way to a peer: the first link whose device the kernel routes it over.
    fn route(&self, peer: IpAddr) -> Result<(LinkId, u32, NextHop, HopRoute), TcpError> {
        let mut why = "there is no such link".to_owned();
        for &(link, packet_bytes) in &self.links {
            let hop = self.handle.next_hop(link, peer)??;
            let until = Time::now() + ROUTE_WAIT;
            why = loop {
                match hop.state() {
                    Some(HopState::Known(route)) => {
                        let segment_bytes = segment_bytes(packet_bytes, peer)?.min(route.mtu);
                        return Ok((link, segment_bytes, hop, route));
                    }
                    Some(HopState::Refused(why)) => break why,
                    _ if Time::now() >= until => break "the kernel does not answer".to_owned(),
                    // Another thread asks the kernel; a connection is no message path.
                    _ => std::thread::sleep(Duration::from_micros(200)),
                }
            };
        }
        Err(TcpError::NoRoute { peer, why })
    }

    /// A local port that is free for a connection to `remote`, held.
    fn hold(&self, source: IpAddr, remote: SocketAddr) -> Result<PortHold, TcpError> {
        let mut guard = self.ports.lock().unwrap_or_else(PoisonError::into_inner);
        let (ports, secrets) = &mut *guard;
        let (mut tries, mut taken) = (0, None);
        ports.choose(secrets, source, remote, |port| {
            tries += 1;
            let result = PortHold::take(SocketAddr::new(source, port));
            let ends = result.is_ok() || tries == PORT_TRIES;
            taken = Some(result);
            ends
        });
        Ok(taken.ok_or(TcpRefusal::NoTcp)??)
    }

    pub fn connect(&self, remote: SocketAddr, wish: &TcpWish) -> Result<TcpEnds, TcpError> {
        let (link, segment_bytes, hop, route) = self.route(remote.ip())?;
        let hold = self.hold(route.source, remote)?;
        let flow = Flow { local: hold.local(), remote };
        let life = self.lives.fetch_add(1, Ordering::Relaxed);
        let Made { parts, outbox, inbox, news } = make(wish, (link, segment_bytes), life, &self.burier)?;
        let config = TcpConfig { mtu_bytes: segment_bytes as u16, ..wish.config };
        // An error means that the process ends.
        let _ = self.burier.send(Burial::Hold(life, hold));
        let begun = self.handle.connect_tcp(TcpConnect { flow, link, hop, config, parts });
        if !matches!(begun, Ok(Ok(_))) {
            let _ = self.burier.send(Burial::NotBegun(life));
        }
        Ok(TcpEnds { id: begun??, flow, outbox, inbox, news })
    }

    pub fn listen(&self, local: SocketAddr, backlog: u32, wish: TcpWish) -> Result<TcpListening, TcpError> {
        let hold = PortHold::take(local)?;
        let &(link, packet_bytes) = self.links.first().ok_or(TcpRefusal::NoTcp)?;
        let segment_bytes = segment_bytes(packet_bytes, local.ip())?;
        let (segments_out, segments) = out_ring(SEGMENTS, segment_bytes + RAW_TAG_BYTES as u32)?;
        let (sender, opened) = channel();
        let TcpTerms { output, sending, inlet, .. } = terms(wish.class, link, segment_bytes);
        let wanted = TcpListen {
            local,
            link,
            config: TcpConfig { mtu_bytes: segment_bytes as u16, ..wish.config },
            backlog,
            terms: output,
            sending,
            inlet,
            segments_out,
            segments_in: Box::new(SegmentRing::new(segments, segment_bytes)),
            notify: Box::new(move || sender.send(()).unwrap_or_default()),
        };
        let number = self.handle.listen_tcp(wanted)??;
        let (handle, burier) = (self.handle.clone(), self.burier.clone());
        Ok(TcpListening { handle, number, wish, on: (link, segment_bytes), opened, burier, _hold: hold })
    }
}

impl TcpListening {
    /// Waits for a connection, at most until `until`; `None` if none came.
    ///
    /// # Errors
    /// [`TcpError`]; the peer is reset if admission refuses the connection.
    pub fn accept(&self, until: Option<Time>) -> Result<Option<TcpEnds>, TcpError> {
        // Lives of accepted connections hold no port of their own.
        let made = make(&self.wish, self.on, u64::MAX, &self.burier)?;
        let Made { parts, outbox, inbox, news } = made;
        let mut parts = Box::new(parts);
        loop {
            match self.handle.accept_tcp(self.number, parts)?? {
                Accepted::One(id, flow) => {
                    return Ok(Some(TcpEnds { id, flow, outbox, inbox, news }));
                }
                Accepted::None(back) => parts = back,
            }
            let came = match until {
                Some(until) => self.opened.recv_timeout(until.saturating_duration_since(Time::now())).is_ok(),
                None => self.opened.recv().is_ok(),
            };
            if !came {
                return Ok(None);
            }
        }
    }
}

impl Drop for TcpListening {
    fn drop(&mut self) {
        // An error means that the engine, and the listener with it, are gone.
        let _ = self.handle.stop_listening_tcp(self.number);
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use super::*;

    #[test]
    fn a_segment_is_no_shorter_than_ip_requires() {
        let [v4, v6] = [IpAddr::from(Ipv4Addr::LOCALHOST), IpAddr::from(Ipv6Addr::LOCALHOST)];
        assert!(matches!(segment_bytes(584, v4), Ok(576)));
        assert!(matches!(segment_bytes(583, v4), Err(TcpError::ShortPackets { bytes: 583, least: 584 })));
        assert!(matches!(segment_bytes(1_464, v6), Ok(1_456)));
        assert!(matches!(segment_bytes(1_287, v6), Err(TcpError::ShortPackets { least: 1_288, .. })));
        assert!(matches!(segment_bytes(0, v4), Err(TcpError::ShortPackets { .. })));
    }

    /// Packets of the longest frames, too, reach the node whole, with their tag behind them.
    #[test]
    fn a_segment_of_any_length_goes_into_its_ring() {
        use punctual_proto::memory::{MessageRead, Outbox};
        for bytes in [1_usize, 1_456, 3_768] {
            let (mut reader, writer) = out_ring(4, bytes as u32 + RAW_TAG_BYTES as u32).expect("a ring");
            let mut ring = SegmentRing::new(writer, bytes as u32);
            assert!(ring.has_room());
            ring.put(&vec![7; bytes], 0x0a0b);
            let (message, _) = reader.take(now()).expect("a segment");
            let mut copy = vec![0; message.len() as usize];
            message.copy_to(0, &mut copy);
            assert!(copy == [vec![7; bytes], 0x0a0b_u64.to_le_bytes().to_vec()].concat(), "{bytes}");
        }
    }

    /// The longest call of best effort has time for its segments and for what the node does to send them.
    #[test]
    fn a_call_of_best_effort_is_as_long_as_it_may_be() {
        let none = CpuCosts {
            send_message: Nanos(0),
            send_packet: Nanos(0),
            deliver_message: Nanos(0),
            copy_kib: Nanos(0),
            ..CpuCosts::default()
        };
        assert_eq!(best_effort_call(&none, 1_464), SEGMENT_COST.of(QUANTUM));
        let sends = CpuCosts { send_packet: Nanos(100), ..none };
        assert_eq!(
            best_effort_call(&sends, 1_464),
            SEGMENT_COST.of(QUANTUM) + Nanos(100) * u64::from(QUANTUM)
        );
    }
}
