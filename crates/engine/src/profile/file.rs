//! The profile as a file: TOML, versioned; the reader validates every value.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;

use punctual_proto::Nanos;
use punctual_proto::api::RtuCost;
use punctual_proto::config::CpuCosts;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::machine::Machine;
use super::summary::Summary;

/// Version of the file and of what its costs mean. A profile of another version is measured again. Version 2
/// brought cold starts, version 3 segments of TCP.
pub const PROFILE_VERSION: u32 = 3;
/// No cost of one packet or message is longer on a machine that could guarantee anything.
const COST_NS_MAX: u64 = 10_000_000;
/// The last line: without it a number may have lost digits.
const END: &str = "# end of profile";
/// A profile is a few kilobytes.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// A measured machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// [`PROFILE_VERSION`].
    pub version: u32,
    /// When it was measured, as its creator states.
    pub measured: String,
    /// Measured in about a second at the start of a host.
    pub short: bool,
    /// The machine that was measured.
    pub machine: Machine,
    /// Unit costs that admission adds its margin to.
    pub costs: Costs,
    /// The cost of one turn of the processor in addition to its work: a wake-up, a check of every link.
    pub turn_ns: u64,
    /// Time from a timer's expiry to the processor's thread, for 99.9 % of the times, with the CPU loaded; 0:
    /// not measured.
    #[serde(default)]
    pub wake_up_ns: u64,
    /// Everything that was measured, by name.
    #[serde(default)]
    pub measurements: BTreeMap<String, Summary>,
}

/// See [`CpuCosts`] and [`Costs::segment`]; in ns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs, reason = "the names are those of CpuCosts")]
pub struct Costs {
    pub send_message_ns: u64,
    pub send_packet_ns: u64,
    pub send_packet_later_ns: u64,
    pub forward_packet_ns: u64,
    pub receive_packet_ns: u64,
    pub deliver_message_ns: u64,
    pub copy_kib_ns: u64,
    pub cold_start_ns: u64,
    pub segment_ns: u64,
    pub segment_call_ns: u64,
}

/// A profile that cannot be used, in one line with the fix.
#[derive(Debug, Error)]
pub enum ProfileError {
    /// The profile cannot be read or written.
    #[error("profile {path}: {error}")]
    Io {
        /// Path of the file.
        path: String,
        /// Why it cannot be read or written.
        error: io::Error,
    },
    /// The file is no profile.
    #[error("profile {path}: {what}: measure again with 'punctual profile --output {path}'")]
    Malformed {
        /// Path of the file.
        path: String,
        /// The mistake in it.
        what: String,
    },
    /// The profile is of another version.
    #[error(
        "profile {path} is of version {version}, this program reads version {PROFILE_VERSION}: measure again with \
         'punctual profile --output {path}'"
    )]
    Version {
        /// Path of the file.
        path: String,
        /// Version of the profile.
        version: i64,
    },
    /// The profile was measured on another machine.
    #[error(
        "profile {path} was measured on another machine ({what} \"{there}\", here \"{here}\"): measure here with \
         'punctual profile --output {path}', or run without guarantees with profile_mismatch = \"accept\" in [processor]"
    )]
    Foreign {
        /// Path of the file.
        path: String,
        /// What differs.
        what: &'static str,
        /// Value in the profile.
        there: String,
        /// Value on this machine.
        here: String,
    },
}

impl Profile {
    /// Reads a file and checks everything but the machine.
    ///
    /// # Errors
    /// See [`ProfileError`].
    pub fn load(path: &Path) -> Result<Self, ProfileError> {
        let name = || path.display().to_string();
        let io = |error| ProfileError::Io { path: name(), error };
        let bytes = fs::metadata(path).map_err(io)?.len();
        if bytes > FILE_BYTES_MAX {
            return Err(ProfileError::Malformed { path: name(), what: format!("{bytes} B are no profile") });
        }
        Self::parse(&fs::read_to_string(path).map_err(io)?, path)
    }

