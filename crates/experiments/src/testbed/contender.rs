//! One world of an echo experiment: a way to call, bulk beside it, and what its blocks found.

use punctual::Nanos;
use punctual_os::clock::{now, wait_until};

use super::{Place, RoleId};
use crate::loads::call::{Calls, Plan};
use crate::loads::{Bulk, Caller, Class};
use crate::measure::{Side, Windows};

/// Bulk runs this long before a block begins.
const SETTLE: Nanos = Nanos::from_millis(60);
/// What bulk leaves behind drains before the next block.
const DRAIN: Nanos = Nanos::from_millis(60);

/// Calls of one block.
#[derive(Clone, Copy, Debug)]
pub struct Block {
    /// How long.
    pub length: Nanos,
    /// Interval of calls; zero: the next at once.
    pub interval: Nanos,
    /// Bytes of a message.
    pub bytes: usize,
    /// Interval of the messages of bulk; zero: as fast as they are taken; `None`: no bulk.
    pub bulk: Option<Nanos>,
}

/// A world.
pub struct Contender {
    /// For tables.
    pub name: &'static str,
    /// Class of its client.
    pub class: Class,
    place: Place,
    caller: Box<dyn Caller>,
    /// Bulk and the sink that counts it.
    bulk: Option<(Bulk, RoleId)>,
    /// Measurements of the contender, by load.
    pub sides: Vec<Side>,
    /// Calls without an answer, by load.
    pub lost: Vec<u64>,
    /// When it was measured, by load.
    pub windows: Vec<Windows>,
    /// Blocks in which its client was to lead its engine, and did not to the end.
    pub led_no_more: u64,
    next: u64,
}

impl Contender {
    /// Calls through `caller` from `place`; `loads` different loads.
    pub fn new(
        name: &'static str,
        class: Class,
        place: &Place,
        caller: Box<dyn Caller>,
        loads: usize,
    ) -> Self {
        Self {
            name,
            class,
            place: place.clone(),
            caller,
            bulk: None,
            sides: vec![Side::default(); loads],
            lost: vec![0; loads],
            windows: vec![Windows::default(); loads],
            led_no_more: 0,
            next: 0,
        }
    }

    /// Gives it bulk, and the sink's number.
    #[must_use]
    pub fn with_bulk(self, bulk: Bulk, sink: RoleId) -> Self {
        Self { bulk: Some((bulk, sink)), ..self }
    }

    /// Sink of the contender's bulk traffic.
    pub fn sink(&self) -> Option<RoleId> {
        self.bulk.as_ref().map(|(_, sink)| *sink)
    }

    /// Runs a block under load number `load`.
    ///
    /// # Errors
    /// If the way breaks or the run is interrupted.
    pub fn block(&mut self, load: usize, block: &Block) -> anyhow::Result<()> {
        if let (Some((bulk, _)), true) = (&self.bulk, block.bulk.is_some()) {
            bulk.set(block.bulk);
            wait_until(now() + SETTLE)?;
        }
        let from = now();
        let found = self.run(block, from + block.length);
        self.windows[load].push(from, now());
        if let (Some((bulk, _)), true) = (&self.bulk, block.bulk.is_some()) {
            bulk.set(None);
            wait_until(now() + DRAIN)?;
        }
        let found = found?;
        self.next += found.samples.len() as u64 + found.lost;
        self.lost[load] += found.lost;
        self.led_no_more += u64::from(found.led_no_more);
        self.sides[load].push(found.samples);
        Ok(())
    }

    /// Runs a block on a thread of its host, in its class.
    fn run(&mut self, block: &Block, until: punctual::Instant) -> anyhow::Result<Calls> {
        // Namespaces are the sockets' affair; the thread only needs the CPU and the class.
        let (caller, first) = (self.caller.as_mut(), self.next);
        let plan = Plan { until, bytes: block.bytes, interval: block.interval };
        self.place.on_cpu(self.class, || caller.run(plan, first))
    }
}
