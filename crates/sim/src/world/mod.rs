//! The world: hosts, cables and applications, one event after the other in virtual time.
//!
//! Owns everything of one run. Within a step of a host, events have the order of the engine's loop: the
//! completed unit, requests, frames, completions, timers; then links are served; then the next unit begins.
//! No other code reads or moves virtual time, and no other code draws from the dice.

mod applications;
mod attempts;
mod backlog;
mod books;
mod breach;
mod call;
mod channel;
mod effort;
mod events;
mod faults;
mod host;
mod neighbours;
mod network;
mod noise;
mod orphans;
mod rates;
mod requests;
mod reservations;
mod revival;
mod rtu;
mod soft;
mod step;
mod tcp;
mod touch;
mod upgrades;
mod versions;
mod weight;
mod wire;

use std::collections::BTreeMap;

use punctual_analysis::BitRate;
use punctual_proto::api::{NodeStatus, Port, RtuId};
use punctual_proto::ids::{ChannelId, LinkId, Name, PathId};
use punctual_proto::node::Decided;

use self::attempts::Attempts;
use self::breach::BrokenStage;
use self::call::Call;
use self::faults::Turn;
use self::host::Host;
use self::orphans::Orphans;
use self::requests::Requests;
use self::tcp::{Conversation, TcpAct};
use self::touch::Touch;
use crate::dice::{Dice, Draw};
use crate::entry::Entry;
use crate::journal::Journal;
use crate::memory::{SimFrame, SimInbox, SimOutbox};
use crate::options::Options;
use crate::outcome::{Outcome, VIOLATIONS_KEPT, Violation};
use crate::queue::Queue;
use crate::scenario::{Scenario, ScenarioError};
use crate::time::SimTime;

/// Name of the listener on every host.
const LISTENER: &str = "sink";
/// Name of the best-effort port on every host.
const RECEIVER: &str = "bulk";
/// Keys of best-effort content are above those of channels.
const FLOOD_KEYS: u64 = 1 << 32;
/// Best-effort messages that an application's ring holds.
const FLOOD_SLOTS: u32 = 32;
/// Largest best-effort message.
const FLOOD_BYTES_MAX: u32 = 32_768;

/// In larger networks the periodic check of all hosts' state is left out.
const HOSTS_LOOKED_AT: usize = 64;

/// Events.
enum Event {
    /// A frame arrives at a driver.
    Arrive { host: usize, link: LinkId, port: Port, frame: SimFrame },
    /// An adapter has sent.
    Sent { host: usize, life: u32, link: LinkId, wire_bytes: u32 },
    /// A shaper has changed its rate.
    Shaped { host: usize, life: u32, link: LinkId, rate: BitRate },
    /// Admission has decided.
    Decided { host: usize, life: u32, decided: Box<Decided> },
    /// A processor runs: it has woken up, or its unit is done.
    Step { host: usize, life: u32 },
    /// A node's timer expires.
    Timer { host: usize },
    /// An application acts.
    Act(Act),
    /// A fault begins or ends.
    Fault { fault: usize, turn: Turn },
    /// A TCP segment arrives at a driver, from this hardware address.
    Segment { host: usize, link: LinkId, address: u64, frame: SimFrame },
    /// A program of a TCP connection acts.
    Tcp(TcpAct),
    /// A forged frame arrives.
    Noise { fault: usize },
    /// A crashed host restarts.
    Restart { host: usize, life: u32 },
}

/// Actions of applications, and of the run itself.
#[derive(Clone, Copy, Debug)]
enum Act {
    /// An application requests the channel of a plan.
    Ask { plan: usize },
    /// A receiver requests a channel.
    Request { request: usize },
    /// An application has decided about that, in this life of its host.
    Reply { request: usize, token: u64, life: u32 },
    /// An agent has decided about a channel.
    Answer { channel: usize },
    /// A source sends.
    Send { channel: usize },
    /// An application closes a channel.
    Close { channel: usize, at_sink: bool },
    /// A best-effort transfer continues.
    Flood { flood: usize },
    /// PDUs arrive for a program's handler, in this life of its host.
    Prompt { host: usize, id: RtuId, life: u32 },
    /// Every host requests a measurement of its links.
    Measure,
    /// Compare reservations with open channels.
    Compare,
    /// Everything must work again: applications without a channel request it.
    AskAgain,
    /// Neighbours of a host of another version must report that, until it is over.
    LookAcross { fault: usize },
    /// No reservation may exceed what exists, nor stay without its source.
    LookAround,
    /// No state is left: channels that were admitted among others must be admitted alone.
    Revive,
    /// Close everything.
    CloseAll,
    /// No state may be left.
    CheckEmpty,
}

/// A best-effort transfer under way.
struct Flood {
    handle: Option<ChannelId>,
    outbox: SimOutbox,
    sent: u64,
    /// One bit a message.
    received: Vec<u64>,
}

