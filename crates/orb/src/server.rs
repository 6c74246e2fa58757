//! Connections of clients: each has a thread that reads its requests, calls servants and sends replies.

use std::collections::HashMap;
use std::io;
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use punctual_giop::codeset::Chosen;
use punctual_giop::context::CODE_SETS;
use punctual_giop::message::{self, Header, LocateReply, Message, Response};
use punctual_giop::reference::Address;
use punctual_giop::{ByteOrder, Encoder, Version};

use crate::core::Core;
use crate::inbox::Inbox;
use crate::reply::Reply;
use crate::transport::{Endpoint, Stream};

/// A socket at which clients connect.
#[derive(Debug)]
enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener, PathBuf),
}

impl Listener {
    fn bind(endpoint: &Endpoint) -> io::Result<Self> {
        match endpoint {
            Endpoint::Tcp(address) => TcpListener::bind((&*address.host, address.port)).map(Self::Tcp),
            Endpoint::Unix(path) => {
                UnixListener::bind(path).map(|listener| Self::Unix(listener, path.clone()))
            }
        }
    }

    /// Where it really is: port 0 has become another one.
    fn endpoint(&self) -> io::Result<Endpoint> {
        Ok(match self {
            Self::Tcp(listener) => {
                let at = listener.local_addr()?;
                Endpoint::Tcp(Address { host: at.ip().to_string(), port: at.port() })
            }
            Self::Unix(_, path) => Endpoint::Unix(path.clone()),
        })
    }

    fn accept(&self) -> io::Result<Stream> {
        let socket: OwnedFd = match self {
            Self::Tcp(listener) => {
                let (stream, _) = listener.accept()?;
                stream.set_nodelay(true)?;
                TcpStream::into(stream)
            }
            Self::Unix(listener, _) => listener.accept()?.0.into(),
        };
        Ok(Stream::new(socket))
    }

    /// Wakes the thread that accepts.
    fn shutdown(&self) {
        let socket: &dyn std::os::fd::AsFd = match self {
            Self::Tcp(listener) => listener,
            Self::Unix(listener, path) => {
                // Another program may have replaced it already.
                let _ = std::fs::remove_file(path);
                listener
            }
        };
        let _ = rustix::net::shutdown(socket.as_fd(), rustix::net::Shutdown::Both);
    }
}

/// Connections that are open, by number, and the threads that serve them.
#[derive(Debug, Default)]
struct Open {
    streams: HashMap<u64, Arc<Stream>>,
    last: u64,
    is_closed: bool,
}

/// The listening part of an ORB.
#[derive(Debug)]
pub(crate) struct Server {
    listeners: Vec<Arc<Listener>>,
    acceptors: Mutex<Vec<JoinHandle<()>>>,
    open: Arc<Mutex<Open>>,
}

fn lock(open: &Mutex<Open>) -> MutexGuard<'_, Open> {
    open.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Server {
    /// Listens at all configured endpoints, and accepts clients.
    pub fn start(core: &Arc<Core>) -> io::Result<Self> {
        let listeners: Vec<Arc<Listener>> = core
            .options
            .listen
            .iter()
            .map(|at| Listener::bind(at).map(Arc::new))
            .collect::<Result<_, _>>()?;
        let at = listeners.iter().map(|listener| listener.endpoint()).collect::<io::Result<Vec<_>>>()?;
        core.published.set(published(&at, &core.options.published)?);
        let server = Self { listeners, acceptors: Mutex::default(), open: Arc::default() };
        for listener in &server.listeners {
            let (core, listener, open) = (Arc::clone(core), Arc::clone(listener), Arc::clone(&server.open));
            let name = "punctual-accept".to_owned();
            let acceptor =
                thread::Builder::new().name(name).spawn(move || accept_all(&core, &listener, &open))?;
            server.acceptors.lock().unwrap_or_else(PoisonError::into_inner).push(acceptor);
        }
        Ok(server)
    }

    /// Accepts nobody any more, and ends all connections.
    pub fn stop(&self) {
        self.listeners.iter().for_each(|listener| listener.shutdown());
        let acceptors = std::mem::take(&mut *self.acceptors.lock().unwrap_or_else(PoisonError::into_inner));
        for acceptor in acceptors {
            // It does not panic.
            let _ = acceptor.join();
        }
        let mut open = lock(&self.open);
        open.is_closed = true;
        for stream in open.streams.values() {
            close(stream);
        }
    }
}

/// Says goodbye, so that the client knows that its requests were not processed.
fn close(stream: &Stream) {
    let mut to = Encoder::new(ByteOrder::NATIVE, Version::V1_2);
    let _ = stream.set_write_timeout(Some(crate::limits::GOODBYE));
    if message::write_close_connection(&mut to).is_ok() {
        // A client that is gone needs no goodbye.
        let _ = stream.write(to.as_bytes(), &[]);
    }
    stream.shutdown();
}

/// The addresses of references.
fn published(at: &[Endpoint], configured: &[Endpoint]) -> io::Result<Vec<Endpoint>> {
    if configured.is_empty() {
        return at.iter().map(reachable).collect();
    }
    let port = |number: usize| match at.get(number) {
        Some(Endpoint::Tcp(address)) => address.port,
        _ => 0,
    };
    let one = |(number, endpoint): (usize, &Endpoint)| match endpoint {
        Endpoint::Tcp(address) if address.port == 0 => Endpoint::tcp(&address.host, port(number)),
        other => other.clone(),
    };
    configured.iter().enumerate().map(one).map(|endpoint| reachable(&endpoint)).collect()
}

