//! Receive livelock: a flood of smallest best-effort packets as fast as the machine can send beside a guaranteed
//! channel, with early demultiplexing (driver xdp) and without (driver udp).
//!
//! Two floods: a best-effort flow of the neighbour, and stray packets to Punctual's port from a program that just sends.

mod flood;
mod judge;
mod stages;

use std::collections::BTreeMap;
use std::sync::Arc;

use punctual::{BitRate, Contract, Nanos};

use self::flood::{FLOOD_BYTES, FLOODS, Flood, Flooding};
use self::stages::Stages;
use super::{Conditions, Measured};
use crate::clock::now;
use crate::excuse::Excuses;
use crate::loads::{
    Arrivals, Class, Content, ReceiveLog, Receiving, SendLog, Sending, Sink, Source, channel,
};
use crate::measure::{Live, Windows};
use crate::session::stream::contract;
use crate::session::{Bed, Hosting, Pair, RoleId};
use crate::testbed::configuration::Driver;
use crate::testbed::{LinkSpec, Options, driver};
use crate::witness::Witness;

/// What the receiving adapter takes in: a link's rate is its measured drain rate. 380,000 smallest packets a second, for
/// which the driver of a veth, that builds a buffer anew for each, needs half a CPU; `sendmmsg` sends 200,000 of them.
const RATE: BitRate = BitRate(400_000_000);
/// The pace may be so many packets ahead: a flood at the full rate in spite of wake-ups that are late by (P - 1) U, 200 us.
const PIPELINE: &str = "pipeline_depth = 8\n";
/// The driver's part of the receiving CPU, which runs before the processor.
const INTERFERENCE: &str = "interference_burst = \"500us\"\ninterference_share = \"50%\"\n";
const BYTES: u32 = 1_400;
const PER_SECOND: u64 = 1_000;
const DEADLINE_MS: u64 = 10;
const LEAD: Nanos = Nanos::from_millis(50);
/// The devices of a and of b, and how many packets of the kernel wait for one that is full.
const DEVICES: [&str; 2] = ["right", "left"];
const QUEUE_PACKETS: u32 = 1_000;
const DRAIN: Nanos = Nanos::from_millis(300);

/// One driver's world.
struct World {
    driver: Driver,
    pair: Pair,
    engine: RoleId,
    guaranteed: Option<Sending>,
    sink: Sink,
    windows: Vec<Windows>,
    floods_per_s: Vec<f64>,
    /// What every stage counted, flood by flood.
    stages: Vec<BTreeMap<String, u64>>,
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
    let mut measured = judge::judge(&finished, &excuses, conditions);
    measured.testimony = testimony;
    Ok(measured)
}

fn promise() -> Contract {
    contract(BYTES, PER_SECOND, 4, DEADLINE_MS)
}

/// Has a device that is full hold its sender back, as a wire with flow control does: what is lost is lost at the receiving
/// host then, and for reasons of that host. A veth does so where its sender has a queue at its root; without one its 256
/// packets overflow when the other CPU stands still for half a millisecond, whoever they are for.
fn control_flow(pair: &Pair) -> anyhow::Result<()> {
    let Some(network) = pair.network() else { return Ok(()) };
    for (host, device) in network.hosts.iter().zip(DEVICES) {
        host.namespace.feed(&format!("tc qdisc add dev {device} root pfifo limit {QUEUE_PACKETS}"), "")?;
    }
    Ok(())
}

impl World {
    fn create(driver: Driver, conditions: &Conditions) -> anyhow::Result<Self> {
        let bed = Bed { link: LinkSpec::direct(RATE), pinned: true };
        let mut pair = Pair::create(&bed, conditions)?;
        control_flow(&pair)?;
        // Receive work in a kernel thread above the processors: what the flood brings is thrown away there before the
        // device's ring is full, and not by the CPU that happens to send it.
        let kthread = if driver == Driver::Xdp { "napi_priority = 60\n" } else { "" };
        let options = Options {
            driver,
            real_time: conditions.real_time,
            processor: format!("{INTERFERENCE}{}", super::FAST_COSTS),
            link: format!("{PIPELINE}{kthread}"),
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
            stages: Vec::new(),
        })
    }

    /// The guaranteed channel under one flood.
    fn turn(&mut self, flood: Flood, length: Nanos, conditions: &Conditions) -> anyhow::Result<()> {
        let before = Stages::read(&self.pair, self.engine)?;
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
        self.stages.push(Stages::read(&self.pair, self.engine)?.since(&before));
        Ok(())
    }

    fn finish(mut self) -> anyhow::Result<Finished> {
        let (received, _) = self.sink.stop()?;
        let sent = self.guaranteed.take().map(|sending| sending.log.clone()).unwrap_or_default();
        Ok(Finished {
            driver: self.driver,
            windows: self.windows,
            floods_per_s: self.floods_per_s,
            stages: self.stages,
            sent,
            received,
        })
    }
}

struct Finished {
    driver: Driver,
    windows: Vec<Windows>,
    floods_per_s: Vec<f64>,
    stages: Vec<BTreeMap<String, u64>>,
    sent: SendLog,
    received: ReceiveLog,
}

const fn class(conditions: &Conditions) -> Class {
    if conditions.real_time { Class::RealTime } else { Class::Ordinary }
}
