//! Owns all settings that a link requires of its device: set up together and restored together.

use super::device::Device;
use super::error::KernelError;
use super::napi::{self, Napi, ThreadClass};
use super::qdisc::{self, Before};
use super::record::{NapiBefore, Record, State, abandoned, is_recorded};
use super::shaper::ShaperRate;

/// The settings that a link requires of its device. `Default` requires none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CareOptions {
    /// Bounds the kernel's own packets.
    pub kernel_rate: Option<ShaperRate>,
    /// With `kernel_rate`: that rate is changed while the link works ([`DeviceCare::follow`]), and this is
    /// the rate that the link drains, in bits a second.
    pub link_rate_bps: Option<u64>,
    /// Bounds all that the device sends: packets of sockets with the priority [`super::FIRST_CLASS`] first, all others
    /// behind. Instead of `kernel_rate`.
    pub whole_rate: Option<ShaperRate>,
    /// Runs receive work in kernel threads of this `SCHED_FIFO` priority, 1 to 99.
    pub napi_priority: Option<u8>,
    /// Time for which interrupts stay off after packets came, in ns; 0: leaves that as it is.
    pub interrupt_defer_ns: u64,
}

impl CareOptions {
    /// Whether no setting is requested.
    pub fn is_nothing(&self) -> bool {
        *self == Self::default()
    }

    const fn is_shaped(&self) -> bool {
        self.kernel_rate.is_some() || self.whole_rate.is_some()
    }

    fn touches_napi(&self) -> bool {
        self.napi_priority.is_some() || self.interrupt_defer_ns > 0
    }
}

/// The current state of these settings on a device, for status reports.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CareStatus {
    /// Our shaper is there.
    pub shaped: bool,
    /// Kernel threads of the NAPI instances, with their classes.
    pub threads: Vec<(u32, ThreadClass)>,
}

impl CareStatus {
    /// Settings that differ from the wanted ones because another program has changed them.
    pub fn trouble(&self, wanted: &CareOptions) -> Option<String> {
        if wanted.is_shaped() && !self.shaped {
            return Some("the qdisc 7075: that bounds kernel traffic was removed: restart punctuald".into());
        }
        let class = wanted.napi_priority.map(ThreadClass::fifo)?;
        let other = self.threads.is_empty() || self.threads.iter().any(|(_, is)| *is != class);
        other.then(|| "the NAPI threads are not in their class any more: restart punctuald".into())
    }
}

/// Sets up and watches one device. Dropping it restores everything.
#[derive(Debug)]
pub struct DeviceCare {
    device: Device,
    queue: u32,
    options: CareOptions,
    /// `None`: no setting was requested, or everything has been restored.
    kept: Option<(Record, State)>,
}

impl DeviceCare {
    /// Sets everything up. Call it once the XDP program is attached: that creates the NAPI instances of a
    /// veth, and new kernel threads on any device. Settings that a crash left on the device are restored
    /// first.
    ///
    /// # Errors
    /// The setting that cannot be made, with the fix; the device is unchanged then.
    pub fn take(device: &Device, queue: u32, options: CareOptions) -> Result<Self, KernelError> {
        if options.is_nothing() {
            return Ok(Self { device: device.clone(), queue, options, kept: None });
        }
        let (record, left) = Record::take(device)?;
        if let Some(left) = left {
            put_back(&left)?;
        }
        let state = State {
            device: device.index,
            name: device.name.clone(),
            owner: std::process::id(),
            ..State::default()
        };
        let mut care = Self { device: device.clone(), queue, options, kept: Some((record, state)) };
        // On an error `care` is dropped, which undoes the changes.
        care.bound_kernel_traffic()?;
        care.run_napi_in_threads()?;
        Ok(care)
    }

