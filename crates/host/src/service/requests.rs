//! Requests of clients, one function each: opening and closing here, the others in files by topic.

mod best_effort;
mod capture;
mod consent;
mod doorbells;
mod joining;
mod making;
mod opening;
mod pages;
pub(super) mod tcp;
pub(super) mod upcalls;

use std::os::fd::OwnedFd;

use punctual_analysis::{Instant, Nanos};
use punctual_ipc::api::{Answer, ApiError, Call, Request, Resource, TEXT_BYTES_MAX, VERSION, VERSION_OLDEST};
use punctual_ipc::ring::RingHandles;
use punctual_proto::api::{RequestError, UserId};
use punctual_proto::ids::{ChannelId, ListenerId, Name};
use punctual_proto::node::Node;
use punctual_trial::{Defence, holds};

use super::end::Held;
use super::{ClientId, Effect, Host, HostGone, Service};
use crate::tcp::daemon::DaemonTcp;

/// The refusal of a program in another process that requests the processor's time for its handlers.
const HANDLER_TIME: &str = "a daemon runs no handlers of programs on its processor: listen with a handler_time of zero, or embed \
                            the endsystem (Endsystem::embedded)";

/// A new ring: the processor's end, the program's handles, and the quota that it takes until both the
/// processor and its ringer have dropped it.
pub(super) struct NewRing<E> {
    pub end: E,
    pub handles: RingHandles,
    pub held: Held,
}

/// An answer with its descriptors; `None` if it comes later.
pub(super) type Outcome = Result<Option<(Answer, Vec<OwnedFd>)>, ApiError>;

impl From<HostGone> for ApiError {
    fn from(_: HostGone) -> Self {
        Self::ShuttingDown
    }
}

fn done() -> Outcome {
    Ok(Some((Answer::Done, Vec::new())))
}

/// Description of a local error for the other end: short, since it travels in one signalling packet.
pub(super) fn reason(error: &ApiError) -> String {
    match error {
        ApiError::Quota { what, limit, .. } => format!("over its quota of {limit} {what}"),
        _ => "no room for its message ring".into(),
    }
}

/// Whether `client` may not touch what `owner` has.
fn is_anothers(owner: ClientId, client: ClientId) -> bool {
    owner != client && holds(Defence::Owners)
}

fn checked(text: String) -> Result<String, ApiError> {
    if text.len() <= TEXT_BYTES_MAX {
        Ok(text)
    } else {
        Err(ApiError::Malformed(format!(
            "a name or text has {} B: at most {TEXT_BYTES_MAX} B are allowed",
            text.len()
        )))
    }
}

impl<H: Host> Service<H> {
    /// Handles a client's request; the answer is among the effects, now or later.
    pub fn handle(&mut self, client: ClientId, call: Call) {
        let Some(&super::Client { account, greeted, .. }) = self.clients.get(&client) else { return };
        let Call { id, request } = call;
        if !greeted && !matches!(request, Request::Hello { .. }) {
            return self.reject(client, "the first request must be hello".into());
        }
        match self.dispatch(client, account, id, request) {
            Ok(Some((answer, descriptors))) => self.answer(client, id, Ok(answer), descriptors),
            Ok(None) => {}
            Err(error) => {
                let cut = matches!(error, ApiError::Version { .. });
                self.answer(client, id, Err(error), Vec::new());
                if cut {
                    self.effects.push_back(Effect::Cut(client));
                }
            }
        }
        self.charge(account);
    }

    /// Makes a request to the node that the node may refuse.
    pub(super) fn ask_node<R, F>(&self, request: F) -> Result<R, ApiError>
    where
        R: Send + 'static,
        F: FnOnce(&mut Node<H::Memory>, Instant) -> Result<R, RequestError> + Send + 'static,
    {
        Ok(self.on_node(request)??)
    }

