//! What keeper and link leave for each other.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

use crate::Link;
use crate::kernel::bell::Bell;
use crate::kernel::{Mac, ShaperRate};

type Driver = Box<dyn Link>;

/// Message from the keeper to the link.
pub(super) enum KeeperMessage {
    /// Give the driver back.
    Withdraw,
    /// Installs a driver.
    Install(Driver),
}

/// See the module. The link only tries the locks; the keeper holds them only while it moves a value.
pub(super) struct Mailbox {
    waiting: AtomicBool,
    parcel: Mutex<Option<KeeperMessage>>,
    returned: Mutex<Option<(Driver, Option<String>)>>,
    condition: Mutex<Condition>,
    /// Rate in bits a second to which kernel traffic is to be limited, and the last one that was set; 0: no
    /// request.
    shaper_wanted: AtomicU64,
    shaper_done: AtomicU64,
    /// Wakes the link's thread.
    pub link: Bell,
    /// Wakes the keeper.
    pub keeper: Arc<Bell>,
}

impl Mailbox {
    pub fn new(keeper: Arc<Bell>) -> io::Result<Self> {
        Ok(Self {
            waiting: AtomicBool::new(false),
            parcel: Mutex::default(),
            returned: Mutex::default(),
            condition: Mutex::default(),
            shaper_wanted: AtomicU64::new(0),
            shaper_done: AtomicU64::new(0),
            link: Bell::new()?,
            keeper,
        })
    }

    /// For the keeper: leaves a parcel in place of one that was not taken.
    pub fn send(&self, parcel: KeeperMessage) {
        *locked(&self.parcel) = Some(parcel);
        self.waiting.store(true, Ordering::Release);
        self.link.ring();
    }

    /// For the link: takes the parcel, if the mailbox is free.
    pub fn take(&self) -> Option<KeeperMessage> {
        if !self.waiting.load(Ordering::Acquire) {
            return None;
        }
        let mut parcel = try_locked(&self.parcel)?;
        self.waiting.store(false, Ordering::Relaxed);
        self.link.clear();
        parcel.take()
    }

    /// For the link: requests another rate of kernel traffic. The link calls it once for each change and not
    /// for each packet, because it wakes the keeper.
    pub fn shape(&self, rate_bps: u64) {
        self.shaper_wanted.store(rate_bps, Ordering::Release);
        self.keeper.ring();
    }

    /// For the link: the rate that was set since the last call.
    pub fn shaped(&self) -> Option<u64> {
        if self.shaper_done.load(Ordering::Relaxed) == 0 {
            return None;
        }
        self.link.clear();
        // The same bell reports a parcel.
        if self.waiting.load(Ordering::Acquire) {
            self.link.ring();
        }
        Some(self.shaper_done.swap(0, Ordering::Acquire)).filter(|rate_bps| *rate_bps > 0)
    }

    /// For the keeper: the requested rate limit of kernel traffic; `None`: the initial one.
    pub fn shaper_wanted(&self) -> Option<u64> {
        Some(self.shaper_wanted.load(Ordering::Acquire)).filter(|rate_bps| *rate_bps > 0)
    }

    /// Keeper: it is.
    pub fn report_shaped(&self, rate_bps: u64) {
        self.shaper_done.store(rate_bps, Ordering::Release);
        self.link.ring();
    }

    /// For the link: returns its driver with the reason, if the mailbox is free; else the caller keeps both.
    pub fn give_back(&self, driver: Driver, why: Option<String>) -> Result<(), (Driver, Option<String>)> {
        match try_locked(&self.returned) {
            Some(mut returned) => *returned = Some((driver, why)),
            None => return Err((driver, why)),
        }
        self.keeper.ring();
        Ok(())
    }

    /// For the keeper: the driver that the link has returned.
    pub fn collect(&self) -> Option<(Driver, Option<String>)> {
        locked(&self.returned).take()
    }

    /// For the link: a copy of the device's condition, if the mailbox is free.
    pub fn glance(&self) -> Option<Condition> {
        try_locked(&self.condition).map(|condition| condition.clone())
    }

    /// For the keeper: the device's condition.
    pub fn condition(&self) -> MutexGuard<'_, Condition> {
        locked(&self.condition)
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn try_locked<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    match mutex.try_lock() {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

/// The state of a link's device as the keeper sees it, for status reports.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Condition {
    pub device: String,
    pub source: Mac,
    pub destination: Option<Mac>,
    pub down: bool,
    /// The device's MTU, and the one that the link needs, if that is larger.
    pub mtu_too_small: Option<(u32, u32)>,
    pub route_moved: Option<String>,
    /// Why there is no driver.
    pub closed: Option<String>,
    /// Why the device does not have the requested settings.
    pub neglected: Option<String>,
    pub shaper: Option<ShaperRate>,
    pub shaper_follows: bool,
    /// Why the shaper's rate could not be changed.
    pub unshaped: Option<String>,
    pub napi_priority: Option<u8>,
    pub napi_threads: Vec<u32>,
    pub interrupt_defer_ns: u64,
}

impl Condition {
    /// The problem, if any.
    pub fn trouble(&self) -> Option<String> {
        let silent = self.destination.is_none().then(|| "the neighbour does not answer".to_owned());
        self.of_device().or(silent).or_else(|| self.of_settings())
    }

    /// The problem of the device, or of its settings, if any.
    pub fn device_trouble(&self) -> Option<String> {
        self.of_device().or_else(|| self.of_settings())
    }

    fn of_device(&self) -> Option<String> {
        let Self { device, .. } = self;
        let closed = self.closed.clone();
        let down = self.down.then(|| format!("interface {device} is down or has no carrier"));
        let mtu = self.mtu_too_small.map(|(mtu, needed)| {
            format!("MTU {mtu} of {device} is too small: ip link set {device} mtu {needed}")
        });
        [closed, down, mtu, self.route_moved.clone()].into_iter().flatten().next()
    }

    fn of_settings(&self) -> Option<String> {
        self.neglected.clone().or_else(|| self.unshaped.clone())
    }

    /// Names and values.
    pub fn facts(&self) -> Vec<(&'static str, String)> {
        let mut facts = vec![("device", self.device.clone()), ("address", self.source.to_string())];
        facts.extend(self.destination.map(|mac| ("next_hop_address", mac.to_string())));
        let kind =
            if self.shaper_follows { "tbf 7075: with htb 7076: inside, at present" } else { "tbf 7075:" };
        facts.extend(self.shaper.map(|rate| {
            ("qdisc", format!("{kind} rate {} bit/s burst {} B", rate.rate_bps, rate.burst_bytes))
        }));
        facts.extend(self.napi_priority.map(|priority| ("napi_priority", priority.to_string())));
        if !self.napi_threads.is_empty() {
            let threads: Vec<String> = self.napi_threads.iter().map(u32::to_string).collect();
            facts.push(("napi_threads", threads.join(" ")));
        }
        if self.interrupt_defer_ns > 0 {
            facts.push(("interrupt_defer_ns", self.interrupt_defer_ns.to_string()));
        }
        facts.extend(self.trouble().map(|trouble| ("trouble", trouble)));
        facts
    }
}
