//! The host: rights, scheduling, clock, kernel limits, tools.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;

use punctual::counted;
use punctual_os::realtime::{RealTime, SchedulingClass, apply};

use super::{Finding, preemption};

/// The daemon's priority unless configured otherwise.
const PRIORITY: u8 = 50;
/// Default size of the socket buffers of links.
const SOCKET_BUFFER_BYTES: u64 = 2 << 20;
/// Descriptors of a daemon with a few hundred channels.
const DESCRIPTORS: u64 = 4_096;

/// Every check of the host.
pub fn check() -> Vec<Finding> {
    vec![
        real_time(),
        locked_memory(),
        throttling(),
        governor(),
        isolation(),
        preemption::check(),
        clock_source(),
        timer_slack(),
        socket_buffers("rmem_max"),
        socket_buffers("wmem_max"),
        descriptors(),
        proc_mounted(),
        tool("ip", "network namespaces of `punctual demo` and `bench`"),
        tool("tc", "emulated links of `punctual demo` and `bench`"),
    ]
}

fn read(path: impl AsRef<Path>) -> Option<String> {
    fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
}

fn number(path: &str) -> Option<i64> {
    read(path)?.parse().ok()
}

/// Tries the class on a thread of its own, which ends at once.
pub(super) fn try_real_time(wanted: RealTime) -> Result<(), String> {
    match thread::spawn(move || apply(&wanted).map_err(|error| error.to_string())).join() {
        Ok(result) => result,
        Err(_) => Err("the trial failed".into()),
    }
}

fn real_time() -> Finding {
    let class = SchedulingClass::Fifo { priority: PRIORITY };
    match try_real_time(RealTime { class, ..RealTime::BEST_EFFORT_HOST }) {
        Ok(()) => Finding::ok("real-time class", format!("SCHED_FIFO {PRIORITY} is granted")),
        Err(error) => Finding::problem(
            "real-time class",
            error,
            "run punctuald as root or with CAP_SYS_NICE (systemd: AmbientCapabilities=CAP_SYS_NICE), or set \
             \"rtprio 98\" in /etc/security/limits.conf",
        ),
    }
}

fn locked_memory() -> Finding {
    match try_real_time(RealTime { lock_memory: true, ..RealTime::BEST_EFFORT_HOST }) {
        Ok(()) => Finding::ok("locked memory", "memory can be locked"),
        Err(error) => Finding::problem(
            "locked memory",
            error,
            "run punctuald as root or with CAP_IPC_LOCK (systemd: LimitMEMLOCK=infinity), or set \"memlock \
             unlimited\" in /etc/security/limits.conf",
        ),
    }
}

fn throttling() -> Finding {
    let name = "RT throttling";
    let runtime = number("/proc/sys/kernel/sched_rt_runtime_us");
    let period = number("/proc/sys/kernel/sched_rt_period_us");
    match (runtime, period) {
        (Some(-1), _) => Finding::note(
            name,
            "switched off: a runaway real-time thread can take a whole CPU",
            "keep it off only with a dedicated CPU; else sysctl kernel.sched_rt_runtime_us=950000",
        ),
        (Some(runtime), Some(period)) if period > 0 => {
            let share = runtime as f64 / period as f64;
            let found = format!("real-time threads may take {:.0}% of a CPU", share * 100.0);
            Finding::judge(
                name,
                found,
                share >= 0.95,
                Finding::problem,
                "sysctl kernel.sched_rt_runtime_us=950000",
            )
        }
        _ => Finding::note(name, "unknown", "mount /proc"),
    }
}

fn governor() -> Finding {
    let name = "CPU frequency";
    let mut slow = Vec::new();
    let mut seen = false;
    for cpu in 0.. {
        let folder = format!("/sys/devices/system/cpu/cpu{cpu}");
        if !Path::new(&folder).exists() {
            break;
        }
        let Some(governor) = read(format!("{folder}/cpufreq/scaling_governor")) else { continue };
        seen = true;
        if governor != "performance" {
            slow.push(format!("cpu{cpu}: {governor}"));
        }
    }
    match (seen, slow.is_empty()) {
        (false, _) => Finding::ok(name, "not scaled by this kernel"),
        (true, true) => Finding::ok(name, "governor performance on every CPU"),
        (true, false) => Finding::note(name, slow.join(", "), "cpupower frequency-set -g performance"),
    }
}

