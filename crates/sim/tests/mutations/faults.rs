//! The faults, each with its checker.

use punctual_analysis::mutation::Mutation;

use crate::catchers::{Catcher, Hop, Talk};

/// A fault and its catcher.
pub struct Fault {
    /// The fault.
    pub mutation: Mutation,
    /// Name in the list.
    pub name: &'static str,
    /// The checker that detects it.
    pub catcher: Catcher,
}

const fn fault(mutation: Mutation, name: &'static str, catcher: Catcher) -> Fault {
    Fault { mutation, name, catcher }
}

use Catcher as C;
use Mutation as M;

/// All faults.
pub const FAULTS: &[Fault] = &[
    fault(M::BlockingOffByOnePacket, "blocking term off by one packet", C::Link),
    fault(M::MessageLevelCosts, "fixed priority with message-level costs", C::Oracle("fixed-priority")),
    fault(M::FirstInstanceOnly, "first-instance-only response times", C::Oracle("d-order")),
    fault(M::LimitWithoutBlocking, "test limit without blocking", C::Oracle("edf")),
    fault(M::DeadlineFilterAtDepthTwo, "deadline filter applied at depth 2", C::Stage("edf")),
    fault(M::ReleaseLatencyLeftOut, "release latency left out", C::Tight),
    fault(M::NoRepolicing, "no re-policing at a forwarder", C::Drawn),
    fault(M::PolicedByNumberAlone, "policing by message number alone", C::Arrivals),
    fault(M::UnpolicedInterval, "I in place of I' (no recovery after one late message)", C::Drawn),
    fault(M::SlackAtHandOver, "slack stamped at hand-over", C::Drawn),
    fault(M::SmallBestEffortPasses, "small best effort passes a head that does not fit the window", C::Drawn),
    fault(M::QueueThreeServedWhenIdle, "queue 3 served when idle", C::Drawn),
    fault(M::ZeroHorizonIgnored, "horizon ignored where it is 0", C::Drawn),
    fault(M::BestEffortFirst, "best effort before current", C::Drawn),
    fault(M::UnrelaxedBuffers, "buffers from unrelaxed bounds", C::Drawn),
    fault(M::LeaseNeverExpires, "lease never expires", C::Crash),
    fault(M::DuplicateCreateHeldTwice, "duplicate CREATE reserved twice", C::Twin),
    fault(M::RefuseKeepsHold, "REFUSE keeps one hop's hold", C::Drawn),
    fault(M::SignallingAsBestEffort, "signalling as plain best effort", C::Crowded),
    fault(M::OffsetErrorLeftOut, "the error of a clock's offset left out", C::Drawn),
    fault(M::LatenessBySlack, "lateness computed from slack", C::Breach),
    fault(M::HelloWithoutDeparture, "a HELLO that does not say when it leaves", C::Crowded),
    fault(M::BreachNotAnnounced, "a broken stage that is not announced", C::Breach),
    fault(M::ReceiverSilent, "a broken link that its receiver does not report", C::Breach),
    fault(M::RateErrorLeftOut, "the error of a measured rate without unevenness", C::Rate),
    fault(M::GrantBeforeShaper, "a grant leaves before the shaper has shrunk", C::Lent),
    fault(M::TailWithoutReleaseLatency, "the tail line of EDF's demand test without r", C::Demand),
    fault(M::ArrivalErrorWithoutDrift, "J without the clocks' drift", C::Talk(Talk::Bounds)),
    fault(M::SoftFromQueueThreeAsHard, "a soft head that comes from queue 3 ranks as hard", C::Order),
    fault(M::LinkChainIgnoresLateness, "a forwarder's link chain ignores lateness", C::Hop(Hop::Stillness)),
    fault(
        M::RefusedBestEffortKeepsFrame,
        "a best-effort frame lost for good when queue 2 refuses it",
        C::Hop(Hop::Heaps),
    ),
    fault(M::SessionNotCompared, "a neighbour's session not compared, only its epoch", C::Talk(Talk::OneWay)),
    fault(M::NoBackOff, "no back-off of retransmissions", C::Talk(Talk::Outage)),
    fault(M::HardEarlyNotCounted, "hard channels' early work not counted against soft ones", C::Soft),
    fault(M::TailExponentTenthOff, "the exponent of soft channels' misses a tenth too large", C::SoftLimit),
    fault(M::BucketWithoutArrivalError, "the filter's bucket without J", C::Hop(Hop::Bucket)),
    fault(M::OneRefreshOnly, "only the first 1,000 channels of a link refreshed", C::Talk(Talk::Crowd)),
    fault(
        M::FilterWithoutCompleting,
        "the forwarder's filter without its one extra message",
        C::Hop(Hop::Buffers),
    ),
    fault(M::FilterStays, "the filter of an ended channel stays", C::Drawn),
    fault(M::MovedTimerLost, "a handler's timer lost when it is moved", C::Tcp),
    fault(M::RemovedHandlerKeepsPlaces, "a handler that is removed keeps its places", C::Tcp),
    fault(M::BudgetPacketAsBestEffort, "a packet of a handler's budget queued as best effort", C::Tcp),
    fault(M::LowDelayWithoutBudget, "a low-delay handler without a budget", C::Tcp),
    fault(M::EverySecondSegmentCounted, "units counted once for two TCP segments", C::Tcp),
    fault(M::BytesWaitForSilence, "written bytes wait until nothing is in flight", C::Endsystems),
    fault(M::TimeWaitLeftOut, "a flow given back before TIME-WAIT is over", C::Tcp),
    fault(M::EndBeforeLastBytes, "the end of a stream before its last bytes", C::Tcp),
    fault(
        M::AcknowledgedEndUnreachable,
        "a closed connection unreachable because its path has ended",
        C::Tcp,
    ),
];
