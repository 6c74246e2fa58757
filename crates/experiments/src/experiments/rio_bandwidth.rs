//! RIO figure 11: flows of 8, 4 and 2 messages of 8 KB every 10 ms join one by one beside best effort; and best effort
//! bounded to 40 % of the link.

use punctual::{Activation, BitRate, Contract, Instant, Nanos, Rate};
use serde::Serialize;

use super::{Conditions, Measured};
use crate::clock::{now, wait_until};
use crate::demo::outcome::Check;
use crate::excuse::Excuses;
use crate::loads::{Bulk, Class};
use crate::report::{Axis, Legend, Plot, Series};
use crate::session::{Bed, Hosting, Pair, RoleId};
use crate::testbed::{LinkSpec, Options};
use crate::witness::Witness;

const LINK: BitRate = BitRate(200_000_000);
const QUEUE: Nanos = Nanos::from_millis(50);
const MESSAGE_BYTES: u32 = 8_192;
/// Packets of a message, and what each adds on the wire.
const PACKETS: u32 = 6;
const WIRE_BYTES: u32 = MESSAGE_BYTES + PACKETS * (64 + 66);
const PERIOD: Nanos = Nanos::from_millis(10);
const DEADLINE: Nanos = Nanos::from_millis(60);
/// The guaranteed flows: messages of each period.
const FLOWS: [u32; 3] = [8, 4, 2];
/// Of the link's rate, for the bounded best effort.
const CAP: f64 = 0.4;
/// Before rates are measured in a phase.
const WARM_UP: Nanos = Nanos::from_millis(500);
const TICK: Nanos = Nanos::from_millis(200);

#[derive(Serialize)]
struct Point {
    part: &'static str,
    world: &'static str,
    phase: usize,
    flow: String,
    guaranteed_mbyte_s: Option<f64>,
    mbyte_s: f64,
    wire_share: f64,
}

/// A flow: its sender, its sink at b, messages a period (none for best effort).
struct Flow {
    bulk: Bulk,
    sink: RoleId,
    messages: Option<u32>,
}

/// A world and what its flows delivered over time: (seconds, bytes a second) of each.
struct World {
    name: &'static str,
    flows: Vec<Flow>,
    series: Vec<Vec<(f64, f64)>>,
    /// Phase by phase, flow by flow: bytes a second in steady state.
    rates: Vec<Vec<f64>>,
    pair: Pair,
}

/// Runs it.
///
/// # Errors
/// Where the test bed fails, a flow is refused, or the run is interrupted.
pub fn run(conditions: &Conditions) -> anyhow::Result<Measured> {
    let bed = Bed { link: LinkSpec::new(LINK, QUEUE), pinned: true };
    let phase = Nanos::from_millis(if conditions.quick { 3_000 } else { 10_000 });
    let witness = conditions.witness()?;
    let mut worlds = [World::punctual(&bed, conditions)?, World::kernel(&bed, conditions)?];
    for world in &mut worlds {
        for joined in 0..=FLOWS.len() {
            conditions.progress(format_args!("{}: {joined} guaranteed flows", world.name));
            world.phase(joined, phase)?;
        }
        world.flows.iter().for_each(|flow| flow.bulk.set(None));
    }
    conditions.progress(format_args!("best effort at 40 %"));
    let mut capped = World::capped(&bed, conditions)?;
    capped.phase(0, phase)?;
    let mut measured = judge(&worlds, &capped);
    measured.testimony = witness.map(Witness::stop).unwrap_or_default();
    // Rates over seconds: a hole moves bytes by milliseconds and is caught up with.
    let excuses = Excuses::new(&measured.testimony.holes, punctual::Ppm(0));
    if excuses.last_before(Instant(u64::MAX)).is_some() {
        measured.notes.push("rates are over whole phases, platform holes included".into());
    }
    measured.samples = worlds.iter().map(|world| world.rates.len() as u64).sum();
    Ok(measured)
}

/// What a flow of `messages` a period is promised: served by a timer, as RIO's kthreads are.
fn promise(messages: u32) -> anyhow::Result<Contract> {
    let rate = Rate::every(interval(messages)).unwrap_or(Rate::every(PERIOD).expect("not zero"));
    let contract = Contract::new(MESSAGE_BYTES, rate, messages, DEADLINE)?;
    // One message more than the period's: policing lets 1/128 more through.
    let activation = Activation::Periodic { period: PERIOD, packets: (messages + 1) * PACKETS };
    Ok(Contract { activation, ..contract })
}

