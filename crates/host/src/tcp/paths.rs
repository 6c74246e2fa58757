//! Connections over channels (ADR 0055): the output handler fills a ring that takes the place of the outgoing channel's, and what
//! the incoming channel delivers goes to the input handler.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use punctual_engine::direct;
use punctual_engine::tcp::{Flow, TcpConfig, TcpId, TcpJoin};
use punctual_ipc::api::PATH_PACKET_BYTES;
use punctual_ipc::ring::{InboxWriter, OutboxReader, Upcall};
use punctual_link::Pool;
use punctual_proto::api::{RequestError, RtuClass};
use punctual_proto::ids::{ChannelId, NodeId};
use punctual_proto::{Instant, Nanos};

use super::opener::{Notify, Opener, ProgramRings, announcing};
use super::releaser::Release;
use super::segments::channel_ring;
use super::{TcpError, TcpWish};

/// The prefix of the addresses that hosts have on reserved paths (RFC 4193; "punct").
const PREFIX: [u16; 3] = [0xfd70, 0x756e, 0x6374];
/// Packets that wait in either direction: at least, and at most.
const WAITING: (u32, u32) = (64, 512);
/// Longest time between two looks at a ring that was full.
const PAUSE_MAX: Nanos = Nanos::from_micros(500);
/// A packet is not on its channel longer than this, and no other connection's can come on it: TIME-WAIT serves only to acknowledge
/// a FIN that comes again after the first retransmission timeout.
const SEGMENT_LIFE: Nanos = Nanos::from_millis(1_500);

/// The address of a host on reserved paths.
pub(crate) fn path_address(host: NodeId, port: u16) -> SocketAddr {
    let [a, b, c] = PREFIX;
    let (high, low) = ((host.0 >> 16) as u16, host.0 as u16);
    SocketAddr::new(IpAddr::V6(Ipv6Addr::new(a, b, c, 0, 0, 0, high, low)), port)
}

/// Two channels that become a connection.
#[derive(Clone, Copy, Debug)]
pub struct Join {
    /// Both ends.
    pub flow: Flow,
    /// The channel to the peer.
    pub outgoing: ChannelId,
    /// The channel from the peer.
    pub incoming: ChannelId,
    /// Class of both handlers.
    pub class: RtuClass,
    /// The interval between two packets of the outgoing channel.
    pub interval: Nanos,
}

/// Packets of a class that wait in either direction.
fn waiting(class: RtuClass) -> u32 {
    let units = match class {
        RtuClass::LowDelay { units, .. } | RtuClass::Guaranteed { units, .. } => units,
        RtuClass::BestEffort => 0,
    };
    units.saturating_mul(2).clamp(WAITING.0, WAITING.1)
}

/// What a connection of a class holds besides its own buffers, in bytes.
pub(crate) fn path_bytes(class: RtuClass) -> u64 {
    2 * u64::from(waiting(class)) * u64::from(PATH_PACKET_BYTES)
}

/// Hands what a channel delivers to the processor, in these buffers: what it has none for is lost, and comes again.
fn taking(channel: ChannelId, buffers: Arc<Pool>) -> Upcall {
    Box::new(move |bytes, _| {
        if let (Some(mut frame), true) = (buffers.take(), bytes.len() <= PATH_PACKET_BYTES as usize) {
            frame.buffer_mut()[..bytes.len()].copy_from_slice(bytes);
            frame.set_len(bytes.len());
            direct::deliver(channel, frame);
        }
        true
    })
}

impl Opener {
    /// Makes a connection of two channels; waits for admission of its handlers.
    pub fn join(&self, join: Join, rings: ProgramRings, notify: Notify) -> Result<TcpId, TcpError> {
        let Join { flow, outgoing, incoming, class, interval } = join;
        let slots = waiting(class);
        let buffers = Arc::new(Pool::new(slots, PATH_PACKET_BYTES as usize));
        let (reader, segments, keep) =
            channel_ring(outgoing, (slots, PATH_PACKET_BYTES), Arc::clone(&buffers), &self.alarm)?;
        let life = self.lives.fetch_add(1, Ordering::Relaxed);
        self.living.begins(life, keep, None);
        let wish = TcpWish::of(class);
        let settings = wish.config;
        let terms = super::handler_terms((class, self.segment), 1);
        let mut input = terms;
        input.cost.unit += wish.program_time(self.rings);
        let joined = self.handle.join_tcp(TcpJoin {
            flow,
            incoming,
            pause: interval.min(PAUSE_MAX),
            config: TcpConfig { mtu_bytes: PATH_PACKET_BYTES as u16, msl: SEGMENT_LIFE, ..settings },
            terms: [input, terms],
            rings,
            segments: Box::new(segments),
            notify: announcing((life, &self.releaser), notify),
        });
        if !matches!(joined, Ok(Ok(_))) {
            // Without a releaser the process ends.
            let _ = self.releaser.send(Release::NotBegun(life));
        }
        let id = joined??;
        self.attach((outgoing, reader), (incoming, taking(incoming, buffers))).inspect_err(|_| {
            // A stopped engine has ended it.
            let _ = self.handle.release_tcp(id);
        })?;
        Ok(id)
    }

    fn attach(
        &self,
        (outgoing, ring): (ChannelId, OutboxReader),
        (incoming, upcall): (ChannelId, Upcall),
    ) -> Result<(), TcpError> {
        let attach = move |node: &mut punctual_proto::node::Node<_>, now: Instant| {
            let inbox: &mut InboxWriter = node.inbox_mut(incoming).ok_or(RequestError::Unknown)?;
            inbox.set_upcall(upcall);
            node.replace_outbox(outgoing, ring, now)
        };
        self.handle.call(attach)?.map_err(|_| TcpError::PathLost)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_have_addresses_of_their_own() {
        assert_eq!(path_address(NodeId(1), 80).to_string(), "[fd70:756e:6374::1]:80");
        assert_eq!(path_address(NodeId(0x1234_5678), 1).to_string(), "[fd70:756e:6374::1234:5678]:1");
    }

    #[test]
    fn a_class_has_room_for_two_periods() {
        let class = |units| RtuClass::periodic(Nanos::from_millis(1), units);
        let rooms = [1, 32, 100, 10_000].map(|units| waiting(class(units)));
        assert_eq!(rooms, [64, 64, 200, 512]);
        assert_eq!(path_bytes(RtuClass::BestEffort), 2 * 64 * 1_280);
    }
}
