//! Receive work of a device: its NAPI instances, the kernel threads that run them, and how long they keep interrupts
//! off.
//!
//! All of this exists for each NAPI instance, that is for a (device, queue), and not for each stream: one
//! instance takes every packet of its queue from the adapter, and only the XDP program that it runs
//! distinguishes streams. So priority and deferral are keys of a link. The parts that exist for each stream
//! come later: the rings, the order in which they are read, and how the reader waits (`spin`).
//!
//! The settings go to the kernel by netlink (family `netdev`), which is exact and uses this thread's network
//! namespace; `/sys` may belong to another one. Older kernels do not support this (`threaded` before 6.17,
//! the deferral before 6.13). For them the files of `/sys/class/net` are used, which apply to all instances
//! of the device at once.

use std::fs;
use std::io;

use super::attributes::{Attributes, Body};
use super::device::{Device, XdpFeatures, files_of};
use super::error::KernelError;
use super::netlink::{Netlink, errno};

const GENL_ID_CTRL: u16 = 16;
const CTRL_CMD_GETFAMILY: u8 = 3;
const CTRL_ATTR_FAMILY_ID: u16 = 1;
const CTRL_ATTR_FAMILY_NAME: u16 = 2;
/// `struct genlmsghdr`.
const HEADER_BYTES: usize = 4;

const DEV_GET: u8 = 1;
const QUEUE_GET: u8 = 10;
const NAPI_GET: u8 = 11;
const NAPI_SET: u8 = 14;
const DEV_IFINDEX: u16 = 1;
const DEV_XDP_FEATURES: u16 = 3;
const QUEUE_ID: u16 = 1;
const QUEUE_IFINDEX: u16 = 2;
const QUEUE_TYPE: u16 = 3;
const QUEUE_NAPI_ID: u16 = 4;
const QUEUE_TYPE_RX: u32 = 0;
const NAPI_IFINDEX: u16 = 1;
const NAPI_ID: u16 = 2;
const NAPI_PID: u16 = 4;
const NAPI_DEFER_HARD_IRQS: u16 = 5;
const NAPI_GRO_FLUSH_TIMEOUT: u16 = 6;
const NAPI_THREADED: u16 = 8;

/// Empty polls before interrupts are on again, as long as the timeout of the deferral allows.
const DEFER_POLLS: u32 = 2;

/// How a NAPI instance works.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NapiSettings {
    /// How it runs. 0: in the context of the interrupted thread, 1: in a kernel thread of its own, 2: in a
    /// thread that never sleeps.
    pub threaded: u32,
    /// Empty polls before interrupts are on again.
    pub defer_hard_irqs: u32,
    /// How long interrupts stay off then, in ns.
    pub gro_flush_timeout_ns: u64,
}

/// A NAPI instance of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Napi {
    /// Id of the instance, for the whole kernel.
    pub id: u32,
    /// Id of its kernel thread, if it has one.
    pub thread: Option<u32>,
    /// Settings of the instance.
    pub settings: NapiSettings,
}

/// Scheduling class and priority of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadClass {
    /// Scheduling policy, with the numbers of `sched_setscheduler`.
    pub policy: i32,
    /// 1 to 99 for real-time classes, else 0.
    pub priority: i32,
}

impl ThreadClass {
    /// `SCHED_FIFO`.
    pub const fn fifo(priority: u8) -> Self {
        Self { policy: libc::SCHED_FIFO, priority: priority as i32 }
    }

