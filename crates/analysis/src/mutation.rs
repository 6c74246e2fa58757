//! Deliberate faults, for the mutation check: proof that the checkers would see them.
//!
//! Each [`Mutation`] is a mistake that a maintainer could make, switched in where it would be made. Without the
//! feature `mutations`, which nothing that ships enables, [`active`] is a constant `false` and the faults are not
//! even compiled in. With it, one process-wide switch says which fault there is, if any.
//! `docs/GUARANTEES.md`, "Mutation check", says what catches each.

/// A fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Mutation {
    /// The window of a link blocks for a packet less than it holds.
    BlockingOffByOnePacket = 1,
    /// Response times take a whole message to be safe from preemption once it has begun.
    MessageLevelCosts,
    /// Response times are those of the first message of a busy period.
    FirstInstanceOnly,
    /// The demand-bound test ends where it would end without blocking.
    LimitWithoutBlocking,
    /// A window of several packets blocks only if something admitted is less urgent.
    DeadlineFilterAtDepthTwo,
    /// Admission takes messages to be ready when they arrive.
    ReleaseLatencyLeftOut,
    /// A forwarder believes what a packet says about its arrival.
    NoRepolicing,
    /// Whatever carries one message number counts as one message.
    PolicedByNumberAlone,
    /// Effective arrivals lie I apart, not I'.
    UnpolicedInterval,
    /// Slack is stamped with the time of hand-over, not of the latest departure.
    SlackAtHandOver,
    /// Best effort that fits the window passes a guaranteed packet that does not.
    SmallBestEffortPasses,
    /// An idle link serves what is early.
    QueueThreeServedWhenIdle,
    /// Links do not hold packets whose horizon is zero.
    ZeroHorizonIgnored,
    /// Queue 2 goes before queue 1.
    BestEffortFirst,
    /// Buffers are those of the bounds that were offered, not of the relaxed ones.
    UnrelaxedBuffers,
    /// A reservation that is not refreshed stays.
    LeaseNeverExpires,
    /// A CREATE for a path that is known is taken for a new one.
    DuplicateCreateHeldTwice,
    /// A forwarder that passes a REFUSE on keeps what it holds.
    RefuseKeepsHold,
    /// Signalling has no channel of its own on links.
    SignallingAsBestEffort,
    /// A hop moves a logical arrival to its clock and does not say what that may be wrong by.
    OffsetErrorLeftOut,
    /// A sink reports lateness by slack, which ends where a packet is handed to the driver.
    LatenessBySlack,
    /// A HELLO does not say that it waits for the adapter.
    HelloWithoutDeparture,
    /// A host that knows that its stage is broken does not report it.
    BreachNotAnnounced,
    /// A host that knows that a link to it is broken leaves it to that link's owner to tell those beyond.
    ReceiverSilent,
    /// The error of a measured rate leaves out how unevenly packets came.
    RateErrorLeftOut,
    /// A grant leaves before the shaper of kernel traffic has gone back to where its bound holds.
    GrantBeforeShaper,
    /// The line above EDF's demand, where its steps end, leaves out how late messages become ready.
    TailWithoutReleaseLatency,
    /// The error of arrivals leaves out what clocks drift apart within the bounds before.
    ArrivalErrorWithoutDrift,
    /// A soft channel whose head becomes current in queue 3 ranks as if it were hard.
    SoftFromQueueThreeAsHard,
    /// A forwarder's link takes packets to be there when they are due, though the processor had them until later.
    LinkChainIgnoresLateness,
    /// A best-effort packet that queue 2 refuses counts as held for ever.
    RefusedBestEffortKeepsFrame,
    /// A neighbour that gave up and began another session is taken for the same one.
    SessionNotCompared,
    /// What is not acknowledged is sent again at one pace.
    NoBackOff,
    /// Soft channels are admitted as if hard ones were never served ahead of their time.
    HardEarlyNotCounted,
    /// The driver's bucket leaves out the error of arrivals.
    BucketWithoutArrivalError,
    /// Only those channels of a link are refreshed that the first message names.
    OneRefreshOnly,
    /// A forwarder's driver gets the buffers of the bounds only, without the message that completes late.
    FilterWithoutCompleting,
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

    /// Gives the core of this process a fault, or none. Whoever chooses runs nothing else meanwhile.
    pub fn choose(mutation: Option<Mutation>) {
        CHOSEN.store(mutation.map_or(0, |mutation| mutation as u8), Ordering::SeqCst);
    }

    /// Whether the core has this fault.
    #[inline]
    pub fn active(mutation: Mutation) -> bool {
        CHOSEN.load(Ordering::Relaxed) == mutation as u8
    }
}
