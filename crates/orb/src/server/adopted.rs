//! Connections of clients that offer to be called over them.

use std::sync::{Arc, Weak};

use punctual_giop::Version;
use punctual_giop::characters::CharacterSet;
use punctual_giop::codeset::Chosen;
use punctual_giop::connection::RequestIds;
use punctual_giop::context::CODE_SETS;
use punctual_giop::message::Message;

use crate::core::Core;
use crate::duplex::offered;
use crate::framing::Framing;
use crate::inbox::Inbox;
use crate::served::{Caller, Served, may_be_called_back};
use crate::shared::{Opening, Shared};
use crate::transport::Stream;

/// Whether the present message of a client's connection offers that its objects are called over it, and this ORB
/// and the object's adapter accept. Then [`adopt`] serves the connection.
pub(super) fn is_offered(core: &Core, inbox: &Inbox) -> bool {
    let whole = inbox.message();
    offered(&core.options, whole).is_some() && may_be_called_back(&core.registry, whole)
}

/// Serves a connection whose client has offered that it is called over it, from the present message of its inbox on,
/// until it ends.
pub(super) fn adopt(core: &Arc<Core>, stream: &Arc<Stream>, inbox: Inbox, characters: CharacterSet) {
    let whole = inbox.message();
    let Some((points, chosen)) = offered(&core.options, whole) else { return };
    let host: Weak<Core> = Arc::downgrade(core);
    // The client understands what it has chosen.
    let first = chosen.map(|chosen| (CODE_SETS, chosen.to_context().to_vec()));
    let opening = Opening {
        version: Version::V1_2,
        ids: RequestIds::of_accepting_end(),
        first: first.into_iter().collect(),
        characters: chosen.unwrap_or(Chosen::DEFAULT).characters,
        framing: Framing::of(&core.options),
        served: Some(Served::new(host, characters, Caller::Connecting)),
    };
    let Ok(shared) = Shared::new(Arc::clone(stream), opening) else { return };
    core.duplexes.add(points, &shared);
    if let Ok(message) = Message::read_whole(whole) {
        shared.dispatch(whole, &message);
    }
    shared.run(inbox);
}
