//! Receive livelock: a flood of smallest best-effort packets as fast as the machine can send beside a guaranteed
//! channel, with early demultiplexing (driver xdp) and without (driver udp).
//!
//! Two floods: a best-effort flow of the neighbour, and stray packets to Punctual's port from a program that just sends.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;

use punctual::{BitRate, Channel, Contract, Nanos};
use punctual_link::{Port, UdpLink, UdpOptions};
use serde::Serialize;

use super::{Conditions, Measured};
use crate::clock::{duration, now};
use crate::demo::outcome::Check;
use crate::excuse::Excuses;
use crate::loads::{Arrivals, Class, Content, Receiving, Sending, Sink, Source, channel};
use crate::measure::{Live, Question, StreamSummary, Windows};
use crate::report::{Axis, Legend, Plot, Series};
use crate::session::stream::contract;
use crate::session::{Bed, Hosting, Pair, Place, RoleId};
use crate::testbed::configuration::Driver;
use crate::testbed::{LinkSpec, Options, driver};
use crate::witness::Witness;

/// More than the machine can send: the pace never slows the flood.
const TOLD: BitRate = BitRate(10_000_000_000);
const BYTES: u32 = 1_400;
const PER_SECOND: u64 = 1_000;
const DEADLINE_MS: u64 = 10;
const FLOOD_BYTES: u32 = 1;
const PATIENCE: Nanos = Nanos::from_millis(50);
const LEAD: Nanos = Nanos::from_millis(50);
const DRAIN: Nanos = Nanos::from_millis(300);

/// What beats upon the receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Flood {
    None,
    BestEffort,
    Stray,
}

const FLOODS: [Flood; 3] = [Flood::None, Flood::BestEffort, Flood::Stray];

#[derive(Serialize)]
struct Point {
    driver: Driver,
    flood: Flood,
    flood_per_s: f64,
    mbit_s: f64,
    offered: u64,
    delivered: u64,
    misses: u64,
    excused: u64,
    p50_ms: f64,
    p99_ms: f64,
    max_ms: f64,
}

/// One driver's world.
struct World {
    driver: Driver,
    pair: Pair,
    engine: RoleId,
    guaranteed: Option<Sending>,
    sink: Sink,
    windows: Vec<Windows>,
    floods_per_s: Vec<f64>,
}

/// Runs it.
///
/// # Errors
/// Where the test bed fails or the run is interrupted.
pub fn run(conditions: &Conditions) -> anyhow::Result<Measured> {
    let mut drivers = vec![Driver::Udp];
    if conditions.driver == Driver::Xdp && driver::is_built(Driver::Xdp) {
        drivers.insert(0, Driver::Xdp);
    }
    let witness = conditions.witness()?;
    let length = Nanos::from_millis(if conditions.quick { 5_000 } else { 20_000 });
    let mut worlds = Vec::new();
    for driver in drivers {
        worlds.push(World::create(driver, conditions)?);
    }
    for flood in FLOODS {
        for world in &mut worlds {
            conditions.progress(format_args!("{:?}, flood {flood:?}", world.driver));
            world.turn(flood, length, conditions)?;
        }
    }
    let finished: Vec<_> = worlds.into_iter().map(World::finish).collect::<Result<_, _>>()?;
    let testimony = witness.map(Witness::stop).unwrap_or_default();
    let excuses = Excuses::new(&testimony.holes, punctual::Ppm(0));
    let mut measured = judge(&finished, &excuses, conditions);
    measured.testimony = testimony;
    Ok(measured)
}

fn promise() -> Contract {
    contract(BYTES, PER_SECOND, 4, DEADLINE_MS)
}

impl World {
    fn create(driver: Driver, conditions: &Conditions) -> anyhow::Result<Self> {
        let bed = Bed { link: LinkSpec::direct(TOLD), pinned: true };
        let mut pair = Pair::create(&bed, conditions)?;
        // Receive work in a kernel thread above the processors: what the flood brings is thrown away there before the
        // device's ring is full, and not by the CPU that happens to send it.
        let link = if driver == Driver::Xdp { "napi_priority = 60\n" } else { "" };
        let options = Options {
            driver,
            real_time: conditions.real_time,
            processor: super::FAST_COSTS.into(),
            link: link.into(),
            ..Options::default()
        };
        let engine = pair.start_engines(&options, Hosting::Embedded)?;
        let (near, far) = (pair.endsystem(engine)?, pair.far_endsystem(engine)?);
        let (outlet, inlet) = channel::guaranteed(near, far, "guaranteed", promise())?;
        let live = Arc::new(Live::new(Some(promise().deadline)));
        let content = Content::of_size(BYTES as usize);
        let sending = Sending::new(Box::new(outlet), 1, content.clone(), Some(&promise()), Arc::clone(&live));
        let receiving = Receiving { inlet: Box::new(inlet), stream: 1, content, answers: None, live };
        let sink = Sink::start(receiving, class(conditions))?;
        Ok(Self {
            driver,
            pair,
            engine,
            guaranteed: Some(sending),
            sink,
            windows: Vec::new(),
            floods_per_s: Vec::new(),
        })
    }

