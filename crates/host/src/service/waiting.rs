//! Incoming channels that wait for a program's consent.
//!
//! Channels that wait have places of their own beside the quota of channels, which is charged at consent.
//! Therefore a requester takes no quota from the user of the listener. If no place of a listener's user is
//! free, the requester with the most places loses one to a requester with fewer: hosts share evenly, and the
//! users of a host share the places of that host. The requester's host states which user a request belongs
//! to.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use punctual_ipc::api::Quotas;
use punctual_proto::api::UserId;
use punctual_proto::ids::{ChannelId, Name};
use punctual_proto::limits::HALF_OPEN_PER_NEIGHBOUR_MAX;

/// Places of each user who listens, where users have quotas. A node has four times as many for each neighbour
/// (`HALF_OPEN_PER_NEIGHBOUR_MAX`).
const PLACES: usize = 256;
const _: () = assert!(PLACES * 4 == HALF_OPEN_PER_NEIGHBOUR_MAX);

/// A user of a host who requests a channel.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Requester {
    pub host: Name,
    pub user: UserId,
}

/// A place in which one more channel may wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// Beside the others.
    Free,
    /// The channel takes the place of this one, the last of the user with the most places.
    Of(ChannelId),
    /// No place: the requesting user has the most places.
    None,
}

type Requesters = BTreeMap<Requester, BTreeSet<ChannelId>>;

/// See the module.
#[derive(Debug)]
pub(super) struct Waiting {
    places: usize,
    /// Requesters by the user whose listeners they address. Users for whom no channel waits are not listed.
    owners: HashMap<UserId, Requesters>,
}

impl Waiting {
    /// If the number of channels is not bounded, as in a program that embeds its host, the places are not
    /// bounded either.
    pub(super) fn new(quotas: &Quotas) -> Self {
        let places = if quotas.channels == u64::MAX { usize::MAX } else { PLACES };
        Self { places, owners: HashMap::new() }
    }

    /// The place in which a channel of `asker` for a listener of `owner` may wait.
    pub(super) fn place(&self, owner: UserId, asker: &Requester) -> Place {
        let Some(askers) = self.owners.get(&owner).filter(|askers| count(askers.values()) >= self.places)
        else {
            return Place::Free;
        };
        let giver = who_gives_way(askers, asker);
        giver.and_then(|channels| channels.last()).map_or(Place::None, |channel| Place::Of(*channel))
    }

    pub(super) fn add(&mut self, owner: UserId, asker: &Requester, channel: ChannelId) {
        self.owners.entry(owner).or_default().entry(asker.clone()).or_default().insert(channel);
    }

    pub(super) fn remove(&mut self, owner: UserId, asker: &Requester, channel: ChannelId) {
        let Some(askers) = self.owners.get_mut(&owner) else { return };
        if let Some(channels) = askers.get_mut(asker) {
            channels.remove(&channel);
        }
        askers.retain(|_, channels| !channels.is_empty());
        if askers.is_empty() {
            self.owners.remove(&owner);
        }
    }

    /// Number of all channels that wait.
    pub(super) fn len(&self) -> usize {
        self.owners.values().map(|askers| count(askers.values())).sum()
    }
}

fn count<'a>(channels: impl Iterator<Item = &'a BTreeSet<ChannelId>>) -> usize {
    channels.map(BTreeSet::len).sum()
}

