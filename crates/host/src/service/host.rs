//! The engine as the service uses it. `ipc` does not depend on the engine: the crate that has an engine
//! implements this trait.

use std::net::SocketAddr;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;

use punctual_analysis::{Contract, Instant, Nanos};
use punctual_proto::api::{
    Account, BrokenStage, CloseReason, Event, LateStage, LinkChange, MeasuredRate, RateRefusal, RequestError,
    UserId,
};
use punctual_proto::ids::{ChannelId, LinkId, Name, NodeId};
use punctual_proto::memory::Memory;
use punctual_proto::node::Node;
use thiserror::Error;

use punctual_engine::capture::CaptureFilter;
use punctual_engine::tcp::TcpRefusal;
use punctual_ipc::api::{CapturedLink, EngineStatus};
use punctual_ipc::ring::{InboxWriter, OutboxReader};
use punctual_ipc::wake::{Alarm, Rank};

use crate::config::TcpRights;
use crate::tcp::daemon::DaemonTcp;

/// The engine has stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the engine has stopped")]
pub struct HostGone;

/// A running engine whose node uses this crate's rings.
pub trait Host {
    /// Types of the host's buffers.
    type Memory: Memory<Outbox = OutboxReader, Inbox = InboxWriter> + 'static;

    /// How a thread was scheduled.
    type Scheduling: Copy;

    /// The `SCHED_FIFO` priority of the threads that take a channel's messages.
    ///
    /// # Errors
    /// A message that explains why this host gives none.
    fn priority(&self, contract: &Contract) -> Result<u8, String>;

    /// How a thread is currently scheduled.
    ///
    /// # Errors
    /// A message that explains why that is not available.
    fn scheduling(&self, thread: u32) -> Result<Self::Scheduling, String>;

    /// Gives a thread a `SCHED_FIFO` priority.
    ///
    /// # Errors
    /// A message with the reason and the fix.
    fn set_priority(&self, thread: u32, priority: u8) -> Result<(), String>;

    /// Restores a thread's former scheduling; a thread that has ended needs no action.
    fn restore(&self, thread: u32, before: Self::Scheduling);

    /// How the threads are scheduled that ring bells of programs.
    fn rank(&self) -> Box<dyn Rank>;

    /// Another host of the directory.
    ///
    /// # Errors
    /// If there is no host of that name, or if it is this host.
    fn resolve(&self, host: &Name) -> Result<NodeId, RequestError>;

    /// The bursts of all channels that are open here, or about to be, take `bytes` of the processor's memory: has them ready,
    /// so that the processor does not wait for them.
    fn expect_room(&self, bytes: u64);

    /// Runs `request` on the processor's thread.
    ///
    /// # Errors
    /// If the engine has stopped.
    fn call<R, F>(&self, request: F) -> Result<R, HostGone>
    where
        R: Send + 'static,
        F: FnOnce(&mut Node<Self::Memory>, Instant) -> R + Send + 'static;

    /// Compares the filters of the drivers with the channels that come in; empty where no driver has filters.
    ///
    /// # Errors
    /// If the engine has stopped.
    fn filter_accounts(&self) -> Result<Vec<Account>, HostGone>;

    /// From now on a ring of `doorbell` makes the node check the outgoing ring of `channel`, until
    /// [`Host::unwatch`]. Soon after that only the caller holds it. Rings of the doorbell beyond the contract
    /// count in the allowance of `payer`, which all its channels and flows share; `None`: in an allowance of
    /// this doorbell alone. Returns how much of the processor's time the call took; it runs after messages,
    /// as [`Host::call`] does.
    ///
    /// # Errors
    /// A message that explains why not.
    fn watch(
        &self,
        channel: ChannelId,
        doorbell: Arc<OwnedFd>,
        payer: Option<UserId>,
    ) -> Result<Nanos, String>;

    /// Has the doorbell forgotten, and does not wait for that.
    fn unwatch(&self, channel: ChannelId);

    /// Begins to serve TCP of the host's own, if it has room for some; `alarm` rings when something of it has happened.
    ///
    /// # Errors
    /// If the engine refuses what all connections need, or threads run out.
    fn serve_tcp(&self, alarm: &Alarm) -> std::io::Result<()>;

    /// Has TCP over channels served, if TCP is not served yet.
    ///
    /// # Errors
    /// See [`Host::serve_tcp`].
    fn serve_joined_tcp(&self, alarm: &Alarm) -> std::io::Result<()>;

    /// TCP of the host's own; `None`: it has none.
    fn tcp(&self) -> Option<&DaemonTcp>;

    /// Users who may use TCP through this host, and for which addresses and ports.
    fn tcp_rights(&self) -> &TcpRights;

    /// All links, in the order of their numbers, for a capture.
    fn captured_links(&self) -> Vec<CapturedLink>;

    /// Whether this user may capture packets, who is neither root nor the daemon's own.
    fn may_capture(&self, user: UserId) -> bool;

    /// Copies packets into a ring with messages of so many bytes, until [`Host::end_capture`].
    ///
    /// # Errors
    /// A message that explains why not.
    fn begin_capture(
        &self,
        channel: ChannelId,
        filter: CaptureFilter,
        ring: (InboxWriter, u32),
    ) -> Result<(), String>;

    /// Ends a capture; without effect if it has ended.
    fn end_capture(&self, channel: ChannelId);

    /// The node's next event, if there is one.
    ///
    /// # Errors
    /// If the engine has stopped and every event was read.
    fn try_next_event(&self) -> Result<Option<Event>, HostGone>;

    /// Readable while there may be events.
    fn events(&self) -> BorrowedFd<'_>;

    /// Logs a change of a link.
    fn link_changed(&self, link: LinkId, change: LinkChange);

    /// Logs the measured drain rate of a link, or why it was not measured.
    fn rate_measured(&self, link: LinkId, result: Result<MeasuredRate, RateRefusal>);

    /// Logs that a stage breaks its promise, or has recovered.
    fn stage_changed(&self, stage: &BrokenStage, healed: bool);

    /// Logs that a stage was late, and is not broken for it.
    fn stage_late(&self, stage: &LateStage);

    /// Logs why a channel that ends here was closed, unless a program closed it on purpose. `what`: "to
    /// PORT@HOST" at its source, "PORT from HOST" at its sink. Lines of one `account` take no room from those
    /// of others.
    fn channel_closed(&self, account: UserId, what: &str, reason: CloseReason);

    /// Logs that a connection was refused which a listener of `account` had opened for `peer`. Lines of one `account` take no room
    /// from those of others.
    fn tcp_refused(&self, account: UserId, peer: SocketAddr, why: &TcpRefusal);

    /// The processor's counters, for `status`.
    fn statistics(&self) -> EngineStatus;

    /// Tears every channel down and ends the engine; bounded in time.
    fn stop(&self);
}
