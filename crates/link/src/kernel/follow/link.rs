//! The real-time side: a link that survives its device.

use std::cell::{Ref, RefCell};
use std::collections::HashMap;
use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::event::epoll;

use super::keeper::Keeper;
use super::mailbox::{Condition, KeeperMessage, Mailbox};
use crate::kernel::Watched;
use crate::kernel::hops::Hops;
use crate::{
    Filter, FlowFilter, FlowKey, Frame, Link, LinkError, LinkStatistics, ListenerFilter, NextHop, PathKey,
    Port, Received, SealKey, Spins, Stream, StreamDrops,
};

type Driver = Box<dyn Link>;

/// What was set in the driver for incoming packets. A later driver of the link gets the same.
#[derive(Default)]
struct Installed {
    filters: HashMap<PathKey, Filter>,
    flows: HashMap<FlowKey, FlowFilter>,
    listeners: HashMap<SocketAddr, ListenerFilter>,
    neighbour: Option<SealKey>,
}

impl Installed {
    /// A system call for each, on a link where nothing has been kept for a long while.
    fn install(&self, driver: &mut Driver) -> Result<(), LinkError> {
        self.filters.values().try_for_each(|filter| driver.set_filter(filter))?;
        self.listeners.values().try_for_each(|listener| driver.set_listener(listener))?;
        self.flows.values().try_for_each(|flow| driver.set_flow(flow))?;
        self.neighbour.map_or(Ok(()), |key| driver.set_neighbour(key))
    }
}

/// A link whose driver is closed while its device is gone, and opened anew when it is back.
pub struct FollowedLink {
    driver: Option<Driver>,
    /// A driver to return, for which the mailbox was not free.
    leaving: Option<(Driver, Option<String>)>,
    mailbox: Arc<Mailbox>,
    /// Readable with the mailbox's bell, and with every driver but the first: the engine queries the
    /// descriptors only once, at the start.
    gate: OwnedFd,
    /// Whether the driver is the first.
    first: bool,
    installed: Installed,
    hops: Hops,
    /// Buffer for what is sent without a driver.
    void: Vec<u8>,
    /// Wire bytes that the driver has and has not completed.
    outstanding_bytes: u64,
    /// Wire bytes that went to the void.
    void_bytes: u64,
    void_packets: u64,
    /// Counts of the drivers that the link had before.
    statistics: LinkStatistics,
    drops: StreamDrops,
    packet_bytes_max: usize,
    ip_bytes_max: usize,
    spins: Spins,
    /// The condition of the device when the mailbox was last free.
    condition: RefCell<Condition>,
    watched: Option<Watched>,
    /// The last link to go stops it.
    _keeper: Arc<Keeper>,
}

impl FollowedLink {
    pub(super) fn new(
        driver: Driver,
        mailbox: Arc<Mailbox>,
        spins: Spins,
        hops: Hops,
        keeper: Arc<Keeper>,
    ) -> io::Result<Self> {
        let gate = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        watch(&gate, mailbox.link.as_fd())?;
        let (packet_bytes_max, ip_bytes_max) = (driver.packet_bytes_max(), driver.ip_bytes_max());
        Ok(Self {
            driver: Some(driver),
            leaving: None,
            mailbox,
            gate,
            first: true,
            installed: Installed::default(),
            hops,
            void: vec![0; packet_bytes_max.max(ip_bytes_max)],
            outstanding_bytes: 0,
            void_bytes: 0,
            void_packets: 0,
            statistics: LinkStatistics::default(),
            drops: StreamDrops::default(),
            packet_bytes_max,
            ip_bytes_max,
            spins,
            condition: RefCell::default(),
            watched: None,
            _keeper: keeper,
        })
    }

    /// From now on counts in an account what the link sends over its device.
    pub fn watch(&mut self, watched: Watched) {
        self.watched = Some(watched);
    }

    /// The problem of the device that its watching thread has reported.
    fn device_trouble(&self) -> Option<String> {
        self.watched.as_ref()?.condition().trouble
    }

    /// Whether there is a driver now.
    pub fn is_open(&self) -> bool {
        self.driver.is_some()
    }

