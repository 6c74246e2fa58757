//! Asks that have waited for their turn on a link for too long: they are refused here, for they were never sent.

use punctual_analysis::Instant;

use super::Signalling;
use super::message::{Create, Message, Request};
use super::requests::Refused;
use super::resources::Resources;
use super::states::Input;
use super::transitions::Particulars;
use crate::ids::{LinkId, PathId};
use crate::node::api::{ChannelRefusal, RefuseCause};

impl Signalling {
    /// Refuses what has waited for too long to be sent over a link.
    pub(super) fn refuse_late(&mut self, link: LinkId, now: Instant, resources: &mut dyn Resources) {
        let index = usize::from(link.0);
        while let Some(ask) = self.peers.get_mut(index).and_then(super::Peer::poll_late) {
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
            let what = Particulars::refusal(refusal);
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

    /// Takes back the CREATE of a channel that is given up before it was sent.
    pub(super) fn withdraw(&mut self, link: LinkId, path: PathId) {
        if let Some(peer) = self.peers.get_mut(usize::from(link.0)) {
            peer.withdraw(path);
        }
    }
}
