//! Answers to probes: no hop remembers a probe, so they carry their way back.

use alloc::vec::Vec;

use punctual_analysis::Instant;

use super::Signalling;
use super::fair::Source;
use super::message::{Create, Message, Route};
use super::resources::Resources;
use super::states::Input;
use super::transitions::Particulars;
use crate::ids::{LinkId, PathId};
use crate::node::api::{ChannelRefusal, StageGrant, UserId};

impl Signalling {
    pub(super) fn answer_probe(&mut self, create: &Create, answer: Result<Vec<StageGrant>, ChannelRefusal>) {
        self.pass_probed(create.path, create.route.back(), create.user, answer);
    }
    /// `route` as its next receiver sees it.
    pub(super) fn pass_probed(
        &mut self,
        path: PathId,
        route: Route,
        user: UserId,
        answer: Result<Vec<StageGrant>, ChannelRefusal>,
    ) {
        let link = self.link_along(&route);
        let source = Source { node: path.node, user };
        self.answer(link, source, &Message::Probed { path, route, user, answer });
    }
    pub(super) fn on_probed(
        &mut self,
        link: LinkId,
        path: PathId,
        route: &Route,
        (user, answer): (UserId, Result<Vec<StageGrant>, ChannelRefusal>),
        now: Instant,
        resources: &mut dyn Resources,
    ) {
        if !route.leads(self.node_at(link), self.config.id) {
            self.counters.unexpected += 1;
        } else if route.next().is_some() {
            self.pass_probed(path, route.advanced(), user, answer);
        } else {
            match answer {
                Ok(stages) => {
                    self.apply_to_path(path, Input::Probed, Particulars::stages(stages), now, resources)
                }
                Err(no) => self.apply_to_path(path, Input::Refuse, Particulars::refusal(no), now, resources),
            }
        }
    }
}
