//! TCP connections and listeners of programs in other processes (RTU 3; ADR 0054).
//!
//! Each is an end like a channel's: it counts among its user's channels, with its rings and what the processor keeps for it, and
//! goes with its client. An end stays until nothing of the connection is left, so a closed connection counts through TIME-WAIT.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use punctual_engine::tcp::{Flow, ListeningStatus, SynCounts, TcpRefusal, TcpStatus};
use punctual_ipc::api::{Answer, ApiError, Push, Resource, TcpConnectionStatus, TcpEnd, TcpListenerStatus};
use punctual_ipc::ring::{InboxWriter, OutboxReader};
use punctual_proto::api::{RequestError, RtuClass, UserId};
use punctual_proto::ids::ChannelId;

use super::pages::keep_fitting;
use super::{NewRing, Outcome, done};
use crate::service::end::TcpEndpoint;
use crate::service::quota::is_privileged;
use crate::service::{CALL_COST, ClientId, End, Health, Host, Service, Stage};
use crate::tcp::address::canonical;
use crate::tcp::daemon::{DaemonTcp, TcpHostEvent, rings};
use crate::tcp::{
    CONNECTION_BYTES, LISTENER_BYTES, RESTING_BYTES, RING, TcpError, api_end, api_settings, api_state,
};

/// Handles of connections that the node is asked for at once.
const HANDLES_AT_ONCE: usize = 32;
/// Connections whose status the processor is asked for at once.
const CONNECTIONS_PER_PAGE: usize = 64;

/// The address that TCP uses for the one that a program gives.
fn used(given: SocketAddr) -> Result<SocketAddr, ApiError> {
    canonical(given).map_err(|error| ApiError::Tcp(error.to_string()))
}

/// The processor's ends of both rings.
type Ends = (OutboxReader, InboxWriter);

impl<H: Host> Service<H> {
    pub(super) fn tcp(&self) -> Result<&DaemonTcp, ApiError> {
        let missing = || ApiError::Tcp(TcpError::Refused(TcpRefusal::NoTcp).to_string());
        self.host.tcp().ok_or_else(missing)
    }

    pub(super) fn connect_tcp(
        &mut self,
        client: ClientId,
        account: UserId,
        call: u64,
        peer: SocketAddr,
        class: RtuClass,
    ) -> Outcome {
        self.tcp()?;
        let peer = used(peer)?;
        if !is_privileged(account) && !self.host.tcp_rights().may_connect(account, peer) {
            return Err(ApiError::Forbidden(format!(
                "user {} may not connect to {peer}: allow it in [[daemon.tcp]] of the configuration",
                account.0
            )));
        }
        let (channel, (outbox, inbox)) = self.make_tcp(client, account, call, (Some(peer), class, 0))?;
        self.tcp()?.connect((channel, account), peer, class, rings(outbox, inbox));
        Ok(None)
    }

    pub(super) fn listen_tcp(
        &mut self,
        client: ClientId,
        account: UserId,
        call: u64,
        local: SocketAddr,
        (class, backlog): (RtuClass, u32),
    ) -> Outcome {
        self.tcp()?;
        let local = used(local)?;
        if !is_privileged(account) && !self.host.tcp_rights().may_listen(account, local) {
            return Err(ApiError::Forbidden(format!(
                "user {} may not listen at {local}: allow it in [[daemon.tcp]] of the configuration",
                account.0
            )));
        }
        let bytes = LISTENER_BYTES.saturating_mul(u64::from(backlog) + 1);
        self.take_end(account, bytes)?;
        let channel = self.next_handle()?;
        let stage = Stage::TcpListener { local, class, backlog, call: Some(call) };
        let end = End { more_bytes: bytes, ..End::new(client, account, stage, format!("TCP at {local}")) };
        self.ends.insert(channel, end);
        self.tcp()?.listen((channel, account), local, class, backlog);
        Ok(None)
    }

