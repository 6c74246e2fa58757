//! Requests of clients, one function each.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use punctual_analysis::{Contract, Instant, Nanos};
use punctual_ipc::api::{
    Answer, ApiError, Call, HostStatus, PACKET_BYTES_MAX, Request, Resource, TEXT_BYTES_MAX, UserStatus,
    VERSION,
};
use punctual_ipc::ring::{
    InboxWriter, OutboxReader, RingError, RingHandles, RingShape, Turns, inbox, now, outbox,
};
use punctual_ipc::wake::{Alarm, Doorbell, RingPath};
use punctual_proto::api::{ChannelStatus, Grant, OpenRequest, RequestError, UserId};
use punctual_proto::ids::{Address, ChannelId, ListenerId, Name};
use punctual_proto::node::Node;
use punctual_trial::{Defence, holds};

use super::acceptance::{self, STALL_DEFAULT};
use super::files::Needs;
use super::quota::is_privileged;
use super::ringers::Held;
use super::{CALL_COST, ClientId, Effect, End, Health, Host, HostGone, Service, Stage};

/// Channels whose status the processor makes at once, between messages.
const CHANNELS_PER_SLICE: usize = 8;
/// Such slices for one answer: where most handles are of channels that have ended it has few channels, or none.
const SLICES_PER_PAGE: usize = 16;

/// Of a packet, for all that is around a list, and more.
const ENVELOPE_BYTES: usize = 1_024;

/// An open is charged so often what it took: the network's yes and the end are decided on the processor too, where nobody
/// can be charged, and may each take as long and half as long again (docs/adr/0032).
const OPEN_CHARGE: u64 = 4;

/// What a program reads that is another process and wants the processor's time for its handlers.
const HANDLER_TIME: &str = "a daemon runs no handlers of programs on its processor: listen with a handler_time of zero, or embed \
                            the endsystem (Endsystem::embedded)";

/// A doorbell beside those that a ring is made with.
const DOORBELL: Held = Held { bytes: 0, descriptors: 1 };

/// A ring that was made: the processor's end, what the program gets, and what it takes of its user's quotas until both the
/// processor and its ringer are done with it.
pub(super) struct Made<E> {
    pub end: E,
    pub handles: RingHandles,
    pub held: Held,
}

/// An answer with its descriptors; `None` where it comes later.
pub(super) type Outcome = Result<Option<(Answer, Vec<OwnedFd>)>, ApiError>;

impl From<HostGone> for ApiError {
    fn from(_: HostGone) -> Self {
        Self::ShuttingDown
    }
}

fn done() -> Outcome {
    Ok(Some((Answer::Done, Vec::new())))
}

/// What the other end is told of an error here: short, since it travels in one signalling packet.
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
        Err(ApiError::Malformed(format!("a text of {} B: at most {TEXT_BYTES_MAX} B", text.len())))
    }
}

impl<H: Host> Service<H> {
    /// Does what a client asks; the answer is among the effects, now or later.
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

