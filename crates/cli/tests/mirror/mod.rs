//! An object that returns what it gets: the reply to each request has the bytes of its arguments.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;

use punctual_giop::Encoder;
use punctual_giop::message::{Header, Message, Reply, ReplyStatus, Request, RequestId};
use punctual_giop::{Decoder, TaggedList};

/// Makes the messages that answer a request.
pub type Answer = fn(&Request<'_>, Decoder<'_>) -> Vec<Vec<u8>>;

/// Serves until the test ends; its address.
pub fn start(answer: Answer) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("bound").port();
    thread::spawn(move || {
        for stream in listener.incoming() {
            serve(stream.expect("a connection"), answer);
        }
    });
    port
}

fn serve(mut stream: TcpStream, answer: Answer) {
    while let Some(message) = read(&mut stream) {
        let Ok(Message::Request(request, arguments)) = Message::read(&message) else { return };
        let answers = answer(&request, arguments);
        answers.iter().for_each(|bytes| stream.write_all(bytes).expect("the client reads"));
    }
}

fn read(stream: &mut TcpStream) -> Option<Vec<u8>> {
    let mut header = [0; Header::BYTES];
    stream.read_exact(&mut header).ok()?;
    let parsed = Header::parse(&header).expect("a header");
    let mut message = header.to_vec();
    message.resize(Header::BYTES + parsed.size as usize, 0);
    stream.read_exact(&mut message[Header::BYTES..]).ok()?;
    Some(message)
}

/// The arguments, as they came.
pub fn echo(request: &Request<'_>, mut arguments: Decoder<'_>) -> Vec<Vec<u8>> {
    let body = arguments.read(arguments.remaining()).expect("what is left");
    vec![reply(request.id, &arguments, body)]
}

/// A whole reply, in the order and version of a request.
pub fn reply(id: RequestId, like: &Decoder<'_>, body: &[u8]) -> Vec<u8> {
    let mut to = Encoder::new(like.order(), like.version());
    let fields = Reply { id, status: ReplyStatus::NoException, contexts: TaggedList::default() };
    let open = fields.begin(&mut to).expect("it has bytes");
    to.write(body);
    open.finish(&mut to).expect("it is short");
    to.into_bytes()
}
