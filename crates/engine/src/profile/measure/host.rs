//! A node of the chain with its drivers, and the steps that are timed.

use std::os::fd::AsFd;

use punctual_link::{Frame, Link, LinkError, Received};
use punctual_os::now;
use punctual_os::wait::Waiter;
use punctual_proto::api::{Event, FilterChange, OpenRequest, PacketOut, Port, Transmit, UserId, WorkKind};
use punctual_proto::config::{
    Admission, CpuConfig, LinkConfig, NodeConfig, Pacing, RouteConfig, RunPolicy, SignallingConfig,
};
use punctual_proto::ids::{Address, ChannelId, Epoch, LinkId, Name, NodeId};
use punctual_proto::node::Node;
use punctual_proto::{BitRate, Contract, Instant, Nanos, Ppm, Rate};

use super::wires::{FRAMES, PACKET_BYTES};
use super::{Chain, INTERVAL, LARGE_BYTES, Lane, MeasureError, RUN_PACKETS, Rings, Wires};
use crate::error::EngineError;
use crate::memory::HostMemory;
use crate::processor::filters::{driver_filter, path_key, seal_key};

/// Faster than any driver: no packet waits for the pace.
const RATE: BitRate = BitRate(1_000_000_000_000);
/// Time limit for opening a channel.
const OPEN_WITHIN: Nanos = Nanos::from_secs(2);
/// Messages that a ring holds.
const RING_MESSAGES: u32 = 64;

type Memory<R> = HostMemory<<R as Rings>::Outbox, <R as Rings>::Inbox>;

/// A host of the chain.
pub(super) struct Host<R: Rings> {
    node: Node<Memory<R>>,
    drivers: Vec<Box<dyn Link>>,
    received: Vec<Received>,
    waiter: Waiter,
}

/// The time of one packet at one host.
#[derive(Clone, Copy)]
pub(super) struct Step {
    /// Time of the driver's part, in ns: into or out of the host's queues.
    pub driver_ns: u64,
    /// Time of the whole step, in ns.
    pub all_ns: u64,
}

fn name(text: &str) -> Result<Name, MeasureError> {
    Name::new(text).map_err(|error| MeasureError::Failed(error.to_string()))
}

const HOSTS: [(&str, u32); 3] = [("source", 1), ("forwarder", 2), ("sink", 3)];

fn config(id: u32, neighbours: &[u32]) -> Result<NodeConfig, MeasureError> {
    let link = |neighbour: &u32| LinkConfig {
        packet_bytes_max: PACKET_BYTES as u32,
        pace: Pacing::Completion,
        pipeline_depth: 16,
        propagation_max: Nanos::ZERO,
        // A late step is no breach of contract here.
        prediction_error: Nanos::from_millis(5),
        frames: FRAMES,
        admission: Admission::FIFO,
        ..LinkConfig::new("wire", NodeId(*neighbour), RATE)
    };
    let far = match id {
        1 => vec![RouteConfig { via: vec![NodeId(2), NodeId(3)] }],
        3 => vec![RouteConfig { via: vec![NodeId(2), NodeId(1)] }],
        _ => vec![],
    };
    Ok(NodeConfig {
        id: NodeId(id),
        name: name(HOSTS[id as usize - 1].0)?,
        epoch: Epoch(1),
        fragment_bytes: LARGE_BYTES as u32,
        fragment_low_latency_bytes: None,
        clock_tolerance: Ppm(100),
        links: neighbours.iter().map(link).collect(),
        cpu: CpuConfig {
            run: RunPolicy::Fifo,
            admission: Admission::FIFO,
            quantum_packets: 1,
            ..CpuConfig::default()
        },
        directory: HOSTS
            .into_iter()
            .map(|(host, id)| Ok((name(host)?, NodeId(id))))
            .collect::<Result<_, MeasureError>>()?,
        routes: far,
        // Channels open within milliseconds; a hole of less than a second ends none.
        signalling: SignallingConfig {
            hello_interval: Nanos::from_millis(250),
            retransmit: Nanos::from_millis(10),
            packets_per_second: 10_000,
            ..SignallingConfig::default()
        },
        buffer_bytes_max: 256 << 20,
        wakeup_margin: Nanos::ZERO,
    })
}

impl<R: Rings> Host<R> {
    fn new(id: u32, neighbours: &[u32], drivers: Vec<Box<dyn Link>>) -> Result<Self, MeasureError> {
        let os = |error| MeasureError::Os { what: "epoll", error };
        let waiter = Waiter::new().map_err(os)?;
        for driver in &drivers {
            for descriptor in driver.descriptors() {
                waiter.watch(descriptor.as_fd(), 0).map_err(os)?;
            }
        }
        let node = Node::new(config(id, neighbours)?, u64::from(id), now()).map_err(EngineError::from)?;
        Ok(Self { node, drivers, received: Vec::with_capacity(64), waiter })
    }

