//! A running daemon's report about itself: findings, and the state of its links that other checks need.

use std::collections::BTreeMap;

use punctual::{
    ApiStatus, BrokenStage, DriverStatus, ForeignVersion, HostStatus, KernelTraffic, LinkStatus, NodeStatus,
    PathRecord, RateStatus,
};

use super::Finding;
use crate::host::AUTHENTICATION_FIX;
use crate::late::{counted_late, is_best_effort_host, late_wakes};

/// The state of a running daemon.
#[derive(Clone, Debug, Default)]
pub struct DaemonView {
    /// The daemon's host.
    pub host: String,
    /// Links of the daemon, by name.
    pub links: BTreeMap<String, DaemonLink>,
}

/// The daemon's state of a link.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DaemonLink {
    /// The link's drain rate.
    pub rate: RateStatus,
    /// The neighbour answers.
    pub alive: bool,
    /// Traffic of other senders on its device, in bits a second.
    pub foreign_bps: Option<u64>,
    /// The problem of its device.
    pub trouble: Option<String>,
}

impl DaemonLink {
    /// Whether other senders exceed their share of its device, which is a finding of its own.
    pub fn has_foreign_traffic(&self) -> bool {
        self.trouble.as_deref().is_some_and(|trouble| trouble.starts_with("foreign traffic"))
    }
}

impl DaemonView {
    /// Takes it from the status of the daemon of `host`.
    pub fn new(host: &str, status: &HostStatus) -> Self {
        let driver = |name: &str| status.engine.links.iter().find(|driver| driver.name == name);
        let known = |link: &LinkStatus| {
            let driver = driver(&link.name);
            let known = DaemonLink {
                rate: link.rate,
                alive: link.alive,
                foreign_bps: driver.and_then(|driver| driver.foreign_bps),
                trouble: driver.and_then(|driver| driver.facts.get("trouble")).map(str::to_owned),
            };
            (link.name.clone(), known)
        };
        Self { host: host.into(), links: status.node.links.iter().map(known).collect() }
    }
}

/// Everything that `status` calls out. `configured`: the configuration is read and judged, too.
pub fn check(host: &str, status: &HostStatus, configured: bool) -> Vec<Finding> {
    let node = &status.node;
    let mut findings = vec![serves(host, is_best_effort_host(status))];
    findings.extend(node.broken.iter().map(|broken| stage(node, broken)));
    findings.extend(node.work.iter().filter_map(at_risk));
    findings.extend(late_wakes(&node.wakes).map(wakes));
    findings.extend(warnings(&status.engine.profile.warnings));
    findings.extend(node.links.iter().filter_map(authentication));
    findings.extend(node.links.iter().filter_map(|link| neighbour(link, has_tcp(status, link))));
    findings.extend(node.links.iter().filter(|_| !configured).filter_map(unbounded));
    findings.extend(status.engine.links.iter().filter_map(trouble));
    findings.extend(refused_calls(status.engine.system_calls_refused));
    findings.extend(descriptors(&status.api));
    findings
}

fn serves(host: &str, best_effort: bool) -> Finding {
    let found = format!("serves host {host}");
    match best_effort {
        true => Finding::problem(
            "daemon",
            format!("{found} as a best-effort host: nothing is guaranteed"),
            "restart it without --best-effort-host, as root or with CAP_SYS_NICE and CAP_IPC_LOCK",
        ),
        false => Finding::ok("daemon", found),
    }
}

fn stage(node: &NodeStatus, stage: &BrokenStage) -> Finding {
    let fix = "make the stage keep its promise, or configure its real figures; it heals within a lease";
    Finding::problem(
        "stage",
        format!("{stage}{}: channels across it are degraded", counted_late(node, stage)),
        fix,
    )
}

/// Work that takes longer than admission assumes.
fn at_risk(path: &PathRecord) -> Option<Finding> {
    let kind = format!("{:?}", path.kind).to_lowercase();
    let found = format!(
        "{kind} AT RISK: of {} units {} took longer than admission assumes, one {} of {}",
        path.units, path.overruns, path.max, path.max_assumed
    );
    let fix = "measure again with 'punctual profile', and see what else runs on the daemon's CPU";
    path.at_risk.then(|| Finding::problem("profile", found, fix))
}

fn wakes(late: String) -> Finding {
    let fix = "find what takes the daemon's CPU (a hypervisor, threads of a higher priority, power states), or \
               raise release_latency in [processor] to a value that this host keeps";
    Finding::problem("wake-ups", format!("AT RISK: {late}"), fix)
}

/// What of the configuration is too tight for the profile.
fn warnings(lines: &[String]) -> Vec<Finding> {
    let fix = "set those figures in the configuration, or measure again with 'punctual profile'";
    lines.iter().map(|line| Finding::note("profile", line, fix)).collect()
}

