//! Bytes that an ORB gets from another one: values, messages in fragments, references.

use punctual_giop::codeset::{Chosen, CodeSets};
use punctual_giop::connection::{Action, Event, Role, State, step};
use punctual_giop::context::ListenPoints;
use punctual_giop::message::{Header, Message, MessageType, ReplyStatus, Request};
use punctual_giop::reassembly::{Pushed, Reassembly, Whole, pieces};
use punctual_giop::reference::{IiopProfile, Link, component, stringify};
use punctual_giop::{
    Any, ByteOrder, Decode, Decoder, Encode, Encoder, Fixed, Reference, SystemException, Version, WString,
};

const ORDERS: [ByteOrder; 2] = [ByteOrder::Big, ByteOrder::Little];
const VERSIONS: [Version; 3] = [Version::V1_0, Version::V1_1, Version::V1_2];
/// Bytes and messages that wait for fragments.
const HELD_BYTES_MAX: usize = 2_048;
const HELD_MESSAGES_MAX: usize = 3;

/// Reads a `T`. What was read has bytes in every order, from which it is read again.
fn there_and_back<T: Decode + Encode + PartialEq + std::fmt::Debug>(from: &Decoder<'_>) {
    let Ok(value) = T::decode(&mut from.clone()) else { return };
    for order in ORDERS {
        let mut to = Encoder::new(order, Version::V1_2);
        value.encode(&mut to).expect("what was read has bytes");
        let bytes = to.into_bytes();
        let again = T::decode(&mut Decoder::new(&bytes, order, Version::V1_2));
        assert_eq!(again.as_ref(), Ok(&value));
    }
}

/// Values of each kind of type. The first byte says in which order and version, and where they begin.
pub fn cdr(data: &[u8]) {
    let Some((&form, _)) = data.split_first() else { return };
    let (order, version) = (ORDERS[usize::from(form & 1)], VERSIONS[usize::from(form >> 1) % 3]);
    let mut from = Decoder::new(data, order, version);
    if from.read(1 + usize::from(form >> 4) % 8).is_err() {
        return;
    }
    there_and_back::<Any>(&from);
    there_and_back::<Vec<Vec<String>>>(&from);
    there_and_back::<Vec<WString>>(&from);
    there_and_back::<Vec<u64>>(&from);
    there_and_back::<[Fixed<7, 2>; 2]>(&from);
    there_and_back::<Reference>(&from);
    there_and_back::<SystemException>(&from);
}

/// Values of types with parts.
pub fn cdr_seeds() -> Vec<Vec<u8>> {
    let values = [
        Any::new(&1i32),
        Any::new(&vec![String::from("a"), String::from("bc")]),
        Any::new(&[1.5f64, 2.5]),
        Any::new(&WString::from("a€")),
        Any::new(&vec![Any::default()]),
        Any::new(&Reference::default()),
    ];
    let any = values.into_iter().map(|any| written(&any.expect("a value")));
    let words = vec![vec![String::from("a")], vec![]];
    any.chain([written(&words), written(&vec![1u64, 2]), written(&vec![WString::from("a")])]).collect()
}

/// A value as the target reads it: in the order and version of the first byte.
fn written(value: &impl Encode) -> Vec<u8> {
    let mut to = Encoder::new(ByteOrder::Little, Version::V1_2);
    to.write(&[0b101]);
    value.encode(&mut to).expect("it has bytes");
    to.into_bytes()
}

