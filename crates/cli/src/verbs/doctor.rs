//! `punctual doctor`: checks whether this host is fit for guarantees, and prints the fixes.

use std::path::{Path, PathBuf};

use clap::Args;
use punctual_host::config::load;

use crate::doctor::daemon::{self, DaemonView};
use crate::doctor::{Finding, Report, State, configuration, leftovers, system};
use crate::host::Host;
use crate::output::{Outcome, Output};

/// Default path of the configuration.
const CONFIG_DEFAULT: &str = "/etc/punctual.toml";

/// Check whether this host and its configuration can give guarantees. Each finding comes with its fix.
#[derive(Args)]
#[command(after_help = "Examples: punctual doctor --config /etc/punctual.toml\n          \
                        punctual doctor --repair    after a daemon, demo or bench was killed: restores its devices, \
                        removes its namespaces\n\
                        Exit code 0: no problem found. 1: this host cannot give guarantees as it is.")]
pub struct Doctor {
    /// The daemon's configuration [default: /etc/punctual.toml if it exists].
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Restore the settings of network devices that a killed daemon changed (qdisc, NAPI threads, interrupt deferral). Remove the
    /// network namespaces of killed demos and experiments, and end what still runs in them.
    #[arg(long)]
    repair: bool,
    #[command(flatten)]
    host: Host,
}

impl Doctor {
    /// Checks everything and prints.
    ///
    /// # Errors
    /// If the report cannot be printed.
    pub fn run(self, output: Output) -> anyhow::Result<Outcome> {
        let mut findings = system::check();
        let path =
            self.config.clone().or_else(|| Some(PathBuf::from(CONFIG_DEFAULT)).filter(|path| path.exists()));
        let (daemon, known) = self.daemon(self.config.as_deref(), path.is_some());
        let serving = daemon.iter().all(|finding| finding.state != State::Note || finding.name != "daemon");
        findings.extend(daemon);
        findings.extend(leftovers::check(self.repair));
        findings.extend(configuration::check(path.as_deref(), serving, known.as_ref()));
        let report = Report::new(findings);
        output.print(&report, Report::text)?;
        Ok(Outcome::from_ok(report.ok))
    }

    /// The findings and the state of the daemon that the arguments name, or else of the daemon of the
    /// configuration. `configured`: the configuration is checked, too.
    fn daemon(&self, config: Option<&Path>, configured: bool) -> (Vec<Finding>, Option<DaemonView>) {
        let named = config.and_then(|path| load(path).ok()).map(|config| config.daemon.socket);
        let host = Host { socket: self.host.socket.clone().or(named) };
        let endsystem = match host.connect() {
            Ok(endsystem) => endsystem,
            Err(error) => {
                let fix = "punctuald --config FILE; --socket PATH where it serves another socket";
                return (vec![Finding::note("daemon", format!("{error:#}"), fix)], None);
            }
        };
        match endsystem.status() {
            Ok(status) => {
                let findings = daemon::check(endsystem.host(), &status, configured);
                (findings, Some(DaemonView::new(endsystem.host(), &status)))
            }
            Err(error) => {
                (vec![Finding::problem("daemon", error.to_string(), "read the daemon's log")], None)
            }
        }
    }
}
