//! Invalid messages from a member of the domain: each is counted once and has no other effect.

use alloc::boxed::Box;
use alloc::format;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;

use punctual_analysis::{BitRate, Contract, Instant, Nanos, Ppm, Rate};

use super::super::message::{Create, Message, Request, Route, StageReport, Witness};
use super::super::resources::{Answer, CommitTerms, LocalChannel, Resources};
use super::super::source_turns::Source;
use super::Signalling;
use crate::api::{
    ChannelRefusal, CloseReason, Passed, Receipt, RefuseCause, StageGrant, StageName, Tally, UserId,
};
use crate::config::{CpuConfig, LinkConfig, NodeConfig, RouteConfig, SignallingConfig};
use crate::ids::{Address, ChannelId, ChannelNumber, Cookie, Epoch, LinkId, Name, NodeId, PathId};

const NOW: Instant = Instant(5_000_000_000);
/// From h1 to this host, h2.
const LEFT: LinkId = LinkId(0);

/// Stages that must not be asked.
struct Untouched;

impl Resources for Untouched {
    fn ask(&mut self, local: &Arc<LocalChannel>, _: Nanos, _: bool) {
        panic!("asked for {local:?}");
    }
    fn ask_final(&mut self, local: &Arc<LocalChannel>, _: &CommitTerms) {
        panic!("asked for {local:?}");
    }
    fn try_final(&mut self, local: &Arc<LocalChannel>, _: &CommitTerms, _: Nanos) {
        panic!("asked for {local:?}");
    }
    fn poll_answer(&mut self) -> Option<Answer> {
        None
    }
    fn commit(&mut self, local: &Arc<LocalChannel>, _: &CommitTerms) -> Result<Vec<StageGrant>, RefuseCause> {
        panic!("asked for {local:?}");
    }
    fn fits(&self, _: &LocalChannel) -> bool {
        true
    }
    fn receipt(&self, _: ChannelId) -> Receipt {
        Receipt::default()
    }
    fn passed(&self, _: ChannelId) -> Passed {
        Passed::default()
    }
    fn sent(&self, _: ChannelId) -> Tally {
        Tally::default()
    }
    fn await_last(&mut self, channel: ChannelId, _: Tally) {
        panic!("{channel:?} is no channel here");
    }
    fn outdate(&mut self, channel: ChannelId) {
        panic!("{channel:?} is no channel here");
    }
    fn release(&mut self, channel: ChannelId) {
        panic!("{channel:?} is no channel here");
    }
}

fn name(text: &str) -> Name {
    Name::new(text).expect("a name")
}

/// h2 between h1 and h3.
fn signalling() -> Signalling {
    let link = |name: &str, id: u32| LinkConfig::new(name, NodeId(id), BitRate(40_000_000));
    let config = NodeConfig {
        id: NodeId(2),
        name: name("h2"),
        epoch: Epoch(4),
        fragment_bytes: 1_400,
        fragment_low_latency_bytes: None,
        clock_tolerance: Ppm(100),
        links: vec![link("left", 1), link("right", 3)],
        cpu: CpuConfig::default(),
        directory: (1..4).map(|id| (name(["h1", "h2", "h3"][id as usize - 1]), NodeId(id))).collect(),
        routes: vec![RouteConfig { via: vec![NodeId(1)] }, RouteConfig { via: vec![NodeId(3)] }],
        signalling: SignallingConfig::default(),
        buffer_bytes_max: 1 << 20,
        wakeup_margin: Nanos::ZERO,
    };
    let mut signalling = Signalling::new(&config, 7, NOW);
    signalling.listen(name("in"), Nanos::ZERO).expect("free");
    signalling
}

fn contract() -> Contract {
    let rate = Rate::per_second(50).expect("a rate");
    Contract::new(1_000, rate, 1, Nanos::from_millis(100)).expect("valid")
}

fn path(node: u32) -> PathId {
    PathId { node: NodeId(node), channel: ChannelNumber(3), epoch: Epoch(9) }
}

fn route(nodes: &[u32], position: u8) -> Route {
    Route { nodes: nodes.iter().copied().map(NodeId).collect(), position }
}

fn address(host: &str) -> Address {
    Address { port: name("in"), host: name(host) }
}

fn create(route: Route) -> Create {
    Create {
        path: path(1),
        cookie: Cookie(5),
        route,
        from: name("h1"),
        user: UserId(7),
        to: address("h3"),
        contract: contract(),
        fragment_bytes: 1_400,
        probe: true,
        token: None,
        stages: Vec::new(),
        arrival_error_fixed: Nanos::ZERO,
        drift: Ppm(200),
    }
}

fn refusal() -> ChannelRefusal {
    let (stages, hosts) = (Vec::new(), Vec::new());
    ChannelRefusal { node: NodeId(3), cause: RefuseCause::Exhausted, offer: None, stages, hosts }
}

/// Routes that do not lead from h1 to h2: a wrong position, a wrong sender, a host twice, only one host, a
/// position behind the end.
fn lost_ways() -> Vec<Route> {
    vec![
        route(&[1, 2, 3], 0),
        route(&[1, 3, 2], 1),
        route(&[3, 2, 1], 1),
        route(&[1, 2, 1], 1),
        route(&[2], 0),
        route(&[1, 2], 2),
        route(&[], 0),
    ]
}