/// An address that others can use instead of "any address of this host".
fn reachable(endpoint: &Endpoint) -> io::Result<Endpoint> {
    let Endpoint::Tcp(address) = endpoint else { return Ok(endpoint.clone()) };
    match address.host.parse::<std::net::IpAddr>() {
        Ok(ip) if ip.is_unspecified() => Ok(Endpoint::tcp(&outward(ip)?, address.port)),
        _ => Ok(endpoint.clone()),
    }
}

/// The address that this host has on the way to others; without a way, that of the host alone.
fn outward(any: std::net::IpAddr) -> io::Result<String> {
    // Addresses for documentation: nothing is sent to them.
    let (to, alone) = if any.is_ipv4() { ("192.0.2.1:9", "127.0.0.1") } else { ("[2001:db8::1]:9", "::1") };
    let socket = std::net::UdpSocket::bind((any, 0))?;
    if socket.connect(to).is_err() {
        return Ok(alone.into());
    }
    Ok(socket.local_addr()?.ip().to_string())
}

fn accept_all(core: &Arc<Core>, listener: &Listener, open: &Arc<Mutex<Open>>) {
    while !core.is_shut_down() {
        match listener.accept() {
            Ok(stream) => start(core, stream, open),
            Err(_) if core.is_shut_down() => return,
            // No descriptor left, or a client that is gone already: others may come.
            Err(_) => thread::yield_now(),
        }
    }
}

/// Starts the thread of a connection, if there may be one more.
fn start(core: &Arc<Core>, stream: Stream, open: &Arc<Mutex<Open>>) {
    let stream = Arc::new(stream);
    let number = {
        let mut open = lock(open);
        if open.is_closed || open.streams.len() >= core.options.connections_max {
            return close(&stream);
        }
        open.last += 1;
        let number = open.last;
        open.streams.insert(number, Arc::clone(&stream));
        number
    };
    let (core, of_thread) = (Arc::clone(core), Arc::clone(open));
    let serve = move || {
        serve(&core, &stream);
        stream.shutdown();
        lock(&of_thread).streams.remove(&number);
    };
    let name = "punctual-serve".to_owned();
    if thread::Builder::new().name(name).stack_size(STACK_BYTES).spawn(serve).is_err() {
        lock(open).streams.remove(&number);
    }
}

/// Servants run on it.
const STACK_BYTES: usize = 1 << 20;

/// Serves the requests of a connection until it ends.
fn serve(core: &Arc<Core>, stream: &Stream) {
    let mut inbox = Inbox::new(core.options.message_bytes_max);
    let mut outbox = Encoder::new(ByteOrder::NATIVE, Version::V1_2);
    outbox.set_characters(Chosen::DEFAULT.characters);
    loop {
        match inbox.next(stream, None) {
            Ok(true) => {}
            Ok(false) => return,
            Err(error) => {
                if error.kind() == io::ErrorKind::InvalidData {
                    refuse(stream, &mut outbox);
                }
                return;
            }
        }
        if !answer(core, inbox.message(), &mut outbox) {
            return;
        }
        if !outbox.as_bytes().is_empty() && stream.write(outbox.as_bytes(), &[]).is_err() {
            return;
        }
    }
}

/// Tells the other side that its bytes are no message.
fn refuse(stream: &Stream, outbox: &mut Encoder) {
    outbox.clear();
    if message::write_message_error(outbox).is_ok() {
        // The connection ends all the same.
        let _ = stream.write(outbox.as_bytes(), &[]);
    }
}

/// Writes the answer to a message, if it has one. `false` ends the connection.
fn answer(core: &Arc<Core>, bytes: &[u8], outbox: &mut Encoder) -> bool {
    outbox.clear();
    let header = bytes.first_chunk().map(Header::parse);
    let (Some(Ok(header)), Ok(message)) = (header, Message::read(bytes)) else {
        return message::write_message_error(outbox).is_ok();
    };
    answer_with(outbox, header.version);
    match message {
        Message::Request(request, mut arguments) => {
            if let Some(Ok(chosen)) = request.contexts.find(CODE_SETS).map(Chosen::of_context) {
                outbox.set_characters(chosen.characters);
            }
            arguments.set_characters(outbox.characters());
            let is_expected = request.response != Response::None;
            let mut reply = Reply::new(outbox, request.id, is_expected);
            core.registry.dispatch(&request, arguments, &mut reply);
            true
        }
        Message::LocateRequest(request) => {
            let status = request.target.object_key().map(|key| core.registry.locate(key));
            let status = status.unwrap_or(message::LocateStatus::UnknownObject);
            let reply = LocateReply { id: request.id, status };
            let open = reply.begin(outbox);
            open.and_then(|open| open.finish(outbox)).is_ok()
        }
        // A request is answered before the next message is read: too late.
        Message::CancelRequest(_) => true,
        // A reply that nobody awaits.
        Message::Reply(..) | Message::LocateReply(..) => true,
        Message::CloseConnection | Message::MessageError | Message::Fragment(..) => false,
    }
}

/// Replies have the version of their requests.
fn answer_with(outbox: &mut Encoder, version: Version) {
    if outbox.version() != version {
        let characters = outbox.characters();
        let bytes = std::mem::replace(outbox, Encoder::new(ByteOrder::NATIVE, version)).into_bytes();
        *outbox = Encoder::on(bytes, ByteOrder::NATIVE, version);
        outbox.set_characters(characters);
    }
}
