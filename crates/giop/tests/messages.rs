//! Messages there and back in each version and order, their bytes as the standard has them, and bytes that lie.

use std::borrow::Cow;

use punctual_giop::message::{
    Addressing, Error, Header, LocateReply, LocateRequest, LocateStatus, Message, MessageType, Reply,
    ReplyStatus, Request, RequestId, Response, Target, write_cancel_request, write_close_connection,
    write_message_error,
};
use punctual_giop::reference::{Address, IiopProfile};
use punctual_giop::{
    ByteOrder, Completion, Decode, Encode, Encoder, Error as CdrError, Reference, SystemException,
    SystemExceptionKind, Tagged, TaggedList, Version,
};

const ORDERS: [ByteOrder; 2] = [ByteOrder::Big, ByteOrder::Little];
const VERSIONS: [Version; 3] = [Version::V1_0, Version::V1_1, Version::V1_2];

/// What a message is written to, in each version and order.
fn encoders() -> impl Iterator<Item = Encoder> {
    ORDERS.into_iter().flat_map(|order| VERSIONS.map(|version| Encoder::new(order, version)))
}

const CONTEXTS: [Tagged<'_>; 2] = [Tagged { id: 1, data: &[1, 2, 3] }, Tagged { id: 0x5055, data: &[] }];

fn request<'a>(target: Target<'a>, operation: &'a str) -> Request<'a> {
    let contexts = TaggedList::from(&CONTEXTS[..]);
    Request { id: RequestId(7), response: Response::Target, target, operation, contexts }
}

fn reference() -> Reference {
    let profile = IiopProfile {
        version: Version::V1_2,
        address: Address { host: "::1".into(), port: 2809 },
        object_key: b"key".to_vec(),
        components: vec![],
    };
    Reference::iiop("IDL:Echo:1.0", &profile).expect("it has bytes")
}

#[test]
fn requests_come_back_with_their_arguments() {
    for mut to in encoders() {
        for operation in ["a", "ab", "abc", "abcd", "abcde", "abcdef", "abcdefg", "abcdefgh"] {
            let request = request(Target::Key(b"key"), operation);
            let open = request.begin(&mut to).expect("it has bytes");
            1.5f64.encode(&mut to).expect("it has bytes");
            open.finish(&mut to).expect("it is short");
            let Ok(Message::Request(read, mut body)) = Message::read(to.as_bytes()) else {
                panic!("no request")
            };
            assert_eq!(read, request);
            assert_eq!(f64::decode(&mut body), Ok(1.5));
            assert_eq!(body.remaining(), 0);
            to.clear();
        }
    }
}

#[test]
fn a_request_without_arguments_has_no_padding() {
    for mut to in encoders() {
        let mut rests = Vec::new();
        for operation in ["op", "open_it"] {
            let request = request(Target::Key(b"k"), operation);
            request.begin(&mut to).expect("it has bytes").finish(&mut to).expect("it is short");
            let Ok(Message::Request(read, body)) = Message::read(to.as_bytes()) else { panic!("no request") };
            assert_eq!((read, body.remaining()), (request, 0));
            rests.push(to.as_bytes().len() % 8);
            to.clear();
        }
        rests.sort_unstable();
        assert_eq!(rests, [0, 4], "one of them ends at no multiple of 8");
    }
}

#[test]
fn objects_are_named_in_three_ways_since_1_2() {
    let reference = reference();
    let profile = Tagged { id: reference.profiles[0].tag, data: &reference.profiles[0].data };
    let targets =
        [Target::Key(b"key"), Target::Profile(profile), Target::Reference(0, Cow::Borrowed(&reference))];
    for mut to in encoders() {
        for target in &targets {
            let request = request(target.clone(), "ping");
            let is_old = to.version() < Version::V1_2;
            match request.begin(&mut to) {
                Ok(open) => open.finish(&mut to).expect("it is short"),
                Err(error) => {
                    assert_eq!((error, is_old), (CdrError::Version, true));
                    assert_eq!(to.as_bytes(), [], "nothing is left of it");
                    continue;
                }
            }
            assert!(!is_old || matches!(target, Target::Key(_)));
            let Ok(Message::Request(read, _)) = Message::read(to.as_bytes()) else { panic!("no request") };
            assert_eq!(read.target, *target);
            assert_eq!(read.target.object_key(), Ok(&b"key"[..]));
            to.clear();
        }
    }
    let other = Target::Profile(Tagged { id: 99, data: &[] });
    assert!(other.object_key().is_err());
    assert!(Target::Reference(1, Cow::Borrowed(&reference)).object_key().is_err());
}

#[test]
fn who_answers_is_as_the_version_can_say() {
    for mut to in encoders() {
        for response in [Response::None, Response::Server, Response::Target] {
            let request = Request { response, ..request(Target::Key(b"k"), "notify") };
            request.begin(&mut to).expect("it has bytes").finish(&mut to).expect("it is short");
            let Ok(Message::Request(read, _)) = Message::read(to.as_bytes()) else { panic!("no request") };
            let is_told = to.version() == Version::V1_2 || response == Response::None;
            assert_eq!(read.response, if is_told { response } else { Response::Target });
            to.clear();
        }
    }
}

#[test]
fn replies_come_back_with_each_status() {
    let exception = SystemException::new(SystemExceptionKind::Transient, 2, Completion::No);
    for mut to in encoders() {
        for status in ReplyStatus::ALL {
            let reply = Reply { id: RequestId(9), status, contexts: TaggedList::from(&CONTEXTS[..1]) };
            let is_new =
                matches!(status, ReplyStatus::LocationForwardPerm | ReplyStatus::NeedsAddressingMode);
            let open = match reply.begin(&mut to) {
                Ok(open) => open,
                Err(error) => {
                    assert!(error == CdrError::Version && is_new && to.version() < Version::V1_2);
                    continue;
                }
            };
            exception.encode(&mut to).expect("it has bytes");
            open.finish(&mut to).expect("it is short");
            let Ok(Message::Reply(read, mut body)) = Message::read(to.as_bytes()) else { panic!("no reply") };
            assert_eq!(read, reply);
            assert_eq!(SystemException::decode(&mut body), Ok(exception));
            to.clear();
        }
    }
}

#[test]
fn locations_come_back_with_each_status() {
    let reference = reference();
    for mut to in encoders() {
        let question = LocateRequest { id: RequestId(3), target: Target::Key(b"key") };
        question.write(&mut to).expect("it has bytes");
        let Ok(Message::LocateRequest(read)) = Message::read(to.as_bytes()) else { panic!("no question") };
        assert_eq!(read, question);
        to.clear();
        for status in LocateStatus::ALL {
            let reply = LocateReply { id: RequestId(3), status };
            let Ok(open) = reply.begin(&mut to) else {
                assert!(to.version() < Version::V1_2 && status as u32 > 2);
                continue;
            };
            reference.encode(&mut to).expect("it has bytes");
            open.finish(&mut to).expect("it is short");
            let Ok(Message::LocateReply(read, mut body)) = Message::read(to.as_bytes()) else {
                panic!("no answer")
            };
            assert_eq!(read, reply);
            assert_eq!(Reference::decode(&mut body).as_ref(), Ok(&reference));
            to.clear();
        }
    }
}

#[test]
fn short_messages_come_back() {
    for mut to in encoders() {
        write_cancel_request(RequestId(5), &mut to).expect("it is short");
        assert!(matches!(Message::read(to.as_bytes()), Ok(Message::CancelRequest(RequestId(5)))));
        to.clear();
        write_close_connection(&mut to).expect("it is short");
        assert!(matches!(Message::read(to.as_bytes()), Ok(Message::CloseConnection)));
        to.clear();
        write_message_error(&mut to).expect("it is short");
        assert!(matches!(Message::read(to.as_bytes()), Ok(Message::MessageError)));
    }
}

/// Bytes that were put down by hand from the tables of CORBA 15.4.
#[test]
fn bytes_are_those_of_the_standard() {
    let mut to = Encoder::new(ByteOrder::Big, Version::V1_2);
    let request = Request { contexts: TaggedList::default(), ..request(Target::Key(b"k"), "op") };
    let open = request.begin(&mut to).expect("it has bytes");
    9u8.encode(&mut to).expect("it has bytes");
    open.finish(&mut to).expect("it is short");
    #[rustfmt::skip]
    let expected = [
        b'G', b'I', b'O', b'P', 1, 2, 0, 0, 0, 0, 0, 37,
        0, 0, 0, 7, // its number
        3, 0, 0, 0, // the object answers
        0, 0, 0, 0, 0, 0, 0, 1, b'k', 0, 0, 0, // by its key
        0, 0, 0, 3, b'o', b'p', 0, 0,
        0, 0, 0, 0, // no contexts
        0, 0, 0, 0, // aligned to 8 from the begin of the message
        9,
    ];
    assert_eq!(to.as_bytes(), expected);

    let mut to = Encoder::new(ByteOrder::Little, Version::V1_0);
    request.begin(&mut to).expect("it has bytes").finish(&mut to).expect("it is short");
    #[rustfmt::skip]
    let expected = [
        b'G', b'I', b'O', b'P', 1, 0, 1, 0, 32, 0, 0, 0,
        0, 0, 0, 0, // no contexts
        7, 0, 0, 0,
        1, 0, 0, 0, // a reply is expected
        1, 0, 0, 0, b'k', 0, 0, 0,
        3, 0, 0, 0, b'o', b'p', 0, 0,
        0, 0, 0, 0, // nobody asks
    ];
    let size = (expected.len() - Header::BYTES) as u8;
    assert_eq!(to.as_bytes()[8], size);
    assert_eq!(to.as_bytes()[Header::BYTES..], expected[Header::BYTES..]);
}

#[test]
fn several_messages_are_written_into_one_buffer() {
    let mut to = Encoder::new(ByteOrder::NATIVE, Version::V1_2);
    let request = request(Target::Key(b"k"), "oneway");
    let mut ends = vec![0];
    for number in 0..3u64 {
        let open = request.begin(&mut to).expect("it has bytes");
        number.encode(&mut to).expect("it has bytes");
        open.finish(&mut to).expect("it is short");
        to.write(&[7; 3][..(ends.len() - 1).min(3)]);
        ends.push(to.as_bytes().len());
    }
    for (number, ends) in ends.windows(2).enumerate() {
        let bytes = &to.as_bytes()[ends[0]..ends[1] - number];
        let Ok(Message::Request(_, mut body)) = Message::read(bytes) else { panic!("no request") };
        assert_eq!(u64::decode(&mut body), Ok(number as u64));
    }
}

#[test]
fn a_body_is_written_anew_or_sent_behind() {
    let mut to = Encoder::new(ByteOrder::NATIVE, Version::V1_2);
    let reply = Reply { id: RequestId(1), status: ReplyStatus::NoException, contexts: TaggedList::default() };
    let open = reply.begin(&mut to).expect("it has bytes");
    "half of a result".encode(&mut to).expect("it has bytes");
    open.restart_body(&mut to);
    open.finish_before(&mut to, 5).expect("it is short");
    let whole = [to.as_bytes(), &[1, 2, 3, 4, 5]].concat();
    let Ok(Message::Reply(_, mut body)) = Message::read(&whole) else { panic!("no reply") };
    assert_eq!(body.read(5), Ok(&[1, 2, 3, 4, 5][..]));
    let open = reply.begin(&mut to).expect("it has bytes");
    let before = to.as_bytes().len();
    let long = open.finish_before(&mut to, u32::MAX as usize);
    assert!(matches!(long, Err(CdrError::Length(_))), "no message is so long");
    assert!(to.as_bytes().len() < before, "nothing is left of it");
}

/// Messages in each version, whole.
fn samples() -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    for mut to in encoders() {
        let request = request(Target::Key(b"key"), "operation");
        let open = request.begin(&mut to).expect("it has bytes");
        "argument".encode(&mut to).expect("it has bytes");
        open.finish(&mut to).expect("it is short");
        all.push(to.as_bytes().to_vec());
        to.clear();
        let status = ReplyStatus::NoException;
        let reply = Reply { id: RequestId(1), status, contexts: TaggedList::from(&CONTEXTS[..]) };
        reply.begin(&mut to).expect("it has bytes").finish(&mut to).expect("it is short");
        all.push(to.as_bytes().to_vec());
        to.clear();
        let question = LocateRequest { id: RequestId(3), target: Target::Key(b"key") };
        question.write(&mut to).expect("it has bytes");
        all.push(to.into_bytes());
    }
    all
}

