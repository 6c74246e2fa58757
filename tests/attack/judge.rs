//! An attack against its control: the same program, which does the same to objects of its own.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::attacker::{Attacker, Mechanism, begin};
use crate::world::{Harm, Memory, World};

/// Of one run in `make test`; by itself each is longer.
const SPAN: Duration = Duration::from_millis(320);
const LONG_SPAN: Duration = Duration::from_secs(2);
/// Runs of each in `make test`, at most: a hole of the platform may lie in a turn.
pub const ROUNDS_MAX: usize = 4;
/// How long each attack goes on by itself, in seconds.
const LONG: &str = "PUNCTUAL_ATTACK_SECONDS";
const TURN_SLACK: Duration = Duration::from_micros(200);

/// There is one machine: one attack at a time has it.
static ALONE: Mutex<()> = Mutex::new(());

pub fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// For how long a test goes on by itself; `None` in `make test`.
pub fn long() -> Option<Duration> {
    let text = std::env::var(LONG).ok()?;
    Some(Duration::from_secs(text.parse().unwrap_or_else(|_| panic!("{LONG}: not a number"))))
}

/// How many messages may be lost.
#[derive(Clone, Copy, Debug)]
pub enum Losses {
    /// No more than beside the control.
    AsControl,
    /// The control itself keeps a CPU for so long that receive buffers overflow: twice as many, and one in twenty.
    TwiceControl,
}

/// What is asked of a mechanism beside its control.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    pub losses: Losses,
    /// `None` if a longer turn is documented.
    pub turn_slack: Option<Duration>,
    /// By which any daemon may grow beyond the control.
    pub grown_kib_max: u64,
    /// What the attack may add to what any processor takes of a CPU; `None` if that is documented elsewhere.
    pub processor_share_max: Option<f64>,
}

/// In a row beside its control.
#[derive(Clone, Debug)]
pub struct Round {
    pub control: Harm,
    pub attack: Harm,
}

impl std::fmt::Display for Round {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { control, attack } = self;
        write!(
            f,
            "lost {} (control {}), late {} ({}) of {}, longest turn {:?} ({:?}), KiB grown {} ({}), processor {:.0} % \
             ({:.0})",
            attack.lost,
            control.lost,
            attack.late,
            control.late,
            attack.sent,
            attack.longest_turn,
            control.longest_turn,
            attack.grown.resident_kib,
            control.grown.resident_kib,
            attack.processor_share * 100.0,
            control.processor_share * 100.0,
        )
    }
}

impl Bounds {
    pub const DEFAULT: Self = Self {
        losses: Losses::AsControl,
        turn_slack: Some(TURN_SLACK),
        grown_kib_max: 6 << 10,
        processor_share_max: None,
    };

    pub fn hold(&self, round: &Round) -> bool {
        let Round { control, attack } = round;
        let lost_max = match self.losses {
            Losses::AsControl => control.lost,
            Losses::TwiceControl => 2 * control.lost + attack.sent / 20,
        };
        let turn_max = self.turn_slack.map(|slack| control.longest_turn + slack);
        let grown = |memory: Memory| memory.resident_kib.max(memory.locked_kib);
        turn_max.is_none_or(|max| attack.longest_turn <= max)
            && attack.lost <= lost_max
            && attack.late <= 2 * control.late + attack.sent / 20
            && self
                .processor_share_max
                .is_none_or(|max| attack.processor_share <= control.processor_share + max)
            && grown(attack.grown) <= grown(control.grown) + self.grown_kib_max
    }
}

/// Fails where the attack does more harm than its control, in every round of a short run, or in the middle of a long one.
pub fn hold(name: &str) {
    let mechanism = Mechanism::find(name);
    let _alone = alone();
    let Some(span) = long() else {
        let is_fine = |_| mechanism.bounds.hold(&round(mechanism, SPAN));
        assert!((0..ROUNDS_MAX).any(is_fine), "{name}: {ROUNDS_MAX} times worse than its control");
        return;
    };
    let until = Instant::now() + span;
    let mut rounds = vec![round(mechanism, LONG_SPAN)];
    while Instant::now() < until {
        rounds.push(round(mechanism, LONG_SPAN));
    }
    let all = sum_up(&rounds);
    report(mechanism, rounds.len(), &all);
    assert!(mechanism.bounds.hold(&all), "{name}: worse than its control");
}

