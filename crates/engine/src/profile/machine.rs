//! The machine that a profile was measured on: costs of one machine are not valid on another.

use std::fs;
use std::thread::available_parallelism;

use serde::{Deserialize, Serialize};

/// The properties that determine the costs. Equal machines may share a profile.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Machine {
    /// Model of the first CPU.
    pub cpu: String,
    /// CPUs that this process may use.
    pub cores: usize,
    /// The kernel's release.
    pub kernel: String,
    /// The host's name: virtual machines of one model differ in their neighbours.
    pub host: String,
    /// The driver of the links while it was measured, by its name.
    pub driver: String,
}

impl Machine {
    /// This one, with links on `driver`.
    pub fn here(driver: &str) -> Self {
        Self {
            cpu: cpu_model(&fs::read_to_string("/proc/cpuinfo").unwrap_or_default()),
            cores: available_parallelism().map_or(1, usize::from),
            kernel: of_kernel("osrelease"),
            host: of_kernel("hostname"),
            driver: driver.into(),
        }
    }

    /// The first thing in which `self`, the profile's machine, differs from `here`: what, there and here.
    pub fn difference(&self, here: &Self) -> Option<(&'static str, String, String)> {
        let pairs = [
            ("CPU", self.cpu.clone(), here.cpu.clone()),
            ("number of CPUs", self.cores.to_string(), here.cores.to_string()),
            ("kernel", self.kernel.clone(), here.kernel.clone()),
            ("host", self.host.clone(), here.host.clone()),
            ("driver", self.driver.clone(), here.driver.clone()),
        ];
        pairs.into_iter().find(|(_, there, here)| there != here)
    }
}

/// A text that the kernel reports about itself; empty if it does not.
fn of_kernel(what: &str) -> String {
    fs::read_to_string(format!("/proc/sys/kernel/{what}")).unwrap_or_default().trim().to_owned()
}

/// The model in the text of `/proc/cpuinfo`, whose keys depend on the architecture.
fn cpu_model(cpuinfo: &str) -> String {
    let value = |key: &str| {
        let line =
            cpuinfo.lines().find(|line| line.split(':').next().is_some_and(|name| name.trim() == key))?;
        Some(line.split_once(':')?.1.trim().to_owned())
    };
    ["model name", "cpu model", "Hardware", "CPU part", "cpu"]
        .into_iter()
        .find_map(value)
        .unwrap_or_else(|| std::env::consts::ARCH.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_model_is_found_or_the_architecture() {
        assert_eq!(cpu_model("processor : 0\nmodel name\t: Some CPU @ 2 GHz\n"), "Some CPU @ 2 GHz");
        assert_eq!(cpu_model(""), std::env::consts::ARCH);
    }

    #[test]
    fn another_machine_differs_in_something_that_is_named() {
        let here = Machine::here("udp");
        assert_eq!(here.difference(&here.clone()), None);
        let there = Machine { kernel: "1.0".into(), ..here.clone() };
        let (what, theirs, _) = there.difference(&here).expect("another kernel");
        assert_eq!((what, theirs.as_str()), ("kernel", "1.0"));
        assert!(Machine { driver: "xdp".into(), ..here.clone() }.difference(&here).is_some());
    }
}
