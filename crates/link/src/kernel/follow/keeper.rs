//! The ordinary side: one thread for all links of a host.

use std::fmt;
use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use thiserror::Error;

use super::mailbox::{KeeperMessage, Mailbox};
use crate::kernel::bell::Bell;
use crate::kernel::hops::{HopKeeper, Hops, hops_with};
use crate::kernel::{
    CareOptions, Change, Device, DeviceCare, DeviceLog, KernelError, Mac, PathRequest, RESOLVE_PATIENCE,
    ShaperRate, Watcher,
};
use crate::{Link, LinkError, Spins};

/// How often to request neighbours that the kernel itself does not need, and to check everything again.
const REFRESH: Duration = Duration::from_secs(10);
/// Interval between attempts to open a link whose device is there, and to find a neighbour that has not
/// answered.
const RETRY: Duration = Duration::from_millis(250);

/// Makes drivers for one link.
pub trait Opener: Send {
    /// Opens a driver on the device, which is there and can carry it.
    ///
    /// # Errors
    /// The errors of the driver.
    fn open(&mut self, device: &Device) -> Result<Box<dyn Link>, LinkError>;

    /// What packets carry from now on, those of the driver that is open and of every later one; `None`: the next hop has
    /// not answered yet.
    fn set_addresses(&mut self, source: Mac, destination: Option<Mac>);
}

/// A link to open and to follow.
pub struct Follow {
    /// The way that it goes.
    pub request: PathRequest,
    /// Settings that the link's device must have.
    pub care: CareOptions,
    /// How long to poll for packets before sleeping.
    pub spins: Spins,
    /// Makes its drivers.
    pub opener: Box<dyn Opener>,
}

/// The link that could not be opened, by its place in the list.
#[derive(Debug, Error)]
#[error("{error}")]
pub struct FollowError {
    /// Place of the link in the list; `None`: no link can be opened.
    pub link: Option<usize>,
    /// Why it could not be opened.
    pub error: LinkError,
}

/// The thread; dropping it stops it and puts all devices back.
pub(super) struct Keeper {
    stop: Arc<AtomicBool>,
    bell: Arc<Bell>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Keeper {
    /// Starts the thread; `begin` is the first that it does.
    ///
    /// # Errors
    /// If there is no thread, or the error of `begin`.
    pub(super) fn start(
        mut watcher: Watcher,
        mut links: Vec<Kept>,
        bell: Arc<Bell>,
        begin: impl FnOnce() -> io::Result<()> + Send + 'static,
    ) -> io::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let (stopping, rung) = (Arc::clone(&stop), Arc::clone(&bell));
        let (began, begun) = channel();
        let thread = std::thread::Builder::new().name("punctual-links".into()).spawn(move || {
            let done = begin();
            let goes_on = done.is_ok();
            // The caller that starts the thread waits for this.
            let _ = began.send(done);
            if goes_on {
                keep(&mut watcher, &mut links, &rung, &stopping);
            }
        })?;
        begun.recv().map_err(io::Error::other)??;
        Ok(Self { stop, bell, thread: Mutex::new(Some(thread)) })
    }
}

/// The thread's work, until it is to stop.
fn keep(watcher: &mut Watcher, links: &mut [Kept], rung: &Bell, stopping: &AtomicBool) {
    let mut refreshed = Instant::now();
    while !stopping.load(Ordering::Acquire) {
        while let Some((number, change)) = watcher.poll_change() {
            links[number].apply(change);
        }
        let unfinished = links.iter_mut().map(Kept::go_on).filter(|done| !done).count() > 0;
        wait(watcher, links, rung, if unfinished { RETRY } else { REFRESH });
        if refreshed.elapsed() >= if unfinished { RETRY } else { REFRESH } {
            refreshed = Instant::now();
            watcher.refresh();
            for link in &mut *links {
                link.hops.refresh();
                link.check();
            }
        }
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        self.bell.ring();
        let thread = self.thread.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        // A panic there has been printed; unwinding has restored the devices.
        let _ = thread.map(JoinHandle::join);
    }
}

impl fmt::Debug for Keeper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Keeper")
    }
}

