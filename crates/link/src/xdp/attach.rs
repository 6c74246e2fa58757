//! Attaches the program to a device, so that it is detached however this process ends.
//!
//! A bpf link is a descriptor: the kernel detaches the program when the last copy is closed, also when a
//! process is killed. So there is never anything to clean up. A drop detaches at once, even if a child of
//! this process that has not called exec yet holds a copy of the descriptor. Another program on the device is
//! never replaced.

use std::fmt;
use std::io;
use std::ops::{Deref, DerefMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use rustix::thread::{CapabilitySet, capabilities};

use super::{AttachMode, ClassifierOptions, Program};
use crate::LinkError;
use crate::kernel::{Device, KernelError};

/// `BPF_LINK_CREATE` of bpf(2).
const LINK_CREATE: libc::c_int = 28;
/// `BPF_LINK_DETACH` of bpf(2).
const LINK_DETACH: libc::c_int = 34;
/// `BPF_XDP` of `enum bpf_attach_type`.
const ATTACH_XDP: u32 = 37;
/// `XDP_FLAGS_SKB_MODE`.
const GENERIC: u32 = 1 << 1;
/// `XDP_FLAGS_DRV_MODE`.
const NATIVE: u32 = 1 << 2;

/// The program of one link on its device: attached until this is dropped or the process ends, however it ends.
pub struct Classifier {
    program: Program,
    mode: AttachMode,
    _link: BpfLink,
}

impl Classifier {
    /// Loads the program and attaches it to the device by a bpf link.
    ///
    /// # Errors
    /// If an option is out of range, rights are missing, there is no such device, another program is attached
    /// to it, or the device cannot do what the mode requires; the fix is in the text.
    pub fn attach(options: &ClassifierOptions) -> Result<Self, LinkError> {
        options.check()?;
        check_rights(&options.device)?;
        let device = Device::named(&options.device).map_err(from_kernel)?;
        check_free(&device)?;
        let program = Program::load(options)?;
        let (link, mode) = attach(&program, &device, options.mode)?;
        Ok(Self { program, mode, _link: link })
    }

    /// The program's mode: native or generic.
    pub const fn mode(&self) -> AttachMode {
        self.mode
    }
}

impl fmt::Debug for Classifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Classifier")
            .field("mode", &self.mode)
            .field("program", &self.program)
            .finish_non_exhaustive()
    }
}

impl Deref for Classifier {
    type Target = Program;

    fn deref(&self) -> &Program {
        &self.program
    }
}

impl DerefMut for Classifier {
    fn deref_mut(&mut self) -> &mut Program {
        &mut self.program
    }
}

/// Checks the rights of the whole driver: without this check a missing right would cause a less specific
/// error later.
fn check_rights(device: &str) -> Result<(), LinkError> {
    let sets =
        capabilities(None).map_err(|error| LinkError::Os { what: "capget".into(), error: error.into() })?;
    let has = |right| sets.effective.contains(right);
    let may_bpf = has(CapabilitySet::BPF) || has(CapabilitySet::SYS_ADMIN);
    let rights = [
        (may_bpf, "CAP_BPF"),
        (has(CapabilitySet::NET_ADMIN), "CAP_NET_ADMIN"),
        (has(CapabilitySet::NET_RAW), "CAP_NET_RAW"),
    ];
    let missing: Vec<&str> = rights.iter().filter(|(has, _)| !has).map(|(_, name)| *name).collect();
    if missing.is_empty() {
        return Ok(());
    }
    Err(LinkError::Options(format!(
        "xdp on {device} needs {}: run as root or grant it (setcap, or AmbientCapabilities= of the service), or use \
         driver = \"udp\"",
        missing.join(", ")
    )))
}

fn check_free(device: &Device) -> Result<(), LinkError> {
    let Some(other) = device.xdp else { return Ok(()) };
    let (mode, switch) = if other.native { ("native", "xdpdrv") } else { ("generic", "xdpgeneric") };
    Err(LinkError::Options(format!(
        "interface {name} has an XDP program already (id {id}, {mode}): stop the program that attached it (bpftool prog \
         show id {id}; bpftool link), or ip link set dev {name} {switch} off, or use driver = \"udp\" here",
        name = device.name,
        id = other.program,
    )))
}

