//! An engine of this process, as the service sees it. Embedded endsystems and `punctuald` are made of the same parts; the
//! daemon only adds a socket that other processes can connect to.

use std::cell::{OnceCell, RefCell};
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use punctual_engine::capture::CaptureFilter;
use punctual_engine::tcp::TcpRefusal;
use punctual_engine::{Engine, EngineError, EngineHandle, Events, HostMemory, LinkReport, SchedulingClass};
use punctual_ipc::api::{
    CapturedLink, ClassStatus, DriverDrops, DriverStatus, EngineStatus, ProfileStatus, Quotas,
};
use punctual_ipc::ring::{InboxWriter, OutboxReader};
use punctual_ipc::wake::{Alarm, Rank};
use punctual_link::Link;
use punctual_os::attributes::{self, Attributes, attributes, set_attributes};
use punctual_os::calls::{self, Forbidden};
use punctual_os::realtime::RealTime;
use punctual_os::{heap, now};
use punctual_proto::api::{
    Account, BrokenStage, CloseReason, Event, LateStage, LinkChange, MeasuredRate, RateRefusal, RequestError,
    UserId,
};
use punctual_proto::config::{LinkConfig, NodeConfig};
use punctual_proto::ids::{ChannelId, LinkId, Name, NodeId};
use punctual_proto::node::Node;
use punctual_proto::{Contract, Instant, Nanos};
use thiserror::Error;

use crate::calibration::{CalibrationError, calibrate};
use crate::config::{ConfigError, DaemonConfig, HostConfig, LinkDriver, TcpRights};
use crate::priorities::Priorities;
use crate::service::{Host, HostGone};
use crate::tcp::daemon::DaemonTcp;
use crate::tcp::{TcpLink, TcpSetup, rings_cost};

use crate::journal::{Journal, Line};
use crate::profile_rings::SharedRings;
use crate::ringer_rank::RingerRank;

/// A host that did not start.
#[derive(Debug, Error)]
pub enum HostError {
    /// The configuration, or a link of it.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The engine.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// The cost of protocol work on this host is not available.
    #[error(transparent)]
    Profile(#[from] CalibrationError),
    /// The system.
    #[error("cannot start the host's API: {0}")]
    System(io::Error),
}

/// A running engine with this system's rings, as the API service sees it.
pub struct EngineHost {
    engine: EngineHandle<OutboxReader, InboxWriter>,
    events: Events,
    /// The node's configuration, for names of hosts and of links.
    node: NodeConfig,
    best_effort_host: bool,
    real_time: RealTime,
    forbidden_calls: Forbidden,
    /// The processor sleeps whenever it has no work.
    sleeps: bool,
    /// Priorities of co-scheduled threads; `None`: it is not allowed.
    co_scheduling: Option<Priorities>,
    profile: ProfileStatus,
    journal: RefCell<Journal>,
    tcp_setup: TcpSetup,
    tcp: OnceCell<DaemonTcp>,
    tcp_rights: TcpRights,
    capturing: Capturing,
}

/// What captures of packets need to know.
struct Capturing {
    links: Vec<CapturedLink>,
    /// Users who may capture, beside root and the daemon's own.
    users: Vec<UserId>,
}

/// A host that has the costs of protocol work, and has not opened any link or socket yet.
pub struct Prepared {
    config: HostConfig,
    profile: ProfileStatus,
}

impl Prepared {
    /// Loads the profile, or measures a short one if there is none.
    ///
    /// # Errors
    /// See [`HostError`].
    pub fn new(config: &HostConfig) -> Result<Self, HostError> {
        let mut config = config.clone();
        let profile = calibrate(&mut config, &SharedRings)?;
        Ok(Self { config, profile })
    }

