//! Connections on which both ends call (CORBA 15.8: bidirectional GIOP).
//!
//! A client that listens offers with its first request that the server may call its objects over the connection:
//! it says the addresses that their references have. A server that accepts the offer calls references with one of
//! these addresses over that connection while it is open. It trusts the client with it: calls that are meant for an
//! address go to whoever claims that address. So both ends do it only if they are configured to.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, MutexGuard, PoisonError, Weak};

use punctual_giop::Version;
use punctual_giop::codeset::Chosen;
use punctual_giop::context::{BI_DIR_IIOP, ListenPoints};
use punctual_giop::message::Message;
use punctual_giop::reassembly::Whole;
use punctual_giop::reference::Address;

use crate::counted::Mutex;
use crate::limits::LISTEN_POINTS_MAX;
use crate::options::Options;
use crate::publish::Published;
use crate::shared::Shared;
use crate::transport::Endpoint;

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
    pub fn add(&self, points: ListenPoints, shared: &Arc<Shared>) {
        let mut all = self.all();
        all.retain(|_, other| other.strong_count() > 0);
        for address in points.0.into_iter().take(LISTEN_POINTS_MAX) {
            all.insert(address, Arc::downgrade(shared));
        }
        self.any.store(true, Ordering::Release);
    }
}

/// What a client says with its first request if its server may call it over the connection.
pub(crate) fn offer(published: &Published) -> Option<(u32, Vec<u8>)> {
    let points: Vec<Address> = published
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
pub(crate) fn offered(options: &Options, whole: Whole<'_>) -> Option<(ListenPoints, Option<Chosen>)> {
    if !options.accept_bidirectional {
        return None;
    }
    let Ok(Message::Request(request, arguments)) = Message::read_whole(whole) else { return None };
    if arguments.version() < Version::V1_2 {
        return None;
    }
    let points = ListenPoints::of_context(request.contexts.find(BI_DIR_IIOP)?).ok()?;
    let chosen = Chosen::of_contexts(&request.contexts).ok().flatten();
    Some((points, chosen)).filter(|(points, _)| !points.0.is_empty())
}
