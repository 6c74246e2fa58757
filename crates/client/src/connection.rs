//! The connection to a daemon, and the two threads behind it.
//!
//! The *reader* takes packets off the socket: it passes answers to the waiting threads, and pushes to their
//! channels. It never blocks on an application. The *agent* thread runs the application's agents, one after
//! the other, so that an agent may itself open channels. Both end when the last handle drops or the daemon
//! goes away.

use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender, SyncSender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use punctual_ipc::api::{
    Answer, ApiError, Call, FromDaemon, HandlerStatus, PACKET_BYTES_MAX, Push, Request, TcpEnd, VERSION,
};
use punctual_ipc::socket::{self, Packet};
use punctual_proto::api::{ChannelRefusal, RtuId};
use punctual_proto::ids::{ChannelId, ListenerId};
use rustix::net::{RecvFlags, SendFlags, Shutdown};

use crate::agents;
use crate::error::{ConnectError, Error, OnProcessor};
use crate::events::{ChannelEvents, Ending};
use crate::listener::ListenerQueue;
use crate::processor::{EmbeddedHost, is_processor};

/// How long the daemon may take to greet. It answers at once, also beside CPU hogs; one that is stopped never does.
const HELLO_WAIT: Duration = Duration::from_secs(5);

/// An answer with the descriptors that came with it.
pub(crate) type Reply = (Result<Answer, ApiError>, Vec<OwnedFd>);

/// Receives the reply to a request.
pub(crate) enum Waiter {
    /// A thread.
    Caller(SyncSender<Reply>),
    /// A thread that takes a name: the listener is known before the answer is.
    Listen(SyncSender<Reply>, Arc<ListenerQueue>),
    /// Nobody waits: a channel whose ring the daemon does not take is closed here, and its program sees that.
    Attached(ChannelId),
    /// The caller does not wait any more. If the answer opened a channel, the channel is closed.
    NoReceiver,
}

/// The state that handles and threads share.
pub(crate) struct SharedConnection {
    socket: OwnedFd,
    next_call: AtomicU64,
    waiters: Mutex<HashMap<u64, Waiter>>,
    channels: Mutex<HashMap<ChannelId, Arc<ChannelEvents>>>,
    pub(crate) listeners: Mutex<HashMap<ListenerId, Arc<ListenerQueue>>>,
    /// Requests to sources that failed, by token.
    pub(crate) failed_asks: Mutex<HashMap<u64, ChannelRefusal>>,
    gone: AtomicBool,
    /// Why the daemon closed the connection, if it gave a reason.
    last_error: Mutex<Option<ApiError>>,
}

/// Every handle holds one of these; the last one ends the threads.
pub(crate) struct Connection {
    pub(crate) shared: Arc<SharedConnection>,
    pub(crate) host: String,
    /// Ports that connections with reserved paths were given.
    ports: AtomicU16,
    /// Dropped after the socket is shut down: in embedded mode, the engine in this process.
    pub(crate) embedded: Option<EmbeddedHost>,
}

/// All of a list that comes in pages: `page` gets the last item that is known, and returns those behind it, and whether there are
/// more.
pub(crate) fn all_pages<T>(
    mut page: impl FnMut(Option<&T>) -> Result<(Vec<T>, bool), Error>,
) -> Result<Vec<T>, Error> {
    let mut all = Vec::new();
    loop {
        let (items, more) = page(all.last())?;
        let is_over = !more || items.is_empty();
        all.extend(items);
        if is_over {
            return Ok(all);
        }
    }
}

