//! The table of channels: its counts and indexes, and when each channel is due, under insertions, changes and
//! removals.

use alloc::collections::VecDeque;
use alloc::vec;

use punctual_analysis::{Contract, Nanos, Ppm, Rate};

use super::super::random::SplitMix64;
use super::super::resources::LocalChannel;
use super::*;
use crate::api::{CloseReason, RefuseCause, UserId};
use crate::ids::{ChannelNumber, Cookie, Epoch};

const LEFT: LinkId = LinkId(0);
const RIGHT: LinkId = LinkId(1);

fn contract() -> Contract {
    let rate = Rate::per_second(50).expect("a rate");
    Contract::new(1_000, rate, 1, Nanos::from_millis(100)).expect("valid")
}

fn channel(number: u64, role: Role, state: State, user: u32) -> Box<Channel> {
    let local = LocalChannel {
        channel: ChannelId(number),
        path: PathId { node: NodeId(1), channel: ChannelNumber(number as u32), epoch: Epoch(9) },
        cookie: Cookie(5),
        role,
        link_in: (role != Role::Source).then_some(LEFT),
        link_out: (role != Role::Sink).then_some(RIGHT),
        contract: Arc::new(contract()),
        fragment_bytes: 1_000,
        soft: None,
        handler_time: Nanos::ZERO,
    };
    let (port, host) = (Name::new("in").expect("a name"), Name::new("h3").expect("a name"));
    let route = ChannelRoute {
        from: Name::new("h1").expect("a name"),
        to: Address { port, host },
        nodes: vec![NodeId(1), NodeId(2), NodeId(3)],
        degraded: Vec::new(),
    };
    Box::new(Channel {
        local: Arc::new(local),
        route: Arc::new(route),
        position: 1,
        state,
        drift: Ppm(200),
        deadline: Timer::OFF,
        lease: Timer::OFF,
        reason: CloseReason::PathLost,
        setup: Some(Box::new(Setup { user: UserId(user), ..Setup::default() })),
    })
}

fn accounts_hold(channels: &Channels) {
    let accounts = channels
        .accounts()
        .into_iter()
        .chain(channels.link_accounts(LEFT))
        .chain(channels.link_accounts(RIGHT));
    let wrong: Vec<_> = accounts.filter(|(_, [counted, held])| counted != held).collect();
    assert!(wrong.is_empty(), "{wrong:?}");
}

/// Counts, paths, handles and timers agree with the channels in the table, after any insertions, changes and
/// removals.
#[test]
fn counts_are_those_of_the_channels_that_are_there() {
    const STATES: [State; 6] =
        [State::Creating, State::Asking, State::Accepted, State::Open, State::Draining, State::Settling];
    for seed in 0..40 {
        let mut random = SplitMix64::new(seed);
        let (mut channels, mut there) = (Channels::default(), Vec::new());
        for number in 1..200 {
            match random.below(3) {
                0 if !there.is_empty() => {
                    let id = there.swap_remove(random.below(there.len() as u64) as usize);
                    assert!(channels.take(id).is_some() && channels.take(id).is_none());
                }
                1 if !there.is_empty() => {
                    // Taken out, changed and put back, as every user of the table does.
                    let id = there[random.below(there.len() as u64) as usize];
                    let mut known = channels.take(id).expect("it is there");
                    known.state = STATES[random.below(6) as usize];
                    known.deadline = Timer::due(Instant(random.below(500)));
                    if random.below(2) == 0 {
                        known.setup = None;
                    }
                    channels.insert(known);
                    channels.renew(id, Instant(random.below(500)));
                }
                _ => {
                    let role = [Role::Source, Role::Forwarder, Role::Sink][random.below(3) as usize];
                    let state = STATES[random.below(6) as usize];
                    let mut new = channel(number, role, state, random.below(4) as u32);
                    if random.below(2) == 0 {
                        new.lease = Timer::due(Instant(random.below(500)));
                    }
                    there.push(new.local.channel);
                    channels.insert(new);
                }
            }
            accounts_hold(&channels);
            assert_eq!(channels.len(), there.len());
            let least = channels.iter().filter_map(|known| Some((known.wake()?, known.local.channel))).min();
            assert_eq!(channels.first_timer(), least, "seed {seed}");
            there.sort_unstable();
            let all = channels.chosen(|_| Some(()));
            assert!(all.iter().map(|(id, ())| id).eq(&there), "seed {seed}");
            assert!(channels.chosen(|_| None::<()>).is_empty());
            assert_eq!(channels.use_link(RIGHT), channels.count_on(RIGHT) > 0);
            assert_eq!(channels.has_sources(), channels.iter().any(|known| known.local.role == Role::Source));
        }
        for id in there {
            channels.take(id);
        }
        accounts_hold(&channels);
        let left = (channels.count_on(LEFT), channels.half_open(LEFT), channels.first_timer());
        assert_eq!((left, channels.use_link(RIGHT)), ((0, 0, None), false));
    }
}