#[test]
fn truncated_and_overlong_messages_are_refused() {
    for whole in samples() {
        for end in 0..whole.len() {
            assert!(Message::read(&whole[..end]).is_err());
            if end < Header::BYTES {
                continue;
            }
            // With a size that fits: the fields must notice, unless the end is within the body.
            let mut cut = whole[..end].to_vec();
            let (header, _) = cut.split_first_chunk().expect("a header");
            let header =
                Header { size: (end - Header::BYTES) as u32, ..Header::parse(header).expect("known") };
            cut[..Header::BYTES].copy_from_slice(&header.to_bytes());
            if let Ok(Message::Request(_, mut body)) = Message::read(&cut) {
                assert!(String::decode(&mut body).is_err());
            }
        }
        let long = [&whole[..], &[0]].concat();
        assert!(matches!(Message::read(&long), Err(Error::Size { .. })));
    }
}

#[test]
fn wrong_headers_are_refused() {
    let header = |change: fn(&mut [u8; 12])| {
        let mut bytes = *b"GIOP\x01\x02\x00\x00\x00\x00\x00\x04";
        change(&mut bytes);
        Header::parse(&bytes)
    };
    assert!(header(|_| {}).is_ok());
    assert_eq!(header(|bytes| bytes[0] = b'g'), Err(Error::Magic));
    assert_eq!(header(|bytes| bytes[4] = 2), Err(Error::Version(2, 2)));
    assert_eq!(header(|bytes| bytes[5] = 3), Err(Error::Version(1, 3)));
    assert_eq!(header(|bytes| bytes[7] = 8), Err(Error::Type(8)));
    assert_eq!(
        header(|bytes| {
            bytes[5] = 0;
            bytes[7] = 7;
        }),
        Err(Error::Type(7)),
        "1.0 has no fragments"
    );
    assert_eq!(
        header(|bytes| {
            bytes[5] = 0;
            bytes[6] = 2;
        }),
        Err(Error::Flags(2))
    );
    assert_eq!(
        header(|bytes| {
            bytes[6] = 2;
            bytes[7] = 5;
        }),
        Err(Error::Flags(2)),
        "no fragments follow CloseConnection"
    );
    let long = header(|bytes| bytes[8] = 0xFF).expect("a header");
    assert!(matches!(long.message_bytes(1 << 20), Err(Error::Size { .. })));
    assert_eq!(header(|_| {}).expect("a header").message_bytes(4), Ok(16));
}