    fn dispatch(&mut self, client: ClientId, account: UserId, id: u64, request: Request) -> Outcome {
        match request {
            Request::Hello { version, program } => self.hello(client, version, program),
            Request::Listen { port, handler_time } => self.listen(client, account, port, handler_time),
            Request::Unlisten { listener } => self.unlisten(client, account, listener),
            Request::Open { to, contract, token } => self.open(client, account, id, to, contract, token),
            Request::Probe { to, contract } => self.probe(client, account, id, to, contract),
            Request::Ask { source, reply_to, contract } => self.ask(client, source, reply_to, contract),
            Request::RefuseAsk { token, why } => self.refuse_ask(client, token, why),
            Request::Consent { channel, stall } => self.consent(client, account, channel, stall),
            Request::Refuse { channel, why } => self.refuse(client, channel, why),
            Request::Close { channel } => self.close(client, channel),
            Request::CoSchedule { channel, thread } => {
                self.co_schedule(client, channel, thread).map(|answer| Some((answer, Vec::new())))
            }
            Request::Register { terms, thread } => self.register(client, account, id, terms, thread),
            Request::Reports { channel } => self.reports(client, channel),
            Request::ConnectTcp { peer, class } => self.connect_tcp(client, account, id, peer, class),
            Request::JoinTcp { outgoing, incoming, peer, ports, class, accepts } => {
                let wanted = joining::Wanted { channels: [outgoing, incoming], peer, ports, class, accepts };
                self.join_tcp(client, account, id, wanted)
            }
            Request::ListenTcp { local, class, backlog } => {
                self.listen_tcp(client, account, id, local, (class, backlog))
            }
            Request::AcceptTcp { channel } => self.accept_tcp(client, account, id, channel),
            Request::CancelTcp { call } => self.cancel_tcp(client, call),
            Request::TcpOutbox { channel } => self.tcp_outbox(client, channel),
            Request::ShutdownTcp { channel } => self.change_tcp(client, channel, DaemonTcp::shutdown),
            Request::SetTcp { channel, setting } => {
                self.change_tcp(client, channel, |tcp, channel| tcp.set(channel, setting))
            }
            Request::ResetTcp { channel } => self.change_tcp(client, channel, DaemonTcp::reset),
            Request::TcpStatus { channel } => self.tcp_status(client, channel),
            Request::TcpConnections { after } => self.tcp_connections(after),
            Request::TcpListeners { after } => self.tcp_listeners(after),
            Request::Capture { wish } => self.begin_capture(client, account, &wish),
            Request::Handlers { after } => self.handlers(after),
            Request::Attached { channel } => self.attached(client, channel),
            Request::Alternate { channel } => self.alternate(client, channel),
            Request::OpenBestEffort { to, ring } => self.open_best_effort(client, account, to, ring),
            Request::BindBestEffort { port, ring } => self.bind_best_effort(client, account, port, ring),
            Request::Resolve { host } => {
                Ok(Some((Answer::Resolved { node: self.host.resolve(&host)? }, Vec::new())))
            }
            Request::MeasureRate { link } => self.measure_rate(client, id, link),
            Request::Status => self.status(account),
            Request::Users { after } => self.users(after),
            Request::Channels { after } => self.channels(after),
            Request::Channel { channel } => self.channel(channel),
        }
    }

    fn hello(&mut self, client: ClientId, version: u32, program: String) -> Outcome {
        if !(VERSION_OLDEST..=VERSION).contains(&version) {
            return Err(ApiError::Version { ours: VERSION, theirs: version });
        }
        checked(program)?;
        if let Some(client) = self.clients.get_mut(&client) {
            client.greeted = true;
        }
        Ok(Some((Answer::Hello { node: self.node, name: self.name.clone() }, Vec::new())))
    }

    fn listen(&mut self, client: ClientId, account: UserId, port: Name, handler_time: Nanos) -> Outcome {
        if self.ringers.apart && handler_time > Nanos::ZERO {
            return Err(ApiError::Forbidden(HANDLER_TIME.into()));
        }
        self.accounts.take_listener(account)?;
        let name = port.clone();
        let listening = self.ask_node(move |node, _| node.listen_with(port, handler_time));
        let listener = listening.inspect_err(|_| self.accounts.give_back(account, Resource::Listeners, 1))?;
        self.listeners.insert(listener, (client, name));
        Ok(Some((Answer::Listening { listener }, Vec::new())))
    }

    fn unlisten(&mut self, client: ClientId, account: UserId, listener: ListenerId) -> Outcome {
        if self.listeners.get(&listener).is_none_or(|(owner, _)| is_anothers(*owner, client)) {
            return Err(RequestError::Unknown.into());
        }
        self.drop_listener(listener, account);
        done()
    }

    pub(super) fn drop_listener(&mut self, listener: ListenerId, account: UserId) {
        self.listeners.remove(&listener);
        // `Unknown` cannot be: the node has it for as long as we do.
        let _ = self.on_node(move |node, now| node.unlisten(listener, now));
        self.accounts.give_back(account, Resource::Listeners, 1);
    }

    fn close(&mut self, client: ClientId, channel: ChannelId) -> Outcome {
        if self.ends.get(&channel).is_none_or(|end| end.client.is_none_or(|owner| is_anothers(owner, client)))
        {
            // It may have been closed from the other side a moment ago: closing is done either way.
            return done();
        }
        if self.is_joined(channel) {
            // The connection closes it.
            return done();
        }
        self.close_end(channel);
        done()
    }
}
