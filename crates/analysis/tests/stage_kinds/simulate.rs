//! One simulated stage: the order of service, and its duration with all possible delays.

use std::collections::{BTreeMap, VecDeque};

use punctual_analysis::policies::level;
use punctual_analysis::{BitRate, Link, Nanos, Pacing, Urgency};
use rand::Rng;
use rand::rngs::SmallRng;

use crate::Channel;
use crate::arrivals::{CRITICAL_NS, Message};
use crate::kinds::{Stage, Unit};
use crate::thefts::Thefts;

/// Criterion of the message that is served next.
#[derive(Clone, Copy, Debug)]
pub enum Order {
    Deadline,
    Level,
    Rate,
}

#[derive(Clone, Copy, Debug, Default)]
pub struct Counted {
    pub misses: u64,
    pub close: u64,
}

/// Packets that a link has handed over.
struct Adapter {
    link: Link,
    /// The true rate of the wire.
    wire: BitRate,
    /// Times at which completions are seen, and their bytes.
    in_flight: VecDeque<(u64, u64)>,
    tat_ns: u64,
}

impl Adapter {
    /// Time at which `bytes` may be handed over, at `now_ns` or later: completions and clocks are seen one
    /// reaction late.
    fn opens_ns(&mut self, bytes: u32, now_ns: u64) -> u64 {
        let (depth, mtu) = (u64::from(self.link.pipeline_depth), u64::from(self.link.mtu_wire_bytes));
        if self.link.pacing == Pacing::Clock {
            let opens_ns = self.tat_ns.saturating_sub(self.link.rate_assured().time_of((depth - 1) * mtu).0);
            return if opens_ns <= now_ns { now_ns } else { opens_ns + self.link.reaction.0 };
        }
        while self.in_flight.front().is_some_and(|(seen_ns, _)| *seen_ns <= now_ns) {
            self.in_flight.pop_front();
        }
        let room = if depth == 1 { 0 } else { (depth * mtu).saturating_sub(u64::from(bytes)) };
        let mut outstanding: u64 = self.in_flight.iter().map(|(_, bytes)| bytes).sum();
        let mut opens_ns = now_ns;
        for (seen_ns, bytes) in &self.in_flight {
            if outstanding <= room {
                break;
            }
            outstanding -= bytes;
            opens_ns = *seen_ns;
        }
        opens_ns
    }
}

/// The stage as it serves.
struct Server {
    adapter: Option<Adapter>,
    free_at_ns: u64,
    thefts: Thefts,
}

impl Server {
    fn new(stage: &Stage, begin_ns: u64) -> Self {
        let interference = stage.model().interference;
        let adapter = match stage {
            Stage::Cpu(..) => None,
            Stage::Link(link, _) => {
                // A clock paces at what the kernel leaves of the wire; completions come at the wire's own pace.
                let kept = 1.0 - f64::from(interference.rho.0) / 1e6;
                let assured = link.rate_assured().0 as f64;
                let wire = if link.pacing == Pacing::Clock { assured / kept } else { assured };
                Some(Adapter {
                    link: *link,
                    wire: BitRate(wire as u64),
                    in_flight: VecDeque::new(),
                    tat_ns: 0,
                })
            }
        };
        Self { adapter, free_at_ns: begin_ns, thefts: Thefts::new(interference, begin_ns) }
    }

    fn opens_ns(&mut self, unit: Unit, now_ns: u64) -> u64 {
        match (&mut self.adapter, unit) {
            (Some(adapter), Unit::Packet(bytes)) => adapter.opens_ns(bytes, now_ns),
            _ => now_ns.max(self.free_at_ns),
        }
    }

