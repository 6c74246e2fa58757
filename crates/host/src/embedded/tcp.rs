//! TCP of a host in this process: the program's rings lie between two of its threads.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Instant as Time;

use punctual_engine::tcp::{Flow, Rings, TcpId};
use punctual_ipc::ring::{InboxReader, OutboxWriter, RingShape, inbox_within, outbox_within};
use punctual_ipc::wake::Alarm;

use crate::tcp::listener::{Accepting, Listener};
use crate::tcp::opener::{Notify, Opener, ProgramRings, TcpNews};
use crate::tcp::{RING, TcpError, TcpWish};

/// A program's ends of a connection.
pub struct TcpEnds {
    /// The connection.
    pub id: TcpId,
    /// The two ends.
    pub flow: Flow,
    /// Ring for the bytes that the program sends.
    pub outbox: OutboxWriter,
    /// Ring with the bytes that have come.
    pub inbox: InboxReader,
    /// What happens to the connection.
    pub news: Receiver<TcpNews>,
}

/// A listener of a host in this process. Dropping it ends it.
pub struct TcpListening {
    listener: Listener,
    opened: Receiver<()>,
    closer: TcpCloser,
}

/// Ends the wait of a thread that accepts, and every later one.
#[derive(Clone)]
pub struct TcpCloser {
    opened: Sender<()>,
    is_closed: Arc<AtomicBool>,
}

impl TcpCloser {
    /// Stops accepting connections.
    pub fn close(&self) {
        self.is_closed.store(true, Ordering::SeqCst);
        // Without a receiver there is no listener any more.
        let _ = self.opened.send(());
    }
}

/// The program's ends of both rings, and the events of the connection.
struct Ends {
    outbox: OutboxWriter,
    inbox: InboxReader,
    news: Receiver<TcpNews>,
}

impl Ends {
    fn of(self, id: TcpId, flow: Flow) -> TcpEnds {
        let Self { outbox, inbox, news } = self;
        TcpEnds { id, flow, outbox, inbox, news }
    }
}

/// Both rings of a program in this process.
fn make(alarm: &Alarm) -> Result<(ProgramRings, Notify, Ends), TcpError> {
    let (slots, bytes) = RING;
    let shape = RingShape::new(slots, bytes)?;
    let (outbox_reader, outbox) = outbox_within(shape, alarm)?;
    let (inbox_writer, inbox) = inbox_within(shape, alarm)?;
    let (sender, news) = channel();
    let rings = Rings { outbox: outbox_reader, inbox: inbox_writer, chunk_bytes: bytes };
    // A program that is gone needs no news.
    Ok((rings, Box::new(move |event| sender.send(event).unwrap_or_default()), Ends { outbox, inbox, news }))
}

pub(super) fn connect(tcp: &Opener, remote: SocketAddr, wish: &TcpWish) -> Result<TcpEnds, TcpError> {
    let (rings, notify, ends) = make(&tcp.alarm)?;
    let (id, flow) = tcp.connect(remote, wish, rings, notify)?;
    Ok(ends.of(id, flow))
}

pub(super) fn listen(
    tcp: &Opener,
    local: SocketAddr,
    backlog: u32,
    wish: TcpWish,
) -> Result<TcpListening, TcpError> {
    let (sender, opened) = channel();
    let closer = TcpCloser { opened: sender.clone(), is_closed: Arc::default() };
    let listener = tcp.listen(local, backlog, wish, move || sender.send(()).unwrap_or_default())?;
    Ok(TcpListening { listener, opened, closer })
}

impl TcpListening {
    /// What ends the wait of a thread that accepts.
    pub fn closer(&self) -> TcpCloser {
        self.closer.clone()
    }

    /// Waits for a connection, at most until `until`; `None` if none came.
    ///
    /// # Errors
    /// [`TcpError`]; the peer is reset if admission refuses the connection.
    pub fn accept(&self, until: Option<Time>) -> Result<Option<TcpEnds>, TcpError> {
        let (rings, notify, ends) = make(&self.listener.alarm)?;
        let mut parts = self.listener.prepare(rings, notify)?;
        loop {
            if self.closer.is_closed.load(Ordering::SeqCst) {
                return Err(TcpError::NotListening);
            }
            match self.listener.accept(parts)? {
                Accepting::One(id, flow) => return Ok(Some(ends.of(id, flow))),
                Accepting::None(back) => parts = back,
            }
            let came = match until {
                Some(until) => self.opened.recv_timeout(until.saturating_duration_since(Time::now())).is_ok(),
                None => self.opened.recv().is_ok(),
            };
            if !came {
                return Ok(None);
            }
        }
    }
}