fn wait(watcher: &Watcher, links: &[Kept], bell: &Bell, at_most: Duration) {
    let hops = links.iter().flat_map(|link| link.hops.descriptors());
    let all = [watcher.descriptor(), bell.as_fd()].into_iter().chain(hops);
    let mut descriptors: Vec<PollFd<'_>> =
        all.map(|descriptor| PollFd::from_borrowed_fd(descriptor, PollFlags::IN)).collect();
    let (tv_sec, tv_nsec) = (at_most.as_secs() as i64, i64::from(at_most.subsec_nanos()));
    // An interrupted wait is a short one.
    let _ = poll(&mut descriptors, Some(&Timespec { tv_sec, tv_nsec }));
    bell.clear();
}

/// The current place of a link's driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// The link has the driver.
    Open,
    /// The link has been requested to return its driver.
    Withdrawn,
    /// Nowhere.
    Closed,
}

/// A link as the keeper sees it.
pub(super) struct Kept {
    request: PathRequest,
    options: CareOptions,
    opener: Box<dyn Opener>,
    pub(super) mailbox: Arc<Mailbox>,
    hops: HopKeeper,
    care: Option<DeviceCare>,
    stage: Stage,
    tried: Instant,
    /// Bits a second that kernel traffic is held to.
    shaped_bps: Option<u64>,
    /// Rate of kernel traffic that the link was given last.
    reported_bps: Option<u64>,
    log: DeviceLog,
}

impl Kept {
    /// Opens the link, and takes its device into care.
    ///
    /// # Errors
    /// If the way, the driver or the device cannot be had.
    pub(super) fn open(
        follow: Follow,
        watcher: &mut Watcher,
        bell: Arc<Bell>,
    ) -> Result<(Self, Box<dyn Link>, Hops), LinkError> {
        let Follow { request, care: options, mut opener, .. } = follow;
        let path = request.find(RESOLVE_PATIENCE)?;
        opener.set_addresses(path.source, path.destination);
        let driver = opener.open(&path.device)?;
        let care = DeviceCare::take(&path.device, request.queue, options)?;
        let (hops, hop_keeper) = hops_with(&request.device, Arc::clone(&bell))?;
        let mailbox = Mailbox::new(bell)
            .map_err(|error| LinkError::Os { what: "a mailbox for the link".into(), error })?;
        *mailbox.condition() = super::mailbox::Condition {
            device: request.device.clone(),
            source: path.source,
            destination: path.destination,
            down: !path.device.carrier,
            shaper: options.kernel_rate,
            shaper_follows: options.link_rate_bps.is_some(),
            napi_priority: options.napi_priority,
            interrupt_defer_ns: options.interrupt_defer_ns,
            ..Default::default()
        };
        watcher.add(request.clone(), &path);
        let mut kept = Self {
            request,
            options,
            opener,
            mailbox: Arc::new(mailbox),
            hops: hop_keeper,
            care: Some(care),
            stage: Stage::Open,
            tried: Instant::now(),
            shaped_bps: options.kernel_rate.map(|rate| rate.rate_bps),
            reported_bps: None,
            log: DeviceLog::default(),
        };
        kept.check();
        Ok((kept, driver, hops))
    }

    fn apply(&mut self, change: Change) {
        let mailbox = Arc::clone(&self.mailbox);
        let mut condition = mailbox.condition();
        match change {
            Change::Mac { source, destination } => {
                (condition.source, condition.destination) = (source, destination);
                self.opener.set_addresses(source, destination);
            }
            Change::Mtu { mtu, fits } => {
                condition.mtu_too_small = (!fits).then(|| (mtu, self.request.mtu_needed()));
            }
            Change::Down => condition.down = true,
            Change::Up => {
                condition.down = false;
                drop(condition);
                // A veth that is switched on has new NAPI instances.
                self.renew();
            }
            Change::Gone => {
                condition.closed = Some(format!("interface {} is gone", self.request.device));
                drop(condition);
                self.close();
            }
            Change::Back => {}
            Change::RouteMoved(why) => condition.route_moved = Some(why),
            Change::RouteBack => condition.route_moved = None,
        }
    }

    /// Takes the driver back; puts the device back as far as it is there.
    fn close(&mut self) {
        if self.stage == Stage::Open {
            self.mailbox.send(KeeperMessage::Withdraw);
            self.stage = Stage::Withdrawn;
        }
        self.care = None;
    }

