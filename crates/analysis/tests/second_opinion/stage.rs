//! A simulated stage, in whole ticks: channels, the executor and a link as in ARCHITECTURE, and every choice
//! of senders, clocks, best effort and the kernel. It contains no admission policy and no analysis.
//!
//! A message of channel c is ready at some time within [e - early, e + late] of its effective arrival e; the
//! e of a channel are at least its period apart; its bound counts from e. Work is done in units that are not
//! preempted. Between two steps of one instant anything may become ready, so that a unit that began "just
//! before" is among the cases.

use std::ops::Range;

/// Nanoseconds of a tick.
pub const TICK_NS: i64 = 20_000;
/// Parts of a tick in which the kernel's credit is counted.
pub const PARTS: i16 = 20;
pub const CHANNELS_MAX: usize = 4;
/// Messages of a channel that wait; sets that need more are given up.
const JOBS_MAX: usize = 8;
/// Units that are handed over and not done.
const WIRE_MAX: usize = 9;
const NO_MESSAGE: i8 = -1;

/// A channel that was admitted.
#[derive(Clone, Debug)]
pub struct Channel {
    pub period: i8,
    pub late: i8,
    pub early: i8,
    /// Ticks of each unit of a message, in their order.
    pub units: Vec<u8>,
    /// Packets become ready one by one; all of a message that are ready when it is served are one unit.
    pub apart: bool,
    pub bound_ns: i64,
    /// The order if deadlines do not determine it: the smaller is first.
    pub rank: u64,
}

/// The criterion of the order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    Deadline,
    Rank,
}

/// When more may be handed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gate {
    /// When all packets that were handed over are seen to be done.
    Alone,
    /// While at most this many ticks are handed over and not seen to be done.
    Window(u8),
    /// By the clock: from so long before the time on at which all that was handed over is done.
    Clock(u8),
}

#[derive(Clone, Copy, Debug)]
pub struct Stage {
    pub order: Order,
    pub gate: Gate,
    /// Longest time until a completion, or the clock, is seen.
    pub reaction: u8,
    /// The longest unit of best effort.
    pub best_effort: u8,
    /// The kernel takes at most sigma + rho·t of any time t, in parts of a tick.
    pub sigma: i16,
    pub rho: i16,
}

/// The messages of a channel that are ready, and how many units of the first one were handed over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Queue {
    effective: [i8; JOBS_MAX],
    jobs: u8,
    handed: u8,
    /// Packets of the last one that are not ready yet.
    missing: u8,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Unit {
    left: u8,
    size: u8,
    /// The channel whose message it ends, or none.
    ends: i8,
    effective: i8,
}

/// All work in progress. Times count from now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Work {
    queues: [Queue; CHANNELS_MAX],
    wire: [Unit; WIRE_MAX],
    on_wire: u8,
    /// Ticks that are done and not seen to be; with a clock, 1 while it is closed.
    unseen: u8,
    /// Time for which they could have been seen.
    waited: u8,
    /// When the clock counts all as done.
    due: u8,
}

/// The remaining choices; a state with less of `next` and more of `credit` includes all choices of another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Freedom {
    /// The earliest e of each channel's next message.
    next: [i8; CHANNELS_MAX],
    credit: i16,
}

impl Freedom {
    pub fn covers(&self, other: &Self) -> bool {
        self.credit >= other.credit && self.next.iter().zip(&other.next).all(|(own, other)| own <= other)
    }
}

#[derive(Clone, Copy, Debug)]
pub struct State {
    pub work: Work,
    pub freedom: Freedom,
}

/// One choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// A message of this channel becomes ready; its e.
    Ready(usize, i8),
    /// The next packet of this channel's last message does.
    More(usize),
    /// The next unit of this channel is handed over.
    Serve(usize),
    /// A unit of best effort.
    BestEffort(u8),
    /// A completion, or the clock, is seen.
    See,
    /// A tick passes; the kernel takes it.
    Tick { stolen: bool },
}

/// A message that is done: of which channel, and how long after its e.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Done {
    pub channel: usize,
    pub response: i16,
}

/// More is under way than a state holds, or than a time counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLarge;

impl State {
    /// No work is in progress and every choice is possible.
    pub fn idle(stage: &Stage, channels: &[Channel]) -> Self {
        let mut freedom = Freedom { next: [0; CHANNELS_MAX], credit: stage.sigma };
        for (next, channel) in freedom.next.iter_mut().zip(channels) {
            *next = -channel.late;
        }
        Self { work: Work::default(), freedom }
    }

