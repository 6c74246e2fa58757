//! A link's part of the traffic of its device, and the condition of the device. It connects the link, which
//! counts, with an ordinary thread, which compares.
//!
//! The link never waits: it adds to a counter that only it writes, and reads the condition only if the lock
//! is free.

use std::cell::RefCell;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, TryLockError};

/// Value for a rate that is not known yet.
const UNKNOWN: u64 = u64::MAX;

/// The condition of a device, for status reports.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceCondition {
    /// Name of the device.
    pub device: String,
    /// The shaper that we put there.
    pub qdisc: Option<String>,
    /// The problem of the device, if any.
    pub trouble: Option<String>,
}

/// The state that a link and the thread that watches its device share.
#[derive(Debug)]
pub struct Account {
    /// Bytes that the link handed over, as the device counts them. Written by the link alone.
    sent_bytes: AtomicU64,
    foreign_bps: AtomicU64,
    condition: Mutex<DeviceCondition>,
}

impl Account {
    /// An account of a link that has sent nothing, with the condition of its device.
    pub fn new(condition: DeviceCondition) -> Self {
        let (sent_bytes, foreign_bps) = (AtomicU64::new(0), AtomicU64::new(UNKNOWN));
        Self { sent_bytes, foreign_bps, condition: Mutex::new(condition) }
    }

    /// Bytes that the link has handed over, Ethernet headers included.
    pub fn sent_bytes(&self) -> u64 {
        self.sent_bytes.load(Ordering::Relaxed)
    }

    /// Sets how many bits a second others sent over the device lately; `None`: not known.
    pub fn set_foreign_bps(&self, bps: Option<u64>) {
        self.foreign_bps.store(bps.unwrap_or(UNKNOWN), Ordering::Relaxed);
    }

    /// Sets the condition of the device. Called by the watching thread; it waits only while a link reads the
    /// condition.
    pub fn set_condition(&self, condition: DeviceCondition) {
        *self.condition.lock().unwrap_or_else(PoisonError::into_inner) = condition;
    }
}

/// A link's end of its account.
pub struct Watched {
    account: Arc<Account>,
    /// Ethernet, IP and UDP headers.
    header_bytes: u64,
    /// Condition of the device when the lock was free last.
    condition: RefCell<DeviceCondition>,
    /// The last link to go stops it.
    _watch: Arc<dyn Send + Sync>,
}

impl Watched {
    /// The end for a link whose packets have `header_bytes` of headers before ours; `watch` is kept as long
    /// as this end.
    pub fn new(account: Arc<Account>, header_bytes: u32, watch: Arc<dyn Send + Sync>) -> Self {
        let condition = RefCell::default();
        Self { account, header_bytes: header_bytes.into(), condition, _watch: watch }
    }

    /// Counts a packet of `bytes`, from our header on, that was handed over.
    pub fn count(&self, bytes: usize) {
        self.add(self.header_bytes + bytes as u64);
    }

    /// Counts an IP packet of `bytes` that was handed over.
    pub fn count_ip(&self, bytes: usize) {
        const ETHERNET_BYTES: u64 = 14;
        self.add(ETHERNET_BYTES + bytes as u64);
    }

    fn add(&self, bytes: u64) {
        let sent = &self.account.sent_bytes;
        // It has one writer.
        sent.store(sent.load(Ordering::Relaxed) + bytes, Ordering::Relaxed);
    }

    /// Recent traffic of other senders on the device, in bits a second; `None`: not known yet.
    pub fn foreign_bps(&self) -> Option<u64> {
        Some(self.account.foreign_bps.load(Ordering::Relaxed)).filter(|bps| *bps != UNKNOWN)
    }

    /// Condition of the device.
    pub fn condition(&self) -> DeviceCondition {
        match self.account.condition.try_lock() {
            Ok(condition) => self.condition.replace(condition.clone()),
            Err(TryLockError::Poisoned(poisoned)) => self.condition.replace(poisoned.into_inner().clone()),
            Err(TryLockError::WouldBlock) => DeviceCondition::default(),
        };
        self.condition.borrow().clone()
    }
}

impl fmt::Debug for Watched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Watched").field(&self.account).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_and_findings_are_reported() {
        let account = Arc::new(Account::new(DeviceCondition::default()));
        let watched = Watched::new(Arc::clone(&account), 42, Arc::new(()));
        watched.count(100);
        watched.count(58);
        assert_eq!(account.sent_bytes(), 242);
        watched.count_ip(58);
        assert_eq!(account.sent_bytes(), 314);
        assert_eq!(watched.foreign_bps(), None);
        account.set_foreign_bps(Some(0));
        assert_eq!(watched.foreign_bps(), Some(0));
        let condition = DeviceCondition { device: "eth0".into(), ..DeviceCondition::default() };
        account.set_condition(condition.clone());
        assert_eq!(watched.condition(), condition);
        // While the thread holds the lock, the former condition is returned.
        let busy = account.condition.lock().expect("not poisoned");
        assert_eq!(watched.condition(), condition);
        drop(busy);
    }
}
