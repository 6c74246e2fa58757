//! Requests of applications and events of the node, joined: who owns which listener, channel and ring.
//!
//! One thread owns a [`Service`]; it does no I/O but making rings. What clients are to be sent collects in its
//! outbox, which the [`server`] empties. Every channel handle belongs to exactly one client (or to none, when
//! that client is gone and the network has not answered yet); a client that goes takes its listeners and
//! channels along ([`leaving`]). Quotas count from the request until the node says that the channel is closed.

mod acceptance;
mod backlog;
mod books;
mod co_schedule;
mod connection;
mod events;
mod files;
mod flight;
mod host;
mod leaving;
mod lobby;
mod quota;
mod rate;
mod requests;
mod ringers;
pub mod server;
mod share;
mod subordinates;
mod turn;
mod waiting;

use std::cell::Cell;
use std::collections::{HashMap, VecDeque};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use punctual_analysis::{Contract, Instant, Nanos};
use punctual_ipc::api::{Answer, ApiError, ApiStatus, FromDaemon, PACKET_BYTES_MAX, Push, Quotas, Resource};
use punctual_ipc::ring::incoming::InboxHealth;
use punctual_ipc::ring::outgoing::OutboxHealth;
use punctual_ipc::socket::{Packet, Peer};
use punctual_ipc::wake::{Alarm, Doorbell};
use punctual_proto::api::UserId;
use punctual_proto::ids::{ChannelId, LinkId, ListenerId, Name};
use punctual_proto::node::Node;
use punctual_trial::{Defence, holds};
use rustix::process::getrlimit;

use self::backlog::Cost;
use self::co_schedule::CoScheduled;
use self::files::Files;
use self::leaving::{Leaving, Left};
use self::quota::Accounts;
use self::ringers::{Held, Ringers};
use self::share::{CONNECTIONS_DEPTH, REQUESTS_DEPTH, Shares};
use self::subordinates::Subordinates;
use self::waiting::{Asker, Waiting};

pub use acceptance::{ACCEPT_BYTES_MAX, ACCEPT_MESSAGES_MAX, ACCEPT_TIME, STALL_DEFAULT};
pub use host::{Host, HostGone};

/// The thread that serves is charged with this part of what it took: of it, which is not the processor, a user may have ten
/// times its share (docs/adr/0039).
const SERVICE_CHARGE_DIVISOR: u64 = 10;

/// Of a connection: its socket, what stands for the process behind it, and the file of what it does not read.
const CLIENT_DESCRIPTORS: u64 = 3;

/// What a program reads whose answer could not carry its descriptors.
const TOO_MANY_ALOFT: &str = "the kernel takes no more descriptors on their way to programs that do not read (ETOOMANYREFS): try \
                              again, or raise the daemon's limit of descriptors (LimitNOFILE)";

/// What a request costs the processor beside what it does: to wake, to look, to answer.
const CALL_COST: Nanos = Nanos::from_micros(5);

/// A connected program; never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientId(u64);

impl ClientId {
    /// The one that connects behind it.
    const fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

/// What must be done to a client's connection.
#[derive(Debug)]
pub enum Effect {
    /// Send this.
    Send(ClientId, Packet),
    /// Send what is queued, then cut it.
    Cut(ClientId),
}

struct Client {
    /// As the kernel has it.
    user: UserId,
    /// Whose quotas count what it has.
    account: UserId,
    peer: Peer,
    greeted: bool,
}

/// How far a channel's end has come.
enum Stage {
    /// The network has not answered; this call waits for it.
    Opening { call: u64, contract: Contract },
    /// The same for a dry run.
    Probing { call: u64, contract: Contract },
    /// The agent has not answered. `asker` has a place to wait, and nothing of the quotas is taken; `None`: its place in the
    /// quota is, since the agent has asked for it.
    Incoming { contract: Contract, messages: u32, asker: Option<Asker> },
    /// Rings are attached.
    Open,
    /// A best-effort end: the node says nothing when it is closed.
    BestEffort,
}

/// One end of a channel at this host.
struct End {
    /// `None`: the client is gone, the node not yet done.
    client: Option<ClientId>,
    /// Whose quotas count it.
    account: UserId,
    stage: Stage,
    /// What its ring and doorbells take.
    held: Held,
    /// Of the processor's heap: what the node has for the messages of a burst.
    room_bytes: u64,
    /// The same for all else that it has beside the ring, once that is known.
    more_bytes: u64,
    /// Held until the node is done with the ring: unmapping it is work for this thread, not for the processor.
    health: Option<Health>,
    /// As the processor watches it. Held so that it is not the processor that closes it.
    doorbell: Option<Arc<OwnedFd>>,
    /// The ring was found broken, and the channel is being closed for it.
    broken: bool,
    /// Its name and whither or whence, for the log.
    what: String,
}

impl End {
    fn new(client: ClientId, account: UserId, stage: Stage, what: String) -> Self {
        Self {
            client: Some(client),
            account,
            stage,
            held: Held::default(),
            room_bytes: 0,
            more_bytes: 0,
            health: None,
            doorbell: None,
            broken: false,
            what,
        }
    }
}

/// Whether the application keeps the rules of its ring.
enum Health {
    Outbox(OutboxHealth),
    Inbox(InboxHealth),
}

impl Health {
    fn is_broken(&self) -> bool {
        match self {
            Self::Outbox(health) => health.is_broken(),
            Self::Inbox(health) => health.is_broken(),
        }
    }

