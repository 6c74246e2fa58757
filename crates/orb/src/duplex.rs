//! Connections on which both ends call (CORBA 15.8: bidirectional GIOP).
//!
//! A client that listens offers with its first request that the server may call its objects over the connection:
//! it says the addresses that their references have. A server that accepts the offer calls references with one of
//! these addresses over that connection while it is open. It trusts the client with it: calls that are meant for an
//! address go to whoever claims that address. So both ends do it only if they are configured to.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, MutexGuard, PoisonError, Weak};
use std::thread;

use crossbeam_utils::atomic::AtomicCell;
use punctual_giop::characters::CharacterSet;
use punctual_giop::codeset::Chosen;
use punctual_giop::connection::RequestIds;
use punctual_giop::context::{BI_DIR_IIOP, CODE_SETS, ListenPoints};
use punctual_giop::message::{Message, Request, RequestId, Response};
use punctual_giop::reassembly::Whole;
use punctual_giop::reference::Address;
use punctual_giop::{ByteOrder, Encoder, Version};

use crate::core::Core;
use crate::counted::Mutex;
use crate::exception::crowded;
use crate::framing::Framing;
use crate::inbox::Inbox;
use crate::limits::{DUPLEX_REQUESTS_MAX, LISTEN_POINTS_MAX};
use crate::reply::Reply;
use crate::server::{answer_message, new_outbox};
use crate::shared::{Opening, Shared};
use crate::transport::{Endpoint, Stream};

/// What serves the requests of the other end of a connection.
pub(crate) struct Served {
    core: Weak<Core>,
    /// Requests that are served now, and whether they were cancelled.
    running: Mutex<HashMap<RequestId, bool>>,
    /// Of strings in the requests of the other end.
    characters: AtomicCell<CharacterSet>,
}

impl Served {
    pub fn new(core: &Weak<Core>, characters: CharacterSet) -> Self {
        let running = Mutex::default();
        Self { core: Weak::clone(core), running, characters: AtomicCell::new(characters) }
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
}

impl Shared {
    /// Serves a request of the other end, on a thread of its own.
    pub fn dispatch(self: &Arc<Self>, whole: Whole<'_>, message: &Message<'_>) {
        let Some(served) = self.served() else { return };
        let id = match message {
            Message::Request(request, _) => {
                if let Some(Ok(chosen)) = request.contexts.find(CODE_SETS).map(Chosen::of_context) {
                    served.characters.store(chosen.characters);
                }
                request.id
            }
            Message::LocateRequest(request) => request.id,
            _ => return,
        };
        if !served.begin(id) {
            return self.refuse(message);
        }
        let (shared, joined) = (Arc::clone(self), whole.to_joined());
        let serve = move || shared.serve(id, joined.whole());
        if thread::Builder::new().name("punctual-serve".to_owned()).spawn(serve).is_err() {
            served.end(id);
            self.refuse(message);
        }
    }

    fn serve(&self, id: RequestId, whole: Whole<'_>) {
        let Some(served) = self.served() else { return };
        let mut outbox = new_outbox();
        outbox.set_characters(served.characters.load());
        if let (Some(core), Ok(message)) = (served.core.upgrade(), Message::read_whole(whole)) {
            // A broken connection is found by the reader.
            let mut send = |bytes: &[u8]| _ = self.send_message(bytes, None);
            // It has a thread of its own, which waits for adapters.
            answer_message(&core, whole, message, &mut outbox, &mut send);
        }
        if served.end(id) && !outbox.as_bytes().is_empty() {
            // A broken connection is found by the reader.
            let _ = self.send_message(outbox.as_bytes(), None);
        }
    }

