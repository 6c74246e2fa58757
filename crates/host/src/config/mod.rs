//! The configuration file of `punctuald` and of embedded engines: one TOML file, every key documented in
//! `docs/punctuald.example.toml`, unknown keys are errors. Every error is one line with file, line, key and fix.

mod convert;
mod devices;
pub mod drivers;
mod error;
mod file;
mod given;
mod kernel_rate;
mod links;
mod mistakes;
pub(crate) mod profile;
pub mod quantity;
mod rate;
mod secrets;
mod tcp_rights;
#[cfg(test)]
mod tests;
mod warnings;

use std::fs;
use std::path::{Path, PathBuf};

use punctual_analysis::contract::BURST_MESSAGES_MAX;
use punctual_engine::EngineConfig;
use punctual_engine::tcp::TcpLimits;
use punctual_link::Link;
use punctual_link::kernel::ShaperRate;
use punctual_os::calls::Forbidden;
use punctual_os::realtime::{RealTime, SchedulingClass};
use punctual_os::{heap, random_u64};
use punctual_proto::Ppm;
use punctual_proto::api::{RtuCost, UserId};
use punctual_proto::config::{KernelTraffic, NodeConfig};
use punctual_proto::ids::Epoch;
use punctual_trial::{Defence, holds};

pub use self::profile::{GivenCosts, Mismatch, ProfileSettings};
pub use self::tcp_rights::{Endpoints, TcpRight, TcpRights};
use crate::priorities::Priorities;

pub use self::drivers::{Driver, LinkDriver};
pub use self::error::ConfigError;

/// Port of data unless configured otherwise.
pub const DATA_PORT_DEFAULT: u16 = 7_411;
/// Port of signalling unless configured otherwise.
pub const SIGNALLING_PORT_DEFAULT: u16 = 7_412;
/// Bytes of the processor's heap for one message of a burst: its place in the queues of the source.
const HEAP_MESSAGE_BYTES: usize = 80;
/// Ready for everything that is not a queue: some hundreds of channels.
const HEAP_SMALL_BYTES: usize = 1 << 20;
/// Default path of the daemon's socket.
pub const SOCKET_DEFAULT: &str = "/run/punctual/api.sock";

/// The whole configuration of one host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostConfig {
    /// The node, without its epoch: [`HostConfig::engine_config`] sets it for each start.
    pub node: NodeConfig,
    /// A driver for each of `node.links`.
    pub drivers: Vec<Box<dyn LinkDriver>>,
    /// Other traffic on the device of each of them.
    pub other_traffic: Vec<OtherTraffic>,
    /// The class of the processor.
    pub real_time: RealTime,
    /// How long the processor polls its links before it sleeps, if no link has a longer time; `Nanos::MAX`:
    /// always.
    pub spin: punctual_proto::Nanos,
    /// The priorities of threads that take messages; `None`: co-scheduling is not allowed.
    pub co_scheduling: Option<Priorities>,
    /// The source of the processor's costs; `node.cpu.costs` are the configured ones until
    /// [`calibrate`](crate::calibrate()) has decided.
    pub profile: ProfileSettings,
    /// What a segment of TCP is declared to take; as `node.cpu.costs`, it is the configured one until
    /// [`calibrate`](crate::calibrate()) has decided.
    pub segment: RtuCost,
    /// Packets of a unit as configured; `None`: [`calibrate`](crate::calibrate()) takes as many as fit, and until then
    /// `node.cpu` has the least.
    pub quantum: Option<u32>,
    /// The daemon's own part.
    pub daemon: DaemonConfig,
    /// The file of the boot count; without it the epoch is 64 random bits.
    pub epoch_file: Option<PathBuf>,
    /// What happens at a system call that is not in the list of its thread. [`HostConfig::confine_threads`]
    /// applies the daemon's setting; threads of any other program are not confined.
    pub forbidden_calls: Forbidden,
    /// Memory that the processor's own heap holds ready; see [`HostConfig::use_own_heap`].
    pub heap: Option<heap::Sizes>,
}

/// Other traffic on the device of a link, according to the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OtherTraffic {
    /// The link has no wire: drivers in memory, and loopback.
    Nothing,
    /// None: only Punctual sends over the device.
    Exclusive,
    /// At most as much as `interference_burst` and `interference_share` state.
    Stated,
    /// At most the rate of the shaper of kernel traffic.
    Shaped,
    /// Everything goes through this shaper, ours first.
    Behind(ShaperRate),
    /// Not configured.
    Unknown,
}

