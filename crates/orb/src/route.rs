//! Ways to an object: addresses with keys, of all profiles of its reference.

use std::borrow::Cow;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicUsize, Ordering};

use punctual_giop::characters::CharacterSet;
use punctual_giop::codeset::{Chosen, CodeSets, Incompatible};
use punctual_giop::message::{Addressing, Message, Request, RequestId, Response, Target};
use punctual_giop::reassembly::Joined;
use punctual_giop::reference::{IiopProfile, TAG_INTERNET_IOP};
use punctual_giop::{
    ByteOrder, Completion, Decoder, Reference, SystemException, SystemExceptionKind as Kind, Tagged,
    TaggedList, Version,
};

use crate::budget::HeldMessage;
use crate::call::{Call, Failure, Step, step};
use crate::core::Core;
use crate::exception::{communication, marshal, no_code_set, no_usable_profile, not_active};
use crate::main_thread_request::hand_over_and_wait;
use crate::outcome::Outcome;
use crate::peer::Peer;
use crate::poa::Located;
use crate::publish::host_name;
use crate::reply::{Reply, Sender};
use crate::transport::{Deadline, Endpoint};

/// One way.
#[derive(Debug)]
pub(crate) enum Way {
    /// In this process.
    Local(Vec<u8>),
    /// At a server.
    Remote(Arc<Peer>, Named),
}

/// How an object is named to its server.
#[derive(Debug)]
pub(crate) struct Named {
    key: Vec<u8>,
    /// Which profile of the reference it is.
    profile: usize,
    /// The number of the [`Addressing`] that the server wants.
    addressing: AtomicU16,
}

impl Named {
    /// The server wants it named so from now on.
    pub fn set_addressing(&self, addressing: Addressing) {
        self.addressing.store(addressing as u16, Ordering::Relaxed);
    }
}

/// All ways.
#[derive(Debug)]
pub(crate) struct Route {
    reference: Reference,
    ways: Vec<Way>,
    /// The one that worked last.
    current: AtomicUsize,
}

impl Route {
    /// The ways that a reference names.
    pub fn new(core: &Arc<Core>, reference: &Reference) -> Result<Self, SystemException> {
        let invalid = |_| SystemException::new(Kind::InvObjref, 0, Completion::No);
        let (mut ways, mut refused) = (Vec::new(), no_usable_profile());
        for (number, profile) in reference.profiles.iter().enumerate() {
            if profile.tag != TAG_INTERNET_IOP {
                continue;
            }
            let profile = IiopProfile::parse(&profile.data).map_err(invalid)?;
            match chosen(&profile).map_err(invalid)? {
                Ok(chosen) => add_ways(core, number, profile, chosen, &mut ways).map_err(invalid)?,
                Err(Incompatible) => refused = no_code_set(),
            }
        }
        if ways.is_empty() {
            return Err(refused);
        }
        Ok(Self { reference: reference.clone(), ways, current: AtomicUsize::new(0) })
    }

    /// The name of its object for a server.
    pub fn target<'r>(&'r self, named: &'r Named) -> Target<'r> {
        let addressing = named.addressing.load(Ordering::Relaxed);
        if addressing == Addressing::Profile as u16 {
            let profile = &self.reference.profiles[named.profile];
            return Target::Profile(Tagged { id: profile.tag, data: &profile.data });
        }
        if addressing == Addressing::Reference as u16 {
            return Target::Reference(named.profile as u32, Cow::Borrowed(&self.reference));
        }
        Target::Key(&named.key)
    }

    /// The ways in the order in which they are tried.
    pub fn ways(&self) -> impl Iterator<Item = (usize, &Way)> {
        let first = self.current.load(Ordering::Relaxed);
        let count = self.ways.len();
        (0..count).map(move |number| (first + number) % count).map(|number| (number, &self.ways[number]))
    }

    /// The code set of strings on the way that is tried first.
    pub fn characters(&self) -> CharacterSet {
        match self.ways().next() {
            Some((_, Way::Remote(peer, _))) => peer.characters(),
            Some((_, Way::Local(_))) | None => CharacterSet::default(),
        }
    }

