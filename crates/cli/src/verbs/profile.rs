//! `punctual profile`: what protocol work costs on this machine.

use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use clap::Args;

use punctual_host::config::Driver;

use crate::driver_name;
use crate::profile::{Report, Request, run};

use crate::host::Host;
use crate::link_rate::{self, LinkRate};
use crate::output::{Outcome, Output, Usage};

/// Measure what protocol work costs on this machine. Admission uses the result. The papers' figures are shown beside it.
#[derive(Args)]
#[command(after_help = "Examples: sudo punctual profile --output /var/lib/punctual/profile.toml\n          \
                  sudo punctual profile --link to-b    measure the rate of this link of the running daemon, in half a second\n          \
                  sudo punctual profile --quick --config /etc/punctual.toml --link to-b --json\n\
                  To use the profile, write profile = \"/var/lib/punctual/profile.toml\" into [processor] of the host's configuration.\n\
                  Measure on an otherwise idle machine. A running punctuald disturbs the measurement, except with --link alone: then \
                  the daemon measures.")]
pub struct Profile {
    /// File to write the profile to.
    #[arg(long, default_value = "profile.toml", value_name = "FILE")]
    output: PathBuf,
    /// Measure for a few seconds instead of about a minute. A quick profile does not replace a full one.
    #[arg(long, conflicts_with = "full")]
    quick: bool,
    /// Let a quick profile replace a full one.
    #[arg(long)]
    force: bool,
    /// Measure for about a minute (the default).
    #[arg(long)]
    full: bool,
    /// The host's configuration. Costs are then measured with the driver of its links. The rate of each link whose neighbour
    /// answers is measured, too.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Measure only the rate of this link. The running daemon does that with the neighbour's help, while no channel uses the
    /// link. With --config no daemon is needed: the rate is computed from the times at which the driver reports packets as sent.
    #[arg(long, value_name = "NAME")]
    link: Option<String>,
    /// Driver to measure the costs with [default: the driver in the configuration, or udp].
    #[arg(long, value_parser = driver_name::parser(driver_name::any))]
    driver: Option<Driver>,
    /// File to write the plot to.
    #[arg(long, default_value = "target/profile.svg", value_name = "FILE")]
    plot: PathBuf,
    #[command(flatten)]
    host: Host,
}

impl Profile {
    /// Measures, writes and prints.
    ///
    /// # Errors
    /// If the machine cannot be measured or the profile not be written.
    pub fn run(self, output: Output) -> anyhow::Result<Outcome> {
        if let (Some(link), None) = (&self.link, &self.config) {
            if self.quick || self.full || self.force || self.driver.is_some() {
                let why = "--link alone asks the running daemon: remove --quick, --full, --force and --driver, \
                           or give --config";
                return Err(Usage(why.into()).into());
            }
            let rate = LinkRate::new(link, &self.host.connect()?.measure_rate(link)?);
            output.print(&rate, link_rate::text)?;
            return Ok(Outcome::Done);
        }
        let request = Request {
            quick: self.quick,
            date: today(),
            config: self.config,
            link: self.link,
            driver: self.driver,
            output: self.output,
            force: self.force,
            plot: self.plot,
            progress: output.is_live(),
        };
        let report = run(&request)?;
        output.print(&report, Report::text)?;
        Ok(if report.holes.inconclusive { Outcome::Inconclusive } else { Outcome::Done })
    }
}

/// The date in UTC, as 2026-01-31.
fn today() -> String {
    let days = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() / 86_400);
    let (year, month, day) = civil(days as i64);
    format!("{year:04}-{month:02}-{day:02}")
}

/// Days since 1970-01-01 in the Gregorian calendar (Hinnant, "chrono-compatible low-level date algorithms").
fn civil(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let (era, of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * of_year + 2) / 153;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    (year_of_era + era * 400 + i64::from(month <= 2), month, of_year - (153 * shifted + 2) / 5 + 1)
}

#[cfg(test)]
mod tests {
    use super::civil;

    #[test]
    fn days_are_dates() {
        assert_eq!(civil(0), (1970, 1, 1));
        assert_eq!(civil(11_016), (2000, 2, 29));
        assert_eq!(civil(20_454), (2026, 1, 1));
    }
}