    /// Starts the engine on `links`, which are in the order of the configuration.
    ///
    /// # Errors
    /// See [`HostError`]; everything is undone then.
    pub fn start(self, links: Vec<Box<dyn Link>>) -> Result<EngineHost, HostError> {
        let Self { config, profile } = self;
        let sleeps = config.spin == Nanos::ZERO && links.iter().all(|link| link.spins().longest() == 0);
        let engine = Engine::start(config.engine_config(links)?)?;
        let (tcp_setup, capturing) = (tcp_setup(&config), Capturing::of(&config));
        let events = engine.events();
        Ok(EngineHost {
            engine,
            events,
            best_effort_host: config.is_best_effort_host(),
            real_time: config.real_time,
            forbidden_calls: config.forbidden_calls,
            sleeps,
            co_scheduling: config.co_scheduling,
            profile,
            journal: RefCell::new(Journal::new(&config.node)),
            node: config.node,
            tcp_setup,
            tcp: OnceCell::new(),
            tcp_rights: config.daemon.tcp_rights,
            capturing,
        })
    }
}

fn tcp_setup(config: &HostConfig) -> TcpSetup {
    let links = config.node.links.iter().zip(&config.drivers).zip(0..);
    let rooms = links.filter(|((_, driver), _)| driver.tcp_rooms()[0] > 0);
    let links = rooms.map(|((link, driver), id)| TcpLink {
        id: LinkId(id),
        packet_bytes: link.packet_bytes_max.min(link.best_effort_bytes_max()),
        device: driver.device().map(str::to_owned),
    });
    TcpSetup {
        links: links.collect(),
        segment: config.segment,
        rings: rings_cost(&config.node.cpu.costs),
        forbidden: config.forbidden_calls,
    }
}

impl Capturing {
    fn of(config: &HostConfig) -> Self {
        let link = |(link, driver): (&LinkConfig, &dyn LinkDriver)| {
            let ends = driver.ends().map(|ends| {
                [0, 1].map(|port| {
                    let ours = SocketAddr::new(ends.local, ends.ports[port]);
                    [ours, SocketAddr::new(ends.peer, ends.peer_ports[port])]
                })
            });
            CapturedLink { name: link.name.to_string(), ends }
        };
        let drivers = config.drivers.iter().map(|driver| &**driver);
        let links = config.node.links.iter().zip(drivers).map(link).collect();
        Self { links, users: config.daemon.capture_users.clone() }
    }
}

impl EngineHost {
    /// What its TCP is made of.
    pub(crate) const fn tcp_setup(&self) -> &TcpSetup {
        &self.tcp_setup
    }

    fn start_tcp(&self, setup: TcpSetup, alarm: &Alarm) -> io::Result<()> {
        let tcp = DaemonTcp::start(self.engine.clone(), setup, alarm);
        // It is started once.
        let _ = self.tcp.set(tcp.map_err(io::Error::other)?);
        Ok(())
    }

    /// A handle with which a thread calls the node on the processor's thread.
    pub(crate) fn engine(&self) -> EngineHandle<OutboxReader, InboxWriter> {
        self.engine.clone()
    }

    /// The drivers of the links and their counters, for `status`.
    fn link_reports(&self) -> Vec<DriverStatus> {
        // An engine that has stopped has none.
        let reports = self.engine.link_reports().unwrap_or_default();
        let both = self.node.links.iter().zip(&reports);
        both.map(|(link, report)| driver_status(&link.name, report)).collect()
    }

    /// The source of the processor's costs.
    pub fn profile(&self) -> &ProfileStatus {
        &self.profile
    }
}

impl Host for EngineHost {
    type Memory = HostMemory<OutboxReader, InboxWriter>;
    type Scheduling = Attributes;

    fn priority(&self, contract: &Contract) -> Result<u8, String> {
        if self.best_effort_host {
            return Err("this is a best-effort host: nothing runs in a real-time class here".into());
        }
        let allowed = self.co_scheduling.as_ref();
        allowed.map(|priorities| priorities.of(contract)).ok_or_else(|| {
            "this host does not allow it: set co_schedule = true in [processor] of its configuration".into()
        })
    }

