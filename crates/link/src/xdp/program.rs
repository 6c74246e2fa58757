//! The program in the kernel: loading it, and its maps.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::time::Duration;

use aya::maps::{Array as ArrayMap, HashMap, Map, MapData, MapError, PerCpuArray, XskMap};
use aya::programs::{ProgramError, ProgramFd, TestRun, TestRunOptions, Xdp};
use aya::{Ebpf, EbpfError, EbpfLoader};
use rustix::net::sockopt::socket_domain;

use super::accounts::{Accounts, Array, Layout, account_of};
use super::filters::{Bucket, Filters, refused};
use super::flows::{Flows, Maps};
use super::headers::words_of;
use super::neighbour::Neighbour;
use super::{ClassifierOptions, QUEUES_MAX, Rate};
use crate::{Filter, FlowFilter, FlowKey, LinkError, ListenerFilter, PathKey, SealKey, Stream, StreamDrops};

/// `bpf/punctual.bpf.c`, as `build.rs` made it.
static OBJECT: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/punctual.bpf.o"));
/// Name of the program in it.
const PROGRAM: &str = "punctual";

/// What the kernel leaves free in front of a frame: no run can make it longer than that.
const HEADROOM_BYTES: usize = 256;

/// Bucket of signalling that anybody may have sent; the streams' come before it.
const STRANGERS: u32 = Stream::ALL.len() as u32;

/// `struct config` in `punctual.bpf.h`.
#[derive(Clone, Copy)]
#[repr(C)]
struct Config {
    local: [u32; 4],
    peer: [u32; 4],
    signalling_port: u16,
    data_port: u16,
    peer_signalling_port: u16,
    peer_data_port: u16,
    packet_bytes_max: u32,
    is_ipv6: u32,
    ip_bytes_max: u32,
}

// SAFETY: 16- and 32-bit integers without gaps.
unsafe impl aya::Pod for Config {}

impl Config {
    fn new(options: &ClassifierOptions) -> Self {
        Self {
            local: words_of(options.local),
            peer: words_of(options.peer),
            signalling_port: options.signalling_port.to_be(),
            data_port: options.data_port.to_be(),
            peer_signalling_port: options.peer_signalling_port.to_be(),
            peer_data_port: options.peer_data_port.to_be(),
            packet_bytes_max: options.packet_bytes_max,
            is_ipv6: options.local.is_ipv6().into(),
            ip_bytes_max: options.ip_bytes_max,
        }
    }
}

/// Verdict of the program on a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// Not ours: goes to the kernel unchanged.
    Pass,
    /// Ours and of no use; counted.
    Drop,
    /// Ours: goes to the socket of its stream, with a [`Tag`](super::Tag).
    Steer,
}

/// The program of one link, loaded and with its maps; on no device yet (see [`Classifier`](super::Classifier)).
pub struct Program {
    /// Owns the rest of the loaded object: the constants and the program itself.
    object: Ebpf,
    sockets: XskMap<MapData>,
    buckets: ArrayMap<MapData, Bucket>,
    drops: PerCpuArray<MapData, u64>,
    neighbours: ArrayMap<MapData, Neighbour>,
    filters: Filters,
    flows: Flows,
    accounts: Accounts,
}

impl Program {
    /// Loads the program for a link. It does not access the device.
    ///
    /// # Errors
    /// If an option is out of range, rights are missing, or the kernel is too old; the fix is in the text.
    pub fn load(options: &ClassifierOptions) -> Result<Self, LinkError> {
        options.check()?;
        let config = Config::new(options);
        let layout = Layout::new(options.filters_max, options.listeners_max, options.flows_max);
        let mut object = EbpfLoader::new()
            .override_global("config", &config, true)
            .map_max_entries("filters", options.filters_max)
            .map_max_entries("flows", options.flows_max.max(1))
            .map_max_entries("listeners", options.listeners_max.max(1))
            .map_max_entries("taken", layout.len())
            .map_max_entries("returned", layout.len())
            .load(OBJECT)
            .map_err(not_loaded)?;
        xdp(&mut object)?.load().map_err(|error| not_loaded(error.into()))?;

        let mut accounts = map_accounts(&mut object, layout)?;
        let flows = Flows::new(flow_maps(&mut object)?, options, layout, &mut accounts)?;
        let filters = HashMap::try_from(take(&mut object, "filters")?).map_err(not_as_built)?;
        let mut program = Self {
            sockets: XskMap::try_from(take(&mut object, "sockets")?).map_err(not_as_built)?,
            buckets: ArrayMap::try_from(take(&mut object, "buckets")?).map_err(not_as_built)?,
            drops: PerCpuArray::try_from(take(&mut object, "drops")?).map_err(not_as_built)?,
            neighbours: ArrayMap::try_from(take(&mut object, "neighbours")?).map_err(not_as_built)?,
            filters: Filters::new(filters, &accounts, options.packet_bytes_max),
            flows,
            accounts,
            object,
        };
        program.set_rate(Stream::Signalling, options.signalling_rate)?;
        program.set_rate(Stream::BestEffort, options.best_effort_rate)?;
        program.set_bucket(STRANGERS, options.unknown_senders_rate)?;
        for queue in 0..QUEUES_MAX {
            for (stream, buffers) in Stream::ALL.into_iter().zip(options.buffers) {
                program.accounts.set_limit(queue, stream, buffers);
            }
        }
        Ok(program)
    }

