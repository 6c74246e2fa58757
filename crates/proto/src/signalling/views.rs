//! Read-only views of neighbours and channels.

use punctual_analysis::{Instant, Nanos};

use super::clock::ClockOffset;
use super::link_events::LinkNews;
use super::peer::Presence;
use super::resources::LocalChannel;
use super::states::State;
use super::{Channel, Signalling};
use crate::api::DegradedHost;
use crate::ids::{Address, ChannelId, LinkId, Name};

/// State of a neighbour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NeighbourView {
    /// Whether HELLOs arrive.
    pub alive: bool,
    /// The neighbour's clock minus ours; `None` before the first round trip.
    pub clock: Option<ClockOffset>,
    /// How often one of the two clocks was stepped or drifted beyond its tolerance, in this life of the neighbour.
    pub clock_breaks: u32,
    /// Bytes of ours that the neighbour has received, in bytes of the wire, and the time of that on its
    /// clock.
    pub their_received: Option<(u64, Instant)>,
    /// Number of lives of the neighbour that this node has met.
    pub lives: u32,
    /// Longest travel time of the neighbour's packets to our driver, as it reports; `Nanos::MAX` before its
    /// first report.
    pub travel_max: Nanos,
    /// Smallest round trip measured in this life of the neighbour.
    pub round_trip_min: Option<Nanos>,
    /// The last round trip measured.
    pub round_trip_recent: Option<Nanos>,
    /// Packets that came in over the link and do not authenticate, or are not from that neighbour to this node.
    pub unauthenticated: u64,
    /// The version that it uses, if that is not [`RTCOP_VERSION`](super::RTCOP_VERSION) and prevents all messages to it.
    pub foreign_version: Option<u8>,
    /// Received signalling packets of other versions from members of the domain.
    pub packets_foreign: u64,
}

/// State of a channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChannelView<'a> {
    /// The channel as the node was asked to hold it.
    pub local: &'a LocalChannel,
    /// Source host's name.
    pub from: &'a Name,
    /// Listener.
    pub to: &'a Address,
    /// Hosts on the route whose bounds are no guarantees.
    pub degraded: &'a [DegradedHost],
    /// State as `channels` shows it (`open`, `creating`, ...).
    pub state: &'static str,
    /// True if the channel has ended here, with its stages, clip and counters, and waits only for the sink's
    /// final report.
    pub has_ended: bool,
}

impl Signalling {
    /// The neighbour at the other end of a link; the error bound of its clock grows with its age at `now`.
    pub fn neighbour(&self, link: LinkId, now: Instant) -> NeighbourView {
        let index = usize::from(link.0);
        self.links.peers.get(index).map_or_else(NeighbourView::default, |peer| NeighbourView {
            alive: peer.presence() == Presence::Alive,
            clock: peer.clock().offset(now),
            clock_breaks: peer.clock().breaks(),
            their_received: peer.their_received(),
            lives: peer.lives(),
            travel_max: peer.travel_max(),
            round_trip_min: peer.clock().round_trip_min(),
            round_trip_recent: peer.clock().round_trip_recent(),
            unauthenticated: self.links.news.get(index).map_or(0, LinkNews::unauthenticated),
            foreign_version: peer.foreign_version(),
            packets_foreign: peer.packets_foreign(),
        })
    }
    /// Channels that start, pass or end here, by handle.
    pub fn channels(&self) -> impl Iterator<Item = ChannelView<'_>> {
        self.channels_after(None)
    }
    /// Channels that start, pass or end here and whose handles are larger than `after`, in the order of
    /// handles; all of them if it is `None`.
    pub fn channels_after(&self, after: Option<ChannelId>) -> impl Iterator<Item = ChannelView<'_>> {
        self.channels.behind(after).map(view)
    }
    /// View of one channel; `None` if it is not known here.
    pub fn channel(&self, channel: ChannelId) -> Option<ChannelView<'_>> {
        self.channels.get(channel).map(view)
    }
}

fn view(channel: &Channel) -> ChannelView<'_> {
    ChannelView {
        local: &channel.local,
        from: &channel.route.from,
        to: &channel.route.to,
        degraded: &channel.route.degraded,
        state: channel.state.name(),
        has_ended: channel.state == State::Settling,
    }
}
