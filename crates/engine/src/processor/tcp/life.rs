//! From one state of a connection to the next, and its end.

use punctual_link::FlowKey;
use punctual_proto::memory::{Inbox, Outbox};
use punctual_proto::{Instant, Nanos};
use punctual_tcp::State;

use super::{Channels, Owned, Phase, Processor, Way};
use crate::tcp::{EndedConnection, TcpEvent, TcpRefusal};

/// How soon to check again whether the last segment of a connection has left.
const LAST_SEGMENT_CHECK: Nanos = Nanos::from_micros(500);

impl<O: Outbox + 'static, I: Inbox + 'static> Processor<O, I> {
    /// A connection that cannot begin. The peer of one that a listener has opened is reset: it has seen it open.
    pub(super) fn give_up_tcp(&mut self, index: u32, refusal: TcpRefusal, at: Instant) {
        let Some(tcp) = &mut self.programs.tcp else { return };
        let Some(place) = tcp.places.get_mut(&index) else { return };
        let reset = tcp.endsystem.refuse(index, at);
        let answer = match std::mem::replace(&mut place.phase, Phase::Ended) {
            Phase::Asked(_, answer) => answer,
            _ => None,
        };
        (place.owned.notify)(TcpEvent::Refused(refusal.clone()));
        let link = place.way.link();
        self.give_back_tcp(index, at);
        if let Some(link) = link {
            self.reset_tcp(link, reset, at);
        }
        if let Some(answer) = answer {
            // The event that it is over has taken the rest along.
            answer.send(Err((refusal, EndedConnection(Box::new(())))));
        }
    }

    /// Gives everything of a connection back.
    pub(super) fn give_back_tcp(&mut self, index: u32, at: Instant) {
        let Some(tcp) = &mut self.programs.tcp else { return };
        let Some(place) = tcp.places.remove(&index) else { return };
        let successor = tcp.endsystem.take_successor(index);
        let rings = tcp.endsystem.remove(index);
        if let (Phase::TimeWait { .. }, Some(link)) = (&place.phase, place.way.link()) {
            tcp.forget_late(link, index);
        } else {
            for handler in [place.input, place.output] {
                tcp.roles.remove(&handler);
                self.node.remove_handler(handler, at);
            }
        }
        match &place.way {
            Way::Link(link, ..) => {
                // The driver forgets the flow in this call, before any answer to the SYN comes.
                if let Some((syn, address)) = successor
                    && let Some(handler) = tcp.begin_again(*link, syn, address)
                {
                    self.node.make_ready(handler, at);
                }
                if let Some(port) = self.ports.get_mut(usize::from(link.0)) {
                    port.clear_flow(
                        FlowKey { local: place.flow.local, remote: place.flow.remote },
                        place.output,
                    );
                }
            }
            Way::Channels(Channels { incoming, .. }) => drop(tcp.incoming.remove(incoming)),
        }
        let Owned { segments, dispose, mut notify } = place.owned;
        notify(TcpEvent::Over(EndedConnection(Box::new((rings.map(dispose), segments)))));
    }

    /// Something of a connection has changed: has its output handler called when it has work, and notifies its program.
    pub(super) fn settle_tcp(&mut self, index: u32, at: Instant) {
        let Some(tcp) = &mut self.programs.tcp else { return };
        let Some(place) = tcp.places.get_mut(&index) else { return };
        match place.phase {
            Phase::Asked(..) => return,
            Phase::TimeWait { .. } => return self.settle_late(index, at),
            Phase::Opening | Phase::Open | Phase::Ended => {}
        }
        if matches!(place.phase, Phase::Opening) && place.is_without_hop(at) {
            tcp.endsystem.cut(index);
        }
        let due =
            tcp.endsystem.due(index, at).map(|due| place.not_before_hop(place.not_before_room(due, at), at));
        match due {
            Some(due) if due <= at => {
                self.node.make_ready_at(place.output, None);
                self.node.make_ready(place.output, at);
            }
            due => self.node.make_ready_at(place.output, due),
        }
        let Some(status) = tcp.endsystem.status(index) else { return };
        let is_open = !matches!(status.state, State::SynSent | State::SynReceived | State::Closed);
        if matches!(place.phase, Phase::Opening) && is_open {
            place.phase = Phase::Open;
            (place.owned.notify)(TcpEvent::Open);
        }
        if let Some(ended) = status.ended.filter(|_| !matches!(place.phase, Phase::Ended)) {
            place.phase = Phase::Ended;
            (place.owned.notify)(TcpEvent::Ended(ended));
        }
        let (is_over, only_waits) = (tcp.endsystem.is_over(index, at), tcp.endsystem.only_waits(index));
        if (is_over || only_waits) && self.node.is_sending(place.output) {
            // The last segment leaves before its handler goes.
            self.node.make_ready_at(place.output, Some(at + LAST_SEGMENT_CHECK));
        } else if is_over {
            self.give_back_tcp(index, at);
        } else if only_waits && place.way.link().is_some() {
            self.enter_time_wait(index, at);
        }
    }
}
