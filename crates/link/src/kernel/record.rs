//! The record of the changes on a device: a file that its owner keeps locked.
//!
//! The kernel releases the lock when the owner ends, however it ends; so a record that can be locked is a
//! leftover. The files are below `/run`, which is empty after a boot. Their names contain the network
//! namespace (its cookie is never used twice) and the device's number there. A record may outlive its device:
//! before anything is restored, its presence and our mark on it are checked.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::path::{Path, PathBuf};

use rustix::net::{AddressFamily, SocketType, socket};

use super::device::Device;
use super::error::KernelError;
use super::napi::{NapiSettings, ThreadClass};
use super::qdisc::{Before, Qdisc};

/// Folder of the records.
const FOLDER: &str = "/run/punctual/devices";
const FIRST_LINE: &str = "punctual device record 1";

/// State of a device before it was changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct State {
    /// Number of the device.
    pub device: u32,
    /// Name of the device when it was changed.
    pub name: String,
    /// Process that changed it.
    pub owner: u32,
    /// The former qdisc at its root; `None`: not changed.
    pub qdisc: Option<Before>,
    /// Settings of its NAPI instances.
    pub napis: Vec<NapiBefore>,
}

/// Settings of a NAPI instance before they were changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NapiBefore {
    pub id: u32,
    pub settings: NapiSettings,
    /// Class of its thread, if it had one.
    pub class: Option<ThreadClass>,
}

/// A record that this process owns.
#[derive(Debug)]
pub(super) struct Record {
    path: PathBuf,
    file: File,
}

impl Record {
    /// Takes the record of a device. The second part is what a crash left there, which must be restored
    /// first.
    ///
    /// # Errors
    /// [`KernelError::Busy`] if its owner still runs; an error if the file cannot be opened.
    pub fn take(device: &Device) -> Result<(Self, Option<State>), KernelError> {
        let path = path_of(device.index).map_err(failed(Path::new(FOLDER)))?;
        fs::create_dir_all(FOLDER).map_err(failed(Path::new(FOLDER)))?;
        let open = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path);
        let mut file = open.map_err(failed(&path))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let owner = read(&mut file).map_or(0, |state| state.owner);
                return Err(KernelError::Busy { device: device.name.clone(), owner });
            }
            Err(TryLockError::Error(error)) => return Err(failed(&path)(error)),
        }
        let left = read(&mut file);
        Ok((Self { path, file }, left))
    }

    /// Replaces the content; it is written to the disk (or file system in memory) before anything is changed
    /// on the device.
    pub fn write(&mut self, state: &State) -> Result<(), KernelError> {
        let text = encode(state);
        let file = &mut self.file;
        let written = file
            .rewind()
            .and_then(|()| file.set_len(0))
            .and_then(|()| file.write_all(text.as_bytes()))
            .and_then(|()| file.flush());
        written.map_err(failed(&self.path))
    }

    /// Everything has been put back.
    pub fn remove(self) {
        // The lock ends with the file; an empty record has no effect either.
        let _ = fs::remove_file(&self.path);
    }
}

/// Leftovers of this network namespace, locked by the caller now.
pub(super) fn abandoned() -> io::Result<Vec<(Record, State)>> {
    let prefix = format!("{:x}-", namespace_cookie()?);
    let entries = match fs::read_dir(FOLDER) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut found = Vec::new();
    for path in entries.filter_map(|entry| entry.ok().map(|entry| entry.path())) {
        let ours =
            path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with(&prefix));
        if !ours {
            continue;
        }
        let Ok(mut file) = OpenOptions::new().read(true).write(true).open(&path) else { continue };
        if file.try_lock().is_ok()
            && let Some(state) = read(&mut file)
        {
            found.push((Record { path, file }, state));
        }
    }
    Ok(found)
}

/// Whether the device has a record, with a running owner or not.
pub(super) fn is_recorded(device: u32) -> bool {
    path_of(device).is_ok_and(|path| path.exists())
}

fn failed(path: &Path) -> impl FnOnce(io::Error) -> KernelError {
    let path = path.to_owned();
    move |error| KernelError::Record { path, error }
}

fn path_of(device: u32) -> io::Result<PathBuf> {
    Ok(Path::new(FOLDER).join(format!("{:x}-{device}", namespace_cookie()?)))
}

/// The number of this thread's network namespace; never used again before the next boot.
fn namespace_cookie() -> io::Result<u64> {
    let socket = socket(AddressFamily::UNIX, SocketType::DGRAM, None)?;
    let mut cookie = 0_u64;
    let mut length = size_of::<u64>() as libc::socklen_t;
    // SAFETY: pointer and length describe a number that is valid during the call.
    let result = unsafe {
        let value = (&raw mut cookie).cast();
        let level = (libc::SOL_SOCKET, libc::SO_NETNS_COOKIE);
        libc::getsockopt(socket.as_fd().as_raw_fd(), level.0, level.1, value, &mut length)
    };
    if result == 0 { Ok(cookie) } else { Err(io::Error::last_os_error()) }
}

