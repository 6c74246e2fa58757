//! Early demultiplexing, and the calls of TCP's handlers (RTU 4.3, 5.2).

use punctual_link::kernel::HopState;
use punctual_link::{Frame, IpPacket, IpTarget};
use punctual_os::now;
use punctual_proto::api::{RtuClass, UpcallDone, Work};
use punctual_proto::ids::LinkId;
use punctual_proto::memory::{Inbox, Outbox};
use punctual_proto::node::Node;
use punctual_proto::{Instant, Nanos};

use super::{Owned, Place, Processor, Role, Tcp};
use crate::memory::HostMemory;

/// How long the first segments of a connection wait for the next hop's hardware address, and how often that is looked at. Without it
/// they would be lost: a SYN or data would leave again a second later, and the reset of a connection that was just accepted never.
const HOP_WAIT: (Nanos, Nanos) = (Nanos::from_secs(1), Nanos::from_millis(1));
/// How long the kernel is given to find that address, as long as it tries itself. A connection that opens is over then.
const HOP_FOUND_WITHIN: Nanos = Nanos::from_secs(3);

impl<O: Outbox + 'static, I: Inbox + 'static> Tcp<O, I> {
    /// Puts a packet that came to the driver at `received` into the queue of the connection or listener that it is for, and has its handler called.
    pub fn arrived(
        &mut self,
        node: &mut Node<HostMemory<O, I>>,
        (link, ip, frame, received): (LinkId, IpPacket, Frame, Instant),
        at: Instant,
    ) {
        let handler = match ip.to {
            IpTarget::Flow(index) => match self.endsystem.arrived(index, frame, received) {
                Ok(()) => self.wake(index),
                // The connection was just given back, which the driver did not know yet.
                Err(frame) => self.begin_again(link, frame, ip.sender.to_number()),
            },
            IpTarget::Listener(index) => {
                let is_known = self.endsystem.arrived_at_listener(index, frame, ip.sender.to_number());
                is_known.then(|| self.listeners.get(&index)).flatten().map(|listening| listening.handler)
            }
            IpTarget::Error => {
                let index = self.endsystem.error(frame.as_ref(), at);
                index.and_then(|index| self.wake(index))
            }
        };
        if let Some(handler) = handler {
            node.make_ready(handler, at);
        }
    }
}

impl<O: Outbox, I: Inbox> Tcp<O, I> {
    /// The connection takes over what has changed in the kernel's route to its peer: the MTU. (The link reads the hardware
    /// address of the next hop for each packet.)
    fn follow_route(&mut self, index: u32, at: Instant) {
        let Some(place) = self.places.get_mut(&index) else { return };
        let Some(hop) = place.way.hop() else { return };
        let version = hop.version();
        if version == place.hop_version {
            return;
        }
        // Where it is being changed at this moment, the next call looks again. Without a route the old size stays.
        let Some(state) = hop.state() else { return };
        place.hop_version = version;
        if let HopState::Known(route) = state {
            self.endsystem.route_changed(index, route.mtu, at);
        }
    }
}

impl<O: Outbox + 'static, I: Inbox + 'static> Processor<O, I> {
    /// Calls the handler of a unit if it is one of TCP; returns the unit otherwise.
    pub(in crate::processor) fn call_tcp(&mut self, work: Work) -> Option<Work> {
        let Some(tcp) = &mut self.programs.tcp else { return Some(work) };
        let Some(id) = self.node.upcall(&work) else { return Some(work) };
        let Some(&role) = tcp.roles.get(&id) else { return Some(work) };
        if let Role::TimeWait(link) = role {
            self.call_time_wait(link, &work);
            return None;
        }
        let begun = now();
        if let Role::Output(index) = role {
            tcp.follow_route(index, begun);
        }
        let worked = match role {
            Role::Input(index) => tcp.endsystem.input(index, work.packets, begun),
            Role::Output(index) => match tcp.places.get_mut(&index) {
                Some(place) if place.waits_for_hop(begun) => Default::default(),
                Some(Place { owned: Owned { segments: Some(segments), .. }, .. }) => {
                    tcp.endsystem.output(index, work.packets, begun, &mut **segments)
                }
                _ => Default::default(),
            },
            Role::Listener(index) => match tcp.listeners.get_mut(&index) {
                Some(listening) => {
                    tcp.endsystem.listen_unit(index, work.packets, begun, &mut *listening.segments)
                }
                None => Default::default(),
            },
            Role::TimeWait(_) => Default::default(),
        };
        let ended = now();
        // A ring that is full is looked at again later (`settle_tcp`), not at once.
        let is_full =
            matches!(role, Role::Output(index) if tcp.places.get(&index).is_some_and(Place::is_full));
        let more = worked.more && !is_full;
        let done = UpcallDone { units: worked.units, more, took: ended.since(begun) };
        if let (Role::Input(index), Some(arrival)) = (role, worked.first_arrival) {
            tcp.endsystem.observe(index, ended.since(arrival));
        }
        self.node.finish_upcall(&work, done, ended);
        if worked.delivered && self.wakes_low_delay_program(role) {
            self.node.gave_program(id, ended);
        }
        match role {
            Role::Input(index) | Role::Output(index) => self.settle_tcp(index, ended),
            Role::Listener(index) => self.settle_listener(index, ended),
            Role::TimeWait(_) => {}
        }
        None
    }

    /// Whether what the handler delivered woke a low-delay program, which needs this CPU. A handler on the processor and a thread that
    /// leads have it already. A guaranteed connection gives its program something with each segment and has until the end of a
    /// period: it would cost best effort up to half of the time.
    fn wakes_low_delay_program(&self, role: Role) -> bool {
        let (Role::Input(index) | Role::Output(index)) = role else { return false };
        let place = self.programs.tcp.as_ref().and_then(|tcp| tcp.places.get(&index));
        let is_low_delay = |place: &Place<O, I>| matches!(place.terms.class, RtuClass::LowDelay { .. });
        !self.lead.is_led && place.is_some_and(|place| !place.is_direct && is_low_delay(place))
    }
}

impl<O: Outbox, I: Inbox> Place<O, I> {
    /// When the output handler has work that is due at `due`: the first segments wait for the next hop's address, which is looked
    /// at again soon, and not at once.
    pub(super) fn not_before_hop(&self, due: Instant, at: Instant) -> Instant {
        if self.waits_for_hop(at) { due.max(at + HOP_WAIT.1) } else { due }
    }

    /// Whether this end opens the connection, and the kernel has not found the hardware address of the next hop.
    pub(super) fn is_without_hop(&self, at: Instant) -> bool {
        let is_old = at.since(self.since) >= HOP_FOUND_WITHIN;
        is_old && self.way.hop().is_some_and(|hop| hop.destination().is_none())
    }

    fn waits_for_hop(&self, at: Instant) -> bool {
        let is_new = at.since(self.since) < HOP_WAIT.0;
        is_new && self.way.hop().is_some_and(|hop| hop.destination().is_none())
    }
}
