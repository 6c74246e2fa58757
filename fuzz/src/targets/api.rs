//! The API: packets from clients to a daemon, as text and as sequences of requests, and packets from a daemon
//! to clients.

mod bench;

use bench::Bench;
use punctual_ipc::api::{Call, FromDaemon, PACKET_BYTES_MAX, Request, VERSION};
use punctual_ipc::ring::RingShape;
use punctual_proto::ids::{Address, ChannelId, ListenerId, Name};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::input::{Input, put_bytes};
use crate::net::name;
use crate::targets::node::Wish;

/// A parsed value is written and parsed again with the same result.
fn round_trip<T: Serialize + DeserializeOwned + PartialEq + std::fmt::Debug>(value: &T) {
    let written = serde_json::to_vec(value).expect("it came from JSON");
    let again: T = serde_json::from_slice(&written).expect("what was written is read");
    assert_eq!(&again, value);
}

/// One packet to the daemon.
pub fn request(data: &[u8]) {
    if let Ok(call) = serde_json::from_slice::<Call>(data) {
        round_trip(&call);
    }
}

/// One packet to a client, with everything that a program shows of it.
pub fn answer(data: &[u8]) {
    let Ok(sent) = serde_json::from_slice::<FromDaemon>(data) else { return };
    round_trip(&sent);
    let _ = format!("{sent:?}");
    if let FromDaemon::Answer { result: Err(error), .. } = sent {
        let _ = error.to_string();
    }
}

/// Requests, rings and pauses, of clients at both ends of a link; see [`Step`].
pub fn service(data: &[u8]) {
    let mut bench = Bench::new();
    let mut input = Input::new(data);
    while let Some(first) = input.u8() {
        let client = usize::from(first >> 4 & 3);
        match first % 8 {
            0..=2 => {
                let Some(bytes) = input.bytes() else { break };
                bench.send_bytes(client, bytes);
            }
            3 => bench.run(u64::from(first >> 4) * 20),
            4 => bench.reconnect(client),
            5 => bench.send(client, usize::from(first >> 6)),
            6 => bench.receive(client, usize::from(first >> 6)),
            _ => {
                if bench.scribble(client, usize::from(first >> 6), &mut input).is_none() {
                    break;
                }
            }
        }
        bench.settle();
    }
    bench.finish();
}

/// A step of a script.
enum Step {
    /// A client's request.
    Say(u8, Request),
    /// 20 ms each.
    Run(u8),
    Reconnect(u8),
    Send(u8),
    Receive(u8),
}

fn script(steps: impl IntoIterator<Item = Step>) -> Vec<u8> {
    let mut out = Vec::new();
    for (id, step) in (1..).zip(steps) {
        match step {
            Step::Say(client, request) => {
                out.push(client << 4);
                put_bytes(&mut out, &serde_json::to_vec(&Call { id, request }).expect("JSON"));
            }
            Step::Run(pause) => out.push(3 | pause << 4),
            Step::Reconnect(client) => out.push(4 | client << 4),
            Step::Send(client) => out.push(5 | client << 4),
            Step::Receive(client) => out.push(6 | client << 4),
        }
    }
    out
}

fn hello() -> Request {
    Request::Hello { version: VERSION, program: "fuzz".into() }
}

fn address(port: &str, host: &str) -> Address {
    Address { port: name(port), host: name(host) }
}

fn port() -> Name {
    name("port")
}

/// A request of every kind.
fn requests() -> Vec<Request> {
    let contract = Wish::default().contract().expect("a contract");
    let ring = RingShape { slots: 4, message_bytes_max: 1_000 };
    let (channel, listener, to) = (ChannelId(1), ListenerId(1), address("port", "h2"));
    vec![
        hello(),
        Request::Listen { port: port(), handler_time: punctual_proto::Nanos(5) },
        Request::Unlisten { listener },
        Request::Open { to: to.clone(), contract, token: Some(3) },
        Request::Probe { to: to.clone(), contract },
        Request::Ask { source: to.clone(), reply_to: port(), contract },
        Request::RefuseAsk { token: 3, why: "no".into() },
        Request::Consent { channel, stall: None },
        Request::Refuse { channel, why: "no".into() },
        Request::Close { channel },
        Request::CoSchedule { channel, thread: 7 },
        Request::Attached { channel },
        Request::Alternate { channel },
        Request::OpenBestEffort { to, ring },
        Request::BindBestEffort { port: port(), ring },
        Request::MeasureRate { link: "l".into() },
        Request::Status,
        Request::Channels { after: Some(channel) },
        Request::Channel { channel },
    ]
}

/// Requests of every kind as clients write them.
pub fn request_seeds() -> Vec<Vec<u8>> {
    let all = requests().into_iter().zip(1..);
    all.map(|(request, id)| serde_json::to_vec(&Call { id, request }).expect("JSON")).collect()
}