/// A stream of messages from another ORB. Whatever comes, no more memory is held than the limit says.
pub fn messages(data: &[u8]) {
    let mut reassembly = Reassembly::new(HELD_BYTES_MAX, HELD_MESSAGES_MAX);
    let mut rest = data;
    while let Some((header, _)) = rest.split_first_chunk() {
        let Ok(header) = Header::parse(header) else { return };
        assert_eq!(Header::parse(&header.to_bytes()), Ok(header));
        let Ok(length) = header.message_bytes(rest.len() - Header::BYTES) else { return };
        let (message, behind) = rest.split_at(length);
        rest = behind;
        let admitted = reassembly.admit(&header);
        let pushed = reassembly.push(&header, message);
        assert!(admitted.is_ok() || pushed.is_err(), "what is refused ahead is refused");
        assert!(reassembly.held_bytes() <= HELD_BYTES_MAX);
        match pushed {
            Ok(Pushed::Whole) => whole(message.into()),
            Ok(Pushed::Completed(message)) => {
                assert!(message.whole().bytes.len() <= HELD_BYTES_MAX);
                whole(message.whole());
            }
            Ok(Pushed::Kept) => {}
            Err(_) => return,
        }
    }
}

/// One whole message.
fn whole(all: Whole<'_>) {
    let bytes = all.bytes;
    let Ok(message) = Message::read_whole(all) else { return };
    match message {
        Message::Request(request, body) => same_again(&request, body),
        Message::Reply(reply, mut body) => match reply.status {
            ReplyStatus::SystemException => {
                let _ = SystemException::decode(&mut body);
            }
            ReplyStatus::LocationForward | ReplyStatus::LocationForwardPerm => {
                let _ = Reference::decode(&mut body);
            }
            _ => {
                let _ = Any::decode(&mut body);
            }
        },
        _ => {}
    }
    cut_and_joined(bytes);
    let (header, _) = bytes.split_first_chunk().expect("a message has a header");
    let header = Header::parse(header).expect("it was read");
    for role in [Role::Client, Role::Server, Role::Both] {
        let (state, action) = step(role, State::Open, Event::Received(header.kind, header.version));
        assert!(
            header.kind != MessageType::Fragment || (state, action) == (State::Closed, Action::SendError)
        );
    }
}

/// What a request says is written as it was read.
fn same_again(request: &Request<'_>, body: Decoder<'_>) {
    for context in request.contexts.iter() {
        let _ = Chosen::of_context(context.data);
        let _ = ListenPoints::of_context(context.data);
    }
    let _ = request.target.object_key();
    let mut to = Encoder::new(body.order(), body.version());
    let open = request.begin(&mut to).expect("what was read has bytes");
    open.finish(&mut to).expect("it is short");
    let Ok(Message::Request(again, _)) = Message::read(to.as_bytes()) else { panic!("no request") };
    assert_eq!(again, *request);
}

/// A message in fragments comes back whole. Flags that nobody knows are lost.
fn cut_and_joined(bytes: &[u8]) {
    let mut expected = bytes.to_vec();
    expected[6] &= 3;
    let mut reassembly = Reassembly::new(bytes.len() + 64, 1);
    for piece in pieces(bytes, 40).expect("a message") {
        let piece = [piece.head(), piece.body].concat();
        let (header, _) = piece.split_first_chunk().expect("a header");
        let header = Header::parse(header).expect("a header");
        match reassembly.push(&header, &piece).expect("a fragment") {
            Pushed::Kept => {}
            Pushed::Whole => return assert_eq!(piece, expected),
            Pushed::Completed(whole) => return assert_eq!(whole.whole().bytes, expected),
        }
    }
    panic!("it does not end");
}

