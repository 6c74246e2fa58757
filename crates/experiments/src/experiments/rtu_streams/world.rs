//! Two hosts with the connections of a figure.

use std::sync::Arc;

use anyhow::Context;
use punctual::tcp::Qos;
use punctual::{BitRate, Contract, Instant, Nanos, Rate};
use punctual_os::clock::{now, wait_until};

use super::{Figure, LOADS};
use crate::experiments::Conditions;
use crate::experiments::contest::block;
use crate::loads::{Arrivals, Class, Content, Receiving, Sending, Sink, Source};
use crate::measure::{Live, ReceiveLog, SendLog, Windows};
use crate::testbed::receive::ReceiveThreads;
use crate::testbed::{Contender, Pair, PairSetup, Place, TcpStack, TcpWorld};

const LEAD: Nanos = Nanos::from_millis(30);
/// Time from the begin of a period of the clock until the program writes.
const PHASE: Nanos = Nanos::from_micros(100);
/// Before anything counts in a block: TCP's slow start, and what waits at its end.
const WARM_UP: Nanos = Nanos::from_secs(1);
/// What best effort leaves behind drains before the next block.
const DRAIN: Nanos = Nanos::from_millis(100);
pub(super) const CALL_BYTES: u32 = 1_024;
const CALL_INTERVAL: Nanos = Nanos::from_millis(5);
/// Segments of a round trip in each direction, acknowledgements included, twice.
const CALL_QOS: Qos = Qos::LowDelay { interval: CALL_INTERVAL, units: 6, priority: None };

/// What a connection carries.
pub(super) struct Spec {
    /// Period in ms; `None`: best effort.
    pub period_ms: Option<u64>,
    pub contract: Option<Contract>,
    arrivals: Arrivals,
}

impl Spec {
    /// `packets` of `bytes` each period; they are due when the next period ends.
    fn guaranteed(period_ms: u64, packets: u32, bytes: u32) -> anyhow::Result<Self> {
        let period = Nanos::from_millis(period_ms);
        let interval = period / u64::from(packets);
        let rate = Rate::every(interval).context("a period without time")?;
        let contract = Some(Contract::new(bytes, rate, packets, period * 2)?);
        Ok(Self {
            period_ms: Some(period_ms),
            contract,
            arrivals: Arrivals::Bursty { interval, burst: packets },
        })
    }

    const fn best_effort() -> Self {
        Self { period_ms: None, contract: None, arrivals: Arrivals::Continuous }
    }

    /// Bits a second that it is to have.
    pub fn rate(&self) -> Option<f64> {
        let contract = self.contract?;
        Some(f64::from(contract.message_bytes_max) * 8e9 / contract.rate_max.interval().0 as f64)
    }

    fn qos(&self) -> Qos {
        match (self.rate(), self.period_ms) {
            (Some(rate), Some(period_ms)) => {
                Qos::Guaranteed { rate: BitRate(rate.ceil() as u64), period: Nanos::from_millis(period_ms) }
            }
            _ => Qos::BestEffort,
        }
    }
}

struct Flow {
    spec: Spec,
    class: Class,
    sink: Sink,
    sending: Option<Sending>,
}

/// A world. Fields drop in this order.
pub(super) struct World {
    name: &'static str,
    packets: u32,
    flows: Vec<Flow>,
    caller: Option<Contender>,
    windows: [Windows; LOADS.len()],
    /// The longest period, a multiple of the others.
    longest: Nanos,
    /// What does not count at the begin of a block; seconds begin half of the longest period after a packet.
    warm_up: Nanos,
    place: Place,
    _threads: Option<ReceiveThreads>,
    _pair: Pair,
}

/// A connection that has ended, with the logs of its ends.
pub(super) struct Ended {
    pub spec: Spec,
    pub sent: SendLog,
    pub received: ReceiveLog,
    /// See [`Sending::resent`].
    pub resent: Option<u64>,
}

/// What a world has done.
pub(super) struct Finished {
    pub name: &'static str,
    pub packets: u32,
    /// Each connection.
    pub flows: Vec<Ended>,
    pub caller: Option<Contender>,
    /// When each load was on.
    pub windows: [Windows; LOADS.len()],
}

