//! The configuration: whether it parses, and whether this host can carry it out.

use std::path::Path;

use punctual::counted;
use punctual_engine::{RealTime, SchedulingClass};
use punctual_host::config::drivers::CheckedLink;
use punctual_host::config::{HostConfig, load};

use super::daemon::DaemonView;
use super::system::try_real_time;
use super::{Finding, rate, traffic};

/// Every check of a configuration; `serving`: a daemon runs, so its ports are taken. `known`: that daemon's
/// state of its links.
pub fn check(path: Option<&Path>, serving: bool, known: Option<&DaemonView>) -> Vec<Finding> {
    let Some(path) = path else {
        let fix = "give the path of yours with --config; docs/punctuald.example.toml explains every key";
        return vec![Finding::note("configuration", "none was given", fix)];
    };
    match load(path) {
        Err(error) => {
            let fix = if path.is_file() {
                "correct it; docs/punctuald.example.toml explains every key"
            } else {
                "name the file that punctuald is started with: --config FILE"
            };
            vec![Finding::problem("configuration", error.to_string(), fix)]
        }
        Ok(config) => {
            let summary = format!("host {}, {}", config.node.name, counted(config.node.links.len(), "link"));
            let mut findings = vec![Finding::ok("configuration", summary), real_time(&config)];
            findings.extend(deadline(&config, serving));
            // Another host's daemon has no state of these links.
            let known = known.filter(|known| known.host == config.node.name.as_str());
            let known = |link: &str| known.and_then(|known| known.links.get(link));
            findings.extend(traffic::check(&config, serving, known));
            let links: Vec<CheckedLink<'_>> = checked(&config, |link| known(link).is_some());
            for (checked, link) in links.iter().zip(&config.node.links) {
                findings.extend(rate::check(link, checked.settings, known(&link.name), serving));
                findings.extend(checked.settings.examine(checked, serving));
            }
            for driver in config.drivers_in_use() {
                let own: Vec<CheckedLink<'_>> = config.places_of(driver).map(|place| links[place]).collect();
                findings.extend(driver.examine(&own, serving));
            }
            findings
        }
    }
}

/// The links in the form in which their drivers check them.
fn checked(config: &HostConfig, is_known: impl Fn(&str) -> bool) -> Vec<CheckedLink<'_>> {
    let links = config.node.links.iter().zip(&config.drivers);
    links
        .map(|(link, driver)| CheckedLink {
            name: &link.name,
            settings: &**driver,
            is_known: is_known(&link.name),
        })
        .collect()
}

fn real_time(config: &HostConfig) -> Finding {
    let found =
        if config.is_best_effort_host() { "best-effort host: nothing is guaranteed" } else { "real-time" };
    let fix = "remove best_effort_host from [processor]";
    Finding::judge("configured class", found, !config.is_best_effort_host(), Finding::problem, fix)
}

/// Whether the kernel gives a runtime to a processor that is scheduled by deadline; a daemon that runs has it.
fn deadline(config: &HostConfig, serving: bool) -> Vec<Finding> {
    let SchedulingClass::Deadline { period } = config.real_time.class else { return Vec::new() };
    let name = "SCHED_DEADLINE";
    let grain = "a runtime is enforced at the kernel's tick, so a pause may last up to a tick; other deadline threads share \
                 the CPU with the daemon";
    let mut findings = vec![Finding::note(
        name,
        format!("period {period}; {grain}"),
        "run no other deadline threads on this host, or use class = \"fifo\"",
    )];
    if !serving {
        let wanted = RealTime { lock_memory: false, ..config.real_time };
        findings.push(match try_real_time(wanted) {
            Ok(()) => Finding::ok(name, "the kernel gives a runtime"),
            Err(error) => Finding::problem(name, error, "see the error, or set [processor] class = \"fifo\""),
        });
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::State;

    #[test]
    fn a_configuration_is_read_or_requested() {
        assert_eq!(check(Some(Path::new("/does/not/exist.toml")), false, None)[0].state, State::Problem);
        assert_eq!(check(None, false, None)[0].state, State::Note);
    }
}
