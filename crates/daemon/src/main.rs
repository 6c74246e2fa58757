//! `punctuald --config FILE`: one host's daemon.

use std::io::{IsTerminal, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::Parser;
use punctual_host::check_profile;
use punctual_host::config::{self, HostConfig};
use punctual_os::heap::Allocator;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use tracing::{info, warn};
use tracing_subscriber::EnvFilter;

/// The processor has a heap of its own, which never waits for the kernel.
#[global_allocator]
static ALLOCATOR: Allocator = Allocator;

/// The daemon of one host. It runs the protocol and serves programs on a socket.
#[derive(Parser)]
#[command(
    name = "punctuald",
    version,
    after_help = "Example: punctuald --config /etc/punctual.toml\nStops gracefully on SIGTERM, SIGINT and SIGHUP. It reads its configuration at the start alone: \
                  to change it, check the file with --check and restart the daemon."
)]
struct Arguments {
    /// The host's configuration (TOML; docs/punctuald.example.toml explains every key).
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// Run without a real-time class and locked memory. Nothing is guaranteed then.
    #[arg(long)]
    best_effort_host: bool,
    /// Only check the configuration and the file of its profile. Warn of links that it makes degraded, and if all users
    /// together may take more file descriptors than this process may have.
    #[arg(long)]
    check: bool,
    /// Write "ready", what --check finds, and errors as JSON to standard output, one line each.
    #[arg(long)]
    json: bool,
}

fn main() -> ExitCode {
    #[cfg(feature = "trials")]
    if let Ok(names) = std::env::var("PUNCTUAL_WITHOUT") {
        punctual_trial::take_away(&names);
    }
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => return usage(&error),
    };
    let filter = EnvFilter::try_from_env("PUNCTUAL_LOG").unwrap_or_else(|_| EnvFilter::new("info"));
    let colour = std::io::stderr().is_terminal();
    // A log that takes no more, on a full disk, costs its lines, and not the daemon.
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_ansi(colour).log_internal_errors(false);
    log.with_writer(std::io::stderr).init();
    match serve(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failed(&punctual::one_line(error.as_ref()), 1, arguments.json),
    }
}

/// Help as it is; a mistake as one line.
fn usage(error: &clap::Error) -> ExitCode {
    if !error.use_stderr() {
        // A closed pipe is no error.
        let _ = error.print();
        return ExitCode::SUCCESS;
    }
    let shown = error.to_string();
    let cause: Vec<&str> = shown.lines().take_while(|line| !line.is_empty()).map(str::trim).collect();
    let line = format!("{}: see 'punctuald --help'", cause.join(" ").trim_start_matches("error: "));
    failed(&line, 2, std::env::args().any(|argument| argument == "--json"))
}

/// Prints one line on standard error, and with JSON also one on standard output.
fn failed(line: &str, code: u8, wants_json: bool) -> ExitCode {
    // A failed write is ignored, on a full disk as on a closed pipe: there is no other place to report it.
    let _ = writeln!(std::io::stderr(), "punctuald: {line}");
    if wants_json {
        let error = serde_json::json!({ "error": punctual::failure(line, code) });
        let _ = writeln!(std::io::stdout().lock(), "{error}");
    }
    ExitCode::from(code)
}

fn serve(arguments: &Arguments) -> anyhow::Result<()> {
    let mut config = config::load(&arguments.config)?;
    if arguments.best_effort_host {
        config.run_on_best_effort_host();
    }
    if arguments.check {
        check_profile(&config)?;
        for warning in punctual_daemon::warnings(&config) {
            // A terminal that cannot be written is no reason to fail.
            let _ = writeln!(std::io::stderr(), "punctuald: warning: {warning}");
        }
        return print_state(arguments, &config, "ok");
    }
    if config.is_best_effort_host() {
        warn!("best-effort host: no real-time class, nothing is guaranteed here");
    }
    config.use_own_heap();
    let stop = stop_signals().context("cannot handle signals")?;
    punctual_daemon::run(&config, stop.as_fd(), || {
        info!(host = %config.node.name, socket = %config.daemon.socket.display(), "ready");
        // A failed write is ignored: the daemon serves all the same.
        let _ = if arguments.json { print_state(arguments, &config, "ready") } else { Ok(()) };
    })?;
    if let Some(thread) = punctual_daemon::failed() {
        anyhow::bail!(
            "thread {thread} has failed (a bug: report its lines above), so the daemon has stopped"
        );
    }
    info!("stopped");
    Ok(())
}

/// Readable as soon as this process receives a signal to stop, or a thread of it panics.
fn stop_signals() -> std::io::Result<OwnedFd> {
    let (stop, signalled) = UnixStream::pair()?;
    // A daemon that was told to outlive its terminal does (nohup).
    let hangs_up = !punctual_os::interrupt::is_ignored(SIGHUP);
    for signal in [SIGTERM, SIGINT].into_iter().chain(hangs_up.then_some(SIGHUP)) {
        signal_hook::low_level::pipe::register(signal, signalled.try_clone()?)?;
    }
    punctual_daemon::end_on_panic(signalled.into());
    Ok(stop.into())
}

/// One line on standard output.
fn print_state(arguments: &Arguments, config: &HostConfig, state: &str) -> anyhow::Result<()> {
    let (name, socket) = (&config.node.name, &config.daemon.socket);
    let mut out = std::io::stdout().lock();
    if arguments.json {
        let line = serde_json::json!({
            "state": state,
            "host": name.as_str(),
            "socket": socket,
            "links": config.node.links.len(),
            "best_effort_host": config.is_best_effort_host(),
            "warnings": punctual_daemon::warnings(config),
        });
        writeln!(out, "{line}")?;
    } else {
        let links = punctual::counted(config.node.links.len(), "link");
        writeln!(out, "{state}: host {name}, {links}, socket {}", socket.display())?;
    }
    Ok(out.flush()?)
}
