//! Whether a real-time thread pre-empts the kernel's work for other threads.
//!
//! Under the model `none` it waits for the end of their system calls, page faults and write-backs, which can
//! take milliseconds on a busy machine; admission does not count these waits.

use std::fs;

use super::Finding;

const NAME: &str = "kernel preemption";
const FIX: &str = "boot with preempt=full (or preempt=lazy): else a real-time thread waits for kernel code of other \
                   programs, milliseconds at times";

/// The kernel's model now.
pub fn check() -> Finding {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let release = read("/proc/sys/kernel/osrelease");
    let sources = Sources {
        current: read("/sys/kernel/debug/sched/preempt"),
        version: read("/proc/sys/kernel/version"),
        command_line: read("/proc/cmdline"),
        built: read(&format!("/boot/config-{}", release.trim())),
    };
    match sources.model() {
        Some(model) => {
            let interrupts = !matches!(model, "none" | "voluntary");
            Finding::judge(NAME, model.to_owned(), interrupts, Finding::note, FIX)
        }
        None => Finding::note(NAME, "unknown: the kernel does not report it", FIX),
    }
}

/// Texts that show the preemption model, each empty if it cannot be read; the first ones are more reliable.
#[derive(Default)]
struct Sources {
    /// `(none) voluntary full`: the one in brackets. Root only.
    current: String,
    /// What `uname -v` prints.
    version: String,
    command_line: String,
    /// The kernel's own configuration.
    built: String,
}

impl Sources {
    fn model(&self) -> Option<&str> {
        let current =
            self.current.split_whitespace().find_map(|word| word.strip_prefix('(')?.strip_suffix(')'));
        let real_time = || self.version.contains("PREEMPT_RT").then_some("rt");
        let printed = || {
            self.command_line.split_whitespace().filter_map(|word| word.strip_prefix("preempt=")).next_back()
        };
        let built = || {
            let models = [
                ("CONFIG_PREEMPT_RT=y", "rt"),
                ("CONFIG_PREEMPT_NONE=y", "none"),
                ("CONFIG_PREEMPT_VOLUNTARY=y", "voluntary"),
                ("CONFIG_PREEMPT_LAZY=y", "lazy"),
                ("CONFIG_PREEMPT=y", "full"),
            ];
            models.iter().find(|(line, _)| self.built.lines().any(|l| l == *line)).map(|(_, model)| *model)
        };
        current.or_else(real_time).or_else(printed).or_else(built)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_reliable_source_decides() {
        let sources = |current: &str, version: &str, command_line: &str, built: &str| Sources {
            current: current.into(),
            version: version.into(),
            command_line: command_line.into(),
            built: built.into(),
        };
        let built =
            "# CONFIG_PREEMPT_NONE is not set\nCONFIG_PREEMPT_VOLUNTARY=y\nCONFIG_PREEMPT_DYNAMIC=y\n";
        assert_eq!(sources("", "", "", "").model(), None);
        assert_eq!(sources("", "#1 SMP PREEMPT_DYNAMIC", "quiet", built).model(), Some("voluntary"));
        assert_eq!(sources("", "", "preempt=none quiet preempt=full", built).model(), Some("full"));
        assert_eq!(sources("", "#1 SMP PREEMPT_RT", "preempt=none", built).model(), Some("rt"));
        assert_eq!(sources("none voluntary full (lazy)\n", "", "preempt=none", built).model(), Some("lazy"));
    }
}
