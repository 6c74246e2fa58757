//! Users who send requests without end, on links with the pace of signalling: others open as before, no
//! channel ends, and each has its share.

use std::collections::{BTreeMap, BTreeSet};

use punctual_analysis::Nanos;
use punctual_proto::api::{Event, OpenRequest, RefuseCause, UserId};
use punctual_proto::ids::{Address, ChannelId};

use crate::network::{Agent, MILLI, Network, SECOND, contract, name};

/// Between two packets: the default of `packets_per_second`.
const PACE: u64 = 20 * MILLI;
/// Hosts whose opens are measured.
const WITNESS: UserId = UserId(1_000);
/// How often the crowd tries, and how often at once, all of it together.
const TRIES_EVERY: u64 = 10 * MILLI;
const TRIES: usize = 60;

/// A request of a user of a crowd.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Wish {
    /// Requests to a listener that is not there.
    Nobody,
    /// Channels to one.
    NoListener,
    /// A probe.
    Probe,
    /// Channels to a listener that consents, and then closed.
    OpenAndClose,
}

impl Wish {
    /// The users of a crowd, one after the other.
    const fn of(user: u64) -> Self {
        [Self::Nobody, Self::NoListener, Self::Probe, Self::OpenAndClose][user as usize % 4]
    }
}

struct Crowd {
    network: Network,
    /// The host that each of it is at.
    users: Vec<(usize, Wish)>,
    /// The host that they send requests to.
    to: usize,
    opened: BTreeMap<ChannelId, u64>,
    /// For each, the number of its requests that were answered from elsewhere.
    answered: Vec<u64>,
    asked: BTreeMap<(usize, u64), usize>,
    channels: BTreeMap<(usize, ChannelId), usize>,
    /// The channels of the witness: by the host where they start, and those that have ended or were refused.
    own: BTreeSet<(usize, ChannelId)>,
    ended: Vec<Event>,
}

impl Crowd {
    /// Hosts in a row at that pace, with a lease that no queue of a second survives, and a channel of the witness from the
    /// first to the last and one back.
    fn new(seed: u64, hosts: usize, users: Vec<(usize, Wish)>) -> Self {
        let mut network = Network::line(seed, hosts, |_, config| {
            config.signalling.lease = Nanos::from_secs(1);
        });
        network.run(SECOND);
        network.pace = PACE;
        let mut own = BTreeSet::new();
        for (from, to) in [(0, hosts - 1), (hosts - 1, 0)] {
            let request = OpenRequest { user: WITNESS, ..network.request(to, 200) };
            let channel = network.at(from, |s, now, stages| s.open(request, now, stages));
            own.insert((from, channel.expect("can be tried")));
        }
        network.run(2 * SECOND);
        network.hosts.iter_mut().for_each(|host| host.events.clear());
        let answered = vec![0; users.len()];
        let (opened, asked, channels) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        Self { network, users, to: hosts - 1, opened, answered, asked, channels, own, ended: Vec::new() }
    }

    fn ask(&mut self, index: usize) {
        let (host, wish) = self.users[index];
        let user = UserId(index as u32);
        let to = self.network.hosts[self.to].name();
        let port = if wish == Wish::OpenAndClose || wish == Wish::Probe { "in" } else { "nobody" };
        let to = Address { port: name(port), host: to };
        if wish == Wish::Nobody {
            let asked =
                self.network.at(host, |s, now, _| s.request(&to, name("in"), contract(50), user, now));
            self.asked.extend(asked.into_iter().map(|token| ((host, token), index)));
            return;
        }
        let probe = wish == Wish::Probe;
        let request = OpenRequest { to, contract: contract(200), user, probe, token: None };
        let tried = self.network.at(host, |s, now, stages| s.open(request, now, stages));
        self.channels.extend(tried.into_iter().map(|channel| ((host, channel), index)));
    }

