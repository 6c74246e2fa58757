//! Messages with long values are the same bytes whether these are copied or sent from where they are.

use std::sync::{Arc, Mutex};

use punctual_giop::long::{LONG_BYTES, Sink};
use punctual_giop::message::{Header, Message, Request, RequestId, Response, Target};
use punctual_giop::{ByteOrder, Encode, Encoder, Error, Tagged, TaggedList, Version};

#[derive(Debug, Default)]
struct Collected(Mutex<(Vec<u8>, usize)>);

impl Sink for Collected {
    fn take(&self, before: &[u8], long: &[u8]) {
        let mut all = self.0.lock().expect("no panic");
        all.0.extend_from_slice(before);
        all.0.extend_from_slice(long);
        all.1 += 1;
    }
}

/// Writes a request with these arguments.
fn request(to: &mut Encoder, write: &dyn Fn(&mut Encoder) -> Result<(), Error>) {
    let long_context = vec![5; LONG_BYTES + 3];
    let contexts = [Tagged { id: 77, data: long_context.as_slice() }];
    let head = Request {
        id: RequestId(9),
        response: Response::Target,
        target: Target::Key(b"key"),
        operation: "put",
        contexts: TaggedList::from(&contexts[..]),
    };
    let open = head.begin(to).expect("it has bytes");
    write(to).expect("it has bytes");
    open.finish(to).expect("it is short enough");
}

/// The arguments: long values between others, at places that are not aligned.
fn arguments(to: &mut Encoder) -> Result<(), Error> {
    3u8.encode(to)?;
    vec![7u8; LONG_BYTES + 5].encode(to)?;
    0.5f64.encode(to)?;
    1u8.encode(to)?;
    vec![2.5f64; LONG_BYTES / 8].encode(to)?;
    vec![6u8; LONG_BYTES - 1].encode(to)?;
    "x".repeat(LONG_BYTES).encode(to)?;
    to.encapsulation(|to| vec![8u8; LONG_BYTES].encode(to))?;
    vec![9u8; LONG_BYTES + 1].encode(to)?;
    4u32.encode(to)
}

#[test]
fn long_values_are_sent_from_where_they_are() {
    for (order, version) in [ByteOrder::Little, ByteOrder::Big]
        .into_iter()
        .flat_map(|order| [Version::V1_0, Version::V1_1, Version::V1_2].map(|version| (order, version)))
    {
        let mut copied = Encoder::new(order, version);
        request(&mut copied, &arguments);
        assert_eq!(copied.long_bytes(), 0);
        let mut to = Encoder::new(order, version);
        to.count_long();
        request(&mut to, &arguments);
        let others = to.as_bytes().len();
        assert_eq!(others + to.long_bytes(), copied.as_bytes().len(), "{order:?} {version:?}");
        let sink = Arc::new(Collected::default());
        to.send_long(Arc::<Collected>::clone(&sink));
        request(&mut to, &arguments);
        to.end_long();
        let (sent, pieces) = &*sink.0.lock().expect("no panic");
        assert!(sent == copied.as_bytes(), "{order:?} {version:?}");
        assert!(Message::read(sent).is_ok());
        // Numbers in the other order are copied. What follows the last long value is a piece, too.
        assert_eq!(*pieces, if order == ByteOrder::NATIVE { 5 } else { 4 });
        // The encoder counts again.
        to.clear();
        request(&mut to, &|to| 1u8.encode(to));
        assert_eq!(to.long_bytes(), 0);
        assert!(Message::read(to.as_bytes()).is_ok());
    }
}

#[test]
fn a_message_that_was_abandoned_counts_nothing() {
    let mut to = Encoder::new(ByteOrder::NATIVE, Version::V1_2);
    to.count_long();
    let head = Request {
        id: RequestId(1),
        response: Response::Target,
        target: Target::Key(b"key"),
        operation: "put",
        contexts: TaggedList::default(),
    };
    let open = head.begin(&mut to).expect("it has bytes");
    vec![1u8; LONG_BYTES].encode(&mut to).expect("it has bytes");
    assert_eq!(to.long_bytes(), LONG_BYTES);
    open.restart_body(&mut to);
    assert_eq!(to.long_bytes(), 0);
    2u8.encode(&mut to).expect("it has bytes");
    open.finish(&mut to).expect("it is short");
    let header = Header::parse(to.as_bytes().first_chunk().expect("a header")).expect("a header");
    assert_eq!(header.size as usize + Header::BYTES, to.as_bytes().len());
}