    /// Refuses a request for which there is no thread. It was not begun.
    fn refuse(&self, message: &Message<'_>) {
        let Message::Request(request, arguments) = message else { return };
        if !request.response.is_expected() {
            return;
        }
        let mut outbox = Encoder::new(ByteOrder::NATIVE, arguments.version());
        Reply::new(&mut outbox, request.id, Response::Target, &mut |_| {}).system(&crowded());
        // A broken connection is found by the reader.
        let _ = self.send_message(outbox.as_bytes(), None);
    }
}

/// The connections of clients over which their objects are called, by their addresses.
#[derive(Default)]
pub(crate) struct Duplexes {
    any: AtomicBool,
    all: Mutex<HashMap<Address, Weak<Shared>>>,
}

impl Duplexes {
    fn all(&self) -> MutexGuard<'_, HashMap<Address, Weak<Shared>>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The open connection of the client that has this address.
    pub fn find(&self, endpoint: &Endpoint) -> Option<Arc<Shared>> {
        let Endpoint::Tcp(address) = endpoint else { return None };
        if !self.any.load(Ordering::Acquire) {
            return None;
        }
        let found = self.all().get(address).and_then(Weak::upgrade);
        found.filter(|shared| !shared.is_closed())
    }

    /// The client of this connection has these addresses.
    fn add(&self, points: ListenPoints, shared: &Arc<Shared>) {
        let mut all = self.all();
        all.retain(|_, other| other.strong_count() > 0);
        for address in points.0.into_iter().take(LISTEN_POINTS_MAX) {
            all.insert(address, Arc::downgrade(shared));
        }
        self.any.store(true, Ordering::Release);
    }
}

/// What a client says with its first request if its server may call it over the connection.
pub(crate) fn offer(core: &Core) -> Option<(u32, Vec<u8>)> {
    let points: Vec<Address> = core
        .published
        .endpoints()
        .iter()
        .filter_map(|endpoint| match endpoint {
            Endpoint::Tcp(address) => Some(address.clone()),
            Endpoint::Unix(_) => None,
        })
        .collect();
    if points.is_empty() {
        return None;
    }
    Some((BI_DIR_IIOP, ListenPoints(points).to_context().ok()?))
}

/// The addresses that a client offers with this request, if this ORB accepts them.
fn offered(core: &Core, whole: Whole<'_>) -> Option<(ListenPoints, Option<Chosen>)> {
    if !core.options.accept_bidirectional {
        return None;
    }
    let Ok(Message::Request(request, arguments)) = Message::read_whole(whole) else { return None };
    if arguments.version() < Version::V1_2 {
        return None;
    }
    let points = ListenPoints::of_context(request.contexts.find(BI_DIR_IIOP)?).ok()?;
    Some((points, chosen(&request))).filter(|(points, _)| !points.0.is_empty())
}

fn chosen(request: &Request<'_>) -> Option<Chosen> {
    request.contexts.find(CODE_SETS).and_then(|data| Chosen::of_context(data).ok())
}

/// Whether the present message of a client's connection offers that its objects are called over it, and this ORB
/// accepts. Then [`adopt`] serves the connection.
pub(crate) fn is_offered(core: &Core, inbox: &Inbox) -> bool {
    offered(core, inbox.message()).is_some()
}

/// Serves a connection whose client has offered that it is called over it, from the present message of its inbox on,
/// until it ends.
pub(crate) fn adopt(core: &Arc<Core>, stream: &Arc<Stream>, inbox: Inbox, characters: CharacterSet) {
    let whole = inbox.message();
    let Some((points, chosen)) = offered(core, whole) else { return };
    // The client understands what it has chosen.
    let first = chosen.map(|chosen| (CODE_SETS, chosen.to_context().to_vec()));
    let opening = Opening {
        version: Version::V1_2,
        ids: RequestIds::of_accepting_end(),
        first: first.into_iter().collect(),
        characters: chosen.unwrap_or(Chosen::DEFAULT).characters,
        framing: Framing::of(&core.options),
        served: Some(Served::new(&Arc::downgrade(core), characters)),
    };
    let Ok(shared) = Shared::new(Arc::clone(stream), opening) else { return };
    core.duplexes.add(points, &shared);
    if let Ok(message) = Message::read_whole(whole) {
        shared.dispatch(whole, &message);
    }
    shared.run(inbox);
}
