//! The program's tables of flows and listeners, and of where ICMP errors go.
//!
//! The caller numbers flows and listeners; the number determines the account that a packet is charged to, and the account, which
//! the tag carries, identifies the connection. So the receiver finds a connection without reading a header.

use std::net::{IpAddr, SocketAddr};

use aya::maps::{Array as ArrayMap, HashMap, MapData, MapError};
use punctual_os::clock;

use super::accounts::{Accounts, Layout};
use super::filters::{Bucket, refused};
use super::headers::words_of;
use super::{ClassifierOptions, Rate};
use crate::{FlowFilter, FlowKey, Inlet, LinkError, ListenerFilter, Stream};

const TCP: u8 = 6;
/// Bound on ICMP errors about all flows together: anybody can forge them, and each connection needs few.
const ERRORS: (Rate, u32) = (Rate { packets_per_second: 200, burst_packets: 32 }, 16);

/// `struct flow` in `punctual.bpf.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub(super) struct RawFlow {
    local: [u32; 4],
    remote: [u32; 4],
    local_port: u16,
    remote_port: u16,
    protocol: u8,
    is_ipv6: u8,
    pad: u16,
}

/// `struct listener` in `punctual.bpf.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub(super) struct RawListener {
    local: [u32; 4],
    port: u16,
    protocol: u8,
    is_ipv6: u8,
}

/// `struct inlet` in `punctual.bpf.h`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(super) struct RawInlet {
    bucket: Bucket,
    account: u32,
    stream: u32,
}

// SAFETY: integers without gaps: 32 bytes of addresses, two ports, two bytes and a pad of two.
unsafe impl aya::Pod for RawFlow {}
// SAFETY: integers without gaps: 16 bytes of address, a port and two bytes.
unsafe impl aya::Pod for RawListener {}
// SAFETY: three 64-bit and two 32-bit integers.
unsafe impl aya::Pod for RawInlet {}

impl From<FlowKey> for RawFlow {
    fn from(key: FlowKey) -> Self {
        Self {
            local: words_of(key.local.ip()),
            remote: words_of(key.remote.ip()),
            local_port: key.local.port().to_be(),
            remote_port: key.remote.port().to_be(),
            protocol: TCP,
            is_ipv6: key.local.is_ipv6().into(),
            pad: 0,
        }
    }
}

impl From<SocketAddr> for RawListener {
    fn from(local: SocketAddr) -> Self {
        Self {
            local: words_of(local.ip()),
            port: local.port().to_be(),
            protocol: TCP,
            is_ipv6: local.is_ipv6().into(),
        }
    }
}

/// A table whose entries the caller numbers.
struct Table<K> {
    map: HashMap<MapData, K, RawInlet>,
    /// The key of each number.
    numbered: Box<[Option<K>]>,
    count: u32,
    account_first: u32,
    what: &'static str,
    option: &'static str,
}

impl<K: aya::Pod + PartialEq> Table<K> {
    fn set(
        &mut self,
        key: K,
        index: u32,
        inlet: &Inlet,
        name: &dyn std::fmt::Debug,
        accounts: &mut Accounts,
    ) -> Result<(), LinkError> {
        let fail = |text: String| Err(LinkError::Options(text));
        let what = self.what;
        if inlet.burst_packets == 0 || inlet.interval_ns == 0 || inlet.buffers == 0 {
            return fail(format!("{what} {name:?}: burst, interval and buffers are at least 1"));
        }
        if inlet.stream == Stream::Signalling {
            return fail(format!(
                "{what} {name:?}: the signalling stream is only for the neighbour, choose another stream"
            ));
        }
        let room = self.numbered.len();
        let Some(holder) = self.numbered.get(index as usize) else {
            return fail(format!(
                "{what} number {index}: the link has room for {room}; raise {}, or close some",
                self.option
            ));
        };
        if holder.is_some_and(|holder| holder != key) {
            return fail(format!("{what} number {index} is another one's: clear that first"));
        }
        let account = self.account_first + index;
        let old = self.get(&key)?;
        if old.is_some_and(|old| old.account != account) {
            return fail(format!("{what} {name:?} is there under another number: clear it first"));
        }
        let mut bucket = Bucket::new(inlet.burst_packets, inlet.interval_ns);
        if let Some(old) = old {
            bucket.inherit(&old.bucket, clock::monotonic_ns());
        }
        accounts.set_account_limit(account, inlet.buffers);
        let entry = RawInlet { bucket, account, stream: inlet.stream as u32 };
        self.map
            .insert(key, entry, 0)
            .map_err(|error| refused(&format!("setting a {what} of the XDP program"), error))?;
        self.numbered[index as usize] = Some(key);
        self.count += u32::from(old.is_none());
        Ok(())
    }