    pub(super) fn accept_tcp(
        &mut self,
        client: ClientId,
        account: UserId,
        call: u64,
        listener: ChannelId,
    ) -> Outcome {
        let end = self.ends.get(&listener).filter(|end| end.client == Some(client));
        let Some(&Stage::TcpListener { class, call: None, .. }) = end.map(|end| &end.stage) else {
            return Err(RequestError::Unknown.into());
        };
        let (channel, (outbox, inbox)) = self.make_tcp(client, account, call, (None, class, 0))?;
        let accepting = self.tcp()?.accept(listener, channel, rings(outbox, inbox));
        accepting.map_err(|error| {
            self.release_end(channel);
            error.map_or_else(|| RequestError::Unknown.into(), |error| ApiError::Tcp(error.to_string()))
        })?;
        self.handle_tcp();
        Ok(None)
    }

    /// The program waits for this connection no longer.
    pub(super) fn cancel_tcp(&mut self, client: ClientId, call: u64) -> Outcome {
        let is_it = |end: &End| match &end.stage {
            Stage::Tcp(tcp) => {
                end.client == Some(client)
                    && tcp.call == Some(call)
                    && tcp.peer.is_some()
                    && tcp.path.is_none()
            }
            _ => false,
        };
        let channel = self.ends.iter().find(|(_, end)| is_it(end)).map(|(channel, _)| *channel);
        // It may have opened, or failed, a moment ago: the answer is on its way.
        let Some(channel) = channel else { return done() };
        self.fail_tcp(channel, ApiError::Tcp("the program has given the connection up".into()));
        self.close_end(channel);
        done()
    }

    fn take_end(&mut self, account: UserId, bytes: u64) -> Result<(), ApiError> {
        self.take(account, Resource::Channels, 1)?;
        let taken = self.take(account, Resource::BufferBytes, bytes);
        taken.inspect_err(|_| self.accounts.give_back(account, Resource::Channels, 1))
    }

    /// Makes the rings and the end of a connection.
    pub(super) fn make_tcp(
        &mut self,
        client: ClientId,
        account: UserId,
        call: u64,
        (peer, class, more_bytes): (Option<SocketAddr>, RtuClass, u64),
    ) -> Result<(ChannelId, Ends), ApiError> {
        let bytes = CONNECTION_BYTES + more_bytes;
        self.take_end(account, bytes)?;
        let made = self.make_tcp_rings(account);
        let (inbox, outbox, doorbell) = made.inspect_err(|_| {
            self.accounts.give_back(account, Resource::BufferBytes, bytes);
            self.accounts.give_back(account, Resource::Channels, 1);
        })?;
        let health = Health::Both(outbox.end.health(), inbox.end.health());
        let held = inbox.held.and(outbox.held);
        let endpoint = TcpEndpoint {
            class,
            peer,
            call: Some(call),
            inbox: Some(inbox.handles),
            outbox: Some(outbox.handles),
            doorbell: Some(doorbell),
            flow: None,
            is_open: false,
            path: None,
        };
        let what = peer.map_or_else(|| "TCP".to_owned(), |peer| format!("TCP to {peer}"));
        let end = End::new(client, account, Stage::Tcp(Box::new(endpoint)), what);
        let channel = self.next_handle()?;
        let end = End { held, health: Some(health), more_bytes: bytes, ..end };
        self.ends.insert(channel, end);
        Ok((channel, (outbox.end, inbox.end)))
    }

    /// A handle of the node's. Each question makes the thread wait for the processor, so it asks for several.
    fn next_handle(&mut self) -> Result<ChannelId, ApiError> {
        if let Some(handle) = self.handles.pop() {
            return Ok(handle);
        }
        let handles: [ChannelId; HANDLES_AT_ONCE] =
            self.on_node(|node, _| std::array::from_fn(|_| node.reserve_handle()))?;
        let (first, others) = handles.split_first().ok_or(RequestError::Unknown)?;
        self.handles.extend(others.iter().rev());
        Ok(*first)
    }