#[test]
fn headers_come_back() {
    for version in VERSIONS {
        for order in ORDERS {
            for kind in MessageType::ALL {
                for has_more in [false, true] {
                    let header = Header { version, order, has_more, kind, size: 0x0102_0304 };
                    let is_allowed = (!has_more || kind.may_be_fragmented(version))
                        && (kind != MessageType::Fragment || version > Version::V1_0);
                    assert_eq!(Header::parse(&header.to_bytes()).ok(), is_allowed.then_some(header));
                }
            }
        }
    }
}

#[test]
fn a_message_in_the_wrong_order_is_refused() {
    for whole in samples() {
        let mut wrong = whole.clone();
        wrong[6] ^= 1;
        assert!(Message::read(&wrong).is_err(), "its size is wrong");
        wrong[8..12].reverse();
        assert!(Message::read(&wrong).is_err(), "its lengths are wrong: {wrong:?}");
    }
}

#[test]
fn counts_that_lie_are_refused() {
    // A reply of 1.2 whose list of contexts has 2^32 - 1 elements.
    let mut lie = b"GIOP\x01\x02\x00\x01\x00\x00\x00\x0c".to_vec();
    lie.extend([0, 0, 0, 1, 0, 0, 0, 0, 0xFF, 0xFF, 0xFF, 0xFF]);
    assert_eq!(Message::read(&lie).unwrap_err(), Error::Cdr(CdrError::Length(u32::MAX.into())));
    // A status and a way to name the object that are none.
    let mut status = b"GIOP\x01\x02\x00\x01\x00\x00\x00\x0c".to_vec();
    status.extend([0, 0, 0, 1, 0, 0, 0, 6, 0, 0, 0, 0]);
    assert_eq!(Message::read(&status).unwrap_err(), Error::Cdr(CdrError::Enumerator(6)));
    let mut target = b"GIOP\x01\x02\x00\x03\x00\x00\x00\x08".to_vec();
    target.extend([0, 0, 0, 1, 0, 3, 0, 0]);
    assert_eq!(Message::read(&target).unwrap_err(), Error::Cdr(CdrError::Enumerator(3)));
    assert_eq!(punctual_giop::Decoder::new(&[0, 2], ByteOrder::Big, Version::V1_2).remaining(), 2);
    let mode = Addressing::decode(&mut punctual_giop::Decoder::new(&[0, 2], ByteOrder::Big, Version::V1_2));
    assert_eq!(mode, Ok(Addressing::Reference));
}