    /// The guaranteed channel under one flood.
    fn turn(&mut self, flood: Flood, length: Nanos, conditions: &Conditions) -> anyhow::Result<()> {
        let flooding = match flood {
            Flood::None => None,
            Flood::BestEffort => {
                let far = self.pair.far_endsystem(self.engine)?;
                // Bound and never read: what has no room is dropped where it is classified.
                let sink = far.bind_best_effort("flood", FLOOD_BYTES)?;
                let channel = self.pair.endsystem(self.engine)?.best_effort("flood@b", FLOOD_BYTES)?;
                Some(Flooding::best_effort(channel, sink, &self.pair.place)?)
            }
            Flood::Stray => Some(Flooding::stray(&self.pair)?),
        };
        let from = now() + LEAD;
        let until = from + length;
        if let Some(sending) = self.guaranteed.take() {
            let arrivals = Arrivals::Periodic { interval: Nanos(1_000_000_000 / PER_SECOND) };
            let source = Source::start(sending, arrivals, class(conditions), from, until)?;
            self.guaranteed = Some(source.join()?);
        }
        let mut windows = Windows::default();
        windows.push(from, until);
        self.windows.push(windows);
        let sent = flooding.map(Flooding::stop).transpose()?.unwrap_or_default();
        self.floods_per_s.push(sent as f64 * 1e9 / (length + LEAD).as_u64() as f64);
        crate::clock::wait_until(now() + DRAIN)?;
        Ok(())
    }

    fn finish(mut self) -> anyhow::Result<Finished> {
        let (received, _) = self.sink.stop()?;
        let sent = self.guaranteed.take().map(|sending| sending.log.clone()).unwrap_or_default();
        Ok(Finished {
            driver: self.driver,
            windows: self.windows,
            floods_per_s: self.floods_per_s,
            sent,
            received,
        })
    }
}

struct Finished {
    driver: Driver,
    windows: Vec<Windows>,
    floods_per_s: Vec<f64>,
    sent: crate::loads::SendLog,
    received: crate::loads::ReceiveLog,
}

const fn class(conditions: &Conditions) -> Class {
    if conditions.real_time { Class::RealTime } else { Class::Ordinary }
}

/// A running flood.
struct Flooding {
    stop: Arc<AtomicBool>,
    sent: Arc<AtomicU64>,
    thread: JoinHandle<anyhow::Result<()>>,
}

impl Flooding {
    fn start(
        place: &Place,
        work: impl FnOnce(&AtomicBool, &AtomicU64) -> anyhow::Result<()> + Send + 'static,
    ) -> anyhow::Result<Self> {
        let (stop, sent) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (stopped, counted) = (Arc::clone(&stop), Arc::clone(&sent));
        let thread = place.spawn("flood", Class::Ordinary, move || work(&stopped, &counted))?;
        Ok(Self { stop, sent, thread })
    }

    /// A best-effort flow of the neighbour's.
    fn best_effort(mut channel: Channel, sink: punctual::Receiver, place: &Place) -> anyhow::Result<Self> {
        channel.set_send_timeout(Some(duration(PATIENCE)));
        Self::start(place, move |stop, sent| {
            let _sink = sink;
            while !stop.load(Ordering::Relaxed) {
                if channel.send(&[0; FLOOD_BYTES as usize]).is_ok() {
                    sent.fetch_add(1, Ordering::Relaxed);
                }
            }
            Ok(())
        })
    }

