//! Deliberate faults, for the mutation check: proof that the checkers detect them.
//!
//! Each [`Mutation`] is a mistake that a maintainer could make, switched in at the place where it would be
//! made. Without the feature `mutations`, which no released program enables, [`active`] is a constant `false`
//! and the faults are not compiled in. With it, one process-wide switch selects the fault, if any.
//! `docs/GUARANTEES.md`, "Mutation check", lists what catches each.

/// A fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Mutation {
    /// The blocking by a link's window is one packet too small.
    BlockingOffByOnePacket = 1,
    /// Response times assume that a whole message is safe from preemption once it has begun.
    MessageLevelCosts,
    /// Response times are those of the first message of a busy period.
    FirstInstanceOnly,
    /// The demand-bound test ends at the limit without blocking.
    LimitWithoutBlocking,
    /// A window of several packets blocks only if an admitted channel is less urgent.
    DeadlineFilterAtDepthTwo,
    /// Admission assumes that messages are ready when they arrive.
    ReleaseLatencyLeftOut,
    /// A forwarder trusts the arrival that a packet states.
    NoRepolicing,
    /// All packets with one message number count as one message.
    PolicedByNumberAlone,
    /// Effective arrivals are I apart, not I'.
    UnpolicedInterval,
    /// Slack is stamped with the time of hand-over, not of the latest departure.
    SlackAtHandOver,
    /// Best effort that fits the window passes a guaranteed packet that does not.
    SmallBestEffortPasses,
    /// An idle link serves early packets.
    QueueThreeServedWhenIdle,
    /// Links do not hold packets whose horizon is zero.
    ZeroHorizonIgnored,
    /// Queue 2 is served before queue 1.
    BestEffortFirst,
    /// Buffers are computed from the offered bounds, not from the relaxed ones.
    UnrelaxedBuffers,
    /// A reservation that is not refreshed stays.
    LeaseNeverExpires,
    /// A CREATE for a known path is treated as a new one.
    DuplicateCreateHeldTwice,
    /// A forwarder that forwards a REFUSE keeps its reservation.
    RefuseKeepsHold,
    /// Signalling has no channel of its own on links.
    SignallingAsBestEffort,
    /// A hop converts a logical arrival to its clock and does not add the error of the conversion.
    OffsetErrorLeftOut,
    /// A sink reports lateness by slack, which ends when a packet is handed to the driver.
    LatenessBySlack,
    /// A HELLO does not state that it waits for the adapter.
    HelloWithoutDeparture,
    /// A host that knows that its stage is broken does not report it.
    BreachNotAnnounced,
    /// A host that knows that a link to it is broken leaves it to that link's owner to notify the hosts
    /// beyond.
    ReceiverSilent,
    /// The error of a measured rate does not include the unevenness of the packets.
    RateErrorLeftOut,
    /// A grant is sent before the shaper of kernel traffic has returned to a share at which its bound holds.
    GrantBeforeShaper,
    /// The line above EDF's demand, where its steps end, leaves out the release latency of messages.
    TailWithoutReleaseLatency,
    /// The error of arrivals leaves out the drift of clocks within the previous bounds.
    ArrivalErrorWithoutDrift,
    /// A soft channel whose head becomes current in queue 3 is ranked as a hard one.
    SoftFromQueueThreeAsHard,
    /// A forwarder's link assumes that packets are there when they are due, though the processor delivered
    /// them later.
    LinkChainIgnoresLateness,
    /// A best-effort packet that queue 2 refuses counts as held forever.
    RefusedBestEffortKeepsFrame,
    /// A neighbour that gave up and began another session is treated as the same one.
    SessionNotCompared,
    /// Retransmissions have a constant interval.
    NoBackOff,
    /// Soft channels are admitted as if hard ones were never served early.
    HardEarlyNotCounted,
    /// The exponent of the probability that soft channels need more time than there is, is a tenth too large.
    TailExponentTenthOff,
    /// The driver's bucket leaves out the error of arrivals.
    BucketWithoutArrivalError,
    /// Only those channels of a link are refreshed that fit into the first message.
    OneRefreshOnly,
    /// A forwarder's driver gets only the buffers of the bounds, without the message that completes late.
    FilterWithoutCompleting,
    /// A driver keeps the filter of a channel that has ended.
    FilterStays,
    /// A timer of a handler that is moved is lost.
    MovedTimerLost,
    /// A handler that is removed keeps its places in admission.
    RemovedHandlerKeepsPlaces,
    /// A packet of a handler's budget is queued as best effort.
    BudgetPacketAsBestEffort,
    /// A low-delay handler runs in its class without regard to its budget.
    LowDelayWithoutBudget,
    /// A call of a TCP handler counts every second segment.
    EverySecondSegmentCounted,
    /// Bytes that a program has written wait until nothing is in flight.
    BytesWaitForSilence,
    /// A connection is over as soon as it is in TIME-WAIT.
    TimeWaitLeftOut,
    /// The end of a stream is shown before the last bytes are read.
    EndBeforeLastBytes,
    /// A connection whose channels end while only acknowledgements are missing counts as unreachable.
    AcknowledgedEndUnreachable,
}

/// Whether the core has this fault.
#[cfg(not(feature = "mutations"))]
#[inline(always)]
pub const fn active(_: Mutation) -> bool {
    false
}

#[cfg(feature = "mutations")]
pub use switch::{active, choose};

#[cfg(feature = "mutations")]
mod switch {
    use core::sync::atomic::{AtomicU8, Ordering};

    use super::Mutation;

    /// The chosen fault as a number; 0 if there is none.
    static CHOSEN: AtomicU8 = AtomicU8::new(0);

    /// Selects a fault of the core in this process, or none. No other test may run in the process meanwhile.
    pub fn choose(mutation: Option<Mutation>) {
        CHOSEN.store(mutation.map_or(0, |mutation| mutation as u8), Ordering::SeqCst);
    }

    /// Whether the core has this fault.
    #[inline]
    pub fn active(mutation: Mutation) -> bool {
        CHOSEN.load(Ordering::Relaxed) == mutation as u8
    }
}