    /// The units of the first message that would be served together, as indices.
    fn run_next(&self, channels: &[Channel], channel: usize) -> Range<usize> {
        let queue = &self.work.queues[channel];
        let (from, units) = (usize::from(queue.handed), channels[channel].units.len());
        let ready = if queue.jobs == 1 { units - usize::from(queue.missing) } else { units };
        let to = if channels[channel].apart { ready } else { ready.min(from + 1) };
        if queue.jobs > 0 { from..to } else { 0..0 }
    }

    fn unit_next(&self, channels: &[Channel], channel: usize) -> Option<u8> {
        let run = &channels[channel].units[self.run_next(channels, channel)];
        (!run.is_empty()).then(|| run.iter().sum())
    }

    /// Whether a packet has to become ready before time passes.
    fn is_short_of(&self, channels: &[Channel], channel: usize) -> bool {
        let queue = &self.work.queues[channel];
        queue.missing > 0 && -queue.effective[usize::from(queue.jobs) - 1] >= channels[channel].late
    }

    /// Its place in the order, the first the smallest.
    fn key(&self, stage: &Stage, channels: &[Channel], channel: usize) -> i64 {
        match stage.order {
            Order::Deadline => {
                i64::from(self.work.queues[channel].effective[0]) * TICK_NS + channels[channel].bound_ns
            }
            Order::Rank => channels[channel].rank as i64,
        }
    }

    fn has_room(&self, stage: &Stage, ticks: u8) -> bool {
        let wire = &self.work.wire[..usize::from(self.work.on_wire)];
        match stage.gate {
            Gate::Alone => wire.is_empty() && self.work.unseen == 0,
            Gate::Window(window) => {
                wire.iter().map(|unit| unit.size).sum::<u8>() + self.work.unseen + ticks <= window
            }
            Gate::Clock(_) => self.work.unseen == 0,
        }
    }

    /// Whether a completion or the clock could be seen.
    fn can_see(&self, stage: &Stage) -> bool {
        match stage.gate {
            Gate::Clock(ahead) => self.work.unseen > 0 && self.work.due <= ahead,
            _ => self.work.unseen > 0,
        }
    }

    /// All possible next steps.
    pub fn steps(&self, stage: &Stage, channels: &[Channel], into: &mut Vec<Step>) {
        into.clear();
        let first = (0..channels.len()).filter(|&channel| self.unit_next(channels, channel).is_some());
        let urgent = first.clone().map(|channel| self.key(stage, channels, channel)).min();
        let heads = first.filter(|&channel| Some(self.key(stage, channels, channel)) == urgent);
        let mut served = false;
        let mut waits = urgent.is_none();
        for channel in heads {
            let fits = self.unit_next(channels, channel).is_some_and(|ticks| self.has_room(stage, ticks));
            if fits {
                into.push(Step::Serve(channel));
            }
            served |= fits;
            // Of equal heads, the one that does not fit may be checked first.
            waits |= !fits;
        }
        let short = (0..channels.len()).any(|channel| self.is_short_of(channels, channel));
        if waits && !short && !(self.can_see(stage) && self.work.waited >= stage.reaction) {
            into.push(Step::Tick { stolen: false });
            let busy = self.work.on_wire > 0;
            if busy && self.freedom.credit + stage.rho >= PARTS {
                into.push(Step::Tick { stolen: true });
            }
        }
        if self.can_see(stage) {
            into.push(Step::See);
        }
        if urgent.is_none() && !served {
            let lengths = (1..=stage.best_effort).filter(|&ticks| self.has_room(stage, ticks));
            into.extend(lengths.map(Step::BestEffort));
        }
        // The last choice is tried first: all messages that may be ready are, with the earliest e.
        for (index, channel) in channels.iter().enumerate() {
            if self.work.queues[index].missing > 0 {
                into.push(Step::More(index));
                continue;
            }
            let earliest = self.freedom.next[index].max(-channel.late);
            into.extend((earliest..=channel.early).rev().map(|e| Step::Ready(index, e)));
        }
    }

