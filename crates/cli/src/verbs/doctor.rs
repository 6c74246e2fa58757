//! `punctual doctor`: is this host fit for guarantees, and what to do where it is not.

use std::path::{Path, PathBuf};

use clap::Args;
use punctual::LinkStatus;
use punctual_engine::config::load;
use serde_json::Value;

use crate::doctor::rate::KnownRates;
use crate::doctor::{Finding, Report, State, configuration, leftovers, system};
use crate::host::Host;
use crate::output::{Outcome, Output};
use crate::verbs::status::is_best_effort_host;

/// Where the configuration is unless told otherwise.
const CONFIG_DEFAULT: &str = "/etc/punctual.toml";

/// Check this host and its configuration, with the fix for each finding.
#[derive(Args)]
#[command(after_help = "Examples: punctual doctor --config /etc/punctual.toml\n          \
                        punctual doctor --repair    after a daemon, demo or bench was killed: puts its devices back, \
                        removes its namespaces\n\
                        Exit code 0: no problem; 1: guarantees are not possible like this.")]
pub struct Doctor {
    /// The daemon's configuration [default: /etc/punctual.toml where there is one].
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Put back what a daemon that was killed left on network devices (qdisc, NAPI threads, interrupt deferral), and remove
    /// the network namespaces of demos and experiments that were killed, with what still runs in them.
    #[arg(long)]
    repair: bool,
    #[command(flatten)]
    host: Host,
}

impl Doctor {
    /// Checks everything and prints.
    ///
    /// # Errors
    /// Where the report cannot be printed.
    pub fn run(self, output: Output) -> anyhow::Result<Outcome> {
        let mut findings = system::check();
        let path =
            self.config.clone().or_else(|| Some(PathBuf::from(CONFIG_DEFAULT)).filter(|path| path.exists()));
        let (daemon, rates) = self.daemon(self.config.as_deref());
        let serving = daemon.iter().all(|finding| finding.state != State::Note || finding.name != "daemon");
        findings.extend(daemon);
        findings.extend(leftovers::check(self.repair));
        findings.extend(configuration::check(path.as_deref(), serving, &rates));
        let report = Report::new(findings);
        output.print(&report, Report::text)?;
        Ok(Outcome::from_ok(report.ok))
    }

    /// The daemon that was asked for, or else that of the named configuration; what is wrong with its links and stages, and what
    /// it knows of its neighbours; and of its links' rates.
    fn daemon(&self, config: Option<&Path>) -> (Vec<Finding>, KnownRates) {
        let named = config.and_then(|path| load(path).ok()).map(|config| config.daemon.socket);
        let host = Host { socket: self.host.socket.clone().or(named) };
        let endsystem = match host.connect() {
            Ok(endsystem) => endsystem,
            Err(error) => {
                let fix = "punctuald --config FILE; --socket PATH where it serves another socket";
                return (vec![Finding::note("daemon", format!("{error:#}"), fix)], KnownRates::new());
            }
        };
        let found = format!("serves host {}", endsystem.host());
        let status = match endsystem.status() {
            Ok(status) => status,
            Err(error) => {
                let finding = Finding::problem("daemon", error.to_string(), "look at its log");
                return (vec![finding], KnownRates::new());
            }
        };
        let daemon = if is_best_effort_host(&status) {
            Finding::problem(
                "daemon",
                format!("{found} as a best-effort host: nothing is guaranteed"),
                "restart it without --best-effort-host, as root or with CAP_SYS_NICE and CAP_IPC_LOCK",
            )
        } else {
            Finding::ok("daemon", found)
        };
        let broken = status.node.broken.iter().map(|stage| {
            let fix = "make the stage keep its promise, or configure what it really does; it heals by itself within a lease";
            Finding::problem("stage", format!("{stage}: channels across it are degraded"), fix)
        });
        let authentication = status.node.links.iter().filter_map(authentication);
        let troubles = troubles(&status.engine["links"]);
        let rates = status.node.links.iter().map(|link| (link.name.clone(), link.rate)).collect();
        (std::iter::once(daemon).chain(broken).chain(authentication).chain(troubles).collect(), rates)
    }
}

/// What the daemon says is wrong with its links: what was found, and behind the last colon the fix.
fn troubles(links: &Value) -> Vec<Finding> {
    let trouble = |link: &Value| {
        let (name, text) = (link["name"].as_str()?, link["facts"]["trouble"].as_str()?);
        let (found, fix) = text.rsplit_once(": ").unwrap_or((text, "see punctual status"));
        Some(Finding::problem("link", format!("{name}: {found}"), fix))
    };
    links.as_array().into_iter().flatten().filter_map(trouble).collect()
}

/// Signalling on a link that does not authenticate. Beside a neighbour that does it is somebody else's.
fn authentication(link: &LinkStatus) -> Option<Finding> {
    let LinkStatus { name, neighbour_name, unauthenticated, alive, .. } = link;
    if *unauthenticated == 0 {
        return None;
    }
    let found =
        format!("link {name}: packets from {neighbour_name} fail authentication ({unauthenticated} so far)");
    Some(if *alive {
        let fix = "the neighbour itself authenticates: look who else sends to the signalling port";
        Finding::note("authentication", found, fix)
    } else {
        let fix = "compare [signalling] key and the ids of [[host]] on both hosts";
        Finding::problem("authentication", found, fix)
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_wrong_with_a_link_is_a_problem_with_its_fix() {
        let foreign = "foreign traffic of about 60 Mbit/s on eth0, which is Punctual's alone: keep it off";
        let links = json!([{ "name": "l", "facts": { "trouble": foreign } }, { "name": "m", "facts": {} }]);
        let [finding] = &troubles(&links)[..] else { panic!("one link has trouble") };
        assert_eq!((finding.state, finding.fix.as_str()), (State::Problem, "keep it off"));
        assert!(finding.found.starts_with("l: foreign traffic of about 60 Mbit/s on eth0"), "{finding:?}");
        assert!(troubles(&Value::Null).is_empty());
    }

    fn link(alive: bool, unauthenticated: u64) -> LinkStatus {
        let status = serde_json::json!({
            "link": 0, "name": "right", "neighbour": 2, "neighbour_name": "b", "alive": alive, "clock_offset_ns": null,
            "round_trip_min": null, "utilisation": 0, "packets_guaranteed": 0, "packets_best_effort": 0,
            "packets_signalling": 0, "wire_bytes": 0, "best_effort_dropped": 0, "unauthenticated": unauthenticated,
        });
        serde_json::from_value(status).expect("a link's status")
    }

    #[test]
    fn packets_that_fail_authentication_are_named_with_the_fix() {
        assert_eq!(authentication(&link(true, 0)), None);
        let found = "link right: packets from b fail authentication (17 so far)";
        let fix = "compare [signalling] key and the ids of [[host]] on both hosts";
        assert_eq!(authentication(&link(false, 17)), Some(Finding::problem("authentication", found, fix)));
        let beside = authentication(&link(true, 17)).expect("a finding");
        assert_eq!(
            (beside.state, beside.found.as_str()),
            (State::Note, found),
            "the neighbour is there all the same"
        );
    }
}
