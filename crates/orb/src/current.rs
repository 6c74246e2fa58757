//! The request that this thread serves (`PortableServer::Current`, CORBA 11.3.9), and the service contexts of it
//! and of its reply (CORBA 13.7).
//!
//! A servant asks in the thread that called it. Of requests within requests, the innermost is meant.

use punctual_giop::Reference;

use crate::frames::innermost;
use crate::poa::{Adapter, ObjectId, Poa, PoaError, id_of_key};

pub use crate::frames::NoContext;

/// The adapter of the object that is called.
///
/// # Errors
/// [`NoContext`].
pub fn poa() -> Result<Poa, NoContext> {
    let adapter = innermost(|frame| frame.adapter.clone())?;
    let adapter = adapter.and_then(|adapter| adapter.downcast::<Adapter>().ok());
    adapter.and_then(|adapter| Poa::of_adapter(&adapter)).ok_or(NoContext)
}

/// The identifier of the object that is called: a servant may implement many.
///
/// # Errors
/// [`NoContext`].
pub fn object_id() -> Result<ObjectId, NoContext> {
    innermost(|frame| id_of_key(&frame.key))?.ok_or(NoContext)
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
    innermost(|frame| frame.request.iter().find(|one| one.id == id).map(|one| one.data.to_vec()))
}

/// Adds a service context to the reply. Its number should be one that the OMG gave you; the lowest are the ORB's.
///
/// # Errors
/// [`NoContext`].
pub fn add_reply_context(id: u32, data: &[u8]) -> Result<(), NoContext> {
    innermost(|frame| frame.reply.push(id, data))
}