/// The control and the attack, for `span` each, at the same daemons, which end in time while the attack goes on. The longest turn of
/// the attack is that of both: whether it is longer than the control's is what is asked.
fn round(mechanism: &Mechanism, span: Duration) -> Round {
    let mut world = World::start(mechanism.name, mechanism.setup);
    let peaceful = mechanism.begin_beside_control(&world);
    let (control, attacker) = slice(mechanism, &mut world, true, span);
    attacker.end();
    if let Some(peaceful) = peaceful {
        peaceful.end();
    }
    world.settle();
    let (attack, attacker) = slice(mechanism, &mut world, false, span);
    let ends = world.end();
    drop(attacker);
    ends.hold(mechanism.name);
    Round { control, attack }
}

/// What an attack does for `span`; it goes on.
fn slice(mechanism: &Mechanism, world: &mut World, own: bool, span: Duration) -> (Harm, Attacker) {
    let before = world.memory();
    let mut attacker = begin(world, mechanism, own);
    let faults = world.faults();
    let harm = world.observe(span, &before);
    let faults = world.faults() - faults;
    let waits = world.heap_waits();
    let of = if own { "control" } else { "attack" };
    assert!(attacker.is_running(), "{}: the {of} has given up", mechanism.name);
    let Harm { sent, lost, late, longest_turn, grown: Memory { resident_kib, locked_kib }, .. } = &harm;
    let percent = harm.processor_share * 100.0;
    let p99_us = harm.quantile_us(0.99);
    eprintln!(
        "{} {of}: {lost} lost, {late} late of {sent}, longest turn {longest_turn:?}, p99 {p99_us} us, {resident_kib} KiB more \
         resident, {locked_kib} locked, {faults} faults, {waits} waits for memory, processor {percent:.1} %",
        mechanism.name,
    );
    (harm, attacker)
}

/// All messages of all rounds, and the turn and the memory in the middle.
fn sum_up(rounds: &[Round]) -> Round {
    let of = |pick: fn(&Round) -> &Harm| {
        let harms: Vec<&Harm> = rounds.iter().map(pick).collect();
        let sum = |number: fn(&Harm) -> u64| harms.iter().map(|harm| number(harm)).sum();
        let middle = |number: fn(&Harm) -> u64| {
            let mut numbers: Vec<u64> = harms.iter().map(|harm| number(harm)).collect();
            numbers.sort_unstable();
            numbers[numbers.len() / 2]
        };
        Harm {
            sent: sum(|harm| harm.sent),
            // A hole of the platform may take one in a thousand.
            lost: sum(|harm| harm.lost),
            late: sum(|harm| harm.late),
            longest_turn: Duration::from_nanos(middle(|harm| harm.longest_turn.as_nanos() as u64)),
            grown: Memory {
                resident_kib: middle(|harm| harm.grown.resident_kib),
                locked_kib: middle(|harm| harm.grown.locked_kib),
            },
            processor_share: harms.iter().map(|harm| harm.processor_share).sum::<f64>() / harms.len() as f64,
            latencies_ns: harms.iter().flat_map(|harm| harm.latencies_ns.iter().copied()).collect(),
        }
    };
    let (mut control, attack) = (of(|round| &round.control), of(|round| &round.attack));
    control.lost += control.sent / 1_000;
    Round { control, attack }
}

fn report(mechanism: &Mechanism, rounds: usize, Round { control, attack }: &Round) {
    println!("| {} | {} | {rounds} rounds |", mechanism.name, mechanism.guards);
    for (of, harm) in [("control", control), ("attack", attack)] {
        println!(
            "|   {of}: {} of {} lost, {} late, turn {:?}, p50 {} us, p99 {} us, p99.9 {} us, processor {:.1} % |",
            harm.lost,
            harm.sent,
            harm.late,
            harm.longest_turn,
            harm.quantile_us(0.5),
            harm.quantile_us(0.99),
            harm.quantile_us(0.999),
            harm.processor_share * 100.0,
        );
    }
}

impl Harm {
    /// What was seen later in the same attack.
    pub fn add(&mut self, later: Self) {
        self.sent += later.sent;
        self.lost += later.lost;
        self.late += later.late;
        self.longest_turn = self.longest_turn.max(later.longest_turn);
        self.grown = self.grown.max(later.grown);
        self.processor_share = self.processor_share.max(later.processor_share);
        self.latencies_ns.extend(later.latencies_ns);
    }

    /// Of the messages that came.
    pub fn quantile_us(&self, share: f64) -> u64 {
        let mut sorted = self.latencies_ns.clone();
        sorted.sort_unstable();
        let at = (sorted.len() as f64 * share) as usize;
        sorted.get(at.min(sorted.len().saturating_sub(1))).map_or(0, |ns| ns / 1_000)
    }
}