/// Messages of each type, whole and in fragments.
pub fn message_seeds() -> Vec<Vec<u8>> {
    use punctual_giop::message::{
        LocateReply, LocateRequest, LocateStatus, Reply, RequestId, Response, Target, write_cancel_request,
        write_close_connection,
    };
    use punctual_giop::{Completion, SystemExceptionKind, Tagged, TaggedList};
    let contexts = [Tagged { id: 1, data: &Chosen::DEFAULT.to_context() }];
    let contexts = TaggedList::from(&contexts[..]);
    let mut all = Vec::new();
    for (order, version) in ORDERS.into_iter().flat_map(|order| VERSIONS.map(|version| (order, version))) {
        let mut to = Encoder::new(order, version);
        let (id, target) = (RequestId(2), Target::Key(b"key"));
        let response = Response::Target;
        let request =
            Request { id, response, target: target.clone(), operation: "echo", contexts: contexts.clone() };
        let open = request.begin(&mut to).expect("it has bytes");
        "a long argument that needs a fragment or two".encode(&mut to).expect("it has bytes");
        open.finish(&mut to).expect("it is short");
        let cut = pieces(to.as_bytes(), 40).expect("a message");
        all.push(cut.flat_map(|piece| [piece.head(), piece.body].concat()).collect());
        for status in [ReplyStatus::NoException, ReplyStatus::SystemException] {
            let reply = Reply { id, status, contexts: contexts.clone() };
            let open = reply.begin(&mut to).expect("it has bytes");
            SystemException::new(SystemExceptionKind::Transient, 1, Completion::No)
                .encode(&mut to)
                .expect("it has bytes");
            open.finish(&mut to).expect("it is short");
        }
        LocateRequest { id, target }.write(&mut to).expect("it has bytes");
        let reply = LocateReply { id, status: LocateStatus::ObjectHere };
        reply.begin(&mut to).expect("it has bytes").finish(&mut to).expect("it is short");
        write_cancel_request(id, &mut to).expect("it is short");
        write_close_connection(&mut to).expect("it is short");
        all.push(to.into_bytes());
    }
    all
}

/// References as text that somebody gives to a program.
pub fn references(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    match text.parse::<Link>() {
        Err(error) => assert!(!error.to_string().is_empty()),
        Ok(Link::Reference(reference)) => explained(&reference),
        Ok(Link::Corbaloc(at)) => {
            assert_eq!(at.to_string().parse(), Ok(Link::Corbaloc(at.clone())));
            let reference = at.reference("host").expect("it has bytes");
            reference.iter().for_each(explained);
        }
        Ok(Link::Corbaname(name)) => {
            assert_eq!(name.to_string().parse(), Ok(Link::Corbaname(name.clone())), "{name}");
        }
    }
}

fn explained(reference: &Reference) {
    let text = stringify(reference).expect("what was read has bytes");
    assert_eq!(text.parse(), Ok(Link::Reference(reference.clone())));
    for profile in reference.iiop_profiles().flatten() {
        let bytes = profile.to_bytes().expect("what was read has bytes");
        assert_eq!(IiopProfile::parse(&bytes).as_ref(), Ok(&profile));
        let _ = profile.addresses();
        for component in &profile.components {
            let _: Result<Option<component::UnixAddress>, _> = component.unix_address();
            let _ = component.orb_type();
            let _ = CodeSets::of_component(component);
        }
    }
}

/// References in each form.
pub fn reference_seeds() -> Vec<Vec<u8>> {
    let texts = [
        "corbaloc::host/key",
        "corbaloc:iiop:1.2@[::1]:5,:other:77,omniunix:/run/a:/a%20b",
        "corbaloc:rir:/NameService",
        "corbaname::host:2809#a.b/c\\/d",
        "corbaname:rir:#a",
        "IOR:010000000d00000049444c3a4563686f3a312e3000000000010000000000000079000000010102000a0000003132\
         372e302e302e31009fc501000000780000000300000000000000080000000100000000545441010000001c0000000100\
         0000010001000100000001000105090101000100000009010100025454411d0000000100000003000000766d00000d00\
         00002f746d702f67696f70742f7300",
    ];
    texts.map(|text| text.as_bytes().to_vec()).to_vec()
}

/// Words of references.
pub const REFERENCE_WORDS: &[&str] = &[
    "IOR:",
    "corbaloc:",
    "corbaname:",
    "iiop:",
    "omniunix:",
    "rir:",
    "1.2@",
    "[::1]",
    "%00",
    "#",
    "00000001",
    "\\.",
];