    fn condition(&self) -> Ref<'_, Condition> {
        if let Some(condition) = self.mailbox.glance() {
            self.condition.replace(condition);
        }
        self.condition.borrow()
    }

    /// Takes what the keeper has left. Costs one check of a flag if there is nothing.
    fn check(&mut self) {
        if let Some((driver, why)) = self.leaving.take() {
            self.leaving = self.mailbox.give_back(driver, why).err();
        }
        match self.mailbox.take() {
            None => {}
            Some(KeeperMessage::Withdraw) => self.lose(None),
            Some(KeeperMessage::Install(driver)) => self.install(driver),
        }
    }

    /// Works without a driver from now on. Packets that the driver had not completed are lost.
    fn lose(&mut self, why: Option<String>) {
        let Some(driver) = self.driver.take() else { return };
        self.statistics += driver.statistics();
        self.drops += driver.stream_drops();
        self.void_bytes += std::mem::take(&mut self.outstanding_bytes);
        self.leaving = self.mailbox.give_back(driver, why).err();
    }

    /// Works with this driver from now on.
    fn install(&mut self, mut driver: Driver) {
        self.lose(None);
        let result = self.installed.install(&mut driver);
        let watched =
            driver.descriptors().into_iter().try_for_each(|descriptor| watch(&self.gate, descriptor));
        self.first = false;
        self.driver = Some(driver);
        if let Err(error) =
            result.map_err(|error| error.to_string()).and(watched.map_err(|error| error.to_string()))
        {
            self.lose(Some(error));
        }
    }

    /// Handles the result of an operation on the driver; a driver that cannot continue is returned to the
    /// keeper.
    fn outcome<R>(&mut self, result: Result<R, LinkError>, otherwise: R) -> Result<R, LinkError> {
        match result {
            Err(LinkError::Os { what, error }) => {
                self.lose(Some(format!("{what}: {error}")));
                Ok(otherwise)
            }
            result => result,
        }
    }
}

fn watch(gate: &OwnedFd, descriptor: BorrowedFd<'_>) -> io::Result<()> {
    let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
    Ok(epoll::add(gate, descriptor, epoll::EventData::new_u64(0), flags)?)
}

impl Link for FollowedLink {
    fn receive(&mut self, out: &mut Vec<Received>, max: usize) -> Result<usize, LinkError> {
        self.receive_from(Stream::BestEffort, out, max)
    }

    fn receive_from(
        &mut self,
        least: Stream,
        out: &mut Vec<Received>,
        max: usize,
    ) -> Result<usize, LinkError> {
        self.check();
        let Some(driver) = &mut self.driver else { return Ok(0) };
        let received = driver.receive_from(least, out, max);
        self.outcome(received, 0)
    }

    fn transmit_buffer(&mut self) -> Option<&mut [u8]> {
        match &mut self.driver {
            Some(driver) => driver.transmit_buffer(),
            None => Some(&mut self.void[..self.packet_bytes_max]),
        }
    }

    fn transmit(&mut self, port: Port, len: usize, wire_bytes: u32) -> Result<(), LinkError> {
        let Some(driver) = &mut self.driver else {
            (self.void_packets, self.void_bytes) =
                (self.void_packets + 1, self.void_bytes + u64::from(wire_bytes));
            return Ok(());
        };
        let queued = driver.transmit(port, len, wire_bytes);
        if queued.is_ok() {
            self.outstanding_bytes += u64::from(wire_bytes);
            self.watched.iter().for_each(|watched| watched.count(len));
        }
        self.outcome(queued, ())
    }

    fn transmit_frame(&mut self, port: Port, frame: Frame, wire_bytes: u32) -> Result<(), Frame> {
        let Some(driver) = &mut self.driver else { return Err(frame) };
        let bytes = frame.as_ref().len();
        driver.transmit_frame(port, frame, wire_bytes)?;
        self.watched.iter().for_each(|watched| watched.count(bytes));
        self.outstanding_bytes += u64::from(wire_bytes);
        Ok(())
    }

    fn set_filter(&mut self, filter: &Filter) -> Result<(), LinkError> {
        let result = self.driver.as_mut().map_or(Ok(()), |driver| driver.set_filter(filter));
        if result.is_ok() {
            self.installed.filters.insert(filter.path, *filter);
        }
        result
    }

    fn set_neighbour(&mut self, key: SealKey) -> Result<(), LinkError> {
        self.installed.neighbour = Some(key);
        self.driver.as_mut().map_or(Ok(()), |driver| driver.set_neighbour(key))
    }

    fn clear_filter(&mut self, path: PathKey) -> Result<(), LinkError> {
        self.installed.filters.remove(&path);
        self.driver.as_mut().map_or(Ok(()), |driver| driver.clear_filter(path))
    }

    fn filters(&self) -> Option<Vec<Filter>> {
        Some(self.installed.filters.values().copied().collect())
    }

    fn set_flow(&mut self, flow: &FlowFilter) -> Result<(), LinkError> {
        let result = self.driver.as_mut().map_or(Ok(()), |driver| driver.set_flow(flow));
        if result.is_ok() {
            self.installed.flows.insert(flow.key, *flow);
        }
        result
    }

    fn clear_flow(&mut self, flow: FlowKey) -> Result<(), LinkError> {
        self.installed.flows.remove(&flow);
        self.driver.as_mut().map_or(Ok(()), |driver| driver.clear_flow(flow))
    }

