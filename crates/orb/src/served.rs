//! Requests of the other end of a connection on which both ends call.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, MutexGuard, PoisonError, Weak};
use std::thread;

use crossbeam_utils::atomic::AtomicCell;
use punctual_giop::characters::CharacterSet;
use punctual_giop::codeset::Chosen;
use punctual_giop::message::{Message, RequestId, Response};
use punctual_giop::reassembly::Whole;
use punctual_giop::{ByteOrder, Encoder};

use crate::answer::{answer_message, new_outbox, refuse_request};
use crate::budget::{Account, Budget, HeldMessage, large_bytes};
use crate::counted::Mutex;
use crate::exception::{no_thread, not_both_ways};
use crate::limits::DUPLEX_REQUESTS_MAX;
use crate::main_thread_request::hand_over_and_wait;
use crate::poa::Registry;
use crate::reply::Reply;
use crate::serving_permit::ServingPermit;
use crate::transport::Stream;

/// The ORB, as connections have it: they do not keep it alive.
pub(crate) trait Host: Send + Sync {
    /// The objects that requests may call.
    fn registry(&self) -> &Arc<Registry>;
}

/// Which end the requests come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Caller {
    /// The one that connected: what all clients do.
    Connecting,
    /// The one that accepted: only adapters that allow it are called.
    Accepting,
}

/// Whether the adapter of the object that is called allows connections on which both ends call.
pub(crate) fn may_be_called_back(registry: &Registry, whole: Whole<'_>) -> bool {
    let Ok(Message::Request(request, _)) = Message::read_whole(whole) else { return true };
    request.target.object_key().is_ok_and(|key| registry.is_bidirectional(key))
}

/// Whether a message is a request for an object whose adapter allows such connections.
pub(crate) fn calls_both_ways(registry: &Registry, whole: Whole<'_>) -> bool {
    matches!(Message::read_whole(whole), Ok(Message::Request(..))) && may_be_called_back(registry, whole)
}

/// What serves the requests of the other end of a connection.
pub(crate) struct Served {
    host: Weak<dyn Host>,
    caller: Caller,
    /// Who counts replies that the other end does not take: nobody those to a server, which this ORB has chosen.
    counted: Option<(Arc<Budget>, Arc<Stream>)>,
    /// Requests that are served now, and whether they were cancelled.
    running: Mutex<HashMap<RequestId, bool>>,
    /// Threads that serve them, or that wait until the other end takes their replies.
    threads: AtomicUsize,
    /// Of strings in the requests of the other end.
    characters: AtomicCell<CharacterSet>,
}

impl Served {
    /// For the end that has connected: it serves what its server calls.
    pub fn of_connecting_end(host: Weak<dyn Host>, characters: CharacterSet) -> Arc<Self> {
        Arc::new(Self::new(host, characters, Caller::Accepting, None))
    }

    /// For the end that has accepted this stream of a client.
    pub fn of_accepting_end(
        host: Weak<dyn Host>,
        characters: CharacterSet,
        budget: &Arc<Budget>,
        stream: &Arc<Stream>,
    ) -> Arc<Self> {
        let counted = Some((Arc::clone(budget), Arc::clone(stream)));
        Arc::new(Self::new(host, characters, Caller::Connecting, counted))
    }

    fn new(
        host: Weak<dyn Host>,
        characters: CharacterSet,
        caller: Caller,
        counted: Option<(Arc<Budget>, Arc<Stream>)>,
    ) -> Self {
        let characters = AtomicCell::new(characters);
        Self { host, caller, counted, running: Mutex::default(), threads: AtomicUsize::new(0), characters }
    }

    /// Whether the other end is a client: then nothing waits for ever until it reads.
    pub fn is_for_client(&self) -> bool {
        self.caller == Caller::Connecting
    }

    fn running(&self) -> MutexGuard<'_, HashMap<RequestId, bool>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Nobody awaits the reply any more.
    pub fn cancel(&self, id: RequestId) {
        if let Some(is_cancelled) = self.running().get_mut(&id) {
            *is_cancelled = true;
        }
    }

    /// A request begins. `false` if there are too many.
    fn begin(&self, id: RequestId) -> bool {
        let mut running = self.running();
        running.len() < DUPLEX_REQUESTS_MAX && running.insert(id, false).is_none()
    }