    /// The state after a step, with what is done by it in `done`.
    pub fn after(
        &self,
        step: Step,
        stage: &Stage,
        channels: &[Channel],
        done: &mut Vec<Done>,
    ) -> Result<Self, TooLarge> {
        let mut next = *self;
        match step {
            Step::Ready(channel, effective) => {
                let queue = &mut next.work.queues[channel];
                *queue.effective.get_mut(usize::from(queue.jobs)).ok_or(TooLarge)? = effective;
                queue.jobs += 1;
                queue.missing =
                    if channels[channel].apart { channels[channel].units.len() as u8 - 1 } else { 0 };
                next.freedom.next[channel] =
                    effective.checked_add(channels[channel].period).ok_or(TooLarge)?;
            }
            Step::More(channel) => next.work.queues[channel].missing -= 1,
            Step::Serve(channel) => next.serve(stage, channels, channel)?,
            Step::BestEffort(ticks) => {
                next.hand_over(stage, Unit { left: ticks, size: ticks, ends: NO_MESSAGE, effective: 0 })?;
            }
            Step::See => (next.work.unseen, next.work.waited) = (0, 0),
            Step::Tick { stolen } => next.tick(stolen, stage, channels, done)?,
        }
        Ok(next)
    }

    fn serve(&mut self, stage: &Stage, channels: &[Channel], channel: usize) -> Result<(), TooLarge> {
        let run = self.run_next(channels, channel);
        let queue = &mut self.work.queues[channel];
        let units = &channels[channel].units;
        let size = units[run.clone()].iter().sum();
        let mut unit = Unit { left: size, size, ends: NO_MESSAGE, effective: 0 };
        queue.handed = run.end as u8;
        if usize::from(queue.handed) == units.len() {
            (unit.ends, unit.effective) = (channel as i8, queue.effective[0]);
            queue.effective.rotate_left(1);
            queue.effective[JOBS_MAX - 1] = 0;
            queue.jobs -= 1;
            queue.handed = 0;
        }
        self.hand_over(stage, unit)
    }

    fn hand_over(&mut self, stage: &Stage, unit: Unit) -> Result<(), TooLarge> {
        let work = &mut self.work;
        *work.wire.get_mut(usize::from(work.on_wire)).ok_or(TooLarge)? = unit;
        work.on_wire += 1;
        if let Gate::Clock(ahead) = stage.gate {
            work.due += unit.size;
            (work.unseen, work.waited) = (u8::from(work.due > ahead), 0);
        }
        Ok(())
    }

    fn tick(
        &mut self,
        stolen: bool,
        stage: &Stage,
        channels: &[Channel],
        done: &mut Vec<Done>,
    ) -> Result<(), TooLarge> {
        self.pass_time(stolen, stage, channels)?;
        let could_see = self.can_see(stage);
        self.work.due = self.work.due.saturating_sub(1);
        self.work.waited += u8::from(could_see);
        let busy = self.work.on_wire > 0 && !stolen;
        if busy {
            self.work.wire[0].left -= 1;
        }
        if busy && self.work.wire[0].left == 0 {
            let unit = self.work.wire[0];
            self.work.wire.rotate_left(1);
            self.work.wire[WIRE_MAX - 1] = Unit::default();
            self.work.on_wire -= 1;
            if unit.ends != NO_MESSAGE {
                done.push(Done { channel: unit.ends as usize, response: -i16::from(unit.effective) });
            }
            if !matches!(stage.gate, Gate::Clock(_)) {
                self.work.unseen += unit.size;
            }
        }
        if stage.reaction == 0 && self.can_see(stage) {
            (self.work.unseen, self.work.waited) = (0, 0);
        }
        Ok(())
    }

    fn pass_time(&mut self, stolen: bool, stage: &Stage, channels: &[Channel]) -> Result<(), TooLarge> {
        let taken = if stolen { PARTS } else { 0 };
        self.freedom.credit = (self.freedom.credit + stage.rho - taken).min(stage.sigma);
        for (next, channel) in self.freedom.next.iter_mut().zip(channels) {
            *next = (*next - 1).max(-channel.late);
        }
        for queue in &mut self.work.queues {
            for effective in &mut queue.effective[..usize::from(queue.jobs)] {
                *effective = effective.checked_sub(1).ok_or(TooLarge)?;
            }
        }
        for unit in self.work.wire.iter_mut().filter(|unit| unit.ends != NO_MESSAGE && unit.size > 0) {
            unit.effective = unit.effective.checked_sub(1).ok_or(TooLarge)?;
        }
        Ok(())
    }

    /// A message that waits for longer than its bound.
    pub fn overdue(&self, channels: &[Channel]) -> Option<Done> {
        (0..channels.len()).find_map(|channel| {
            let queue = &self.work.queues[channel];
            let response = -i16::from(queue.effective[0]);
            let late = queue.jobs > 0 && i64::from(response) * TICK_NS > channels[channel].bound_ns;
            late.then_some(Done { channel, response })
        })
    }
}
