//! Random conversations through an outbox and a stream: order per channel, pairs that cancel, and the delay
//! of messages that are sent first.

use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;

use punctual_analysis::{Contract, Nanos, Rate};

use super::super::message::{Create, Request, Route};
use super::super::random::SplitMix64;
use super::super::reliable_stream::ReceiveStream;
use super::*;
use crate::api::{ChannelRefusal, CloseReason, Receipt, RefuseCause, UserId};
use crate::ids::{Address, ChannelNumber, Cookie, Epoch, Name, NodeId};

mod order;

const NODE: NodeId = NodeId(1);
const EPOCH: Epoch = Epoch(7);

fn path(number: u32) -> PathId {
    PathId { node: NODE, channel: ChannelNumber(number), epoch: EPOCH }
}
fn route() -> Route {
    Route { nodes: vec![NODE, NodeId(2), NodeId(3)], position: 1 }
}
fn source(user: u32) -> Source {
    Source { node: NODE, user: UserId(user) }
}
fn contract() -> Contract {
    let rate = Rate::per_second(50).expect("a rate");
    Contract::new(1_000, rate, 3, Nanos::from_millis(100)).expect("valid")
}
fn address() -> Address {
    Address { port: Name::new("in").expect("a name"), host: Name::new("h3").expect("a name") }
}
fn create(number: u32, user: u32, probe: bool) -> Message {
    Message::Create(Create {
        path: path(number),
        cookie: Cookie(9),
        route: route(),
        from: Name::new("h1").expect("a name"),
        user: UserId(user),
        to: address(),
        contract: contract(),
        fragment_bytes: 1_400,
        probe,
        token: None,
        stages: Vec::new(),
        arrival_error_fixed: Nanos::ZERO,
        drift: punctual_analysis::Ppm(200),
    })
}
fn request(user: u32) -> Message {
    let (reply_to, port) = (address(), Name::new("nobody").expect("a name"));
    let (token, contract, user) = (5, contract(), UserId(user));
    Message::Request(Request { token, route: route(), epoch: EPOCH, port, reply_to, contract, user })
}
/// An outbox is not empty if a message waits in any of its queues.
#[test]
fn an_outbox_is_empty_once_nothing_waits_in_any_queue() {
    type Put = fn(&mut Outbox) -> Result<(), CannotEncode>;
    assert!(Outbox::default().is_empty());
    let puts: [Put; 4] = [
        |outbox| {
            outbox.queue_message(&Message::Refresh {
                node: NODE,
                epoch: EPOCH,
                channels: vec![ChannelNumber(3)],
            })
        },
        |outbox| outbox.queue_message(&Message::Confirm { path: path(1) }),
        |outbox| outbox.answer(source(1), &Message::Refuse { path: path(1), refusal: refusal() }),
        |outbox| outbox.ask(source(1), &create(1, 1, false), Instant(5)),
    ];
    for (queue, put) in puts.into_iter().enumerate() {
        let mut outbox = Outbox::default();
        put(&mut outbox).expect("it encodes");
        assert!(!outbox.is_empty(), "queue {queue}");
        assert!(outbox.next().is_some() && outbox.is_empty(), "queue {queue}");
    }
}

fn refusal() -> ChannelRefusal {
    let (stages, hosts) = (Vec::new(), Vec::new());
    ChannelRefusal { node: NodeId(3), cause: RefuseCause::Exhausted, offer: None, stages, hosts }
}
fn destroy(number: u32) -> Message {
    Message::Destroy { path: path(number), reason: CloseReason::Local, sent: None }
}
fn refresh(numbers: &[u32]) -> Message {
    let channels = numbers.iter().copied().map(ChannelNumber).collect();
    Message::Refresh { node: NODE, epoch: EPOCH, channels }
}

/// The messages received about each channel, in order.
#[derive(Default)]
struct Heard {
    of: BTreeMap<u32, Vec<&'static str>>,
}

