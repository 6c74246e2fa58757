//! The reserved path of a TCP connection (ADR 0055): a - r - b, and best effort floods the link r - b twofold.
//!
//! A guaranteed connection of Punctual, each packet of which is a message of a channel, and one of the kernel, each on a network
//! of its own beside the same flood. What counts are stamps of the programs at both ends; for single packets, which no program
//! sees, the counters of the connection's channels.

use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream as KernelStream};
use std::sync::Arc;

use anyhow::Context;
use punctual::tcp::Qos;
use punctual::{BitRate, Contract, Endsystem, Instant, Nanos, Rate};
use punctual_os::clock::{duration, now, wait_until};
use serde_json::json;

use super::rtu_streams::seconds;
use super::{Conditions, Measured, judged};
use crate::excuse::Excuses;
use crate::loads::tcp::{Connection, FULL, KernelTcp, READ_WAIT, TcpReceiver, TcpSender};
use crate::loads::{
    Arrivals, Class, Content, MessageReceiver, MessageSender, Receiving, Sending, Sink, Source, Wait,
};
use crate::measure::{Live, Question, ReceiveLog, SendLog, StreamSummary, Windows};
use crate::report::{Plot, Series};
use crate::testbed::{Daemons, LinkSpec, Network, NetworkSpec, Options, StreamSpec, World};

const BOTTLENECK: BitRate = BitRate(40_000_000);
const ACCESS: BitRate = BitRate(120_000_000);
const QUEUE: Nanos = Nanos::from_millis(150);
/// Period of the connection.
const PERIOD: Nanos = Nanos::from_millis(10);
const MESSAGE_BYTES: u32 = 1_000;
const MESSAGES: u32 = 10;
/// Deadline of each packet on the path.
const DEADLINE: Nanos = Nanos::from_millis(30);
/// Payload of a packet of the flood. The next constant is what the wire adds to it.
const FLOOD_BYTES: usize = 1_400;
const FLOOD_EXTRA_BYTES: usize = 64 + 66;
const FLOOD_BURST: u32 = 8;
const PORT: u16 = 7_300;
const BUFFER_BYTES: usize = 200 << 10;
/// Largest distance of a second from the rate.
const OFF_MAX: f64 = 0.01;
const LEAD: Nanos = Nanos::from_millis(30);
/// Slow start, and the queues of the flood.
const WARM_UP: Nanos = Nanos::from_secs(1);
const DRAIN: Nanos = Nanos::from_millis(500);
const PUNCTUAL: &str = "Punctual";

/// From writing to reading. What is written waits for the output handler's next period, and leaves within it; the last packet of
/// a period is one period behind the first at its channel; it is at the other host within its bound; and the input handler has
/// it within the next of its periods there.
fn whole_bound() -> Nanos {
    PERIOD * 2 + PERIOD + DEADLINE + PERIOD * 2
}

/// One of the two streams of a lane.
struct Flow {
    spec: StreamSpec,
    sending: Option<Sending>,
    sink: Sink,
}

/// A system on a network of its own. Fields drop in this order.
struct Lane {
    name: &'static str,
    /// The connection, then the flood.
    flows: Vec<Flow>,
    windows: Windows,
    world: World,
}

struct Finished {
    name: &'static str,
    windows: Windows,
    flows: Vec<(StreamSpec, SendLog, ReceiveLog)>,
    channels: Option<Channels>,
}

/// What the channels of the connection have counted.
#[derive(Default)]
struct Channels {
    misses: u64,
    packets: u64,
    latency_max: Nanos,
    bound_max: Nanos,
    /// Why nothing is promised at the end of the run.
    degraded: Vec<String>,
}

fn streams() -> anyhow::Result<[StreamSpec; 2]> {
    let interval = PERIOD / u64::from(MESSAGES);
    let rate = Rate::every(interval).context("a period without time")?;
    let contract = Contract::new(MESSAGE_BYTES, rate, MESSAGES, whole_bound())?;
    let content = Content::of_size(MESSAGE_BYTES as usize);
    let stream =
        StreamSpec::guaranteed("tcp", contract, content, Arrivals::Bursty { interval, burst: MESSAGES });
    let interval = BitRate(2 * BOTTLENECK.0).time_of((FLOOD_BYTES + FLOOD_EXTRA_BYTES) as u64);
    let flood = Arrivals::Bursty { interval, burst: FLOOD_BURST };
    Ok([stream, StreamSpec::best_effort("flood", Content::of_size(FLOOD_BYTES), flood)])
}

fn qos() -> Qos {
    let bits = u64::from(MESSAGE_BYTES) * 8 * u64::from(MESSAGES) * 1_000_000_000 / PERIOD.0;
    Qos::Guaranteed { rate: BitRate(bits), period: PERIOD }
}

