//! TCP of a host in this process: the program's rings lie between two of its threads.

use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, channel};
use std::time::Instant as Time;

use punctual_engine::tcp::{Flow, Rings, TcpId};
use punctual_ipc::ring::{InboxReader, OutboxWriter};

use crate::tcp::opener::{Accepting, Listener, Notify, Opener, ProgramRings, TcpNews};
use crate::tcp::{RING, TcpError, TcpWish, in_ring, out_ring};

/// A program's ends of a connection.
pub struct TcpEnds {
    /// The connection.
    pub id: TcpId,
    /// The two ends.
    pub flow: Flow,
    /// Where the program puts what it sends.
    pub outbox: OutboxWriter,
    /// Where it finds what came.
    pub inbox: InboxReader,
    /// What happens to the connection.
    pub news: Receiver<TcpNews>,
}

/// A listener of a host in this process. Dropping it ends it.
pub struct TcpListening {
    listener: Listener,
    opened: Receiver<()>,
}

/// The program's ends of both rings, and its news.
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

fn make() -> Result<(ProgramRings, Notify, Ends), TcpError> {
    let (slots, bytes) = RING;
    let (outbox_reader, outbox) = out_ring(slots, bytes)?;
    let (inbox_writer, inbox) = in_ring(slots, bytes)?;
    let (sender, news) = channel();
    let rings = Rings { outbox: outbox_reader, inbox: inbox_writer, chunk_bytes: bytes };
    // A program that is gone needs no news.
    Ok((rings, Box::new(move |event| sender.send(event).unwrap_or_default()), Ends { outbox, inbox, news }))
}

pub(super) fn connect(tcp: &Opener, remote: SocketAddr, wish: &TcpWish) -> Result<TcpEnds, TcpError> {
    let (rings, notify, ends) = make()?;
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
    let listener = tcp.listen(local, backlog, wish, move || sender.send(()).unwrap_or_default())?;
    Ok(TcpListening { listener, opened })
}

impl TcpListening {
    /// Waits for a connection, at most until `until`; `None` if none came.
    ///
    /// # Errors
    /// [`TcpError`]; the peer is reset if admission refuses the connection.
    pub fn accept(&self, until: Option<Time>) -> Result<Option<TcpEnds>, TcpError> {
        let (rings, notify, ends) = make()?;
        let mut parts = self.listener.prepare(rings, notify)?;
        loop {
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