fn read(file: &mut File) -> Option<State> {
    let mut text = String::new();
    file.rewind().ok()?;
    file.read_to_string(&mut text).ok()?;
    decode(&text)
}

pub(super) fn encode(state: &State) -> String {
    let State { device, name, owner, qdisc, napis } = state;
    let mut text = format!("{FIRST_LINE}\ndevice {device} {name}\nowner {owner}\n");
    text += &match qdisc {
        None => String::new(),
        Some(Before::Default) => "qdisc default\n".into(),
        Some(Before::Classless(qdisc)) => {
            let options: String = qdisc.options.iter().map(|byte| format!("{byte:02x}")).collect();
            format!("qdisc {} {} {options}\n", qdisc.kind, qdisc.handle)
        }
    };
    for napi in napis {
        let NapiSettings { threaded, defer_hard_irqs, gro_flush_timeout_ns } = napi.settings;
        text += &format!("napi {} {threaded} {defer_hard_irqs} {gro_flush_timeout_ns}", napi.id);
        text += &napi.class.map_or(String::new(), |class| format!(" {} {}", class.policy, class.priority));
        text += "\n";
    }
    // A record that was cut off while it was written is none.
    text + "end\n"
}

pub(super) fn decode(text: &str) -> Option<State> {
    let mut lines = text.lines();
    (lines.next()? == FIRST_LINE && text.ends_with("end\n")).then_some(())?;
    let mut state = State::default();
    for line in lines {
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["device", device, name] => (state.device, state.name) = (device.parse().ok()?, name.into()),
            ["owner", owner] => state.owner = owner.parse().ok()?,
            ["qdisc", "default"] => state.qdisc = Some(Before::Default),
            ["qdisc", kind, handle, options] => {
                let qdisc = Qdisc::restorable(kind.into(), handle.parse().ok()?, from_hexadecimal(options)?);
                state.qdisc = Some(Before::Classless(qdisc));
            }
            ["napi", ref numbers @ ..] => state.napis.push(napi_before(numbers)?),
            ["end"] => return Some(state),
            _ => return None,
        }
    }
    None
}

fn napi_before(words: &[&str]) -> Option<NapiBefore> {
    let numbers: Vec<u64> = words.iter().map(|word| word.parse().ok()).collect::<Option<_>>()?;
    let small = |number: u64| u32::try_from(number).ok();
    let [id, threaded, defer, gro_flush_timeout_ns, ref class @ ..] = numbers[..] else { return None };
    let settings =
        NapiSettings { threaded: small(threaded)?, defer_hard_irqs: small(defer)?, gro_flush_timeout_ns };
    let class = match *class {
        [] => None,
        [policy, priority] => {
            Some(ThreadClass { policy: i32::try_from(policy).ok()?, priority: i32::try_from(priority).ok()? })
        }
        _ => return None,
    };
    Some(NapiBefore { id: small(id)?, settings, class })
}

fn from_hexadecimal(text: &str) -> Option<Vec<u8>> {
    let digits = text.as_bytes();
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    digits.len().is_multiple_of(2).then(|| digits.chunks(2).map(byte).collect()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state() -> State {
        let settings = NapiSettings { threaded: 1, defer_hard_irqs: 2, gro_flush_timeout_ns: 50_000 };
        let class = Some(ThreadClass { policy: 1, priority: 60 });
        State {
            device: 7,
            name: "eth0".into(),
            owner: 4_711,
            qdisc: Some(Before::Classless(Qdisc::restorable(
                "pfifo".into(),
                0x8001_0000,
                vec![0, 0xff, 0x10],
            ))),
            napis: vec![
                NapiBefore { id: 259, settings, class },
                NapiBefore { id: 260, settings, class: None },
            ],
        }
    }

    #[test]
    fn a_record_is_read_as_it_was_written() {
        let variants = [
            state(),
            State { qdisc: Some(Before::Default), ..state() },
            State { qdisc: None, napis: Vec::new(), ..state() },
        ];
        for state in variants {
            assert_eq!(decode(&encode(&state)), Some(state));
        }
    }

    #[test]
    fn a_record_that_is_cut_off_or_odd_is_none() {
        let text = encode(&state());
        for end in 0..text.len() {
            assert_eq!(decode(&text[..end]), None, "{end}");
        }
        assert_eq!(decode(&text.replace("napi 259", "napi x")), None);
        assert_eq!(decode(&text.replace("00ff10", "00f")), None);
    }
}
