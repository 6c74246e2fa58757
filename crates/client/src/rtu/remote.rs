//! Handlers whose bodies a thread of this process calls, when the daemon's processor wakes it: one call, one report, in turns
//! (RTU 5.1, 5.2).
//!
//! Cancellation: a handler that is dropped is closed at the daemon. Its thread ends when the ring of its calls has; a call that
//! is under way is finished, and no other begins.

use std::io::IoSlice;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex};

use punctual_ipc::api::{Answer, Request};
use punctual_ipc::ring::outgoing::PushError;
use punctual_ipc::ring::{InboxReader, OutboxWriter, RingHandles, RingShape};
use punctual_proto::api::{RtuGrant, RtuId, RtuTerms, UpcallReport, UpcallRequest};
use punctual_proto::ids::ChannelId;

use super::{BoxedBody, Progress, RtuError, Status};
use crate::connection::{Connection, SharedConnection, lock};
use crate::error::Error;

/// A handler at a daemon, with its thread.
pub(super) struct Remote {
    connection: Arc<Connection>,
    registered: Registered,
    reports: Arc<Reports>,
}

/// The ring back, and what is known of the handler on all threads.
struct Reports {
    ring: Mutex<OutboxWriter>,
    /// The daemon knows that there is work, and has not called since. So reports never fill their ring.
    is_ready_sent: AtomicBool,
    /// The handler is dropped: no call begins any more.
    over: AtomicBool,
}

impl Reports {
    fn push_report(&self, report: UpcallReport) -> Result<(), PushError> {
        let bytes = report.to_bytes();
        lock(&self.ring).push(&[IoSlice::new(&bytes)]).map(drop)
    }
}

/// What the daemon has answered.
#[derive(Clone, Copy)]
struct Registered {
    channel: ChannelId,
    handler: RtuId,
    grant: RtuGrant,
    priority: Option<u8>,
}

/// The thread's end: the ring of calls, and that of reports.
struct Rings {
    calls: InboxReader,
    reports: Arc<Reports>,
}

impl Remote {
    /// Registers on the thread that is called from then on: it is the one that gets the priority.
    pub(super) fn register(
        connection: &Arc<Connection>,
        terms: RtuTerms,
        body: BoxedBody,
    ) -> Result<Self, RtuError> {
        let (answer, answered) = sync_channel(1);
        let shared = Arc::clone(&connection.shared);
        std::thread::Builder::new()
            .name("punctual-upcall".into())
            .spawn(move || serve(&shared, &terms, body, &answer))
            .map_err(Error::Socket)?;
        // The thread answers before it ends, unless it panics.
        let (registered, reports) = answered.recv().map_err(|_| Error::Disconnected)??;
        Ok(Self { connection: Arc::clone(connection), registered, reports })
    }

    pub(super) fn make_ready(&self) -> Result<(), Error> {
        if let Some(error) = self.connection.shared.over() {
            return Err(error);
        }
        // The body checks for work after the flag is cleared: it finds what was put there before this.
        if self.reports.is_ready_sent.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        let is_ready_sent = self.reports.push_report(UpcallReport::Ready);
        is_ready_sent.map_err(|_| self.connection.shared.over().unwrap_or(Error::Disconnected))
    }

    pub(super) const fn grant(&self) -> RtuGrant {
        self.registered.grant
    }

    pub(super) const fn priority(&self) -> Option<u8> {
        self.registered.priority
    }

    pub(super) fn status(&self) -> Result<Status, Error> {
        let id = self.registered.handler;
        let behind = id.0.checked_sub(1).map(RtuId);
        let page = self.connection.shared.handlers_after(behind)?.0;
        let own = page.into_iter().map(|status| status.handler).find(|status| status.id == id);
        own.ok_or(Error::Disconnected)
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        self.reports.over.store(true, Ordering::SeqCst);
        let channel = self.registered.channel;
        self.connection.shared.forget(channel);
        self.connection.shared.send_unanswered(Request::Close { channel });
    }
}

/// The thread: registers, answers the registering thread, and calls the body.
fn serve(
    shared: &SharedConnection,
    terms: &RtuTerms,
    mut body: BoxedBody,
    answer: &SyncSender<Result<(Registered, Arc<Reports>), RtuError>>,
) {
    let (registered, rings) = match register(shared, terms) {
        Ok(registered) => registered,
        Err(error) => return drop(answer.send(Err(error))),
    };
    let Rings { mut calls, reports } = rings;
    if answer.send(Ok((registered, Arc::clone(&reports)))).is_err() {
        return shared.send_unanswered(Request::Close { channel: registered.channel });
    }
    // An error, or a ring that has ended: no call follows.
    while calls.wait(None).is_ok_and(|waits| waits) && !reports.over.load(Ordering::SeqCst) {
        let call = calls.take(|bytes, _| UpcallRequest::read(bytes)).flatten();
        let Some(UpcallRequest { number, units }) = call else { continue };
        reports.is_ready_sent.store(false, Ordering::Release);
        let Progress { units, more } = body(units);
        if reports.push_report(UpcallReport::Done { number, units, more }).is_err() {
            return;
        }
    }
}

fn register(shared: &SharedConnection, terms: &RtuTerms) -> Result<(Registered, Rings), RtuError> {
    let thread = rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs();
    let request = Request::Register { terms: *terms, thread: Some(thread) };
    let (answer, descriptors) = shared.call(request).map_err(RtuError::answered)?;
    let Answer::Registered { channel, handler, grant, priority, ring } = answer else {
        return Err(Error::Unexpected.into());
    };
    let registered = Registered { channel, handler, grant, priority };
    match attach(shared, channel, ring, descriptors) {
        Ok(rings) => Ok((registered, rings)),
        Err(error) => {
            shared.send_unanswered(Request::Close { channel });
            Err(error.into())
        }
    }
}

fn attach(
    shared: &SharedConnection,
    channel: ChannelId,
    shape: RingShape,
    descriptors: Vec<OwnedFd>,
) -> Result<Rings, Error> {
    let calls = InboxReader::attach(RingHandles { shape, descriptors })?;
    let (Answer::Ring { ring: shape, .. }, descriptors) = shared.call(Request::Reports { channel })? else {
        return Err(Error::Unexpected);
    };
    let reports = OutboxWriter::attach(RingHandles { shape, descriptors })?;
    // Where the daemon goes, the thread wakes.
    shared.events_of(channel).add_closer(calls.closer());
    shared.attached(channel, || calls.is_closed())?;
    let reports = Reports {
        ring: Mutex::new(reports),
        is_ready_sent: AtomicBool::new(false),
        over: AtomicBool::new(false),
    };
    Ok(Rings { calls, reports: Arc::new(reports) })
}
