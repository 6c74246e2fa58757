//! The beginning: opens the links, and starts the thread that keeps them.

use std::io;
use std::sync::Arc;

use super::keeper::{Follow, FollowError, Keeper, Kept};
use super::link::FollowedLink;
use crate::LinkError;
use crate::kernel::Watcher;
use crate::kernel::bell::Bell;

/// Opens links, sets their devices up, and follows them on a thread of its own in the network namespace of
/// the calling thread. A neighbour that does not answer is awaited in the background. `begin` runs on the new
/// thread before anything else.
///
/// # Errors
/// The first link that cannot be opened, or whose device cannot be set up as requested; or the error of
/// `begin`. No device stays changed then.
pub fn follow(
    links: Vec<Follow>,
    begin: impl FnOnce() -> io::Result<()> + Send + 'static,
) -> Result<Vec<FollowedLink>, FollowError> {
    let none = |error: LinkError| FollowError { link: None, error };
    let os = |error| none(LinkError::Os { what: "following links".into(), error });
    let bell = Arc::new(Bell::new().map_err(os)?);
    let mut watcher = Watcher::new().map_err(|error| none(error.into()))?;
    let (mut kept, mut drivers) = (Vec::new(), Vec::new());
    for (number, link) in links.into_iter().enumerate() {
        let of_link = |error| FollowError { link: Some(number), error };
        let spins = link.spins;
        let (link, driver, hops) = Kept::open(link, &mut watcher, Arc::clone(&bell)).map_err(of_link)?;
        drivers.push((driver, Arc::clone(&link.mailbox), spins, hops));
        kept.push(link);
    }
    let keeper = Arc::new(Keeper::start(watcher, kept, bell, begin).map_err(os)?);
    let followed = drivers
        .into_iter()
        .map(|(driver, mailbox, spins, hops)| {
            FollowedLink::new(driver, mailbox, spins, hops, Arc::clone(&keeper))
        })
        .collect::<io::Result<_>>();
    followed.map_err(os)
}