/// One message of each kind that carries a route, with this route.
fn along(way: Route) -> Vec<Message> {
    let (user, epoch) = (UserId(7), Epoch(4));
    let probe = || Ok(Box::new(create(route(&[1, 2, 3], 1))));
    vec![
        Message::Create(create(way.clone())),
        Message::Probed { path: path(2), route: way.clone(), user, answer: Err(refusal()) },
        Message::Probed { path: path(1), route: way.clone(), user, answer: probe() },
        Message::Ended {
            path: path(2),
            route: way.clone(),
            reason: CloseReason::Local,
            receipt: Receipt::default(),
        },
        Message::Passed { path: path(2), route: way.clone(), node: NodeId(3), passed: Passed::default() },
        Message::Request(Request {
            token: 1,
            route: way.clone(),
            epoch,
            port: name("in"),
            reply_to: address("h1"),
            contract: contract(),
            user,
        }),
        Message::RequestRefused { token: 1, epoch, route: way, user, refusal: refusal() },
    ]
}

/// Messages about channels that do not exist, or with invalid content.
fn about_nothing() -> Vec<Message> {
    let here = route(&[1, 2], 1);
    let user = UserId(7);
    let probe =
        |path: PathId, user: UserId| Ok(Box::new(Create { path, user, ..create(route(&[1, 2, 3], 1)) }));
    let report = |node: u32, towards: Option<u32>, witness: Witness| {
        let stage = StageName { node: NodeId(node), towards: towards.map(NodeId) };
        Message::Stage(StageReport { stage, witness, epoch: Epoch(1), number: 1, breach: None })
    };
    vec![
        Message::Accept { path: path(2), drift: Ppm(200), stages: Vec::new() },
        Message::Refuse { path: path(2), refusal: refusal() },
        Message::Confirm { path: path(1) },
        Message::Destroy { path: path(1), reason: CloseReason::Local, sent: None },
        Message::Probed { path: path(2), route: here.clone(), user, answer: Err(refusal()) },
        Message::Probed { path: path(2), route: here.clone(), user, answer: probe(path(1), user) },
        Message::Probed { path: path(1), route: here.clone(), user, answer: probe(path(1), UserId(8)) },
        Message::Passed { path: path(2), route: here, node: NodeId(1), passed: Passed::default() },
        Message::Create(Create { path: path(3), ..create(route(&[1, 2, 3], 1)) }),
        report(1, None, Witness::Owner),
        report(2, None, Witness::Owner),
        report(3, Some(2), Witness::Receiver),
    ]
}

#[test]
fn what_makes_no_sense_is_counted_once_and_changes_nothing() {
    let mut signalling = signalling();
    let before = [LinkId(0), LinkId(1)].map(|link| signalling.has_signal(link));
    let senseless = lost_ways().into_iter().flat_map(along).chain(about_nothing());
    let mut count = 0;
    for message in senseless {
        let what = format!("{message:?}");
        signalling.on_message(LEFT, message, NOW, &mut Untouched);
        count += 1;
        assert_eq!(signalling.counters().unexpected, count, "{what}");
        assert_eq!(signalling.counters().unanswered, 0, "{what}");
        assert!(!signalling.has_event() && signalling.channels().next().is_none(), "{what}");
        let pending = [LinkId(0), LinkId(1)].map(|link| signalling.has_signal(link));
        assert_eq!(pending, before, "{what}");
    }
    assert_eq!(count, 7 * 7 + 12);
}

/// The counts of waiting messages are sums over all links. No neighbour is up yet.
#[test]
fn what_waits_for_links_is_counted_over_all_of_them() {
    let mut signalling = signalling();
    let source = |user: u32| Source { node: NodeId(2), user: UserId(user) };
    for (link, asks, answers) in [(LinkId(0), 300, 200), (LinkId(1), 100, 250)] {
        for number in 0..asks {
            let asked = create(route(&[2, 3], 0));
            let path = PathId { channel: ChannelNumber(1_000 + number), ..path(2) };
            signalling.ask_for(link, source(number % 60), &Message::Create(Create { path, ..asked }), NOW);
        }
        for number in 0..answers {
            let path = PathId { channel: ChannelNumber(5_000 + number), ..path(1) };
            signalling.answer(Some(link), source(number % 60), &Message::Refuse { path, refusal: refusal() });
        }
    }
    // Some of the messages already have their place in the streams.
    let of_link = |index: usize| signalling.links.peers[index].outbox().waiting();
    let ([asks, answers], [more_asks, more_answers]) = (of_link(0), of_link(1));
    assert!(
        asks > 200 && more_asks > 50 && answers > 100 && more_answers > 200,
        "{asks} {more_asks} {answers} {more_answers}"
    );
    let waiting = [
        ("requests to others", 0),
        ("requests of others", 0),
        ("asks for a link", asks + more_asks),
        ("answers for a link", answers + more_answers),
        ("decisions", 0),
        ("probes", 0),
        ("channels that wait for a measurement", 0),
    ];
    assert_eq!(signalling.waiting(), waiting);
}