    fn make_tcp_rings(
        &mut self,
        account: UserId,
    ) -> Result<(NewRing<InboxWriter>, NewRing<OutboxReader>, OwnedFd), ApiError> {
        let (slots, bytes) = RING;
        let inbox = self.make_inbox(account, slots, bytes)?;
        let (outbox, doorbell) =
            self.make_outbox(account, slots, bytes).inspect_err(|_| self.forget_ring(account, inbox.held))?;
        Ok((inbox, outbox, doorbell))
    }

    pub(super) fn tcp_outbox(&mut self, client: ClientId, channel: ChannelId) -> Outcome {
        let end = self.ends.get_mut(&channel).filter(|end| end.client == Some(client));
        let Some(End { stage: Stage::Tcp(tcp), .. }) = end else { return Err(RequestError::Unknown.into()) };
        let handles = tcp.outbox.take().ok_or(RequestError::Unknown)?;
        Ok(Some((Answer::Ring { channel, ring: handles.shape }, handles.descriptors)))
    }

    pub(super) fn change_tcp(
        &mut self,
        client: ClientId,
        channel: ChannelId,
        change: impl FnOnce(&DaemonTcp, ChannelId),
    ) -> Outcome {
        if self.ends.get(&channel).is_some_and(|end| end.client == Some(client)) {
            change(self.tcp()?, channel);
            self.spent.set(self.spent.get() + CALL_COST);
        }
        // It may have ended a moment ago.
        done()
    }

    pub(super) fn tcp_status(&mut self, client: ClientId, channel: ChannelId) -> Outcome {
        let is_ours = self.ends.get(&channel).is_some_and(|end| end.client == Some(client));
        let status = is_ours.then(|| self.status_of(channel)).flatten();
        Ok(Some((Answer::TcpStatus(status), Vec::new())))
    }

    fn status_of(&self, channel: ChannelId) -> Option<TcpConnectionStatus> {
        let end = self.ends.get(&channel)?;
        let Stage::Tcp(tcp) = &end.stage else { return None };
        let TcpStatus { connection: status, bounds } = self.host.tcp()?.status(channel)?;
        self.spent.set(self.spent.get() + CALL_COST);
        Some(TcpConnectionStatus {
            channel,
            user: end.account,
            local: status.flow.local,
            peer: status.flow.remote,
            class: tcp.class,
            path: tcp.path.map(|path| self.path_of(path, tcp.class)),
            state: api_state(status.state),
            ended: status.ended.map(api_end),
            segments_in: status.segments_in,
            segments_out: status.segments_out,
            bound_in: bounds.input,
            bound_out: bounds.output,
            dropped: status.dropped,
            delay_mean: status.delays.mean(),
            delay_max: status.delays.max(),
            readable_bytes: status.readable_bytes as u64,
            unacknowledged_bytes: status.unacknowledged_bytes as u64,
            resent: status.resent,
            send_window_bytes: u64::from(status.windows_bytes[0]),
            receive_window_bytes: u64::from(status.windows_bytes[1]),
            settings: api_settings(&status.config),
        })
    }

    pub(super) fn tcp_connections(&mut self, after: Option<ChannelId>) -> Outcome {
        let (page, beyond_page) = self.tcp_page(after, |stage| matches!(stage, Stage::Tcp(_)));
        let mut connections = page.into_iter().filter_map(|channel| self.status_of(channel)).collect();
        let more = keep_fitting(&mut connections, 0) || beyond_page;
        Ok(Some((Answer::TcpConnections { connections, more }, Vec::new())))
    }

    pub(super) fn tcp_listeners(&mut self, after: Option<ChannelId>) -> Outcome {
        let is_listening = |stage: &Stage| matches!(stage, Stage::TcpListener { call: None, .. });
        let (page, beyond_page) = self.tcp_page(after, is_listening);
        let mut listeners = page.into_iter().filter_map(|channel| self.listener_status(channel)).collect();
        let more = keep_fitting(&mut listeners, 0) || beyond_page;
        Ok(Some((Answer::TcpListeners { listeners, more }, Vec::new())))
    }