    /// Asks the node for something that it may refuse.
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
        if version != VERSION {
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

    fn open(
        &mut self,
        client: ClientId,
        account: UserId,
        call: u64,
        to: Address,
        contract: Contract,
        token: Option<u64>,
    ) -> Outcome {
        if let Some(token) = token {
            match self.requested.get(&token) {
                Some(owner) if *owner == client => self.requested.remove(&token),
                _ => return Err(RequestError::Unknown.into()),
            };
        }
        let user = self.user_of(client);
        let request = OpenRequest { to, contract, user, probe: false, token };
        self.start_open(client, account, request, Stage::Opening { call, contract })
    }

    fn probe(
        &mut self,
        client: ClientId,
        account: UserId,
        call: u64,
        to: Address,
        contract: Contract,
    ) -> Outcome {
        let user = self.user_of(client);
        let request = OpenRequest { to, contract, user, probe: true, token: None };
        self.start_open(client, account, request, Stage::Probing { call, contract })
    }

    /// Of the processor's heap, for the messages of a burst.
    fn room_of(contract: &Contract) -> u64 {
        u64::from(contract.burst_messages_max) * Node::<H::Memory>::SOURCE_MESSAGE_BYTES
    }

    /// Whether the quotas of a probe's user have what its channel would take here; nothing is taken.
    pub(super) fn check_probe(&mut self, channel: ChannelId, grant: &Grant) -> Result<(), ApiError> {
        let Some((account, contract)) = self.ends.get(&channel).and_then(|end| match end.stage {
            Stage::Probing { contract, .. } => Some((end.account, contract)),
            _ => None,
        }) else {
            return Ok(());
        };
        let needs = Needs::outbox(RingShape::new(grant.outbox_messages, contract.message_bytes_max)?);
        let ring = needs.all();
        let held = Held {
            bytes: ring.bytes.saturating_add(Self::room_of(&contract)),
            descriptors: ring.descriptors + needs.handed_over,
        };
        self.take_held(account, held)?;
        self.give_back_held(account, held);
        Ok(())
    }

    fn start_open(
        &mut self,
        client: ClientId,
        account: UserId,
        request: OpenRequest,
        stage: Stage,
    ) -> Outcome {
        let counts = !request.probe && holds(Defence::BurstRoom);
        let room_bytes = if counts { Self::room_of(&request.contract) } else { 0 };
        self.accounts.take(account, Resource::Channels, 1)?;
        self.accounts
            .take(account, Resource::BufferBytes, room_bytes)
            .inspect_err(|_| self.accounts.give_back(account, Resource::Channels, 1))?;
        let what = format!("to {}", request.to);
        self.expect_room(self.room_bytes + room_bytes);
        let opening = self.ask_node(move |node, now| node.open(request, now));
        let channel = opening.inspect_err(|_| {
            self.accounts.give_back(account, Resource::Channels, 1);
            self.accounts.give_back(account, Resource::BufferBytes, room_bytes);
            self.expect_room(self.room_bytes - room_bytes);
        })?;
        self.spent.set(self.spent.get() * OPEN_CHARGE);
        self.ends.insert(channel, End { room_bytes, ..End::new(client, account, stage, what) });
        Ok(None)
    }

    fn ask(&mut self, client: ClientId, source: Address, reply_to: Name, contract: Contract) -> Outcome {
        if !self.listeners.values().any(|(owner, name)| *owner == client && *name == reply_to) {
            return Err(RequestError::Unknown.into());
        }
        let user = self.user_of(client);
        let token = self.ask_node(move |node, now| node.request(&source, reply_to, contract, user, now))?;
        self.asked.insert(token, client);
        Ok(Some((Answer::Asked { token }, Vec::new())))
    }

    fn refuse_ask(&mut self, client: ClientId, token: u64, why: String) -> Outcome {
        let why = checked(why)?;
        if self.requested.get(&token) != Some(&client) {
            return Err(RequestError::Unknown.into());
        }
        self.requested.remove(&token);
        self.ask_node(move |node, now| node.refuse_request(token, &why, now))?;
        done()
    }

    fn consent(
        &mut self,
        client: ClientId,
        account: UserId,
        channel: ChannelId,
        stall: Option<Nanos>,
    ) -> Outcome {
        let (contract, messages) = self.incoming(client, channel)?;
        let room = self.on_node(move |node, _| node.room_bytes(channel))?;
        let made = self
            .take_channel(channel)
            .and_then(|()| self.count_room(channel, room))
            .and_then(|()| self.make_inbox_of(account, &contract, messages, stall));
        let Made { end: writer, handles, held } = made.inspect_err(|error| {
            let why = reason(error);
            let _ = self.ask_node(move |node, now| node.refuse(channel, &why, now));
            self.release_end(channel);
        })?;
        let health = writer.health();
        if let Some(end) = self.ends.get_mut(&channel) {
            end.held = held;
            end.health = Some(Health::Inbox(health));
        }
        let consented = self.ask_node(move |node, now| node.consent(channel, writer, now));
        consented.inspect_err(|_| drop(self.release_end(channel)))?;
        Ok(Some((Answer::Ring { channel, ring: handles.shape }, handles.descriptors)))
    }

    /// A channel that waits for consent waits no more: from now on it counts in its user's quota, if it did not before.
    fn take_channel(&mut self, channel: ChannelId) -> Result<(), ApiError> {
        let Some(end) = self.ends.get_mut(&channel) else { return Ok(()) };
        if let Stage::Incoming { asker: Some(asker), .. } = &end.stage {
            self.accounts.take(end.account, Resource::Channels, 1)?;
            self.waiting.remove(end.account, asker, channel);
        }
        end.stage = Stage::Open;
        Ok(())
    }

    fn refuse(&mut self, client: ClientId, channel: ChannelId, why: String) -> Outcome {
        let why = checked(why)?;
        self.incoming(client, channel)?;
        self.release_end(channel);
        self.ask_node(move |node, now| node.refuse(channel, &why, now))?;
        done()
    }

    /// The channel, if it waits for this client's consent.
    fn incoming(&self, client: ClientId, channel: ChannelId) -> Result<(Contract, u32), ApiError> {
        match self.ends.get(&channel) {
            Some(End { client: Some(owner), stage: Stage::Incoming { contract, messages, .. }, .. })
                if !is_anothers(*owner, client) =>
            {
                Ok((*contract, *messages))
            }
            _ => Err(RequestError::Unknown.into()),
        }
    }

    fn close(&mut self, client: ClientId, channel: ChannelId) -> Outcome {
        if self.ends.get(&channel).is_none_or(|end| end.client.is_none_or(|owner| is_anothers(owner, client)))
        {
            // It may have been closed from the other side a moment ago: closing is done either way.
            return done();
        }
        self.close_end(channel);
        done()
    }

    /// Whether the client takes the messages of this guaranteed channel.
    pub(super) fn is_receiver(&self, client: ClientId, channel: ChannelId) -> bool {
        self.ends.get(&channel).is_some_and(|end| {
            let receives = matches!((&end.stage, &end.health), (Stage::Open, Some(Health::Inbox(_))));
            end.client == Some(client) && receives
        })
    }

    /// The client has sealed what it writes: only now it is mapped here, and looked at by the processor.
    fn attached(&mut self, client: ClientId, channel: ChannelId) -> Outcome {
        let end = self.ends.get(&channel).filter(|end| end.client == Some(client));
        let health = end.and_then(|end| end.health.as_ref()).ok_or(RequestError::Unknown)?;
        health.accept().map_err(RingError::from)?;
        // What it has sent or taken before.
        self.on_node(move |node, now| node.handle_outbox(channel, now))?;
        done()
    }

    /// The processor watches a doorbell of the channel in place of the one before.
    pub(super) fn watch(&mut self, channel: ChannelId, doorbell: Arc<OwnedFd>) -> Result<(), ApiError> {
        let Some(end) = self.ends.get_mut(&channel) else { return Ok(()) };
        let payer = (!is_privileged(end.account)).then_some(end.account);
        let took = self.host.watch(channel, Arc::clone(&doorbell), payer).map_err(ApiError::Ring)?;
        self.spent.set(self.spent.get() + took + CALL_COST);
        let (account, before) = (end.account, end.doorbell.replace(doorbell));
        self.bury(account, None, before, DOORBELL);
        Ok(())
    }

    fn alternate(&mut self, client: ClientId, channel: ChannelId) -> Outcome {
        if !self.is_receiver(client, channel) {
            return Err(RequestError::Unknown.into());
        }
        let account = self.account_of(client).ok_or(RequestError::Unknown)?;
        let room = self.room_for_turns(channel);
        // The answer carries one.
        self.take_held(account, Held { descriptors: room.descriptors + 1, ..room })?;
        self.give_back_held(account, Held { bytes: 0, descriptors: 1 });
        let watched = Doorbell::pair()
            .map_err(|error| RingError::from(error).into())
            .and_then(|(ours, theirs)| self.watch(channel, Arc::new(ours)).map(|()| theirs));
        let theirs = watched.inspect_err(|_: &ApiError| self.give_back_held(account, room))?;
        let turns = self.make_turns(channel, room);
        self.ask_node(move |node, _| {
            node.inbox_mut(channel).map(|inbox| inbox.alternate(turns)).ok_or(RequestError::Unknown)
        })?;
        Ok(Some((Answer::Alternates, vec![theirs])))
    }

    /// What alternating takes: a doorbell each time, which replaces the one before, and room for turns the first time.
    fn room_for_turns(&self, channel: ChannelId) -> Held {
        match self.ends.get(&channel) {
            Some(End { doorbell: None, health: Some(Health::Inbox(health)), .. }) => {
                Held { bytes: health.shape().turns_bytes(), ..DOORBELL }
            }
            _ => DOORBELL,
        }
    }

    /// The room that was taken becomes the channel's; none where it has some.
    fn make_turns(&mut self, channel: ChannelId, room: Held) -> Turns {
        let Some(end) = self.ends.get_mut(&channel).filter(|_| room.bytes > 0) else {
            return Turns::default();
        };
        end.held.bytes += room.bytes;
        end.held.descriptors += room.descriptors;
        self.ringers.grew(end.account, room.bytes);
        match &end.health {
            Some(Health::Inbox(health)) => health.turns(),
            _ => Turns::default(),
        }
    }

    fn open_best_effort(
        &mut self,
        client: ClientId,
        account: UserId,
        to: Address,
        ring: RingShape,
    ) -> Outcome {
        self.accounts.take(account, Resource::Channels, 1)?;
        let opened = self.make_best_effort(account, to, ring);
        let (channel, Made { end: health, handles, held }, doorbell) =
            opened.inspect_err(|_| self.accounts.give_back(account, Resource::Channels, 1))?;
        self.insert_best_effort(client, account, channel, held, health);
        self.watch(channel, doorbell).inspect_err(|_| self.close_end(channel))?;
        Ok(Some((Answer::Ring { channel, ring: handles.shape }, handles.descriptors)))
    }

    fn make_best_effort(
        &mut self,
        account: UserId,
        to: Address,
        ring: RingShape,
    ) -> Result<(ChannelId, Made<Health>, Arc<OwnedFd>), ApiError> {
        let (Made { end: reader, handles, held }, doorbell) =
            self.make_outbox(account, ring.slots, ring.message_bytes_max)?;
        let health = Health::Outbox(reader.health());
        let opened =
            self.ask_node(move |node, now| node.open_best_effort(to, ring.message_bytes_max, reader, now));
        let channel = opened.inspect_err(|_| self.forget_ring(account, held))?;
        Ok((channel, Made { end: health, handles, held }, Arc::new(doorbell)))
    }

    fn bind_best_effort(
        &mut self,
        client: ClientId,
        account: UserId,
        port: Name,
        ring: RingShape,
    ) -> Outcome {
        self.accounts.take(account, Resource::Channels, 1)?;
        let made = self.make_inbox(account, ring.slots, ring.message_bytes_max);
        let Made { end: writer, handles, held } =
            made.inspect_err(|_| self.accounts.give_back(account, Resource::Channels, 1))?;
        let health = writer.health();
        let bytes = ring.message_bytes_max;
        // Whoever sends to the port makes the processor keep something of it.
        let room_bytes = Node::<H::Memory>::port_room_bytes(bytes);
        let bound = self.accounts.take(account, Resource::BufferBytes, room_bytes);
        let bound = bound.and_then(|()| {
            self.expect_room(self.room_bytes + room_bytes);
            self.ask_node(move |node, _| node.bind_best_effort(port, bytes, writer)).inspect_err(|_| {
                self.expect_room(self.room_bytes - room_bytes);
                self.accounts.give_back(account, Resource::BufferBytes, room_bytes);
            })
        });
        let channel = bound.inspect_err(|_| {
            self.accounts.give_back(account, Resource::Channels, 1);
            self.forget_ring(account, held);
        })?;
        self.insert_best_effort(client, account, channel, held, Health::Inbox(health));
        if let Some(end) = self.ends.get_mut(&channel) {
            end.room_bytes = room_bytes;
        }
        Ok(Some((Answer::Ring { channel, ring: handles.shape }, handles.descriptors)))
    }

    fn insert_best_effort(
        &mut self,
        client: ClientId,
        account: UserId,
        channel: ChannelId,
        held: Held,
        health: Health,
    ) {
        let end =
            End { held, health: Some(health), ..End::new(client, account, Stage::BestEffort, String::new()) };
        self.ends.insert(channel, end);
    }

    /// An outgoing ring within the user's quota, and the processor's end of its doorbell.
    pub(super) fn make_outbox(
        &mut self,
        account: UserId,
        slots: u32,
        bytes: u32,
    ) -> Result<(Made<OutboxReader>, OwnedFd), ApiError> {
        let shape = RingShape::new(slots, bytes)?;
        let made = self.make_ring(account, &Needs::outbox(shape), |alarm, ring_path| {
            let (reader, handles, doorbell) = outbox(shape, alarm, ring_path)?;
            Ok(((reader, doorbell), handles))
        });
        let Made { end: (end, doorbell), handles, held } = made?;
        Ok((Made { end, handles, held }, doorbell))
    }

    /// The ring of a receiver that may stall. What it has not asked for is no reason to refuse the channel.
    fn make_inbox_of(
        &mut self,
        account: UserId,
        contract: &Contract,
        messages: u32,
        stall: Option<Nanos>,
    ) -> Result<Made<InboxWriter>, ApiError> {
        let bytes = contract.message_bytes_max;
        let slots = acceptance::slots(contract, messages, stall.unwrap_or(STALL_DEFAULT));
        let made = self.make_inbox(account, slots, bytes);
        let least = acceptance::slots(contract, messages, Nanos::ZERO);
        if made.is_err() && stall.is_none() && least < slots {
            return self.make_inbox(account, least, bytes);
        }
        made
    }

    fn make_inbox(&mut self, account: UserId, slots: u32, bytes: u32) -> Result<Made<InboxWriter>, ApiError> {
        let shape = RingShape::new(slots, bytes)?;
        self.make_ring(account, &Needs::inbox(shape), |alarm, ring_path| inbox(shape, alarm, ring_path))
    }

    /// There is room in the quotas for the ring, and for the answer with it.
    fn make_ring<E>(
        &mut self,
        account: UserId,
        needs: &Needs,
        make: impl FnOnce(&Alarm, &RingPath) -> Result<(E, RingHandles), RingError>,
    ) -> Result<Made<E>, ApiError> {
        let (all, held) = (needs.all(), self.files.own(needs));
        let answer = Held { bytes: 0, descriptors: needs.handed_over };
        self.take_held(account, Held { descriptors: all.descriptors + answer.descriptors, ..all })?;
        self.give_back_held(account, answer);
        let ring_path = self.ring_path(account, held.bytes).map_err(RingError::from);
        let made =
            ring_path.and_then(|ring_path| make(&self.alarm, &ring_path)).and_then(|(end, handles)| {
                self.files.watch(account, &handles, needs)?;
                Ok(Made { end, handles, held })
            });
        made.map_err(|error| {
            self.ringers.freed(account, held.bytes);
            self.give_back_held(account, all);
            error.into()
        })
    }

    fn status(&mut self, account: UserId) -> Outcome {
        let node = self.on_node(|node, now| node.status(now))?;
        let books = if is_privileged(account) { self.books(node.channels)? } else { None };
        let mut status = HostStatus {
            node,
            api: self.counters,
            quotas: self.accounts.quotas(),
            users: Vec::new(),
            more_users: false,
            uptime: now().since(self.started),
            engine: self.host.statistics(),
            books,
        };
        let taken_bytes = serde_json::to_vec(&status).map_or(PACKET_BYTES_MAX, |json| json.len());
        (status.users, status.more_users) = self.users_after(None, taken_bytes);
        Ok(Some((Answer::Status(Box::new(status)), Vec::new())))
    }

    fn users(&self, after: Option<UserId>) -> Outcome {
        let (users, more) = self.users_after(after, 0);
        Ok(Some((Answer::Users { users, more }, Vec::new())))
    }

    /// Users behind `after`, as many as fit into a packet beside `taken_bytes`, and whether there are more.
    fn users_after(&self, after: Option<UserId>, taken_bytes: usize) -> (Vec<UserStatus>, bool) {
        let mut users = self.accounts.statuses();
        users.retain(|held| after.is_none_or(|after| held.user.0 > after.0));
        let mut left_bytes = PACKET_BYTES_MAX.saturating_sub(ENVELOPE_BYTES + taken_bytes);
        let mut fits = |held: &UserStatus| {
            let bytes = serde_json::to_vec(held).map_or(usize::MAX, |json| json.len() + 1);
            let left = left_bytes.checked_sub(bytes);
            left_bytes = left.unwrap_or(0);
            left.is_some()
        };
        let fitting = users.iter().take_while(|held| fits(held)).count();
        let more = fitting < users.len();
        users.truncate(fitting);
        (users, more)
    }

    fn channels(&mut self, after: Option<ChannelId>) -> Outcome {
        let (mut channels, mut bytes): (Vec<ChannelStatus>, usize) = (Vec::new(), 0);
        let (mut seen, mut more) = (after, true);
        for _ in 0..SLICES_PER_PAGE {
            let page = self.on_node(move |node, _| node.channels_after(seen, CHANNELS_PER_SLICE))?;
            for status in page.channels {
                bytes += serde_json::to_vec(&status).map_or(0, |json| json.len() + 1);
                // The first one is sent whatever its size, so that paging ends.
                if bytes > PACKET_BYTES_MAX * 3 / 4 && !channels.is_empty() {
                    return Ok(Some((Answer::Channels { channels, seen, more: true }, Vec::new())));
                }
                seen = Some(status.channel);
                channels.push(status);
            }
            (seen, more) = (page.seen, page.more);
            if !more {
                break;
            }
        }
        Ok(Some((Answer::Channels { channels, seen, more }, Vec::new())))
    }

    fn channel(&mut self, channel: ChannelId) -> Outcome {
        let found = self.on_node(move |node, _| node.channel(channel))?;
        let status = found.ok_or(RequestError::Unknown)?;
        Ok(Some((Answer::Channel(Box::new(status)), Vec::new())))
    }
}