fn interval(messages: u32) -> Nanos {
    Nanos(PERIOD.0 / u64::from(messages))
}

impl World {
    fn new(name: &'static str, pair: Pair) -> Self {
        Self { name, flows: Vec::new(), series: Vec::new(), rates: Vec::new(), pair }
    }

    fn punctual(bed: &Bed, conditions: &Conditions) -> anyhow::Result<Self> {
        let mut world = Self::new("Punctual", Pair::create(bed, conditions)?);
        let driver = conditions.driver;
        let options = Options { driver, real_time: conditions.real_time, ..super::on_ports(0, conditions) };
        let engine = world.pair.start_engines(&options, Hosting::Embedded)?;
        let class = if conditions.real_time { Class::RealTime } else { Class::Ordinary };
        let (outlet, sink) = world.pair.send_engine(engine, None, MESSAGE_BYTES, Class::Ordinary)?;
        world.add(outlet, sink, None, Class::Ordinary)?;
        for messages in FLOWS {
            let contract = Some(promise(messages)?);
            let (outlet, sink) = world.pair.send_engine(engine, contract, MESSAGE_BYTES, class)?;
            world.add(outlet, sink, Some(messages), class)?;
        }
        Ok(world)
    }

    fn kernel(bed: &Bed, conditions: &Conditions) -> anyhow::Result<Self> {
        let mut world = Self::new("kernel TCP", Pair::create(bed, conditions)?);
        let flows = [None].into_iter().chain(FLOWS.map(Some));
        for messages in flows {
            let class =
                if conditions.real_time && messages.is_some() { Class::RealTime } else { Class::Ordinary };
            let (outlet, sink) = world.pair.send_sockets(MESSAGE_BYTES, class)?;
            world.add(outlet, sink, messages, class)?;
        }
        Ok(world)
    }

    /// Best effort alone, bounded.
    fn capped(bed: &Bed, conditions: &Conditions) -> anyhow::Result<Self> {
        let mut world = Self::new("Punctual, best effort at 40 %", Pair::create(bed, conditions)?);
        let ports = super::on_ports(1, conditions);
        let options = Options {
            driver: conditions.driver,
            real_time: conditions.real_time,
            link: format!("best_effort_cap = \"{}%\"\n{}", CAP * 100.0, ports.link),
            ..ports
        };
        let engine = world.pair.start_engines(&options, Hosting::Embedded)?;
        let (outlet, sink) = world.pair.send_engine(engine, None, MESSAGE_BYTES, Class::Ordinary)?;
        world.add(outlet, sink, None, Class::Ordinary)?;
        Ok(world)
    }

    fn add(
        &mut self,
        outlet: Box<dyn crate::loads::Outlet>,
        sink: RoleId,
        messages: Option<u32>,
        class: Class,
    ) -> anyhow::Result<()> {
        let bulk = Bulk::start(outlet, MESSAGE_BYTES as usize, &self.pair.place, class)?;
        self.flows.push(Flow { bulk, sink, messages });
        self.series.push(Vec::new());
        Ok(())
    }

    /// Best effort and the first `joined` guaranteed flows for `length`.
    fn phase(&mut self, joined: usize, length: Nanos) -> anyhow::Result<()> {
        for flow in self.flows.iter().take(joined + 1) {
            flow.bulk.set(Some(flow.messages.map(interval).unwrap_or_default()));
        }
        let begun = now();
        let offset = length.as_u64() as f64 / 1e9 * self.rates.len() as f64;
        let mut last = self.look()?;
        let mut steady = None;
        while now() < begun + length {
            wait_until(now() + TICK)?;
            let seen = self.look()?;
            let at = offset + seen.0.since(begun).as_u64() as f64 / 1e9;
            for (series, rate) in self.series.iter_mut().zip(rates(&last, &seen)) {
                series.push((at, rate));
            }
            if steady.is_none() && now() >= begun + WARM_UP {
                steady = Some(seen.clone());
            }
            last = seen;
        }
        self.rates.push(rates(&steady.unwrap_or_else(|| last.clone()), &last).collect());
        Ok(())
    }

    /// When, and the bytes of every sink.
    fn look(&mut self) -> anyhow::Result<(Instant, Vec<u64>)> {
        let sinks: Vec<RoleId> = self.flows.iter().map(|flow| flow.sink).collect();
        let bytes: Result<Vec<u64>, _> =
            sinks.into_iter().map(|sink| self.pair.counted(sink).map(|counted| counted.1)).collect();
        Ok((now(), bytes?))
    }
}