fn from_kernel(error: KernelError) -> LinkError {
    match error {
        KernelError::Os { what, error } => LinkError::Os { what, error },
        other => LinkError::Options(other.to_string()),
    }
}

fn attach(program: &Program, device: &Device, mode: AttachMode) -> Result<(BpfLink, AttachMode), LinkError> {
    let fd = program.fd()?.as_fd();
    let try_mode = |flags, mode| BpfLink::create(fd, device.index, flags).map(|link| (link, mode));
    let attached = match mode {
        AttachMode::Native => try_mode(NATIVE, AttachMode::Native),
        AttachMode::Generic => try_mode(GENERIC, AttachMode::Generic),
        AttachMode::Auto => match try_mode(NATIVE, AttachMode::Native) {
            Err(error) if has_no_native(&error) => try_mode(GENERIC, AttachMode::Generic),
            other => other,
        },
    };
    attached.map_err(|error| not_attached(&device.name, mode, error))
}

fn has_no_native(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EOPNOTSUPP))
}

fn not_attached(device: &str, mode: AttachMode, error: io::Error) -> LinkError {
    // Another process attached its program between our check and our attach.
    if matches!(error.raw_os_error(), Some(libc::EBUSY | libc::EEXIST))
        && let Some(other) = Device::named(device).ok().and_then(|device| check_free(&device).err())
    {
        return other;
    }
    let fix = match error.raw_os_error() {
        Some(libc::EOPNOTSUPP) if mode == AttachMode::Native => {
            " (its driver has no native XDP: set xdp_mode = \"generic\")"
        }
        Some(libc::EPERM | libc::EACCES) => {
            " (grant CAP_NET_ADMIN and CAP_BPF in the namespaces that own the interface)"
        }
        Some(libc::ENODEV) => " (it was just removed: see ip link)",
        Some(libc::ERANGE | libc::EINVAL | libc::ENOSPC) => {
            " (its driver does not accept a program in its present setup: a smaller MTU, fewer queues (ethtool \
             -L) or no LRO (ethtool -K) may help, else set xdp_mode = \"generic\")"
        }
        _ => "",
    };
    LinkError::Os { what: format!("attaching the XDP program to {device}, mode {mode}{fix}"), error }
}

/// Holds a program on its device.
struct BpfLink(OwnedFd);

/// The part of `union bpf_attr` that `BPF_LINK_CREATE` reads of XDP.
#[repr(C)]
struct LinkCreate {
    program: u32,
    interface: u32,
    attach_type: u32,
    flags: u32,
}

/// The part of it that `BPF_LINK_DETACH` reads.
#[repr(C)]
struct LinkDetach {
    link: u32,
}

impl BpfLink {
    fn create(program: BorrowedFd<'_>, interface: u32, flags: u32) -> io::Result<Self> {
        let program = program.as_raw_fd().cast_unsigned();
        let fd = bpf(LINK_CREATE, &LinkCreate { program, interface, attach_type: ATTACH_XDP, flags })?;
        // SAFETY: the kernel has just made this descriptor for us, close-on-exec, and it has no other owner.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
    }
}

impl Drop for BpfLink {
    fn drop(&mut self) {
        // Fails if the device is gone, and the program with it.
        let _ = bpf(LINK_DETACH, &LinkDetach { link: self.0.as_raw_fd().cast_unsigned() });
    }
}

fn bpf<T>(command: libc::c_int, attributes: &T) -> io::Result<libc::c_int> {
    // SAFETY: the pointer and size are those of `attributes`, which outlives the call. Both commands only
    // read it, it contains no pointer, and they treat fields behind its end as zero.
    let answer = unsafe { libc::syscall(libc::SYS_bpf, command, &raw const *attributes, size_of::<T>()) };
    match libc::c_int::try_from(answer) {
        Ok(answer) if answer >= 0 => Ok(answer),
        _ => Err(io::Error::last_os_error()),
    }
}
