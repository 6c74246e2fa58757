//! One end of a connection, message by message.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use punctual_giop::message::{
    Header, Message, MessageType, Open, Reply, ReplyStatus, Request, RequestId, Response, Target,
};
use punctual_giop::{ByteOrder, Encode, Encoder, Error, Reference, TaggedList, Version};
use punctual_orb::{Endpoint, Object, Options, Orb, Outcome, SystemException, result};

/// Longer than anything takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);

/// An end.
pub struct End(TcpStream);

impl End {
    pub fn new(stream: TcpStream) -> Self {
        stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
        stream.set_nodelay(true).expect("a socket");
        Self(stream)
    }

    /// Connects to an ORB that listens.
    pub fn connect(orb: &Orb) -> Self {
        let Some(Endpoint::Tcp(at)) = orb.published().first().cloned() else { panic!("it listens") };
        Self::new(TcpStream::connect((&*at.host, at.port)).expect("it listens"))
    }

    pub fn send(&mut self, bytes: &[u8]) {
        self.0.write_all(bytes).expect("it is sent");
    }

    /// The next message. `None` at the end of the stream.
    pub fn read(&mut self) -> Option<Vec<u8>> {
        let mut head = [0; Header::BYTES];
        match self.0.read_exact(&mut head) {
            Ok(()) => {}
            Err(error) => {
                let is_end = matches!(
                    error.kind(),
                    std::io::ErrorKind::UnexpectedEof | std::io::ErrorKind::ConnectionReset
                );
                assert!(is_end, "{error}");
                return None;
            }
        }
        let header = Header::parse(&head).expect("a header");
        let mut message = vec![0; Header::BYTES + header.size as usize];
        message[..Header::BYTES].copy_from_slice(&head);
        self.0.read_exact(&mut message[Header::BYTES..]).expect("the rest of a message");
        Some(message)
    }

    /// The next message, if all of it comes before the end of the stream.
    pub fn read_or_end(&mut self) -> Option<Vec<u8>> {
        let mut message = vec![0; Header::BYTES];
        self.0.read_exact(&mut message).ok()?;
        let size = header(&message).size as usize;
        message.resize(Header::BYTES + size, 0);
        self.0.read_exact(&mut message[Header::BYTES..]).ok()?;
        Some(message)
    }

    /// The next message, which is of this type.
    pub fn expect(&mut self, kind: MessageType) -> Vec<u8> {
        let message = self.read().expect("a message");
        assert_eq!(header(&message).kind, kind);
        message
    }

    /// The number of the request that comes next.
    pub fn request(&mut self) -> RequestId {
        let message = self.expect(MessageType::Request);
        let Ok(Message::Request(request, _)) = Message::read(&message) else { panic!("a request") };
        request.id
    }
}

pub fn header(message: &[u8]) -> Header {
    Header::parse(message.first_chunk().expect("a header")).expect("a header")
}

/// A server that this test plays, and an ORB's object at it.
pub struct Script {
    pub listener: TcpListener,
    pub orb: Orb,
    pub object: Object,
}

impl Script {
    pub fn new(options: Options) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("it has one").port();
        let orb = Orb::new(options).expect("a client needs nothing");
        let reference = orb.reference(&format!("corbaloc::1.2@127.0.0.1:{port}/key")).expect("a reference");
        let object = orb.object(&reference).expect("a usable reference");
        Self { listener, orb, object }
    }

    pub fn reference(&self) -> Reference {
        self.object.reference().clone()
    }

    pub fn accept(&self) -> End {
        self.listener.set_nonblocking(true).expect("a socket");
        let end = Instant::now() + PATIENCE;
        loop {
            if let Ok((stream, _)) = self.listener.accept() {
                stream.set_nonblocking(false).expect("a socket");
                return End::new(stream);
            }
            assert!(Instant::now() < end, "nobody connects");
            std::thread::yield_now();
        }
    }
}

/// Calls an operation that gives back its octet.
pub fn call(object: &Object) -> Result<u8, SystemException> {
    object.call("echo", |to| 7u8.encode(to), read)
}

/// As [`call`], without waiting.
pub fn call_later(object: &Object) -> punctual_orb::Pending<u8, SystemException> {
    object.call_async("echo", |to| 7u8.encode(to), read)
}

fn read(outcome: Outcome<'_>) -> Result<u8, SystemException> {
    result(&mut outcome.result()?)
}

/// Bytes of one message.
pub fn written(
    order: ByteOrder,
    version: Version,
    begin: impl FnOnce(&mut Encoder) -> Result<Open, Error>,
    write: impl FnOnce(&mut Encoder) -> Result<(), Error>,
) -> Vec<u8> {
    let mut to = Encoder::new(order, version);
    let open = begin(&mut to).expect("it has bytes");
    write(&mut to).expect("it has bytes");
    open.finish(&mut to).expect("it is short");
    to.into_bytes()
}

/// A message that has no more than its type.
pub fn bare(kind: MessageType) -> Vec<u8> {
    let header = Header { version: Version::V1_2, order: ByteOrder::Little, has_more: false, kind, size: 0 };
    header.to_bytes().to_vec()
}

pub fn cancel(id: u32) -> Vec<u8> {
    let mut to = Encoder::new(ByteOrder::NATIVE, Version::V1_2);
    punctual_giop::message::write_cancel_request(RequestId(id), &mut to).expect("it is short");
    to.into_bytes()
}

pub fn reply(
    id: RequestId,
    status: ReplyStatus,
    write: impl FnOnce(&mut Encoder) -> Result<(), Error>,
) -> Vec<u8> {
    let head = Reply { id, status, contexts: TaggedList::default() };
    written(ByteOrder::NATIVE, Version::V1_2, |to| head.begin(to), write)
}

/// What a server says to a call that it performed.
pub fn answer(id: RequestId) -> Vec<u8> {
    reply(id, ReplyStatus::NoException, |to| 7u8.encode(to))
}

pub fn request(
    id: u32,
    key: &[u8],
    operation: &str,
    write: impl FnOnce(&mut Encoder) -> Result<(), Error>,
) -> Vec<u8> {
    let head = Request {
        id: RequestId(id),
        response: Response::Target,
        target: Target::Key(key),
        operation,
        contexts: TaggedList::default(),
    };
    written(ByteOrder::NATIVE, Version::V1_2, |to| head.begin(to), write)
}

/// A message in fragments.
pub fn cut(message: &[u8], bytes_max: usize) -> Vec<Vec<u8>> {
    let pieces = punctual_giop::reassembly::pieces(message, bytes_max).expect("a message");
    pieces.map(|piece| [piece.head(), piece.body].concat()).collect()
}
