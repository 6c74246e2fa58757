//! What asking and opening beside many channels does to the witness' latency: the distribution beside the attack and beside
//! its control in turns, and how far two halves of the control's slices are apart (A/A).

use std::time::Duration;

use punctual::{Channel, Consent, Listener, Receiver};

use crate::attacker::{Mechanism, begin};
use crate::common::{PATIENCE, contract};
use crate::judge::{alone, long};
use crate::world::{Harm, SINK, SOURCE, Setup, World};

/// Beside the attack, unless `PUNCTUAL_ATTACK_CHANNELS` has another number: each takes four descriptors in the daemon.
const CHANNELS: usize = 100;
const LONG_CHANNELS: usize = 1_000;
const WANTED: &str = "PUNCTUAL_ATTACK_CHANNELS";
const SLICE: Duration = Duration::from_millis(500);
const LONG_SLICE: Duration = Duration::from_secs(4);
const SETUP: Setup = Setup {
    daemon: "channels_per_user_max = 30000\ndescriptors_per_user_max = 200000\nbuffers_per_user_max = \"4GiB\"",
    signalling: "packets_per_second = 500",
    link: "frames = 32768",
    period: Duration::from_millis(2),
    ..Setup::DEFAULT
};

/// Channels of root's that carry nothing.
struct Many {
    _channels: Vec<(Channel, Receiver)>,
    _listener: Listener,
}

impl Many {
    fn open(world: &World, count: usize) -> Self {
        let listener = world.watch[SINK].listen("many", |_| Consent::Accept).expect("a listener");
        let open = |_| {
            let channel = world.watch[SOURCE].open("many@b", contract(10, 1, 2_000)).expect("a channel");
            (channel, listener.accept_timeout(PATIENCE).expect("no error").expect("a channel"))
        };
        Self { _channels: (0..count).map(open).collect(), _listener: listener }
    }
}

/// In turns, as often as there is time.
struct Slices {
    /// No attack: CPUs sleep, and wake up more slowly.
    quiet: Vec<Harm>,
    controls: Vec<Harm>,
    attacks: Vec<Harm>,
}

fn measure(name: &str) -> Slices {
    let _alone = alone();
    let mechanism = Mechanism::find(name);
    let wanted = std::env::var(WANTED).ok().map(|text| text.parse().expect("a number of channels"));
    let (count, span, channels) = match long() {
        None => (2, SLICE, CHANNELS),
        Some(all) => ((all.as_secs() / 8).max(4) as usize, LONG_SLICE, LONG_CHANNELS),
    };
    let channels = wanted.unwrap_or(channels);
    let mut world = World::start(name, SETUP);
    let many = Many::open(&world, channels);
    let (mut quiet, mut controls, mut attacks) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..count {
        let before = world.memory();
        quiet.push(world.observe(span, &before));
        for (own, harms) in [(true, &mut controls), (false, &mut attacks)] {
            let before = world.memory();
            let _attacker = begin(&world, mechanism, own);
            harms.push(world.observe(span, &before));
        }
    }
    println!("{name} beside {channels} channels:");
    let slices = Slices { quiet, controls, attacks };
    slices.show();
    drop(many);
    world.end();
    slices
}

impl Slices {
    fn show(&self) {
        for (of, harms) in [("quiet", &self.quiet), ("control", &self.controls), ("attack", &self.attacks)] {
            let all = pool(harms);
            println!(
                "  {of}: {} lost, {} late of {}, p50 {} us, p99 {} us, p99.9 {} us, longest {} us, longest turn {:?}",
                all.lost,
                all.late,
                all.sent,
                all.quantile_us(0.5),
                all.quantile_us(0.99),
                all.quantile_us(0.999),
                all.quantile_us(1.0),
                all.longest_turn,
            );
        }
        let each = |harms: &[Harm]| harms.iter().map(|harm| harm.quantile_us(0.999)).collect::<Vec<_>>();
        println!(
            "  p99.9 by slice, us: control {:?}, attack {:?}",
            each(&self.controls),
            each(&self.attacks)
        );
        println!("  p99.9: {:+.0} us; half-width of A/A {:.0} us", self.moved_us(), self.half_width_us());
    }

    fn hold(&self) {
        assert!(self.lose_nothing(), "more are lost or late than beside the control");
        if long().is_some() {
            let (moved, half_width) = (self.moved_us(), self.half_width_us());
            assert!(moved <= half_width, "p99.9 is {moved} us higher, {half_width} us may be");
        }
    }

    /// In most slices the attack costs no message, and makes none late, beyond what the control does, or an idle run: a hole of the
    /// platform may lie in one.
    fn lose_nothing(&self) -> bool {
        let others = self.controls.iter().zip(&self.quiet);
        let is_worse = |(attack, (control, quiet)): (&Harm, (&Harm, &Harm))| {
            let allowed = attack.sent / 1_000;
            attack.lost > control.lost.max(quiet.lost) + allowed
                || attack.late > control.late.max(quiet.late) + allowed
        };
        self.attacks.iter().zip(others).filter(|slices| is_worse(*slices)).count() * 2 <= self.attacks.len()
    }

    /// By how much p99.9 beside the attack is higher than beside the control and than without either, whichever is less, in the
    /// middle of slices: a hole of the platform may lie in one. A control that keeps the CPUs awake shortens wake-ups, which is
    /// no merit of its.
    fn moved_us(&self) -> f64 {
        let beside = |others: &[Harm]| {
            let pairs = self.attacks.iter().zip(others);
            let mut moved: Vec<f64> = pairs.map(|(attack, other)| p999(attack) - p999(other)).collect();
            moved.sort_by(f64::total_cmp);
            moved[moved.len() / 2]
        };
        beside(&self.controls).min(beside(&self.quiet))
    }

    /// Of the 95 % interval of such a difference between two slices without an attack in a row, of the kind that differs more.
    fn half_width_us(&self) -> f64 {
        let of = |harms: &[Harm]| {
            let moved: Vec<f64> = harms.windows(2).map(|pair| p999(&pair[1]) - p999(&pair[0])).collect();
            let squares: f64 = moved.iter().map(|moved| moved * moved).sum();
            1.96 * (squares / moved.len() as f64).sqrt() / (harms.len() as f64).sqrt()
        };
        of(&self.controls).max(of(&self.quiet))
    }
}

fn p999(harm: &Harm) -> f64 {
    harm.quantile_us(0.999) as f64
}

fn pool(harms: &[Harm]) -> Harm {
    Harm {
        sent: harms.iter().map(|harm| harm.sent).sum(),
        lost: harms.iter().map(|harm| harm.lost).sum(),
        late: harms.iter().map(|harm| harm.late).sum(),
        longest_turn: harms.iter().map(|harm| harm.longest_turn).max().unwrap_or_default(),
        latencies_ns: harms.iter().flat_map(|harm| harm.latencies_ns.iter().copied()).collect(),
        ..Harm::default()
    }
}

/// Nothing is lost or late beyond the control; by itself also: p99.9 stays where it is.
#[test]
fn requesting_all_channels_without_end_changes_no_other_latency() {
    measure("channels-without-end").hold();
}

/// The same of who has admission decide on the contracts that are the hardest to decide on.
#[test]
fn opening_and_closing_the_worst_contracts_changes_no_other_latency() {
    measure("opens-and-closes").hold();
}