    /// Sends packets of `stream` that come in on receive queue `queue` to `socket` from now on. Until then,
    /// and if no socket is registered, they are dropped (`no_buffer`).
    ///
    /// The socket has to be bound to that queue of the device already: the kernel drops what is steered to a
    /// socket of another queue, and no counter shows it.
    ///
    /// # Errors
    /// If the queue is beyond [`QUEUES_MAX`] or the socket is none of AF_XDP.
    pub fn register(&mut self, queue: u32, stream: Stream, socket: BorrowedFd<'_>) -> Result<(), LinkError> {
        if queue >= QUEUES_MAX {
            return Err(LinkError::Options(format!(
                "queue {queue}: queues from 0 to {} can be used",
                QUEUES_MAX - 1
            )));
        }
        let domain = socket_domain(socket)
            .map_err(|error| LinkError::Os { what: "SO_DOMAIN".into(), error: error.into() })?;
        if i32::from(domain.as_raw()) != libc::AF_XDP {
            return Err(LinkError::Options("only AF_XDP sockets receive steered packets".into()));
        }
        self.sockets
            .set(account_of(queue, stream), socket.as_raw_fd(), 0)
            .map_err(|error| refused("registering an AF_XDP socket with the XDP program", error))
    }

    /// Lets packets of a path in, or changes how; its token bucket is kept.
    ///
    /// # Errors
    /// If the table is full, a value is out of range or the kernel refuses.
    pub fn set_filter(&mut self, filter: &Filter) -> Result<(), LinkError> {
        self.filters.set(filter, &mut self.accounts)
    }

    /// Removes the filter of a path; without effect if the path is unknown already.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn clear_filter(&mut self, path: PathKey) -> Result<(), LinkError> {
        self.filters.clear(path)
    }

    /// Steers packets of a flow, or changes how; its token bucket is kept.
    ///
    /// # Errors
    /// If the number or a bound is out of range or the kernel refuses.
    pub fn set_flow(&mut self, flow: &FlowFilter) -> Result<(), LinkError> {
        self.flows.set_flow(flow, &mut self.accounts)
    }

    /// Leaves a flow to the kernel; without effect if it is unknown.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn clear_flow(&mut self, flow: FlowKey) -> Result<(), LinkError> {
        self.flows.clear_flow(flow)
    }

    /// Steers what comes for an address and port and belongs to no flow, or changes how.
    ///
    /// # Errors
    /// See [`Program::set_flow`].
    pub fn set_listener(&mut self, listener: &ListenerFilter) -> Result<(), LinkError> {
        self.flows.set_listener(listener, &mut self.accounts)
    }

    /// Leaves an address and port to the kernel; without effect if nothing listens there.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn clear_listener(&mut self, local: SocketAddr) -> Result<(), LinkError> {
        self.flows.clear_listener(local)
    }

    /// Takes signalling whose seal is made with `key` as the neighbour's from now on, each number once. If a
    /// key is set again, the program keeps what it knows about its numbers.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn set_neighbour(&mut self, key: SealKey) -> Result<(), LinkError> {
        let failed = |error| refused("telling the XDP program of the neighbour", error);
        let new = Neighbour::of(key);
        if self.neighbours.get(&0, 0).map_err(failed)?.has_key_of(&new) {
            return Ok(());
        }
        self.neighbours.set(0, new, 0).map_err(failed)
    }

    /// Changes the bound on all packets of [`Stream::Signalling`] or [`Stream::BestEffort`]; `None`: none.
    ///
    /// # Errors
    /// If the stream is another one (its paths have bounds) or the kernel refuses.
    pub fn set_rate(&mut self, stream: Stream, rate: Option<Rate>) -> Result<(), LinkError> {
        if !matches!(stream, Stream::Signalling | Stream::BestEffort) {
            return Err(LinkError::Options(format!("{stream:?} has no rate of its own: its paths have")));
        }
        self.set_bucket(stream as u32, rate)
    }

    fn set_bucket(&mut self, number: u32, rate: Option<Rate>) -> Result<(), LinkError> {
        let bucket = rate.map_or(Bucket::UNBOUNDED, Bucket::from);
        self.buckets
            .set(number, bucket, 0)
            .map_err(|error| refused("setting a rate of the XDP program", error))
    }

    /// The program's drop counters since it was loaded. Costs a system call for each reason.
    pub fn drops(&self) -> StreamDrops {
        let [policed, malformed, unknown, wrong_cookie, no_buffer, expired, replayed, fragmented] =
            std::array::from_fn(|reason| self.drops_of(reason as u32));
        StreamDrops { policed, malformed, unknown, wrong_cookie, no_buffer, expired, replayed, fragmented }
    }

    /// A check-up in an array that is as long as the reasons are many cannot fail.
    fn drops_of(&self, reason: u32) -> u64 {
        self.drops.get(&reason, 0).map_or(0, |of_cpus| of_cpus.iter().sum())
    }

    /// Buffers that are under way, for the driver's thread: each received packet is charged here.
    pub const fn accounts(&mut self) -> &mut Accounts {
        &mut self.accounts
    }

    /// Runs the program in the kernel on an Ethernet frame of 14 bytes or more, as if it had come in on queue 0, and
    /// leaves there what it made of it: longer by a tag where it is steered to a flow. A steered frame goes nowhere, but is
    /// charged. Of `repeat` runs the mean time is given; a run after the first sees what the one before left.
    ///
    /// # Errors
    /// If the kernel refuses (no rights, a frame too long).
    pub fn run(&self, frame: &mut Vec<u8>, repeat: u32) -> Result<(Verdict, Duration), LinkError> {
        let input = std::mem::take(frame);
        frame.resize(input.len() + HEADROOM_BYTES, 0);
        let options =
            TestRunOptions { data_in: Some(&input), data_out: Some(frame), repeat, ..TestRunOptions::new() };
        let result = self.xdp()?.test_run(options).map_err(|error| LinkError::Os {
            what: "running the XDP program on a packet".into(),
            error: io_error(error.into()),
        })?;
        frame.truncate(result.data_size_out as usize);
        let verdict = match result.return_value {
            action::DROP => Verdict::Drop,
            action::PASS => Verdict::Pass,
            action::REDIRECT => Verdict::Steer,
            other => return Err(LinkError::Options(format!("the XDP program returned {other}: a bug"))),
        };
        Ok((verdict, result.duration))
    }

    pub(super) fn fd(&self) -> Result<&ProgramFd, LinkError> {
        self.xdp()?.fd().map_err(|error| not_loaded(error.into()))
    }

    fn xdp(&self) -> Result<&Xdp, LinkError> {
        let program = self.object.program(PROGRAM).ok_or_else(not_built)?;
        program.try_into().map_err(|error: ProgramError| not_loaded(error.into()))
    }
}

