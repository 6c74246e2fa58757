//! The way to a peer: the first link whose device the kernel routes it over.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::time::{Duration, Instant as Time};

use punctual_link::NextHop;
use punctual_link::kernel::HopState;
use punctual_proto::ids::LinkId;

use super::opener::Opener;
use super::{TcpError, segment_bytes};

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

impl Opener {
    /// Begins to look for the way to a peer: the first link whose device the kernel routes it over.
    pub fn look_up(&self, peer: IpAddr) -> LookUp {
        let why = "there is no such link".to_owned();
        let links = self.links.iter().map(|link| (link.id, link.packet_bytes)).collect();
        LookUp { peer, links, asked: None, why }
    }

    /// Whether the kernel has answered; never waits. `None`: look again soon.
    pub fn poll(&self, look_up: &mut LookUp) -> Option<Result<Route, TcpError>> {
        loop {
            let Some((link, packet_bytes, hop, until)) = &look_up.asked else {
                let Some((link, packet_bytes)) = look_up.links.pop_front() else {
                    let (peer, why) = (look_up.peer, std::mem::take(&mut look_up.why));
                    return Some(Err(TcpError::NoRoute { peer, why }));
                };
                let hop = match self.handle.next_hop(link, look_up.peer) {
                    Ok(Ok(hop)) => hop,
                    Ok(Err(refusal)) => return Some(Err(refusal.into())),
                    Err(error) => return Some(Err(error.into())),
                };
                look_up.asked = Some((link, packet_bytes, hop, Time::now() + ROUTE_WAIT));
                continue;
            };
            look_up.why = match hop.state() {
                Some(HopState::Known(route)) => {
                    let bytes = segment_bytes(*packet_bytes, look_up.peer);
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
            look_up.asked = None;
        }
    }
}