/// Both ends of a connection whose path is reserved.
fn reserved(a: &Endsystem, b: &Endsystem) -> anyhow::Result<[Box<dyn Connection>; 2]> {
    let listener = b.bind_tcp_reserved(PORT, qos(), Some(DEADLINE), 1)?;
    let connecting = std::thread::spawn({
        let a = a.clone();
        move || a.connect_tcp_reserved(&format!("{PORT}@b"), qos(), Some(DEADLINE))
    });
    let far = listener.accept_timeout(std::time::Duration::from_secs(10));
    let near = connecting.join().map_err(|_| anyhow::anyhow!("a panic"))?.context("reserving the path")?;
    let far = far?.context("the connection never reached its listener")?;
    Ok([near, far].map(|mut stream| {
        stream.set_read_timeout(Some(duration(READ_WAIT)));
        stream.set_write_timeout(Some(duration(FULL)));
        Box::new(stream) as Box<dyn Connection>
    }))
}

/// Both ends of a connection of the kernel's TCP.
fn of_kernel(network: &Network) -> anyhow::Result<[Box<dyn Connection>; 2]> {
    let host = |name| network.host(name).with_context(|| format!("no host {name}"));
    let (a, b) = (host("a")?, host("b")?);
    let listener = b.namespace.within(|| TcpListener::bind((Ipv4Addr::UNSPECIFIED, PORT)))?;
    let near = a.namespace.within(|| KernelStream::connect(SocketAddr::from((b.address(), PORT))))?;
    let far = listener.accept()?.0;
    let end = |stream| -> anyhow::Result<Box<dyn Connection>> {
        Ok(Box::new(KernelTcp::new(stream, Wait::Block, BUFFER_BYTES)?))
    };
    Ok([end(near)?, end(far)?])
}

impl Lane {
    fn open(name: &'static str, mut world: World, conditions: &Conditions) -> anyhow::Result<Self> {
        let [stream, flood] = streams()?;
        let [near, far] = match &world {
            World::Kernel { network: Some(network), .. } => of_kernel(network)?,
            other => reserved(other.endsystem("a")?, other.endsystem("b")?)?,
        };
        let outlet: Box<dyn MessageSender> = Box::new(TcpSender::new(near));
        let inlet: Box<dyn MessageReceiver> = Box::new(TcpReceiver::new(far, MESSAGE_BYTES as usize));
        let (source, sink) = world.connect(&flood).context("the flood")?;
        let ends = [(stream, outlet, inlet), (flood, source, sink)];
        let mut flows = Vec::new();
        for (number, (spec, outlet, inlet)) in (0..).zip(ends) {
            let live = Arc::new(Live::new(spec.deadline()));
            let content = spec.content.clone();
            let sending =
                Sending::new(outlet, number, content.clone(), spec.contract.as_ref(), Arc::clone(&live));
            let receiving = Receiving { receiver: inlet, stream: number, content, answers: None, live };
            let sink = receiving.start(spec.receiver_class(conditions.real_time))?;
            flows.push(Flow { spec, sending: Some(sending), sink });
        }
        Ok(Self { name, flows, windows: Windows::default(), world })
    }

    /// Both streams at once.
    fn block(&mut self, length: Nanos, conditions: &Conditions) -> anyhow::Result<()> {
        let from = Instant((now() + LEAD).0.next_multiple_of(PERIOD.0));
        // Seconds begin between two periods.
        let counted = from + conditions.brief(WARM_UP) + PERIOD / 2;
        let until = counted + length;
        let mut running = Vec::new();
        for flow in &mut self.flows {
            let sending = flow.sending.take().context("a source has ended")?;
            let class: Class = flow.spec.sender_class(conditions.real_time);
            let before = sending.log.len();
            running.push((before, Source::start(sending, flow.spec.arrivals.clone(), class, from, until)?));
        }
        for (flow, (before, source)) in self.flows.iter_mut().zip(running) {
            let mut sending = source.join().with_context(|| format!("a source of {}", self.name))?;
            if flow.spec.contract.is_some() {
                flow.spec.arrivals.count_from_due(&mut sending.log[before..], from);
            }
            flow.sending = Some(sending);
        }
        self.windows.push(counted, until);
        Ok(wait_until(now() + DRAIN)?)
    }

    fn finish(self) -> anyhow::Result<Finished> {
        let Self { name, flows, windows, world } = self;
        let channels = match &world {
            World::Kernel { .. } => None,
            ours => Some(Channels::of(ours)?),
        };
        let end = |Flow { spec, sending, sink }: Flow| {
            let (received, _) = sink.end()?;
            Ok((spec, sending.map(|sending| sending.log).unwrap_or_default(), received))
        };
        let flows = flows.into_iter().map(end).collect::<anyhow::Result<_>>()?;
        Ok(Finished { name, windows, flows, channels })
    }
}

