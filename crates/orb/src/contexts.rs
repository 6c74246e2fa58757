//! Service contexts of calls (CORBA 13.7): what a client adds to requests, and what came with their replies.

use std::sync::{Arc, MutexGuard, PoisonError};

use punctual_giop::{Tagged, TaggedList};

use crate::counted::Mutex;

type Owned = Vec<(u32, Box<[u8]>)>;

/// Service contexts of the calls of one object ([`crate::Object::with_contexts`]). Copies are the same ones.
#[derive(Clone, Debug, Default)]
pub struct Contexts(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    sent: Owned,
    received: Mutex<Owned>,
}

impl Contexts {
    /// Requests get these numbers and bytes, in this order. A number should be one that the OMG gave you; the
    /// lowest are the ORB's.
    pub fn new(sent: impl IntoIterator<Item = (u32, Vec<u8>)>) -> Self {
        let sent = sent.into_iter().map(|(id, data)| (id, data.into())).collect();
        Self(Arc::new(Inner { sent, received: Mutex::default() }))
    }

    fn received_all(&self) -> MutexGuard<'_, Owned> {
        self.0.received.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The bytes with this number that the reply that came last had.
    pub fn received(&self, id: u32) -> Option<Vec<u8>> {
        self.received_all().iter().find(|(number, _)| *number == id).map(|(_, data)| data.to_vec())
    }

    pub(crate) fn sent(&self) -> Vec<Tagged<'_>> {
        self.0.sent.iter().map(|(id, data)| Tagged { id: *id, data }).collect()
    }

    pub(crate) fn receive(&self, reply: &TaggedList<'_>) {
        *self.received_all() = reply.iter().map(|one| (one.id, one.data.into())).collect();
    }
}
