//! A refusal on its way to the application, and the search for a contract to offer.

use alloc::vec::Vec;

use punctual_analysis::{Contract, Instant, Nanos};

use super::budget;
use crate::api::{ChannelRefusal, StageGrant};
use crate::ids::NodeId;

/// Most offers of one refusal that are probed.
const OFFERS_MAX: u8 = 8;

/// A refusal on its way to the application, and the search for a contract to offer.
#[derive(Debug)]
pub struct Offering {
    refusal: ChannelRefusal,
    /// The route that is probed, without this node.
    via: Vec<NodeId>,
    wanted: Contract,
    /// Contract that is probed now.
    asked: Contract,
    /// The best contract with a positive reply, and its stages.
    found: Option<(Contract, Vec<StageGrant>)>,
    left: u8,
    /// Time at which the application is notified at the latest.
    until: Instant,
}

impl Offering {
    /// The search that begins with a probe of `asked`.
    pub const fn new(
        refusal: ChannelRefusal,
        via: Vec<NodeId>,
        wanted: Contract,
        asked: Contract,
        until: Instant,
    ) -> Self {
        Self { refusal, via, wanted, asked, found: None, left: OFFERS_MAX - 1, until }
    }

    /// The route that is probed, without this node.
    pub fn via(&self) -> &[NodeId] {
        &self.via
    }

    /// Contract that is probed now.
    pub const fn asked(&self) -> Contract {
        self.asked
    }

    /// Time at which the application is notified at the latest.
    pub const fn until(&self) -> Instant {
        self.until
    }

    /// The contract to probe after a reply to `asked`.
    pub fn next(
        &mut self,
        answer: Result<(Nanos, Vec<StageGrant>), Option<ChannelRefusal>>,
    ) -> Option<Contract> {
        let next = match answer {
            Ok((possible, stages)) => {
                let deadline = budget::deadline_of(possible).max(self.wanted.deadline);
                let tighter = Contract { deadline, ..self.asked };
                self.found = Some((self.asked, stages));
                (deadline < self.asked.deadline).then_some(tighter)
            }
            Err(refusal) => {
                let offer = refusal.and_then(|no| no.offer).filter(|_| self.found.is_none());
                offer.map(|offer| relaxed(&self.wanted, &offer))
            }
        };
        let next = next.filter(|next| self.left > 0 && next.validate().is_ok())?;
        self.left -= 1;
        self.asked = next;
        Some(next)
    }

    pub fn into_refusal(self) -> ChannelRefusal {
        let (offer, stages) = self.found.map_or((None, Vec::new()), |(offer, by)| (Some(offer), by));
        ChannelRefusal { offer, stages, ..self.refusal }
    }
}

/// The requested contract with the deadline and the rate of a hop's offer. Everything else is kept, whatever
/// the hop offers.
pub const fn relaxed(wanted: &Contract, offer: &Contract) -> Contract {
    Contract { deadline: offer.deadline, rate_max: offer.rate_max, ..*wanted }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::RefuseCause;
    use punctual_analysis::{Policing, Rate};

    fn contract(bytes: u32, deadline_ms: u64) -> Contract {
        let rate = Rate::per_second(50).expect("a rate");
        Contract::new(bytes, rate, 3, Nanos::from_millis(deadline_ms)).expect("valid")
    }

    fn no(offer: Contract) -> ChannelRefusal {
        let (stages, hosts) = (Vec::new(), Vec::new());
        ChannelRefusal { node: NodeId(2), cause: RefuseCause::Exhausted, offer: Some(offer), stages, hosts }
    }

    /// If a hop offers another size, burst and policing, only its deadline and rate are probed.
    #[test]
    fn a_hop_can_offer_another_deadline_and_rate_and_nothing_else() {
        let wanted = contract(1_000, 5);
        let rate_max = Rate::per_second(20).expect("a rate");
        let mut offering = Offering::new(no(wanted), Vec::new(), wanted, wanted, Instant(0));
        let other = Contract { policing: Policing::Demote, burst_messages_max: 90, ..contract(7, 40) };
        let asked = offering.next(Err(Some(no(Contract { rate_max, ..other }))));
        assert_eq!(asked, Some(Contract { deadline: Nanos::from_millis(40), rate_max, ..wanted }));
        // The offer is exactly the contract with the positive reply, and nothing else is reported.
        assert_eq!(offering.next(Ok((Nanos::from_secs(1), Vec::new()))), None);
        assert_eq!(offering.into_refusal().offer, asked);
    }

    /// Whatever a hop replies, the number of probes is bounded.
    #[test]
    fn a_hop_that_changes_its_offer_is_asked_a_bounded_number_of_times() {
        let wanted = contract(1_000, 5);
        let mut offering = Offering::new(no(wanted), Vec::new(), wanted, wanted, Instant(0));
        let more = (6..200).take_while(|ms| offering.next(Err(Some(no(contract(1_000, *ms))))).is_some());
        assert_eq!(1 + more.count(), usize::from(OFFERS_MAX), "the first was asked for without a question");
        assert_eq!(offering.into_refusal().offer, None, "nobody said yes");
    }
}
