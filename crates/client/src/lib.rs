//! Guaranteed channels for applications.
//!
//! A program states a contract: its messages have at most S bytes, there are at most R a second, in bursts of
//! at most B, and each must arrive within D. The network admits or refuses it. If it admits it, every message
//! that keeps the contract arrives in time, whatever else happens on the hosts and links in between.
//!
//! ```no_run
//! use punctual::{Consent, Contract, Endsystem, Nanos, Rate};
//!
//! // At the receiver, on host "b":
//! let b = Endsystem::connect()?;
//! let listener = b.listen("cam", |request| {
//!     if request.from == "a" { Consent::Accept } else { Consent::refuse("only from a") }
//! })?;
//!
//! // At the sender, on host "a": 25 frames a second of at most 110 KB, each within 80 ms.
//! let a = Endsystem::connect()?;
//! let rate = Rate::per_second(25).ok_or("rate")?;
//! let mut channel = a.open("cam@b", Contract::new(110_000, rate, 1, Nanos::from_millis(80))?)?;
//! channel.send(b"a frame")?;
//!
//! let mut receiver = listener.accept()?;
//! receiver.recv_in_place(|bytes, info| println!("{} B, number {}", bytes.len(), info.number))?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Ownership: an [`Endsystem`], its [`Listener`]s, [`Channel`]s and [`Receiver`]s share one connection, which
//! ends with the last of them. The daemon then closes what is still open. Messages do not travel over the
//! connection: they are in shared memory between this process and the host's engine.

mod agents;
pub mod capture;
mod channel;
mod connection;
#[cfg(feature = "embedded")]
mod embedded;
mod endsystem;
mod error;
mod events;
mod handler;
mod latency;
#[cfg(feature = "embedded")]
mod lead;
mod listener;
#[cfg(feature = "embedded")]
mod overruns;
mod processor;
mod receiver;
pub mod rtu;
mod state;
pub mod tcp;

pub use channel::{Channel, Opening};
pub use endsystem::{Endsystem, SOCKET_VARIABLE};
pub use error::{ConnectError, Error, OpenError, RecvError, SendError, failure, one_line, reason_text};
pub use events::{ChannelEvent, ChannelWatch, Ending};
pub use handler::{Handler, Reply};
/// The types that a program needs to implement an admission policy: see `examples/own_policy.rs`.
#[cfg(feature = "embedded")]
pub mod policy {
    pub use punctual_analysis::{
        Admission, AdmissionPolicy, Demand, Explanation, Offer, Policy, Refusal, RefusalReason, RunPolicy,
        StageKey, StageModel,
    };
}

pub use agents::{ChannelRequest, Consent, IncomingRequest};
pub use latency::OneWayLatency;
#[cfg(feature = "embedded")]
pub use lead::Lead;
pub use listener::Listener;
pub use receiver::Receiver;
pub use state::ChannelState;

pub use punctual_analysis::{
    Activation, BitRate, Contract, ContractError, CostParts, Delivery, FlowName, Guarantee, Horizon, Instant,
    Late, Nanos, Policing, Ppb, Ppm, Rate, Statistical,
};
/// The types that a program needs to implement a link driver: see `examples/own_driver.rs`.
#[cfg(feature = "embedded")]
pub use punctual_host::config::{self, HostConfig};
pub use punctual_ipc::api::{
    ApiError, ApiStatus, Audit, ClassStatus, DriverDrops, DriverStatus, EngineStatus, HandlerStatus,
    HostStatus, ProfileStatus, SOCKET_DEFAULT, WrongCount,
};
pub use punctual_ipc::ring::now;
pub use punctual_proto::api::{
    BrokenStage, BusyRecord, Cause, ChannelCounters, ChannelRefusal, ChannelStatus, CloseReason,
    DegradedPlace, DropCounters, ForeignVersion, Grant, HostName, LateStage, LinkStatus, LostAt, LostWhy,
    MeasuredRate, NodeStatus, PathRecord, RateRefusal, RateStatus, Receipt, RefuseCause, Role, SeenIn,
    StageGrant, StageKind, UserId, WakeRecord, WorkKind, name_of,
};
pub use punctual_proto::breach::Lateness;
pub use punctual_proto::config::{CostSource, Degraded, KernelTraffic};
pub use punctual_proto::ids::{Address, ChannelId, Name};
pub use punctual_proto::latencies::{Bucket, Observation, Observed};
pub use punctual_proto::memory::{MessageInfo, Timeliness};
pub use punctual_proto::words::{counted, rate_text};