/// The channel of each host's handle.
type Handles = BTreeMap<(usize, ChannelId), (usize, bool)>;

/// One run.
pub(crate) struct World {
    scenario: Scenario,
    options: Options,
    now: SimTime,
    queue: Queue<Event>,
    hosts: Vec<Host>,
    channels: Attempts,
    requests: Requests,
    floods: Vec<Flood>,
    handles: Handles,
    paths: BTreeMap<PathId, usize>,
    /// Status of each node before any channel was open.
    at_rest: Vec<NodeStatus>,
    /// Faults of the schedule, by their effects on channels.
    touches: Vec<Touch>,
    orphans: Orphans,
    /// TCP connections of the plan.
    conversations: Vec<Conversation>,
    tcp_dice: Dice,
    /// The broken stage of this run, and the reports of it.
    broken: Option<BrokenStage>,
    /// Largest burst and quantum, for the limits of calls.
    burst_max: u64,
    quantum_max: u64,
    /// Time of the last open, close, refusal or end of a channel.
    last_change: SimTime,
    dice: Dice,
    fault_dice: Dice,
    journal: Journal,
    outcome: Outcome,
    scratch: Vec<u8>,
}

impl World {
    /// The world of `scenario` at time zero, with the dice of `seed`.
    ///
    /// # Errors
    /// If the topology or a configuration cannot be used.
    pub fn new(seed: u64, scenario: Scenario, options: &Options) -> Result<Self, ScenarioError> {
        let mut hosts = Vec::new();
        for (n, plan) in scenario.hosts.iter().enumerate() {
            let host = Host::new(plan, n as u64, seed, &options.sabotage);
            hosts.push(host.map_err(|error| ScenarioError(format!("host {}: {error}", plan.config.name)))?);
        }
        let bursts = scenario.channels.iter().map(|plan| u64::from(plan.contract.burst_messages_max));
        let paths = scenario.tcp.connections.iter().filter_map(|plan| plan.path);
        let burst_max = bursts.chain(paths.map(|path| u64::from(path.burst_messages_max))).max().unwrap_or(1);
        let quanta = scenario.hosts.iter().map(|host| u64::from(host.config.cpu.quantum_packets));
        let quantum_max = quanta.max().unwrap_or(1);
        let names = scenario.hosts.iter().map(|host| host.config.name.to_string()).collect();
        let floods = (0..scenario.floods.len() as u64).map(|n| Flood {
            handle: None,
            outbox: SimOutbox::new(FLOOD_KEYS + n, FLOOD_SLOTS),
            sent: 0,
            received: Vec::new(),
        });
        let mut world = Self {
            floods: floods.collect(),
            options: options.clone(),
            now: SimTime(0),
            queue: Queue::default(),
            hosts,
            channels: Attempts::new(),
            requests: Requests::new(scenario.requests.len()),
            handles: Handles::new(),
            paths: BTreeMap::new(),
            at_rest: Vec::new(),
            touches: Vec::new(),
            orphans: Orphans::new(),
            conversations: Self::conversations(&scenario.tcp.connections),
            tcp_dice: Dice::of(seed, Draw::TcpWorld),
            broken: None,
            burst_max,
            quantum_max,
            last_change: SimTime(0),
            dice: Dice::of(seed, Draw::World),
            fault_dice: Dice::of(seed, Draw::Faults),
            journal: Journal::new(names, options.trace),
            outcome: Outcome { seed, ..Outcome::default() },
            scratch: vec![0; 1 << 16],
            scenario,
        };
        world.listen()?;
        world.schedule_plan();
        Ok(world)
    }