    /// Does the pending work; returns whether none is left.
    fn go_on(&mut self) -> bool {
        if let Some((driver, why)) = self.mailbox.collect() {
            drop(driver);
            self.care = None;
            self.stage = Stage::Closed;
            if why.is_some() {
                self.mailbox.condition().closed = why;
            }
        }
        if self.stage == Stage::Closed && self.tried.elapsed() >= RETRY {
            self.tried = Instant::now();
            self.reopen();
        }
        if self.hops.poll() {
            // Connections that wait for a route check it again.
            self.mailbox.link.ring();
        }
        let is_shaped = self.shape();
        let is_answered = self.mailbox.condition().destination.is_some() && !self.hops.is_waiting();
        let is_told = self.tell();
        self.stage == Stage::Open && is_answered && is_shaped && is_told
    }

    /// Writes to the log what is wrong with the device, or that it is right again; returns whether the log says how it is.
    fn tell(&mut self) -> bool {
        let trouble = self.mailbox.condition().device_trouble();
        self.log.tell(&self.request.device, trouble.clone(), Instant::now());
        !self.log.is_outdated(trouble.as_deref())
    }

    /// Limits kernel traffic to the rate that the link requests; returns whether it is limited to that. A
    /// device that is gone sends nothing, so the limit is set when it is back.
    fn shape(&mut self) -> bool {
        let Some(wanted) = self.mailbox.shaper_wanted() else { return true };
        if self.shaped_bps != Some(wanted) {
            let Some(care) = &mut self.care else { return false };
            let changed = care.follow(wanted);
            let mut condition = self.mailbox.condition();
            condition.unshaped = changed.as_ref().err().map(|error| format!("kernel traffic: {error}"));
            if changed.is_err() {
                return false;
            }
            condition.shaper = condition.shaper.map(|rate| ShaperRate { rate_bps: wanted, ..rate });
            self.shaped_bps = Some(wanted);
        }
        if self.reported_bps != Some(wanted) {
            self.reported_bps = Some(wanted);
            self.mailbox.report_shaped(wanted);
        }
        true
    }

    fn reopen(&mut self) {
        let opened = self.try_open();
        let mut condition = self.mailbox.condition();
        match opened {
            Ok((driver, care)) => {
                condition.closed = None;
                drop(condition);
                self.care = Some(care);
                self.mailbox.send(KeeperMessage::Install(driver));
                self.stage = Stage::Open;
                self.check();
            }
            // It is gone, as was said when it went.
            Err(LinkError::Kernel(KernelError::NoDevice(_))) if condition.closed.is_some() => (),
            Err(error) => condition.closed = Some(error.to_string()),
        }
    }

    fn try_open(&mut self) -> Result<(Box<dyn Link>, DeviceCare), LinkError> {
        let device = self.request.device()?;
        self.opener.set_addresses(device.ethernet()?, self.mailbox.condition().destination);
        let driver = self.opener.open(&device)?;
        let care = DeviceCare::take(&device, self.request.queue, self.options)?;
        self.shaped_bps = self.options.kernel_rate.map(|rate| rate.rate_bps);
        Ok((driver, care))
    }

    /// Restores the requested settings of the device.
    fn renew(&mut self) {
        let Some(care) = &mut self.care else { return };
        let renewed = care.renew();
        self.check();
        if let Err(error) = renewed {
            self.mailbox.condition().neglected = Some(error.to_string());
        }
    }

    /// Checks whether the device has the requested settings.
    fn check(&mut self) {
        let Some(care) = &self.care else { return };
        let wanted = self.options;
        let (threads, neglected) = match care.status() {
            Ok(status) => {
                let threads: Vec<u32> = status.threads.iter().map(|(thread, _)| *thread).collect();
                (threads, status.trouble(&wanted))
            }
            Err(KernelError::NoNapi(_)) if self.mailbox.condition().down => (Vec::new(), None),
            Err(error) => (Vec::new(), Some(error.to_string())),
        };
        let mut condition = self.mailbox.condition();
        condition.napi_threads = threads;
        condition.neglected = neglected;
    }
}
