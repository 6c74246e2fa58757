//! TCP connections over two channels that a program has opened (ADR 0055). From then on the channels are the connection's: the
//! program cannot use or close them, and they go with the connection.

use std::net::SocketAddr;

use punctual_analysis::Guarantee;
use punctual_engine::tcp::Flow;
use punctual_ipc::api::{ApiError, PATH_PACKET_BYTES, TcpPath};
use punctual_proto::api::{ChannelStatus, RequestError, Role, RtuClass, UserId};
use punctual_proto::ids::{ChannelId, Name};

use super::Outcome;
use crate::service::end::Joined;
use crate::service::quota::is_privileged;
use crate::service::{ClientId, End, Host, Service, Stage};
use crate::tcp::daemon::rings;
use crate::tcp::paths::{Join, path_address, path_bytes};

/// What a program asks for.
pub(super) struct Wanted {
    /// The channel to the peer, and the one from it.
    pub channels: [ChannelId; 2],
    pub peer: Name,
    /// This end's port and the peer's.
    pub ports: [u16; 2],
    pub class: RtuClass,
    pub accepts: bool,
}

impl<H: Host> Service<H> {
    pub(super) fn join_tcp(
        &mut self,
        client: ClientId,
        account: UserId,
        call: u64,
        wanted: Wanted,
    ) -> Outcome {
        let Wanted { channels: [outgoing, incoming], peer, ports, class, accepts } = wanted;
        let hosts = [self.node, self.host.resolve(&peer)?];
        let flow = Flow { local: path_address(hosts[0], ports[0]), remote: path_address(hosts[1], ports[1]) };
        self.check_rights(account, flow, accepts)?;
        for channel in [outgoing, incoming] {
            let end = self.ends.get(&channel).filter(|end| end.client == Some(client));
            if !end.is_some_and(|end| matches!(end.stage, Stage::Open)) {
                return Err(RequestError::Unknown.into());
            }
        }
        let statuses =
            self.on_node(move |node, _| [outgoing, incoming].map(|channel| node.channel(channel)))?;
        let [Some(out), Some(back)] = statuses else { return Err(RequestError::Unknown.into()) };
        check_ends(&out, &back, &peer)?;
        self.host.serve_joined_tcp(&self.tcp_alarm).map_err(|error| ApiError::Tcp(error.to_string()))?;
        let asked = (!accepts).then_some(flow.remote);
        let (channel, (outbox, inbox)) =
            self.make_tcp(client, account, call, (asked, class, path_bytes(class)))?;
        self.take_channels(channel, Joined { outgoing, incoming });
        let join = Join { flow, outgoing, incoming, class, interval: out.contract.interval() };
        self.tcp()?.join((channel, account), join, rings(outbox, inbox));
        Ok(None)
    }

    fn check_rights(&self, account: UserId, flow: Flow, accepts: bool) -> Result<(), ApiError> {
        let rights = self.host.tcp_rights();
        let (what, at, may): (_, SocketAddr, _) = if accepts {
            ("listen at", flow.local, rights.may_listen(account, flow.local))
        } else {
            ("connect to", flow.remote, rights.may_connect(account, flow.remote))
        };
        if may || is_privileged(account) {
            return Ok(());
        }
        let user = account.0;
        Err(ApiError::Forbidden(format!(
            "user {user} may not {what} {at}: allow it in [[daemon.tcp]] of the configuration"
        )))
    }

    /// Gives both channels to the connection.
    fn take_channels(&mut self, connection: ChannelId, path: Joined) {
        for channel in [path.outgoing, path.incoming] {
            self.end_co_schedule(channel);
            if let Some(end) = self.ends.get_mut(&channel) {
                end.stage = Stage::Joined { connection };
            }
        }
        self.host.unwatch(path.outgoing);
        if let Some(End { stage: Stage::Tcp(tcp), .. }) = self.ends.get_mut(&connection) {
            tcp.path = Some(path);
        }
    }

    pub(in crate::service) fn is_joined(&self, channel: ChannelId) -> bool {
        matches!(self.ends.get(&channel), Some(End { stage: Stage::Joined { .. }, .. }))
    }

    /// What is promised on the path of a connection now.
    pub(super) fn path_of(&self, path: Joined, class: RtuClass) -> TcpPath {
        let Joined { outgoing, incoming } = path;
        let statuses = self.on_node(move |node, _| [outgoing, incoming].map(|channel| node.channel(channel)));
        let promised = |status: Option<ChannelStatus>| {
            let status = status.filter(|status| status.guarantee == Guarantee::Hard)?;
            (class != RtuClass::BestEffort).then_some(status.contract.deadline)
        };
        let [sending, receiving] = statuses.unwrap_or_default().map(promised);
        TcpPath { outgoing, incoming, sending, receiving }
    }

    /// Closes the channels of a connection that has ended. The outgoing one is first: it still sends what is queued.
    pub(super) fn release_tcp(&mut self, connection: ChannelId) {
        let path = self.ends.get(&connection).and_then(|end| match &end.stage {
            Stage::Tcp(tcp) => tcp.path,
            _ => None,
        });
        self.release_end(connection);
        if let Some(Joined { outgoing, incoming }) = path {
            let first = if self.ends.contains_key(&outgoing) { outgoing } else { incoming };
            self.close_end(first);
        }
    }

    /// A connection has begun. A channel of it may have ended meanwhile.
    pub(super) fn cut_if_lost(&self, connection: ChannelId) {
        let Some(End { stage: Stage::Tcp(tcp), .. }) = self.ends.get(&connection) else { return };
        let Some(Joined { outgoing, incoming }) = tcp.path else { return };
        let is_whole = [outgoing, incoming].iter().all(|channel| self.ends.contains_key(channel));
        if let (false, Some(tcp)) = (is_whole, self.host.tcp()) {
            tcp.cut(connection, incoming);
        }
    }

    /// The node has closed a channel of a connection: the connection ends, or its other channel is closed as well.
    pub(in crate::service) fn joined_closed(&mut self, channel: ChannelId) {
        let Some(End { stage: Stage::Joined { connection }, .. }) = self.ends.get(&channel) else { return };
        let connection = *connection;
        let path = self.ends.get(&connection).and_then(|end| match &end.stage {
            Stage::Tcp(tcp) => tcp.path,
            _ => None,
        });
        if let (Some(Joined { incoming, .. }), Some(tcp)) = (path, self.host.tcp()) {
            return tcp.cut(connection, incoming);
        }
        let is_its = |(other, end): (&ChannelId, &End)| {
            let of = matches!(end.stage, Stage::Joined { connection: of } if of == connection);
            (of && *other != channel).then_some(*other)
        };
        if let Some(other) = self.ends.iter().find_map(is_its) {
            self.close_end(other);
        }
    }
}

/// Whether two channels lead to a host and come from it, with messages of the size of packets.
fn check_ends(out: &ChannelStatus, back: &ChannelStatus, peer: &Name) -> Result<(), ApiError> {
    let leads = out.role == Role::Source && out.to.host == *peer;
    let comes = back.role == Role::Sink && back.from == peer.as_str();
    if !leads || !comes {
        return Err(ApiError::Tcp(format!("the channels of the connection do not lead to {peer} and back")));
    }
    let bytes = [out, back].map(|status| status.contract.message_bytes_max);
    if bytes == [PATH_PACKET_BYTES; 2] {
        return Ok(());
    }
    let [out, back] = bytes;
    Err(ApiError::Tcp(format!(
        "channels of a connection have messages of {PATH_PACKET_BYTES} B each way, these have {out} B and {back} B"
    )))
}