    fn is_alone(&self) -> bool {
        match self {
            Self::Outbox(health) => health.is_alone(),
            Self::Inbox(health) => health.is_alone(),
        }
    }

    fn accept(&self) -> std::io::Result<()> {
        match self {
            Self::Outbox(health) => health.accept(),
            Self::Inbox(health) => health.accept(),
        }
    }
}

/// See the module.
pub struct Service<H: Host> {
    host: H,
    node: punctual_proto::ids::NodeId,
    name: Name,
    accounts: Accounts,
    shares: Shares,
    /// The same for what their connections take.
    connections: Shares,
    subordinates: Subordinates,
    /// What the processor has done for whom is served now, and was not charged yet.
    spent: Cell<Nanos>,
    /// CPU time of the thread that serves when it was looked at last.
    served: Nanos,
    ringers: Ringers,
    /// Of rings that were handed over.
    files: Files,
    clients: HashMap<ClientId, Client>,
    next_client: u64,
    listeners: HashMap<ListenerId, (ClientId, Name)>,
    ends: HashMap<ChannelId, End>,
    /// Those of them that wait for consent.
    waiting: Waiting,
    /// What their bursts take of the processor's memory together.
    room_bytes: u64,
    /// Threads at the priority of their channels.
    co_scheduled: HashMap<ChannelId, CoScheduled<H::Scheduling>>,
    /// Requests of receivers elsewhere that a client here has been told, by token.
    requested: HashMap<u64, ClientId>,
    /// Requests of clients here to sources elsewhere, by token.
    asked: HashMap<u64, ClientId>,
    /// Of clients that are gone.
    leaving: Leaving,
    /// Calls that wait for a link's measurement.
    measuring: Vec<(LinkId, ClientId, u64)>,
    counters: ApiStatus,
    effects: VecDeque<Effect>,
    alarm: Alarm,
    started: Instant,
}

impl<H: Host> Service<H> {
    /// Around a running engine.
    ///
    /// # Errors
    /// Where the engine has stopped already, descriptors run out, or the kernel does not tell of doorbells.
    pub fn new(host: H, quotas: Quotas) -> std::io::Result<Self> {
        Doorbell::check()?;
        let about = host.call(|node, now| node.status(now)).map_err(std::io::Error::other)?;
        let counters = ApiStatus {
            descriptors_max: getrlimit(rustix::process::Resource::Nofile).current.unwrap_or(u64::MAX),
            descriptors_needed: quotas.descriptors_needed(about.links.len()),
            ..ApiStatus::default()
        };
        Ok(Self {
            host,
            node: about.id,
            name: about.name,
            accounts: Accounts::new(quotas),
            shares: Shares::new(quotas.request_share, REQUESTS_DEPTH),
            connections: Shares::new(quotas.request_share, CONNECTIONS_DEPTH),
            subordinates: Subordinates::of_system(),
            spent: Cell::new(Nanos::ZERO),
            served: cpu_time(),
            ringers: Ringers::default(),
            files: Files::default(),
            clients: HashMap::new(),
            next_client: 1,
            listeners: HashMap::new(),
            ends: HashMap::new(),
            waiting: Waiting::new(&quotas),
            room_bytes: 0,
            co_scheduled: HashMap::new(),
            requested: HashMap::new(),
            asked: HashMap::new(),
            leaving: Leaving::default(),
            measuring: Vec::new(),
            counters,
            effects: VecDeque::new(),
            alarm: Alarm::new()?,
            started: punctual_ipc::ring::now(),
        })
    }