/// Takes a lock that a panic of an application cannot poison: its content is consistent between statements.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Connection {
    /// Starts the threads and sends `Hello`.
    pub(crate) fn start(socket: OwnedFd, embedded: Option<EmbeddedHost>) -> Result<Arc<Self>, ConnectError> {
        let shared = Arc::new(SharedConnection {
            socket,
            next_call: AtomicU64::new(1),
            waiters: Mutex::default(),
            channels: Mutex::default(),
            listeners: Mutex::default(),
            failed_asks: Mutex::default(),
            gone: AtomicBool::new(false),
            last_error: Mutex::default(),
        });
        let (jobs, queue) = mpsc::channel();
        let reader = Arc::clone(&shared);
        std::thread::Builder::new().name("punctual-reader".into()).spawn(move || reader.read(&jobs))?;
        let agent = Arc::clone(&shared);
        std::thread::Builder::new()
            .name("punctual-agent".into())
            .spawn(move || agents::run(&agent, &queue))?;
        let mut connection = Self { shared, host: String::new(), ports: AtomicU16::new(0), embedded };
        let program = std::env::args().next().unwrap_or_default().chars().take(64).collect();
        let (_, answer) = connection.shared.start_call(Request::Hello { version: VERSION, program })?;
        let reply = match connection.embedded {
            None => connection.shared.greeting(&answer)?,
            // A host in this process is never stopped without it.
            Some(_) => connection.shared.wait(&answer)?,
        };
        match reply.0.map_err(Error::from)? {
            Answer::Hello { name, .. } => connection.host = name.to_string(),
            _ => return Err(Error::Unexpected.into()),
        }
        Ok(Arc::new(connection))
    }
}

impl Connection {
    /// A number that is another one each time, for a port.
    pub(crate) fn next_port(&self) -> u16 {
        self.ports.fetch_add(1, Ordering::Relaxed)
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        // The reader sees the end of the connection and everything unwinds from there.
        let _ = rustix::net::shutdown(&self.shared.socket, Shutdown::Both);
    }
}

impl SharedConnection {
    /// Sends a request; the answer comes to the receiver.
    pub(crate) fn start_call(&self, request: Request) -> Result<(u64, Receiver<Reply>), Error> {
        let (sender, receiver) = mpsc::sync_channel(1);
        Ok((self.send(request, Waiter::Caller(sender))?, receiver))
    }

    /// Sends a request and waits for the answer, as the waiter that `waiter` makes.
    pub(crate) fn ask(
        &self,
        request: Request,
        waiter: impl FnOnce(SyncSender<Reply>) -> Waiter,
    ) -> Result<Reply, Error> {
        // A call that no thread can wait for is not made.
        may_wait()?;
        let (sender, receiver) = mpsc::sync_channel(1);
        self.send(request, waiter(sender))?;
        self.wait(&receiver)
    }

    /// Waits for the answer to a request that was sent.
    pub(crate) fn wait(&self, reply: &Receiver<Reply>) -> Result<Reply, Error> {
        may_wait()?;
        reply.recv().map_err(|_| self.end())
    }

    /// [`Self::wait`] for the daemon's greeting.
    fn greeting(&self, reply: &Receiver<Reply>) -> Result<Reply, ConnectError> {
        may_wait().map_err(Error::from)?;
        reply.recv_timeout(HELLO_WAIT).map_err(|why| match why {
            RecvTimeoutError::Timeout => ConnectError::Silent,
            RecvTimeoutError::Disconnected => self.end().into(),
        })
    }

    /// Sends a request and waits for the daemon's yes.
    pub(crate) fn call(&self, request: Request) -> Result<(Answer, Vec<OwnedFd>), Error> {
        let (result, descriptors) = self.ask(request, Waiter::Caller)?;
        Ok((result?, descriptors))
    }

    /// Handlers of programs behind one, and whether there are more.
    pub(crate) fn handlers_after(&self, after: Option<RtuId>) -> Result<(Vec<HandlerStatus>, bool), Error> {
        match self.call(Request::Handlers { after })?.0 {
            Answer::Handlers { handlers, more } => Ok((handlers, more)),
            _ => Err(Error::Unexpected),
        }
    }

    /// All handlers of programs at this host.
    pub(crate) fn handlers(&self) -> Result<Vec<HandlerStatus>, Error> {
        all_pages(|last: Option<&HandlerStatus>| self.handlers_after(last.map(|status| status.handler.id)))
    }

