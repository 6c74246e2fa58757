//! Receive livelock: a flood of smallest packets as fast as the machine can send beside a guaranteed channel, with early
//! demultiplexing (driver xdp) and without (driver udp).
//!
//! There are two floods: a best-effort flow of the neighbour, paced by its host, and packets of a third host
//! (the stranger) to Punctual's port, from a machine of its own that is limited only by the rate of the
//! [`segment`]. A flood that costs the channel its path (its hosts lose contact with each other) is a result:
//! all messages from then on count as lost. All work of b runs on b's CPU, under both drivers: the receive
//! work of its device (above everything), its processor, its application.

mod flood;
mod judge;
mod segment;
mod stages;

use std::collections::BTreeMap;
use std::sync::Arc;

use punctual::{BitRate, Contract, Nanos};
use punctual_os::clock::now;
use serde::Serialize;

use self::flood::{FLOOD_BYTES, FLOODS, Flood, Flooding};
use self::segment::Segment;
use self::stages::Stages;
use super::{Conditions, Measured, judged};
use crate::loads::breakable::{PathEnd, breakable};
use crate::loads::{Arrivals, Class, Content, Receiving, Sending, Sink, Source, channel};
use crate::measure::{Live, ReceiveLog, SendLog, Windows};
use crate::testbed::stream::contract;
use crate::testbed::{Hosting, LinkSpec, Options, Pair, PairSetup, Place, RoleId, driver, receive};
use punctual_host::config::Driver;

/// The configured rate of the hosts' link: no more than a's processor, which shares its CPU with the
/// stranger's machine, can fill with smallest packets.
const RATE: BitRate = BitRate(100_000_000);
/// How many packets ahead the pace may be: this permits a flood at the full rate in spite of wake-ups that
/// are late by (P - 1) U, 200 us.
const PIPELINE: &str = "pipeline_depth = 8\n";
/// The driver's part of the receiving CPU, which runs before the processor.
const INTERFERENCE: &str = "interference_burst = \"500us\"\ninterference_share = \"50%\"\n";
const BYTES: u32 = 1_400;
const PER_SECOND: u64 = 1_000;
const DEADLINE_MS: u64 = 10;
const LEAD: Nanos = Nanos::from_millis(50);
const DRAIN: Nanos = Nanos::from_millis(300);

/// The sent and delivered packets of a flood.
#[derive(Clone, Copy, Debug, Serialize)]
struct Pressure {
    /// Packets a second that the flooding program handed over.
    #[serde(rename = "flood_per_s")]
    sent_per_s: f64,
    /// The packets that the segment handed to b's device.
    handed_per_s: f64,
    /// What receiving took of b's CPU before anything is classified or in a socket.
    receive_cpu: f64,
}

/// One driver's world. Fields drop in this order.
struct World {
    driver: Driver,
    segment: Segment,
    pair: Pair,
    engine: RoleId,
    guaranteed: Option<Sending>,
    sink: Sink,
    turns: Vec<Turn>,
    path_end: PathEnd,
}

/// The channel under one flood.
struct Turn {
    windows: Windows,
    pressure: Pressure,
    /// What every stage counted.
    stages: BTreeMap<String, u64>,
    /// Why the channel had ended by the end of it, if it had.
    ended: Option<String>,
}

/// Runs it.
pub fn run(conditions: &Conditions) -> anyhow::Result<Measured> {
    let mut drivers = vec![Driver::default()];
    if conditions.driver.bypasses_kernel() && driver::is_built(conditions.driver) {
        drivers.insert(0, conditions.driver);
    }
    let witness = conditions.witness()?;
    let length = conditions.rounds((1, 5_000), (1, 20_000)).1;
    let mut worlds = Vec::new();
    for driver in drivers {
        worlds.push(World::create(driver, conditions)?);
    }
    for flood in FLOODS {
        for world in &mut worlds {
            conditions.progress(format_args!("{}", title(world.driver, flood)));
            let turn = world.turn(flood, length, conditions)?;
            world.turns.push(turn);
        }
    }
    let finished: Vec<_> = worlds.into_iter().map(World::finish).collect::<Result<_, _>>()?;
    judged(witness, |excuses| Ok(judge::judge(&finished, excuses, conditions)))
}

/// A driver and what floods it, as reports head it.
fn title(driver: Driver, flood: Flood) -> String {
    let (first, rest) = driver.name().split_at(1);
    format!("{}{rest}, flood {flood:?}", first.to_uppercase())
}

