//! Runs installed programs in a network namespace, for a limited time.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::host::Host;

/// Path of an installed program.
pub fn path_of(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path);
    folders
        .chain(["/usr/sbin".into(), "/sbin".into()])
        .map(|folder| folder.join(name))
        .find(|file| file.is_file())
}

/// A command on `host` that is ended after this many seconds.
pub fn command(host: &Host, seconds: u32, program: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new("nsenter");
    command.arg(format!("--net=/run/netns/{}", host.name()));
    command.args(["timeout", "--foreground", "--kill-after=5", &seconds.to_string()]);
    command.arg(program).args(arguments);
    command
}

/// Runs a command and returns its standard output.
pub fn run(host: &Host, seconds: u32, line: &[&str]) -> Result<Vec<u8>, String> {
    run_with(host, seconds, line, b"")
}

/// Runs a command with `input` and returns its standard output.
pub fn run_with(host: &Host, seconds: u32, line: &[&str], input: &[u8]) -> Result<Vec<u8>, String> {
    let program = path_of(line[0]).ok_or_else(|| format!("{} is not installed", line[0]))?;
    let mut command = command(host, seconds, &program, &line[1..]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let failed = |what: &dyn std::fmt::Display| format!("{}: {what}", line.join(" "));
    let mut child = command.spawn().map_err(|error| failed(&error))?;
    let mut stdin = child.stdin.take().ok_or("no standard input")?;
    let output = std::thread::scope(|scope| {
        // A program may end before it has read everything: its exit code is what counts.
        scope.spawn(move || drop(stdin.write_all(input)));
        child.wait_with_output()
    });
    let output = output.map_err(|error| failed(&error))?;
    if output.status.success() {
        return Ok(output.stdout);
    }
    let why =
        if output.status.code() == Some(124) { format!("not done in {seconds} s: ") } else { String::new() };
    // Some programs report errors on standard output.
    let texts = [&output.stderr, &output.stdout].map(|text| String::from_utf8_lossy(text).into_owned());
    let lines = texts.iter().flat_map(|text| text.trim().lines().rev().take(3));
    let last = lines.collect::<Vec<_>>().join("; ");
    Err(failed(&format!("{why}{}: {last}", output.status)))
}

/// A server, which ends when this is dropped. What it prints is in `log`.
pub struct Server(Child);

impl Server {
    pub fn start(host: &Host, log: &Path, line: &[&str]) -> Result<Self, String> {
        let program = path_of(line[0]).ok_or_else(|| format!("{} is not installed", line[0]))?;
        let log = File::create(log).map_err(|error| error.to_string())?;
        let errors = log.try_clone().map_err(|error| error.to_string())?;
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/run/netns/{}", host.name())).arg(program).args(&line[1..]);
        command.stdin(Stdio::null()).stdout(log).stderr(errors);
        command.spawn().map(Self).map_err(|error| format!("{}: {error}", line[0]))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // An interrupt lets a server with workers end them.
        if let Some(id) = rustix::process::Pid::from_raw(self.0.id().cast_signed()) {
            let _ = rustix::process::kill_process(id, rustix::process::Signal::TERM);
        }
        let _ = self.0.wait();
    }
}