    fn clear(&mut self, key: K) -> Result<(), LinkError> {
        let Some(old) = self.get(&key)? else { return Ok(()) };
        let what = self.what;
        self.map
            .remove(&key)
            .map_err(|error| refused(&format!("clearing a {what} of the XDP program"), error))?;
        if let Some(holder) = self.numbered.get_mut((old.account - self.account_first) as usize) {
            *holder = None;
        }
        self.count -= 1;
        Ok(())
    }

    fn get(&self, key: &K) -> Result<Option<RawInlet>, LinkError> {
        match self.map.get(key, 0) {
            Ok(entry) => Ok(Some(entry)),
            Err(MapError::KeyNotFound) => Ok(None),
            Err(error) => Err(refused(&format!("reading a {} of the XDP program", self.what), error)),
        }
    }
}

/// The program's maps for flows.
pub(super) struct Maps {
    pub(super) flows: HashMap<MapData, RawFlow, RawInlet>,
    pub(super) listeners: HashMap<MapData, RawListener, RawInlet>,
    pub(super) errors: ArrayMap<MapData, RawInlet>,
    pub(super) known: ArrayMap<MapData, u32>,
}

/// Flows and listeners of a link.
pub(super) struct Flows {
    flows: Table<RawFlow>,
    listeners: Table<RawListener>,
    known: ArrayMap<MapData, u32>,
    is_active: bool,
}

impl Flows {
    /// Over the program's empty maps.
    pub(super) fn new(
        maps: Maps,
        options: &ClassifierOptions,
        layout: Layout,
        accounts: &mut Accounts,
    ) -> Result<Self, LinkError> {
        let Maps { flows, listeners, mut errors, known } = maps;
        let (rate, buffers) = ERRORS;
        accounts.set_account_limit(layout.errors(), buffers);
        let entry =
            RawInlet { bucket: rate.into(), account: layout.errors(), stream: Stream::BestEffort as u32 };
        errors.set(0, entry, 0).map_err(|error| refused("bounding ICMP errors in the XDP program", error))?;
        let flows = Table {
            map: flows,
            numbered: vec![None; options.flows_max as usize].into(),
            count: 0,
            account_first: layout.flow_first(),
            what: "flow",
            option: "flows_max",
        };
        let listeners = Table {
            map: listeners,
            numbered: vec![None; options.listeners_max as usize].into(),
            count: 0,
            account_first: layout.listener_first(),
            what: "listener",
            option: "listeners_max",
        };
        Ok(Self { flows, listeners, known, is_active: false })
    }

    pub(super) fn set_flow(&mut self, flow: &FlowFilter, accounts: &mut Accounts) -> Result<(), LinkError> {
        let FlowKey { local, remote } = flow.key;
        check(local)?;
        check(remote)?;
        if local.is_ipv4() != remote.is_ipv4() {
            return Err(LinkError::Options(format!("flow {local} to {remote}: both are of one IP version")));
        }
        self.flows.set(flow.key.into(), flow.index, &flow.inlet, &flow.key, accounts)?;
        self.switch()
    }

    pub(super) fn clear_flow(&mut self, flow: FlowKey) -> Result<(), LinkError> {
        self.flows.clear(flow.into())?;
        self.switch()
    }

    pub(super) fn set_listener(
        &mut self,
        listener: &ListenerFilter,
        accounts: &mut Accounts,
    ) -> Result<(), LinkError> {
        check(listener.local)?;
        let ListenerFilter { local, index, inlet } = listener;
        self.listeners.set((*local).into(), *index, inlet, local, accounts)?;
        self.switch()
    }

    pub(super) fn clear_listener(&mut self, local: SocketAddr) -> Result<(), LinkError> {
        self.listeners.clear(local.into())?;
        self.switch()
    }

    /// Has the program look packets up, or not where there is nothing to find.
    fn switch(&mut self) -> Result<(), LinkError> {
        let is_active = self.flows.count + self.listeners.count > 0;
        if is_active != self.is_active {
            let failed = |error| refused("telling the XDP program of flows", error);
            self.known.set(0, u32::from(is_active), 0).map_err(failed)?;
            self.is_active = is_active;
        }
        Ok(())
    }
}

/// Whether an end of a connection can be looked up: a unicast address that is written in packets, and a port.
fn check(end: SocketAddr) -> Result<(), LinkError> {
    let ip = end.ip();
    let is_mapped = matches!(ip, IpAddr::V6(ip) if ip.to_ipv4_mapped().is_some());
    if ip.is_unspecified() || ip.is_multicast() || is_mapped || end.port() == 0 {
        return Err(LinkError::Options(format!(
            "{end} cannot be an end of a connection: give an address and a port"
        )));
    }
    Ok(())
}
