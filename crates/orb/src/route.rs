//! Ways to an object: addresses with keys, of all profiles of its reference.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use punctual_giop::Version;
use punctual_giop::codeset::{Chosen, CodeSets};
use punctual_giop::message::{Message, Request, RequestId, Response, Target};
use punctual_giop::reference::IiopProfile;
use punctual_giop::{
    ByteOrder, Completion, Decoder, Reference, SystemException, SystemExceptionKind as Kind, TaggedList,
};

use crate::call::{Call, Failure, Step, step};
use crate::core::Core;
use crate::exception::{communication, marshal, no_usable_profile};
use crate::outcome::Outcome;
use crate::peer::Peer;
use crate::publish::host_name;
use crate::reply::{Reply, Sender};
use crate::transport::{Deadline, Endpoint};

/// One way.
#[derive(Debug)]
pub(crate) enum Way {
    /// In this process.
    Local(Vec<u8>),
    /// At a server.
    Remote(Arc<Peer>, Vec<u8>),
}

/// All ways.
#[derive(Debug)]
pub(crate) struct Route {
    ways: Vec<Way>,
    /// The one that worked last.
    current: AtomicUsize,
}

impl Route {
    /// The ways that a reference names.
    pub fn new(core: &Core, reference: &Reference) -> Result<Self, SystemException> {
        let invalid = |_| SystemException::new(Kind::InvObjref, 0, Completion::No);
        let mut ways = Vec::new();
        for profile in reference.iiop_profiles() {
            add_ways(core, profile.map_err(invalid)?, &mut ways).map_err(invalid)?;
        }
        if ways.is_empty() {
            return Err(no_usable_profile());
        }
        Ok(Self { ways, current: AtomicUsize::new(0) })
    }

    /// The ways in the order in which they are tried.
    pub fn ways(&self) -> impl Iterator<Item = (usize, &Way)> {
        let first = self.current.load(Ordering::Relaxed);
        let count = self.ways.len();
        (0..count).map(move |number| (first + number) % count).map(|number| (number, &self.ways[number]))
    }

    /// This way works.
    pub fn prefer(&self, number: usize) {
        if self.current.load(Ordering::Relaxed) != number {
            self.current.store(number, Ordering::Relaxed);
        }
    }
}

fn add_ways(
    core: &Core,
    profile: IiopProfile,
    ways: &mut Vec<Way>,
) -> Result<(), punctual_giop::reference::Error> {
    if core.registry.is_own(&profile.object_key) {
        ways.push(Way::Local(profile.object_key));
        return Ok(());
    }
    let mut endpoints = Vec::new();
    for component in &profile.components {
        if let Some(unix) = component.unix_address()?
            && unix.host == host_name()
        {
            endpoints.push(Endpoint::Unix(unix.path.into()));
        }
    }
    let chosen = chosen(&profile)?;
    let addresses = profile.addresses()?;
    endpoints.extend(addresses.into_iter().filter(|address| address.port != 0).map(Endpoint::Tcp));
    for endpoint in endpoints {
        let peer = core.peer(&endpoint, profile.version, chosen);
        ways.push(Way::Remote(peer, profile.object_key.clone()));
    }
    Ok(())
}

/// The code sets for a server that says which it understands.
fn chosen(profile: &IiopProfile) -> Result<Option<Chosen>, punctual_giop::reference::Error> {
    for component in &profile.components {
        if let Some(sets) = CodeSets::of_component(component)? {
            return Ok(sets.choose().ok());
        }
    }
    Ok(None)
}

/// Calls a server, on another connection if the first was closed.
pub(crate) fn call_remote(
    peer: &Peer,
    call: &Call<'_>,
    deadline: Deadline,
    read: &mut dyn FnMut(Outcome<'_>),
) -> Result<Step, Failure> {
    // All idle connections may have been closed, and then the new one must work.
    for _ in 0..=crate::limits::CONNECTIONS_PER_SERVER {
        let mut link = peer
            .take(deadline)
            .map_err(|error| Failure { exception: communication(&error, false), may_repeat: true })?;
        let called = link.send(call, deadline).and_then(|id| match call.response {
            Response::None => Ok(Step::Done),
            Response::Server | Response::Target => link.receive(call, id, deadline, read),
        });
        match called {
            Ok(step) => {
                peer.give_back(link);
                return Ok(step);
            }
            Err(failure) => {
                peer.discard(link);
                if !failure.may_repeat {
                    return Err(failure);
                }
            }
        }
    }
    Err(SystemException::new(Kind::Transient, 0, Completion::No).into())
}

/// Sends a whole message to which nothing comes back.
pub(crate) fn send_message(peer: &Peer, message: &[u8], deadline: Deadline) -> io::Result<()> {
    let mut link = peer.take(deadline)?;
    match link.write(message, deadline) {
        Ok(()) => {
            peer.give_back(link);
            Ok(())
        }
        Err(error) => {
            peer.discard(link);
            Err(error)
        }
    }
}

/// Calls an object of this process: through its adapter, without a connection.
pub(crate) fn call_local(
    core: &Core,
    call: &Call<'_>,
    read: &mut dyn FnMut(Outcome<'_>),
) -> Result<Step, Failure> {
    let mut buffers = core.local_buffers();
    (call.write)(&mut buffers.request).map_err(|error| marshal(error, Completion::No))?;
    // What is called is finished when the call returns: nobody needs to know more before.
    let response = if call.response.is_expected() { Response::Target } else { Response::None };
    let request = Request {
        id: RequestId(0),
        response,
        target: Target::Key(call.key),
        operation: call.operation,
        contexts: TaggedList::from(call.contexts),
    };
    let arguments = Decoder::new(buffers.request.as_bytes(), ByteOrder::NATIVE, Version::V1_2);
    let nothing: Sender<'_> = &mut |_| {};
    let mut reply = Reply::new(&mut buffers.reply, RequestId(0), response, nothing);
    core.registry.dispatch(&request, arguments, &mut reply).or_refused()?;
    let called = match Message::read(buffers.reply.as_bytes()) {
        _ if !response.is_expected() => Ok(Step::Done),
        Ok(Message::Reply(reply, body)) => {
            call.receive(&reply.contexts);
            step(reply.status, body, read)
        }
        _ => Err(SystemException::new(Kind::Internal, 0, Completion::Maybe).into()),
    };
    core.keep_local_buffers(buffers);
    called
}