    /// The device, as it was when it was taken.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Status of the device now.
    ///
    /// # Errors
    /// If the kernel does not report it.
    pub fn status(&self) -> Result<CareStatus, KernelError> {
        let shaped = self.options.is_shaped() && qdisc::is_installed(&self.device)?;
        let mut threads = Vec::new();
        if self.options.napi_priority.is_some() {
            for thread in napi::instances(&self.device, self.queue)?.iter().filter_map(|napi| napi.thread) {
                // A thread that ends meanwhile is none.
                threads.extend(ThreadClass::of(thread).ok().map(|class| (thread, class)));
            }
        }
        Ok(CareStatus { shaped, threads })
    }

    /// Repeats the settings of objects that are created anew when a device is switched on: NAPI instances and
    /// their threads.
    ///
    /// # Errors
    /// See [`DeviceCare::take`].
    pub fn renew(&mut self) -> Result<(), KernelError> {
        self.run_napi_in_threads()
    }

    /// Changes the rate of kernel traffic, in bits of the wire a second: at most its burst and the larger of both rates over
    /// the change.
    ///
    /// # Errors
    /// If it was not set up to be changed, or another program has removed it.
    pub fn follow(&mut self, rate_bps: u64) -> Result<(), KernelError> {
        let rate = self.options.kernel_rate.filter(|_| self.options.link_rate_bps.is_some());
        let rate = rate.ok_or_else(|| KernelError::NoShaper(self.device.name.clone()))?;
        qdisc::follow(&self.device, ShaperRate { rate_bps, ..rate })
    }

    /// Puts everything back.
    ///
    /// # Errors
    /// The first thing that cannot be; its record stays for `punctual doctor --repair`.
    pub fn restore(&mut self) -> Result<(), KernelError> {
        let Some((record, state)) = self.kept.take() else { return Ok(()) };
        put_back(&state)?;
        record.remove();
        Ok(())
    }

    fn bound_kernel_traffic(&mut self) -> Result<(), KernelError> {
        let Some((record, state)) = self.kept.as_mut().filter(|_| self.options.is_shaped()) else {
            return Ok(());
        };
        // Our qdisc without a record: the file was lost, so the former qdisc is not known any more.
        state.qdisc = Some(qdisc::survey(&self.device)?);
        record.write(state)?;
        let CareOptions { whole_rate, kernel_rate, link_rate_bps, .. } = self.options;
        match (whole_rate, kernel_rate, link_rate_bps) {
            (Some(rate), ..) => qdisc::install_in_order(&self.device, rate),
            (None, Some(rate), Some(link_bps)) => qdisc::install_following(&self.device, rate, link_bps),
            (None, Some(rate), None) => qdisc::install(&self.device, rate),
            (None, None, _) => Ok(()),
        }
    }

    fn run_napi_in_threads(&mut self) -> Result<(), KernelError> {
        let Some((record, state)) = &mut self.kept else { return Ok(()) };
        if !self.options.touches_napi() {
            return Ok(());
        }
        let (threaded, defer_ns) = (self.options.napi_priority.is_some(), self.options.interrupt_defer_ns);
        let instances = napi::instances(&self.device, self.queue)?;
        let new = |napi: &&Napi| state.napis.iter().all(|known| known.id != napi.id);
        let added: Vec<NapiBefore> = instances.iter().filter(new).map(before).collect();
        state.napis.extend(added);
        record.write(state)?;
        for napi in &instances {
            napi::set(&self.device, napi, napi::wanted(napi.settings, threaded, defer_ns))?;
        }
        let Some(priority) = self.options.napi_priority else { return Ok(()) };
        for napi in napi::instances(&self.device, self.queue)? {
            let thread = napi.thread.ok_or_else(|| KernelError::NoNapi(self.device.name.clone()))?;
            let what = format!("SCHED_FIFO {priority} of kernel thread {thread} ({})", self.device.name);
            ThreadClass::fifo(priority).give(thread).map_err(KernelError::of(what, "CAP_SYS_NICE"))?;
        }
        Ok(())
    }
}

impl Drop for DeviceCare {
    fn drop(&mut self) {
        // What cannot be put back stays on record.
        let _ = self.restore();
    }
}

