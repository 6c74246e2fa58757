//! What all parts of one ORB share.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, Weak};

use crossbeam_utils::atomic::AtomicCell;
use punctual_giop::codeset::Chosen;
use punctual_giop::{ByteOrder, Encoder, Version};

use crate::budget::Budget;
use crate::counted::Mutex;
use crate::duplex::Duplexes;
use crate::limits::SERVERS_KEPT;
use crate::options::Options;
use crate::peer::{Home, Peer};
use crate::poa::Registry;
use crate::publish::Published;
use crate::served::Host;
use crate::transport::Endpoint;

/// Buffers of a call within the process.
#[derive(Debug)]
pub(crate) struct LocalBuffers {
    pub request: Encoder,
    pub reply: Encoder,
}

/// Callers share connections to the same endpoint with the same version and code sets.
type PeerKey = (Endpoint, Version, Option<Chosen>);

/// One ORB.
pub(crate) struct Core {
    pub options: Options,
    pub published: Arc<Published>,
    pub registry: Arc<Registry>,
    /// Memory of what clients send.
    pub budget: Arc<Budget>,
    /// Connections of clients that are called over them.
    pub duplexes: Arc<Duplexes>,
    peers: Mutex<HashMap<PeerKey, Arc<Peer>>>,
    local: AtomicCell<Option<Box<LocalBuffers>>>,
    is_shut_down: AtomicBool,
}

impl fmt::Debug for Core {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Core").field("options", &self.options).finish_non_exhaustive()
    }
}

impl Host for Core {
    fn registry(&self) -> &Arc<Registry> {
        &self.registry
    }
}

impl Core {
    pub fn new(options: Options) -> io::Result<Self> {
        let published = Arc::new(Published::default());
        let shared = Arc::clone(&published);
        let publish = move |interface: &str, key: Vec<u8>| shared.reference(interface, key);
        let registry = Registry::new(punctual_os::random_u64()?, options.hold_time, Box::new(publish));
        Ok(Self {
            budget: Budget::of(&options),
            options,
            published,
            registry,
            duplexes: Arc::default(),
            peers: Mutex::default(),
            local: AtomicCell::new(None),
            is_shut_down: AtomicBool::new(false),
        })
    }

    /// The server at this endpoint, for calls with this version.
    pub fn peer(
        self: &Arc<Self>,
        endpoint: &Endpoint,
        version: Version,
        chosen: Option<Chosen>,
    ) -> Arc<Peer> {
        let mut peers = self.peers.lock().unwrap_or_else(PoisonError::into_inner);
        // Servers that no reference names any more are forgotten when others come.
        if peers.len() > SERVERS_KEPT {
            peers.retain(|_, peer| Arc::strong_count(peer) > 1);
        }
        let new = || Arc::new(Peer::new(self.home(), endpoint.clone(), version, chosen));
        Arc::clone(peers.entry((endpoint.clone(), version, chosen)).or_insert_with(new))
    }

    fn home(self: &Arc<Self>) -> Home<'_> {
        let host: Weak<Self> = Arc::downgrade(self);
        Home { options: &self.options, published: &self.published, duplexes: &self.duplexes, host }
    }

    /// Buffers for a call within the process.
    pub fn local_buffers(&self) -> Box<LocalBuffers> {
        let new = || Encoder::new(ByteOrder::NATIVE, Version::V1_2);
        self.local.take().unwrap_or_else(|| Box::new(LocalBuffers { request: new(), reply: new() }))
    }

    /// Keeps them for the next one.
    pub fn keep_local_buffers(&self, mut buffers: Box<LocalBuffers>) {
        buffers.request.clear();
        buffers.reply.clear();
        self.local.store(Some(buffers));
    }

    pub fn is_shut_down(&self) -> bool {
        self.is_shut_down.load(Ordering::Acquire)
    }

    /// No call begins any more, and idle connections end. `false` if it was done before.
    pub fn shut_down(&self) -> bool {
        let is_first = !self.is_shut_down.swap(true, Ordering::AcqRel);
        let peers = std::mem::take(&mut *self.peers.lock().unwrap_or_else(PoisonError::into_inner));
        peers.values().for_each(|peer| peer.close());
        is_first
    }
}