    /// Takes the events of applications.
    fn take_events(&mut self) {
        for host in 0..self.network.hosts.len() {
            let events = std::mem::take(&mut self.network.hosts[host].events);
            events.into_iter().for_each(|event| self.take_event(host, event));
        }
    }
    fn take_event(&mut self, host: usize, event: Event) {
        let far = |refusal: &RefuseCause| matches!(refusal, RefuseCause::NoListener(_));
        let whose = |channel: &ChannelId| self.channels.get(&(host, *channel)).copied();
        let index = match &event {
            Event::RequestFailed { token, refusal } if far(&refusal.cause) => {
                self.asked.get(&(host, *token)).copied()
            }
            Event::Refused { channel, refusal } if far(&refusal.cause) => whose(channel),
            Event::Probed { channel, answer: Ok(_) } => whose(channel),
            Event::Opened { channel, .. } => {
                self.opened.insert(*channel, self.network.now);
                let index = whose(channel);
                if index.is_some() {
                    self.network.at(host, |s, now, stages| {
                        s.close(*channel, punctual_proto::api::CloseReason::Local, now, stages).ok();
                        s.drained(*channel, now, stages);
                    });
                }
                index
            }
            Event::Closed { channel, .. } | Event::Refused { channel, .. }
                if self.own.contains(&(host, *channel)) =>
            {
                self.ended.push(event);
                None
            }
            _ => None,
        };
        index.into_iter().for_each(|index| self.answered[index] += 1);
    }

    /// The crowd sends requests for this long.
    fn press(&mut self, nanos: u64) {
        let until = self.network.now + nanos;
        while self.network.now < until {
            for _ in 0..TRIES / self.users.len() {
                (0..self.users.len()).for_each(|index| self.ask(index));
            }
            self.network.run(TRIES_EVERY);
            self.take_events();
        }
    }

    /// How long the witness' open from `from` takes meanwhile, in milliseconds, if it opens within 10 s.
    fn open(&mut self, from: usize) -> Option<u64> {
        let begun = self.network.now;
        let request = OpenRequest { user: WITNESS, ..self.network.request(self.to, 200) };
        let channel = self.network.at(from, |s, now, stages| s.open(request, now, stages)).expect("tried");
        self.own.insert((from, channel));
        while self.network.now < begun + 10 * SECOND {
            self.press(TRIES_EVERY);
            if let Some(at) = self.opened.get(&channel) {
                return Some((at - begun) / MILLI);
            }
        }
        None
    }
}

/// Longest of ten opens from `from`, and the crowd afterwards; no channel has ended.
fn opens_beside(mut crowd: Crowd, from: usize) -> (Vec<Option<u64>>, Crowd) {
    crowd.network.rarely = true;
    crowd.press(3 * SECOND);
    let opens: Vec<_> = (0..10).map(|_| crowd.open(from)).collect();
    println!("opens take {opens:?} ms; answered {:?}", crowd.answered);
    crowd.press(3 * SECOND);
    assert_eq!(crowd.ended, [], "channels of the witness");
    (opens, crowd)
}

#[test]
fn requests_to_an_absent_host_delay_no_other() {
    let (opens, _) = opens_beside(Crowd::new(1, 2, vec![(0, Wish::Nobody)]), 0);
    assert!(opens.iter().all(|open| open.is_some_and(|ms| ms <= 250)), "{opens:?}");
}

#[test]
fn fifteen_users_that_request_everything_end_no_channel_and_share_equally() {
    let users: Vec<_> = (0..15).map(|user| (0, Wish::of(user))).collect();
    let (opens, crowd) = opens_beside(Crowd::new(2, 2, users), 0);
    assert!(opens.iter().all(|open| open.is_some_and(|ms| ms <= 500)), "{opens:?}");
    for wish in 0..4 {
        let alike: Vec<_> = crowd.answered.iter().skip(wish).step_by(4).copied().collect();
        let (least, most) = (alike.iter().min().copied(), alike.iter().max().copied());
        let is_fair = least.zip(most).is_some_and(|(least, most)| least > 20 && most <= least * 5 / 4 + 5);
        assert!(is_fair, "{:?}: {alike:?}", Wish::of(wish as u64));
    }
}

/// Fifteen users of the first host, and the only one of the relay: it has half of the link.
#[test]
fn a_crowd_that_passes_a_relay_keeps_its_users_waiting_no_longer() {
    let users: Vec<_> = (0..15).map(|user| (0, Wish::of(user))).collect();
    let (opens, _) = opens_beside(Crowd::new(3, 3, users), 1);
    assert!(opens.iter().all(|open| open.is_some_and(|ms| ms <= 500)), "{opens:?}");
}

