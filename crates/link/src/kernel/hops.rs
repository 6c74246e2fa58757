//! Next hops of connections to any host, as the kernel has them: route, gateway, neighbour, source address and MTU.
//!
//! Two parties. [`Hops`] belongs to a link's real-time thread: it asks for the route to a destination and never waits.
//! [`HopKeeper`] belongs to an ordinary thread: it asks the kernel, and asks again when the kernel reports that a route, an
//! address, a neighbour or the device has changed. A [`NextHop`] is what both share: the hardware address that packets go
//! to is an atomic, everything else is behind a lock that the real-time thread only tries.
//!
//! Packets of a link pass the kernel by, so the kernel never learns that a neighbour is in use, and would forget it. It is
//! made to probe each one that is stale (`NTF_USE`), as it does by itself for what it sends.

use std::collections::HashMap;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError, TryLockError, Weak};
use std::time::{Duration, Instant};

use netlink_sys::Socket;

use super::bell::Bell;
use super::device::{Device, RTM_DELLINK, RTM_NEWLINK};
use super::error::KernelError;
use super::neighbours::{Neighbour, RTM_DELNEIGH, RTM_NEWNEIGH, ask_for, neighbour_by, route_by};
use super::netlink::{Netlink, errno, messages};
use super::watch::subscribe;
use crate::mac::Mac;

/// No hardware address is as large.
const UNKNOWN: u64 = u64::MAX;
/// Interval of a check of everything, whether the kernel reports changes or not.
const REFRESH: Duration = Duration::from_secs(10);
/// Destinations of which none is forgotten.
const KNOWN_MIN: usize = 64;

/// The route to a destination.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HopRoute {
    /// Address that the kernel would send from.
    pub source: IpAddr,
    /// The router on the way, or the destination itself.
    pub next_hop: IpAddr,
    /// Longest IP packet: the route's or the device's, whichever is less, in bytes.
    pub mtu: u32,
    /// Whether the next hop's hardware address is known.
    pub is_answered: bool,
}

/// What is known of the route to a destination.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HopState {
    /// The kernel was not asked yet.
    Asked,
    /// The kernel's answer.
    Known(HopRoute),
    /// No next hop over the link's device: the reason, with the fix.
    Refused(String),
}

/// The route to one destination, followed while a clone of this handle exists, or a fixed hardware address.
#[derive(Clone, Debug)]
pub struct NextHop(Kind);

#[derive(Clone, Debug)]
enum Kind {
    Followed(Arc<Cell>),
    Fixed(Mac),
}

#[derive(Debug)]
struct Cell {
    remote: IpAddr,
    destination: AtomicU64,
    version: AtomicU32,
    state: Mutex<HopState>,
}

impl NextHop {
    /// The neighbour with this hardware address on the link, to answer the sender of a packet without a look-up.
    pub const fn fixed(destination: Mac) -> Self {
        Self(Kind::Fixed(destination))
    }

    /// Hardware address that packets go to; `None` if it is not known. Never waits.
    pub fn destination(&self) -> Option<Mac> {
        match &self.0 {
            Kind::Followed(cell) => {
                let number = cell.destination.load(Ordering::Relaxed);
                (number != UNKNOWN).then(|| Mac::from_number(number))
            }
            Kind::Fixed(destination) => Some(*destination),
        }
    }

    /// Changes whenever [`NextHop::state`] does. Never waits.
    pub fn version(&self) -> u32 {
        match &self.0 {
            Kind::Followed(cell) => cell.version.load(Ordering::Acquire),
            Kind::Fixed(_) => 0,
        }
    }

    /// What is known; `None` if it is being changed at this moment, or if the address is fixed. Never waits.
    pub fn state(&self) -> Option<HopState> {
        let Kind::Followed(cell) = &self.0 else { return None };
        match cell.state.try_lock() {
            Ok(state) => Some(state.clone()),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner().clone()),
            Err(TryLockError::WouldBlock) => None,
        }
    }
}

/// Asks for ways, on the link's thread.
#[derive(Debug)]
pub struct Hops {
    asked: Sender<Arc<Cell>>,
    bell: Arc<Bell>,
    /// One for each destination, however many connections there are to it.
    known: HashMap<IpAddr, Weak<Cell>>,
    known_max: usize,
}

impl Hops {
    /// The route to `remote`: [`HopState::Asked`] at first, unless it was requested before.
    pub fn to(&mut self, remote: IpAddr) -> NextHop {
        if let Some(cell) = self.known.get(&remote).and_then(Weak::upgrade) {
            return NextHop(Kind::Followed(cell));
        }
        if self.known.len() >= self.known_max {
            self.known.retain(|_, cell| cell.strong_count() > 0);
            self.known_max = KNOWN_MIN.max(2 * self.known.len());
        }
        let cell = Arc::new(Cell {
            remote,
            destination: AtomicU64::new(UNKNOWN),
            version: AtomicU32::new(0),
            state: Mutex::new(HopState::Asked),
        });
        self.known.insert(remote, Arc::downgrade(&cell));
        // Without a keeper it stays asked for.
        let _ = self.asked.send(Arc::clone(&cell));
        self.bell.ring();
        NextHop(Kind::Followed(cell))
    }
}