fn isolation() -> Finding {
    let cpus = thread::available_parallelism().map_or(1, usize::from);
    let isolated = read("/sys/devices/system/cpu/isolated").unwrap_or_default();
    let found = match isolated.as_str() {
        "" => format!("{}, none isolated", counted(cpus, "CPU")),
        list => format!("{}, isolated: {list}", counted(cpus, "CPU")),
    };
    let fix =
        "for the tightest bounds boot with isolcpus=N nohz_full=N rcu_nocbs=N and set [processor] cpu = N";
    Finding::judge("isolated CPUs", found, !isolated.is_empty(), Finding::note, fix)
}

fn clock_source() -> Finding {
    let name = "clock source";
    match read("/sys/devices/system/clocksource/clocksource0/current_clocksource") {
        Some(source) => {
            let slow = matches!(source.as_str(), "hpet" | "acpi_pm" | "jiffies");
            let fix = "echo tsc > /sys/devices/system/clocksource/clocksource0/current_clocksource; if that fails, \
                       boot with tsc=reliable";
            Finding::judge(name, source, !slow, Finding::note, fix)
        }
        None => Finding::note(name, "unknown", "mount /sys"),
    }
}

fn timer_slack() -> Finding {
    let name = "timer slack";
    match number("/proc/self/timerslack_ns") {
        Some(slack_ns) => {
            let found = format!("{slack_ns} ns for ordinary threads, none for real-time ones");
            let fix = "start programs with a slack of 50000 ns or less (prctl PR_SET_TIMERSLACK)";
            Finding::judge(name, found, slack_ns <= 50_000, Finding::note, fix)
        }
        None => Finding::note(name, "unknown", "mount /proc"),
    }
}

fn socket_buffers(which: &'static str) -> Finding {
    let name = if which == "rmem_max" { "receive buffers" } else { "send buffers" };
    let bytes = number(&format!("/proc/sys/net/core/{which}")).and_then(|bytes| u64::try_from(bytes).ok());
    let Some(bytes) = bytes else {
        // A network namespace does not show it, and a root user of a namespace needs no more than that.
        return Finding::note(
            name,
            format!("net.core.{which} cannot be read here"),
            "check in the initial namespace",
        );
    };
    let fix = format!("sysctl net.core.{which}={SOCKET_BUFFER_BYTES} (CAP_NET_ADMIN needs no such limit)");
    Finding::judge(
        name,
        format!("net.core.{which} = {bytes} B"),
        bytes >= SOCKET_BUFFER_BYTES,
        Finding::note,
        &fix,
    )
}

fn descriptors() -> Finding {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current.unwrap_or(u64::MAX);
    let fix = "ulimit -n 65536 (systemd: LimitNOFILE=65536): each channel takes two or three in the daemon";
    Finding::judge("descriptors", format!("up to {limit}"), limit >= DESCRIPTORS, Finding::note, fix)
}

fn proc_mounted() -> Finding {
    let found = if Path::new("/proc/self/fd").exists() { "mounted" } else { "missing" };
    let fix = "mount -t proc proc /proc: message rings are set up through it";
    Finding::judge("/proc", found, found == "mounted", Finding::problem, fix)
}

fn tool(name: &'static str, what_for: &str) -> Finding {
    let version = Command::new(name).arg("-V").stdin(Stdio::null()).output();
    match version {
        Ok(output) if output.status.success() => {
            Finding::ok(name, String::from_utf8_lossy(&output.stdout).trim().to_owned())
        }
        _ => Finding::note(name, "not found", format!("apt install iproute2: needed for {what_for}")),
    }
}
