//! Messages in fragments: cut and put together in every size, mixed, and fragments that lie or never end.

use punctual_giop::flat::{Reader, Writer};
use punctual_giop::message::{
    Error, Header, Message, MessageType, Request, RequestId, Response, Target, write_cancel_request,
};
use punctual_giop::reassembly::{Joined, Pushed, Reassembly, pieces};
use punctual_giop::{
    ByteOrder, Decode, Encode, Encoder, Error as CdrError, Flat, Layout, TaggedList, Version,
};

const ORDERS: [ByteOrder; 2] = [ByteOrder::Big, ByteOrder::Little];

fn request_head(id: u32) -> Request<'static> {
    Request {
        id: RequestId(id),
        response: Response::Target,
        target: Target::Key(b"key"),
        operation: "put",
        contexts: TaggedList::default(),
    }
}

/// A request whose argument is a sequence of so many numbers.
fn request(id: u32, numbers: u64, order: ByteOrder, version: Version) -> Vec<u8> {
    let mut to = Encoder::new(order, version);
    let open = request_head(id).begin(&mut to).expect("it has bytes");
    (0..numbers).collect::<Vec<u64>>().encode(&mut to).expect("it has bytes");
    open.finish(&mut to).expect("it is short");
    to.into_bytes()
}

fn cut(message: &[u8], piece_bytes_max: usize) -> Vec<Vec<u8>> {
    let pieces = pieces(message, piece_bytes_max).expect("a message");
    pieces.map(|piece| [piece.head(), piece.body].concat()).collect()
}

fn header(bytes: &[u8]) -> Header {
    Header::parse(bytes.first_chunk().expect("a header")).expect("a header")
}

fn push(to: &mut Reassembly, bytes: &[u8]) -> Result<Pushed, Error> {
    to.push(&header(bytes), bytes)
}

#[test]
fn messages_are_cut_and_put_together_in_every_size() {
    for order in ORDERS {
        let whole = request(7, 50, order, Version::V1_2);
        for piece_bytes_max in 0..whole.len() + 20 {
            let cut = cut(&whole, piece_bytes_max);
            assert!(cut.iter().all(|piece| piece.len() <= piece_bytes_max.max(32)));
            let mut reassembly = Reassembly::new(1 << 20, 4);
            let (last, first) = cut.split_last().expect("a piece");
            for piece in first {
                assert_eq!(push(&mut reassembly, piece), Ok(Pushed::Kept));
            }
            match push(&mut reassembly, last) {
                Ok(Pushed::Whole) => assert!(first.is_empty()),
                Ok(Pushed::Completed(joined)) => assert_eq!(joined.whole(), whole[..].into()),
                other => panic!("{other:?}"),
            }
            assert_eq!((reassembly.is_empty(), reassembly.held_bytes()), (true, 0));
            let Ok(Message::Request(_, mut body)) = Message::read(&whole) else { panic!("a request") };
            assert_eq!(Vec::<u64>::decode(&mut body).map(|numbers| numbers.len()), Ok(50));
        }
    }
}

#[test]
fn fragments_of_several_messages_mix_since_1_2() {
    let whole: Vec<_> =
        (0..5).map(|id| request(id, 20 + u64::from(id), ByteOrder::Big, Version::V1_2)).collect();
    let mut cut: Vec<_> = whole.iter().map(|whole| cut(whole, 64).into_iter()).collect();
    let mut reassembly = Reassembly::new(1 << 20, 5);
    let mut completed = Vec::new();
    while completed.len() < whole.len() {
        for piece in cut.iter_mut().filter_map(Iterator::next) {
            if let Pushed::Completed(message) = push(&mut reassembly, &piece).expect("a fragment") {
                completed.push(message.whole().bytes.to_vec());
            }
        }
    }
    completed.sort_by_key(Vec::len);
    assert_eq!(completed, whole);
}

