//! The way to a peer: the first link whose device the kernel routes it over.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::time::{Duration, Instant as Time};

use punctual_link::NextHop;
use punctual_link::kernel::HopState;
use punctual_proto::ids::LinkId;

use super::{Handle, TcpError, TcpLink, segment_bytes};

/// How long the kernel is given to find the way to a peer.
const ROUTE_WAIT: Duration = Duration::from_secs(3);
/// How often to look whether it has found it.
pub(super) const LOOK_UP_PAUSE: Duration = Duration::from_micros(200);

/// The way to a peer is asked for.
pub(crate) struct LookUp {
    peer: IpAddr,
    /// Links that were not asked.
    links: VecDeque<(LinkId, u32)>,
    /// The link that is asked with its longest packet, and until when.
    asked: Option<(LinkId, u32, NextHop, Time)>,
    why: String,
}

/// The way to a peer.
pub(crate) struct Route {
    pub link: LinkId,
    pub segment_bytes: u32,
    pub hop: NextHop,
    pub source: IpAddr,
}

impl LookUp {
    /// Begins to look for the way to a peer: the first link whose device the kernel routes it over.
    pub fn new(peer: IpAddr, links: &[TcpLink]) -> Self {
        let why = "there is no such link".to_owned();
        let links = links.iter().map(|link| (link.id, link.packet_bytes)).collect();
        Self { peer, links, asked: None, why }
    }

    /// Whether the kernel has answered; never waits. `None`: look again soon.
    pub fn poll(&mut self, handle: &Handle) -> Option<Result<Route, TcpError>> {
        loop {
            let Some((link, packet_bytes, hop, until)) = &self.asked else {
                let Some((link, packet_bytes)) = self.links.pop_front() else {
                    let (peer, why) = (self.peer, std::mem::take(&mut self.why));
                    return Some(Err(TcpError::NoRoute { peer, why }));
                };
                let hop = match handle.next_hop(link, self.peer) {
                    Ok(Ok(hop)) => hop,
                    Ok(Err(refusal)) => return Some(Err(refusal.into())),
                    Err(error) => return Some(Err(error.into())),
                };
                self.asked = Some((link, packet_bytes, hop, Time::now() + ROUTE_WAIT));
                continue;
            };
            self.why = match hop.state() {
                Some(HopState::Known(route)) => {
                    let bytes = segment_bytes(*packet_bytes, self.peer);
                    let (link, hop, mtu) = (*link, hop.clone(), route.mtu);
                    return Some(bytes.map(|bytes| Route {
                        link,
                        segment_bytes: bytes.min(mtu),
                        hop,
                        source: route.source,
                    }));
                }
                Some(HopState::Refused(why)) => why,
                _ if Time::now() >= *until => "the kernel does not answer".to_owned(),
                _ => return None,
            };
            self.asked = None;
        }
    }
}
