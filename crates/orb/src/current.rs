//! The request that this thread serves (`PortableServer::Current`, CORBA 11.3.9), and the service contexts of it
//! and of its reply (CORBA 13.7).
//!
//! A servant asks in the thread that called it. Of requests within requests, the innermost is meant. Frames of
//! earlier requests are used again, so that a request takes no memory.

use std::cell::RefCell;
use std::sync::Arc;

use punctual_giop::{Reference, Tagged, TaggedList};

use crate::poa::{Adapter, ObjectId, Poa, PoaError, id_of_key};

/// No request is being served by this thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this thread serves no request")]
pub struct NoContext;

/// Numbers with bytes, one behind the other.
#[derive(Debug, Default)]
struct Flat {
    bytes: Vec<u8>,
    /// Each with the end of its bytes.
    ends: Vec<(u32, usize)>,
}

impl Flat {
    fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }

    fn push(&mut self, id: u32, data: &[u8]) {
        self.bytes.extend_from_slice(data);
        self.ends.push((id, self.bytes.len()));
    }

    fn iter(&self) -> impl Iterator<Item = Tagged<'_>> {
        let mut begin = 0;
        self.ends.iter().map(move |(id, end)| {
            let data = &self.bytes[begin..*end];
            begin = *end;
            Tagged { id: *id, data }
        })
    }
}

#[derive(Default)]
struct Frame {
    adapter: Option<Arc<Adapter>>,
    key: Vec<u8>,
    request: Flat,
    reply: Flat,
}

#[derive(Default)]
struct Frames {
    all: Vec<Frame>,
    /// How many of them are of requests that are being served.
    depth: usize,
}

thread_local! {
    static FRAMES: RefCell<Frames> = RefCell::default();
}

/// A request is being served, until this is dropped.
pub(crate) struct Serves;

impl Serves {
    /// The request with this key, and what it has.
    pub fn begin(adapter: &Arc<Adapter>, key: &[u8], contexts: &TaggedList<'_>) -> Self {
        FRAMES.with_borrow_mut(|frames| {
            if frames.all.len() == frames.depth {
                // An idle thread keeps what it has: mostly one is all that it ever needs.
                frames.all.reserve_exact(1);
                frames.all.push(Frame::default());
            }
            let frame = &mut frames.all[frames.depth];
            frames.depth += 1;
            frame.adapter = Some(Arc::clone(adapter));
            frame.key.clear();
            frame.key.extend_from_slice(key);
            frame.request.clear();
            frame.reply.clear();
            contexts.iter().for_each(|one| frame.request.push(one.id, one.data));
        });
        Self
    }
}

impl Drop for Serves {
    fn drop(&mut self) {
        // The adapter may end here, which may call what asks for the present request.
        let adapter = FRAMES.with_borrow_mut(|frames| {
            frames.depth -= 1;
            let depth = frames.depth;
            frames.all[depth].adapter.take()
        });
        drop(adapter);
    }
}

fn with<T>(ask: impl FnOnce(&mut Frame) -> T) -> Result<T, NoContext> {
    FRAMES.with_borrow_mut(|frames| {
        let innermost = frames.depth.checked_sub(1).ok_or(NoContext)?;
        Ok(ask(&mut frames.all[innermost]))
    })
}

/// Whether this thread serves a request.
pub(crate) fn is_serving() -> bool {
    FRAMES.with_borrow(|frames| frames.depth > 0)
}

/// Gives `write` the contexts of the reply.
pub(crate) fn with_reply_contexts<T>(write: impl FnOnce(TaggedList<'_>) -> T) -> T {
    FRAMES.with_borrow(|frames| {
        let innermost = frames.depth.checked_sub(1).map(|number| &frames.all[number].reply);
        match innermost.filter(|reply| !reply.ends.is_empty()) {
            None => write(TaggedList::default()),
            Some(reply) => write(TaggedList::from(&reply.iter().collect::<Vec<_>>()[..])),
        }
    })
}

/// The adapter of the object that is called.
///
/// # Errors
/// [`NoContext`].
pub fn poa() -> Result<Poa, NoContext> {
    with(|frame| frame.adapter.clone())?.and_then(|adapter| Poa::of_adapter(&adapter)).ok_or(NoContext)
}

/// The identifier of the object that is called: a servant may implement many.
///
/// # Errors
/// [`NoContext`].
pub fn object_id() -> Result<ObjectId, NoContext> {
    with(|frame| id_of_key(&frame.key))?.ok_or(NoContext)
}

/// A reference to the object that is called, with this interface.
///
/// # Errors
/// [`PoaError::NoRequest`], [`PoaError::NoAddress`].
pub fn reference(interface: &str) -> Result<Reference, PoaError> {
    let no_request = |NoContext| PoaError::NoRequest;
    poa().map_err(no_request)?.create_reference_with_id(&object_id().map_err(no_request)?, interface)
}

/// The bytes of the request's service context with this number, if the client has added it.
///
/// # Errors
/// [`NoContext`].
pub fn context(id: u32) -> Result<Option<Vec<u8>>, NoContext> {
    with(|frame| frame.request.iter().find(|one| one.id == id).map(|one| one.data.to_vec()))
}

/// Adds a service context to the reply. Its number should be one that the OMG gave you; the lowest are the ORB's.
///
/// # Errors
/// [`NoContext`].
pub fn add_reply_context(id: u32, data: &[u8]) -> Result<(), NoContext> {
    with(|frame| frame.reply.push(id, data))
}
