//! The world: hosts, cables and applications, one event after the other in virtual time.
//!
//! Owns everything of one run. Within a step of a host, things happen in the order of the engine's loop:
//! the unit that is done, requests, frames, completions, timers; then links are served; then the next unit
//! begins. Nothing else reads or moves virtual time, and nothing else draws from the dice.

mod applications;
mod channel;
mod events;
mod host;
mod network;
mod reservations;
mod step;
mod wire;

use std::collections::BTreeMap;

use punctual_proto::ids::{ChannelId, LinkId, ListenerId, Name, PathId};
use punctual_proto::node::api::{NodeStatus, Port};

use self::channel::Channel;
use self::host::{Call, Host};
use crate::dice::Dice;
use crate::journal::{Entry, Journal};
use crate::memory::{SimFrame, SimInbox, SimOutbox};
use crate::options::Options;
use crate::outcome::{Outcome, VIOLATIONS_KEPT, Violation};
use crate::queue::Queue;
use crate::scenario::{Scenario, ScenarioError};
use crate::time::SimTime;

/// Where channels are listened for on every host.
const LISTENER: &str = "sink";
/// Where best effort is received on every host.
const RECEIVER: &str = "bulk";
/// Keys of best-effort content lie above those of channels.
const FLOOD_KEYS: u64 = 1 << 32;
/// Best-effort messages that an application's ring holds.
const FLOOD_SLOTS: u32 = 32;
/// Largest best-effort message.
const FLOOD_BYTES_MAX: u32 = 32_768;

const DRAW_WORLD: u64 = 1 << 22;
const DRAW_FAULTS: u64 = 1 << 23;
const DRAW_SENDER: u64 = 1 << 24;

/// What happens next.
enum Event {
    /// A frame comes to a driver.
    Arrive { host: usize, link: LinkId, port: Port, frame: SimFrame },
    /// An adapter has sent.
    Sent { host: usize, link: LinkId, wire_bytes: u32 },
    /// A processor looks: it has woken up, or its unit is done.
    Step { host: usize },
    /// A node's time has come.
    Timer { host: usize },
    /// An application acts.
    Act(Act),
}

/// What applications, and the run itself, do.
#[derive(Clone, Copy, Debug)]
enum Act {
    /// Somebody wants the channel of a plan.
    Ask { plan: usize },
    /// An agent has thought about a channel.
    Answer { channel: usize },
    /// A source sends.
    Send { channel: usize },
    /// Somebody closes a channel.
    Close { channel: usize, at_sink: bool },
    /// A best-effort transfer goes on.
    Flood { flood: usize },
    /// Compare what is reserved with what is open.
    Compare,
    /// Close everything.
    CloseAll,
    /// Nothing may be left.
    CheckEmpty,
}

/// A best-effort transfer under way.
struct Flood {
    handle: Option<ChannelId>,
    outbox: SimOutbox,
    lens: Vec<u32>,
    received: Vec<bool>,
}

/// Which channel a host's handle belongs to.
type Handles = BTreeMap<(usize, ChannelId), (usize, bool)>;

/// One run.
pub(crate) struct World {
    scenario: Scenario,
    options: Options,
    now: SimTime,
    queue: Queue<Event>,
    hosts: Vec<Host>,
    listeners: Vec<ListenerId>,
    channels: Vec<Channel>,
    floods: Vec<Flood>,
    handles: Handles,
    paths: BTreeMap<PathId, usize>,
    /// What each node reported before anything was open.
    at_rest: Vec<NodeStatus>,
    /// Of an open, close, refusal or end of a channel.
    last_change: SimTime,
    dice: Dice,
    fault_dice: Dice,
    journal: Journal,
    outcome: Outcome,
    scratch: Vec<u8>,
}

