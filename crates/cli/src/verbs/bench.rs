//! `punctual bench`: the papers' figures on this machine.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use clap::Args;
use punctual::BitRate;
use punctual_experiments::experiments::{EXPERIMENTS, Experiment, Peer, Wanted, find, work_if_asked};
use punctual_experiments::testbed::peer;
use punctual_host::config::Driver;
use punctual_host::config::quantity::Quantity;

use crate::driver_name;
use crate::output::{Outcome, Output, Usage, table};

/// Repeat an experiment of the papers that Punctual implements, and compare Punctual with plain kernel sockets. `list` shows the
/// experiments.
#[derive(Args)]
#[command(after_help = "Examples: sudo punctual bench clips-isolation --quick\n          \
                  sudo punctual bench rio-latency --driver udp --json\n          \
                  sudo punctual bench --serve                          on the other machine, then on this one:\n          \
                  sudo punctual bench rio-latency --peer 10.0.0.2 --rate 1Gbit/s\n\
                  Plots and JSON go to target/bench/")]
pub struct Bench {
    /// Name of the experiment, or `list`.
    #[arg(required_unless_present = "serve")]
    name: Option<String>,
    /// Measure fewer points in shorter slices: done within 60 s.
    #[arg(long)]
    quick: bool,
    /// The shortest possible run, to check that the experiment works; its figures mean nothing.
    #[arg(long, hide = true)]
    smoke: bool,
    /// Directory for the plot, the JSON and the daemons' logs.
    #[arg(long, default_value = "target/bench", value_name = "DIR")]
    directory: PathBuf,
    /// Driver of Punctual's links; default: xdp if this host supports it, udp with --peer.
    #[arg(long, value_parser = driver_name::parser(driver_name::joining_hosts))]
    driver: Option<Driver>,
    /// Run over two machines: HOST or HOST:PORT, where `punctual bench --serve` runs.
    #[arg(long, value_name = "HOST", conflicts_with = "serve")]
    peer: Option<String>,
    /// Rate of the link to the peer [default: the rate that the network interface reports].
    #[arg(long, value_name = "RATE", value_parser = <BitRate as Quantity>::parse, requires = "peer")]
    rate: Option<BitRate>,
    /// Serve as the other machine until Ctrl-C. Any host that reaches the address can load this machine: use a private network.
    #[arg(long, conflicts_with_all = ["name", "quick", "driver"])]
    serve: bool,
    /// Address to serve on.
    #[arg(long, value_name = "ADDR", requires = "serve",
          default_value_t = SocketAddr::from((Ipv4Addr::UNSPECIFIED, peer::PORT_DEFAULT)))]
    listen: SocketAddr,
}

impl Bench {
    /// Runs it.
    ///
    /// # Errors
    /// If there is no such experiment, no test bed can be set up, or a stream breaks.
    pub fn run(self, output: Output) -> anyhow::Result<Outcome> {
        if self.serve {
            peer::serve(self.listen, |address| eprintln!("serving on {address}; Ctrl-C ends it"))?;
            return Ok(Outcome::Done);
        }
        if work_if_asked()? {
            return Ok(Outcome::Done);
        }
        let name = self.name.as_deref().unwrap_or("list");
        if name == "list" {
            output.print(&EXPERIMENTS, |all| list(all))?;
            return Ok(Outcome::Done);
        }
        let experiment = find(name).map_err(|error| Usage(error.to_string()))?;
        let driver = self.driver;
        if let Some(why) = experiment.objection(self.peer.is_some(), driver) {
            return Err(Usage(why).into());
        }
        let rate = self.rate;
        let wanted = Wanted {
            quick: self.quick || self.smoke,
            smoke: self.smoke,
            directory: self.directory,
            progress: output.is_live(),
            driver,
            peer: self.peer.map(|address| Peer { address, rate }),
        };
        let (status, report) = experiment.run(wanted)?;
        if let Some(report) = report {
            output.print(&report, |report| report.text())?;
        }
        Ok(outcome(status))
    }
}

/// The outcome for the exit status of an experiment.
pub fn outcome(status: i32) -> Outcome {
    match status {
        0 => Outcome::Done,
        3 => Outcome::Inconclusive,
        _ => Outcome::Refused,
    }
}

fn list(experiments: &[Experiment]) -> String {
    let row = |one: &Experiment| vec![one.name.to_owned(), one.paper.to_owned(), one.about.to_owned()];
    table(&["name", "paper", "shows"], &experiments.iter().map(row).collect::<Vec<_>>())
}