    /// Runs to the end of the plan.
    pub fn run(mut self) -> Outcome {
        while let Some((at, event)) = self.queue.next_until(self.scenario.times.ends) {
            self.now = at;
            self.weigh();
            self.happen(event);
            if self.outcome.violations_total > STOP_AFTER {
                break;
            }
        }
        self.check_quiet();
        self.check_memory();
        self.check_named();
        self.dismiss_tcp();
        self.dismiss_handlers();
        self.outcome.elapsed = self.now.since(SimTime(0));
        (self.outcome.digest, self.outcome.trace) = self.journal.finish();
        self.outcome
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Arrive { host, link, port, frame } => self.arrive(host, link, port, frame),
            Event::Sent { host, life, link, wire_bytes } => {
                if self.hosts[host].life == life {
                    self.hosts[host].sent.push_back((link, wire_bytes));
                    self.wake(host);
                }
            }
            Event::Shaped { host, life, link, rate } => {
                if self.hosts[host].life == life {
                    self.hosts[host].shaped.push_back((link, rate));
                    self.wake(host);
                }
            }
            Event::Decided { host, life, decided } => {
                if self.hosts[host].life == life {
                    self.hosts[host].decided.push_back(*decided);
                    self.wake(host);
                }
            }
            Event::Step { host, life } => {
                let paused = self.hosts[host].is_paused(self.now);
                if self.hosts[host].life == life && !paused {
                    self.step(host);
                } else if self.hosts[host].life == life {
                    self.queue.schedule(self.hosts[host].paused_until, Event::Step { host, life });
                }
            }
            Event::Timer { host } => {
                if self.hosts[host].timer == Some(self.now) {
                    self.hosts[host].timer = None;
                    self.wake(host);
                }
            }
            Event::Act(act) => self.act(act),
            Event::Fault { fault, turn } => self.turn(fault, turn),
            Event::Segment { host, link, address, frame } => {
                self.arrive_segment(host, link, address, frame);
            }
            Event::Tcp(act) => self.act_tcp(act),
            Event::Noise { fault } => self.make_noise(fault),
            Event::Restart { host, life } => self.restart(host, life),
        }
    }

    /// Every host listens for channels and binds its best-effort port.
    fn listen(&mut self) -> Result<(), ScenarioError> {
        for host in 0..self.hosts.len() {
            self.listen_at(host)?;
            let host = &self.hosts[host];
            let mut at_rest = host.node.status(host.clock.read(SimTime(0)));
            at_rest.buffer_bytes += u64::from(self.options.sabotage.books_off);
            at_rest.cpu_utilisation.0 += 1_000 * u32::from(self.options.sabotage.shares_off);
            self.at_rest.push(at_rest);
        }
        Ok(())
    }

    fn listen_at(&mut self, host: usize) -> Result<(), ScenarioError> {
        let failed = |error: &dyn std::fmt::Display| ScenarioError(format!("listening failed: {error}"));
        let name = |text| Name::new(text).map_err(|error| failed(&error));
        let hearer = &mut self.hosts[host];
        let listener = hearer.node.listen(name(LISTENER)?).map_err(|error| failed(&error))?;
        let inbox = SimInbox::new(FLOOD_KEYS, FLOOD_SLOTS, FLOOD_BYTES_MAX, &hearer.delivered);
        let receiver = hearer.node.bind_best_effort(name(RECEIVER)?, FLOOD_BYTES_MAX, inbox);
        hearer.receiver = Some(receiver.map_err(|error| failed(&error))?);
        hearer.listener = Some(listener);
        self.register_handlers(host);
        self.start_tcp(host);
        Ok(())
    }

    fn schedule_plan(&mut self) {
        let times = self.scenario.times;
        for host in 0..self.hosts.len() {
            self.queue.schedule(SimTime(0), Event::Step { host, life: 0 });
            self.hosts[host].activity = host::Activity::Waking;
        }
        for plan in 0..self.scenario.channels.len() {
            self.queue.schedule(self.scenario.channels[plan].opens_at, Event::Act(Act::Ask { plan }));
        }
        self.schedule_requests();
        self.schedule_tcp();
        for flood in 0..self.floods.len() {
            self.queue.schedule(times.opens, Event::Act(Act::Flood { flood }));
        }
        if self.options.measure {
            self.queue.schedule(times.opens, Event::Act(Act::Measure));
        }
        let middle = SimTime(times.opened.0 / 2 + times.stops.0 / 2);
        for at in [middle, times.stops, times.closes - punctual_analysis::Nanos::from_millis(50)] {
            self.queue.schedule(at, Event::Act(Act::Compare));
        }
        if self.hosts.len() <= HOSTS_LOOKED_AT {
            self.queue.schedule(times.opens, Event::Act(Act::LookAround));
        }
        if self.scenario.heals() {
            self.queue.schedule(times.heals, Event::Act(Act::AskAgain));
            self.queue.schedule(times.revives, Event::Act(Act::Revive));
        }
        self.schedule_faults();
        self.queue.schedule(times.closes, Event::Act(Act::CloseAll));
        self.queue.schedule(times.empty, Event::Act(Act::CheckEmpty));
    }

    /// Passes an application's request to the node.
    fn call(&mut self, host: usize, call: Call) {
        if self.hosts[host].is_up {
            self.hosts[host].calls.push_back(call);
            self.wake(host);
        } else if let Call::Ask(channel) = call {
            // The daemon is not running.
            self.channels[channel].lose(false, self.now);
        }
    }

    fn note(&mut self, host: usize, entry: Entry) {
        self.journal.note(self.now, host, entry);
    }

    /// Records a violation.
    fn violate(&mut self, what: &str) {
        let what = format!("{}: {what}", self.now);
        self.journal.remark(self.now, &what);
        self.outcome.violations_total += 1;
        if self.outcome.violations.len() < VIOLATIONS_KEPT {
            self.outcome.violations.push(Violation { seed: self.outcome.seed, what });
        }
    }
}

/// A run with this many violations is stopped.
const STOP_AFTER: u64 = 10_000;
