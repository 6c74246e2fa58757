//! Receive work of the hosts' devices in kernel threads: threaded NAPI, in a class that an experiment chooses.
//!
//! Each host's threads run on the host's CPU, as its adapter's interrupts would. Without them the sender does
//! the receive work of a pair of virtual devices, on the other host's CPU.

use anyhow::Context;
use punctual_link::kernel::napi::{self, ThreadClass};
use punctual_link::kernel::{CareOptions, Device, DeviceCare};
use punctual_os::cpus;

use super::{Pair, Place};
use crate::measure;
use crate::testbed::network::Host;
use punctual_host::config::Driver;

/// The devices of a and of b.
pub const DEVICES: [&str; 2] = ["right", "left"];
/// Above the processors' priority.
const PRIORITY: u8 = 60;
/// For the link of an engine over xdp, which sets its device up itself.
pub const LINK_OPTION: &str = "napi_priority = 60\n";
/// `SCHED_OTHER`.
const ORDINARY: ThreadClass = ThreadClass { policy: 0, priority: 0 };

/// The scheduling class of receive work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReceiveClass {
    /// `SCHED_FIFO` above the processors.
    RealTime,
    /// An ordinary one, below every processor and application of a guaranteed channel.
    Ordinary,
}

/// The kernel threads of both hosts. Dropped before the hosts.
pub struct ReceiveThreads {
    far: Vec<u32>,
    _care: Vec<DeviceCare>,
}

impl ReceiveThreads {
    /// Starts them for a pair whose engines run on `driver`; over xdp they were started with [`LINK_OPTION`].
    ///
    /// # Errors
    /// If the pair is of two machines, or a kernel thread is refused.
    pub fn start(pair: &Pair, driver: Driver, class: ReceiveClass) -> anyhow::Result<Self> {
        let network = pair.network().context("the hosts are machines of their own")?;
        let (mut far, mut care) = (Vec::new(), Vec::new());
        for (index, (host, device)) in network.hosts.iter().zip(DEVICES).enumerate() {
            let cpu = pair.cpus().get(index).copied();
            let (kept, threads) = on_host(host, device, cpu, driver, class)?;
            care.extend(kept);
            far = threads;
        }
        Ok(Self { far, _care: care })
    }

    /// CPU time that b's have used.
    pub fn far_cpu(&self) -> punctual::Nanos {
        self.far.iter().filter_map(|thread| measure::cpu::of_process(*thread)).sum()
    }
}

/// A device without a program has no NAPI instance until it aggregates packets, and uses it only for those of a device that
/// segments none.
fn on_host(
    host: &Host,
    device: &str,
    cpu: Option<u32>,
    driver: Driver,
    class: ReceiveClass,
) -> anyhow::Result<(Option<DeviceCare>, Vec<u32>)> {
    if !driver.bypasses_kernel() {
        host.namespace.feed(&format!("ethtool -K {device} gro on tso off"), "")?;
    }
    Place { namespace: Some(host.namespace.path()), cpu: None }.within(|| {
        let device = Device::named(device)?;
        let options = CareOptions { napi_priority: Some(PRIORITY), ..CareOptions::default() };
        let care = (!driver.bypasses_kernel()).then(|| DeviceCare::take(&device, 0, options)).transpose()?;
        let threads: Vec<u32> = napi::instances(&device, 0)?.iter().filter_map(|one| one.thread).collect();
        anyhow::ensure!(!threads.is_empty(), "{} of {} has no kernel thread", device.name, host.name);
        for &thread in &threads {
            if class == ReceiveClass::Ordinary {
                ORDINARY.give(thread).with_context(|| format!("class of kernel thread {thread}"))?;
            }
            if let Some(cpu) = cpu {
                cpus::pin_thread(thread, cpu)
                    .with_context(|| format!("CPU {cpu} for kernel thread {thread}"))?;
            }
        }
        Ok((care, threads))
    })
}