    fn scheduling(&self, thread: u32) -> Result<Attributes, String> {
        attributes(thread).map_err(|error| format!("thread {thread}: {error}"))
    }

    fn set_priority(&self, thread: u32, priority: u8) -> Result<(), String> {
        set_attributes(thread, Attributes::Fifo { priority }).map_err(|error| {
            format!(
                "SCHED_FIFO priority {priority} was refused for thread {thread} ({error}): run the daemon as root or \
                 grant it CAP_SYS_NICE"
            )
        })
    }

    fn restore(&self, thread: u32, before: Attributes) {
        // Only a thread that has just ended cannot be set back.
        let _ = attributes::restore(thread, before);
    }

    fn rank(&self) -> Box<dyn Rank> {
        Box::new(RingerRank::of(self.real_time, self.sleeps, self.forbidden_calls))
    }

    fn resolve(&self, host: &Name) -> Result<NodeId, RequestError> {
        self.node.resolve(host)
    }

    fn call<R, F>(&self, request: F) -> Result<R, HostGone>
    where
        R: Send + 'static,
        F: FnOnce(&mut Node<Self::Memory>, Instant) -> R + Send + 'static,
    {
        self.engine.call_in_background(request).map_err(|_| HostGone)
    }

    fn filter_accounts(&self) -> Result<Vec<Account>, HostGone> {
        self.engine.filter_accounts().map_err(|_| HostGone)
    }

    fn watch(
        &self,
        channel: ChannelId,
        doorbell: Arc<OwnedFd>,
        payer: Option<UserId>,
    ) -> Result<Nanos, String> {
        self.engine.watch(channel, doorbell, payer).map_err(|error| error.to_string())
    }

    fn unwatch(&self, channel: ChannelId) {
        // A stopped engine has dropped all doorbells already.
        let _ = self.engine.unwatch(channel);
    }

    fn serve_tcp(&self, alarm: &Alarm) -> io::Result<()> {
        if self.tcp_setup.links.is_empty() { Ok(()) } else { self.start_tcp(self.tcp_setup.clone(), alarm) }
    }

    fn serve_joined_tcp(&self, alarm: &Alarm) -> io::Result<()> {
        let setup = || TcpSetup { links: Vec::new(), ..self.tcp_setup.clone() };
        if self.tcp.get().is_some() { Ok(()) } else { self.start_tcp(setup(), alarm) }
    }

    fn tcp(&self) -> Option<&DaemonTcp> {
        self.tcp.get()
    }

    fn tcp_rights(&self) -> &TcpRights {
        &self.tcp_rights
    }

    fn captured_links(&self) -> Vec<CapturedLink> {
        self.capturing.links.clone()
    }

    fn may_capture(&self, user: UserId) -> bool {
        self.capturing.users.contains(&user)
    }

    fn begin_capture(
        &self,
        channel: ChannelId,
        filter: CaptureFilter,
        ring: (InboxWriter, u32),
    ) -> Result<(), String> {
        match self.engine.capture(channel, filter, ring) {
            Ok(begun) => begun.map_err(|busy| busy.to_string()),
            Err(error) => Err(error.to_string()),
        }
    }

    fn end_capture(&self, channel: ChannelId) {
        // A stopped engine has ended it.
        let _ = self.engine.end_capture(channel);
    }

    fn try_next_event(&self) -> Result<Option<Event>, HostGone> {
        self.events.try_next().map_err(|_| HostGone)
    }

    fn events(&self) -> BorrowedFd<'_> {
        self.events.as_fd()
    }

    fn link_changed(&self, link: LinkId, change: LinkChange) {
        let line = self.journal.borrow_mut().link(link, change, now());
        line.into_iter().for_each(Line::write);
    }

    fn rate_measured(&self, link: LinkId, result: Result<MeasuredRate, RateRefusal>) {
        let line = self.journal.borrow_mut().rate(link, result, now());
        line.into_iter().for_each(Line::write);
    }

