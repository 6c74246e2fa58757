//! The printed form of the results.

use punctual::counted;
use punctual_sim::Report;
use punctual_sim::resident::Reading;
use serde::Serialize;

/// Result of a range of seeds. The JSON is the same on every run: the duration is only in the text.
#[derive(Serialize)]
pub struct Printed {
    #[serde(flatten)]
    pub report: Report,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub trace: Vec<String>,
    #[serde(skip)]
    pub core_seconds: f64,
    /// Memory readings of a long run.
    #[serde(skip)]
    pub memory: Vec<Reading>,
}

/// For people.
pub fn describe(printed: &Printed) -> String {
    let Printed { report, trace, core_seconds, memory } = printed;
    let mut lines = trace.clone();
    lines.extend(sums(report));
    lines.extend(resident(memory));
    lines.push(pace(report, *core_seconds));
    lines.push(verdict(report, &report.digest));
    lines.join("\n")
}

/// Violations and sums, a line each.
pub fn sums(report: &Report) -> Vec<String> {
    let mut lines: Vec<String> =
        report.violations.iter().map(|v| format!("violation, seed {}: {}", v.seed, v.what)).collect();
    lines.push(format!(
        "{}: {} admitted, {} refused; {}, {} late, {} touched by faults; {}",
        counted(report.seeds, "seed"),
        counted(report.admitted, "channel"),
        report.refused,
        counted(report.messages, "message"),
        report.misses,
        report.excused,
        counted(report.best_effort, "best-effort message"),
    ));
    if report.refused_versions > 0 {
        lines.push(format!(
            "{} refused across hosts of two versions",
            counted(report.refused_versions, "channel")
        ));
    }
    if report.requests > 0 {
        lines.push(format!("{} of receivers ended", counted(report.requests, "request")));
    }
    if report.soft_messages > 0 {
        lines.push(format!(
            "soft channels of independent sources: {} of {} missed, their contracts allow {}",
            report.soft_misses,
            counted(report.soft_messages, "message"),
            report.soft_borne_milli / 1_000,
        ));
    }
    if !report.tcp.is_none() {
        let tcp = report.tcp;
        lines.push(format!(
            "{} opened: {} complete, {} refused or broken by a program or a crash; {} read, {} sent, \
             {} promised to leave in time, {} of guaranteed connections compared",
            counted(tcp.opened, "TCP connection"),
            tcp.complete,
            tcp.excused,
            counted(tcp.bytes, "byte"),
            counted(tcp.segments, "segment"),
            tcp.promised,
            counted(tcp.periods, "period"),
        ));
        lines.push(format!(
            "{} of them over a reserved path: {} were promised to be at the other end in time",
            tcp.paths,
            counted(tcp.path_packets, "packet"),
        ));
    }
    lines.push(format!("slowest message: {} % of its deadline", report.tightness_percent));
    lines
}

/// The resident memory over a long run.
fn resident(memory: &[Reading]) -> Option<String> {
    let readings: Vec<String> = memory.iter().map(|reading| (reading.bytes / 1_024).to_string()).collect();
    let last = memory.last()?;
    Some(format!("resident memory until {}, in KiB: {}", last.at, readings.join(" ")))
}

/// How fast it was.
pub fn pace(report: &Report, core_seconds: f64) -> String {
    let hops = report.packet_hops;
    format!("{hops} packet-hops, {:.0} a second and core", hops as f64 / core_seconds.max(1e-9))
}

/// The last word.
pub fn verdict(report: &Report, digest: &str) -> String {
    let word = if report.holds() { "every promise held" } else { "VIOLATED" };
    format!("{word}: {}; digest {digest}", counted(report.violations_total, "violation"))
}