    /// Checks the text of a file; `path` names it in errors.
    ///
    /// # Errors
    /// See [`ProfileError`].
    pub fn parse(text: &str, path: &Path) -> Result<Self, ProfileError> {
        let malformed = |what: String| ProfileError::Malformed { path: path.display().to_string(), what };
        let wrong = |error: toml::de::Error| {
            let before = error.span().map_or(0, |span| span.start.min(text.len()));
            let line = 1 + text.as_bytes()[..before].iter().filter(|byte| **byte == b'\n').count();
            malformed(format!("line {line}: {}", error.message().replace('\n', " ")))
        };
        // Read the version first: another version may have other keys.
        let table: toml::Table = text.parse().map_err(wrong)?;
        let version = table.get("version").and_then(toml::Value::as_integer);
        match version.ok_or_else(|| malformed("it has no version".into()))? {
            version if version == i64::from(PROFILE_VERSION) => {}
            version => return Err(ProfileError::Version { path: path.display().to_string(), version }),
        }
        if !text.trim_end().ends_with(END) {
            return Err(malformed(format!("it is truncated, its last line is not \"{END}\"")));
        }
        let profile: Self = toml::from_str(text).map_err(wrong)?;
        profile.check().map_err(malformed)?;
        Ok(profile)
    }

    /// Whether the figures can be true.
    fn check(&self) -> Result<(), String> {
        let costs = &self.costs;
        let needed = [
            ("send_message_ns", costs.send_message_ns),
            ("send_packet_ns", costs.send_packet_ns),
            ("send_packet_later_ns", costs.send_packet_later_ns),
            ("forward_packet_ns", costs.forward_packet_ns),
            ("receive_packet_ns", costs.receive_packet_ns),
            ("segment_ns", costs.segment_ns),
            ("segment_call_ns", costs.segment_call_ns),
        ];
        if let Some((name, _)) = needed.iter().find(|(_, ns)| *ns == 0) {
            return Err(format!("costs.{name} is 0, no work is free"));
        }
        let others = [
            ("deliver_message_ns", costs.deliver_message_ns),
            ("copy_kib_ns", costs.copy_kib_ns),
            ("cold_start_ns", costs.cold_start_ns),
            ("turn_ns", self.turn_ns),
        ];
        let absurd = |(_, ns): &&(&str, u64)| *ns > COST_NS_MAX;
        match needed.iter().chain(&others).find(absurd) {
            Some((name, ns)) => {
                Err(format!("{name} = {ns} is absurd, more than {} ms", COST_NS_MAX / 1_000_000))
            }
            None => Ok(()),
        }
    }

    /// Refuses the profile of another machine.
    ///
    /// # Errors
    /// [`ProfileError::Foreign`].
    pub fn check_machine(&self, here: &Machine, path: &Path) -> Result<(), ProfileError> {
        match self.machine.difference(here) {
            None => Ok(()),
            Some((what, there, here)) => {
                Err(ProfileError::Foreign { path: path.display().to_string(), what, there, here })
            }
        }
    }

    /// The file's text.
    ///
    /// # Errors
    /// Never for a profile that was measured; a figure beyond TOML's integers is one.
    pub fn text(&self) -> Result<String, toml::ser::Error> {
        let head = "# The execution profile of a machine, measured by `punctual profile`. Times in ns; block_ns is the 99th\n\
                    # percentile of the means of 32 consecutive units, what admission charges before its margin.\n";
        Ok(format!("{head}{}{END}\n", toml::to_string_pretty(self)?))
    }

    /// Writes the file atomically: completely or not at all.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn save(&self, path: &Path) -> Result<(), ProfileError> {
        let name = || path.display().to_string();
        let text =
            self.text().map_err(|error| ProfileError::Io { path: name(), error: io::Error::other(error) })?;
        let aside = path.with_extension(format!("{}.new", std::process::id()));
        let written = fs::write(&aside, text).and_then(|()| fs::rename(&aside, path));
        written.map_err(|error| {
            // If the file was not created, there is none to remove.
            let _ = fs::remove_file(&aside);
            ProfileError::Io { path: name(), error }
        })
    }
}

