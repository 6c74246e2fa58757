//! The devices of a host's links while it runs. Owns the shapers of the devices whose configuration requests
//! one, and watches the devices for the traffic of other senders.
//!
//! One ordinary thread (`punctual-devices`) owns the shapers and reads the devices' counters once a second.
//! The links count their own part ([`Account`]). The thread runs as long as any of the links exists, and
//! restores the devices when it ends.

use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use punctual_link::kernel::{
    Account, CareOptions, Device, DeviceCare, DeviceCondition, DeviceLog, KernelError, ShaperRate,
    TrafficSample, Watched, route_to,
};
use punctual_os::calls::{self, Forbidden, ThreadKind};
use punctual_proto::words::rate_text;

use super::{ConfigError, HostConfig, LinkDriver, OtherTraffic};

/// How often the counters are read.
const INTERVAL: Duration = Duration::from_secs(1);
/// Every this many intervals the thread checks that the shaper is still there.
const SHAPER_CHECK_INTERVALS: u64 = 10;
/// Allowance for what every device carries, such as ARP and neighbour discovery, in bits a second.
const HOUSEKEEPING_BPS: u64 = 64_000;
/// Divisor of a link's rate that gives the allowance of a fast device, if that is more than
/// [`HOUSEKEEPING_BPS`].
const HOUSEKEEPING_DIVISOR: u64 = 1_000;

/// The devices of all links that were found, with the accounts of the links in their order.
pub(super) struct Devices {
    accounts: Vec<Option<(Arc<Account>, u32)>>,
    watch: Option<Arc<Watch>>,
}

impl Devices {
    /// Finds the device of each link, sets up the configured shapers, and watches all from now on.
    ///
    /// # Errors
    /// Links that share a device without `device` and `device_rate`; a shaper that cannot be set up. No
    /// device stays changed then.
    pub fn take(config: &HostConfig) -> Result<Self, ConfigError> {
        let found: Vec<Option<Device>> = config.drivers.iter().map(|link| device_of(&**link)).collect();
        apart(config, &found)?;
        let mut accounts = Vec::with_capacity(found.len());
        let mut kept: BTreeMap<u32, WatchedDevice> = BTreeMap::new();
        for (index, device) in found.iter().enumerate() {
            let Some(device) = device else {
                accounts.push(None);
                continue;
            };
            let account = Arc::new(Account::new(DeviceCondition {
                device: device.name.clone(),
                ..DeviceCondition::default()
            }));
            let watched = kept.entry(device.index).or_insert_with(|| WatchedDevice::new(device));
            watched.accounts.push(Arc::clone(&account));
            watched.configure(config, index);
            accounts.push(Some((account, header_bytes(&*config.drivers[index]))));
        }
        if kept.is_empty() {
            return Ok(Self { accounts, watch: None });
        }
        let mut kept: Vec<WatchedDevice> = kept.into_values().collect();
        for device in &mut kept {
            device.shape().map_err(|error| ConfigError::Device { error })?;
        }
        let failed = |error| ConfigError::Epoch { what: "a thread for the links' devices".into(), error };
        let watch = Watch::start(kept, config.forbidden_calls).map_err(failed)?;
        Ok(Self { accounts, watch: Some(Arc::new(watch)) })
    }

    /// The counters of link number `index`. Call it once for each link.
    pub fn watched(&mut self, index: usize) -> Option<Watched> {
        let (account, header_bytes) = self.accounts.get_mut(index)?.take()?;
        let watch: Arc<Watch> = self.watch.clone()?;
        Some(Watched::new(account, header_bytes, watch))
    }
}

/// The device that a link leaves by. `None` if there is none that links could share, or if no route exists
/// yet: opening the link then reports why.
fn device_of(link: &dyn LinkDriver) -> Option<Device> {
    if link.is_loopback() {
        return None;
    }
    match (link.device(), link.ends()) {
        (Some(name), _) => Device::named(name).ok(),
        (None, Some(ends)) => {
            let route = route_to(ends.peer).ok().filter(|route| !route.local)?;
            Device::numbered(route.device).ok()
        }
        (None, None) => None,
    }
}