fn before(napi: &Napi) -> NapiBefore {
    let class = napi.thread.and_then(|thread| ThreadClass::of(thread).ok());
    NapiBefore { id: napi.id, settings: napi.settings, class }
}

/// Undoes the changes in a record, if they are still there.
fn put_back(state: &State) -> Result<(), KernelError> {
    let device = match Device::numbered(state.device) {
        // It took everything with it.
        Err(KernelError::NoDevice(_)) => return Ok(()),
        device => device?,
    };
    let qdisc = state.qdisc.as_ref().map_or(Ok(()), |before| qdisc::restore(&device, before));
    let napi = put_back_napi(&device, &state.napis);
    qdisc.and(napi)
}

fn put_back_napi(device: &Device, napis: &[NapiBefore]) -> Result<(), KernelError> {
    if napis.is_empty() {
        return Ok(());
    }
    let all = match napi::all(device) {
        // Detaching the program took them away.
        Err(KernelError::NoNapi(_)) => return Ok(()),
        all => all?,
    };
    for before in napis {
        let Some(now) = all.iter().find(|napi| napi.id == before.id) else { continue };
        if let (Some(thread), Some(class)) = (now.thread, before.class) {
            let what = format!("the class of kernel thread {thread} ({})", device.name);
            class.give(thread).map_err(KernelError::of(what, "CAP_SYS_NICE"))?;
        }
        napi::set(device, now, before.settings)?;
    }
    Ok(())
}

/// Changed settings that an ended process left on a device.
#[derive(Debug)]
pub struct Leftover {
    /// `None`: the record was lost, and only the handle of the qdisc identifies it.
    record: Option<Record>,
    state: State,
}

impl Leftover {
    /// Name of the device.
    pub fn device(&self) -> &str {
        &self.state.name
    }

    /// The process that has ended; 0 if it is not known.
    pub fn owner(&self) -> u32 {
        self.state.owner
    }

    /// The changes of the crashed process, as text.
    pub fn what(&self) -> String {
        let qdisc = match &self.state.qdisc {
            None => None,
            Some(Before::Default) => Some("the qdisc 7075: at the root".to_owned()),
            Some(Before::Classless(qdisc)) => Some(format!("the qdisc 7075: in place of {qdisc}")),
        };
        let napi = (!self.state.napis.is_empty())
            .then(|| format!("how {} NAPI instances work", self.state.napis.len()));
        let all: Vec<String> = [qdisc, napi].into_iter().flatten().collect();
        if all.is_empty() { "nothing".into() } else { all.join(", ") }
    }

    /// Puts it back.
    ///
    /// # Errors
    /// If the kernel refuses; the record stays.
    pub fn repair(self) -> Result<(), KernelError> {
        let record = match self.record {
            Some(record) => record,
            // Locks it; fails if a host has taken the device meanwhile.
            None => Record::take(&Device::numbered(self.state.device)?)?.0,
        };
        put_back(&self.state)?;
        record.remove();
        Ok(())
    }
}

/// Settings that processes which have ended left on devices of this network namespace. While the returned
/// value exists, no link can take these devices.
///
/// # Errors
/// If the records cannot be read.
pub fn leftovers() -> Result<Vec<Leftover>, KernelError> {
    let found = abandoned().map_err(KernelError::net("the records in /run/punctual"))?;
    let mut all: Vec<Leftover> =
        found.into_iter().map(|(record, state)| Leftover { record: Some(record), state }).collect();
    for device in qdisc::shaped_devices()? {
        let known = all.iter().any(|leftover| leftover.state.device == device);
        if known || is_recorded(device) {
            continue;
        }
        let name = Device::numbered(device).map_or_else(|_| device.to_string(), |device| device.name);
        let state = State { device, name, qdisc: Some(Before::Default), ..State::default() };
        all.push(Leftover { record: None, state });
    }
    Ok(all)
}
