//! Programs under test: with limits of CPU time, memory and patience, stopped at their first failure.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use rustix::param::clock_ticks_per_second;
use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};

use crate::Error;
use crate::mutant::SWITCH;

/// Address space of a program under test, in KiB: a loop that allocates ends there. Simulated networks reserve more than 4 GiB (seed
/// 708), of which they use 0.3.
const MEMORY_KIB_MAX: u64 = 8 << 20;
/// Wall-clock time for each second of CPU time that a program may take, other work beside it included.
const PATIENCE: u64 = 30;
/// A program that has taken this much less than its limit of CPU time was ended by it.
const NEAR_LIMIT_MS: u64 = 100;

/// What to run.
#[derive(Clone, Debug)]
pub struct Program {
    /// How it is called in reports.
    pub name: String,
    /// The file.
    pub path: PathBuf,
    /// Its arguments.
    pub arguments: Vec<String>,
    /// The working folder.
    pub folder: PathBuf,
}

impl Program {
    /// Whether this is the program `test` of any package.
    pub fn is_named(&self, test: &str) -> bool {
        self.name.rsplit('/').next() == Some(test)
    }
}

/// The results of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// What failed first; none where all went well.
    pub failure: Option<String>,
    /// User and system time.
    pub cpu_ms: u64,
}

/// Runs `program` with `switch` as the value of the switch, for at most `cpu_seconds` of CPU time; `scratch` is a file that
/// it may write.
///
/// # Errors
/// If it cannot be started.
pub fn run(program: &Program, switch: &str, cpu_seconds: u64, scratch: &Path) -> Result<Run, Error> {
    // The shell limits the program that it becomes.
    const SHELL: &str = "ulimit -t \"$0\" && ulimit -v \"$1\" && ulimit -c 0 && shift && exec \"$@\"";
    let errors = File::create(scratch).map_err(Error::of(scratch))?;
    let mut child = Command::new("sh")
        .args(["-c", SHELL, &cpu_seconds.to_string(), &MEMORY_KIB_MAX.to_string()])
        .arg(&program.path)
        .args(&program.arguments)
        .current_dir(&program.folder)
        .env(SWITCH, switch)
        .env("RUST_BACKTRACE", "0")
        .env("PROPTEST_DISABLE_FAILURE_PERSISTENCE", "1")
        .env("PROPTEST_RNG_SEED", "1")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(errors)
        .spawn()
        .map_err(Error::of(&program.path))?;
    let began = Instant::now();
    let seen = watch(&mut child, began + Duration::from_secs(cpu_seconds * PATIENCE + 60));
    let cpu_ms = cpu_ms_at_its_end(&child).map_err(Error::of(&program.path))?;
    let status = child.wait().map_err(Error::of(&program.path))?;
    let failure = match seen {
        Seen::Failed(test) => Some(test),
        Seen::TooLong => Some("takes too long".into()),
        Seen::Ended(_) if status.success() => None,
        Seen::Ended(_) if cpu_ms + NEAR_LIMIT_MS >= cpu_seconds * 1_000 => Some("takes too long".into()),
        Seen::Ended(last) => Some(last.unwrap_or_else(|| format!("{status}"))),
    };
    Ok(Run { failure, cpu_ms })
}

enum Seen {
    /// A test failed.
    Failed(String),
    /// Patience ended.
    TooLong,
    /// The program ended; the last line that shows its progress.
    Ended(Option<String>),
}

/// Reads a program's output until it ends or fails; then ends it.
fn watch(child: &mut Child, until: Instant) -> Seen {
    let (sender, lines) = mpsc::channel();
    let output = child.stdout.take();
    let reader = std::thread::spawn(move || {
        let lines = output.into_iter().flat_map(|output| BufReader::new(output).lines());
        lines.map_while(Result::ok).for_each(|line| drop(sender.send(line)));
    });
    let mut last = None;
    let seen = loop {
        match lines.recv_timeout(until.saturating_duration_since(Instant::now())) {
            Ok(line) => {
                if let Some(test) = failed_test(&line) {
                    break Seen::Failed(test.into());
                }
                last = note_of(&line).or(last);
            }
            Err(mpsc::RecvTimeoutError::Timeout) => break Seen::TooLong,
            Err(mpsc::RecvTimeoutError::Disconnected) => break Seen::Ended(last),
        }
    };
    if !matches!(seen, Seen::Ended(_)) {
        // It may have ended already.
        drop(child.kill());
    }
    // Its output ends with it.
    drop(reader.join());
    seen
}

/// The name of the test that failed according to this line.
fn failed_test(line: &str) -> Option<&str> {
    line.strip_prefix("test ")?.strip_suffix(" ... FAILED")
}

/// The progress in a line: a test that began and did not end, or a violation.
fn note_of(line: &str) -> Option<String> {
    let began = line.strip_prefix("test ").and_then(|rest| rest.strip_suffix(" ... ")).map(str::to_owned);
    began.or_else(|| line.starts_with("seed ").then(|| line.to_owned()))
}

/// User and system time of `child`, whose end this awaits without reaping it: the kernel still reports the
/// times then.
fn cpu_ms_at_its_end(child: &Child) -> std::io::Result<u64> {
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw).expect("a process has a number");
    waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT)?;
    let stat = fs::read_to_string(format!("/proc/{}/stat", child.id()))?;
    // After the name in parentheses, from the third on; 14 and 15 are user and system time in ticks.
    let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace().skip(14 - 3).take(2);
    let ticks: u64 = fields.filter_map(|field| field.parse::<u64>().ok()).sum();
    Ok(ticks * 1_000 / clock_ticks_per_second())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(text: &str) -> Program {
        let arguments = vec!["-c".into(), text.into()];
        Program { name: "sh".into(), path: "sh".into(), arguments, folder: std::env::temp_dir() }
    }

    fn run_shell(text: &str, name: &str, cpu_seconds: u64) -> Run {
        let scratch = std::env::temp_dir().join(format!("punctual-mutants-{}-{name}", std::process::id()));
        let run = run(&shell(text), "7", cpu_seconds, &scratch).expect("runs");
        fs::remove_file(scratch).expect("was written");
        run
    }

    #[test]
    fn a_program_sees_its_mutant_and_ends_well() {
        assert_eq!(run_shell("test $PUNCTUAL_MUTANT = 7", "well", 5).failure, None);
        assert!(run_shell("test $PUNCTUAL_MUTANT = 8", "other", 5).failure.is_some());
    }

    #[test]
    fn the_first_failure_ends_a_program() {
        let text = "echo 'test a::b ... ok'; echo 'test a::c ... FAILED'; while :; do sleep 1; done";
        assert_eq!(run_shell(text, "first", 5).failure.as_deref(), Some("a::c"));
    }

    #[test]
    fn a_loop_without_end_is_ended() {
        let run = run_shell("while :; do :; done", "loop", 1);
        assert_eq!(run.failure.as_deref(), Some("takes too long"));
        assert!((900..5_000).contains(&run.cpu_ms), "{run:?}");
    }
}
