//! Connections whose packets are messages of two channels (ADR 0055). The caller puts the ring that the output handler fills in
//! the place of the outgoing channel's, and passes on what the incoming one delivers ([`crate::direct::deliver`]).

use punctual_proto::Instant;
use punctual_proto::ids::ChannelId;
use punctual_proto::memory::{Inbox, Outbox};

use super::{Channels, Owned, Phase, Place, Processor, Way};
use crate::command::Answer;
use crate::direct;
use crate::tcp::{DisposeRings, Refused, TcpId, TcpJoin, TcpRefusal};

impl<O: Outbox, I: Inbox> Place<O, I> {
    /// Whether the ring of its outgoing channel is full. (A link's handler is called when its link has room.)
    pub(super) fn is_full(&self) -> bool {
        let has_room = self.owned.segments.as_ref().is_none_or(|segments| segments.has_room());
        matches!(self.way, Way::Channels(_)) && !has_room
    }

    /// When its output handler, which has work at `due`, is to be called: a full ring is looked at again later.
    pub(super) fn not_before_room(&self, due: Instant, at: Instant) -> Instant {
        match &self.way {
            Way::Channels(channels) if self.is_full() => due.max(at + channels.pause),
            _ => due,
        }
    }
}

impl<O: Outbox + 'static, I: Inbox + 'static> Processor<O, I> {
    /// Begins a connection over two channels.
    pub fn join_tcp(
        &mut self,
        wanted: TcpJoin<O, I>,
        dispose: DisposeRings<O, I>,
        answer: Answer<Result<TcpId, Refused>>,
        at: Instant,
    ) {
        let TcpJoin { flow, incoming, pause, config, terms, rings, segments, notify } = wanted;
        let owned = Owned { segments: Some(segments), dispose, notify };
        let index = match &mut self.programs.tcp {
            Some(tcp) if tcp.incoming.contains_key(&incoming) => Err((TcpRefusal::Exhausted(1), rings)),
            Some(tcp) => {
                let begun = tcp.endsystem.connect_over_channels(flow, &config, rings, at);
                begun.map_err(|rings| (TcpRefusal::Exhausted(tcp.limits.paths_max), rings))
            }
            None => Err((TcpRefusal::NoTcp, rings)),
        };
        let index = match index {
            Ok(index) => index,
            Err((refusal, rings)) => return answer.send(Err((refusal, owned.remains(Some(rings))))),
        };
        let way = Way::Channels(Channels { incoming, pause });
        match self.place_tcp(index, (flow, way), terms, (None, owned), at) {
            Ok(place) => {
                if let Some(tcp) = &mut self.programs.tcp {
                    tcp.incoming.insert(incoming, index);
                }
                self.insert_place(index, Place { phase: Phase::Asked(0, Some(answer)), ..place });
            }
            Err(refused) => answer.send(Err(refused)),
        }
        self.process_handler_events();
    }

    /// Passes on the packets that channels have just delivered.
    pub(in crate::processor) fn take_delivered(&mut self, at: Instant) {
        while let Some((channel, frame)) = direct::next_delivered() {
            let Some(tcp) = &mut self.programs.tcp else { continue };
            let Some(&index) = tcp.incoming.get(&channel) else { continue };
            if tcp.endsystem.arrived(index, frame, at).is_ok()
                && let Some(place) = tcp.places.get(&index)
            {
                self.node.make_ready(place.input, at);
            }
        }
    }

    /// A channel of a connection has ended.
    pub fn cut_tcp(&mut self, id: TcpId, incoming: ChannelId, at: Instant) {
        let Some(tcp) = &mut self.programs.tcp else { return };
        if tcp.incoming.get(&incoming) == Some(&id.index) {
            self.change_tcp(id, at, punctual_tcp::endsystem::Endsystem::cut);
        }
    }
}
