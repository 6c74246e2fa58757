//! Measures the actual time of a unit of work, including its share of operations for many units at once:
//! receiving packets, and the system calls that hand them out.

use punctual_proto::Nanos;
use punctual_proto::api::WorkKind;

/// The shares of the last batches.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Meter {
    /// Taking one packet in.
    input: Nanos,
    /// Time for handing out the packets of one unit.
    output: Nanos,
    /// Units since the last hand-out that made packets.
    units: u64,
}

impl Meter {
    /// `packets` came in within `took`.
    pub fn received(&mut self, packets: usize, took: Nanos) {
        self.input = Nanos(took.0 / (packets as u64).max(1));
    }

    /// Records that the drivers have handed out the packets of the units since the last call.
    pub fn flushed(&mut self, took: Nanos) {
        if let Some(each) = took.0.checked_div(core::mem::take(&mut self.units)) {
            self.output = Nanos(each);
        }
    }

    /// A unit of `kind` with `packets` packets took `own` for itself.
    pub fn unit(&mut self, kind: WorkKind, packets: u32, own: Nanos) -> Nanos {
        let input = match kind {
            WorkKind::Forward | WorkKind::Receive => self.input * u64::from(packets),
            _ => Nanos::ZERO,
        };
        let output = match kind {
            WorkKind::Send | WorkKind::Forward => {
                self.units += 1;
                self.output
            }
            _ => Nanos::ZERO,
        };
        own + input + output
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_go_to_those_that_cause_them() {
        let mut meter = Meter::default();
        meter.received(4, Nanos(400));
        assert_eq!(meter.unit(WorkKind::Receive, 2, Nanos(50)), Nanos(250));
        assert_eq!(meter.unit(WorkKind::Send, 1, Nanos(50)), Nanos(50));
        assert_eq!(meter.unit(WorkKind::Forward, 1, Nanos(50)), Nanos(150));
        meter.flushed(Nanos(600));
        assert_eq!(meter.unit(WorkKind::Send, 1, Nanos(50)), Nanos(350));
        assert_eq!(meter.unit(WorkKind::BestEffort, 1, Nanos(50)), Nanos(50));
        meter.received(0, Nanos(7));
    }
}