    /// Hands a unit over; when its last bit has left or its work is done.
    fn serve(&mut self, unit: Unit, now_ns: u64) -> u64 {
        let length = match (&self.adapter, unit) {
            (Some(adapter), Unit::Packet(bytes)) => adapter.wire.time_of(u64::from(bytes)),
            (_, Unit::Run(length)) => length,
            (None, Unit::Packet(_)) => Nanos::ZERO,
        };
        self.free_at_ns = self.thefts.end_of(now_ns.max(self.free_at_ns), length.0);
        if let (Some(adapter), Unit::Packet(bytes)) = (&mut self.adapter, unit) {
            adapter.in_flight.push_back((self.free_at_ns + adapter.link.reaction.0, u64::from(bytes)));
            let paced = adapter.link.rate_assured().time_of(u64::from(bytes)).0;
            adapter.tat_ns = adapter.tat_ns.max(now_ns) + paced;
        }
        self.free_at_ns
    }
}

/// A unit of best effort: as long as it may be, or, on links, short ones between.
fn best_effort(stage: &Stage, short: bool, rng: &mut SmallRng) -> Unit {
    match stage {
        Stage::Link(link, _) if short => Unit::Packet(rng.random_range(84..=link.best_effort_wire_bytes)),
        Stage::Link(link, _) => Unit::Packet(link.best_effort_wire_bytes),
        Stage::Cpu(_, cpu, ..) => Unit::Run(cpu.best_effort_unit),
    }
}

fn key(order: Order, channel: &Channel, message: &Message, number: usize) -> (u64, u32, usize) {
    match order {
        Order::Deadline => (message.deadline_ns, 0, number),
        Order::Level => (u64::from(level(channel.bound)), channel.among_peers, number),
        Order::Rate => {
            let Urgency { class, rate, .. } = channel.demand.urgency;
            ((class as u64) << 60 | rate.0, channel.among_peers, number)
        }
    }
}

/// Serves all messages, best effort filling every gap.
pub fn run(
    stage: &Stage,
    channels: &[Channel],
    order: Order,
    mut messages: Vec<Message>,
    rng: &mut SmallRng,
) -> Counted {
    messages.sort_by_key(|message| message.ready_ns);
    let short = rng.random_bool(0.3);
    let begin_ns = messages.first().map_or(0, |first| first.ready_ns.min(CRITICAL_NS - 1));
    // Best effort has had the stage to itself for a while: what may be ahead is.
    let mut now_ns = begin_ns - 20_000_000;
    let mut server = Server::new(stage, now_ns);
    server.thefts = Thefts::new(stage.model().interference, begin_ns);
    let mut counted = Counted::default();
    let mut coming = messages.into_iter().enumerate().peekable();
    let mut ready: BTreeMap<_, (Message, VecDeque<Unit>)> = BTreeMap::new();
    loop {
        while let Some((number, message)) = coming.next_if(|(_, message)| message.ready_ns <= now_ns) {
            let channel = &channels[message.channel];
            ready.insert(key(order, channel, &message, number), (message, stage.units(message.bytes).into()));
        }
        let arrival_ns = coming.peek().map(|(_, message)| message.ready_ns);
        let head = ready.first_key_value().and_then(|(_, (_, units))| units.front().copied());
        if head.is_none() && arrival_ns.is_none() {
            return counted;
        }
        let unit = head.unwrap_or_else(|| best_effort(stage, short, rng));
        let opens_ns = server.opens_ns(unit, now_ns);
        if opens_ns > now_ns {
            now_ns = opens_ns.min(arrival_ns.unwrap_or(opens_ns)).max(now_ns + 1);
            continue;
        }
        let done_ns = server.serve(unit, now_ns);
        let Some(mut first) = ready.first_entry().filter(|_| head.is_some()) else { continue };
        first.get_mut().1.pop_front();
        if first.get().1.is_empty() {
            let (message, _) = first.remove();
            counted.misses += u64::from(done_ns > message.deadline_ns);
            let bound_ns = channels[message.channel].bound.0;
            counted.close += u64::from(done_ns + bound_ns / 10 > message.deadline_ns);
        }
    }
}