    fn stage_changed(&self, stage: &BrokenStage, healed: bool) {
        let line = self.journal.borrow_mut().stage(stage, healed, now());
        line.into_iter().for_each(Line::write);
    }

    fn stage_late(&self, stage: &LateStage) {
        let line = self.journal.borrow_mut().late(stage, now());
        line.into_iter().for_each(Line::write);
    }

    fn channel_closed(&self, account: UserId, what: &str, reason: CloseReason) {
        let line = self.journal.borrow_mut().closed(account, what, reason, now());
        line.into_iter().for_each(Line::write);
    }

    fn tcp_refused(&self, account: UserId, peer: SocketAddr, why: &TcpRefusal) {
        let line = self.journal.borrow_mut().tcp_refused(account, peer, why, now());
        line.into_iter().for_each(Line::write);
    }

    fn expect_room(&self, bytes: u64) {
        heap::expect(usize::try_from(bytes).unwrap_or(usize::MAX));
    }

    fn statistics(&self) -> EngineStatus {
        let counted = self.engine.statistics();
        EngineStatus {
            best_effort_host: self.best_effort_host,
            class: class_status(self.real_time.class, counted.runtime_ns),
            runtimes_refused: counted.runtimes_refused,
            wakes: counted.wakes,
            loops: counted.loops,
            loop_ns_max: counted.loop_ns_max,
            work_units: counted.work_units,
            late_wakes: counted.late_wakes,
            wake_late_ns_max: counted.wake_late_ns_max,
            receive_pool_dry: counted.receive_pool_dry,
            driver_full: counted.driver_full,
            stalls: counted.stalls,
            links_failed: counted.links_failed,
            filters_failed: counted.filters_failed,
            system_calls_refused: calls::refused(),
            heap_waits: heap::waits(),
            profile: self.profile.clone(),
            links: self.link_reports(),
        }
    }

    fn stop(&self) {
        // An engine that had failed is stopped too; its failure was an event of its own.
        let _ = self.engine.stop();
    }
}

fn class_status(class: SchedulingClass, runtime_ns: u64) -> ClassStatus {
    match class {
        SchedulingClass::Fifo { priority } => ClassStatus::Fifo { priority },
        SchedulingClass::Deadline { period } => ClassStatus::Deadline { runtime_ns, period_ns: period.0 },
        SchedulingClass::BestEffortHost => ClassStatus::BestEffort,
    }
}

fn driver_status(name: &str, report: &LinkReport) -> DriverStatus {
    let LinkReport { mode, facts, statistics: counted, drops, foreign_bps, failed } = report;
    DriverStatus {
        name: name.into(),
        mode: mode.clone(),
        failed: *failed,
        facts: facts.iter().cloned().collect(),
        foreign_bps: *foreign_bps,
        packets_in: counted.packets_in,
        packets_out: counted.packets_out,
        overflows: counted.overflows,
        send_errors: counted.send_errors,
        send_waits: counted.send_waits,
        pool_dry: counted.pool_dry,
        truncated: counted.truncated,
        drops: DriverDrops {
            policed: drops.policed,
            malformed: drops.malformed,
            unknown: drops.unknown,
            wrong_cookie: drops.wrong_cookie,
            no_buffer: drops.no_buffer,
            expired: drops.expired,
            replayed: drops.replayed,
            fragmented: drops.fragmented,
        },
    }
}

/// The quotas of a configuration.
pub fn quotas(daemon: &DaemonConfig) -> Quotas {
    Quotas {
        users: daemon.users_max.into(),
        clients: daemon.connections_per_user_max.into(),
        listeners: daemon.listeners_per_user_max.into(),
        channels: daemon.channels_per_user_max.into(),
        buffer_bytes: daemon.buffer_bytes_per_user_max,
        unread_bytes: daemon.unread_bytes_per_user_max,
        descriptors: daemon.descriptors_per_user_max.into(),
        request_share: daemon.request_share_per_user_max,
    }
}