fn rates<'a>(from: &'a (Instant, Vec<u64>), to: &'a (Instant, Vec<u64>)) -> impl Iterator<Item = f64> + 'a {
    let seconds = (to.0.since(from.0).as_u64() as f64 / 1e9).max(f64::MIN_POSITIVE);
    from.1.iter().zip(&to.1).map(move |(from, to)| (to - from) as f64 / seconds)
}

/// Bytes a second of a flow of `messages` a period.
fn promised(messages: u32) -> f64 {
    f64::from(messages * MESSAGE_BYTES) * 1e9 / PERIOD.as_u64() as f64
}

/// Of the link, headers counted.
fn wire_share(rate: f64, link: BitRate) -> f64 {
    rate * f64::from(WIRE_BYTES) / f64::from(MESSAGE_BYTES) * 8.0 / link.0 as f64
}

fn judge(worlds: &[World; 2], capped: &World) -> Measured {
    let columns = ["part", "world", "phase", "flow", "guaranteed_mbyte_s", "mbyte_s", "wire_share"];
    let mut measured = Measured::new("flows that have joined", &columns);
    for (part, world) in [("joining", &worlds[0]), ("joining", &worlds[1]), ("capped", capped)] {
        let link = world.pair.link().rate;
        for (phase, rates) in world.rates.iter().enumerate() {
            for (flow, rate) in world.flows.iter().zip(rates).take(phase + 1) {
                measured.add(&Point {
                    part,
                    world: world.name,
                    phase,
                    flow: name(flow),
                    guaranteed_mbyte_s: flow.messages.map(|messages| promised(messages) / 1e6),
                    mbyte_s: rate / 1e6,
                    wire_share: wire_share(*rate, link),
                });
            }
        }
    }
    check(&mut measured, &worlds[0], capped);
    let last = |world: &World| world.rates.last().cloned().unwrap_or_default();
    for (index, paper) in ["what is left", "6.4", "3.2", "1.6"].into_iter().enumerate() {
        let shown =
            |world: &World| format!("{:.2}", last(world).get(index).copied().unwrap_or_default() / 1e6);
        let what = format!("all joined: {}, MB/s", name(&worlds[0].flows[index]));
        measured.compare(&what, paper, shown(&worlds[0]), shown(&worlds[1]));
    }
    measured.plot = Some(plot(&worlds[0]));
    measured
}

fn check(measured: &mut Measured, ours: &World, capped: &World) {
    let link = ours.pair.link().rate;
    for (index, flow) in ours.flows.iter().enumerate() {
        let Some(messages) = flow.messages else { continue };
        // In every phase from its own on.
        let off = ours.rates[index..].iter().map(|rates| (rates[index] / promised(messages) - 1.0).abs());
        let name = format!("{messages} messages a period: largest distance from its bandwidth");
        measured.checks.push(Check::at_most(name, off.fold(0.0, f64::max), 0.01));
    }
    let left = ours.rates.iter().enumerate().map(|(joined, rates)| {
        let guaranteed: f64 = (1..=joined).map(|flow| wire_share(rates[flow], link)).sum();
        wire_share(rates[0], link) / (1.0 - guaranteed)
    });
    let least = left.fold(f64::INFINITY, f64::min);
    measured.checks.push(Check::at_least("best effort, of what guaranteed flows leave".into(), least, 0.95));
    // Our links give what is configured less the error of its measurement.
    let given = wire_share(capped.rates[0][0], capped.pair.link().rate) / RATE_LESS_ERROR;
    let off = (given / CAP - 1.0).abs();
    measured.checks.push(Check::at_most("best effort at 40 %: distance from the cap".into(), off, 0.01));
}

/// `rate_error` of the test beds' links is its default, 1 %.
const RATE_LESS_ERROR: f64 = 0.99;

fn name(flow: &Flow) -> String {
    flow.messages.map_or("best effort".into(), |messages| format!("{messages} x 8 KB every 10 ms"))
}

fn plot(world: &World) -> Plot {
    let series = world.series.iter().enumerate().map(|(colour, points)| Series {
        name: name(&world.flows[colour]),
        colour,
        dashed: colour == 0,
        dots: false,
        points: points.iter().map(|&(at, rate)| (at, rate / 1e6)).collect(),
    });
    Plot {
        title: "RIO figure 11: guaranteed flows join beside best effort".into(),
        x: Axis::linear("time, s"),
        y: Axis::linear("delivered, MB/s"),
        series: series.collect(),
        marks: Vec::new(),
        legend: Legend::Top,
    }
}