/// The daemon's API socket and what each user may take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DaemonConfig {
    /// Path of the socket that the daemon listens on.
    pub socket: PathBuf,
    /// Permissions of the socket.
    pub socket_mode: u32,
    /// Users with something open at the same time.
    pub users_max: u32,
    /// Connections of one user.
    pub connections_per_user_max: u32,
    /// Channels and best-effort flows of one user, both ends counted.
    pub channels_per_user_max: u32,
    /// Names that one user may listen on.
    pub listeners_per_user_max: u32,
    /// Bytes of rings and reservations of one user.
    pub buffer_bytes_per_user_max: u64,
    /// Bytes of answers and news that one user's programs have not read, beside what their sockets hold.
    pub unread_bytes_per_user_max: u64,
    /// Descriptors that the daemon holds for one user's connections and rings, and those in answers that are not read.
    pub descriptors_per_user_max: u32,
    /// Share of the processor's time that one user's requests may take in the long run; root and the daemon's
    /// own user are exempt.
    pub request_share_per_user_max: Ppm,
    /// What happens at a system call that is not in the list of its thread.
    pub forbidden_calls: Forbidden,
    /// Users who may use TCP connections that the host processes itself, and for which addresses.
    pub tcp_rights: TcpRights,
    /// Users who may capture packets, beside root and the daemon's own user.
    pub capture_users: Vec<UserId>,
}

impl DaemonConfig {
    /// Least of [`Self::unread_bytes_per_user_max`]: two of the longest answers.
    pub const UNREAD_BYTES_MIN: u64 = 128 << 10;
}

impl Default for DaemonConfig {
    fn default() -> Self {
        Self {
            socket: SOCKET_DEFAULT.into(),
            socket_mode: 0o666,
            users_max: 64,
            connections_per_user_max: 64,
            channels_per_user_max: 256,
            listeners_per_user_max: 64,
            buffer_bytes_per_user_max: 64 << 20,
            unread_bytes_per_user_max: 4 << 20,
            descriptors_per_user_max: 2_048,
            request_share_per_user_max: Ppm(5_000),
            forbidden_calls: Forbidden::default(),
            tcp_rights: TcpRights::default(),
            capture_users: Vec::new(),
        }
    }
}

/// Reads and checks a file.
///
/// # Errors
/// The first thing that is wrong, in one line.
pub fn load(path: &Path) -> Result<HostConfig, ConfigError> {
    let text = fs::read_to_string(path)
        .map_err(|error| ConfigError::Read { path: path.display().to_string(), error })?;
    parse(&text, path)
}

/// Checks the text of a file; `path` is its name in errors, and relative paths in the file start at its
/// folder.
///
/// # Errors
/// The first mistake, in one line.
pub fn parse(text: &str, path: &Path) -> Result<HostConfig, ConfigError> {
    parse_with(text, path, &[])
}

/// Checks the text of a file, as [`parse`] does, where links may also run on the drivers `more` that the
/// program brings.
///
/// # Errors
/// See [`parse`].
pub fn parse_with(text: &str, path: &Path, more: &[Driver]) -> Result<HostConfig, ConfigError> {
    let source = Source { text, path };
    let drivers = [&Driver::ALL, more].concat();
    let file = file::read(text, |name| {
        drivers.iter().find(|driver| driver.name() == name).map_or(&[][..], |driver| driver.own_keys())
    })
    .map_err(|error| source.mistake(&error))?;
    convert::convert(file, &drivers, &source)
}

/// The text that is being read, for errors.
struct Source<'a> {
    text: &'a str,
    path: &'a Path,
}

impl Source<'_> {
    /// An error at a byte of the text.
    fn error(&self, at: usize, what: impl Into<String>) -> ConfigError {
        let before = &self.text.as_bytes()[..at.min(self.text.len())];
        let line = 1 + before.iter().filter(|byte| **byte == b'\n').count();
        ConfigError::Line { path: self.path.display().to_string(), line, what: what.into() }
    }

    /// Formats the parser's error, with the key that it is about and the fix.
    fn mistake(&self, error: &toml::de::Error) -> ConfigError {
        let at = error.span().map_or(0, |span| span.start.min(self.text.len()));
        let what = error.message().lines().collect::<Vec<_>>().join(" ");
        if let Some(what) = mistakes::unknown_key(&what).or_else(|| mistakes::brackets(&what, self.text, at))
        {
            return self.error(at, what);
        }
        let mut what = mistakes::plain(&what);
        if let Some(key) = self.key_at(at).filter(|key| !what.contains(&format!("`{key}`"))) {
            what = format!("{key}: {what}");
        }
        if what.contains("missing field") {
            what += ": add it; docs/punctuald.example.toml explains every key";
        } else if what.contains("duplicate key") {
            what += ": remove one";
        }
        self.error(at, what)
    }

    /// The key at this byte, or the key of the value at this byte; `None` for headers of tables.
    fn key_at(&self, at: usize) -> Option<&str> {
        let start = self.text[..at].rfind('\n').map_or(0, |end| end + 1);
        let before = &self.text[start..at];
        let key = match before.rsplit_once('=') {
            Some((key, _)) => key,
            None => self.text[start..].lines().next()?.split_once('=')?.0,
        };
        // Inside an inline table.
        let key = key.rsplit(['{', ',']).next().unwrap_or(key).trim();
        (!key.is_empty()).then_some(key)
    }

    /// A path in the file: relative paths start at the file's folder.
    fn resolve(&self, path: &Path) -> PathBuf {
        self.path.parent().unwrap_or(Path::new("")).join(path)
    }
}