/// System calls that threads of the daemon made, and should not have.
fn refused_calls(refused: u64) -> Option<Finding> {
    let found = format!("{refused} system calls of the daemon's threads were refused");
    let fix = "the daemon's log names them: report them with the version of the C library; to allow them until then, \
               set forbidden_calls = \"allow\" in [daemon]";
    (refused > 0).then(|| Finding::problem("system calls", found, fix))
}

/// A finding if all users together may take more descriptors than the daemon may have.
fn descriptors(api: &ApiStatus) -> Option<Finding> {
    let ApiStatus { descriptors_max: limit, descriptors_needed: needed, .. } = *api;
    let found = format!(
        "the quotas of all users together are {needed}, and the daemon may have {limit}: a user can be refused because of others"
    );
    let fix = format!(
        "set LimitNOFILE={needed} in its unit file (elsewhere: ulimit -Hn {needed}), or lower users_max or \
         descriptors_per_user_max in [daemon]; restart it"
    );
    (limit < needed).then(|| Finding::note("descriptors", found, fix))
}

/// Whether a link takes TCP connections of this host, whose peers need no Punctual.
fn has_tcp(status: &HostStatus, link: &LinkStatus) -> bool {
    let takes =
        |driver: &DriverStatus| driver.name == link.name && driver.facts.get("tcp_connections").is_some();
    status.engine.links.iter().any(takes)
}

/// A finding if a link can have no guarantee because its neighbour is down, or its rate is not known. A neighbour that was never up
/// may have no Punctual where the link takes TCP connections.
fn neighbour(link: &LinkStatus, has_tcp: bool) -> Option<Finding> {
    let LinkStatus { name, neighbour_name, rate, .. } = link;
    let unknown = rate.auto && rate.measured.is_none();
    let problem = |found: String, fix: String| Some(Finding::problem("link", found, fix));
    if let Some(ForeignVersion { theirs, ours }) = link.foreign {
        return problem(
            format!(
                "{name}: {neighbour_name} uses version {theirs} of RTCOP, not {ours}: no channel can be opened \
                 with it"
            ),
            "run the same release on both hosts".into(),
        );
    }
    match (link.alive, unknown) {
        (true, false) => None,
        (true, true) => {
            let why = rate.refused.map_or_else(String::new, |why| format!(" ({why})"));
            problem(
                format!(
                    "{name}: rate = \"auto\" is not measured yet{why}: nothing is admitted across it until it is"
                ),
                format!("wait for it, or see why: punctual profile --link {name}"),
            )
        }
        (false, false) if has_tcp && link.round_trip_min.is_none() && link.unauthenticated == 0 => {
            Some(Finding::note(
                "link",
                format!(
                    "{name}: {neighbour_name} has not answered: no channel can be opened over it; TCP connections of this host \
                     keep what punctual connections shows"
                ),
                format!("for channels, start punctuald on {neighbour_name}"),
            ))
        }
        (false, _) => {
            let and = if unknown { " and the rate is measured" } else { "" };
            problem(
                format!(
                    "{name}: {neighbour_name} is DOWN: nothing can be guaranteed over it until it is up{and}"
                ),
                format!(
                    "start punctuald on {neighbour_name}, and check that packets pass in both directions"
                ),
            )
        }
    }
}

/// A finding if the kernel's traffic on a link's device is not bounded.
fn unbounded(link: &LinkStatus) -> Option<Finding> {
    let found =
        format!("{}: nothing limits its kernel traffic: channels across the link are degraded", link.name);
    let fix = "punctual doctor --config FILE shows which keys do that";
    (link.kernel_traffic == KernelTraffic::Unbounded).then(|| Finding::problem("kernel traffic", found, fix))
}

/// The problem of a link that the daemon reports: what was found, and behind the last colon the fix.
fn trouble(link: &DriverStatus) -> Option<Finding> {
    let text = link.facts.get("trouble")?;
    let (found, fix) = text.rsplit_once(": ").unwrap_or((text, "see punctual status"));
    Some(Finding::problem("link", format!("{}: {found}", link.name), fix))
}

/// Packets that fail authentication: if the neighbour is alive, another host sends them; if not, the keys may
/// differ.
fn authentication(link: &LinkStatus) -> Option<Finding> {
    let LinkStatus { name, neighbour_name, unauthenticated, alive, .. } = link;
    if *unauthenticated == 0 {
        return None;
    }
    let found =
        format!("link {name}: packets from {neighbour_name} fail authentication ({unauthenticated} so far)");
    Some(if *alive {
        let fix = "the neighbour's own packets authenticate: find the other sender to the signalling port";
        Finding::note("authentication", found, fix)
    } else {
        Finding::problem("authentication", found, AUTHENTICATION_FIX)
    })
}

#[cfg(test)]
mod tests {
    use punctual::{Nanos, WorkKind};
    use serde_json::json;

    use super::*;
    use crate::doctor::State;

