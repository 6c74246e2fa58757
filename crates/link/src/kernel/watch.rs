//! Follows the kernel's state of links: devices, addresses, routes, neighbours.
//!
//! Messages of the kernel are only hints which link to check again; changes are found by comparing the state.
//! Therefore a message that is lost (the socket reports that) or unexpected does no harm, and a storm of
//! messages costs one check. The state does not show one case: a device that was switched off and on again
//! has lost its settings. A message that reports this is trusted, and a lost message may have been such a
//! message.

use std::collections::VecDeque;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};

use netlink_sys::protocols::NETLINK_ROUTE;
use netlink_sys::{Socket, SocketAddr};

use super::device::{Device, RTM_DELLINK, RTM_NEWLINK};
use super::error::KernelError;
use super::neighbours::{Neighbour, RTM_DELNEIGH, RTM_NEWNEIGH, ask_for, neighbour};
use super::netlink::{errno, messages};
use super::path::{LinkPath, PathRequest};
use crate::mac::Mac;

/// Links, neighbours, addresses and routes of both families (`RTNLGRP_*`).
const GROUPS: [u32; 6] = [1, 3, 5, 7, 9, 11];
/// Messages that may wait for us.
const BUFFER_BYTES: usize = 1 << 20;

/// A socket that hears of every change, in the network namespace of this thread.
pub(super) fn subscribe() -> io::Result<Socket> {
    let mut socket = Socket::new(NETLINK_ROUTE)?;
    socket.bind(&SocketAddr::new(0, 0))?;
    socket.set_non_blocking(true)?;
    // A smaller buffer only means to look at everything more often.
    let _ = socket.set_rx_buf_sz(BUFFER_BYTES as libc::c_int);
    GROUPS.iter().try_for_each(|group| socket.add_membership(*group))?;
    Ok(socket)
}

/// What has become different on the way to a neighbour.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Hardware addresses; `None`: the next hop's is not known yet.
    Mac {
        /// Hardware address of our device.
        source: Mac,
        /// Hardware address of the next hop.
        destination: Option<Mac>,
    },
    /// The longest IP packet of the device.
    Mtu {
        /// MTU that the device has now, in bytes.
        mtu: u32,
        /// Whether the link's longest packet fits.
        fits: bool,
    },
    /// The device is switched off, or has lost its carrier. Also reported if that is already over:
    /// [`Change::Up`] follows then.
    Down,
    /// The device can carry packets again.
    Up,
    /// The device has gone: no device has that name any more.
    Gone,
    /// The device is back: a device has that name again.
    Back,
    /// The peer is not reached by this device any more; why, for people.
    RouteMoved(String),
    /// The peer is reached by this device again.
    RouteBack,
}

/// A link's state at the last check.
#[derive(Debug)]
struct Watched {
    request: PathRequest,
    device: Option<Device>,
    next_hop: Option<IpAddr>,
    source: Mac,
    destination: Option<Mac>,
    dirty: bool,
    /// True if the device may have had no carrier for a time since the last check.
    was_down: bool,
}

/// A subscription for some links.
#[derive(Debug)]
pub struct Watcher {
    socket: Socket,
    links: Vec<Watched>,
    changes: VecDeque<(usize, Change)>,
}