/// A message of 1.1 in two parts; its fragments have no number.
fn of_1_1(order: ByteOrder) -> (Vec<u8>, Vec<u8>, Vec<u8>) {
    let whole = request(7, 20, order, Version::V1_1);
    let (begin, end) = whole.split_at(64);
    let mut begin = begin.to_vec();
    let first = Header { has_more: true, size: 52, ..header(&whole) };
    begin[..12].copy_from_slice(&first.to_bytes());
    let size = end.len() as u32;
    let last = Header { kind: MessageType::Fragment, has_more: false, size, ..first };
    (whole.clone(), begin, [&last.to_bytes(), end].concat())
}

#[test]
fn fragments_of_1_1_belong_to_the_message_before() {
    for order in ORDERS {
        let (whole, begin, end) = of_1_1(order);
        let mut reassembly = Reassembly::new(1 << 20, 4);
        assert_eq!(push(&mut reassembly, &begin), Ok(Pushed::Kept));
        assert_eq!(push(&mut reassembly, &whole), Err(Error::Type(0)), "no request may be between them");
        let mut to = Encoder::new(order, Version::V1_1);
        write_cancel_request(RequestId(3), &mut to).expect("it is short");
        assert_eq!(push(&mut reassembly, to.as_bytes()), Ok(Pushed::Whole));
        assert!(push(&mut reassembly, &begin).is_err(), "a second message");
        let Ok(Pushed::Completed(joined)) = push(&mut reassembly, &end) else { panic!("it was the last") };
        assert_eq!(joined.whole().bytes, whole);
        assert_eq!(joined.whole().breaks, [64]);
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Mixed {
    one: f64,
    two: u8,
    three: i32,
}

impl Flat for Mixed {
    const LAYOUT: Layout = Layout::of(&[f64::LAYOUT, u8::LAYOUT, i32::LAYOUT]);

    fn put(&self, to: &mut Writer<'_>) -> Result<(), CdrError> {
        self.one.put(to)?;
        self.two.put(to)?;
        self.three.put(to)
    }

    fn take(from: &mut Reader<'_>) -> Result<Self, CdrError> {
        Ok(Self { one: Flat::take(from)?, two: Flat::take(from)?, three: Flat::take(from)? })
    }
}

punctual_giop::flat!(Mixed);

/// A message that is written as omniORB does with 1.1: a fragment ends before the value that has no room in it, and alignment
/// counts from the header of the fragment.
struct Fragments {
    order: ByteOrder,
    /// Bytes of a fragment at most, a multiple of 8.
    bytes_max: usize,
    whole: Vec<Vec<u8>>,
    now: Encoder,
}

impl Fragments {
    fn begin(order: ByteOrder, bytes_max: usize) -> Self {
        let mut now = Encoder::new(order, Version::V1_1);
        let _ = request_head(7).begin(&mut now).expect("it has bytes");
        Self { order, bytes_max, whole: vec![], now }
    }

    fn next(&mut self) {
        let next = Encoder::new(self.order, Version::V1_1);
        self.whole.push(core::mem::replace(&mut self.now, next).into_bytes());
        self.now.write(&[0; Header::BYTES]);
    }

    fn write(&mut self, value: &impl Encode) {
        let before = self.now.clone();
        value.encode(&mut self.now).expect("it has bytes");
        if self.now.offset() > self.bytes_max {
            self.now = before;
            self.next();
            value.encode(&mut self.now).expect("it has bytes");
        }
    }

    /// Bytes of a sequence that omniORB sends without copying them: in a fragment that ends anywhere.
    fn octets(&mut self, bytes: &[u8]) {
        bytes.to_vec().encode(&mut self.now).expect("it has bytes");
        self.next();
    }

    fn end(mut self) -> Vec<Vec<u8>> {
        self.next();
        let count = self.whole.len();
        for (number, bytes) in self.whole.iter_mut().enumerate() {
            let kind = if number == 0 { MessageType::Request } else { MessageType::Fragment };
            let size = (bytes.len() - Header::BYTES) as u32;
            let has_more = number + 1 < count;
            let header = Header { version: Version::V1_1, order: self.order, has_more, kind, size };
            bytes[..Header::BYTES].copy_from_slice(&header.to_bytes());
        }
        self.whole
    }
}

fn joined(fragments: &[Vec<u8>]) -> Joined {
    let mut reassembly = Reassembly::new(1 << 20, 4);
    for (number, bytes) in fragments.iter().enumerate() {
        assert_eq!(reassembly.admit(&header(bytes)), Ok(()));
        match push(&mut reassembly, bytes).expect("a fragment") {
            Pushed::Completed(joined) => {
                assert_eq!((number + 1, reassembly.held_bytes()), (fragments.len(), 0));
                return joined;
            }
            other => assert_eq!(other, Pushed::Kept),
        }
    }
    panic!("it does not end")
}

#[test]
fn values_in_fragments_of_1_1_are_aligned_by_their_fragment() {
    for order in ORDERS {
        for bytes_max in (64..200).step_by(8) {
            let mut to = Fragments::begin(order, bytes_max);
            for number in 0..20u8 {
                to.write(&f64::from(number));
                to.write(&number);
                to.write(&i32::from(number));
                to.write(&number);
            }
            to.octets(&[1; 13]);
            to.write(&5u8);
            to.write(&0x0102_0304_0506_0708u64);
            let joined = joined(&to.end());
            let Ok(Message::Request(_, mut body)) = Message::read_whole(joined.whole()) else {
                panic!("a request")
            };
            for number in 0..20u8 {
                // As one flat value, and number by number.
                if number % 2 == 0 {
                    let mixed = Mixed { one: number.into(), two: number, three: number.into() };
                    assert_eq!(Mixed::decode(&mut body), Ok(mixed));
                } else {
                    assert_eq!(f64::decode(&mut body), Ok(number.into()));
                    assert_eq!(u8::decode(&mut body), Ok(number));
                    assert_eq!(i32::decode(&mut body), Ok(number.into()));
                }
                assert_eq!(u8::decode(&mut body), Ok(number));
            }
            assert_eq!(body.octets(), Ok(&[1; 13][..]));
            assert_eq!(u8::decode(&mut body), Ok(5));
            assert_eq!(u64::decode(&mut body), Ok(0x0102_0304_0506_0708));
            assert_eq!(body.remaining(), 0);
        }
    }
}

#[test]
fn sequences_of_structures_cross_fragments_of_1_1() {
    for order in ORDERS {
        let all: Vec<Mixed> =
            (0..50u8).map(|number| Mixed { one: number.into(), two: number, three: number.into() }).collect();
        let mut to = Fragments::begin(order, 96);
        to.write(&50u32);
        for one in &all {
            to.write(&one.one);
            to.write(&one.two);
            to.write(&one.three);
        }
        let fragments = to.end();
        let joined = joined(&fragments);
        let Ok(Message::Request(_, mut body)) = Message::read_whole(joined.whole()) else {
            panic!("a request")
        };
        assert_eq!(Vec::<Mixed>::decode(&mut body), Ok(all));
        assert_eq!(body.remaining(), 0);
    }
}

#[test]
fn empty_fragments_of_1_1_are_bounded_too() {
    let mut reassembly = Reassembly::new(4_096, 4);
    let (_, begin, _) = of_1_1(ByteOrder::Big);
    assert_eq!(push(&mut reassembly, &begin), Ok(Pushed::Kept));
    let empty = Header { kind: MessageType::Fragment, size: 0, ..header(&begin) }.to_bytes();
    let end = (0..10_000).find(|_| push(&mut reassembly, &empty).is_err());
    assert!(end.is_some_and(|count| count > 100), "{end:?}");
    assert!(reassembly.held_bytes() <= 4_096);
}

#[test]
fn fragments_that_are_too_long_are_refused_by_their_header() {
    let cut = cut(&request(7, 1_000, ByteOrder::Big, Version::V1_2), 1_024);
    let mut reassembly = Reassembly::new(2_000, 1);
    assert_eq!(push(&mut reassembly, &cut[0]), Ok(Pushed::Kept));
    assert!(matches!(reassembly.admit(&header(&cut[1])), Err(Error::Size { .. })), "no room for it");
    assert!(matches!(reassembly.admit(&header(&cut[0])), Err(Error::Size { .. })), "one message at a time");
    let whole = request(8, 10_000, ByteOrder::Big, Version::V1_2);
    assert_eq!(reassembly.admit(&header(&whole)), Ok(()), "it is not kept");
}

#[test]
fn a_cancelled_request_is_forgotten() {
    let cut = cut(&request(7, 20, ByteOrder::Big, Version::V1_2), 64);
    let mut reassembly = Reassembly::new(1 << 20, 4);
    assert_eq!(push(&mut reassembly, &cut[0]), Ok(Pushed::Kept));
    reassembly.cancel(RequestId(8));
    assert!(!reassembly.is_empty(), "another request");
    reassembly.cancel(RequestId(7));
    assert_eq!((reassembly.is_empty(), reassembly.held_bytes()), (true, 0));
    assert_eq!(push(&mut reassembly, &cut[1]), Err(Error::Type(7)), "a fragment of no message");
}

#[test]
fn fragments_that_never_end_are_bounded() {
    let cut = cut(&request(7, 1_000, ByteOrder::Big, Version::V1_2), 1_024);
    let mut reassembly = Reassembly::new(10_000, 4);
    assert_eq!(push(&mut reassembly, &cut[0]), Ok(Pushed::Kept));
    let mut kept = 1;
    let error = loop {
        assert!(reassembly.held_bytes() <= 10_000);
        match push(&mut reassembly, &cut[1]) {
            Ok(pushed) => assert_eq!(pushed, Pushed::Kept),
            Err(error) => break error,
        }
        kept += 1;
    };
    assert!(matches!(error, Error::Size { .. }));
    assert_eq!(kept, 9, "as many as the limit has room for");
}

#[test]
fn messages_in_pieces_are_bounded() {
    let mut reassembly = Reassembly::new(1 << 20, 3);
    for id in 0..3 {
        let cut = cut(&request(id, 20, ByteOrder::Big, Version::V1_2), 64);
        assert_eq!(push(&mut reassembly, &cut[0]), Ok(Pushed::Kept));
    }
    let one_more = cut(&request(3, 20, ByteOrder::Big, Version::V1_2), 64);
    assert!(matches!(push(&mut reassembly, &one_more[0]), Err(Error::Size { .. })));
    // One that is too long alone leaves nothing behind.
    let mut reassembly = Reassembly::new(63, 3);
    assert!(matches!(push(&mut reassembly, &one_more[0]), Err(Error::Size { .. })));
    assert_eq!((reassembly.is_empty(), reassembly.held_bytes()), (true, 0));
}

#[test]
fn fragments_that_do_not_fit_are_refused() {
    let cut = cut(&request(7, 20, ByteOrder::Big, Version::V1_2), 64);
    let begun = || {
        let mut reassembly = Reassembly::new(1 << 20, 4);
        assert_eq!(push(&mut reassembly, &cut[0]), Ok(Pushed::Kept));
        reassembly
    };
    assert_eq!(push(&mut begun(), &cut[0]), Err(Error::Type(0)), "the number is in use");
    let mut other_order = cut[1].clone();
    other_order[6] ^= 1;
    other_order[8..12].reverse();
    other_order[12..16].reverse();
    assert!(matches!(push(&mut begun(), &other_order), Err(Error::Flags(_))));
    let mut other_version = cut[1].clone();
    other_version[5] = 1;
    assert_eq!(push(&mut begun(), &other_version), Err(Error::Type(7)), "one of 1.1 belongs to no request");
    let short = &cut[1][..14];
    assert_eq!(begun().push(&header(short), short), Err(Error::Cdr(CdrError::Truncated)));
    let odd = &cut[1][..cut[1].len() - 1];
    assert!(matches!(begun().push(&header(odd), odd), Err(Error::Size { .. })), "no multiple of 8");
    assert_eq!(push(&mut Reassembly::new(1 << 20, 4), &cut[1]), Err(Error::Type(7)), "half of a request");
}

#[test]
fn what_has_no_fragments_is_one_piece() {
    for version in [Version::V1_0, Version::V1_1] {
        let whole = request(7, 50, ByteOrder::Big, version);
        assert_eq!(cut(&whole, 64), std::slice::from_ref(&whole));
    }
    assert!(pieces(b"GIOP", 64).is_err());
}