impl Channels {
    /// Counts of the connection's two channels, at their sinks.
    fn of(world: &World) -> anyhow::Result<Self> {
        let mut counted = Self::default();
        for host in ["a", "b"] {
            let endsystem = world.endsystem(host)?;
            for connection in endsystem.tcp_connections()? {
                let path = connection.path.context("a connection without channels")?;
                let all = endsystem.channels()?;
                let status = all.into_iter().find(|status| status.channel == path.incoming);
                let status = status.context("a channel that is gone")?;
                counted.misses += status.counters.misses;
                counted.packets += status.counters.messages_out;
                counted.latency_max = counted.latency_max.max(status.counters.latency_max);
                counted.bound_max = counted.bound_max.max(status.contract.deadline);
                counted.degraded.extend(status.degraded_why);
            }
        }
        Ok(counted)
    }
}

/// Runs it.
pub fn run(conditions: &Conditions) -> anyhow::Result<Measured> {
    let links = vec![LinkSpec::new(ACCESS, QUEUE), LinkSpec::new(BOTTLENECK, QUEUE)];
    let spec = NetworkSpec { hosts: vec!["a", "r", "b"], links };
    let network = Network::create(&spec)?;
    let options = Options { real_time: conditions.real_time, ..Options::default() };
    let daemons = Daemons::start(&network, &spec, &options, &conditions.directory.join("logs"))?;
    let kernel = World::kernel(Some(Network::create(&spec)?));
    let mut lanes = [
        Lane::open(PUNCTUAL, World::Daemons { daemons, network }, conditions)?,
        Lane::open("kernel", kernel, conditions)?,
    ];
    let witness = conditions.witness()?;
    let (count, length) = conditions.rounds((2, 5_000), (4, 15_000));
    conditions.in_turns("", count, &mut lanes, |_, lane| lane.block(length, conditions))?;
    let finished = lanes.into_iter().map(Lane::finish).collect::<anyhow::Result<Vec<_>>>()?;
    judged(witness, |excuses| Ok(judge(&finished, excuses)))
}

fn judge(finished: &[Finished], excuses: &Excuses) -> Measured {
    let columns = "world, stream, mbit_s, least_mbit_s, most_mbit_s, off, offered, late, excused, p50_ms, p99_ms, max_ms";
    let mut measured = Measured::new("second", columns);
    let wanted = f64::from(MESSAGE_BYTES * MESSAGES) * 8e3 / PERIOD.0 as f64;
    let mut curves = Vec::new();
    for world in finished {
        for (spec, sent, received) in &world.flows {
            let windows = &world.windows;
            let contract = spec.contract.as_ref();
            let question = Question { contract, excuses, judged: windows, loaded: windows, steady: windows };
            let summary = StreamSummary::new(sent, received, &question);
            let values = seconds(received, windows);
            let least = values.iter().copied().fold(f64::INFINITY, f64::min);
            let most = values.iter().copied().fold(0.0, f64::max);
            let mean = values.iter().sum::<f64>() / values.len().max(1) as f64;
            let off = contract.map(|_| (least / wanted - 1.0).abs().max((most / wanted - 1.0).abs()));
            let StreamSummary { offered, misses, excused, latency, .. } = &summary;
            measured.add([json!({
                "world": world.name, "stream": spec.name, "mbit_s": mean, "least_mbit_s": least, "most_mbit_s": most,
                "off": off, "offered": offered, "late": misses, "excused": excused,
                "p50_ms": latency.p50_ms, "p99_ms": latency.p99_ms, "max_ms": latency.max_ms,
            })]);
            let is_ours = world.name == PUNCTUAL;
            if let (true, Some(off)) = (is_ours, off) {
                measured.samples += summary.judged();
                measured.excused += summary.excused;
                measured.at_most("largest distance of a second from the rate", off, OFF_MAX);
                let what = "messages later than the bound of handlers and path, or lost, outside holes";
                measured.at_most(what, summary.unexcused() as f64, 0.0);
            } else if is_ours {
                let flooded = summary.offered_mbit_s * 1e6 / BOTTLENECK.0 as f64;
                measured.at_least(
                    "flood: offered load by the rate of the link r - b, payload alone",
                    flooded,
                    1.7,
                );
            }
            let points: Vec<(f64, f64)> =
                values.iter().enumerate().map(|(at, value)| (at as f64, *value)).collect();
            let name = format!("{}, {}", spec.name, world.name);
            curves.push(Series::new(name, usize::from(contract.is_none()), points).dashed(!is_ours));
        }
        if let Some(channels) = &world.channels {
            check_channels(&mut measured, channels);
        }
    }
    measured.plot = Some(Plot::linear("a - r - b, link r - b flooded twofold", "second", "Mbit/s", curves));
    measured
}

fn check_channels(measured: &mut Measured, channels: &Channels) {
    let Channels { misses, packets, latency_max, bound_max, degraded } = channels;
    measured.at_most("packets later than their channel's bound, by its counters", *misses as f64, 0.0);
    measured.at_least("packets that the channels delivered", *packets as f64, 1.0);
    measured.note(format!(
        "packets of the connection: {packets}, the slowest after {latency_max}, bound {bound_max}"
    ));
    for why in degraded {
        measured.note(format!("a channel of the connection promises nothing at the end of the run: {why}"));
    }
}
