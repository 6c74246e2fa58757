//! A host with a single program: the process in which it runs.

mod tcp;

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::thread::JoinHandle;

use punctual_engine::tcp::{TcpId, TcpRefusal};
use punctual_engine::{Body, CallError, EngineHandle, Lead, LeadError};
use punctual_ipc::api::Quotas;
use punctual_ipc::ring::{InboxReader, InboxWriter, OutboxReader, Upcall};
use punctual_ipc::wake::Alarm;
use punctual_os::calls::Forbidden;
use punctual_proto::Nanos;
use punctual_proto::api::{RtuRefusal, RtuSending, RtuTerms};
use punctual_proto::ids::ChannelId;

use crate::running::EngineHost;
use crate::service::server::Server;

use crate::tcp::address::canonical;
use crate::tcp::opener::Opener;
use crate::tcp::{TcpError, TcpSetup, TcpWish};
pub use tcp::{TcpCloser, TcpEnds, TcpListening};

/// A program's handler on an engine's processor.
type Handler = punctual_engine::Upcall<OutboxReader, InboxWriter>;

/// An API service on a thread of its own, with one connected socket. Dropping it stops engine and thread.
pub struct EmbeddedHost {
    engine: EngineHandle<OutboxReader, InboxWriter>,
    /// TCP of this host's own, if a link has room for it.
    tcp: Option<Opener>,
    stop: Alarm,
    thread: Option<JoinHandle<()>>,
}

impl EmbeddedHost {
    /// Starts the host; returns the client's end of the API socket.
    pub fn start(host: EngineHost) -> io::Result<(Self, OwnedFd)> {
        use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
        let (ours, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        let engine = host.engine();
        let setup = TcpSetup { forbidden: Forbidden::Allow, rings: Nanos::ZERO, ..host.tcp_setup().clone() };
        let tcp = (!setup.links.is_empty()).then(|| Opener::start(engine.clone(), setup)).transpose();
        let tcp = tcp.map_err(io::Error::other)?;
        let mut server = Server::new(host, Quotas::UNLIMITED, None)?;
        server.add_session(theirs)?;
        let stop = Alarm::new()?;
        let stopping = stop.clone();
        let thread = std::thread::Builder::new().name("punctual-api".into()).spawn(move || {
            // If the engine fails, its clients see their connection end.
            let _ = server.run(stopping.as_fd());
        })?;
        Ok((Self { engine, tcp, stop, thread: Some(thread) }, ours))
    }

    /// Lets the engine's processor hand the messages of a channel that ends here to `upcall`, on its own thread; those
    /// that wait already come first. Gives the ring back.
    pub fn call_up(
        &self,
        channel: ChannelId,
        mut ring: InboxReader,
        mut upcall: Upcall,
    ) -> Result<InboxReader, CallError> {
        self.engine.call(move |node, _| {
            let mut is_wanted = true;
            while is_wanted {
                let Some(more) = ring.take(&mut upcall) else { break };
                is_wanted = more;
            }
            // If there is no inbox, the channel has just ended, and the ring reports that.
            if let (true, Some(inbox)) = (is_wanted, node.inbox_mut(channel)) {
                inbox.set_upcall(upcall);
            }
            ring
        })
    }

    /// Registers a program's handler, whose body the engine's processor calls, and waits for the answer of admission.
    pub fn register(&self, terms: RtuTerms, body: Body) -> Result<Result<Handler, RtuRefusal>, CallError> {
        self.engine.register(terms, body)
    }

    /// Registers one that sends what is put into the ring behind `outbox`.
    pub fn register_sender(
        &self,
        terms: RtuTerms,
        sending: RtuSending,
        outbox: OutboxReader,
        body: Body,
    ) -> Result<Result<Handler, RtuRefusal>, CallError> {
        self.engine.register_sender(terms, sending, outbox, body)
    }

    fn tcp(&self) -> Result<&Opener, TcpError> {
        self.tcp.as_ref().ok_or(TcpError::Refused(TcpRefusal::NoTcp))
    }

    /// Begins a TCP connection, which is open as soon as [`TcpNews::Open`](crate::TcpNews::Open) comes.
    pub fn connect_tcp(&self, remote: SocketAddr, wish: &TcpWish) -> Result<TcpEnds, TcpError> {
        tcp::connect(self.tcp()?, canonical(remote)?, wish)
    }

    /// Listens for TCP connections, of which at most `backlog` wait.
    pub fn listen_tcp(
        &self,
        local: SocketAddr,
        backlog: u32,
        wish: TcpWish,
    ) -> Result<TcpListening, TcpError> {
        tcp::listen(self.tcp()?, canonical(local)?, backlog, wish)
    }

    /// Lets the engine's processor hand the bytes of a connection to `upcall`, on its own thread; those that wait already come
    /// first. Gives the ring back, and whether the connection is there.
    ///
    /// # Errors
    /// [`CallError`].
    pub fn call_up_tcp(
        &self,
        connection: TcpId,
        mut ring: InboxReader,
        mut upcall: Upcall,
    ) -> Result<(InboxReader, bool), CallError> {
        self.engine.with_tcp_inbox(connection, move |inbox| {
            let mut is_wanted = true;
            while is_wanted {
                let Some(more) = ring.take(&mut upcall) else { break };
                is_wanted = more;
            }
            let is_there = inbox.is_some();
            if let (true, Some(inbox)) = (is_wanted, inbox) {
                inbox.set_upcall(upcall);
            }
            (ring, is_there)
        })
    }

    /// The engine.
    pub const fn engine(&self) -> &EngineHandle<OutboxReader, InboxWriter> {
        &self.engine
    }

    /// Has the calling thread drive the engine from now on, whenever it waits for it.
    pub fn lead(&self) -> Result<Lead<OutboxReader, InboxWriter>, LeadError> {
        self.engine.lead()
    }
}

impl Drop for EmbeddedHost {
    fn drop(&mut self) {
        self.stop.ring();
        if let Some(thread) = self.thread.take() {
            // A panic there has been printed already, so the result is ignored.
            let _ = thread.join();
        }
    }
}