    /// A request has ended. Whether its reply is awaited.
    fn end(&self, id: RequestId) -> bool {
        self.running().remove(&id) == Some(false)
    }

    /// Serves a request of the other end, on a thread of its own. `send` sends on the connection, whose reader finds it if that
    /// is broken.
    pub fn dispatch(self: &Arc<Self>, request: HeldMessage, send: impl Fn(&[u8]) + Clone + Send + 'static) {
        let Some(id) = self.number(request.whole()) else { return };
        if !self.begin(id) {
            return refuse(request.whole(), &send);
        }
        let (Some(thread), Some(permit)) = (ServedThread::begin(self), ServingPermit::take()) else {
            self.end(id);
            return refuse(request.whole(), &send);
        };
        let request = Arc::new(request);
        let (served, of_thread, sends) = (Arc::clone(self), Arc::clone(&request), send.clone());
        let serve = move || {
            let (_thread, _permit) = (thread, permit);
            served.serve(id, of_thread, &sends);
        };
        if thread::Builder::new().name("punctual-serve".to_owned()).spawn(serve).is_err() {
            self.end(id);
            refuse(request.whole(), &send);
        }
    }

    /// The number of a request, which may choose the code set.
    fn number(&self, whole: Whole<'_>) -> Option<RequestId> {
        match Message::read_whole(whole).ok()? {
            Message::Request(request, _) => {
                if let Ok(Some(chosen)) = Chosen::of_contexts(&request.contexts) {
                    self.characters.store(chosen.characters);
                }
                Some(request.id)
            }
            Message::LocateRequest(request) => Some(request.id),
            _ => None,
        }
    }

    fn serve(&self, id: RequestId, request: Arc<HeldMessage>, send: &dyn Fn(&[u8])) {
        let mut outbox = new_outbox();
        outbox.set_characters(self.characters.load());
        let mut send = |bytes: &[u8]| self.send(bytes, send);
        if let (Some(host), Ok(message)) = (self.host.upgrade(), Message::read_whole(request.whole())) {
            let (registry, whole) = (host.registry(), request.whole());
            if self.caller == Caller::Accepting && !may_be_called_back(registry, whole) {
                refuse_request(whole, &mut outbox, &not_both_ways());
            } else if registry.wants_main_thread(whole) {
                hand_over_and_wait(registry, Arc::clone(&request), self.characters.load(), &mut send);
            } else {
                // It has a thread of its own, which waits for adapters.
                answer_message(registry, whole, message, &mut outbox, &mut send);
            }
        }
        drop(request);
        if self.end(id) && !outbox.as_bytes().is_empty() {
            send(outbox.as_bytes());
        }
    }

    /// Sends an answer, which is counted until the client has taken it.
    fn send(&self, bytes: &[u8], send: &dyn Fn(&[u8])) {
        let Some((budget, stream)) = &self.counted else { return send(bytes) };
        let mut account = Account::new(budget, stream);
        match account.set(large_bytes(bytes.len())) {
            Ok(()) => send(bytes),
            // Others need the memory. The reader finds the end.
            Err(_) => stream.shutdown(),
        }
    }
}

/// A thread of a connection, until it is dropped.
struct ServedThread(Arc<Served>);

impl ServedThread {
    /// There may be more of them than requests: an end that has a reply sends the next request before the thread has ended. One
    /// that does not read its replies has no more.
    fn begin(served: &Arc<Served>) -> Option<Self> {
        let more = |threads: usize| (threads < 2 * DUPLEX_REQUESTS_MAX).then_some(threads + 1);
        let begun = served.threads.fetch_update(Ordering::AcqRel, Ordering::Acquire, more);
        begun.is_ok().then(|| Self(Arc::clone(served)))
    }
}

impl Drop for ServedThread {
    fn drop(&mut self) {
        self.0.threads.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Refuses a request for which there is no thread. It was not begun.
fn refuse(whole: Whole<'_>, send: &dyn Fn(&[u8])) {
    let Ok(Message::Request(request, arguments)) = Message::read_whole(whole) else { return };
    if !request.response.is_expected() {
        return;
    }
    let mut outbox = Encoder::new(ByteOrder::NATIVE, arguments.version());
    Reply::new(&mut outbox, request.id, Response::Target, &mut |_| {}).system(&no_thread());
    send(outbox.as_bytes());
}