/// A request that cannot be sent in time is refused for that reason, by its host, and does not time out; with
/// a listener that does not reply, too.
#[test]
fn what_waits_for_too_long_is_refused_with_its_reason() {
    let mut network = Network::line(4, 2, |_, config| config.links[0].packet_bytes_max = 192);
    network.hosts[1].agent = Agent::Silent;
    network.run(SECOND);
    network.pace = PACE;
    for _ in 0..400 {
        network.open(0, 1, 200);
    }
    let source = Address { port: name("in"), host: network.hosts[1].name() };
    let user = UserId(8);
    for _ in 0..200 {
        network.at(0, |s, now, _| s.request(&source, name("in"), contract(50), user, now)).expect("tried");
    }
    network.run(6 * SECOND);
    let busy = |cause: &RefuseCause| *cause == RefuseCause::Busy(network.hosts[1].config.id);
    let opens = network.count(0, |e| matches!(e, Event::Refused { refusal, .. } if busy(&refusal.cause)));
    let requests =
        network.count(0, |e| matches!(e, Event::RequestFailed { refusal, .. } if busy(&refusal.cause)));
    assert!(opens > 100 && requests > 100, "{opens} {requests}");
    let line = network.hosts[0].events.iter().find_map(|event| match event {
        Event::Refused { refusal, .. } => Some(refusal.to_string()),
        _ => None,
    });
    let expected =
        "host h1: its signalling to host h2 is busy: open fewer channels at once, or try again in a moment";
    assert_eq!(line.as_deref(), Some(expected));
    assert_eq!(network.states(0).len(), 400 - opens, "the others are asked");
}

/// A probe that is given up before its CREATE has left is not asked for any more.
#[test]
fn what_is_given_up_before_it_was_sent_is_not_sent() {
    let mut network = Network::line(6, 2, |_, _| {});
    network.run(SECOND);
    let asks = |network: &Network| {
        let signalling = network.hosts[0].signalling.as_ref().expect("it runs");
        signalling.waiting().iter().find(|(what, _)| *what == "asks for a link").map(|(_, asks)| *asks)
    };
    let open = |network: &mut Network| {
        let probe = OpenRequest { probe: true, ..network.request(1, 200) };
        network.at(0, |s, now, stages| s.open(probe, now, stages)).expect("can be tried")
    };
    let probes: Vec<_> = (0..100).map(|_| open(&mut network)).collect();
    assert!(asks(&network).is_some_and(|asks| asks > 50), "{:?}", asks(&network));
    probes.iter().for_each(|probe| network.close(0, *probe));
    assert_eq!(asks(&network), Some(0));
    assert!(network.states(0).is_empty());
}

/// A request that waits for too long at a host between is refused by that host: probes and requests that no
/// host holds find their way back to their source.
#[test]
fn what_waits_for_too_long_on_its_way_is_refused_on_the_way_back() {
    let mut network = Network::line(5, 3, |_, config| {
        config.links.iter_mut().for_each(|link| link.packet_bytes_max = 192);
    });
    network.rarely = true;
    network.run(SECOND);
    // The last link is slow: the host between receives more than it can forward.
    network.slow = Some((1, 2, PACE));
    let source = Address { port: name("in"), host: network.hosts[2].name() };
    for _ in 0..200 {
        let probe = OpenRequest { probe: true, ..network.request(2, 200) };
        network.at(0, |s, now, stages| s.open(probe, now, stages)).expect("tried");
        let asked =
            network.at(0, |s, now, _| s.request(&source, name("nobody"), contract(50), UserId(8), now));
        asked.expect("tried");
    }
    network.run(9 * SECOND);
    let is_busy = |cause: &RefuseCause| *cause == RefuseCause::Busy(network.hosts[2].config.id);
    let probes =
        network.count(0, |e| matches!(e, Event::Probed { answer: Err(no), .. } if is_busy(&no.cause)));
    let requests =
        network.count(0, |e| matches!(e, Event::RequestFailed { refusal, .. } if is_busy(&refusal.cause)));
    assert!(probes > 20 && requests > 20, "{probes} {requests}");
    network.run(30 * SECOND);
    let answered = network.count(0, |e| matches!(e, Event::Probed { .. } | Event::RequestFailed { .. }));
    assert_eq!((answered, network.states(0).len()), (400, 0), "each is answered once");
}