    /// The server of this way wants the object named so.
    pub fn set_addressing(&self, number: usize, addressing: Addressing) {
        if let Some(Way::Remote(_, named)) = self.ways.get(number) {
            named.set_addressing(addressing);
        }
    }

    /// This way works.
    pub fn prefer(&self, number: usize) {
        if self.current.load(Ordering::Relaxed) != number {
            self.current.store(number, Ordering::Relaxed);
        }
    }
}

fn add_ways(
    core: &Arc<Core>,
    number: usize,
    profile: IiopProfile,
    chosen: Option<Chosen>,
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
    let addresses = profile.addresses()?;
    endpoints.extend(addresses.into_iter().filter(|address| address.port != 0).map(Endpoint::Tcp));
    for endpoint in endpoints {
        let peer = core.peer(&endpoint, profile.version, chosen);
        let (key, addressing) = (profile.object_key.clone(), AtomicU16::new(Addressing::Key as u16));
        ways.push(Way::Remote(peer, Named { key, profile: number, addressing }));
    }
    Ok(())
}

/// The code sets for a server that says which it understands.
fn chosen(
    profile: &IiopProfile,
) -> Result<Result<Option<Chosen>, Incompatible>, punctual_giop::reference::Error> {
    for component in &profile.components {
        if let Some(sets) = CodeSets::of_component(component)? {
            return Ok(sets.choose().map(Some));
        }
    }
    Ok(Ok(None))
}

/// Calls a server, on another connection if the first was closed.
pub(crate) fn call_remote(
    peer: &Peer,
    call: &Call<'_>,
    deadline: Deadline,
    read: &mut dyn FnMut(Outcome<'_>),
) -> Result<Step, Failure> {
    let unconnected = |error| Failure { exception: communication(&error, false), may_repeat: true };
    while let Some((shared, is_new)) = peer.duplex(deadline).map_err(unconnected)? {
        match shared.call(call, deadline, read) {
            // It was closed before the call was begun: a new one may work.
            Err(failure) if failure.may_repeat && !is_new => {}
            called => return called,
        }
    }
    // All idle connections may have been closed, and then the new one must work.
    for _ in 0..=crate::limits::CONNECTIONS_PER_SERVER {
        let mut link = peer.take(deadline).map_err(unconnected)?;
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
    if let Some((shared, _)) = peer.duplex(deadline)? {
        return shared.send_message(message, deadline);
    }
    let mut link = peer.take(deadline)?;
    match link.send_message(message, deadline) {
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

/// Calls an object of this process, whose target is a key: through its adapter, without a connection.
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
        target: call.target.clone(),
        operation: call.operation,
        contexts: TaggedList::from(call.contexts),
    };
    if core.registry.wants_main_thread_of(&request.target) {
        buffers.request.clear();
        call.encode(RequestId(0), &[], &mut buffers.request)?;
        let message = Joined::from(buffers.request.as_bytes().to_vec());
        let answers = &mut |bytes: &[u8]| buffers.reply.write(bytes);
        hand_over_and_wait(
            &core.registry,
            HeldMessage::from(message).into(),
            CharacterSet::default(),
            answers,
        );
    } else {
        let arguments = Decoder::new(buffers.request.as_bytes(), ByteOrder::NATIVE, Version::V1_2);
        let nothing: Sender<'_> = &mut |_| {};
        let mut reply = Reply::new(&mut buffers.reply, RequestId(0), response, nothing);
        core.registry.dispatch(&request, arguments, &mut reply).or_refused()?;
    }
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

/// Whether an object of this process is there.
pub(crate) fn locate_local(core: &Core, key: &[u8], read: &mut dyn FnMut(Outcome<'_>)) -> Step {
    match core.registry.locate(key) {
        Located::Here => read(Outcome::Result(Decoder::new(&[], ByteOrder::NATIVE, Version::V1_2))),
        Located::Unknown => read(Outcome::System(not_active())),
        Located::Forward(to) => return Step::Forward(to),
    }
    Step::Done
}