impl World {
    /// The world of `seed` at time zero.
    ///
    /// # Errors
    /// Where the topology or a configuration cannot be used.
    pub fn new(seed: u64, options: &Options) -> Result<Self, ScenarioError> {
        let scenario = Scenario::draw(seed, options)?;
        let mut hosts = Vec::new();
        for (n, plan) in scenario.hosts.iter().enumerate() {
            let host = Host::new(plan, n as u64, seed, &options.sabotage);
            hosts.push(host.map_err(|error| ScenarioError(format!("host {}: {error}", plan.config.name)))?);
        }
        let names = scenario.hosts.iter().map(|host| host.config.name.to_string()).collect();
        let floods = (0..scenario.floods.len() as u64).map(|n| Flood {
            handle: None,
            outbox: SimOutbox::new(FLOOD_KEYS + n, FLOOD_SLOTS),
            lens: Vec::new(),
            received: Vec::new(),
        });
        let mut world = Self {
            floods: floods.collect(),
            options: options.clone(),
            now: SimTime(0),
            queue: Queue::default(),
            hosts,
            listeners: Vec::new(),
            channels: Vec::new(),
            handles: Handles::new(),
            paths: BTreeMap::new(),
            at_rest: Vec::new(),
            last_change: SimTime(0),
            dice: Dice::new(seed, DRAW_WORLD),
            fault_dice: Dice::new(seed, DRAW_FAULTS),
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
            self.happen(event);
            if self.outcome.violations_total > STOP_AFTER {
                break;
            }
        }
        self.check_quiet();
        self.outcome.elapsed = self.now.since(SimTime(0));
        (self.outcome.digest, self.outcome.trace) = self.journal.finish();
        self.outcome
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Arrive { host, link, port, frame } => self.arrive(host, link, port, frame),
            Event::Sent { host, link, wire_bytes } => {
                self.hosts[host].sent.push_back((link, wire_bytes));
                self.wake(host);
            }
            Event::Step { host } => self.step(host),
            Event::Timer { host } => {
                if self.hosts[host].timer == Some(self.now) {
                    self.hosts[host].timer = None;
                    self.wake(host);
                }
            }
            Event::Act(act) => self.act(act),
        }
    }

    /// Every host listens for channels and receives best effort.
    fn listen(&mut self) -> Result<(), ScenarioError> {
        let failed = |error: &dyn std::fmt::Display| ScenarioError(format!("listening failed: {error}"));
        let name = |text| Name::new(text).map_err(|error| failed(&error));
        for host in &mut self.hosts {
            let listener = host.node.listen(name(LISTENER)?).map_err(|error| failed(&error))?;
            self.listeners.push(listener);
            let inbox = SimInbox::new(FLOOD_KEYS, FLOOD_SLOTS, FLOOD_BYTES_MAX, &host.delivered);
            let receiver = host.node.bind_best_effort(name(RECEIVER)?, FLOOD_BYTES_MAX, inbox);
            host.receiver = Some(receiver.map_err(|error| failed(&error))?);
            self.at_rest.push(host.node.status(host.clock.read(SimTime(0))));
        }
        Ok(())
    }

    fn schedule_plan(&mut self) {
        let times = self.scenario.times;
        for host in 0..self.hosts.len() {
            self.queue.schedule(SimTime(0), Event::Step { host });
            self.hosts[host].activity = host::Activity::Waking;
        }
        for plan in 0..self.scenario.channels.len() {
            self.queue.schedule(self.scenario.channels[plan].opens_at, Event::Act(Act::Ask { plan }));
        }
        for flood in 0..self.floods.len() {
            self.queue.schedule(times.opens, Event::Act(Act::Flood { flood }));
        }
        let middle = SimTime(times.opened.0 / 2 + times.stops.0 / 2);
        for at in [middle, times.stops, times.closes - punctual_analysis::Nanos::from_millis(50)] {
            self.queue.schedule(at, Event::Act(Act::Compare));
        }
        self.queue.schedule(times.closes, Event::Act(Act::CloseAll));
        self.queue.schedule(times.empty, Event::Act(Act::CheckEmpty));
    }

    /// Lets an application's request reach the node.
    fn call(&mut self, host: usize, call: Call) {
        self.hosts[host].calls.push_back(call);
        self.wake(host);
    }

    fn note(&mut self, host: usize, entry: Entry) {
        self.journal.note(self.now, host, entry);
    }

    /// Something is wrong.
    fn violate(&mut self, what: &str) {
        let what = format!("{}: {what}", self.now);
        self.journal.remark(&what);
        self.outcome.violations_total += 1;
        if self.outcome.violations.len() < VIOLATIONS_KEPT {
            self.outcome.violations.push(Violation { seed: self.outcome.seed, what });
        }
    }
}

/// A run that is this wrong has nothing more to tell.
const STOP_AFTER: u64 = 10_000;