/// Channels of the user that loses a place: the user with the most, of the host with the most, or of
/// `asker`'s own host. `None`: no other user has enough more places.
fn who_gives_way<'a>(askers: &'a Requesters, asker: &Requester) -> Option<&'a BTreeSet<ChannelId>> {
    let mut hosts: BTreeMap<&Name, usize> = BTreeMap::new();
    for (other, channels) in askers {
        *hosts.entry(&other.host).or_default() += channels.len();
    }
    let own = hosts.get(&asker.host).copied().unwrap_or(0);
    let (heaviest, most) = hosts.into_iter().max_by_key(|(_, count)| *count)?;
    let is_less = *heaviest != asker.host && own + 1 < most;
    let host = if is_less { heaviest } else { &asker.host };
    let of_host = askers.iter().filter(|(other, _)| other.host == *host).map(|(_, channels)| channels);
    let giver = of_host.max_by_key(|channels| channels.len())?;
    let own = askers.get(asker).map_or(0, BTreeSet::len);
    (is_less || own + 1 < giver.len()).then_some(giver)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANN: UserId = UserId(1);

    fn asker(host: &str, user: u32) -> Requester {
        Requester { host: Name::new(host).expect("a name"), user: UserId(user) }
    }

    /// Channels of `asker` from `first` on, until no place is left without another's; how many.
    fn fill(waiting: &mut Waiting, asker: &Requester, first: u64) -> u64 {
        let free = (first..).take_while(|channel| {
            let is_free = waiting.place(ANN, asker) == Place::Free;
            if is_free {
                waiting.add(ANN, asker, ChannelId(*channel));
            }
            is_free
        });
        free.count() as u64
    }

    /// Number of places that `asker` gets from others.
    fn claim(waiting: &mut Waiting, asker: &Requester, givers: &[&Requester], first: u64) -> usize {
        let claims = (first..).take_while(|channel| {
            let Place::Of(given) = waiting.place(ANN, asker) else { return false };
            givers.iter().for_each(|giver| waiting.remove(ANN, giver, given));
            waiting.add(ANN, asker, ChannelId(*channel));
            true
        });
        claims.count()
    }

    #[test]
    fn one_has_all_places_only_until_others_want_some() {
        let (eve, bob) = (asker("x", 7), asker("x", 8));
        let mut waiting = Waiting::new(&Quotas::default());
        assert_eq!(fill(&mut waiting, &eve, 0), PLACES as u64);
        assert_eq!(waiting.place(ANN, &eve), Place::None);
        assert_eq!(waiting.place(UserId(2), &eve), Place::Free, "another listener's user has its own");
        assert_eq!(waiting.place(ANN, &bob), Place::Of(ChannelId(PLACES as u64 - 1)), "the last goes first");
        assert_eq!(claim(&mut waiting, &bob, &[&eve], 1_000), PLACES / 2);
        assert_eq!(waiting.len(), PLACES);
        assert_eq!(waiting.place(ANN, &eve), Place::None, "nor does it get them back");
    }

    #[test]
    fn a_host_that_invents_users_takes_from_its_own() {
        let mut waiting = Waiting::new(&Quotas::default());
        let crowd: Vec<Requester> = (0..PLACES as u32).map(|user| asker("x", user)).collect();
        crowd.iter().zip(0..).for_each(|(one, channel)| waiting.add(ANN, one, ChannelId(channel)));
        let bob = asker("y", 1);
        let givers: Vec<&Requester> = crowd.iter().collect();
        assert_eq!(claim(&mut waiting, &bob, &givers, 1_000), PLACES / 2);
        assert_eq!(waiting.place(ANN, &asker("x", 9_999)), Place::None, "each of its users has one");
    }

    #[test]
    fn a_program_that_has_only_itself_has_no_bound() {
        let (eve, mut waiting) = (asker("x", 7), Waiting::new(&Quotas::UNLIMITED));
        (0..2 * PLACES as u64).for_each(|channel| waiting.add(ANN, &eve, ChannelId(channel)));
        assert_eq!(waiting.place(ANN, &eve), Place::Free);
    }

    #[test]
    fn what_waits_no_more_leaves_nothing() {
        let (eve, mut waiting) = (asker("x", 7), Waiting::new(&Quotas::default()));
        waiting.add(ANN, &eve, ChannelId(1));
        waiting.add(ANN, &eve, ChannelId(2));
        waiting.remove(ANN, &eve, ChannelId(1));
        assert_eq!(waiting.len(), 1);
        waiting.remove(ANN, &eve, ChannelId(2));
        waiting.remove(ANN, &eve, ChannelId(2));
        assert!(waiting.owners.is_empty());
    }
}
