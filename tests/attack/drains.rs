//! Channels that are closed while their messages may still come, for an hour: what they keep on their way, and whose quota counts
//! it. One user opens and closes them as fast as it may, its programs at both ends; another one wants a channel through the same
//! relay.

use std::time::{Duration, Instant};

use punctual::{Consent, Contract, Delivery, Endsystem, Horizon, Listener, Nanos, Rate};

use crate::common::users::as_user;
use crate::common::{PATIENCE, eventually};
use crate::judge::{alone, long};
use crate::world::{BYSTANDER, RELAY, SINK, SOURCE, Setup, World};

/// An account that no user of this system has.
const GREEDY: u32 = 3_200_000;
/// The greedy user may have so many channels open or draining. A relay has frames for some eight.
const SETUP: Setup =
    Setup { daemon: "channels_per_user_max = 4\nrequest_share_per_user_max = \"50%\"", ..Setup::DEFAULT };
/// What one of its channels takes at the relay, at most.
const ONE_BYTES_MAX: u64 = 1_600_000;
const CYCLES: usize = 24;
const BYTES: u32 = 60_000;

/// Great messages, seldom, that may be under way for an hour; `number`: held at a relay, at the sink, or nowhere.
fn great(number: usize, deadline: Nanos) -> Contract {
    let rate = Rate::every(Nanos(deadline.0 / 6)).expect("a rate");
    let contract = Contract::new(BYTES, rate, 1, deadline).expect("a contract");
    match number % 3 {
        0 => Contract { horizon: Horizon::Regulated, ..contract },
        1 => Contract { delivery: Delivery::AtDeadline, ..contract },
        _ => contract,
    }
}

/// The greedy user's programs.
struct Greedy {
    source: Endsystem,
    _sink: Endsystem,
    listener: Listener,
}

impl Greedy {
    fn begin(world: &World) -> Self {
        let connect =
            |host: usize| as_user(GREEDY, || world.daemons[host].connect()).expect("it is root's test");
        let (source, sink) = (connect(SOURCE), connect(SINK));
        let listener = sink.listen("greedy", |_| Consent::Accept).expect("a listener");
        Self { source, _sink: sink, listener }
    }

    /// Opens, sends perhaps, closes, and closes the other end, too, while the hosts between wait for what may still come. `false`
    /// where it is refused.
    fn cycle(&self, number: usize, deadline: Nanos) -> bool {
        let Ok(mut channel) = self.source.open("greedy@b", great(number, deadline)) else { return false };
        let receiver = self.listener.accept_timeout(PATIENCE).expect("no error").expect("a channel");
        if !number.is_multiple_of(4) {
            channel.try_send(&[7; BYTES as usize]).expect("room for one");
            std::thread::sleep(Duration::from_millis(20));
        }
        drop(channel);
        // The others learn of the end before the receiver's program ends.
        std::thread::sleep(Duration::from_millis(150));
        drop(receiver);
        true
    }
}

fn buffer_bytes(world: &World, host: usize) -> u64 {
    world.watch[host].status().expect("status").node.buffer_bytes
}

/// A channel as another user wants it.
fn modest() -> Contract {
    let rate = Rate::every(Nanos::from_millis(500)).expect("a rate");
    Contract::new(40_000, rate, 1, Nanos::from_secs(2)).expect("a contract")
}

/// Beside its control, which does the same with channels of D = 600 ms, the channel that is watched carries its messages; and
/// when it has gone on for long there is room at the relay for others, and no host keeps anything of what was closed.
#[test]
fn closing_channels_with_messages_under_way_for_an_hour_takes_no_relay_from_others() {
    let _alone = alone();
    let mut world = World::start("drains", SETUP);
    let _listener = world.watch[SINK].listen("measured", |_| Consent::Accept).expect("a listener");
    let bystander = as_user(BYSTANDER, || world.daemons[SOURCE].connect()).expect("it is root's test");
    let idle = [SOURCE, RELAY, SINK].map(|host| buffer_bytes(&world, host));
    let greedy = Greedy::begin(&world);
    let memory = world.memory();
    for (of, deadline) in [("control", Nanos::from_millis(600)), ("attack", Nanos::from_secs(3_600))] {
        let until = Instant::now() + long().unwrap_or_default() / 2;
        let (mut cycles, mut refused) = (0, 0);
        while cycles + refused < CYCLES || Instant::now() < until {
            let is_open = greedy.cycle(cycles + refused, deadline);
            (cycles, refused) = (cycles + usize::from(is_open), refused + usize::from(!is_open));
            let kept = buffer_bytes(&world, RELAY) - idle[1];
            assert!(kept <= 4 * ONE_BYTES_MAX, "{of}: {kept} B at the relay after {cycles} cycles");
        }
        let harm = world.observe(Duration::from_millis(300), &memory);
        let kept = buffer_bytes(&world, RELAY) - idle[1];
        eprintln!("{of}: {cycles} cycles, {refused} refused, {kept} B kept at the relay, {} lost", harm.lost);
        assert!(harm.lost * 10 <= harm.sent, "{of}: {} of {} lost", harm.lost, harm.sent);
        assert_eq!(refused, 0, "{of}: its quota is free again after each");
        let probed = bystander.probe("measured@b", modest());
        let opened = bystander.open("measured@b", modest());
        assert!(probed.is_ok() && opened.is_ok(), "{of}: {:?}, {:?}", probed.err(), opened.err());
    }
    drop(greedy);
    eventually("nothing is kept of what was closed", || {
        [SOURCE, RELAY, SINK].map(|host| buffer_bytes(&world, host)) == idle
    });
    world.end();
}