    /// Notifies the daemon that the channel's ring is attached and sealed. No error if the channel has ended
    /// meanwhile: its ring reports that.
    pub(crate) fn attached(&self, channel: ChannelId, is_closed: impl Fn() -> bool) -> Result<(), Error> {
        match self.call(Request::Attached { channel }) {
            Err(error) if !is_closed() => Err(error),
            _ => Ok(()),
        }
    }

    /// Does what [`Self::attached`] does without waiting for the daemon: for a channel whose rings the daemon looks at when it
    /// has taken them. If it does not take them, they are closed.
    pub(crate) fn announce_attached(&self, channel: ChannelId) -> Result<(), Error> {
        self.send(Request::Attached { channel }, Waiter::Attached(channel)).map(drop)
    }

    /// Why there is no connection any more.
    pub(crate) fn end(&self) -> Error {
        lock(&self.last_error).clone().map_or(Error::Disconnected, Error::from)
    }

    /// The error of [`Self::end`] if the connection is over; `None` while it exists.
    pub(crate) fn over(&self) -> Option<Error> {
        self.gone.load(Ordering::SeqCst).then(|| self.end())
    }

    /// Sends a request without waiting for the answer.
    pub(crate) fn send_unanswered(&self, request: Request) {
        // If the daemon is gone, there is no receiver for this request.
        let _ = self.send(request, Waiter::NoReceiver);
    }

