//! Scans from the least urgent channel upwards for the channels that tolerate a newcomer. A witness suffices
//! for most; the exact response time decides about the others.

use super::response::{Place, Tally, Traffic, Witness};
use super::{Entry, Ranked, Slot};
use crate::units::Nanos;

/// State of a scan from the least urgent channel upwards.
struct Scan {
    /// Index that separates the entries: those before it are counted in `ahead`, the others in `unit`.
    end: usize,
    ahead: Tally,
    /// The largest unit of the others, as [`Blocking`](crate::Blocking) takes it.
    unit: Nanos,
}

impl Ranked {
    /// All channels before index `end`, counted from the nearer side.
    pub(super) fn ahead_of(&self, end: usize) -> Tally {
        if end > self.entries.len() / 2 {
            let mut ahead = self.kinds.clone();
            self.entries[end..].iter().for_each(|entry| ahead.remove(entry.kind));
            return ahead;
        }
        let mut ahead = self.kinds.emptied();
        self.entries[..end].iter().for_each(|entry| ahead.add(entry.kind));
        ahead
    }

    /// Moves a scan up to `end`.
    fn raise(&self, scan: &mut Scan, end: usize) {
        for entry in self.entries.get(end..scan.end).unwrap_or_default() {
            scan.unit = scan.unit.max(entry.demand.unit_cost_max);
            scan.ahead.remove(entry.kind);
        }
        scan.end = scan.end.min(end);
    }

    /// Whether entry `index` keeps its bound with `newcomer` ahead of it (or none); renews its witness. The
    /// scan has been raised to the end of its peers.
    fn keeps(&mut self, index: usize, newcomer: Option<&Traffic>, scan: &mut Scan) -> bool {
        let Entry { demand, kind, bound, .. } = self.entries[index];
        scan.ahead.remove(kind);
        let blocking = self.model.blocking.by(scan.unit);
        let place = Place { newcomer, ..self.place(&demand, &scan.ahead, blocking) };
        let keeps = place.response(bound).is_some();
        if let Some(mut fresh) = keeps.then(|| place.witness(bound)).flatten() {
            // Stored without the newcomer, which may never be admitted.
            fresh.spare += newcomer.map_or(Nanos::ZERO, |traffic| traffic.within(fresh.window));
            self.entries[index].witness = Some(fresh);
        }
        scan.ahead.add(kind);
        keeps
    }

    /// The smallest index from which on all channels tolerate `newcomer` ahead.
    pub(super) fn tolerated_from(&mut self, newcomer: &Traffic) -> usize {
        let mut scan = Scan { end: self.entries.len(), ahead: self.kinds.clone(), unit: Nanos::ZERO };
        for index in (0..self.entries.len()).rev() {
            let proved = |witness: Witness| witness.carries(Some(newcomer), Nanos::ZERO);
            if self.entries[index].witness.is_some_and(proved) {
                continue;
            }
            self.raise(&mut scan, self.peers(index).end);
            if !self.keeps(index, Some(newcomer), &mut scan) {
                return index + 1;
            }
        }
        0
    }

    /// Whether all channels more urgent than `slot` keep their bounds with a unit of `unit` behind them.
    pub(super) fn tolerate_unit(&mut self, unit: Nanos, slot: Slot) -> bool {
        let blocking = self.model.blocking.by(unit);
        if blocking == self.model.blocking.by(Nanos::ZERO) {
            return true;
        }
        let unit = self.unit_from(slot.urgent).max(unit);
        let mut scan = Scan { end: slot.urgent, ahead: self.ahead_of(slot.urgent), unit };
        (0..slot.urgent).rev().all(|index| {
            let proved = |witness: Witness| witness.carries(None, blocking);
            self.entries[index].witness.is_some_and(proved) || {
                self.raise(&mut scan, self.peers(index).end);
                self.keeps(index, None, &mut scan)
            }
        })
    }
}
