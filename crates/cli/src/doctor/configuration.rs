//! The configuration: whether it parses, and whether this host can carry it out.

use std::io;
use std::net::{IpAddr, UdpSocket};
use std::path::Path;

use punctual::counted;
use punctual_engine::{RealTime, SchedulingClass};
use punctual_host::config::{HostConfig, LinkDriver, load};

use super::daemon::{Known, KnownLink};
use super::system::try_real_time;
use super::{Finding, rate, traffic, xdp};

/// Every check of a configuration; `serving`: a daemon runs, so its ports are taken.
/// `known`: what that daemon knows of its links.
pub fn check(path: Option<&Path>, serving: bool, known: Option<&Known>) -> Vec<Finding> {
    let Some(path) = path else {
        let fix = "name yours with --config; docs/punctuald.example.toml explains every key";
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
            // Another host's daemon knows nothing of these links.
            let known = known.filter(|known| known.host == config.node.name.as_str());
            let known = |link: &str| known.and_then(|known| known.links.get(link));
            findings.extend(traffic::check(&config, serving, known));
            for (driver, link) in config.drivers.iter().zip(&config.node.links) {
                let known = known(&link.name);
                findings.extend(rate::check(link, driver, known, serving));
                let LinkDriver::Udp(options) = driver else { continue };
                findings.push(address(&link.name, options.local, known));
                if !serving {
                    findings.push(port(&link.name, options.local, options.data_port));
                    findings.push(port(&link.name, options.local, options.signalling_port));
                }
            }
            findings.extend(xdp::check(&config, serving, known));
            findings
        }
    }
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

/// What to do where the daemon has what this network namespace has not.
pub(super) const ELSEWHERE: &str =
    "run punctual doctor in the daemon's network namespace: ip netns exec NAMESPACE punctual doctor";

/// Whether the address is this host's.
fn address(link: &str, local: IpAddr, known: Option<&KnownLink>) -> Finding {
    match UdpSocket::bind((local, 0)) {
        Ok(_) => Finding::ok("link address", format!("{link}: {local} is this host's")),
        Err(_) if known.is_some() => {
            let found = format!(
                "{link}: {local} is not in this network namespace, but the daemon that answers has it"
            );
            Finding::note("link address", found, ELSEWHERE)
        }
        Err(error) => {
            let fix =
                format!("ip address add {local}/24 dev INTERFACE, or correct \"local\" of link \"{link}\"");
            Finding::problem("link address", format!("{link}: {local}: {error}"), fix)
        }
    }
}

fn port(link: &str, local: IpAddr, port: u16) -> Finding {
    match UdpSocket::bind((local, port)) {
        Ok(_) => Finding::ok("link port", format!("{link}: UDP {local}:{port} is free")),
        // The address has its own finding.
        Err(error) if error.kind() == io::ErrorKind::AddrNotAvailable => Finding::note(
            "link port",
            format!("{link}: UDP port {port} not tried"),
            "correct the address first",
        ),
        Err(error) => {
            let fix = format!("see who has it: ss -ulpn 'sport = :{port}'; stop it, or choose another port");
            Finding::problem("link port", format!("{link}: UDP {local}:{port}: {error}"), fix)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::State;

    #[test]
    fn findings_name_what_is_wrong() {
        let local: IpAddr = [127, 0, 0, 1].into();
        let taken = UdpSocket::bind((local, 0)).expect("a port");
        let number = taken.local_addr().expect("an address").port();
        let finding = port("l", local, number);
        assert_eq!(finding.state, State::Problem);
        assert!(finding.fix.contains(&number.to_string()));
        drop(taken);
        assert_eq!(port("l", local, number).state, State::Ok);
        assert_eq!(address("l", [192, 0, 2, 1].into(), None).state, State::Problem);
        let elsewhere = address("l", [192, 0, 2, 1].into(), Some(&KnownLink::default()));
        assert_eq!((elsewhere.state, elsewhere.fix.as_str()), (State::Note, ELSEWHERE));
        assert_eq!(check(Some(Path::new("/does/not/exist.toml")), false, None)[0].state, State::Problem);
        assert_eq!(check(None, false, None)[0].state, State::Note);
    }
}
