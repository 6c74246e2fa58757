//! Agents: the application's functions that consent to channels or refuse them, and the thread that runs them.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::mpsc::Receiver;

use punctual_ipc::api::{Answer, Push, Request};
use punctual_ipc::ring::{InboxReader, RingHandles};
use punctual_proto::api::UserId;
use punctual_proto::ids::{Address, ChannelId, ListenerId};
use punctual_proto::{Contract, Nanos};

use crate::channel::Opened;
use crate::connection::{SharedConnection, lock};
use crate::error::{Error, OpenError};
use crate::listener::{Accepted, ListenerQueue};

/// A peer requests to open a channel to a listener (CLIPS 4.1: consent of the receiver).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IncomingRequest {
    /// The source host.
    pub from: String,
    /// User at the source host on whose behalf the channel is opened.
    pub user: UserId,
    /// The traffic that it promises.
    pub contract: Contract,
}

/// A receiver wants this program to open a channel to it (as RSVP does).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChannelRequest {
    /// Address that the channel must be opened to.
    pub to: Address,
    /// User at the receiver's host on whose behalf the request is made.
    pub user: UserId,
    /// The traffic that it wants.
    pub contract: Contract,
}

/// An agent's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Consent {
    /// Accepts. The ring has room for the messages that arrive while this program takes none for 20 ms, as
    /// far as its user's quota of buffers permits.
    Accept,
    /// Accepts, and the ring has room for the messages that arrive while this program takes none for that
    /// long. The channel is refused if that exceeds the quota.
    AcceptWithStall(Nanos),
    /// The channel is refused for this reason, which the sender receives.
    Refuse(String),
}

impl Consent {
    /// Refuses the channel.
    pub fn refuse(why: impl Into<String>) -> Self {
        Self::Refuse(why.into())
    }
}

/// An agent for incoming channels.
pub(crate) type Agent = Box<dyn FnMut(&IncomingRequest) -> Consent + Send>;
/// An agent for requests of receivers.
pub(crate) type SourceAgent = Box<dyn FnMut(&ChannelRequest) -> Consent + Send>;

/// Channels that an agent consented to and that are not established yet, with who listens.
type Consented = HashMap<ChannelId, (Arc<ListenerQueue>, Accepted)>;

/// Runs until the reader is gone.
pub(crate) fn run(shared: &SharedConnection, jobs: &Receiver<Push>) {
    let mut consented = Consented::new();
    while let Ok(job) = jobs.recv() {
        match job {
            Push::Incoming { channel, listener, from, user, contract, .. } => {
                let request = IncomingRequest { from: from.to_string(), user, contract };
                incoming(shared, &mut consented, channel, listener, request);
            }
            Push::Established { channel } => {
                if let Some((queue, accepted)) = consented.remove(&channel) {
                    queue.add(accepted);
                }
            }
            Push::Requested { listener, to, contract, user, token } => {
                requested(shared, listener, ChannelRequest { to, user, contract }, token);
            }
            // Forgotten if it was not established yet.
            Push::Closed { channel, .. } => {
                if consented.remove(&channel).is_some() {
                    shared.forget(channel);
                }
            }
            // The reader's.
            Push::Notice { .. } | Push::Stage { .. } | Push::AskFailed { .. } | Push::TcpEnded { .. } => {}
        }
    }
}

fn queue_of(shared: &SharedConnection, listener: ListenerId) -> Option<Arc<ListenerQueue>> {
    lock(&shared.listeners).get(&listener).cloned()
}

fn incoming(
    shared: &SharedConnection,
    consented: &mut Consented,
    channel: ChannelId,
    listener: ListenerId,
    request: IncomingRequest,
) {
    let Some(queue) = queue_of(shared, listener) else {
        return shared
            .send_unanswered(Request::Refuse { channel, why: "the listener was just closed".into() });
    };
    let answer = lock(&queue.agent)(&request);
    let stall = match answer {
        Consent::Refuse(why) => return shared.send_unanswered(Request::Refuse { channel, why: short(why) }),
        Consent::Accept => None,
        Consent::AcceptWithStall(stall) => Some(stall),
    };
    // If it fails, the daemon has notified the sender. The listener continues.
    if let Ok(ring) = consent(shared, channel, stall) {
        let handler_time = queue.handler_time;
        consented.insert(channel, (queue, Accepted { channel, listener, ring, request, handler_time }));
    }
}

fn consent(
    shared: &SharedConnection,
    channel: ChannelId,
    stall: Option<Nanos>,
) -> Result<InboxReader, Error> {
    match shared.call(Request::Consent { channel, stall })? {
        (Answer::Ring { ring, .. }, descriptors) => {
            let reader = attach(shared, channel, RingHandles { shape: ring, descriptors });
            if reader.is_err() {
                shared.send_unanswered(Request::Close { channel });
            }
            reader
        }
        _ => Err(Error::Unexpected),
    }
}

/// Attaches to an incoming ring and reports that to the daemon.
pub(crate) fn attach(
    shared: &SharedConnection,
    channel: ChannelId,
    handles: RingHandles,
) -> Result<InboxReader, Error> {
    let ring = InboxReader::attach(handles)?;
    shared.attached(channel, || ring.is_closed())?;
    Ok(ring)
}

fn requested(shared: &SharedConnection, listener: ListenerId, request: ChannelRequest, token: u64) {
    let queue = queue_of(shared, listener);
    let answer =
        queue.as_ref().and_then(|queue| lock(&queue.source_agent).as_mut().map(|agent| agent(&request)));
    match (queue, answer) {
        // A sender has no ring for incoming messages, so the stall has no meaning here.
        (Some(queue), Some(Consent::Accept | Consent::AcceptWithStall(_))) => {
            let opened = open(shared, &request, token);
            queue.add_source(opened, request);
        }
        (_, Some(Consent::Refuse(why))) => {
            shared.send_unanswered(Request::RefuseAsk { token, why: short(why) })
        }
        _ => shared.send_unanswered(Request::RefuseAsk {
            token,
            why: "this listener opens no channels on request".into(),
        }),
    }
}

fn open(shared: &SharedConnection, request: &ChannelRequest, token: u64) -> Result<Opened, OpenError> {
    let open = Request::Open { to: request.to.clone(), contract: request.contract, token: Some(token) };
    let (_, reply) = shared.start_call(open)?;
    Opened::from_reply(shared, reply.recv().map_err(|_| Error::Disconnected)?, &request.contract)
}

/// A reason as long as the API lets it be.
fn short(why: String) -> String {
    why.chars().take(punctual_ipc::api::TEXT_BYTES_MAX / 4).collect()
}