impl World {
    pub fn create(
        name: &'static str,
        stack: TcpStack,
        figure: &Figure,
        packets: u32,
        setup: &PairSetup,
        conditions: &Conditions,
    ) -> anyhow::Result<Self> {
        let mut tcp = TcpWorld::create(stack, setup, conditions)?;
        let guaranteed =
            figure.periods_ms.iter().map(|&period| Spec::guaranteed(period, packets, figure.packet_bytes));
        let best_effort = (0..figure.best_effort).map(|_| Ok(Spec::best_effort()));
        let mut flows = Vec::new();
        for (number, spec) in guaranteed.chain(best_effort).enumerate() {
            flows.push(join(&mut tcp, u32::try_from(number)?, spec?, figure.packet_bytes)?);
        }
        let mut caller = None;
        if figure.has_calls {
            let (call, class) = (tcp.call(CALL_QOS)?, tcp.class(CALL_QOS));
            caller = Some(Contender::new(name, class, &tcp.pair().place, call, LOADS.len()));
        }
        let longest = Nanos::from_millis(figure.periods_ms.iter().copied().max().unwrap_or(1));
        let (threads, pair) = tcp.finish()?;
        Ok(Self {
            name,
            packets,
            flows,
            caller,
            windows: Default::default(),
            longest,
            warm_up: conditions.brief(WARM_UP) + longest / 2,
            place: pair.place.clone(),
            _threads: threads,
            _pair: pair,
        })
    }

    /// Everything at once for `length`, under a load.
    pub fn block(&mut self, load: usize, length: Nanos) -> anyhow::Result<()> {
        // Programs write when their connections' periods have just begun, as RTU's periodic handlers do.
        let from = Instant((now() + LEAD).0.next_multiple_of(self.longest.0)) + PHASE;
        let counted = from + self.warm_up;
        let until = counted + length;
        let mut running = Vec::new();
        for flow in &mut self.flows {
            let sending = flow.sending.take().context("a source has ended")?;
            let before = sending.log.len();
            let start = || Ok(Source::start(sending, flow.spec.arrivals.clone(), flow.class, from, until)?);
            // Threads inherit the CPU of who starts them.
            running.push((before, self.place.on_cpu(Class::Ordinary, start)?));
        }
        if let Some(caller) = &mut self.caller {
            wait_until(counted)?;
            caller.block(load, &block(length, CALL_INTERVAL, CALL_BYTES))?;
        }
        for (flow, (before, source)) in self.flows.iter_mut().zip(running) {
            let mut sending = source.join().with_context(|| format!("a source of {}", self.name))?;
            // A packet counts from when it was due: a source that TCP made wait sends the next ones late.
            if flow.spec.contract.is_some() {
                flow.spec.arrivals.count_from_due(&mut sending.log[before..], from);
            }
            flow.sending = Some(sending);
        }
        self.windows[load].push(counted, until);
        Ok(wait_until(now() + DRAIN)?)
    }

    pub fn finish(self) -> anyhow::Result<Finished> {
        let Self { name, packets, flows, caller, windows, .. } = self;
        let end = |Flow { spec, sending, sink, .. }: Flow| {
            // A connection counts as long as both ends are there.
            let resent = sending.as_ref().and_then(Sending::resent);
            let (received, _) = sink.end()?;
            Ok(Ended { spec, sent: sending.map(|sending| sending.log).unwrap_or_default(), received, resent })
        };
        let flows = flows.into_iter().map(end).collect::<anyhow::Result<_>>()?;
        Ok(Finished { name, packets, flows, caller, windows })
    }
}

/// Opens a connection; its sink runs from now on.
fn join(tcp: &mut TcpWorld, stream: u32, spec: Spec, bytes: u32) -> anyhow::Result<Flow> {
    let qos = spec.qos();
    let class = tcp.class(qos);
    let (outlet, inlet) = tcp.send(qos, bytes)?;
    let live = Arc::new(Live::new(spec.contract.map(|contract| contract.deadline)));
    let content = Content::of_size(bytes as usize);
    let sending = Sending::new(outlet, stream, content.clone(), spec.contract.as_ref(), Arc::clone(&live));
    let receiving = Receiving { receiver: inlet, stream, content, answers: None, live };
    let far = tcp.pair().far_place()?;
    let sink = far.on_cpu(Class::Ordinary, || Ok(receiving.start(class)?))?;
    Ok(Flow { spec, class, sending: Some(sending), sink })
}
