//! The buffers of a host: the driver's frames, and the rings that the host's applications use.

use std::marker::PhantomData;

use punctual_link::Frame;
use punctual_proto::memory::{Inbox, Memory, Outbox};

/// Frames of `punctual-link` with outgoing rings `O` and incoming rings `I`.
pub struct HostMemory<O, I>(PhantomData<fn() -> (O, I)>);

impl<O: Outbox, I: Inbox> Memory for HostMemory<O, I> {
    type Frame = Frame;
    type Outbox = O;
    type Inbox = I;
}