    /// Whose quotas count what `peer` has; `None`: its user has connected more than its share allows, and its connection is to
    /// be closed without a word, which nobody pays for.
    pub fn admit(&mut self, peer: &Peer) -> Option<UserId> {
        let account = self.subordinates.account(UserId(peer.user));
        if self.connections.wait(account, punctual_ipc::ring::now()).is_some() {
            self.counters.turned_away += 1;
            return None;
        }
        Some(account)
    }

    /// A program has connected that counts in the quotas of `account`, as [`Self::admit`] has it.
    ///
    /// # Errors
    /// Where the user has too many already: the error is to be sent, the connection cut.
    pub fn connect(&mut self, peer: Peer, account: UserId) -> Result<ClientId, ApiError> {
        let user = UserId(peer.user);
        let taken = self.take_place(account);
        taken.inspect_err(|_| self.counters.over_quota += 1)?;
        let id = ClientId(self.next_client);
        self.next_client += 1;
        self.clients.insert(id, Client { user, account, peer, greeted: false });
        self.counters.clients += 1;
        Ok(id)
    }

    fn take_place(&mut self, account: UserId) -> Result<(), ApiError> {
        self.accounts.take(account, Resource::Clients, 1)?;
        let taken = self.accounts.take(account, Resource::Descriptors, CLIENT_DESCRIPTORS);
        taken.inspect_err(|_| self.accounts.give_back(account, Resource::Clients, 1))
    }

    /// A program is gone: its listeners and channels go with it, the other ends are told, some of them at each
    /// [`Self::end_some`].
    pub fn disconnect(&mut self, client: ClientId) {
        let Some(account) = self.account_of(client) else { return };
        self.co_scheduled_of(client).into_iter().for_each(|channel| self.end_co_schedule(channel));
        self.clients.remove(&client);
        self.counters.clients -= 1;
        self.leave(client, account);
        self.asked.retain(|_, owner| *owner != client);
        self.measuring.retain(|(_, owner, _)| *owner != client);
        self.accounts.give_back(account, Resource::Clients, 1);
        self.accounts.give_back(account, Resource::Descriptors, CLIENT_DESCRIPTORS);
    }

    /// Whose quotas count what `client` has; `None` where it is gone.
    pub fn account_of(&self, client: ClientId) -> Option<UserId> {
        self.clients.get(&client).map(|client| client.account)
    }

    /// As whom `client` asks; nobody where it is gone.
    fn user_of(&self, client: ClientId) -> UserId {
        self.clients.get(&client).map_or(UserId(u32::MAX), |client| client.user)
    }

    /// How long `client` is not to be served, since its user's requests have taken their share; `None`: it is now.
    pub fn wait_of(&self, client: ClientId) -> Option<Nanos> {
        self.shares.wait(self.account_of(client)?, punctual_ipc::ring::now())
    }

    /// Whether the longest answer to `client` fits into its user's quota of what is not read.
    pub fn has_room_for(&self, client: ClientId) -> bool {
        let needed = Cost::of(&Packet::default()).bytes + PACKET_BYTES_MAX as u64;
        let account = self.account_of(client);
        account.is_some_and(|account| self.accounts.has_room(account, Resource::UnreadBytes, needed))
    }

    /// Takes what a packet costs out of the quotas of `client`'s user for what it has not read; `false` where that is not
    /// left, or where it alone would have more than a quarter of the bytes that all of its user's programs may.
    fn take_unread(&mut self, client: ClientId, held: u64, more: Cost) -> bool {
        let one_max = (self.accounts.quotas().unread_bytes / 4).max(2 * PACKET_BYTES_MAX as u64);
        let Some(account) = self.account_of(client) else { return false };
        if held + more.bytes > one_max && holds(Defence::BoundedUnread)
            || self.accounts.take(account, Resource::UnreadBytes, more.bytes).is_err()
        {
            return false;
        }
        let taken = self.accounts.take(account, Resource::Descriptors, more.descriptors);
        taken.inspect_err(|_| self.accounts.give_back(account, Resource::UnreadBytes, more.bytes)).is_ok()
    }