impl Heard {
    fn receive_message(&mut self, message: &Message) {
        let mut note = |path: &PathId, what| self.of.entry(path.channel.0).or_default().push(what);
        match message {
            Message::Create(create) => note(&create.path, "create"),
            Message::Confirm { path } => note(path, "confirm"),
            Message::Destroy { path, .. } => note(path, "destroy"),
            Message::Accept { path, .. } => note(path, "accept"),
            Message::Refuse { path, .. } => note(path, "refuse"),
            Message::Ended { path, .. } => note(path, "ended"),
            Message::Refresh { channels, .. } => {
                channels.iter().for_each(|number| note(&path(number.0), "refresh"));
            }
            _ => {}
        }
    }
    fn knows(&self, number: u32, what: &str) -> bool {
        self.of.get(&number).is_some_and(|of| of.contains(&what))
    }
}

/// An outbox, the stream behind it, and the receiver.
struct Session {
    outbox: Outbox,
    send: SendStream,
    receive: ReceiveStream,
    received_messages: Heard,
    packets: u64,
}

impl Session {
    fn new(segment_bytes: usize) -> Self {
        let send = SendStream::new(segment_bytes, Nanos::from_millis(100));
        let (outbox, receive, received_messages) =
            (Outbox::default(), ReceiveStream::default(), Heard::default());
        Self { outbox, send, receive, received_messages, packets: 0 }
    }
    fn queue_message(&mut self, message: &Message) {
        self.outbox.queue_message(message).expect("it encodes");
        self.fill();
    }
    fn answer(&mut self, user: u32, message: &Message) {
        self.outbox.answer(source(user), message).expect("it encodes");
        self.fill();
    }
    fn ask(&mut self, user: u32, message: &Message) {
        if self.outbox.takes(source(user)) {
            self.outbox.ask(source(user), message, Instant::ZERO).expect("it encodes");
        }
        self.fill();
    }
    fn fill(&mut self) {
        self.outbox.fill(&mut self.send).expect("room");
    }
    /// Sends one packet, which is acknowledged at once. Returns `false` if there is none to send.
    fn step(&mut self) -> bool {
        let Some((number, bytes)) = self.send.due() else { return false };
        self.receive.take(number, bytes);
        self.send.sent(number, Instant::ZERO);
        self.send.acknowledge(self.receive.received());
        self.packets += 1;
        while let Some(bytes) = self.receive.next_message().expect("no garbage") {
            self.received_messages.receive_message(&Message::decode(&bytes).expect("a message"));
        }
        self.fill();
        true
    }
    fn drain(&mut self) {
        while self.step() {}
        assert!(self.outbox.is_empty() && self.outbox.bytes() == 0);
        assert!(
            self.outbox.asked.is_empty() && self.outbox.answered.is_empty() && self.outbox.ages.is_empty()
        );
    }
}

/// Messages that the source's side of a link may send about a channel, whatever else waits: CREATE; REFRESH
/// while it holds the channel; CONFIRM once the ACCEPT was received; DESTROY.
#[test]
fn forward_messages_of_a_channel_stay_in_order_or_are_dropped() {
    let mut all_withdrawn = 0;
    for seed in 0..200 {
        let mut random = SplitMix64::new(seed);
        let mut line = Session::new([76, 300, 1_284][seed as usize % 3]);
        let (mut alive, mut made, mut withdrawn) = (Vec::new(), 0, 0);
        for _ in 0..400 {
            let user = random.below(4) as u32;
            match random.below(8) {
                0..=2 => {
                    made += 1;
                    line.ask(user, &create(made, user, false));
                    alive.push(made);
                }
                3 => line.ask(user, &request(user)),
                4 => line.queue_message(&refresh(&alive)),
                5 if !alive.is_empty() => {
                    let number = alive.swap_remove(random.below(alive.len() as u64) as usize);
                    withdrawn += u32::from(line.outbox.asked.contains_key(&path(number)));
                    line.queue_message(&destroy(number));
                }
                6 => {
                    let waits = |number: &u32| {
                        line.received_messages.knows(*number, "create")
                            && !line.received_messages.knows(*number, "confirm")
                    };
                    let next = alive.iter().copied().rfind(waits);
                    next.into_iter()
                        .for_each(|number| line.queue_message(&Message::Confirm { path: path(number) }));
                }
                _ => drop((0..random.below(3)).map(|_| line.step()).collect::<Vec<_>>()),
            }
        }
        line.drain();
        all_withdrawn += withdrawn;
        for (number, received_messages) in &line.received_messages.of {
            let at = |what| received_messages.iter().position(|received_messages| *received_messages == what);
            let ends = at("destroy").map_or(received_messages.len(), |at| at + 1);
            assert_eq!(
                (at("create"), ends),
                (Some(0), received_messages.len()),
                "seed {seed} channel {number}: {received_messages:?}"
            );
            assert_eq!(at("destroy").is_some(), !alive.contains(number), "seed {seed} channel {number}");
        }
        let reported = u32::try_from(line.received_messages.of.len()).expect("few");
        assert_eq!(reported, made - withdrawn, "seed {seed}: all others are told");
    }
    assert!(all_withdrawn > 1_000, "{all_withdrawn}");
}