/// Both clients are greeted, and one listens.
fn listening() -> Vec<Step> {
    vec![Step::Say(0, hello()), Step::Say(1, hello()), Step::Run(9), Step::Say(1, listen())]
}

fn listen() -> Request {
    Request::Listen { port: port(), handler_time: punctual_proto::Nanos::ZERO }
}

fn contract() -> punctual_proto::Contract {
    Wish::default().contract().expect("a contract")
}

fn opening() -> Step {
    Step::Say(0, Request::Open { to: address("port", "h2"), contract: contract(), token: None })
}

/// And a channel is open.
fn opened(channel: ChannelId) -> Vec<Step> {
    let consent = Step::Say(1, Request::Consent { channel, stall: None });
    then(listening(), [opening(), Step::Run(5), consent, Step::Run(5)])
}

/// And was used.
fn used(channel: ChannelId) -> Vec<Step> {
    then(opened(channel), [Step::Send(0), Step::Run(5), Step::Receive(1), Step::Send(0), Step::Run(5)])
}

fn then(mut steps: Vec<Step>, more: impl IntoIterator<Item = Step>) -> Vec<Step> {
    steps.extend(more);
    steps
}

/// Best effort, as both ends request it.
fn flow() -> [Step; 6] {
    let ring = RingShape { slots: 4, message_bytes_max: 1_000 };
    [
        Step::Say(1, Request::BindBestEffort { port: name("bulk"), ring }),
        Step::Say(0, Request::OpenBestEffort { to: address("bulk", "h2"), ring }),
        Step::Send(0),
        Step::Run(9),
        Step::Receive(1),
        Step::Say(0, Request::Close { channel: ChannelId(1) }),
    ]
}

/// Channels and flows between clients of two daemons; clients that send every kind of request, and that
/// disconnect.
pub fn service_seeds() -> Vec<Vec<u8>> {
    let channel = ChannelId(1);
    let close = |client| [Step::Say(client, Request::Close { channel }), Step::Run(15)];
    let about = [Request::Status, Request::Channels { after: None }, Request::Channel { channel }]
        .into_iter()
        .flat_map(|request| [Step::Say(0, request.clone()), Step::Say(1, request)]);
    let alternate =
        [Step::Say(1, Request::Alternate { channel }), Step::Send(0), Step::Send(0), Step::Run(9)];
    let co_schedule =
        [Step::Say(1, Request::CoSchedule { channel, thread: 5 }), Step::Reconnect(1), Step::Run(2)];
    let probe = Request::Probe { to: address("port", "h2"), contract: contract() };
    let ask = Request::Ask { source: address("port", "h1"), reply_to: port(), contract: contract() };
    let refuse = [
        opening(),
        Step::Run(5),
        Step::Say(1, Request::Refuse { channel, why: "no".into() }),
        Step::Run(5),
        Step::Say(1, Request::Unlisten { listener: ListenerId(1) }),
    ];
    let scripts = [
        then(used(channel), close(0)),
        then(used(channel), close(1)),
        then(used(channel), [Step::Reconnect(0), Step::Run(15)]),
        then(used(channel), alternate),
        then(opened(channel), co_schedule),
        then(used(channel), about),
        then(listening(), [Step::Say(0, probe), Step::Run(9)]),
        then(listening(), flow()),
        then(listening(), [Step::Say(0, listen()), Step::Say(1, ask), Step::Run(9), Step::Run(9)]),
        then(listening(), refuse),
        requests().into_iter().map(|request| Step::Say(0, request)).collect(),
        requests().into_iter().flat_map(|request| [Step::Say(1, request), Step::Run(1)]).collect(),
    ];
    scripts.into_iter().map(script).collect()
}

/// What two daemons really answered and pushed in the scripts above.
pub fn answer_seeds() -> Vec<Vec<u8>> {
    let mut sent: Vec<Vec<u8>> = Vec::new();
    for script in service_seeds() {
        let mut bench = Bench::new();
        bench.journal = Some(Vec::new());
        let mut input = Input::new(&script);
        while let Some(first) = input.u8() {
            let client = usize::from(first >> 4 & 3);
            match first % 8 {
                0 => bench.send_bytes(client, input.bytes().unwrap_or_default()),
                3 => bench.run(u64::from(first >> 4) * 20),
                4 => bench.reconnect(client),
                5 => bench.send(client, 0),
                _ => bench.receive(client, 0),
            }
            bench.settle();
        }
        sent.extend(bench.journal.take().unwrap_or_default());
    }
    sent.retain(|bytes| bytes.len() < PACKET_BYTES_MAX.min(4_096));
    // One of each length and beginning is enough to start from.
    let mut seen = std::collections::BTreeSet::new();
    sent.retain(|bytes| seen.insert((bytes.len() / 64, bytes[..bytes.len().min(40)].to_vec())));
    sent
}