    fn set_listener(&mut self, listener: &ListenerFilter) -> Result<(), LinkError> {
        let result = self.driver.as_mut().map_or(Ok(()), |driver| driver.set_listener(listener));
        if result.is_ok() {
            self.installed.listeners.insert(listener.local, *listener);
        }
        result
    }

    fn clear_listener(&mut self, local: SocketAddr) -> Result<(), LinkError> {
        self.installed.listeners.remove(&local);
        self.driver.as_mut().map_or(Ok(()), |driver| driver.clear_listener(local))
    }

    fn next_hop(&mut self, remote: IpAddr) -> Result<NextHop, LinkError> {
        if self.ip_bytes_max == 0 {
            return Err(LinkError::NoFlows(self.mode()));
        }
        Ok(self.hops.to(remote))
    }

    fn transmit_ip_buffer(&mut self) -> Option<&mut [u8]> {
        match &mut self.driver {
            Some(driver) => driver.transmit_ip_buffer(),
            None => Some(&mut self.void[..self.ip_bytes_max]).filter(|void| !void.is_empty()),
        }
    }

    fn transmit_ip(&mut self, hop: &NextHop, len: usize, wire_bytes: u32) -> Result<(), LinkError> {
        let Some(driver) = &mut self.driver else {
            self.void_packets += 1;
            self.void_bytes += u64::from(wire_bytes);
            return Ok(());
        };
        let queued = driver.transmit_ip(hop, len, wire_bytes);
        if queued.is_ok() {
            self.outstanding_bytes += u64::from(wire_bytes);
            self.watched.iter().for_each(|watched| watched.count_ip(len));
        }
        self.outcome(queued, ())
    }

    fn ip_bytes_max(&self) -> usize {
        self.ip_bytes_max
    }

    fn flush(&mut self) -> Result<(), LinkError> {
        self.check();
        let Some(driver) = &mut self.driver else { return Ok(()) };
        let flushed = driver.flush();
        self.outcome(flushed, ())
    }

    fn is_pending(&self) -> bool {
        self.leaving.is_some() || self.driver.as_ref().is_some_and(|driver| driver.is_pending())
    }

    fn completed(&mut self) -> u32 {
        let completed = self.driver.as_mut().map_or(0, |driver| driver.completed());
        self.outstanding_bytes = self.outstanding_bytes.saturating_sub(completed.into());
        // The part beyond 32 bits is reported the next time.
        let void = self.void_bytes.min(u64::from(u32::MAX - completed));
        self.void_bytes -= void;
        completed + void as u32
    }

    fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        let first = self.driver.iter().filter(|_| self.first).flat_map(|driver| driver.descriptors());
        first.chain([self.gate.as_fd()]).collect()
    }

    fn best_effort_descriptor(&self) -> Option<BorrowedFd<'_>> {
        // The descriptors of later drivers are behind the gate.
        self.driver.as_ref().filter(|_| self.first)?.best_effort_descriptor()
    }

    fn packet_bytes_max(&self) -> usize {
        self.packet_bytes_max
    }

    fn statistics(&self) -> LinkStatistics {
        let now = self.driver.as_ref().map(|driver| driver.statistics()).unwrap_or_default();
        let all = self.statistics + now;
        LinkStatistics { send_errors: all.send_errors + self.void_packets, ..all }
    }

    fn stream_drops(&self) -> StreamDrops {
        let now = self.driver.as_ref().map(|driver| driver.stream_drops()).unwrap_or_default();
        self.drops + now
    }

    fn foreign_bps(&self) -> Option<u64> {
        self.watched.as_ref()?.foreign_bps()
    }

    fn shape(&mut self, rate_bps: u64) {
        self.mailbox.shape(rate_bps);
    }

    fn shaped(&mut self) -> Option<u64> {
        self.mailbox.shaped()
    }

    fn mode(&self) -> String {
        let mode = self.driver.as_ref().map_or_else(|| "closed".into(), |driver| driver.mode());
        match self.condition().trouble().or_else(|| self.device_trouble()) {
            Some(trouble) => format!("{mode}; {trouble}"),
            None => mode,
        }
    }

    fn spins(&self) -> Spins {
        self.spins
    }

    fn facts(&self) -> Vec<(&'static str, String)> {
        let mut facts = self.condition().facts();
        if self.condition().trouble().is_none() {
            facts.extend(self.device_trouble().map(|trouble| ("trouble", trouble)));
        }
        facts.extend(self.driver.iter().flat_map(|driver| driver.facts()));
        facts
    }
}

impl fmt::Debug for FollowedLink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FollowedLink({})", self.mode())
    }
}