/// Messages that the sink's side may send, whatever other replies wait: ACCEPT, then the final report and
/// DESTROY; or REFUSE and, for a channel that is refreshed meanwhile, DESTROY.
#[test]
fn backward_messages_of_a_channel_stay_in_order() {
    for seed in 0..200 {
        let mut random = SplitMix64::new(seed);
        let mut line = Session::new([76, 300, 1_284][seed as usize % 3]);
        let (mut queued, mut accepted) = (BTreeMap::<u32, Vec<&str>>::new(), Vec::new());
        for number in 0..300 {
            let user = random.below(4) as u32;
            let path = path(number);
            match random.below(4) {
                0 => {
                    let accept =
                        Message::Accept { path, drift: punctual_analysis::Ppm(1), stages: Vec::new() };
                    line.answer(user, &accept);
                    queued.entry(number).or_default().push("accept");
                    accepted.push(number);
                }
                1 => {
                    line.answer(user, &Message::Refuse { path, refusal: refusal() });
                    queued.entry(number).or_default().push("refuse");
                    if random.below(2) == 0 {
                        line.queue_message(&destroy(number));
                        queued.entry(number).or_default().push("destroy");
                    }
                }
                2 if !accepted.is_empty() => {
                    let number = accepted.swap_remove(random.below(accepted.len() as u64) as usize);
                    let (reason, receipt) = (CloseReason::Local, Receipt::default());
                    let path = super::tests::path(number);
                    line.queue_message(&Message::Ended { path, route: route(), reason, receipt });
                    line.queue_message(&destroy(number));
                    queued.entry(number).or_default().extend(["ended", "destroy"]);
                }
                _ => drop((0..random.below(4)).map(|_| line.step()).collect::<Vec<_>>()),
            }
        }
        line.drain();
        assert_eq!(line.received_messages.of, queued, "seed {seed}");
    }
}

/// Whatever number of requests, replies and ends wait: a message of the first class leaves within the packets
/// that are in the stream, those that one message may take more, and its own.
#[test]
fn what_goes_first_waits_for_a_few_packets() {
    for segment_bytes in [76, 1_284] {
        let mut random = SplitMix64::new(3);
        let mut line = Session::new(segment_bytes);
        let longest = create(1, 1, false).encode().expect("it encodes").len() + 2;
        let (mut number, mut worst) = (1_000, 0);
        for round in 1..500 {
            for _ in 0..40 {
                number += 1;
                let user = random.below(15) as u32;
                line.ask(user, &create(number, user, false));
                line.ask(user, &request(user));
                line.answer(user, &Message::Refuse { path: path(number + 100_000), refusal: refusal() });
                line.queue_message(&Message::Confirm { path: path(number + 200_000) });
            }
            let (before, word) = (line.packets, refresh(&[round]));
            let own = word.encode().expect("it encodes").len() + 2;
            line.queue_message(&word);
            while !line.received_messages.knows(round, "refresh") {
                assert!(line.step());
            }
            let took = line.packets - before;
            let most = SIGNAL_AHEAD_SEGMENTS + longest.div_ceil(segment_bytes) + own.div_ceil(segment_bytes);
            assert!(took <= most as u64, "{segment_bytes}: {took} of {most} packets");
            worst = worst.max(took);
        }
        assert!(worst > 1, "nothing was ahead");
    }
}