    /// Reads the present class of a thread.
    ///
    /// # Errors
    /// If there is no such thread.
    pub fn of(thread: u32) -> io::Result<Self> {
        let mut parameters = libc::sched_param { sched_priority: 0 };
        // SAFETY: the first call only reads its argument; the second writes into a structure of the right
        // type that is valid.
        let (policy, result) = unsafe {
            let pid = thread as libc::pid_t;
            (libc::sched_getscheduler(pid), libc::sched_getparam(pid, &mut parameters))
        };
        if policy < 0 || result < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Self { policy, priority: parameters.sched_priority })
    }

    /// Gives it to a thread.
    ///
    /// # Errors
    /// If there is no such thread, or no right.
    pub fn give(self, thread: u32) -> io::Result<()> {
        let parameters = libc::sched_param { sched_priority: self.priority };
        // SAFETY: the call only reads its arguments, and the structure is valid during the call.
        match unsafe { libc::sched_setscheduler(thread as libc::pid_t, self.policy, &parameters) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

/// The `netdev` family.
#[derive(Debug)]
struct Netdev {
    netlink: Netlink,
    family: u16,
}

impl Netdev {
    fn open() -> io::Result<Self> {
        let mut netlink = Netlink::generic()?;
        let body = Body::new(&[CTRL_CMD_GETFAMILY, 1, 0, 0]).with_text(CTRL_ATTR_FAMILY_NAME, "netdev");
        let answer = netlink.ask(GENL_ID_CTRL, 0, &body)?;
        let family = answer
            .iter()
            .find_map(|message| Attributes::after(message, HEADER_BYTES).number(CTRL_ATTR_FAMILY_ID));
        let family = family.and_then(|id| u16::try_from(id).ok());
        let family = family.ok_or_else(|| io::Error::other("netlink has no family netdev"))?;
        Ok(Self { netlink, family })
    }

    fn body(command: u8) -> Body {
        Body::new(&[command, 1, 0, 0])
    }

    fn list<T>(&mut self, body: &Body, read: impl FnMut(Attributes<'_>) -> Option<T>) -> io::Result<Vec<T>> {
        let answer = self.netlink.list(self.family, body)?;
        Ok(answer.iter().map(|message| Attributes::after(message, HEADER_BYTES)).filter_map(read).collect())
    }

    fn set(&mut self, body: &Body) -> io::Result<()> {
        self.netlink.ask(self.family, 0, body).map(drop)
    }
}

/// The XDP features of the device's driver; `None` if the kernel does not report them (before 6.3).
pub fn xdp_features(device: &Device) -> Option<XdpFeatures> {
    let mut netdev = Netdev::open().ok()?;
    let body = Netdev::body(DEV_GET).with_u32(DEV_IFINDEX, device.index);
    let answer = netdev.netlink.ask(netdev.family, 0, &body).ok()?;
    let bits =
        answer.iter().find_map(|message| Attributes::after(message, HEADER_BYTES).number(DEV_XDP_FEATURES));
    bits.map(XdpFeatures::from_bits)
}

/// The NAPI instances that serve a receive queue: the one that the kernel reports, else (veth) all of the
/// device.
///
/// # Errors
/// If there is none, or the kernel does not report it.
pub fn instances(device: &Device, queue: u32) -> Result<Vec<Napi>, KernelError> {
    let all = all(device)?;
    let serving = serving(device, queue);
    let chosen: Vec<Napi> = all.iter().copied().filter(|napi| Some(napi.id) == serving).collect();
    Ok(if chosen.is_empty() { all } else { chosen })
}

/// All NAPI instances of a device.
///
/// # Errors
/// [`KernelError::NoNapi`] if there is none.
pub(super) fn all(device: &Device) -> Result<Vec<Napi>, KernelError> {
    let body = Netdev::body(NAPI_GET).with_u32(NAPI_IFINDEX, device.index);
    let all = Netdev::open()
        .and_then(|mut netdev| netdev.list(&body, parse_napi))
        .map_err(KernelError::net(format!("the NAPI instances of interface {}", device.name)))?;
    if all.is_empty() { Err(KernelError::NoNapi(device.name.clone())) } else { Ok(all) }
}

/// The instance that the kernel names for a receive queue.
fn serving(device: &Device, queue: u32) -> Option<u32> {
    let body = Netdev::body(QUEUE_GET).with_u32(QUEUE_IFINDEX, device.index);
    let read = |queue_of: Attributes<'_>| {
        let wanted = queue_of.u32(QUEUE_ID)? == queue && queue_of.u32(QUEUE_TYPE)? == QUEUE_TYPE_RX;
        wanted.then(|| queue_of.u32(QUEUE_NAPI_ID)).flatten()
    };
    // A kernel that does not support the request names none.
    Netdev::open().ok()?.list(&body, read).ok()?.first().copied()
}

impl Device {
    /// Receive queues that the device spreads packets over now: those that it was made with, where the kernel cannot be asked
    /// (before Linux 6.8).
    pub fn rx_queues_used(&self) -> u32 {
        receive_queues(self).unwrap_or(self.rx_queues)
    }
}

/// Receive queues that are in use; `None` if the kernel cannot be asked.
fn receive_queues(device: &Device) -> Option<u32> {
    let body = Netdev::body(QUEUE_GET).with_u32(QUEUE_IFINDEX, device.index);
    let read = |queue_of: Attributes<'_>| (queue_of.u32(QUEUE_TYPE)? == QUEUE_TYPE_RX).then_some(());
    let queues = Netdev::open().ok()?.list(&body, read).ok()?.len() as u32;
    (queues > 0).then_some(queues)
}

pub(super) fn parse_napi(napi: Attributes<'_>) -> Option<Napi> {
    Some(Napi {
        id: napi.u32(NAPI_ID)?,
        thread: napi.u32(NAPI_PID),
        settings: NapiSettings {
            threaded: napi.u32(NAPI_THREADED).unwrap_or_else(|| u32::from(napi.get(NAPI_PID).is_some())),
            defer_hard_irqs: napi.u32(NAPI_DEFER_HARD_IRQS).unwrap_or(0),
            gro_flush_timeout_ns: napi.number(NAPI_GRO_FLUSH_TIMEOUT).unwrap_or(0),
        },
    })
}

/// Changes what differs from how the instance works now.
///
/// # Errors
/// If the kernel refuses both ways.
pub(super) fn set(device: &Device, napi: &Napi, wanted: NapiSettings) -> Result<(), KernelError> {
    let failed = |what: &str| KernelError::net(format!("{what} of interface {}", device.name));
    let now = napi.settings;
    if wanted.threaded != now.threaded {
        let body = |body: Body| body.with_u32(NAPI_THREADED, wanted.threaded);
        let files = [("threaded", u64::from(wanted.threaded))];
        change(device, napi.id, body, &files).map_err(failed("threaded NAPI"))?;
    }
    let deferral = (wanted.defer_hard_irqs, wanted.gro_flush_timeout_ns);
    if deferral != (now.defer_hard_irqs, now.gro_flush_timeout_ns) {
        let body = |body: Body| {
            body.with_u32(NAPI_DEFER_HARD_IRQS, deferral.0)
                .with(NAPI_GRO_FLUSH_TIMEOUT, &deferral.1.to_ne_bytes())
        };
        let files = [("napi_defer_hard_irqs", deferral.0.into()), ("gro_flush_timeout", deferral.1)];
        change(device, napi.id, body, &files).map_err(failed("interrupt deferral"))?;
    }
    Ok(())
}

/// Changes an instance by netlink, or by the device's files if the kernel does not support the attributes.
fn change(device: &Device, id: u32, add: impl Fn(Body) -> Body, files: &[(&str, u64)]) -> io::Result<()> {
    let body = add(Netdev::body(NAPI_SET).with_u32(NAPI_ID, id));
    let outcome = Netdev::open().and_then(|mut netdev| netdev.set(&body));
    let unknown = |error: &io::Error| matches!(errno(error), Some(libc::EINVAL | libc::EOPNOTSUPP));
    match outcome {
        Err(error) if unknown(&error) => {
            let folder = files_of(device).ok_or(error)?;
            files.iter().try_for_each(|(file, value)| fs::write(folder.join(file), value.to_string()))
        }
        outcome => outcome,
    }
}

/// The settings that an instance shall have; those that are not requested stay.
pub(super) fn wanted(now: NapiSettings, threaded: bool, defer_ns: u64) -> NapiSettings {
    let deferring = defer_ns > 0;
    NapiSettings {
        // A thread that never sleeps is a thread as well.
        threaded: if threaded { now.threaded.max(1) } else { now.threaded },
        defer_hard_irqs: if deferring { DEFER_POLLS } else { now.defer_hard_irqs },
        gro_flush_timeout_ns: if deferring { defer_ns } else { now.gro_flush_timeout_ns },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unrequested_settings_stay() {
        let now = NapiSettings { threaded: 2, defer_hard_irqs: 7, gro_flush_timeout_ns: 9 };
        assert_eq!(wanted(now, false, 0), now);
        assert_eq!(wanted(now, true, 0), now);
        let deferred = NapiSettings { threaded: 1, defer_hard_irqs: 2, gro_flush_timeout_ns: 50_000 };
        assert_eq!(wanted(NapiSettings::default(), true, 50_000), deferred);
    }

    #[test]
    fn the_own_class_can_be_read_and_none_is_invented_for_others() {
        let own = ThreadClass::of(0).expect("ours");
        own.give(0).expect("what it is already");
        // Above the largest pid that Linux assigns.
        assert_eq!(ThreadClass::of(1 << 23).expect_err("no such thread").raw_os_error(), Some(libc::ESRCH));
    }

    #[test]
    fn loopback_has_no_napi() {
        let lo = Device::named("lo").expect("lo");
        assert!(matches!(instances(&lo, 0), Err(KernelError::NoNapi(_))));
    }
}
