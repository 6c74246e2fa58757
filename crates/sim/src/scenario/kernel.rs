//! Links whose kernel traffic has the share that is not reserved, and uses all of it (ADR 0028).

use punctual_analysis::Ppm;
use punctual_proto::config::LinkConfig;

use super::HostPlan;
use crate::dice::Dice;

/// Applies this to every possible link, with dice of their own.
pub(super) fn lend_to_kernel(hosts: &mut [HostPlan], dice: &mut Dice) {
    for host in hosts {
        for (link, config) in host.links.iter_mut().zip(&mut host.config.links) {
            let most = Ppm(dice.between(300_000, 950_000) as u32);
            let lent = LinkConfig { kernel_share_max: most, ..config.clone() };
            // Not for a link without kernel traffic, which would have to be bounded first.
            if lent.follows() && lent.interference.rho > Ppm(0) {
                *config = lent;
                link.busy = true;
            }
        }
    }
}
