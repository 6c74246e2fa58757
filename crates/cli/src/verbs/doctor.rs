//! `punctual doctor`: is this host fit for guarantees, and what to do where it is not.

use std::path::{Path, PathBuf};

use clap::Args;
use punctual_engine::config::load;

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
        let daemon = self.daemon(self.config.as_deref());
        let serving = daemon.state != State::Note;
        findings.push(daemon);
        findings.extend(leftovers::check(self.repair));
        findings.extend(configuration::check(path.as_deref(), serving));
        let report = Report::new(findings);
        output.print(&report, Report::text)?;
        Ok(Outcome::from_ok(report.ok))
    }

    /// The daemon that was asked for, or else that of the named configuration.
    fn daemon(&self, config: Option<&Path>) -> Finding {
        let named = config.and_then(|path| load(path).ok()).map(|config| config.daemon.socket);
        let host = Host { socket: self.host.socket.clone().or(named) };
        match host.connect() {
            Ok(endsystem) => {
                let found = format!("serves host {}", endsystem.host());
                match endsystem.status() {
                    Ok(status) if is_best_effort_host(&status) => Finding::problem(
                        "daemon",
                        format!("{found} as a best-effort host: nothing is guaranteed"),
                        "restart it without --best-effort-host, as root or with CAP_SYS_NICE and CAP_IPC_LOCK",
                    ),
                    Ok(_) => Finding::ok("daemon", found),
                    Err(error) => Finding::problem("daemon", error.to_string(), "look at its log"),
                }
            }
            Err(error) => Finding::note(
                "daemon",
                format!("{error:#}"),
                "punctuald --config FILE; --socket PATH where it serves another socket",
            ),
        }
    }
}