fn promise() -> Contract {
    contract(BYTES, PER_SECOND, 4, DEADLINE_MS)
}

impl World {
    fn create(driver: Driver, conditions: &Conditions) -> anyhow::Result<Self> {
        let setup = PairSetup { link: LinkSpec::open(RATE), pinned: true };
        let mut pair = Pair::create(&setup, conditions)?;
        let kthread = if driver.bypasses_kernel() { receive::LINK_OPTION } else { "" };
        let options = Options {
            driver,
            measure: true,
            processor: INTERFERENCE.into(),
            link: format!("{PIPELINE}{kthread}"),
            ..conditions.options()
        };
        let engine = pair.start_engines(&options, Hosting::Embedded)?;
        let segment = Segment::join(&pair, driver)?;
        let (near, far) = (pair.endsystem(engine)?, pair.far_endsystem(engine)?);
        let (sender, receiver) = channel::guaranteed(near, far, "guaranteed", promise())?;
        let (sender, receiver, path_end) = breakable(sender, receiver);
        let live = Arc::new(Live::new(Some(promise().deadline)));
        let content = Content::of_size(BYTES as usize);
        let sending = Sending::new(Box::new(sender), 1, content.clone(), Some(&promise()), Arc::clone(&live));
        let receiving = Receiving { receiver: Box::new(receiver), stream: 1, content, answers: None, live };
        // Threads inherit the CPU of who starts them.
        let far = Place { namespace: None, cpu: pair.far_cpu() };
        let sink = far.on_cpu(Class::Ordinary, || Ok(receiving.start(conditions.class())?))?;
        Ok(Self {
            driver,
            segment,
            pair,
            engine,
            guaranteed: Some(sending),
            sink,
            turns: Vec::new(),
            path_end,
        })
    }

    /// The guaranteed channel under one flood.
    fn turn(&mut self, flood: Flood, length: Nanos, conditions: &Conditions) -> anyhow::Result<Turn> {
        let before = Stages::read(&self.pair, self.engine)?;
        let flooding = match flood {
            Flood::None => None,
            Flood::BestEffort => {
                let far = self.pair.far_endsystem(self.engine)?;
                // It is bound and never read: packets without room are dropped where they are classified.
                let sink = far.bind_best_effort("flood", FLOOD_BYTES)?;
                let channel = self.pair.endsystem(self.engine)?.best_effort("flood@b", FLOOD_BYTES)?;
                Some(flood::best_effort(channel, sink, &self.pair.place)?)
            }
            Flood::Stray => {
                let link = self.segment.driver(&self.pair, conditions.driver)?;
                Some(flood::stray(link, &self.pair.place)?)
            }
        };
        let (handed, receive_cpu) = (self.segment.handed()?, self.segment.receive_cpu());
        let begun = now();
        let from = now() + LEAD;
        let until = from + length;
        if let Some(sending) = self.guaranteed.take() {
            let arrivals = Arrivals::Periodic { interval: Nanos(1_000_000_000 / PER_SECOND) };
            let source = Source::start(sending, arrivals, conditions.class(), from, until)?;
            self.guaranteed = Some(source.join()?);
        }
        let mut windows = Windows::default();
        windows.push(from, until);
        let (span, of_foreign_host) = (now().since(begun), self.segment.handed()? - handed);
        let receive = self.segment.receive_cpu() - receive_cpu;
        let sent = flooding.map(Flooding::end).transpose()?.unwrap_or_default();
        let handed = if flood == Flood::Stray { of_foreign_host } else { sent };
        let a_second = |count: u64| count as f64 / span.as_secs_f64();
        let pressure = Pressure {
            sent_per_s: a_second(sent),
            handed_per_s: a_second(handed),
            receive_cpu: receive.as_secs_f64() / span.as_secs_f64(),
        };
        punctual_os::clock::wait_until(now() + DRAIN)?;
        let stages = Stages::read(&self.pair, self.engine)?.since(&before);
        let ended = self.path_end.ended().map(str::to_owned);
        Ok(Turn { windows, pressure, stages, ended })
    }

    fn finish(self) -> anyhow::Result<Finished> {
        let (received, _) = self.sink.end()?;
        let sent = self.guaranteed.map(|sending| sending.log).unwrap_or_default();
        Ok(Finished { driver: self.driver, turns: self.turns, sent, received })
    }
}

/// The log of one driver's world.
struct Finished {
    driver: Driver,
    turns: Vec<Turn>,
    sent: SendLog,
    received: ReceiveLog,
}
