//! Requests (CREATE and receivers' requests) that found no place in a link's queue, or waited there for too
//! long. They were never sent, so this node refuses them.

use punctual_analysis::Instant;

use super::Signalling;
use super::message::{Create, Message, Request};
use super::requests::Refused;
use super::resources::Resources;
use super::source_turns::{Crowded, Source};
use super::states::Input;
use super::transitions::InputDetails;
use crate::api::{ChannelRefusal, CloseReason, RefuseCause, Role};
use crate::ids::{ChannelId, LinkId, PathId};
use crate::limits::HALF_OPEN_PER_NEIGHBOUR_MAX;

impl Signalling {
    /// Refuses requests that have waited for too long to be sent over a link.
    pub(super) fn refuse_late(&mut self, link: LinkId, now: Instant, resources: &mut dyn Resources) {
        let index = usize::from(link.0);
        while let Some(ask) = self.links.peers.get_mut(index).and_then(super::Peer::poll_late) {
            let next = self.node_at(link).unwrap_or_default();
            let refusal = self.refusal(RefuseCause::Busy(next));
            match ask {
                Message::Create(create) => self.refuse_late_create(&create, refusal, now, resources),
                Message::Request(request) => self.refuse_late_request(&request, refusal),
                _ => {}
            }
        }
    }

    /// `create`, `request`: as the next node would have received them.
    fn refuse_late_create(
        &mut self,
        create: &Create,
        refusal: ChannelRefusal,
        now: Instant,
        resources: &mut dyn Resources,
    ) {
        if self.knows(create.path) {
            let what = InputDetails::refusal(refusal);
            self.apply_to_path(create.path, Input::Refuse, what, now, resources);
        } else if create.probe {
            self.pass_probed(create.path, create.route.back().advanced(), create.user, Err(refusal));
        }
    }

    fn refuse_late_request(&mut self, request: &Request, refusal: ChannelRefusal) {
        let Request { token, epoch, user, .. } = *request;
        let here = request.route.back();
        if here.next().is_none() {
            self.request_failed(token, refusal);
        } else {
            self.pass_refused_request(Refused { token, epoch, user, refusal }, here.advanced());
        }
    }

    /// Removes the CREATE of a channel that is given up before the CREATE was sent.
    pub(super) fn withdraw(&mut self, link: LinkId, path: PathId) {
        self.with_peer(link, |peer| peer.withdraw(path));
    }

    /// Makes room for one more half-open channel that came over a link. If there is none, refuses the newest
    /// one of the source that has the most.
    pub(super) fn make_room_half_open(
        &mut self,
        link: LinkId,
        source: Source,
        now: Instant,
        resources: &mut dyn Resources,
    ) -> Result<(), RefuseCause> {
        if self.channels.half_open(link) + self.deciding.count_from(link) < HALF_OPEN_PER_NEIGHBOUR_MAX {
            return Ok(());
        }
        let deciding = self.deciding.from(link);
        let beside = self.channels.half_open_by(link);
        let last = deciding.to_evict(beside, source).map_err(|Crowded| RefuseCause::Crowded)?;
        let id = ChannelId(last);
        match self.channels.get(id).map(|channel| channel.local.role) {
            None => self.evict_deciding(id),
            Some(role) => {
                let input = if role == Role::Sink { Input::Silence } else { Input::CommitFailed };
                let refusal = self.refusal(RefuseCause::Crowded);
                let what = InputDetails { reason: CloseReason::Local, ..InputDetails::refusal(refusal) };
                self.apply(id, input, what, now, resources);
            }
        }
        Ok(())
    }
}