    /// Sends a request for `waiter`; returns its number.
    pub(crate) fn send(&self, request: Request, waiter: Waiter) -> Result<u64, Error> {
        let id = self.next_call.fetch_add(1, Ordering::Relaxed);
        let packet = Packet::new(&Call { id, request }, Vec::new())?;
        lock(&self.waiters).insert(id, waiter);
        let failed = match socket::send(&self.socket, &packet, SendFlags::empty()) {
            // The daemon may have sent a reason before it closed: the reader thread reads it, and then wakes
            // every waiter.
            Err(error) => !matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset),
            Ok(()) => false,
        };
        if self.gone.load(Ordering::SeqCst) || failed {
            lock(&self.waiters).remove(&id);
            return Err(self.end());
        }
        Ok(id)
    }

    /// No thread waits for this call any more. `false` if the answer is there already.
    pub(crate) fn abandon(&self, id: u64) -> bool {
        match lock(&self.waiters).get_mut(&id) {
            Some(waiter) => {
                *waiter = Waiter::NoReceiver;
                true
            }
            None => false,
        }
    }

    /// The events of a channel of this connection.
    pub(crate) fn events_of(&self, channel: ChannelId) -> Arc<ChannelEvents> {
        Arc::clone(lock(&self.channels).entry(channel).or_default())
    }

    /// Forgets a channel.
    pub(crate) fn forget(&self, channel: ChannelId) {
        lock(&self.channels).remove(&channel);
    }

    fn read(&self, jobs: &Sender<Push>) {
        let mut buffer = vec![0; PACKET_BYTES_MAX];
        while let Ok(Some(packet)) = socket::receive(&self.socket, &mut buffer, RecvFlags::empty()) {
            match packet.parse() {
                Ok(FromDaemon::Answer { id, result }) => self.answer(id, result, packet.descriptors),
                Ok(FromDaemon::Push(push)) => self.push(push, jobs),
                // A daemon that sends invalid packets is treated as disconnected.
                Err(_) => break,
            }
        }
        self.disconnected();
    }

    fn answer(&self, id: u64, result: Result<Answer, ApiError>, descriptors: Vec<OwnedFd>) {
        let is_tcp = matches!(&result, Ok(Answer::TcpConnected { .. }));
        let opened = match &result {
            Ok(
                Answer::Opened { channel, .. }
                | Answer::Ring { channel, .. }
                | Answer::Capturing { channel, .. }
                | Answer::TcpConnected { channel, .. }
                | Answer::TcpListening { channel },
            ) => Some(*channel),
            _ => None,
        };
        // It belongs to no request: the last words of a daemon that hangs up.
        if let (0, Err(error)) = (id, &result) {
            *lock(&self.last_error) = Some(error.clone());
            return;
        }
        // Known before a program can be notified of its end.
        if let Some(channel) = opened {
            self.events_of(channel);
        }
        let Some(waiter) = lock(&self.waiters).remove(&id) else { return };
        let delivered = match waiter {
            Waiter::Caller(sender) => sender.send((result, descriptors)).is_ok(),
            Waiter::Listen(sender, queue) => {
                if let Ok(Answer::Listening { listener }) = &result {
                    lock(&self.listeners).insert(*listener, queue);
                }
                sender.send((result, descriptors)).is_ok()
            }
            Waiter::Attached(channel) => {
                if let (Err(_), Some(events)) = (&result, lock(&self.channels).get(&channel)) {
                    // Not an end like one that the peer has made.
                    events.end_tcp(TcpEnd::Aborted);
                    events.close(Ending::default());
                }
                true
            }
            Waiter::NoReceiver => false,
        };
        if let (false, Some(channel)) = (delivered, opened) {
            if is_tcp {
                return self.refuse_tcp(channel);
            }
            self.forget(channel);
            self.send_unanswered(Request::Close { channel });
        }
    }

    /// Resets a TCP connection that no program has seen: its peer must not take it for one that was served and closed.
    pub(crate) fn refuse_tcp(&self, channel: ChannelId) {
        self.forget(channel);
        self.send_unanswered(Request::ResetTcp { channel });
        self.send_unanswered(Request::Close { channel });
    }

    fn push(&self, push: Push, jobs: &Sender<Push>) {
        match push {
            Push::Notice { channel, notice } => {
                if let Some(events) = lock(&self.channels).get(&channel) {
                    events.notice(notice);
                }
            }
            Push::Stage { channel, stage, healed } => {
                if let Some(events) = lock(&self.channels).get(&channel) {
                    events.stage(stage, healed);
                }
            }
            Push::TcpEnded { channel, why } => {
                if let Some(events) = lock(&self.channels).get(&channel) {
                    events.end_tcp(why);
                }
            }
            Push::Closed { channel, reason, receipt } => {
                if let Some(events) = lock(&self.channels).get(&channel) {
                    events.close(Ending { reason: Some(reason), receipt });
                }
                let _ = jobs.send(Push::Closed { channel, reason, receipt });
            }
            Push::AskFailed { token, refusal } => {
                lock(&self.failed_asks).insert(token, refusal);
                for queue in lock(&self.listeners).values() {
                    queue.poke();
                }
            }
            // Sending cannot fail: the agent thread runs as long as this thread.
            other => {
                let _ = jobs.send(other);
            }
        }
    }

    fn disconnected(&self) {
        self.gone.store(true, Ordering::SeqCst);
        lock(&self.waiters).clear();
        for events in lock(&self.channels).values() {
            events.close(Ending::default());
        }
        for queue in lock(&self.listeners).values() {
            queue.close();
        }
    }
}

/// Whether the calling thread may wait for an engine. A thread that does an engine's work would wait for
/// itself, or block all programs that its engine serves.
pub(crate) fn may_wait() -> Result<(), OnProcessor> {
    if is_processor() { Err(OnProcessor) } else { Ok(()) }
}

/// A connected `SOCK_SEQPACKET` socket.
pub(crate) fn dial(path: &std::path::Path) -> io::Result<OwnedFd> {
    use rustix::net::sockopt::{Timeout, set_socket_timeout};
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
    let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    // A daemon that is stopped takes no connection once its queue is full.
    set_socket_timeout(&socket, Timeout::Send, Some(HELLO_WAIT))?;
    connect(&socket, &SocketAddrUnix::new(path)?)?;
    set_socket_timeout(&socket, Timeout::Send, None)?;
    Ok(socket)
}
