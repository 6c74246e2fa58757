//! The requests that this thread serves, each within the one before, and the service contexts of them and of their replies
//! (CORBA 13.7).
//!
//! Frames of earlier requests are used again, so that a request takes no memory.

use std::any::Any;
use std::cell::RefCell;
use std::sync::Arc;

use punctual_giop::{Tagged, TaggedList};

/// No request is being served by this thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this thread serves no request")]
pub struct NoContext;

/// Numbers with bytes, one behind the other.
#[derive(Debug, Default)]
pub(crate) struct Flat {
    bytes: Vec<u8>,
    /// Each with the end of its bytes.
    ends: Vec<(u32, usize)>,
}

impl Flat {
    fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }

    pub fn push(&mut self, id: u32, data: &[u8]) {
        self.bytes.extend_from_slice(data);
        self.ends.push((id, self.bytes.len()));
    }

    pub fn iter(&self) -> impl Iterator<Item = Tagged<'_>> {
        let mut begin = 0;
        self.ends.iter().map(move |(id, end)| {
            let data = &self.bytes[begin..*end];
            begin = *end;
            Tagged { id: *id, data }
        })
    }
}

/// An object adapter, which is above this module.
pub(crate) type AnyAdapter = Arc<dyn Any + Send + Sync>;

/// A request that is being served.
#[derive(Default)]
pub(crate) struct Frame {
    /// The adapter of the object that is called.
    pub adapter: Option<AnyAdapter>,
    /// The key of the object.
    pub key: Vec<u8>,
    /// Service contexts of the request.
    pub request: Flat,
    /// Service contexts of the reply.
    pub reply: Flat,
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
    pub fn begin(adapter: AnyAdapter, key: &[u8], contexts: &TaggedList<'_>) -> Self {
        FRAMES.with_borrow_mut(|frames| {
            if frames.all.len() == frames.depth {
                // An idle thread keeps what it has: mostly one is all that it ever needs.
                frames.all.reserve_exact(1);
                frames.all.push(Frame::default());
            }
            let frame = &mut frames.all[frames.depth];
            frames.depth += 1;
            frame.adapter = Some(adapter);
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

/// Asks the request that this thread serves, the innermost one.
pub(crate) fn innermost<T>(ask: impl FnOnce(&mut Frame) -> T) -> Result<T, NoContext> {
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