/// Sends `messages` while the kinds `waiting` always wait. Returns the bytes of each kind.
fn bytes_sent(outbox: &mut Outbox, waiting: [bool; 3], messages: u32) -> [usize; 3] {
    let mut bytes = [0; 3];
    for number in 0..messages {
        while waiting[0] && outbox.standing.len() < 10 {
            outbox.queue_message(&Message::Confirm { path: path(number) }).expect("it encodes");
        }
        while waiting[1] && outbox.answers.len() < 10 {
            let answer = Message::Refuse { path: path(50_000 + number), refusal: refusal() };
            outbox.answer(source(1), &answer).expect("it encodes");
        }
        while waiting[2] && outbox.asks.len() < 10 {
            outbox.ask(source(2), &request(2), Instant::ZERO).expect("it encodes");
        }
        let next = outbox.next().expect("some wait");
        let kind = match Message::decode(&next) {
            Some(Message::Confirm { .. }) => 0,
            Some(Message::Refuse { .. }) => 1,
            _ => 2,
        };
        bytes[kind] += next.len();
    }
    bytes
}

/// Of seven parts of the bytes, in hundredths: those of each kind.
fn parts(bytes: [usize; 3]) -> [usize; 3] {
    let all: usize = bytes.iter().sum();
    bytes.map(|bytes| (bytes * 700).div_ceil(all))
}

/// When all kinds wait without end, each has its share of the bytes.
#[test]
fn every_kind_has_its_share() {
    let parts = parts(bytes_sent(&mut Outbox::default(), [true; 3], 20_000));
    assert!((399..=402).contains(&parts[0]) && (199..=202).contains(&parts[1]), "{parts:?}");
}

/// However long some kinds had the link alone, the others have saved nothing up: from when all wait on, each
/// has its share of the bytes, with a few messages' difference.
#[test]
fn a_kind_that_did_not_wait_has_its_share_afterwards_and_no_more() {
    for alone in 1..7 {
        let mut outbox = Outbox::default();
        bytes_sent(&mut outbox, [0, 1, 2].map(|kind| alone >> kind & 1 == 1), 2_000);
        let parts = parts(bytes_sent(&mut outbox, [true; 3], 1_000));
        for (part, share) in parts.into_iter().zip([400, 200, 100]) {
            assert!(part.abs_diff(share) <= 8, "{alone:03b} alone: {parts:?}");
        }
    }
}

/// A request that has waited for its time is refused. Time without a neighbour does not count.
#[test]
fn requests_wait_for_their_time_and_no_longer() {
    let mut outbox = Outbox::default();
    let at = |millis| Instant::ZERO + Nanos::from_millis(millis);
    outbox.ask(source(1), &create(1, 1, false), at(100)).expect("it encodes");
    outbox.ask(source(2), &request(2), at(200)).expect("it encodes");
    let wait = ASK_WAIT_MAX;
    assert_eq!(outbox.poll_timeout(at(0)), Some(at(100) + wait));
    outbox.handle_timeout(at(4_000), at(5_150));
    assert_eq!((outbox.poll_late(), outbox.poll_timeout(at(4_000))), (None, Some(at(9_000))));
    outbox.handle_timeout(at(0), at(5_150));
    assert!(outbox.has_late());
    assert!(matches!(outbox.poll_late(), Some(Message::Create(create)) if create.path == path(1)));
    assert_eq!((outbox.poll_late(), outbox.poll_timeout(at(0))), (None, Some(at(200) + wait)));
    assert!(!outbox.withdraw(path(1)), "it is gone");
}

/// Requests that have waited for too long are refused in the order in which they began to wait.
#[test]
fn the_request_that_has_waited_longest_is_refused_first() {
    let mut outbox = Outbox::default();
    let at = |millis| Instant::ZERO + Nanos::from_millis(millis);
    let asked = [3, 1, 2];
    for (index, number) in asked.into_iter().enumerate() {
        outbox
            .ask(source(number), &create(number, number, false), at(100 + index as u64))
            .expect("it encodes");
    }
    outbox.handle_timeout(at(0), at(200) + ASK_WAIT_MAX);
    let refused = core::iter::from_fn(|| outbox.poll_late()).map(|message| match message {
        Message::Create(create) => create.path,
        other => panic!("{other:?}"),
    });
    assert_eq!(refused.collect::<Vec<_>>(), asked.map(path));
}

