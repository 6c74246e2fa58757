//! `punctual sim --minimise` and `--case`: the smallest plan that goes wrong, written down, and run again.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;
use punctual::counted;
use punctual_sim::case::{Case, Cases};
use punctual_sim::minimise::{Found, minimise};
use punctual_sim::{Options, Report, Scenario};
use serde::Serialize;

use super::printed::sums;
use super::progress::Ticker;
use crate::output::{Outcome, Output};

#[derive(Serialize)]
struct Minimised {
    runs: u32,
    /// `None`: the whole plan violates nothing.
    #[serde(flatten)]
    smallest: Option<Smallest>,
    /// Report of the smallest plan, or of the whole one.
    #[serde(flatten)]
    report: Report,
}

#[derive(Serialize)]
struct Smallest {
    case: Case,
    file: PathBuf,
    hosts: usize,
    channels: usize,
    faults: usize,
    #[serde(skip)]
    plan: Vec<String>,
}

/// Finds the smallest plan of the case's seed with the same violation, and writes it to `file`.
///
/// # Errors
/// If the plan cannot be run or the file cannot be written.
pub fn run(case: Case, options: &Options, file: &Path, output: Output) -> anyhow::Result<Outcome> {
    let ticker = Ticker::new(output);
    let found = minimise(case.seed, options, |cut, runs| {
        let left = |list: &Option<Vec<usize>>, noun| match list {
            Some(list) => counted(list.len(), noun),
            None => format!("all {noun}s"),
        };
        let (hosts, channels) = (left(&cut.hosts, "host"), left(&cut.channels, "channel"));
        ticker.show(|| format!("{}: {hosts}, {channels}", counted(runs, "run")));
    })?;
    ticker.end();
    let minimum = match found {
        Found::Smallest(minimum) => *minimum,
        Found::Nothing(outcome) => {
            let printed = Minimised { runs: 1, smallest: None, report: Report::of(&[*outcome]) };
            output.print(&printed, |_| format!("seed {} violates nothing", case.seed))?;
            return Ok(Outcome::Done);
        }
    };
    let lesson = minimum.outcome.violations.first().map(|v| v.what.clone()).unwrap_or_default();
    let plan = Some(Scenario::draw(case.seed, options)?.digest());
    let case = Case { lesson, plan, cut: minimum.cut, ..case };
    let text = toml::to_string(&Cases { cases: vec![case.clone()] }).context("the case cannot be written")?;
    if let Some(folder) = file.parent() {
        fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    }
    fs::write(file, text).with_context(|| file.display().to_string())?;
    let smallest = Smallest {
        case,
        file: file.into(),
        hosts: minimum.plan.hosts.len(),
        channels: minimum.plan.channels.len(),
        faults: minimum.plan.schedule.len(),
        plan: describe_plan(&minimum.plan),
    };
    let report = Report::of(&[minimum.outcome]);
    let text = describe(&smallest, minimum.runs, &report);
    output.print(&Minimised { runs: minimum.runs, smallest: Some(smallest), report }, |_| text)?;
    Ok(Outcome::Refused)
}

fn describe(smallest: &Smallest, runs: u32, report: &Report) -> String {
    let [hosts, channels, faults] =
        [(smallest.hosts, "host"), (smallest.channels, "channel"), (smallest.faults, "fault")]
            .map(|(count, noun)| counted(count, noun));
    let mut lines = vec![format!("smallest of {}: {hosts}, {channels}, {faults}", counted(runs, "plan"))];
    lines.extend(smallest.plan.iter().cloned());
    lines.extend(sums(report));
    lines.push(format!("again: punctual sim --case {} --trace", smallest.file.display()));
    lines.join("\n")
}

/// Hosts, channels and faults, a line each.
fn describe_plan(plan: &Scenario) -> Vec<String> {
    let name = |host: usize| plan.hosts.get(host).map_or("?".into(), |host| host.config.name.to_string());
    let mut lines = Vec::new();
    for (number, host) in plan.hosts.iter().enumerate() {
        let links = host.config.links.iter().zip(&host.links);
        let links = links
            .map(|(config, link)| format!("{} at {} Mbit/s", name(link.peer), config.rate.0 / 1_000_000));
        let links = links.collect::<Vec<_>>().join(", ");
        lines.push(format!("host {number} {}: {:?}, links to {links}", name(number), host.config.cpu.run));
    }
    for (number, channel) in plan.channels.iter().enumerate() {
        let (from, to, contract) = (name(channel.from), name(channel.to), &channel.contract);
        lines.push(format!(
            "channel plan {number}: {from} to {to}, {} B every {}, bursts of {}, within {}, {:?}, {:?}, {:?}",
            contract.message_bytes_max,
            contract.interval(),
            contract.burst_messages_max,
            contract.deadline,
            channel.arrivals,
            contract.policing,
            contract.delivery,
        ));
    }
    for flood in &plan.floods {
        let (from, to) = (name(flood.from), name(flood.to));
        lines
            .push(format!("best effort: {from} to {to}, {} B every {}", flood.message_bytes, flood.interval));
    }
    if !plan.faults.is_none() {
        lines.push(format!("frames: {:?}", plan.faults));
    }
    lines
        .extend(plan.schedule.iter().map(|fault| format!("{}, {}: {:?}", fault.at, fault.lasts, fault.what)));
    lines
}