/// Asks the kernel, on an ordinary thread.
#[derive(Debug)]
pub struct HopKeeper {
    device: String,
    socket: Socket,
    asked: Receiver<Arc<Cell>>,
    bell: Arc<Bell>,
    /// No other thread waits for the bell.
    owns_bell: bool,
    refreshed: Instant,
    kept: Vec<Kept>,
}

/// A route as it was when last looked at.
#[derive(Debug)]
struct Kept {
    cell: Arc<Cell>,
    next_hop: Option<IpAddr>,
    dirty: bool,
}

/// Both ends for one device, in the network namespace of this thread; the keeper is to be polled in the same.
///
/// # Errors
/// If the kernel refuses.
pub fn hops(device: &str) -> Result<(Hops, HopKeeper), KernelError> {
    let bell = Bell::new().map_err(KernelError::net("following next hops"))?;
    let (hops, keeper) = hops_with(device, Arc::new(bell))?;
    Ok((hops, HopKeeper { owns_bell: true, ..keeper }))
}

/// The same with a bell of the caller, which rings when a route is requested and which the caller clears.
pub(super) fn hops_with(device: &str, bell: Arc<Bell>) -> Result<(Hops, HopKeeper), KernelError> {
    let socket = subscribe().map_err(KernelError::net("following next hops"))?;
    let (sender, asked) = channel();
    let hops = Hops { asked: sender, bell: Arc::clone(&bell), known: HashMap::new(), known_max: KNOWN_MIN };
    Ok((
        hops,
        HopKeeper {
            device: device.into(),
            socket,
            asked,
            bell,
            owns_bell: false,
            refreshed: Instant::now(),
            kept: Vec::new(),
        },
    ))
}

impl HopKeeper {
    /// Readable when the kernel reports a change, and when a route is asked for.
    pub fn descriptors(&self) -> [BorrowedFd<'_>; 2] {
        [self.socket.as_fd(), self.bell.as_fd()]
    }

    /// Looks at what has been asked for and at what may have changed; whether a [`NextHop`] is different now.
    pub fn poll(&mut self) -> bool {
        if self.owns_bell {
            self.bell.clear();
        }
        let asked = self.asked.try_iter().map(|cell| Kept { cell, next_hop: None, dirty: true });
        self.kept.extend(asked);
        self.take_hints();
        self.forget();
        if !self.kept.iter().any(|kept| kept.dirty) {
            return false;
        }
        let Ok(mut netlink) = Netlink::route() else { return false };
        let device = Device::named(&self.device);
        let dirty = self.kept.iter_mut().filter(|kept| kept.dirty);
        dirty.map(|kept| kept.refresh_path(&mut netlink, &device)).fold(false, |any, changed| any | changed)
    }

    /// Looks at the next [`HopKeeper::poll`] at what has not answered, and every 10 s at everything, and has the kernel probe
    /// what is stale. To be called every few seconds; more often while [`HopKeeper::is_waiting`].
    pub fn refresh(&mut self) {
        if self.refreshed.elapsed() >= REFRESH {
            self.refreshed = Instant::now();
            self.mark_all();
        }
        self.kept.iter_mut().filter(|kept| kept.is_waiting()).for_each(|kept| kept.dirty = true);
    }

    fn mark_all(&mut self) {
        self.kept.iter_mut().for_each(|kept| kept.dirty = true);
    }

    /// Whether a next hop has not answered.
    pub fn is_waiting(&self) -> bool {
        self.kept
            .iter()
            .any(|kept| kept.next_hop.is_some() && kept.cell.destination.load(Ordering::Relaxed) == UNKNOWN)
    }

    /// Forgets what has no handle any more. One that gets another handle at this very moment stays.
    fn forget(&mut self) {
        if self.kept.iter().all(|kept| Arc::strong_count(&kept.cell) > 1) {
            return;
        }
        let kept = std::mem::take(&mut self.kept).into_iter();
        let kept = kept.filter_map(|Kept { cell, next_hop, dirty }| {
            Arc::try_unwrap(cell).err().map(|cell| Kept { cell, next_hop, dirty })
        });
        self.kept = kept.collect();
    }

    fn take_hints(&mut self) {
        loop {
            match self.socket.recv_from_full() {
                Ok((datagram, _)) => self.hint(&datagram),
                // Messages were lost.
                Err(error) if errno(&error) == Some(libc::ENOBUFS) => self.mark_all(),
                Err(_) => return,
            }
        }
    }

