//! `punctuald` on every host of a network: configured, started, watched, stopped.
//!
//! A Unix socket with a path is reachable from every network namespace, so the process that runs the
//! experiment stays outside and connects to each daemon by its socket.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, bail};
use punctual::{Endsystem, Nanos};
use punctual_os::clock::{now, wait_until};
use rustix::process::{Pid, Signal, kill_process};

use super::configuration::{self, Options};
use super::scratch::Scratch;
use super::{Network, NetworkSpec};

/// How long daemons may take to open their sockets and to see their neighbours.
const READY_WITHIN: Nanos = Nanos::from_secs(10);
/// How long a stopping daemon may tear its channels down before it is killed.
const STOP_WITHIN: Nanos = Nanos::from_secs(3);
const POLL: Nanos = Nanos::from_millis(10);

/// Running daemons; stopped when dropped.
pub struct Daemons {
    running: Vec<Running>,
    /// Sockets and configurations.
    _scratch: Scratch,
}

struct Running {
    host: &'static str,
    /// Dropped before the process is stopped: its connection would only get an error.
    endsystem: Option<Endsystem>,
    process: Child,
    socket: PathBuf,
    log: PathBuf,
}

impl Daemons {
    /// Starts one on every host and waits until all of them see their neighbours. Their output goes to
    /// `logs`/HOST.log.
    ///
    /// # Errors
    /// If the daemon is not found, does not start or does not see its neighbours; with the end of its log.
    pub fn start(
        network: &Network,
        spec: &NetworkSpec,
        options: &Options,
        logs: &Path,
    ) -> anyhow::Result<Self> {
        let scratch = Scratch::create()?;
        std::fs::create_dir_all(logs).with_context(|| format!("cannot make {}", logs.display()))?;
        let key = configuration::domain_key()?;
        let mut running = Vec::with_capacity(network.hosts.len());
        for (place, host) in network.hosts.iter().enumerate() {
            let log = logs.join(format!("{}.log", host.name));
            let text = |socket: &Path| configuration::text(spec, place, options, &key, socket);
            running.push(Running::launch(host.name, &host.namespace.path(), &scratch, log, text)?);
        }
        let mut daemons = Self { running, _scratch: scratch };
        let until = now() + READY_WITHIN;
        for daemon in &mut daemons.running {
            daemon.connect(until)?;
        }
        for daemon in &mut daemons.running {
            daemon.see_neighbours(until)?;
        }
        Ok(daemons)
    }

    /// The connection to a host's daemon.
    ///
    /// # Errors
    /// If there is no such host.
    pub fn endsystem(&self, host: &str) -> anyhow::Result<&Endsystem> {
        let running = self.running.iter().find(|running| running.host == host);
        running.and_then(|running| running.endsystem.as_ref()).with_context(|| format!("no daemon on {host}"))
    }
}

impl Drop for Daemons {
    fn drop(&mut self) {
        for daemon in &mut self.running {
            daemon.endsystem = None;
            daemon.signal(Signal::TERM);
        }
        let until = now() + STOP_WITHIN;
        for daemon in &mut self.running {
            daemon.reap(until);
        }
    }
}

impl Running {
    /// Starts the daemon of `host` with its socket in `scratch`, and with the configuration that `text` makes
    /// for that socket.
    fn launch(
        host: &'static str,
        namespace: &Path,
        scratch: &Scratch,
        log: PathBuf,
        text: impl FnOnce(&Path) -> String,
    ) -> anyhow::Result<Self> {
        let at = |ending: &str| scratch.path().join(format!("{host}.{ending}"));
        let (socket, config) = (at("sock"), at("toml"));
        std::fs::write(&config, text(&socket))
            .with_context(|| format!("cannot write {}", config.display()))?;
        let process = launch(namespace, &config, &log)?;
        Ok(Self { host, endsystem: None, process, socket, log })
    }

    fn connect(&mut self, until: punctual::Instant) -> anyhow::Result<()> {
        loop {
            match Endsystem::connect_to(&self.socket) {
                Ok(endsystem) => {
                    self.endsystem = Some(endsystem);
                    return Ok(());
                }
                Err(error) if now() >= until => bail!("{}: {error}; {}", self.host, self.last_log_lines()),
                Err(_) => self.wait_alive()?,
            }
        }
    }