/// A CREATE that is to be refused was never sent: no message about its channel is sent, and the channel ends
/// with it if it is destroyed first.
#[test]
fn a_create_that_came_too_late_is_not_forwarded() {
    let at = |millis| Instant::ZERO + Nanos::from_millis(millis);
    for is_crowded in [false, true] {
        let mut outbox = Outbox::default();
        let asks = if is_crowded { ASKS_WAITING_MAX as u32 } else { 1 };
        (1..=asks).for_each(|number| {
            outbox.ask(source(1), &create(number, 1, false), at(100)).expect("it encodes");
        });
        match is_crowded {
            true => outbox.ask(source(2), &request(2), at(100)).expect("it encodes"),
            false => outbox.handle_timeout(at(0), at(100) + ASK_WAIT_MAX),
        }
        assert!(outbox.has_late());
        let waiting = outbox.waiting();
        outbox.queue_message(&refresh(&[asks])).expect("it encodes");
        outbox.queue_message(&destroy(asks)).expect("it encodes");
        assert_eq!(outbox.bytes(), 0, "nothing is said");
        assert_eq!((outbox.waiting(), outbox.poll_late()), ([waiting[0] - 1, 0], None), "nobody is refused");
        outbox.queue_message(&destroy(asks)).expect("it encodes");
        assert!(outbox.bytes() > 0, "what is not here is said on");
    }
}

/// A user with very many requests has a bounded number of waiting replies. A user with few requests gets its
/// replies.
#[test]
fn answers_wait_in_bounded_numbers() {
    let mut outbox = Outbox::default();
    let answer = |number| Message::Probed {
        path: path(number),
        route: route(),
        user: UserId(1),
        answer: Err(refusal()),
    };
    let asked = ANSWERS_WAITING_MAX as u32 + 7;
    (0..asked).for_each(|number| outbox.answer(source(1), &answer(number)).expect("it encodes"));
    assert_eq!((outbox.answers.len(), outbox.answers_dropped), (ANSWERS_WAITING_MAX, 7));
    outbox.answer(source(2), &answer(asked)).expect("it encodes");
    assert_eq!((outbox.answers.len(), outbox.answers_dropped), (ANSWERS_WAITING_MAX + 1, 7));
    // A message for which a host holds resources is sent in any case.
    let refused = Message::Refuse { path: path(asked + 1), refusal: refusal() };
    outbox.answer(source(1), &refused).expect("it encodes");
    assert_eq!(outbox.answers.len(), ANSWERS_WAITING_MAX + 2);
}

/// Only replies for which no host holds resources are dropped: each kind, when too many of the requesting
/// user's wait.
#[test]
fn only_spare_answers_are_dropped() {
    let path = path(9_999);
    let spare = [
        Message::Probed { path, route: route(), user: UserId(1), answer: Err(refusal()) },
        Message::RequestRefused {
            token: 5,
            epoch: EPOCH,
            route: route(),
            user: UserId(1),
            refusal: refusal(),
        },
    ];
    let held = [
        Message::Accept { path, drift: punctual_analysis::Ppm(1), stages: Vec::new() },
        Message::Refuse { path, refusal: refusal() },
    ];
    for (answer, dropped) in spare.iter().map(|spare| (spare, 1)).chain(held.iter().map(|held| (held, 0))) {
        for waiting in [ANSWERS_WAITING_MAX - 1, ANSWERS_WAITING_MAX] {
            let mut outbox = Outbox::default();
            for number in 0..waiting as u32 {
                let before = Message::Refuse { path: super::tests::path(number), refusal: refusal() };
                outbox.answer(source(1), &before).expect("it encodes");
            }
            outbox.answer(source(1), answer).expect("it encodes");
            let dropped = if waiting == ANSWERS_WAITING_MAX { dropped } else { 0 };
            assert_eq!(outbox.answers_dropped, dropped, "{answer:?}");
            assert_eq!(outbox.waiting(), [0, waiting + 1 - dropped as usize], "{answer:?}");
            assert!(outbox.accounts().iter().all(|(_, [counted, held])| counted == held));
        }
    }
}