    /// The application has rung for its channel.
    pub fn ring(&mut self, channel: ChannelId) {
        self.node.handle_ring(channel, now());
    }

    /// Takes one packet out of a driver; `true` if there was one.
    fn receive(&mut self, link: usize) -> bool {
        let Some(driver) = self.drivers.get_mut(link) else { return false };
        if driver.receive(&mut self.received, 1).is_err() {
            return false;
        }
        let at = now();
        let any = !self.received.is_empty();
        for packet in self.received.drain(..) {
            let port = match packet.port {
                punctual_link::Port::Data => Port::Data,
                punctual_link::Port::Signalling => Port::Signalling,
            };
            self.node.handle_frame(LinkId(link as u16), port, Instant(packet.received_ns), packet.frame, at);
        }
        any
    }

    /// Does one unit of work; returns its kind.
    fn work(&mut self) -> Option<WorkKind> {
        let at = now();
        let work = self.node.begin_work(at)?;
        let kind = work.kind;
        self.node.finish_work(work, at);
        Some(kind)
    }

    /// Passes one packet to a driver and one of the driver's to the medium; returns the port.
    fn transmit(&mut self, link: usize) -> Option<Port> {
        let (driver, id) = (self.drivers.get_mut(link)?, LinkId(link as u16));
        let transmit = self.node.poll_transmit(id, now(), driver.transmit_buffer()?)?;
        let port = transmit.port;
        hand_over(driver.as_mut(), transmit).ok()?;
        driver.flush().ok()?;
        let sent = driver.completed();
        if sent > 0 {
            self.node.handle_sent(id, sent, now());
        }
        Some(port)
    }

    /// Everything that there is to do, unmeasured.
    fn settle(&mut self) {
        let at = now();
        if self.node.poll_timeout().is_some_and(|due| due <= at) {
            self.node.handle_timeout(at);
        }
        for link in 0..self.drivers.len() {
            while self.receive(link) {}
        }
        while self.work().is_some() {}
        set_filters(&mut self.node, &mut self.drivers);
        for link in 0..self.drivers.len() {
            while self.transmit(link).is_some() {}
            let driver = &mut self.drivers[link];
            // A link that fails shows in messages that do not come.
            let _ = driver.flush();
            let sent = driver.completed();
            if sent > 0 {
                self.node.handle_sent(LinkId(link as u16), sent, now());
            }
        }
    }
}

/// Sets a host's channels in its drivers' filters, as the processor does: a driver that classifies lets no
/// other packet in.
fn set_filters<M: punctual_proto::memory::Memory>(node: &mut Node<M>, drivers: &mut [Box<dyn Link>]) {
    while let Some((link, change)) = node.poll_filter() {
        let Some(driver) = drivers.get_mut(usize::from(link.0)) else { continue };
        // A driver whose filter cannot be set lets no packet through: the measurement then fails.
        let _ = match change {
            FilterChange::Set(filter) => driver.set_filter(&driver_filter(&filter)),
            FilterChange::Clear(path) => driver.clear_filter(path_key(path)),
            FilterChange::Neighbour(key) => driver.set_neighbour(seal_key(key)),
        };
    }
}

/// Queues a packet in its driver, as the processor does.
fn hand_over(driver: &mut dyn Link, transmit: Transmit<Frame>) -> Result<(), LinkError> {
    let port = match transmit.port {
        Port::Data => punctual_link::Port::Data,
        Port::Signalling => punctual_link::Port::Signalling,
    };
    let len = match transmit.packet {
        PacketOut::Written(len) | PacketOut::Raw { len, .. } => len,
        PacketOut::Frame(frame) => match driver.transmit_frame(port, frame, transmit.wire_bytes) {
            Ok(()) => return Ok(()),
            Err(frame) => {
                driver.transmit_buffer().map_or(0, |buffer| PacketOut::Frame(frame).copy_to(buffer))
            }
        },
    };
    driver.transmit(port, len, transmit.wire_bytes)
}

impl<R: Rings> Chain<R> {
    pub fn new(wires: Wires) -> Result<Self, MeasureError> {
        let (first, second) = wires.into_ends();
        Ok(Self {
            source: Host::new(1, &[2], vec![first.0])?,
            forwarder: Host::new(2, &[1, 3], vec![first.1, second.0])?,
            sink: Host::new(3, &[2], vec![second.1])?,
        })
    }

    /// Everything that there is to do everywhere.
    pub fn settle(&mut self) {
        self.source.settle();
        self.forwarder.settle();
        self.sink.settle();
    }