impl fmt::Debug for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Program").field("accounts", &self.accounts).finish_non_exhaustive()
    }
}

/// `enum xdp_action` of the kernel.
mod action {
    pub(super) const DROP: u32 = 1;
    pub(super) const PASS: u32 = 2;
    pub(super) const REDIRECT: u32 = 4;
}

fn xdp(object: &mut Ebpf) -> Result<&mut Xdp, LinkError> {
    let program = object.program_mut(PROGRAM).ok_or_else(not_built)?;
    program.try_into().map_err(|error: ProgramError| not_loaded(error.into()))
}

fn take(object: &mut Ebpf, name: &str) -> Result<Map, LinkError> {
    object.take_map(name).ok_or_else(not_built)
}

fn flow_maps(object: &mut Ebpf) -> Result<Maps, LinkError> {
    Ok(Maps {
        flows: HashMap::try_from(take(object, "flows")?).map_err(not_as_built)?,
        listeners: HashMap::try_from(take(object, "listeners")?).map_err(not_as_built)?,
        errors: ArrayMap::try_from(take(object, "errors")?).map_err(not_as_built)?,
        known: ArrayMap::try_from(take(object, "known")?).map_err(not_as_built)?,
    })
}

fn map_accounts(object: &mut Ebpf, layout: Layout) -> Result<Accounts, LinkError> {
    let map = |object: &mut Ebpf, name: &str| match take(object, name)? {
        Map::Array(data) => Ok(data),
        _ => Err(not_built()),
    };
    let failed = |error| LinkError::Os { what: "mapping the XDP program's accounts".into(), error };
    let (taken, returned) = (map(object, "taken")?, map(object, "returned")?);
    let taken = Array::map(taken.fd().as_fd(), layout.len()).map_err(failed)?;
    let returned = Array::map(returned.fd().as_fd(), layout.len()).map_err(failed)?;
    Ok(Accounts::new(taken, returned, layout))
}

fn not_built() -> LinkError {
    LinkError::Options(
        "the XDP object in this program is not the one its source describes: build again".into(),
    )
}

fn not_as_built(error: MapError) -> LinkError {
    refused("a map of the XDP program", error)
}

fn not_loaded(error: EbpfError) -> LinkError {
    let error = io_error(error);
    let what = match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => {
            "loading the XDP program (run as root, or grant CAP_BPF and CAP_NET_ADMIN in the initial user namespace)"
        }
        Some(libc::ENOMEM) => {
            "loading the XDP program (its tables found no memory: lower filters_max, or raise the memory limit of the \
             process's group)"
        }
        _ => "loading the XDP program (needs Linux 5.18 or newer)",
    };
    LinkError::Os { what: what.into(), error }
}

/// The kernel's error at the bottom of an error of the loader.
fn io_error(error: EbpfError) -> io::Error {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(&error);
    while let Some(now) = cause {
        if let Some(code) = now.downcast_ref::<io::Error>().and_then(io::Error::raw_os_error) {
            return io::Error::from_raw_os_error(code);
        }
        cause = now.source();
    }
    io::Error::other(error)
}