    /// Handles of ends of this kind behind `after`, as many as the processor is asked about for one request, and whether there are more.
    fn tcp_page(&self, after: Option<ChannelId>, is_one: impl Fn(&Stage) -> bool) -> (Vec<ChannelId>, bool) {
        let behind = |channel: ChannelId| after.is_none_or(|after| channel > after);
        let ones = self.ends.iter().filter(|(channel, end)| behind(**channel) && is_one(&end.stage));
        let mut handles: Vec<ChannelId> = ones.map(|(channel, _)| *channel).collect();
        handles.sort_unstable();
        let more = handles.len() > CONNECTIONS_PER_PAGE;
        handles.truncate(CONNECTIONS_PER_PAGE);
        (handles, more)
    }

    fn listener_status(&self, channel: ChannelId) -> Option<TcpListenerStatus> {
        let end = self.ends.get(&channel)?;
        let Stage::TcpListener { local, class, backlog, .. } = end.stage else { return None };
        let now = self.host.tcp().and_then(|tcp| tcp.listening_status(channel)).unwrap_or_default();
        self.spent.set(self.spent.get() + CALL_COST);
        let ListeningStatus { half_open, waiting, counts: SynCounts { cookies, unanswered } } = now;
        let user = end.account;
        Some(TcpListenerStatus {
            channel,
            user,
            local,
            class,
            backlog,
            half_open,
            waiting,
            cookies,
            unanswered,
        })
    }

    /// Handles all that has happened to connections and listeners.
    pub fn handle_tcp(&mut self) {
        self.tcp_alarm.clear();
        while let Some((channel, happened)) = self.host.tcp().and_then(DaemonTcp::next) {
            self.discard_time();
            let account = self.ends.get(&channel).map(|end| end.account);
            self.tcp_happened(channel, happened);
            if let Some(account) = account {
                self.charge(account);
            }
        }
    }

    fn tcp_happened(&mut self, channel: ChannelId, happened: TcpHostEvent) {
        match happened {
            TcpHostEvent::Begun(Ok(flow)) => self.tcp_begun(channel, flow),
            TcpHostEvent::Begun(Err(error)) => {
                self.fail_tcp(channel, ApiError::Tcp(error.to_string()));
                self.release_tcp(channel);
            }
            TcpHostEvent::Open => {
                if let Some(End { stage: Stage::Tcp(tcp), .. }) = self.ends.get_mut(&channel) {
                    tcp.is_open = true;
                }
                self.answer_open(channel);
            }
            TcpHostEvent::Refused(refusal) => {
                self.note_refused(channel, &refusal);
                self.fail_tcp(channel, ApiError::Tcp(refusal.to_string()));
            }
            TcpHostEvent::Ended(why) => self.tcp_ended(channel, why),
            TcpHostEvent::TimeWait => self.drop_tcp_rings(channel),
            TcpHostEvent::Rests => self.count_resting(channel),
            TcpHostEvent::Over => {
                self.resting.remove(channel);
                if self.ends.get(&channel).is_some_and(|end| end.doorbell.is_some()) {
                    self.host.unwatch(channel);
                }
                self.release_tcp(channel);
            }
            TcpHostEvent::Listening(result) => self.tcp_listens(channel, result),
        }
    }

    /// A connection that a listener has opened is refused: the log of the host says so.
    fn note_refused(&self, channel: ChannelId, why: &TcpRefusal) {
        let Some(End { stage: Stage::Tcp(tcp), account, .. }) = self.ends.get(&channel) else { return };
        if let Some(flow) = tcp.flow {
            self.host.tcp_refused(*account, flow.remote, why);
        }
    }

    /// The engine needs a connection's rings no more. The connection itself counts until it is over.
    fn drop_tcp_rings(&mut self, channel: ChannelId) {
        self.host.unwatch(channel);
        let Some(end) = self.ends.get_mut(&channel) else { return };
        let (account, health, doorbell) = (end.account, end.health.take(), end.doorbell.take());
        let held = std::mem::take(&mut end.held);
        self.release_later(account, health, doorbell, held);
    }