    /// Opens a channel through the chain.
    pub fn open(&mut self, rings: &R, number: usize) -> Result<Lane<R>, MeasureError> {
        let ring = |error| MeasureError::Os { what: "a message ring", error };
        let bytes = (LARGE_BYTES * RUN_PACKETS) as u32;
        let (outbox, writer) = rings.outgoing(RING_MESSAGES, bytes).map_err(ring)?;
        let (inbox, reader) = rings.incoming(RING_MESSAGES, bytes).map_err(ring)?;
        let (mut outbox, mut inbox) = (Some(outbox), Some(inbox));
        let failed = |error: &dyn std::fmt::Display| MeasureError::Failed(error.to_string());
        let port = name(&format!("lane{number}"))?;
        self.sink.node.listen(port.clone()).map_err(|error| failed(&error))?;
        let rate = Rate::every(INTERVAL).ok_or_else(|| failed(&"the interval is out of range"))?;
        let contract =
            Contract::new(bytes, rate, 4, Nanos::from_millis(4)).map_err(|error| failed(&error))?;
        let to = Address { port, host: name("sink")? };
        let until = now() + OPEN_WITHIN;
        let mut source = None;
        while now() < until {
            self.settle();
            // The neighbours establish contact first.
            if source.is_none() && self.source.node.status(now()).links.iter().all(|link| link.alive) {
                let request =
                    OpenRequest { to: to.clone(), contract, user: UserId(0), probe: false, token: None };
                source = Some(self.source.node.open(request, now()).map_err(|error| failed(&error))?);
            }
            while let Some(event) = self.sink.node.poll_event() {
                let Event::Incoming(incoming) = event else { continue };
                let Some(inbox) = inbox.take() else { continue };
                self.sink.node.consent(incoming.channel, inbox, now()).map_err(|error| failed(&error))?;
            }
            while let Some(event) = self.source.node.poll_event() {
                match event {
                    Event::Opened { channel, .. } => {
                        let Some(outbox) = outbox.take() else { continue };
                        self.source
                            .node
                            .attach_outbox(channel, outbox, now())
                            .map_err(|error| failed(&error))?;
                        self.settle();
                        return Ok(Lane { source: channel, writer, reader });
                    }
                    Event::Refused { refusal, .. } => return Err(failed(&refusal)),
                    _ => {}
                }
            }
        }
        Err(MeasureError::Failed(format!("no channel could be opened within {OPEN_WITHIN}")))
    }

    /// Moves one packet out of the source; `None` if something else happened.
    pub fn send_one(&mut self) -> Option<Step> {
        let begun = now();
        let kind = self.source.work();
        let worked = now();
        let port = self.source.transmit(0);
        let ended = now();
        let step = Step { driver_ns: ended.since(worked).0, all_ns: ended.since(begun).0 };
        (kind == Some(WorkKind::Send) && port == Some(Port::Data)).then_some(step)
    }

    /// Moves one packet through the forwarder; `None` if something else happened.
    pub fn forward_one(&mut self) -> Option<Step> {
        let begun = now();
        let received = self.forwarder.receive(0);
        let kind = self.forwarder.work();
        let worked = now();
        let port = self.forwarder.transmit(1);
        let ended = now();
        let step = Step { driver_ns: ended.since(worked).0, all_ns: ended.since(begun).0 };
        (received && kind == Some(WorkKind::Forward) && port == Some(Port::Data)).then_some(step)
    }

    /// Moves one packet into the sink; `None` if something else happened.
    pub fn receive_one(&mut self) -> Option<Step> {
        let begun = now();
        let received = self.sink.receive(0);
        let taken = now();
        let kind = self.sink.work();
        let ended = now();
        let step = Step { driver_ns: taken.since(begun).0, all_ns: ended.since(begun).0 };
        (received && kind == Some(WorkKind::Receive)).then_some(step)
    }

    /// Measures the cost of a turn without work: a check of the descriptors, of the node and of the clock.
    pub fn idle_turn(&mut self) -> Option<u64> {
        let begun = now();
        let host = &mut self.forwarder;
        let ready = host.waiter.wait(Some(Nanos::ZERO)).unwrap_or(0);
        let unit = host.work();
        let due = host.node.poll_timeout();
        let ended = now();
        // Readiness is edge-triggered: the edges of packets that were taken since belong to this turn.
        let is_idle = unit.is_none() && ready <= host.drivers.len() * 2 && due.is_none_or(|due| due > begun);
        is_idle.then(|| ended.since(begun).0)
    }

    /// Removes the packets that a lost message has left on the way.
    pub fn drain(&mut self, rings: &R, lane: &mut Lane<R>, until: Instant) {
        while now() < until {
            self.settle();
            if rings.receive(&mut lane.reader) {
                break;
            }
        }
        while rings.receive(&mut lane.reader) {}
    }
}
