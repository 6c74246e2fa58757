//! Rings that show an application one message after the other: each once the one before was taken, and those of an application
//! that is fast in bounded portions, sink by sink.

use punctual_proto::api::{Event, OpenRequest, UserId};
use punctual_proto::{BitRate, Contract, Nanos, Rate};
use punctual_rig::{Open, SHOWN_AT_ONCE, TestInbox, World, name, pattern};

const MESSAGES: u64 = 20;

fn contract() -> Contract {
    let rate = Rate::per_second(1_000).expect("a rate");
    Contract::new(500, rate, MESSAGES as u32, Nanos::from_millis(50)).expect("in range")
}

/// Two hosts, and so many channels from the first to the second, whose rings show messages in turns.
fn with_channels(count: usize) -> (World, Vec<Open>) {
    let mut world = World::line(2, BitRate(100_000_000));
    world.run_for(Nanos::from_secs(1));
    let channels: Vec<_> = (0..count).map(|_| world.open(0, 1, contract()).expect("it fits")).collect();
    for open in &channels {
        open.inbox.show_in_turns();
    }
    (world, channels)
}

/// Sends messages over each channel, of which the first is shown and the others wait.
fn send_all(world: &mut World, channels: &[Open]) {
    for open in channels {
        for number in 0..MESSAGES {
            assert!(open.outbox.send(&pattern(1, number, 500), world.now));
        }
        world.nodes[0].handle_ring(open.source, world.now);
    }
    world.run_for(Nanos::from_millis(200));
    for open in channels {
        assert_eq!((shown(open), open.inbox.held_back()), (1, MESSAGES as usize - 1));
    }
}

fn shown(open: &Open) -> usize {
    open.inbox.waiting()
}

fn take(inbox: &TestInbox) -> Option<Vec<u8>> {
    let mut message = None;
    inbox.recv(|bytes, _| message = Some(bytes.to_vec()));
    message
}

#[test]
fn each_message_is_shown_once_the_one_before_was_taken() {
    let (mut world, channels) = with_channels(1);
    send_all(&mut world, &channels);
    let open = &channels[0];
    for number in 0..MESSAGES {
        assert_eq!(take(&open.inbox), Some(pattern(1, number, 500)), "{number}");
        world.run_for(Nanos::from_millis(1));
        assert_eq!(shown(open), 0, "nobody has said that it was taken");
        let taken = world.nodes[1].handle_ring_within(open.sink, 1, world.now);
        assert_eq!(taken, 0, "it takes nothing of what several rings may be served together");
        assert_eq!(shown(open), usize::from(number + 1 < MESSAGES), "{number}");
    }
    assert!(!world.nodes[1].has_leftovers(), "nothing waits");
}

/// An application that has not consented has no ring that could have anything to show.
#[test]
fn a_channel_without_a_ring_has_nothing_to_show() {
    let mut world = World::line(2, BitRate(100_000_000));
    world.run_for(Nanos::from_secs(1));
    world.nodes[1].listen(name("port")).expect("free");
    let to = "port@h2".parse().expect("an address");
    let request = OpenRequest { to, contract: contract(), user: UserId(0), probe: false, token: None };
    world.nodes[0].open(request, world.now).expect("it can be tried");
    world.run_for(Nanos::from_millis(100));
    let asked = world.events[1].iter().find_map(|event| match event {
        Event::Incoming(incoming) => Some(incoming.channel),
        _ => None,
    });
    world.nodes[1].handle_ring(asked.expect("it is asked"), world.now);
    assert!(!world.nodes[1].has_leftovers());
}

/// A channel that ends while its application is given one message after the other: the rest is delivered, and
/// no state is left.
#[test]
fn what_waits_for_its_turn_is_shown_when_the_channel_ends() {
    let (mut world, channels) = with_channels(1);
    send_all(&mut world, &channels);
    channels[0].inbox.become_eager();
    world.nodes[1].handle_ring(channels[0].sink, world.now);
    assert!(shown(&channels[0]) < MESSAGES as usize && world.nodes[1].has_leftovers());
    world.nodes[1].close(channels[0].sink, world.now).expect("it is open");
    world.run_for(Nanos::from_millis(1));
    assert_eq!(shown(&channels[0]), MESSAGES as usize);
    assert!(!world.nodes[1].has_leftovers());
}

/// An application that takes messages at once need signal it only once.
#[test]
fn an_eager_application_is_shown_all_in_portions_by_itself() {
    let (mut world, channels) = with_channels(1);
    send_all(&mut world, &channels);
    let open = &channels[0];
    open.inbox.become_eager();
    world.nodes[1].handle_ring(open.sink, world.now);
    let mut seen = 1;
    while open.inbox.held_back() > 0 {
        assert_eq!(shown(open), seen + SHOWN_AT_ONCE, "a portion");
        seen = shown(open);
        assert!(world.nodes[1].poll_timeout().is_some_and(|due| due <= world.now), "it wants to go on");
        world.nodes[1].handle_timeout(world.now);
    }
    assert_eq!(shown(open), MESSAGES as usize);
    let numbers = std::iter::from_fn(|| take(&open.inbox));
    assert!(numbers.eq((0..MESSAGES).map(|number| pattern(1, number, 500))), "in their order");
}

/// However often one of two applications signals that it has taken a message, it gets no more turns for that.
#[test]
fn eager_applications_have_turns_one_after_the_other() {
    let (mut world, channels) = with_channels(2);
    send_all(&mut world, &channels);
    channels.iter().for_each(|open| open.inbox.become_eager());
    let [one, other] = &channels[..] else { panic!("two channels") };
    world.nodes[1].handle_ring(other.sink, world.now);
    let again = 3;
    (0..again).for_each(|_| world.nodes[1].handle_ring(one.sink, world.now));
    let portion = SHOWN_AT_ONCE;
    assert_eq!([one, other].map(shown), [1 + again * portion, 1 + portion]);
    for turn in 1..=2 {
        for (who, by) in [(other, [0, 1]), (one, [1, 1])] {
            world.nodes[1].handle_timeout(world.now);
            let expected =
                [again + turn - 1 + by[0], turn - 1 + 1 + by[1]].map(|portions| 1 + portions * portion);
            assert_eq!([one, other].map(shown), expected, "turn {turn} of {:?}", who.sink);
        }
    }
    world.run_for(Nanos::from_millis(1));
    assert_eq!([one, other].map(shown), [MESSAGES as usize; 2]);
}