/// Refuses links that share a device which only the routing table determines: its rate is not configured.
fn apart(config: &HostConfig, found: &[Option<Device>]) -> Result<(), ConfigError> {
    let named = |index: usize| {
        let link = &config.drivers[index];
        (link.device(), link.ends().map(|ends| ends.local))
    };
    for (index, device) in found.iter().enumerate() {
        for (other, of_other) in found.iter().enumerate().take(index) {
            let (Some(device), Some(of_other)) = (device, of_other) else { continue };
            let (one, another) = (named(index), named(other));
            let reported = match (one.0, another.0) {
                (Some(one), Some(another)) => one == another,
                _ => one.1 == another.1,
            };
            if device.index == of_other.index && !reported {
                let name = |index: usize| config.node.links[index].name.clone();
                let (one, other, device) = (name(other), name(index), device.name.clone());
                return Err(ConfigError::SharedDevice { one, other, device });
            }
        }
    }
    Ok(())
}

/// Ethernet, IP, UDP: the bytes that a device counts in addition to those from our header on.
fn header_bytes(link: &dyn LinkDriver) -> u32 {
    let is_ipv4 = link.ends().is_none_or(|ends| ends.peer.is_ipv4());
    14 + 8 + if is_ipv4 { 20 } else { 40 }
}

/// Traffic of other senders on a device, if the configuration permits it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Allowed {
    /// The device is Punctual's alone: this rate is allowed for housekeeping, in bits a second.
    Housekeeping(u64),
    /// The configuration states this rate, in bits a second.
    Stated(u64),
}

impl Allowed {
    const fn bps(self) -> u64 {
        match self {
            Self::Housekeeping(bps) | Self::Stated(bps) => bps,
        }
    }

    /// The problem if others send `bps` by `device`, with the fix.
    fn trouble(self, bps: u64, device: &str) -> Option<String> {
        let is = format!("foreign traffic of about {} on {device}", rate_text(bps));
        (bps > self.bps()).then(|| match self {
            Self::Housekeeping(_) => format!(
                "{is}, which kernel_traffic reserves for Punctual: keep it off, or set kernel_traffic = \
                \"shaped\""
            ),
            Self::Stated(allowed) => format!(
                "{is}, but the configuration states {}: raise interference_share, or set kernel_traffic = \"shaped\"",
                rate_text(allowed)
            ),
        })
    }
}

/// The thread; dropping it stops it and puts all devices back.
struct Watch {
    stop: Mutex<Option<Sender<()>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Watch {
    fn start(mut kept: Vec<WatchedDevice>, forbidden: Forbidden) -> std::io::Result<Self> {
        let (stop, stopped) = channel();
        let (confined, begun) = channel();
        let thread = std::thread::Builder::new().name("punctual-devices".into()).spawn(move || {
            let done = calls::confine(ThreadKind::Devices, forbidden);
            let goes_on = done.is_ok();
            // The caller that starts the thread waits for this.
            let _ = confined.send(done);
            if goes_on {
                watch(&mut kept, &stopped);
            }
        })?;
        begun.recv().map_err(std::io::Error::other)??;
        Ok(Self { stop: Mutex::new(Some(stop)), thread: Mutex::new(Some(thread)) })
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        drop(self.stop.get_mut().unwrap_or_else(PoisonError::into_inner).take());
        let thread = self.thread.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        // A panic there has been printed; unwinding has restored the devices.
        let _ = thread.map(JoinHandle::join);
    }
}

fn watch(kept: &mut [WatchedDevice], stopped: &Receiver<()>) {
    for turn in 0_u64.. {
        for device in &mut *kept {
            device.check(turn % SHAPER_CHECK_INTERVALS == 0);
        }
        if stopped.recv_timeout(INTERVAL) != Err(RecvTimeoutError::Timeout) {
            return;
        }
    }
}

/// A device that the thread watches and shapes.
struct WatchedDevice {
    name: String,
    /// Index of the device. It changes when the device is made anew.
    index: u32,
    accounts: Vec<Arc<Account>>,
    allowed: Option<Allowed>,
    shaper: Option<ShaperRate>,
    care: Option<DeviceCare>,
    /// The last sample, and the bytes that the links had handed over before it was taken.
    last: Option<(TrafficSample, u64)>,
    /// The problem of the device or its shaper, if any.
    fault: Option<String>,
    /// What the log says about that; `None`: the link follows the device itself, and tells the log.
    log: Option<DeviceLog>,
    /// True if the traffic of other senders was reported in the log.
    is_reported: bool,
}

impl WatchedDevice {
    fn new(device: &Device) -> Self {
        Self {
            name: device.name.clone(),
            index: device.index,
            accounts: Vec::new(),
            allowed: None,
            shaper: None,
            care: None,
            last: None,
            fault: None,
            log: Some(DeviceLog::default()),
            is_reported: false,
        }
    }