    fn see_neighbours(&mut self, until: punctual::Instant) -> anyhow::Result<()> {
        loop {
            let Some(endsystem) = self.endsystem.as_ref() else { bail!("{}: not connected", self.host) };
            let status = endsystem.status().with_context(|| format!("status of {}", self.host))?;
            if status.node.links.iter().all(|link| link.alive) {
                return Ok(());
            }
            if now() >= until {
                bail!("{} does not receive from its neighbours; {}", self.host, self.last_log_lines());
            }
            self.wait_alive()?;
        }
    }

    /// A moment later, if the process still runs.
    fn wait_alive(&mut self) -> anyhow::Result<()> {
        if let Some(status) = self.process.try_wait()? {
            bail!("punctuald on {} ended ({status}); {}", self.host, self.last_log_lines());
        }
        Ok(wait_until(now() + POLL)?)
    }

    fn last_log_lines(&self) -> String {
        let log = std::fs::read_to_string(&self.log).unwrap_or_default();
        let last = log.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("nothing in it");
        format!("log {}: {last}", self.log.display())
    }

    fn signal(&self, signal: Signal) {
        if let Some(pid) = i32::try_from(self.process.id()).ok().and_then(Pid::from_raw) {
            // It may have ended already.
            let _ = kill_process(pid, signal);
        }
    }

    /// Waits for the end, then insists.
    fn reap(&mut self, until: punctual::Instant) {
        while now() < until {
            match self.process.try_wait() {
                Ok(None) => punctual_os::clock::sleep_until(now() + POLL),
                _ => return,
            }
        }
        self.signal(Signal::KILL);
        // Killed processes are reaped at once.
        let _ = self.process.wait();
    }
}

/// One `punctuald` process.
pub struct Daemon {
    running: Running,
    _scratch: Scratch,
}

impl Daemon {
    /// Starts it in a namespace, or in this process' own, and connects to it. `config` gets the socket at its
    /// only `socket = ""`.
    ///
    /// # Errors
    /// If the daemon is not found or does not start; with the end of its log.
    pub fn start(namespace: Option<&Path>, config: &str) -> anyhow::Result<Self> {
        let scratch = Scratch::create()?;
        let log = scratch.path().join("log");
        let text = |socket: &Path| {
            config.replacen("socket = \"\"", &format!("socket = \"{}\"", socket.display()), 1)
        };
        let namespace = namespace.unwrap_or(Path::new("/proc/self/ns/net"));
        let mut running = Running::launch("daemon", namespace, &scratch, log, text)?;
        running.connect(now() + READY_WITHIN)?;
        Ok(Self { running, _scratch: scratch })
    }

    /// The connection to it.
    ///
    /// # Errors
    /// Never for a daemon that started.
    pub fn endsystem(&self) -> anyhow::Result<&Endsystem> {
        self.running.endsystem.as_ref().context("not connected")
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.running.endsystem = None;
        self.running.signal(Signal::TERM);
        self.running.reap(now() + STOP_WITHIN);
    }
}

/// Enters the namespace and becomes the daemon: the child's process id is the daemon's. It is killed when
/// this process ends.
fn launch(namespace: &Path, config: &Path, log: &Path) -> anyhow::Result<Child> {
    let program = find_program()?;
    let file = File::create(log).with_context(|| format!("cannot write {}", log.display()))?;
    let errors = file.try_clone()?;
    let spawned = Command::new("setpriv")
        .args(["--pdeathsig", "TERM", "nsenter"])
        .arg(format!("--net={}", namespace.display()))
        .arg("--")
        .arg(&program)
        .arg("--config")
        .arg(config)
        .stdin(Stdio::null())
        .stdout(file)
        .stderr(errors)
        .spawn();
    spawned.map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => anyhow::anyhow!("`setpriv` is missing: apt-get install util-linux"),
        _ => anyhow::anyhow!("cannot start {}: {error}", program.display()),
    })
}

/// Next to the running program, or else on the PATH.
fn find_program() -> anyhow::Result<PathBuf> {
    const NAME: &str = "punctuald";
    let own = std::env::current_exe().unwrap_or_default();
    let beside = own.parent().map(|directory| directory.join(NAME));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let on_path = std::env::split_paths(&path).map(|directory| directory.join(NAME));
    let mut places = beside.into_iter().chain(on_path);
    places.find(|place| place.is_file()).with_context(|| {
        format!("{NAME} is neither next to {} nor on the PATH: build it (make build)", own.display())
    })
}