impl Costs {
    /// Costs as the node takes them, without a margin.
    pub fn cpu_costs(&self) -> CpuCosts {
        CpuCosts {
            send_message: Nanos(self.send_message_ns),
            send_packet: Nanos(self.send_packet_ns),
            send_packet_later: Nanos(self.send_packet_later_ns),
            forward_packet: Nanos(self.forward_packet_ns),
            receive_packet: Nanos(self.receive_packet_ns),
            deliver_message: Nanos(self.deliver_message_ns),
            copy_kib: Nanos(self.copy_kib_ns),
            cold_start: Nanos(self.cold_start_ns),
        }
    }

    /// What a handler of TCP declares, without a margin: each segment, of any kind and in either direction, and besides each
    /// call, which may hand over what waited for room in the program's ring.
    pub const fn segment(&self) -> RtuCost {
        RtuCost { run: Nanos(self.segment_call_ns), unit: Nanos(self.segment_ns) }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub fn example() -> Profile {
        Profile {
            version: PROFILE_VERSION,
            measured: "some day".into(),
            short: false,
            machine: Machine::here("udp"),
            costs: Costs {
                send_message_ns: 900,
                send_packet_ns: 4_000,
                send_packet_later_ns: 3_000,
                forward_packet_ns: 6_000,
                receive_packet_ns: 3_500,
                deliver_message_ns: 700,
                copy_kib_ns: 120,
                cold_start_ns: 21_000,
                segment_ns: 4_500,
                segment_call_ns: 2_500,
            },
            turn_ns: 1_500,
            wake_up_ns: 60_000,
            measurements: BTreeMap::from([("send_first".into(), Summary::of(&[4_000; 64]))]),
        }
    }

    fn parse(text: &str) -> Result<Profile, String> {
        Profile::parse(text, Path::new("p.toml")).map_err(|error| error.to_string())
    }

    #[test]
    fn what_is_written_is_read_back() {
        let text = example().text().expect("text");
        assert_eq!(parse(&text).as_ref(), Ok(&example()));
    }

    #[test]
    fn every_truncation_is_refused_in_one_line_with_the_fix() {
        let text = example().text().expect("text");
        let end = text.trim_end().len();
        for cut in (0..end).filter(|at| text.is_char_boundary(*at)) {
            let error = parse(&text[..cut]).expect_err("truncated");
            assert!(!error.contains('\n') && error.contains("punctual profile"), "{error}");
        }
    }

    #[test]
    fn absurd_figures_foreign_keys_and_versions_are_refused() {
        let text = example().text().expect("text");
        let with = |from: &str, to: &str| {
            assert!(text.contains(from), "{from}");
            parse(&text.replace(from, to)).expect_err(to)
        };
        assert!(with("send_packet_ns = 4000", "send_packet_ns = 0").contains("no work is free"));
        assert!(with("send_packet_ns = 4000", "send_packet_ns = 99000000000").contains("absurd"));
        assert!(with("send_packet_ns = 4000", "send_packet_ns = -1").contains("p.toml"));
        assert!(with("send_packet_ns = 4000", "send_packet_ns = \"4us\"").contains("line "));
        assert!(with("turn_ns", "turns_ns").contains("turns_ns"));
        assert!(with("version = 3", "version = 7").contains("version 7"));
        let older = with("version = 3", "version = 2");
        assert!(older.contains("is of version 2, this program reads version 3: measure again"), "{older}");
        assert!(parse("").expect_err("empty").contains("no version"));
        assert!(parse("\u{0}\u{1}garbage").expect_err("garbage").contains("line 1"));
    }

    #[test]
    fn the_profile_of_another_machine_is_refused_with_both_ways_out() {
        let mut profile = example();
        profile.machine.cpu = "abacus".into();
        let error = profile
            .check_machine(&Machine::here("udp"), Path::new("p.toml"))
            .expect_err("foreign")
            .to_string();
        assert!(error.contains("\"abacus\"") && error.contains("punctual profile"), "{error}");
        assert!(error.contains("profile_mismatch = \"accept\"") && !error.contains('\n'), "{error}");
        assert!(example().check_machine(&Machine::here("udp"), Path::new("p.toml")).is_ok());
    }
}