impl Watcher {
    /// Subscribes, in the network namespace of this thread.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn new() -> Result<Self, KernelError> {
        let socket = subscribe().map_err(KernelError::net("following links, routes and neighbours"))?;
        Ok(Self { socket, links: Vec::new(), changes: VecDeque::new() })
    }

    /// Follows a link from `path` on; changes name it by the number that is returned, counted from 0.
    pub fn add(&mut self, request: PathRequest, path: &LinkPath) -> usize {
        self.links.push(Watched {
            request,
            source: path.source,
            destination: path.destination,
            next_hop: Some(path.next_hop),
            device: Some(path.device.clone()),
            // What changed since the path was found.
            dirty: true,
            was_down: false,
        });
        self.links.len() - 1
    }

    /// Readable when there may be a change.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// The next change, with the number of its link. `None` if nothing has changed.
    pub fn poll_change(&mut self) -> Option<(usize, Change)> {
        if self.changes.is_empty() {
            self.take_hints();
            for (number, link) in self.links.iter_mut().enumerate().filter(|(_, link)| link.dirty) {
                link.dirty = false;
                link.check(|change| self.changes.push_back((number, change)));
            }
        }
        self.changes.pop_front()
    }

    /// Checks everything at the next [`Watcher::poll_change`], and makes the kernel resolve the neighbours:
    /// it drops those to which it does not send itself.
    pub fn refresh(&mut self) {
        for link in &mut self.links {
            link.dirty = true;
            if let (Some(device), Some(next_hop)) = (&link.device, link.next_hop) {
                ask_for(device.index, next_hop);
            }
        }
    }

    fn take_hints(&mut self) {
        loop {
            match self.socket.recv_from_full() {
                Ok((datagram, _)) => self.hint(&datagram),
                // Messages were lost.
                Err(error) if errno(&error) == Some(libc::ENOBUFS) => {
                    self.links.iter_mut().for_each(|link| (link.dirty, link.was_down) = (true, true));
                }
                Err(_) => return,
            }
        }
    }

    fn hint(&mut self, datagram: &[u8]) {
        for (header, body) in messages(datagram) {
            match header.message_type() {
                RTM_NEWLINK | RTM_DELLINK => {
                    let Some(device) = Device::parse(body) else { continue };
                    self.mark(|link| link.is_on(device.index) || link.request.device == device.name);
                    for link in self.links.iter_mut().filter(|link| link.is_on(device.index)) {
                        link.was_down |= !device.carries();
                    }
                }
                RTM_NEWNEIGH | RTM_DELNEIGH => {
                    let Some(entry) = Neighbour::parse(body) else { continue };
                    self.mark(|link| link.is_on(entry.device) && link.next_hop == Some(entry.address));
                }
                // Any route or address may be relevant.
                _ => self.mark(|_| true),
            }
        }
    }

    fn mark(&mut self, concerned: impl Fn(&Watched) -> bool) {
        self.links.iter_mut().filter(|link| concerned(link)).for_each(|link| link.dirty = true);
    }
}

impl Watched {
    fn is_on(&self, device: u32) -> bool {
        self.device.as_ref().is_some_and(|own| own.index == device)
    }

    /// Compares with the facts.
    fn check(&mut self, mut report: impl FnMut(Change)) {
        let now = match Device::named(&self.request.device) {
            Ok(device) => Some(device),
            Err(KernelError::NoDevice(_)) => None,
            // There is no answer, so the former state stays.
            Err(_) => return,
        };
        let was_down = std::mem::take(&mut self.was_down);
        let before = std::mem::replace(&mut self.device, now.clone());
        let same = matches!((&before, &now), (Some(before), Some(now)) if before.index == now.index);
        if before.is_some() && !same {
            report(Change::Gone);
        }
        let Some(now) = now else { return };
        if !same {
            report(Change::Back);
        }
        // For a device that has come back, all that differs from the usual state is reported.
        let before = before.filter(|_| same);
        self.compare_device(before.as_ref(), &now, was_down, &mut report);
        if now.up {
            self.compare_path(&now, !same, report);
        }
    }

    fn compare_device(
        &self,
        before: Option<&Device>,
        now: &Device,
        was_down: bool,
        report: &mut impl FnMut(Change),
    ) {
        match (before.is_none_or(Device::carries), now.carries()) {
            (true, false) => report(Change::Down),
            (false, true) => report(Change::Up),
            (true, true) if before.is_some() && was_down => {
                report(Change::Down);
                report(Change::Up);
            }
            _ => {}
        }
        if before.is_none_or(|before| before.mtu != now.mtu) {
            let fits = self.request.check_mtu(now).is_ok();
            if before.is_some() || !fits {
                report(Change::Mtu { mtu: now.mtu, fits });
            }
        }
    }

    fn compare_path(&mut self, device: &Device, new: bool, mut report: impl FnMut(Change)) {
        let routed = self.next_hop.is_some();
        match self.request.next_hop(device) {
            Ok(next_hop) => {
                self.next_hop = Some(next_hop);
                if !routed {
                    report(Change::RouteBack);
                }
            }
            Err(error) => {
                self.next_hop = None;
                if routed || new {
                    report(Change::RouteMoved(error.to_string()));
                }
                return;
            }
        }
        let source = device.mac.unwrap_or(self.source);
        let found = self.next_hop.and_then(|next_hop| neighbour(device.index, next_hop).ok().flatten());
        // A neighbour that the kernel has dropped keeps its address until another one is reported.
        let destination = found.or(self.destination);
        if (source, destination) != (self.source, self.destination) {
            (self.source, self.destination) = (source, destination);
            report(Change::Mac { source, destination });
        }
    }
}

impl AsFd for Watcher {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor()
    }
}
