//! `punctual plan`: the static scheduling service.

mod file;

use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Args;
use punctual_analysis::activation::policed;
use punctual_analysis::plan::{self, Flow, Processor, Remedy};
use punctual_analysis::{FlowName, Nanos, Ppm};
use punctual_proto::config::plan::{HostPlan, PLAN_VERSION, PlanFile, PlannedFlow};
use serde::Serialize;

use self::file::{Host, PlanInput};
use super::status::percent;
use crate::output::{Outcome, Output, table, toml_mistake};

const EXAMPLE: &str = "Example:
  $ cat flows.toml
  [[host]]
  name = \"a\"                 # optional: config = \"punctuald.toml\", profile = \"profile.toml\", or single values:
  cpu_share_max = \"90%\"      # release_latency, quantum, fragment, best_effort_share_min, interference_burst,
  [[flow]]                   # interference_share, neighbours
  name = \"camera\"
  from = \"a\"
  to = \"b\"                   # a host of this file or any other; left out: work on one host
  period = \"10ms\"
  size = \"11200B\"            # one message per period; or packets = 8; or size with rate = \"200/s\"
  deadline = \"8ms\"           # optional, counts from the timer; default: the period
  [[flow]]
  name = \"control\"
  from = \"a\"
  period = \"10ms\"
  packets = 1
  cost = \"300us\"             # optional: CPU time of one period's packets; default: from the host's costs
  after = [\"camera\"]         # runs after this one
  $ punctual plan flows.toml --output plan.toml   # then: [processor] policy = \"rmdp\", plan = \"plan.toml\"
  $ punctual send cam@b --flow camera --rate 100/s --size 11200B --deadline 40ms < film

The plan uses periods that are a 128th shorter than written, as policing and admission do.
Exit code 0: the flows are schedulable. 1: they are not.";

/// Make a static schedule: give periodic flows rate groups, priorities and budgets, and show whether they fit, and with which
/// margin.
#[derive(Args)]
#[command(after_help = EXAMPLE)]
pub struct Plan {
    /// File that describes the flows (see below).
    file: PathBuf,
    /// Write the plan to this file, for hosts to load.
    #[arg(long, value_name = "PATH")]
    output: Option<PathBuf>,
}

/// The printed result.
#[derive(Serialize)]
struct Report {
    schedulable: bool,
    /// The factor by which all costs may grow, of the tightest host.
    margin: Option<f64>,
    hosts: Vec<HostReport>,
    /// What would make it schedulable.
    fix: Option<String>,
}

#[derive(Serialize)]
struct HostReport {
    host: String,
    schedulable: bool,
    utilisation: Ppm,
    margin: Option<f64>,
    flows: Vec<FlowReport>,
}

#[derive(Serialize)]
struct FlowReport {
    name: FlowName,
    rate_group_ns: Nanos,
    place: u8,
    priority: u32,
    period_ns: Nanos,
    packets: u32,
    cost_ns: Nanos,
    utilisation: Ppm,
    deadline_ns: Nanos,
    response_ns: Option<Nanos>,
    schedulable: bool,
}

impl Plan {
    /// Reads, plans, prints and writes.
    ///
    /// # Errors
    /// A file that cannot be read, contradicts itself, or cannot be written.
    pub fn run(self, output: Output) -> anyhow::Result<Outcome> {
        let name = self.file.display();
        let text = std::fs::read_to_string(&self.file).with_context(|| name.to_string())?;
        let folder = self.file.parent().unwrap_or(Path::new(""));
        let (report, plan) = read(&text, folder).map_err(|cause| anyhow::anyhow!("{name}: {cause}"))?;
        if !report.schedulable {
            output.print_with_units(&report, describe)?;
            anyhow::bail!(
                "{name}: not schedulable: {}",
                report.fix.as_deref().unwrap_or("no processor time to reserve")
            );
        }
        if let Some(path) = &self.output {
            let head = format!("# Made by 'punctual plan {name}'; for [processor] plan.\n");
            let written = head + &toml::to_string(&plan)?;
            std::fs::write(path, written).with_context(|| path.display().to_string())?;
        }
        output.print_with_units(&report, describe)?;
        Ok(Outcome::Done)
    }
}

fn read(text: &str, folder: &Path) -> anyhow::Result<(Report, PlanFile)> {
    let input: PlanInput =
        toml::from_str(text).map_err(|error| anyhow::anyhow!("{}: {HELP}", toml_mistake(&error, text)))?;
    let hosts = file::hosts(input, folder).map_err(|cause| anyhow::anyhow!("{cause}: {HELP}"))?;
    planned(&hosts)
}

/// See [`crate::files::plan`].
pub fn of_text(text: &str, folder: &Path) -> anyhow::Result<String> {
    Ok(serde_json::to_string(&read(text, folder)?.0)?)
}

/// The reference to the description of a file of flows.
const HELP: &str = "see 'punctual plan --help'";

fn factor(margin_ppm: u64) -> f64 {
    margin_ppm as f64 / 1e6
}

fn planned(hosts: &[Host]) -> anyhow::Result<(Report, PlanFile)> {
    let mut report = Report { schedulable: true, margin: None, hosts: Vec::new(), fix: None };
    let mut file = PlanFile { version: PLAN_VERSION, host: Vec::new() };
    for host in hosts {
        let flows: Vec<Flow> = host.flows.iter().map(|flow| flow.analysed.clone()).collect();
        let beside = host.beside();
        let processor =
            Processor { model: host.model, release_latency: host.release_latency, beside: &beside };
        let plan = plan::plan(&flows, processor)?;
        if !plan.schedulable && report.fix.is_none() {
            report.fix = Some(fix(host, &flows, &plan, plan::remedy(&flows, &plan, processor)));
        }
        report.schedulable &= plan.schedulable;
        let margin = plan.margin_ppm.map(factor);
        report.margin = match (report.hosts.is_empty(), report.margin, margin) {
            (true, _, margin) => margin,
            (false, Some(least), Some(margin)) => Some(least.min(margin)),
            _ => None,
        };
        let (mut shown, mut written) = (Vec::new(), Vec::new());
        for (flow, found) in host.flows.iter().zip(&plan.flows) {
            let Flow { name, cost, unit_cost_max, deadline, .. } = flow.analysed;
            let (period, packets) = (flow.period, flow.packets);
            shown.push(FlowReport {
                name,
                rate_group_ns: found.urgency.rate,
                place: found.urgency.place,
                priority: found.priority,
                period_ns: period,
                packets,
                cost_ns: cost,
                utilisation: found.utilisation,
                deadline_ns: deadline,
                response_ns: found.response,
                schedulable: found.schedulable,
            });
            written.push(PlannedFlow {
                name,
                period_ns: period,
                packets,
                cost_ns: cost,
                unit_ns: unit_cost_max,
                deadline_ns: deadline,
                rate_ns: found.urgency.rate,
                place: found.urgency.place,
            });
        }
        report.hosts.push(HostReport {
            host: host.name.to_string(),
            schedulable: plan.schedulable,
            utilisation: plan.utilisation,
            margin,
            flows: shown,
        });
        file.host.push(HostPlan { name: host.name.clone(), flow: written });
    }
    Ok((report, file))
}

/// One line: the problem on a host, and the fix.
fn fix(host: &Host, flows: &[Flow], plan: &plan::Plan, remedy: Remedy) -> String {
    let late = plan.flows.iter().position(|flow| !flow.schedulable);
    let wrong = match late {
        Some(index) => {
            let response =
                plan.flows[index].response.map_or("unbounded".into(), |response| response.to_string());
            format!("flow \"{}\" takes up to {response} of {}", flows[index].name, flows[index].deadline)
        }
        None => format!(
            "{} of the processor would be reserved, the limit is {}",
            percent(plan.utilisation),
            percent(host.model.utilisation_limit)
        ),
    };
    let right = match remedy {
        Remedy::Deadline(index, deadline) => {
            format!("give \"{}\" a deadline of {deadline} or more", flows[index].name)
        }
        // The configured interval, not the policing interval.
        Remedy::Period(index, period) => {
            let written = Nanos(period.0 + period.0.div_ceil(127));
            format!("give \"{}\" a period of {} or more", flows[index].name, rounded(written))
        }
        Remedy::Costs(factor_ppm) => {
            format!("cut all costs to {:.1} % of their values", (factor_ppm / 1_000) as f64 / 10.0)
        }
        Remedy::None => "raise cpu_share_max, or lower release_latency and interference".into(),
    };
    format!("host \"{}\": {wrong}: {right}", host.name)
}

/// Up to whole tenths of a millisecond.
fn rounded(span: Nanos) -> Nanos {
    Nanos(span.0.div_ceil(100_000) * 100_000)
}

fn describe(report: &Report) -> String {
    let head =
        ["flow", "rate group", "place", "priority", "packets", "cost", "used", "response", "deadline", ""];
    let mut text = Vec::new();
    for host in &report.hosts {
        let rows: Vec<Vec<String>> = host.flows.iter().map(row).collect();
        let margin = host.margin.map_or("no costs fit, however small".into(), |margin| {
            format!(
                "the flows fit as long as all costs are at most {:.1} % of their values",
                (margin * 1_000.0).floor() / 10.0
            )
        });
        let answer = if host.schedulable { "schedulable" } else { "NOT schedulable" };
        text.push(format!(
            "host {}: {answer}; with all other work, {} of the processor is reserved; {margin}\n{}",
            host.host,
            percent(host.utilisation),
            table(&head, &rows)
        ));
    }
    text.join("\n\n")
}

fn row(flow: &FlowReport) -> Vec<String> {
    vec![
        flow.name.to_string(),
        flow.rate_group_ns.to_string(),
        flow.place.to_string(),
        flow.priority.to_string(),
        format!("{} every {}", flow.packets, flow.period_ns),
        flow.cost_ns.to_string(),
        percent(flow.utilisation),
        flow.response_ns.map_or("unbounded".into(), |response| response.to_string()),
        flow.deadline_ns.to_string(),
        if flow.schedulable { String::new() } else { "late".into() },
    ]
}

/// The policed period of a flow.
fn timer(period: Nanos) -> Nanos {
    policed(period).max(Nanos(1))
}