#[test]
fn system_exceptions_come_back_and_unknown_ones_are_unknown() {
    assert_eq!(SystemExceptionKind::ALL.len(), 40);
    for kind in SystemExceptionKind::ALL {
        for completed in [Completion::Yes, Completion::No, Completion::Maybe] {
            let exception = SystemException { kind: *kind, minor: 0x4154_0001, completed };
            for mut to in encoders() {
                exception.encode(&mut to).expect("it has bytes");
                let mut from = punctual_giop::Decoder::new(to.as_bytes(), to.order(), to.version());
                assert_eq!(SystemException::decode(&mut from), Ok(exception));
            }
        }
    }
    let mut to = Encoder::new(ByteOrder::Big, Version::V1_2);
    "IDL:omg.org/CORBA/NEW:1.0".encode(&mut to).expect("it has bytes");
    [5u32, 1].iter().for_each(|number| number.encode(&mut to).expect("it has bytes"));
    let mut from = punctual_giop::Decoder::new(to.as_bytes(), to.order(), to.version());
    let unknown = SystemException::decode(&mut from).expect("it is one");
    assert_eq!((unknown.kind, unknown.standard_minor()), (SystemExceptionKind::Unknown, Some(2)));
    let shown = SystemException::new(SystemExceptionKind::Transient, 2, Completion::No).to_string();
    assert!(shown.starts_with("TRANSIENT: ") && shown.contains("no address of the reference"), "{shown}");
}