    /// So many descriptors are on their way to a program of `account`: see [`flight`]. There was room for them when what they
    /// belong to was made.
    fn count_aloft(&mut self, account: UserId, descriptors: u64) {
        if holds(Defence::DescriptorsAloft) {
            self.accounts.add(account, Resource::Descriptors, descriptors);
        }
    }

    /// Or they are not any more.
    fn give_back_aloft(&mut self, account: UserId, descriptors: u64) {
        if holds(Defence::DescriptorsAloft) {
            self.accounts.give_back(account, Resource::Descriptors, descriptors);
        }
    }

    /// The kernel takes no more descriptors on their way: whoever was to get these is told, and has not what they belong to.
    fn undelivered(&mut self, client: ClientId, packet: &Packet) {
        let Ok(FromDaemon::Answer { id, result: Ok(answer) }) = packet.parse() else { return };
        if let Answer::Ring { channel, .. } | Answer::Opened { channel, .. } = answer {
            // Nobody is told of the end of what nobody has had.
            if let Some(end) = self.ends.get_mut(&channel) {
                end.client = None;
            }
            self.close_end(channel);
        }
        self.answer(client, id, Err(ApiError::Ring(TOO_MANY_ALOFT.into())), Vec::new());
    }

    fn give_back_unread(&mut self, client: ClientId, cost: Cost) {
        if let Some(account) = self.account_of(client) {
            self.accounts.give_back(account, Resource::UnreadBytes, cost.bytes);
            self.accounts.give_back(account, Resource::Descriptors, cost.descriptors);
        }
    }

    /// Runs `request` on the processor and notes what that took.
    fn on_node<R, F>(&self, request: F) -> Result<R, HostGone>
    where
        R: Send + 'static,
        F: FnOnce(&mut Node<H::Memory>, Instant) -> R + Send + 'static,
    {
        let (answer, took) = self.host.call(move |node, now| {
            let begun = punctual_ipc::ring::now();
            let answer = request(node, now);
            (answer, punctual_ipc::ring::now().since(begun))
        })?;
        self.spent.set(self.spent.get() + took + CALL_COST);
        Ok(answer)
    }

    /// `account` is charged with what the processor and this thread have done since the last charge.
    fn charge(&mut self, account: UserId) {
        let took = self.take_spent();
        self.shares.charge(account, took, punctual_ipc::ring::now());
    }

    /// The same where it was done for a connection that has begun, was refused, or has ended: there is less of that.
    pub fn charge_connection(&mut self, account: UserId) {
        let (took, now) = (self.take_spent(), punctual_ipc::ring::now());
        self.shares.charge(account, took, now);
        self.connections.charge(account, took, now);
    }

    /// What counts in a share of what was done since the last charge.
    fn take_spent(&mut self) -> Nanos {
        let served = self.take_served() / SERVICE_CHARGE_DIVISOR;
        let served = if holds(Defence::ServiceCharge) { served } else { Nanos::ZERO };
        self.spent.take() + served
    }

    /// What was done since the last charge is nobody's.
    pub fn charge_nobody(&mut self) {
        self.spent.take();
        self.take_served();
    }

    /// CPU time of this thread since the last look.
    fn take_served(&mut self) -> Nanos {
        let now = cpu_time();
        let before = std::mem::replace(&mut self.served, now);
        Nanos(now.0.saturating_sub(before.0))
    }

    /// Rings that applications broke: their channels are closed, nobody else notices. Rings that are gone: their memory
    /// is given back.
    pub fn close_broken(&mut self) {
        self.alarm.clear();
        self.collect_freed();
        let broken: Vec<ChannelId> = self
            .ends
            .iter()
            .filter(|(_, end)| !end.broken && end.health.as_ref().is_some_and(Health::is_broken))
            .map(|(id, _)| *id)
            .collect();
        for channel in broken {
            self.counters.broken_rings += 1;
            if let Some(end) = self.ends.get_mut(&channel) {
                end.broken = true;
                self.leaving.add(end.account, [Left::Channel(channel)]);
            }
        }
    }

