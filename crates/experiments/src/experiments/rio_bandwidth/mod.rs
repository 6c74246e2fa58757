//! RIO figure 11: flows of 8, 4 and 2 messages of 8 KB every 10 ms join one by one beside best effort; and best effort
//! bounded to 40 % of the link.
//!
//! Rates of a phase are over all of it, and over its slots of a period that no platform hole touches: the
//! link time that a hole takes is lost, at the expense of best effort. Guaranteed flows must get their rate
//! in spite of holes: they are judged by the whole phase.

mod judge;
mod phase;

use punctual::{Activation, BitRate, Contract, Nanos, Ppm, Rate};
use punctual_os::clock::{now, wait_until};

use self::phase::{ByteSnapshot, Phase};
use super::{Conditions, Measured, judged_under};
use crate::loads::{Bulk, Class, MessageSender};
use crate::testbed::{Hosting, LinkSpec, Options, Pair, PairSetup, RoleId};

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
/// Fraction of the link's rate, for the bounded best effort.
const CAP: f64 = 0.4;
/// Before rates are measured in a phase.
const WARM_UP: Nanos = Nanos::from_millis(500);
/// Time between two points of the plot.
const TICK: Nanos = Nanos::from_millis(200);
/// Time between two readings of the sinks: such slots are left out if a hole touches them.
const SLOT: Nanos = PERIOD;

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
    phases: Vec<Phase>,
    /// Our engines, if it is our world.
    engine: Option<RoleId>,
    pair: Pair,
}

/// Runs it.
pub fn run(conditions: &Conditions) -> anyhow::Result<Measured> {
    let setup = PairSetup { link: LinkSpec::new(LINK, QUEUE), pinned: true };
    let phase = WARM_UP + conditions.rounds((1, 2_500), (1, 9_500)).1;
    let witness = conditions.witness()?;
    let flows: Vec<Option<u32>> = [None].into_iter().chain(FLOWS.map(Some)).collect();
    let mut worlds = [
        World::punctual("Punctual", &setup, &conditions.options_of(0), &flows, conditions)?,
        World::kernel(&setup, &flows, conditions)?,
    ];
    for world in &mut worlds {
        for joined in 0..=FLOWS.len() {
            conditions.progress(format_args!("{}: {joined} guaranteed flows", world.name));
            world.phase(joined, phase)?;
        }
        world.flows.iter().for_each(|flow| flow.bulk.set(None));
    }
    conditions.progress(format_args!("best effort at 40 %"));
    let ports = conditions.options_of(1);
    let link = format!("best_effort_cap = \"{}%\"\n{}", CAP * 100.0, ports.link);
    let options = Options { link, ..ports };
    let mut capped =
        World::punctual("Punctual, best effort at 40 %", &setup, &options, &flows[..1], conditions)?;
    capped.phase(0, phase)?;
    // The backlog of a hole drains beside the guaranteed load.
    let load: f64 = FLOWS.into_iter().map(|messages| wire_share(promised(messages), LINK)).sum();
    let load = Ppm((load * 1e6) as u32);
    judged_under(load, witness, |excuses| Ok(judge::judge(&worlds, &capped, excuses)))
}

/// The promise to a flow of `messages` a period: it is served by a timer, as RIO's kthreads are.
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
    fn new(name: &'static str, engine: Option<RoleId>, pair: Pair) -> Self {
        Self { name, flows: Vec::new(), series: Vec::new(), phases: Vec::new(), engine, pair }
    }

    /// Flows through engines of ours: guaranteed messages a period, or best effort.
    fn punctual(
        name: &'static str,
        setup: &PairSetup,
        options: &Options,
        flows: &[Option<u32>],
        conditions: &Conditions,
    ) -> anyhow::Result<Self> {
        let mut pair = Pair::create(setup, conditions)?;
        let engine = pair.start_engines(options, Hosting::Embedded)?;
        let mut world = Self::new(name, Some(engine), pair);
        for &messages in flows {
            let contract = messages.map(promise).transpose()?;
            let open = |pair: &mut Pair, class| pair.send_engine(engine, contract, MESSAGE_BYTES, class);
            world.join(messages, conditions, open)?;
        }
        Ok(world)
    }

    fn kernel(setup: &PairSetup, flows: &[Option<u32>], conditions: &Conditions) -> anyhow::Result<Self> {
        let mut world = Self::new("kernel TCP", None, Pair::create(setup, conditions)?);
        for &messages in flows {
            world.join(messages, conditions, |pair, class| pair.send_sockets(MESSAGE_BYTES, class))?;
        }
        Ok(world)
    }

    /// A flow of `messages` a period, or of best effort, through what `open` opens.
    fn join(
        &mut self,
        messages: Option<u32>,
        conditions: &Conditions,
        open: impl FnOnce(&mut Pair, Class) -> anyhow::Result<(Box<dyn MessageSender>, RoleId)>,
    ) -> anyhow::Result<()> {
        let class = messages.map(|_| conditions.class()).unwrap_or_default();
        let (sender, sink) = open(&mut self.pair, class)?;
        let bulk = Bulk::start(sender, MESSAGE_BYTES as usize, &self.pair.place, class)?;
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
        let offset = length.as_secs_f64() * self.phases.len() as f64;
        let mut drawn = self.sample()?;
        let mut phase = Phase::default();
        let mut sent_before = None;
        while now() < begun + length {
            wait_until(now() + SLOT)?;
            let seen = self.sample()?;
            if seen.0 >= drawn.0 + TICK {
                self.draw(offset + seen.0.since(begun).as_secs_f64(), &drawn, &seen);
                drawn.clone_from(&seen);
            }
            if seen.0 >= begun + WARM_UP {
                if phase.samples.is_empty() {
                    sent_before = self.wire_bytes()?;
                }
                phase.samples.push(seen);
            }
        }
        phase.wire_bytes = self.wire_bytes()?.zip(sent_before).map(|(sent, before)| sent - before);
        self.phases.push(phase);
        Ok(())
    }

    fn draw(&mut self, at: f64, from: &ByteSnapshot, to: &ByteSnapshot) {
        for (series, rate) in self.series.iter_mut().zip(phase::rates(from, to)) {
            series.push((at, rate));
        }
    }

    /// When, and the bytes of every sink.
    fn sample(&mut self) -> anyhow::Result<ByteSnapshot> {
        let sinks: Vec<RoleId> = self.flows.iter().map(|flow| flow.sink).collect();
        let bytes: Result<Vec<u64>, _> =
            sinks.into_iter().map(|sink| self.pair.counted(sink).map(|counted| counted.bytes)).collect();
        Ok((now(), bytes?))
    }

    /// Bytes that our link has sent since its start; none in the kernel's world.
    fn wire_bytes(&self) -> anyhow::Result<Option<u64>> {
        let Some(engine) = self.engine else { return Ok(None) };
        let status = self.pair.endsystem(engine)?.status()?;
        Ok(Some(status.node.links.iter().map(|link| link.wire_bytes).sum()))
    }
}

/// Bytes a second of a flow of `messages` a period.
fn promised(messages: u32) -> f64 {
    f64::from(messages * MESSAGE_BYTES) * 1e9 / PERIOD.as_u64() as f64
}

/// Share of the link, including headers.
fn wire_share(rate: f64, link: BitRate) -> f64 {
    rate * f64::from(WIRE_BYTES) / f64::from(MESSAGE_BYTES) * 8.0 / link.0 as f64
}