impl HostConfig {
    /// The explicit way to run without privileges: an ordinary thread, memory not locked, socket buffers of
    /// the default size. The host then guarantees nothing, and reports that.
    pub fn run_on_best_effort_host(&mut self) {
        self.real_time = RealTime { cpu: self.real_time.cpu, ..RealTime::BEST_EFFORT_HOST };
        self.node.cpu.best_effort_host = true;
        for (index, driver) in self.drivers.iter_mut().enumerate() {
            driver.run_without_privileges();
            if let OtherTraffic::Behind(_) = self.other_traffic[index] {
                // Takes a privilege.
                self.other_traffic[index] = OtherTraffic::Unknown;
                self.node.links[index].kernel_traffic = KernelTraffic::Unbounded;
            }
        }
    }

    /// Confines the host's threads to the system calls in their lists. All threads must be the daemon's own.
    pub const fn confine_threads(&mut self) {
        self.forbidden_calls = self.daemon.forbidden_calls;
    }

    /// Gives the processor a heap of its own; the program's allocator must be [`heap::Allocator`]. It holds
    /// as much memory ready as the channel with the largest burst that the quotas permit.
    pub fn use_own_heap(&mut self) {
        let quota = usize::try_from(self.daemon.buffer_bytes_per_user_max).unwrap_or(usize::MAX);
        let large = (BURST_MESSAGES_MAX as usize * HEAP_MESSAGE_BYTES).min(quota);
        self.heap = holds(Defence::OwnHeap).then_some(heap::Sizes { small: HEAP_SMALL_BYTES, large });
    }

    /// Whether it runs without a real-time class.
    pub fn is_best_effort_host(&self) -> bool {
        self.real_time.class == SchedulingClass::BestEffortHost
    }

    /// Begins a life of the node: returns the configuration with which an engine starts. Counts the boot if
    /// there is a file for it.
    ///
    /// # Errors
    /// If the boot count cannot be stored or the system has no random source.
    pub fn engine_config(&self, links: Vec<Box<dyn Link>>) -> Result<EngineConfig, ConfigError> {
        let random = || {
            random_u64().map_err(|error| ConfigError::Epoch { what: "reading /dev/urandom".into(), error })
        };
        let epoch = match &self.epoch_file {
            Some(path) => secrets::next_boot(path)?,
            None => random()?,
        };
        let node = NodeConfig { epoch: Epoch(epoch), links: self.paced_links(), ..self.node.clone() };
        let &Self { real_time, spin, forbidden_calls, heap, .. } = self;
        let tcp = self.tcp_limits(random()?, random()?);
        let node = if tcp.connections_max > 0 { with_tcp_calls(node, self.segment) } else { node };
        Ok(EngineConfig {
            node,
            links,
            real_time,
            spin,
            seed: random()?,
            forbidden_calls,
            heap,
            tcp: Some(tcp),
        })
    }

    /// Whether programs can listen at addresses of this host by TCP of its own.
    pub fn has_tcp_listeners(&self) -> bool {
        self.tcp_rooms()[1] > 0
    }

    /// Connections and listeners at once. The least of all links that have any.
    fn tcp_rooms(&self) -> [u32; 2] {
        let rooms = self.drivers.iter().map(|driver| driver.tcp_rooms()).filter(|[flows, _]| *flows > 0);
        let least = rooms.reduce(|least, room| [least[0].min(room[0]), least[1].min(room[1])]);
        least.unwrap_or_default()
    }

    /// Room for TCP of this host's own. Connections of all links share their numbers, so the link with the least room bounds
    /// them. Without such a link, connections have the channels alone.
    fn tcp_limits(&self, low: u64, high: u64) -> TcpLimits {
        let [connections_max, listeners_max] = self.tcp_rooms();
        let secret = (u128::from(high) << 64 | u128::from(low)).to_le_bytes();
        TcpLimits { secret, connections_max, listeners_max, paths_max: TCP_PATHS_MAX }
    }
}

/// TCP connections over channels at once: each has two channels, which have limits of their own.
const TCP_PATHS_MAX: u32 = 1_024;

/// The configuration of a node whose best-effort handlers run TCP: admission counts with their calls.
fn with_tcp_calls(mut node: NodeConfig, segment: RtuCost) -> NodeConfig {
    let packet_bytes = node.links.iter().map(|link| link.packet_bytes_max).max().unwrap_or(0);
    node.cpu.best_effort_call_max = crate::tcp::best_effort_call(&node.cpu.costs, segment, packet_bytes);
    node
}
