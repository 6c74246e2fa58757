//! Users who open channels of the greatest bursts at one moment: their tables are installed one after the other, and the
//! memory for them is there before. Their programs are threads of this test, whose connections were made under their users.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use punctual::{Channel, Consent, Contract, Endsystem, Listener, Nanos, Rate, Receiver};
use punctual_ipc::ring::RingShape;
use punctual_ipc::shm::Region;

use crate::common::users::as_user;
use crate::judge::{Bounds, ROUNDS_MAX, Round, alone};
use crate::world::{Harm, SINK, SOURCE, Setup, World};

/// Accounts that no user of this system has.
const FIRST_USER: u32 = 3_200_000;
const USERS: u32 = 12;
/// Of each user.
const CHANNELS: usize = 6;
const BURST: u32 = 65_536;
const BYTES: u32 = 8;
/// One check of the channel that must not be disturbed.
const SPAN: Duration = Duration::from_secs(1);
/// Until all have opened, at most.
const OPENING: Duration = Duration::from_secs(120);
/// Between two checks whether that is so.
const LOOK: Duration = Duration::from_millis(100);
/// What the users' channels take, and what is ready beside them.
const BOUNDS: Bounds = Bounds { grown_kib_max: 2 << 20, ..Bounds::DEFAULT };
/// Channels open as fast as can be: the share of requests and the budget of signalling are not what is attacked.
const SETUP: Setup = Setup {
    daemon: "buffers_per_user_max = \"256MiB\"\nrequest_share_per_user_max = \"50%\"",
    signalling: "packets_per_second = 2000",
    ..Setup::DEFAULT
};

fn greatest() -> Contract {
    let rate = Rate::per_second(10).expect("a rate");
    Contract::new(BYTES, rate, BURST, Nanos::from_millis(900)).expect("a contract")
}

/// Who is refused by a host that others keep busy tries again.
fn open_all(host: &Endsystem, together: &Barrier) -> Vec<Channel> {
    together.wait();
    let (until, mut open) = (Instant::now() + OPENING, Vec::new());
    while open.len() < CHANNELS && Instant::now() < until {
        match host.open("bursts@b", greatest()) {
            Ok(channel) => open.push(channel),
            Err(error) => eprintln!("bursts-at-once: {error}"),
        }
    }
    open
}

/// All users open at one moment, while the channel is watched, until all have opened; what they have opened stays until the
/// end.
fn opened_at_once(world: &mut World, connections: &[Endsystem]) -> (Harm, usize) {
    let (before, together) = (world.memory(), &Barrier::new(connections.len() + 1));
    std::thread::scope(|scope| {
        let begin = |host| scope.spawn(move || open_all(host, together));
        let users: Vec<_> = connections.iter().map(begin).collect();
        together.wait();
        let mut harm = world.observe(SPAN, &before);
        // The last check is after the last open.
        let mut is_over = false;
        while !is_over {
            is_over = users.iter().all(|user| user.is_finished());
            harm.add(world.observe(SPAN, &before));
        }
        let open: Vec<_> = users.into_iter().flat_map(|user| user.join().expect("no panic")).collect();
        (harm, open.len())
    })
}

/// As much memory as one user's rings, of this program's own.
fn map_all(together: &Barrier) {
    together.wait();
    let bytes = RingShape::new(BURST, BYTES).expect("a shape").file_bytes();
    drop((0..CHANNELS).map(|_| Region::create(bytes).expect("a ring")).collect::<Vec<_>>());
}

/// The control.
fn mapped_at_once(world: &mut World) -> Harm {
    let (before, together) = (world.memory(), &Barrier::new(USERS as usize + 1));
    std::thread::scope(|scope| {
        (0..USERS).for_each(|_| drop(scope.spawn(move || map_all(together))));
        together.wait();
        world.observe(SPAN, &before)
    })
}

/// Takes what comes until it is over, and keeps it.
fn accept_until(listener: &Listener, is_over: &AtomicBool) -> Vec<Receiver> {
    let mut receivers = Vec::new();
    while !is_over.load(Ordering::SeqCst) {
        receivers.extend(listener.accept_timeout(LOOK).expect("no error"));
    }
    receivers
}

fn round() -> Round {
    let mut world = World::start("bursts-at-once", SETUP);
    let listener = world.watch[SINK].listen("bursts", |_| Consent::Accept).expect("a listener");
    let control = mapped_at_once(&mut world);
    let connect = |user| as_user(user, || world.daemons[SOURCE].connect()).expect("it is root's test");
    let users: Vec<_> = (FIRST_USER..FIRST_USER + USERS).map(connect).collect();
    let faults = world.faults();
    let is_over = AtomicBool::new(false);
    let (attack, _receivers) = std::thread::scope(|scope| {
        let accepting = scope.spawn(|| accept_until(&listener, &is_over));
        let (attack, opened) = opened_at_once(&mut world, &users);
        is_over.store(true, Ordering::SeqCst);
        assert_eq!(opened, CHANNELS * USERS as usize);
        (attack, accepting.join().expect("no panic"))
    });
    let (faults, waits) = (world.faults() - faults, world.heap_waits());
    drop(users);
    world.end().hold("bursts-at-once");
    let round = Round { control, attack };
    eprintln!("bursts-at-once: {round}, {faults} faults, {waits} waits for memory");
    assert_eq!((faults, waits), (0, 0), "the processor waits for no memory");
    round
}

#[test]
fn simultaneous_opens_of_the_greatest_bursts_make_no_turn_longer() {
    let _alone = alone();
    assert!((0..ROUNDS_MAX).any(|_| BOUNDS.hold(&round())), "{ROUNDS_MAX} times worse than the control");
}