    fn hint(&mut self, datagram: &[u8]) {
        for (header, body) in messages(datagram) {
            match header.message_type() {
                RTM_NEWLINK | RTM_DELLINK => {
                    if Device::parse(body).is_some_and(|device| device.name == self.device) {
                        self.mark_all();
                    }
                }
                RTM_NEWNEIGH | RTM_DELNEIGH => {
                    let Some(entry) = Neighbour::parse(body) else { continue };
                    let of = |kept: &&mut Kept| kept.next_hop == Some(entry.address);
                    self.kept.iter_mut().filter(of).for_each(|kept| kept.dirty = true);
                }
                // Any route or address may be the one that matters.
                _ => self.mark_all(),
            }
        }
    }
}

impl Kept {
    fn is_waiting(&self) -> bool {
        self.next_hop.is_some() && self.cell.destination.load(Ordering::Relaxed) == UNKNOWN
    }

    /// Compares with the facts; whether something is different.
    fn refresh_path(&mut self, netlink: &mut Netlink, device: &Result<Device, KernelError>) -> bool {
        self.dirty = false;
        let found = device
            .as_ref()
            .map_err(ToString::to_string)
            .and_then(|device| route(netlink, device, self.cell.remote).map_err(|error| error.to_string()));
        let (state, destination) = match found {
            Ok((mut route, mac)) => {
                let before = self.cell.destination.load(Ordering::Relaxed);
                // A neighbour that the kernel has forgotten keeps its address until a change is reported.
                let old = if self.next_hop == Some(route.next_hop) { before } else { UNKNOWN };
                self.next_hop = Some(route.next_hop);
                let destination = mac.map_or(old, Mac::to_number);
                route.is_answered = destination != UNKNOWN;
                (HopState::Known(route), destination)
            }
            Err(why) => {
                self.next_hop = None;
                (HopState::Refused(why), UNKNOWN)
            }
        };
        let was = self.cell.destination.swap(destination, Ordering::Relaxed);
        let mut now = self.cell.state.lock().unwrap_or_else(PoisonError::into_inner);
        if *now == state && was == destination {
            return false;
        }
        *now = state;
        drop(now);
        self.cell.version.fetch_add(1, Ordering::Release);
        true
    }
}

/// The route to `remote` over `device`, and the next hop's hardware address; the kernel is made to look for it where it does
/// not know it, or is not sure.
fn route(
    netlink: &mut Netlink,
    device: &Device,
    remote: IpAddr,
) -> Result<(HopRoute, Option<Mac>), KernelError> {
    let route = route_by(netlink, remote)?;
    if route.local || route.device != device.index {
        let by = Device::numbered(route.device).map_or_else(|_| route.device.to_string(), |it| it.name);
        return Err(KernelError::OtherDevice { peer: remote, by, device: device.name.clone() });
    }
    let source = route.source.ok_or_else(|| KernelError::NoSource { remote, device: device.name.clone() })?;
    let next_hop = route.next_hop(remote);
    let failed = |error: io::Error| KernelError::Os { what: format!("the neighbour {next_hop}"), error };
    let entry = neighbour_by(netlink, device.index, next_hop).map_err(failed)?;
    if entry.is_none_or(|entry| entry.mac.is_none() || entry.stale) {
        ask_for(device.index, next_hop);
    }
    let mtu = route.mtu.map_or(device.mtu, |mtu| mtu.min(device.mtu));
    Ok((HopRoute { source, next_hop, mtu, is_answered: false }, entry.and_then(|entry| entry.mac)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_destination_that_is_this_host_is_refused() {
        let (mut hops, mut keeper) = hops("lo").expect("netlink");
        let hop = hops.to([127, 0, 0, 1].into());
        assert_eq!((hop.state(), hop.destination()), (Some(HopState::Asked), None));
        assert!(keeper.poll());
        let Some(HopState::Refused(why)) = hop.state() else { panic!("{hop:?}") };
        assert!(why.contains("127.0.0.1"), "{why}");
        assert!(!keeper.poll() && !keeper.is_waiting());
    }

    #[test]
    fn a_destination_is_resolved_once_and_removed_with_its_last_handle() {
        let (mut hops, mut keeper) = hops("no-such-device").expect("netlink");
        let [one, two] = [(); 2].map(|()| hops.to([192, 0, 2, 1].into()));
        assert!(keeper.poll());
        assert_eq!((one.version(), two.version(), keeper.kept.len()), (1, 1, 1));
        drop((one, two));
        keeper.poll();
        assert!(keeper.kept.is_empty());
        for last in 0..200 {
            drop(hops.to([192, 0, 2, last].into()));
            keeper.poll();
        }
        assert!(hops.known.len() <= KNOWN_MIN, "{}", hops.known.len());
    }

    #[test]
    fn a_fixed_address_is_known_at_once() {
        let hop = NextHop::fixed(Mac([2, 0, 0, 0, 0, 7]));
        assert_eq!((hop.destination(), hop.state()), (Some(Mac([2, 0, 0, 0, 0, 7])), None));
    }
}