    /// The engine needs a connection's buffers no more.
    fn count_resting(&mut self, channel: ChannelId) {
        let Some(end) = self.ends.get_mut(&channel) else { return };
        let (account, less) = (end.account, end.more_bytes.saturating_sub(RESTING_BYTES));
        end.more_bytes -= less;
        let is_on_link = matches!(&end.stage, Stage::Tcp(tcp) if tcp.path.is_none());
        self.accounts.give_back(account, Resource::BufferBytes, less);
        if is_on_link {
            self.resting.add(account, channel);
        }
    }

    fn tcp_begun(&mut self, channel: ChannelId, flow: Flow) {
        let Some(end) = self.ends.get_mut(&channel) else { return };
        let Stage::Tcp(tcp) = &mut end.stage else { return };
        tcp.flow = Some(flow);
        if let Some(doorbell) = tcp.doorbell.take().map(Arc::new) {
            let payer = (!is_privileged(end.account)).then_some(end.account);
            end.doorbell = Some(Arc::clone(&doorbell));
            let watched = self.host.tcp().map_or(Ok(CALL_COST), |tcp| tcp.watch(channel, doorbell, payer));
            match watched {
                Ok(took) => self.spent.set(self.spent.get() + took + CALL_COST),
                Err(why) => {
                    self.fail_tcp(channel, ApiError::Ring(why));
                    return self.after_end(channel);
                }
            }
        }
        self.cut_if_lost(channel);
        self.answer_open(channel);
    }

    /// Answers the call that waits for a connection, once it is open.
    fn answer_open(&mut self, channel: ChannelId) {
        let Some(end) = self.ends.get_mut(&channel) else { return };
        let (Stage::Tcp(tcp), client) = (&mut end.stage, end.client) else { return };
        let (Some(flow), true) = (tcp.flow, tcp.is_open) else { return };
        let (Some(call), Some(inbox)) = (tcp.call.take(), tcp.inbox.take()) else { return };
        match client {
            Some(client) => {
                let (local, peer, ring) = (flow.local, flow.remote, inbox.shape);
                let answer = Answer::TcpConnected { channel, local, peer, ring };
                self.answer(client, call, Ok(answer), inbox.descriptors);
            }
            None => self.after_end(channel),
        }
    }

    /// Answers the call that waits, if one does.
    fn fail_tcp(&mut self, channel: ChannelId, error: ApiError) {
        let Some(end) = self.ends.get_mut(&channel) else { return };
        let call = match &mut end.stage {
            Stage::Tcp(tcp) => tcp.call.take(),
            Stage::TcpListener { call, .. } => call.take(),
            _ => None,
        };
        if let (Some(client), Some(call)) = (end.client, call) {
            self.answer(client, call, Err(error), Vec::new());
        }
    }

    fn tcp_ended(&mut self, channel: ChannelId, why: TcpEnd) {
        let Some(end) = self.ends.get(&channel) else { return };
        let (Stage::Tcp(tcp), client) = (&end.stage, end.client) else { return };
        let peer = tcp.flow.map(|flow| flow.remote).or(tcp.peer);
        match (tcp.call, peer) {
            (Some(_), Some(peer)) => self.fail_tcp(channel, ApiError::TcpPeer { peer, why }),
            (Some(_), None) => self.fail_tcp(channel, ApiError::Tcp(why.to_string())),
            (None, _) => {
                if let Some(client) = client {
                    self.push(client, Push::TcpEnded { channel, why });
                }
            }
        }
    }

    fn tcp_listens(&mut self, channel: ChannelId, result: Result<(), TcpError>) {
        if let Err(error) = result {
            self.fail_tcp(channel, ApiError::Tcp(error.to_string()));
            self.release_end(channel);
            return;
        }
        let Some(end) = self.ends.get_mut(&channel) else { return };
        let (Stage::TcpListener { call, .. }, client) = (&mut end.stage, end.client) else { return };
        let call = call.take();
        match client.zip(call) {
            Some((client, call)) => {
                self.answer(client, call, Ok(Answer::TcpListening { channel }), Vec::new())
            }
            None => self.after_end(channel),
        }
    }
}