    /// Smallest datagrams to the data port, by `sendmmsg`.
    fn stray(pair: &Pair) -> anyhow::Result<Self> {
        let own = crate::testbed::network::address(0, 1);
        let port = punctual_engine::config::DATA_PORT_DEFAULT;
        let options = UdpOptions {
            peer_data_port: port,
            packet_bytes_max: FLOOD_BYTES as usize,
            ..UdpOptions::new(own.into(), pair.address.into(), port + 100, port + 101)
        };
        let mut link = pair.place.within(|| Ok(UdpLink::open(&options)?))?;
        Self::start(&pair.place, move |stop, sent| {
            use punctual_link::Link;
            while !stop.load(Ordering::Relaxed) {
                let mut queued = 0;
                while link.transmit_buffer().is_some() {
                    link.transmit(Port::Data, FLOOD_BYTES as usize, 0)?;
                    queued += 1;
                }
                link.flush()?;
                sent.fetch_add(queued, Ordering::Relaxed);
            }
            Ok(())
        })
    }

    fn stop(self) -> anyhow::Result<u64> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().map_err(|_| anyhow::anyhow!("a flood panicked"))??;
        Ok(self.sent.load(Ordering::Relaxed))
    }
}

const COLUMNS: [&str; 11] = [
    "driver",
    "flood",
    "flood_per_s",
    "mbit_s",
    "offered",
    "delivered",
    "misses",
    "excused",
    "p50_ms",
    "p99_ms",
    "max_ms",
];

fn judge(worlds: &[Finished], excuses: &Excuses, conditions: &Conditions) -> Measured {
    let mut measured = Measured::new("flood", &COLUMNS);
    let mut series = Vec::new();
    for (colour, world) in worlds.iter().enumerate() {
        let mut quiet = 0.0;
        for (index, flood) in FLOODS.into_iter().enumerate() {
            let windows = &world.windows[index];
            let promise = promise();
            let question = Question {
                contract: Some(&promise),
                excuses,
                judged: windows,
                loaded: windows,
                steady: windows,
            };
            let summary = StreamSummary::new(&world.sent, &world.received, &question);
            let point = Point {
                driver: world.driver,
                flood,
                flood_per_s: world.floods_per_s[index],
                mbit_s: summary.delivered_mbit_s,
                offered: summary.offered,
                delivered: summary.delivered,
                misses: summary.misses,
                excused: summary.excused,
                p50_ms: summary.latency.p50_ms,
                p99_ms: summary.latency.p99_ms,
                max_ms: summary.latency.max_ms,
            };
            // Early demultiplexing is what is promised; the other driver is shown beside it.
            if world.driver == conditions.driver {
                hold(&mut measured, world.driver, flood, &summary, &mut quiet);
            }
            let shown = format!(
                "{} of {} missed, p99 {:.2} ms, under {:.0} thousand packets/s",
                point.misses,
                point.offered,
                point.p99_ms,
                point.flood_per_s / 1e3
            );
            measured.compare(&format!("{:?}, flood {flood:?}", world.driver), "-", shown, "-".into());
            measured.add(&point);
            series.push(Series {
                name: format!("{:?}, flood {flood:?}", world.driver),
                colour: index,
                dashed: colour > 0,
                dots: false,
                points: summary.exceedance(),
            });
        }
    }
    if conditions.driver != Driver::Xdp {
        measured
            .notes
            .push("without driver xdp there is no early demultiplexing: the targets are for xdp".into());
    }
    measured.plot = Some(plot(series));
    measured
}

/// What the driver under test must hold; `quiet` is its throughput without a flood, which comes first.
fn hold(measured: &mut Measured, driver: Driver, flood: Flood, summary: &StreamSummary, quiet: &mut f64) {
    measured.samples += summary.offered;
    measured.excused += summary.excused;
    let name = |what: &str| format!("{driver:?}, flood {flood:?}: {what}");
    let missed = summary.unexcused() as f64;
    measured.checks.push(Check::at_most(name("deadlines missed outside holes"), missed, 0.0));
    if flood == Flood::None {
        *quiet = summary.delivered_mbit_s;
        return;
    }
    let change = (summary.delivered_mbit_s / *quiet - 1.0).abs();
    measured.checks.push(Check::at_most(name("change of the guaranteed throughput"), change, 0.01));
}

fn plot(series: Vec<Series>) -> Plot {
    Plot {
        title: "Guaranteed messages later than, under floods".into(),
        x: Axis::logarithmic("latency, ms"),
        y: Axis::logarithmic("share"),
        series,
        marks: Vec::new(),
        legend: Legend::LowerLeft,
    }
}
