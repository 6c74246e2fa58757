//! Links over AF_XDP: rights, the device, its driver, other programs, memory, NAPI threads.

use std::fs;

use punctual_link::kernel::napi::{ThreadClass, instances, xdp_features};
use punctual_link::kernel::{Device, KernelError, RESOLVE_PATIENCE};
use punctual_link::xdp::{AttachMode, ZeroCopy};
use rustix::process::{Resource, getrlimit};
use rustix::thread::CapabilitySet;

use super::super::{CheckedLink, settings_of};
use super::{RIGHTS, XdpSettings, cost, frame_bytes};
use crate::finding::Finding;

/// What loading programs, AF_XDP sockets and the settings of devices take.
const CAPABILITIES: CapabilitySet = RIGHTS.union(CapabilitySet::NET_ADMIN);

/// Every check of a host's links over AF_XDP; `serving`: a daemon runs, so the programs on the devices are
/// its own.
pub(super) fn examine(links: &[CheckedLink<'_>], serving: bool) -> Vec<Finding> {
    let settings = settings_of::<XdpSettings>(links.iter().map(|link| link.settings));
    let mut findings = vec![
        rights(&settings),
        locked_memory(&settings),
        cost::check(settings.iter().any(|link| link.classifier.flows_max > 0)),
    ];
    for (of, settings) in links.iter().zip(settings) {
        // A device in the daemon's network namespace is not visible here.
        if of.is_known && Device::named(&settings.classifier.device).is_err() {
            continue;
        }
        findings.extend(link(of.name, settings, serving));
    }
    findings
}

fn link(name: &str, settings: &XdpSettings, serving: bool) -> Vec<Finding> {
    let request = settings.request();
    let path = match request.resolve(RESOLVE_PATIENCE) {
        Ok(path) => path.destination.map_or_else(
            || Finding::note("link path", format!("{name}: no answer"), "bring the neighbour up"),
            |mac| {
                Finding::ok("link path", format!("{name}: {} by {} to {mac}", request.peer, request.device))
            },
        ),
        Err(error) => problem("link path", name, &error),
    };
    let Ok(device) = request.device() else { return vec![path] };
    let mut findings = vec![path, native(name, settings, &device), other_program(name, &device, serving)];
    findings.extend((settings.classifier.flows_max > 0).then(|| unseen(name)));
    findings.extend(queues(name, settings, &device));
    findings
        .extend(settings.care.napi_priority.map(|priority| napi(name, settings, &device, priority, serving)));
    findings
}

/// What the operator's other tools do not show.
fn unseen(link: &str) -> Finding {
    let found = format!(
        "{link}: the kernel's firewall, ss and tcpdump do not see TCP connections that Punctual runs"
    );
    let fix = "list them with punctual connections; see their packets with punctual capture; filter at the neighbour; allow \
               peers and ports in [[daemon.tcp]]";
    Finding::note("TCP of this host's own", found, fix)
}

/// An error of the kernel: what was found, and behind the first colon the fix.
fn problem(check: &'static str, link: &str, error: &KernelError) -> Finding {
    let text = error.to_string();
    let (found, fix) = text.split_once(": ").unwrap_or((&text, "see the log of the kernel (dmesg)"));
    Finding::problem(check, format!("{link}: {found}"), fix)
}

/// The capabilities of this process, which a daemon that is started like it will have.
fn capabilities() -> CapabilitySet {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let bits = effective.and_then(|digits| u64::from_str_radix(digits.trim(), 16).ok());
    CapabilitySet::from_bits_retain(bits.unwrap_or(0))
}

/// Names of the capabilities that are `needed` and not `held`.
fn missing(needed: CapabilitySet, held: CapabilitySet) -> Vec<String> {
    needed.difference(held).iter_names().map(|(name, _)| format!("CAP_{name}")).collect()
}

fn rights(links: &[&XdpSettings]) -> Finding {
    let wants_threads = links.iter().any(|link| link.care.napi_priority.is_some());
    let nice = if wants_threads { CapabilitySet::SYS_NICE } else { CapabilitySet::empty() };
    let held = capabilities();
    let missing = [missing(CAPABILITIES, held), missing(nice, held)].concat();
    let fix =
        format!("run punctuald as root, or with {0} (systemd: AmbientCapabilities={0})", missing.join(" "));
    let found =
        if missing.is_empty() { "all there".into() } else { format!("missing: {}", missing.join(", ")) };
    Finding::judge("xdp rights", found, missing.is_empty(), Finding::problem, &fix)
}

fn locked_memory(links: &[&XdpSettings]) -> Finding {
    let frame = frame_bytes(links.iter().copied());
    // Every link registers all frames with its own sockets.
    let frames: u64 = links.iter().map(|link| link.memory_bytes(frame)).sum();
    let bytes = frames * links.len() as u64;
    let limit = getrlimit(Resource::Memlock).current.unwrap_or(u64::MAX);
    let is_unlimited = capabilities().contains(CapabilitySet::IPC_LOCK);
    let most = if is_unlimited {
        "without a limit by CAP_IPC_LOCK".to_owned()
    } else {
        format!("the limit is {} KiB", limit >> 10)
    };
    let enough = is_unlimited || limit >= bytes;
    let found = format!("frames take {} KiB, {most}", bytes >> 10);
    let fix = "run punctuald with CAP_IPC_LOCK or LimitMEMLOCK=infinity (ulimit -l unlimited), or configure fewer frames";
    Finding::judge("xdp locked memory", found, enough, Finding::problem, fix)
}

fn native(name: &str, settings: &XdpSettings, device: &Device) -> Finding {
    let check = "native XDP";
    let Some(features) = xdp_features(device) else {
        return Finding::note(
            check,
            format!("{name}: this kernel does not report it"),
            "start punctuald and see its status",
        );
    };
    let native = features.native() && features.redirect();
    let copies = if features.zero_copy() { "zero-copy" } else { "copy" };
    let found = |mode: &str| format!("{name}: {} can {mode}, {copies}", device.name);
    match (native, settings.classifier.mode) {
        (true, _) if settings.zero_copy == ZeroCopy::Yes && !features.zero_copy() => Finding::problem(
            check,
            found("native"),
            "set zero_copy = \"auto\", or use a device whose driver has it",
        ),
        (true, _) => Finding::ok(check, found("native")),
        (false, _) if settings.classifier.flows_max > 0 => Finding::problem(
            check,
            found("only generic"),
            "TCP connections need a device whose driver has native XDP: use one, or leave flows_max out",
        ),
        (false, AttachMode::Native) => Finding::problem(
            check,
            found("only generic"),
            "set xdp_mode = \"auto\", or use a device whose driver has native XDP",
        ),
        (false, _) => Finding::note(
            check,
            found("only generic"),
            "packets take a socket buffer before they are classified: use a device whose driver has native XDP",
        ),
    }
}

fn other_program(name: &str, device: &Device, serving: bool) -> Finding {
    let check = "XDP program";
    match device.xdp {
        Some(_) if serving => Finding::ok(check, format!("{name}: attached to {}", device.name)),
        Some(attached) => Finding::problem(
            check,
            format!("{name}: {} has program {} already", device.name, attached.program),
            format!(
                "find its program: bpftool prog show id {}; detach it: ip link set dev {} xdp off",
                attached.program, device.name
            ),
        ),
        None => Finding::ok(check, format!("{name}: none on {}", device.name)),
    }
}

/// A finding if the device spreads packets over several receive queues, because they may then arrive in a queue that no program reads.
fn queues(name: &str, settings: &XdpSettings, device: &Device) -> Option<Finding> {
    let (queues, queue) = (device.rx_queues_used(), settings.queue);
    let (check, device) = ("receive queues", &device.name);
    let found = format!("{name}: {device} spreads packets over {queues}, queue {queue} is read");
    let one = format!("ethtool -L {device} combined 1 (or rx 1, if it has no combined ones)");
    if queues <= 1 {
        return None;
    }
    if settings.classifier.flows_max > 0 {
        let found = format!("{found}: TCP connections are refused");
        return Some(Finding::problem(check, found, format!("{one}, before punctuald starts")));
    }
    let port = settings.classifier.data_port;
    let steer = format!("steer our ports: ethtool -N {device} flow-type udp4 dst-port {port} action {queue}");
    Some(Finding::note(check, found, format!("{one}, or {steer}")))
}

fn napi(name: &str, settings: &XdpSettings, device: &Device, priority: u8, serving: bool) -> Finding {
    let check = "NAPI threads";
    if !serving {
        return Finding::ok(check, format!("{name}: will be made at SCHED_FIFO {priority}"));
    }
    let threads: Vec<u32> = match instances(device, settings.queue) {
        Ok(instances) => instances.iter().filter_map(|napi| napi.thread).collect(),
        Err(error) => return problem(check, name, &error),
    };
    let right =
        |thread: &&u32| ThreadClass::of(**thread).is_ok_and(|class| class == ThreadClass::fifo(priority));
    let at_priority = threads.iter().filter(right).count();
    let found = format!("{name}: {at_priority} of {} at SCHED_FIFO {priority}", threads.len());
    let fix = "restart punctuald: they were changed from outside";
    Finding::judge(check, found, at_priority == threads.len() && at_priority > 0, Finding::problem, fix)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::State;

    #[test]
    fn rights_have_the_names_of_the_system() {
        let held = CapabilitySet::NET_RAW.union(CapabilitySet::SYS_NICE);
        let none = CapabilitySet::empty();
        assert_eq!(missing(CAPABILITIES, none), ["CAP_NET_ADMIN", "CAP_NET_RAW", "CAP_BPF"]);
        assert_eq!(missing(CAPABILITIES, held), ["CAP_NET_ADMIN", "CAP_BPF"]);
        assert_eq!(missing(CapabilitySet::SYS_NICE, held), [""; 0]);
    }

    #[test]
    fn errors_are_split_at_their_fix() {
        let finding = problem("link path", "to-b", &KernelError::Down("eth7".into()));
        assert_eq!(finding.found, "to-b: interface eth7 is down");
        assert_eq!((finding.fix.as_str(), finding.state), ("ip link set eth7 up", State::Problem));
    }
}