    /// Applies the configuration of link number `index` to its device. All links of a device have the same
    /// settings for it.
    fn configure(&mut self, config: &HostConfig, index: usize) {
        self.log.take_if(|_| config.drivers[index].driver().bypasses_kernel());
        let link = &config.node.links[index];
        let housekeeping = HOUSEKEEPING_BPS.max(link.rate.0 / HOUSEKEEPING_DIVISOR);
        match config.other_traffic[index] {
            OtherTraffic::Behind(rate) => self.shaper = Some(rate),
            OtherTraffic::Exclusive => self.allowed = Some(Allowed::Housekeeping(housekeeping)),
            OtherTraffic::Stated => {
                let stated = link.rate.0 - link.rate.less(link.interference.rho).0;
                self.allowed = Some(Allowed::Stated(stated + housekeeping));
            }
            OtherTraffic::Nothing | OtherTraffic::Shaped | OtherTraffic::Unknown => {}
        }
    }

    fn options(&self) -> CareOptions {
        CareOptions { whole_rate: self.shaper, ..CareOptions::default() }
    }

    /// Sets the shaper up, if there is to be one.
    fn shape(&mut self) -> Result<(), KernelError> {
        if self.shaper.is_some() {
            self.care = None;
            self.care = Some(DeviceCare::take(&Device::numbered(self.index)?, 0, self.options())?);
        }
        Ok(())
    }

    fn own_bytes(&self) -> u64 {
        self.accounts.iter().map(|account| account.sent_bytes()).sum()
    }

    /// Compares the counters with what is allowed. With `with_care` it also checks the shaper.
    fn check(&mut self, with_care: bool) {
        // Read this first: bytes that are handed over meanwhile then count as ours, so foreign traffic is
        // never overestimated.
        let before = self.own_bytes();
        let foreign = match TrafficSample::of(self.index) {
            Ok(sample) => {
                let own = self.own_bytes();
                let last = self.last.replace((sample, before));
                last.and_then(|(last, had)| sample.foreign_bps(&last, own.saturating_sub(had)))
            }
            Err(_) => {
                self.last = None;
                self.reopen();
                None
            }
        };
        if with_care && let Some(care) = &self.care {
            self.fault = care
                .status()
                .map_or_else(|error| Some(error.to_string()), |status| status.trouble(&self.options()));
        }
        if let Some(log) = &mut self.log {
            log.tell(&self.name, self.fault.clone(), Instant::now());
        }
        self.report(foreign);
    }

    /// The device is gone; checks whether there is a device of its name again.
    fn reopen(&mut self) {
        self.care = None;
        match Device::named(&self.name) {
            Ok(device) => {
                self.index = device.index;
                self.fault = self.shape().err().map(|error| error.to_string());
            }
            Err(_) => self.fault = Some(format!("interface {} is gone", self.name)),
        }
    }

    fn report(&mut self, foreign: Option<u64>) {
        let trouble = self.allowed.zip(foreign).and_then(|(allowed, bps)| allowed.trouble(bps, &self.name));
        match (&trouble, self.is_reported) {
            (Some(trouble), false) => tracing::warn!(device = self.name, "{trouble}"),
            (None, true) if foreign.is_some() => {
                tracing::info!(device = self.name, "no foreign traffic any more")
            }
            _ => {}
        }
        if foreign.is_some() {
            self.is_reported = trouble.is_some();
        }
        let condition = DeviceCondition {
            device: self.name.clone(),
            qdisc: self.shaper.filter(|_| self.care.is_some()).map(|rate| {
                format!("tbf 7075: rate {} bit/s burst {} B, ours first", rate.rate_bps, rate.burst_bytes)
            }),
            trouble: self.fault.clone().or(trouble),
        };
        for account in &self.accounts {
            account.set_foreign_bps(foreign);
            account.set_condition(condition.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn housekeeping_is_no_foreign_traffic_and_what_was_stated_is_allowed() {
        let alone = Allowed::Housekeeping(95_000);
        assert_eq!(alone.trouble(95_000, "eth0"), None);
        let trouble = alone.trouble(60_200_000, "eth0").expect("foreign");
        assert!(trouble.starts_with("foreign traffic of about 60 Mbit/s on eth0"), "{trouble}");
        assert!(trouble.contains("kernel_traffic = \"shaped\""), "{trouble}");
        let stated = Allowed::Stated(10_000_000);
        assert_eq!(stated.trouble(9_999_999, "eth0"), None);
        assert!(
            stated
                .trouble(12_000_000, "eth0")
                .is_some_and(|text| text.contains("the configuration states 10 Mbit/s"))
        );
    }
}