    /// What is to be done to connections, in order.
    pub fn next_effect(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    /// The engine.
    pub fn host(&self) -> &H {
        &self.host
    }

    /// Readable when a ring was broken, or is gone.
    pub fn alarm(&self) -> &Alarm {
        &self.alarm
    }

    /// A connection was cut since its program did not read.
    pub fn count_not_reading(&mut self) {
        self.counters.not_reading += 1;
    }

    /// A connection is to be cut since what it sent was no request.
    pub fn reject(&mut self, client: ClientId, why: String) {
        self.counters.malformed += 1;
        self.answer(client, 0, Err(ApiError::Malformed(why)), Vec::new());
        self.effects.push_back(Effect::Cut(client));
    }

    fn answer(
        &mut self,
        client: ClientId,
        id: u64,
        result: Result<Answer, ApiError>,
        descriptors: Vec<OwnedFd>,
    ) {
        self.counters.requests += 1;
        self.counters.errors += u64::from(result.is_err());
        self.counters.over_quota += u64::from(matches!(result, Err(ApiError::Quota { .. })));
        match Packet::new(&FromDaemon::Answer { id, result }, descriptors) {
            Ok(packet) => self.effects.push_back(Effect::Send(client, packet)),
            Err(error) => self.answer(client, id, Err(ApiError::Ring(error.to_string())), Vec::new()),
        }
    }

    fn push(&mut self, client: ClientId, push: Push) {
        match Packet::new(&FromDaemon::Push(push), Vec::new()) {
            Ok(packet) => self.effects.push_back(Effect::Send(client, packet)),
            // Pushes are bounded by the protocol's own limits; one that is not is no news worth a connection.
            Err(_) => self.effects.push_back(Effect::Cut(client)),
        }
    }

    /// Asks the node to close a channel, as its application wants it; a best-effort end is gone at once.
    fn close_end(&mut self, channel: ChannelId) {
        // `Unknown` means that the node has closed it already: its event is on the way.
        let _ = self.on_node(move |node, now| node.close(channel, now));
        self.after_end(channel);
    }

    /// The bursts of all channels take so much of the processor's memory from now on.
    fn expect_room(&mut self, bytes: u64) {
        if bytes != self.room_bytes {
            self.room_bytes = bytes;
            self.host.expect_room(bytes);
        }
    }

    /// What the node has for an open channel, `bytes`, counts in its user's quota: of a source, its burst does already.
    fn count_room(&mut self, channel: ChannelId, bytes: u64) -> Result<(), ApiError> {
        let Some(end) = self.ends.get_mut(&channel) else { return Ok(()) };
        let more = bytes.saturating_sub(end.room_bytes + end.more_bytes);
        self.accounts.take(end.account, Resource::BufferBytes, more)?;
        end.more_bytes += more;
        Ok(())
    }

    /// Forgets a channel's end and gives back what it took.
    fn release_end(&mut self, channel: ChannelId) -> Option<End> {
        self.end_co_schedule(channel);
        let mut end = self.ends.remove(&channel)?;
        match &end.stage {
            Stage::Incoming { asker: Some(asker), .. } => self.waiting.remove(end.account, asker, channel),
            _ => self.accounts.give_back(end.account, Resource::Channels, 1),
        }
        self.accounts.give_back(end.account, Resource::BufferBytes, end.room_bytes + end.more_bytes);
        self.expect_room(self.room_bytes - end.room_bytes);
        self.bury(end.account, end.health.take(), end.doorbell.take(), end.held);
        Some(end)
    }

    fn drop_listener(&mut self, listener: ListenerId, account: UserId) {
        self.listeners.remove(&listener);
        // `Unknown` cannot be: the node has it for as long as we do.
        let _ = self.on_node(move |node, now| node.unlisten(listener, now));
        self.accounts.give_back(account, Resource::Listeners, 1);
    }
}

/// What this thread has had of a CPU.
fn cpu_time() -> Nanos {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    let (seconds, nanos) =
        (u64::try_from(time.tv_sec).unwrap_or(0), u64::try_from(time.tv_nsec).unwrap_or(0));
    Nanos(seconds * 1_000_000_000 + nanos)
}
