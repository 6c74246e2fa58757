//! Connections of an engine in this process.

use std::net::SocketAddr;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use punctual_engine::EngineHandle;
use punctual_engine::tcp::{TcpConfig, TcpId, TcpStatus};
use punctual_host::{
    EmbeddedHost, TcpEnds, TcpListening, TcpNews, TcpWish, api_end, api_settings, api_state, engine_setting,
};
use punctual_ipc::api::TcpSetting;
use punctual_ipc::ring::{InboxWriter, OutboxReader};
use punctual_proto::Nanos;

use super::patience::{Nothing, Patience};
use super::rings::Rings;
use super::{Ended, Promise, Qos, Status, TcpError};
use crate::connection::Connection;

/// How long admission may take to decide about a connection that came.
const OPEN_WAIT: Duration = Duration::from_secs(180);

/// A connection of the engine.
pub(in crate::tcp) struct Connected {
    id: TcpId,
    news: Receiver<TcpNews>,
    ended: Option<Ended>,
}

/// A connection with its rings, this host's address and the peer's.
pub(super) type Opened = (Connected, Rings, [SocketAddr; 2]);

fn parts(ends: TcpEnds) -> Opened {
    let TcpEnds { id, flow, outbox, inbox, news } = ends;
    (Connected { id, news, ended: None }, Rings { outbox, inbox }, [flow.local, flow.remote])
}

/// What a connection asks of the host.
pub(super) fn wish(qos: Qos, config: TcpConfig, handler_time: Nanos) -> TcpWish {
    TcpWish { handler_time, ..TcpWish::of(qos.class()).with(config) }
}

pub(super) fn connect(
    host: &EmbeddedHost,
    peer: SocketAddr,
    wish: &TcpWish,
    patience: &mut Patience<'_>,
) -> Result<Opened, TcpError> {
    opened(host, parts(host.connect_tcp(peer, wish)?), patience)
}

/// The connection once it is open. One that does not open is given back: no program would end it.
fn opened(
    host: &EmbeddedHost,
    (connected, rings, ends): Opened,
    patience: &mut Patience<'_>,
) -> Result<Opened, TcpError> {
    let error = match patience.receive(&connected.news) {
        Ok(TcpNews::Open) => return Ok((connected, rings, ends)),
        Ok(TcpNews::Ended(why)) => TcpError::Peer { peer: ends[1], why: api_end(why) },
        Ok(TcpNews::Refused(refusal)) => TcpError::Host(refusal.into()),
        Err(Nothing::GivenUp) => TcpError::Late(ends[1]),
        Ok(TcpNews::TimeWait | TcpNews::Rests | TcpNews::Over) | Err(Nothing::Gone) => TcpError::Gone,
    };
    // An error means that the engine, and the connection with it, are gone.
    let _ = host.engine().release_tcp(connected.id);
    Err(error)
}

pub(super) fn listen(
    host: &EmbeddedHost,
    local: SocketAddr,
    backlog: u32,
    wish: TcpWish,
) -> Result<TcpListening, TcpError> {
    Ok(host.listen_tcp(local, backlog, wish)?)
}

pub(super) fn accept(
    host: &EmbeddedHost,
    listening: &TcpListening,
    until: Option<Instant>,
) -> Result<Option<Opened>, TcpError> {
    let Some(ends) = listening.accept(until)? else { return Ok(None) };
    // Admission decides about its handlers now.
    opened(host, parts(ends), &mut Patience::of(Some(OPEN_WAIT))).map(Some)
}

type Handle = EngineHandle<OutboxReader, InboxWriter>;

fn engine(connection: &Connection) -> Result<&Handle, TcpError> {
    connection.embedded.as_ref().map(EmbeddedHost::engine).ok_or(TcpError::NotEmbedded)
}

impl Connected {
    pub fn ready(&self, connection: &Connection) -> Result<(), TcpError> {
        engine(connection)?.ready_tcp(self.id).map_err(|_| TcpError::Gone)
    }

    pub fn shutdown(&self, connection: &Connection) -> Result<(), TcpError> {
        engine(connection)?.close_tcp(self.id).map_err(|_| TcpError::Gone)
    }

    pub fn abort(&self, connection: &Connection) -> Result<(), TcpError> {
        engine(connection)?.abort_tcp(self.id).map_err(|_| TcpError::Gone)
    }

    pub const fn id(&self) -> TcpId {
        self.id
    }

    pub fn set(&self, connection: &Connection, setting: TcpSetting) -> Result<(), TcpError> {
        engine(connection)?.set_tcp(self.id, engine_setting(setting)).map_err(|_| TcpError::Gone)
    }

    pub fn release(&self, connection: &Connection) {
        // An error means that the engine, and the connection with it, are gone.
        if let Ok(engine) = engine(connection) {
            let _ = engine.release_tcp(self.id);
        }
    }

    pub fn status(&self, connection: &Connection) -> Result<Option<Status>, TcpError> {
        let status = engine(connection)?.tcp_status(self.id).map_err(|error| TcpError::Host(error.into()))?;
        Ok(status.map(|TcpStatus { connection: status, bounds }| Status {
            local: status.flow.local,
            peer: status.flow.remote,
            promise: Promise::ThisHost,
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
        }))
    }

    pub fn ended(&mut self) -> Option<Ended> {
        for news in self.news.try_iter() {
            if let TcpNews::Ended(why) = news {
                self.ended = Some(api_end(why));
            }
        }
        self.ended
    }
}
