//! Each attack once more at daemons without what holds it off (`make trials`): it must do harm there, or its row in
//! docs/SECURITY.md proves nothing. Its control, beside the same daemons, must do none.
//!
//! Needs the feature `trials`, which nothing that ships has. `PUNCTUAL_ATTACK` names one attack.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::attacker::{Mechanism, begin};
use crate::common::program::Program;
use crate::judge::{Round, alone};
use crate::measured::Measured;
use crate::world::{Setup, World};
use crate::{crowded, faults, kept, keys, owners, places, waits};

/// For the control and for the attack.
const SPAN: Duration = Duration::from_millis(800);
/// Of each: it does harm in most of them. A hole of the platform may make a turn longer, in one.
const TRIALS: usize = 5;
/// After which an attack that makes a daemon hang is ended, so that the daemon goes on.
const HUNG: Duration = Duration::from_secs(4);
const ONE: &str = "PUNCTUAL_ATTACK";

/// An attack, and the defences that are taken away.
const ROWS: &[(&str, &str)] = &[
    ("crowd-at-bell", "ringer"),
    ("nests-of-epolls", "ringer"),
    ("signals-at-every-change", "ringer,eventfd-bells"),
    ("full-bell", "ringer"),
    ("bell-into-hollow", "ringer,eventfd-bells"),
    ("bell-into-served", "ringer,eventfd-bells"),
    ("bell-into-handled", "ringer,eventfd-bells"),
    ("pages-taken-away", "sealed-rings,held-pages"),
    ("scribbled-rings", "checked-rings"),
    ("hoarded-rings", "quotas"),
    ("threads-of-all-priorities", "below-processor"),
    ("forged-signalling-xdp", "seals"),
    ("wrong-cookies-udp", "cookies"),
    ("errors-about-paths", "device-mtu"),
    ("doorbells-of-flows", "doorbell-allowance"),
    ("renumbered-recordings", "authentication"),
];

/// Attacks whose harm is not the witness'.
const MEASURED: [&[Measured]; 7] =
    [faults::ROWS, owners::ROWS, places::ROWS, waits::ROWS, crowded::ROWS, keys::ROWS, kept::ROWS];

#[test]
fn attacks_do_harm_where_what_holds_them_off_is_taken_away() {
    let _alone = alone();
    let one = std::env::var(ONE).ok();
    let rows = rows().filter(|row| one.as_ref().is_none_or(|one| one == row.name));
    let mut harmless = Vec::new();
    for (number, Row { name, without, trial }) in rows.enumerate() {
        let (mut harms, mut none) = (Vec::new(), 0);
        while harms.len().max(none) <= TRIALS / 2 {
            match trial() {
                Some(harm) => harms.push(harm),
                None => none += 1,
            }
        }
        let last = harms.last().map_or("no harm", String::as_str);
        println!(
            "| {} | {name} | {without} | {} of {} | {last} |",
            number + 1,
            harms.len(),
            harms.len() + none
        );
        if harms.len() < none {
            harmless.push(name);
        }
    }
    assert!(harmless.is_empty(), "no harm without their defences: {harmless:?}");
}

/// An attack, and how it is tried once: what harm it did, if any.
struct Row {
    name: &'static str,
    without: &'static str,
    trial: Box<dyn Fn() -> Option<String>>,
}

fn rows() -> impl Iterator<Item = Row> {
    let witnessed = ROWS.iter().map(|&(name, without)| {
        let trial = Box::new(move || trial(Mechanism::find(name), without));
        Row { name, without, trial }
    });
    let measured = MEASURED.into_iter().flatten().map(|row| Row {
        name: row.name,
        without: row.without,
        trial: Box::new(move || row.trial()),
    });
    witnessed.chain(measured)
}

/// What harm the attack did, if any, at daemons that lack `without`.
fn trial(mechanism: &Mechanism, without: &'static str) -> Option<String> {
    let mut world = World::start(mechanism.name, Setup { without, ..mechanism.setup });
    let before = world.memory();
    let peaceful = mechanism.begin_beside_control(&world);
    let mut attacker = begin(&world, mechanism, true);
    let control = world.observe(SPAN, &before);
    assert!(attacker.is_running(), "{}: the control has given up", mechanism.name);
    attacker.end();
    if let Some(peaceful) = peaceful {
        peaceful.end();
    }
    world.settle();
    let before = world.memory();
    let mut attacker = begin(&world, mechanism, false);
    let watched = Watched::new(attacker.pid(), world.daemons.each_ref().map(Program::pid));
    let attack = catch_unwind(AssertUnwindSafe(|| world.observe(SPAN, &before)));
    let has_hung = watched.end();
    let is_running = attacker.is_running();
    drop(attacker);
    let dead = world.dead();
    let harm = match attack {
        _ if has_hung => Some("a daemon hung".to_owned()),
        _ if dead > 0 => Some(format!("{dead} daemons died")),
        _ if !is_running => None,
        Err(_) => Some("the witness' channel ended, or had messages that were never sent".to_owned()),
        Ok(attack) => {
            let round = Round { control, attack };
            eprintln!("{}: {round}", mechanism.name);
            (!mechanism.bounds.hold(&round)).then(|| round.to_string())
        }
    };
    world.end();
    harm
}

/// Ends an attack that makes a daemon hang, and all daemons.
struct Watched {
    over: mpsc::Sender<()>,
    thread: std::thread::JoinHandle<bool>,
}

impl Watched {
    fn new(attacker: Pid, daemons: [Pid; 3]) -> Self {
        let (over, is_over) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            let has_hung = is_over.recv_timeout(SPAN + HUNG) == Err(mpsc::RecvTimeoutError::Timeout);
            if has_hung {
                // A process that has ended meanwhile is a zombie until the test drops it. Without the attacker a daemon that hangs in
                // the kernel goes on, and can be killed.
                for process in [attacker].into_iter().chain(daemons) {
                    let _ = kill_process(process, Signal::KILL);
                }
            }
            has_hung
        });
        Self { over, thread }
    }

    fn end(self) -> bool {
        let _ = self.over.send(());
        self.thread.join().expect("no panic")
    }
}
