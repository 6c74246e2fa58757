//! Every channel that was admitted once, among others, must be admitted on an empty network.

use punctual_analysis::Nanos;

use super::{Act, Event, World};
use crate::scenario::REVIVALS;

impl World {
    /// Requests some of the channels that were admitted once, one after the other.
    pub(super) fn revive(&mut self) {
        self.check_nothing_left();
        let mut plans: Vec<usize> = self.channels.admitted().collect();
        let refused = self.options.sabotage.revivals_refused;
        // Each is closed and released before the next one.
        let times = self.scenario.times;
        let apart = Nanos(times.empty.since(times.revives).0 / (REVIVALS + 1));
        for turn in 0..REVIVALS.min(plans.len() as u64) {
            let plan = plans.remove(self.dice.between(0, plans.len() as u64 - 1) as usize);
            let again = &mut self.scenario.channels[plan];
            (again.reopens, again.closes_at, again.silent, again.consents) = (false, None, false, !refused);
            self.queue.schedule(self.now + apart * turn, Event::Act(Act::Ask { plan }));
        }
    }
}