    #[test]
    fn quotas_above_the_descriptor_limit_get_a_note_with_the_limit_that_suffices() {
        let api =
            |descriptors_max| ApiStatus { descriptors_max, descriptors_needed: 596, ..ApiStatus::default() };
        assert_eq!(descriptors(&api(596)), None);
        let note = descriptors(&api(595)).expect("one is missing");
        assert!(
            note.state == State::Note && note.found.contains("596") && note.found.contains("595"),
            "{note:?}"
        );
        assert!(note.fix.contains("LimitNOFILE=596"), "{note:?}");
    }

    #[test]
    fn what_is_wrong_with_a_link_is_a_problem_with_its_fix() {
        let foreign = "foreign traffic of about 60 Mbit/s on eth0, which is Punctual's alone: keep it off";
        let link = DriverStatus { name: "l".into(), ..DriverStatus::default() };
        assert_eq!(trouble(&link), None);
        let facts = [("trouble", foreign)].into_iter().collect();
        let finding = trouble(&DriverStatus { facts, ..link }).expect("a finding");
        assert_eq!((finding.state, finding.fix.as_str()), (State::Problem, "keep it off"));
        assert!(finding.found.starts_with("l: foreign traffic of about 60 Mbit/s on eth0"), "{finding:?}");
    }

    #[test]
    fn system_calls_that_were_refused_are_a_problem() {
        assert_eq!(refused_calls(0), None);
        let finding = refused_calls(3).expect("a finding");
        assert_eq!(finding.state, State::Problem);
        assert!(finding.found.starts_with("3 system calls"), "{finding:?}");
    }

    fn link(alive: bool, unauthenticated: u64) -> LinkStatus {
        let status = json!({
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
        assert_eq!(
            authentication(&link(false, 17)),
            Some(Finding::problem("authentication", found, AUTHENTICATION_FIX))
        );
        let beside = authentication(&link(true, 17)).expect("a finding");
        assert_eq!(
            (beside.state, beside.found.as_str()),
            (State::Note, found),
            "the neighbour is there all the same"
        );
    }

    #[test]
    fn over_a_link_without_a_neighbour_or_a_rate_nothing_can_be_guaranteed() {
        assert_eq!(neighbour(&link(true, 0), false), None);
        let down = neighbour(&link(false, 0), false).expect("a finding");
        assert_eq!(down.state, State::Problem);
        assert!(
            down.found.ends_with("until it is up") && down.fix.contains("start punctuald on b"),
            "{down:?}"
        );
        let auto =
            |alive| LinkStatus { rate: RateStatus { auto: true, ..RateStatus::default() }, ..link(alive, 0) };
        let without = neighbour(&link(false, 0), true).expect("a finding");
        assert!(without.state == State::Note && without.fix.contains("for channels"), "{without:?}");
        let forged = neighbour(&link(false, 1), true).expect("a finding");
        let gone = LinkStatus { round_trip_min: Some(Nanos(1)), ..link(false, 0) };
        for found in [forged, neighbour(&gone, true).expect("a finding")] {
            assert!(found.state == State::Problem && found.found.contains("DOWN"), "{found:?}");
        }
        let down = neighbour(&auto(false), false).expect("a finding");
        assert!(down.found.ends_with("until it is up and the rate is measured"), "{down:?}");
        assert!(!down.fix.contains("punctual profile"), "the neighbour does not answer: {down:?}");
        let up = neighbour(&auto(true), false).expect("a finding");
        assert!(up.state == State::Problem && up.fix.contains("punctual profile --link right"), "{up:?}");
        let strange = LinkStatus { foreign: Some(ForeignVersion { theirs: 1, ours: 7 }), ..link(false, 0) };
        assert!(neighbour(&strange, true).is_some_and(|finding| finding.fix.contains("same release")));
    }

    #[test]
    fn what_status_calls_at_risk_is_a_problem() {
        let send = PathRecord {
            kind: WorkKind::Send,
            units: 1_000,
            first: 3,
            overruns: 200,
            p50_percent: 120,
            p99_percent: 300,
            max: Nanos::from_micros(900),
            max_assumed: Nanos::from_micros(5),
            at_risk: true,
        };
        let finding = at_risk(&send).expect("a finding");
        assert_eq!(finding.state, State::Problem);
        assert!(finding.found.starts_with("send AT RISK: of 1000 units 200 took longer"), "{finding:?}");
        assert_eq!(at_risk(&PathRecord { at_risk: false, ..send }), None);
        assert_eq!(wakes("308 of the latest 308".into()).state, State::Problem);
        assert_eq!(warnings(&["release_latency is too tight".to_owned()])[0].state, State::Note);
        let unbounded_link = LinkStatus { kernel_traffic: KernelTraffic::Unbounded, ..link(true, 0) };
        assert!(unbounded(&unbounded_link).is_some() && unbounded(&link(true, 0)).is_none());
    }
}