/// Channels that wait for a listener are found by it, from the first handle that there is, in the order of
/// handles.
#[test]
fn channels_that_wait_for_a_listener_are_found_by_it() {
    let mut channels = Channels::default();
    accounts_hold(&channels);
    for (number, listener) in [(9, 2), (1, 2), (4, 1), (3, 2), (2, 3), (5, 1)] {
        let mut waits = channel(number, Role::Sink, State::Asking, 0);
        waits.setup_mut().listener = Some(ListenerId(listener));
        channels.insert(waits);
    }
    channels.insert(channel(6, Role::Sink, State::Asking, 0));
    let waiting = |channels: &Channels, listener| -> Vec<u64> {
        channels.asking(ListenerId(listener)).map(|id| id.0).collect()
    };
    assert_eq!([0, 1, 2, 3, 4].map(|of| waiting(&channels, of)), [&[][..], &[4, 5], &[1, 3, 9], &[2], &[]]);
    for (id, left) in [(1, &[3, 9][..]), (9, &[3]), (3, &[])] {
        channels.change(ChannelId(id), |channel| channel.state = State::Accepted);
        assert_eq!((waiting(&channels, 2), waiting(&channels, 1).len()), (left.to_vec(), 2));
        accounts_hold(&channels);
    }
}

/// A channel is half open if it came over a link and is not open yet. Their number per neighbour is limited.
#[test]
fn half_open_is_what_came_in_and_is_not_open_yet() {
    for (state, counts) in [
        (State::Creating, 1),
        (State::Asking, 1),
        (State::Accepted, 1),
        (State::Fitting, 0),
        (State::Open, 0),
        (State::Draining, 0),
    ] {
        let mut channels = Channels::default();
        channels.insert(channel(1, Role::Source, state, 7));
        assert_eq!((channels.half_open(LEFT), channels.half_open(RIGHT)), (0, 0), "{state:?}");
        channels.insert(channel(2, Role::Forwarder, state, 7));
        assert_eq!((channels.half_open(LEFT), channels.half_open(RIGHT)), (counts, 0), "{state:?}");
        assert_eq!((channels.count_on(LEFT), channels.count_on(RIGHT)), (1, 2));
    }
}

/// A lease is renewed if there is one. The earlier of deadline and lease is due first.
#[test]
fn a_lease_is_renewed_where_there_is_one() {
    let mut channels = Channels::default();
    channels.insert(channel(1, Role::Source, State::Open, 0));
    channels.renew(ChannelId(1), Instant(50));
    assert_eq!(channels.first_timer(), None, "a source has none");
    let mut leased = channel(2, Role::Forwarder, State::Open, 0);
    leased.lease = Timer::due(Instant(40));
    channels.insert(leased);
    assert_eq!(channels.first_timer(), Some((Instant(40), ChannelId(2))));
    channels.renew(ChannelId(2), Instant(90));
    assert_eq!(channels.first_timer(), Some((Instant(90), ChannelId(2))));
    let mut known = channels.take(ChannelId(2)).expect("it is there");
    known.deadline = Timer::due(Instant(60));
    channels.insert(known);
    channels.renew(ChannelId(2), Instant(120));
    assert_eq!(channels.first_timer(), Some((Instant(60), ChannelId(2))));
    accounts_hold(&channels);
}

#[test]
fn a_timer_is_over_once() {
    let mut timer = Timer::due(Instant(10));
    assert_eq!((timer.expires(Instant(9)), timer.at()), (false, Some(Instant(10))));
    assert!(timer.expires(Instant(10)) && timer == Timer::OFF && !timer.expires(Instant(u64::MAX - 1)));
    assert!(Timer::due(Instant(1)) < Timer::OFF && Timer::OFF.at().is_none());
}

/// The application is given the refusal with the nearest offer among those of all routes: the shortest
/// deadline, then the shortest interval. If no refusal has an offer, it is given the last one.
#[test]
fn the_refusal_with_the_nearest_offer_is_kept() {
    let refusal = |node: u32, offer: Option<(u64, u64)>| {
        let offer = offer.map(|(deadline_ms, interval_ms)| {
            let rate = Rate::every(Nanos::from_millis(interval_ms)).expect("a rate");
            Contract::new(1_000, rate, 1, Nanos::from_millis(deadline_ms)).expect("valid")
        });
        let (stages, hosts) = (Vec::new(), Vec::new());
        ChannelRefusal { node: NodeId(node), cause: RefuseCause::Exhausted, offer, stages, hosts }
    };
    let kept = |offers: &[Option<(u64, u64)>]| {
        let mut attempt = Attempt {
            user: UserId(0),
            probe: false,
            candidates: VecDeque::new(),
            best: None,
            offering: None,
            asked: None,
        };
        for (node, offer) in (0..).zip(offers) {
            attempt.note(refusal(node, *offer), vec![NodeId(node)]);
        }
        let (refusal, via) = attempt.best.expect("one was noted");
        assert_eq!(via, [refusal.node], "with its route");
        refusal.node.0
    };
    assert_eq!(kept(&[None, None]), 1, "the last");
    assert_eq!(kept(&[Some((50, 9)), None]), 0);
    assert_eq!(kept(&[None, Some((50, 9)), None]), 1);
    assert_eq!(kept(&[Some((50, 9)), Some((60, 1)), Some((70, 1))]), 0);
    assert_eq!(kept(&[Some((50, 9)), Some((40, 99))]), 1);
    assert_eq!(kept(&[Some((50, 9)), Some((50, 8)), Some((50, 10))]), 1);
    assert_eq!(kept(&[Some((50, 9)), Some((50, 9))]), 1, "of equal ones the last");
}

/// The next node of the route, and the requesting user, which is known until the stages are final.
#[test]
fn a_channel_has_its_next_node_and_its_requester() {
    let mut known = channel(1, Role::Forwarder, State::Creating, 7);
    assert_eq!(known.next(), Some(NodeId(3)));
    assert_eq!(known.source(), Some(Source { node: NodeId(1), user: UserId(7) }));
    known.position = 2;
    assert_eq!(known.take_setup().user, UserId(7));
    assert_eq!((known.next(), known.source(), known.take_setup().user), (None, None, UserId(0)));
}
