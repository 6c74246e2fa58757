//! Connections of clients that offer to be called over them.

use std::sync::{Arc, Weak};

use punctual_giop::Version;
use punctual_giop::characters::CharacterSet;
use punctual_giop::codeset::Chosen;
use punctual_giop::connection::RequestIds;
use punctual_giop::context::{CODE_SETS, ListenPoints};

use crate::core::Core;
use crate::duplex::offered;
use crate::framing::Framing;
use crate::inbox::Inbox;
use crate::served::{Served, calls_both_ways};
use crate::shared::{Opening, Shared};
use crate::transport::Stream;

/// What the client of a connection has offered: it does so once, with its first request.
#[derive(Debug, Default)]
pub(super) struct Offer(Option<Box<(ListenPoints, Option<Chosen>)>>);

impl Offer {
    /// Whether the client has offered, with the present message or before, that its objects are called over the connection,
    /// and this ORB and the adapter of the object that is called now accept. Then [`adopt`] serves the connection.
    pub fn is_accepted(&mut self, core: &Core, inbox: &Inbox) -> bool {
        let whole = inbox.message();
        if let Some(offered) = offered(&core.options, whole) {
            self.0 = Some(Box::new(offered));
        }
        self.0.is_some() && calls_both_ways(&core.registry, whole)
    }
}

/// Serves a connection whose client has offered that it is called over it, from the present message of its inbox on,
/// until it ends.
pub(super) fn adopt(
    core: &Arc<Core>,
    stream: &Arc<Stream>,
    mut inbox: Inbox,
    offer: Offer,
    characters: CharacterSet,
) {
    let Some((points, chosen)) = offer.0.map(|offered| *offered) else { return };
    let host: Weak<Core> = Arc::downgrade(core);
    // The client understands what it has chosen.
    let first = chosen.map(|chosen| (CODE_SETS, chosen.to_context().to_vec()));
    let opening = Opening {
        version: Version::V1_2,
        ids: RequestIds::of_accepting_end(),
        first: first.into_iter().collect(),
        characters: chosen.unwrap_or(Chosen::DEFAULT).characters,
        framing: Framing::of(&core.options),
        served: Some(Served::of_accepting_end(host, characters, &core.budget, stream)),
    };
    let Ok(shared) = Shared::new(Arc::clone(stream), opening) else { return };
    core.duplexes.add(points, &shared);
    shared.dispatch(inbox.take_message());
    shared.run(inbox);
}
