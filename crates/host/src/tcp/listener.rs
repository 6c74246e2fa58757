//! Listeners of the host, and the connections that they accept.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::Sender;

use punctual_engine::tcp::{
    Accepted, Flow, ListeningStatus, TcpConfig, TcpId, TcpListen, TcpRefusal, TcpTerms,
};
use punctual_ipc::wake::Alarm;
use punctual_link::kernel::{PortHold, devices_with};
use punctual_proto::Nanos;
use punctual_proto::api::RtuCost;
use punctual_proto::ids::LinkId;

use super::opener::{Notify, Opener, Prepared, ProgramRings, prepare};
use super::releaser::{Living, Release};
use super::segments::{Keep, segment_ring};
use super::{Handle, SEGMENTS, TcpError, TcpLink, TcpWish, segment_bytes, terms};

impl Opener {
    /// The link on whose device `local` is, and its longest packet: connections to this address come there.
    fn link_of(&self, local: IpAddr) -> Result<(LinkId, u32), TcpError> {
        let devices = devices_with(local)?;
        let serves = |link: &&TcpLink| link.device.as_ref().is_none_or(|device| devices.contains(device));
        let link = self.links.iter().find(serves).map(|link| (link.id, link.packet_bytes));
        link.ok_or(TcpError::NoLink { address: local, devices })
    }

    /// Begins to listen on the link that [`Self::link_of`] finds; waits for admission. `notify` is called when a connection waits, on the processor's thread.
    pub fn listen(
        &self,
        local: SocketAddr,
        backlog: u32,
        wish: TcpWish,
        notify: impl FnMut() + Send + 'static,
    ) -> Result<Listener, TcpError> {
        let hold = PortHold::take(local)?;
        let (link, packet_bytes) = self.link_of(local.ip())?;
        let segment_bytes = segment_bytes(packet_bytes, local.ip())?;
        let (segments_out, segments_in, keep) = segment_ring(SEGMENTS, segment_bytes, &self.alarm)?;
        let TcpTerms { output, sending, inlet, .. } =
            terms((wish.class, self.segment), Nanos::ZERO, link, segment_bytes);
        let wanted = TcpListen {
            local,
            link,
            config: TcpConfig { mtu_bytes: segment_bytes as u16, ..wish.config },
            backlog,
            terms: output,
            sending,
            inlet,
            segments_out,
            segments_in: Box::new(segments_in),
            notify: Box::new(notify),
        };
        let number = self.handle.listen_tcp(wanted)??;
        let (handle, releaser) = (self.handle.clone(), self.releaser.clone());
        let lives = Arc::clone(&self.lives);
        Ok(Listener {
            handle,
            number,
            wish,
            segment: self.segment,
            rings: self.rings,
            on: (link, segment_bytes),
            releaser,
            living: self.living.clone(),
            lives,
            alarm: self.alarm.clone(),
            keep: Some(keep),
            _hold: hold,
        })
    }
}

/// A listener. Dropping it ends it.
pub(crate) struct Listener {
    handle: Handle,
    number: u32,
    wish: TcpWish,
    segment: RtuCost,
    /// See [`TcpSetup::rings`].
    rings: Nanos,
    /// The link, and its longest segment.
    on: (LinkId, u32),
    releaser: Sender<Release>,
    living: Living,
    lives: Arc<AtomicU64>,
    /// See [`Opener::alarm`](super::opener::Opener::alarm).
    pub(crate) alarm: Alarm,
    keep: Option<Keep>,
    _hold: PortHold,
}

impl Listener {
    /// Its state; `None` once the engine has stopped.
    pub(super) fn status(&self) -> Option<ListeningStatus> {
        self.handle.listening_status(self.number).ok().flatten()
    }

    /// What a connection needs that is to be accepted.
    pub fn prepare(&self, rings: ProgramRings, notify: Notify) -> Result<Prepared, TcpError> {
        let life = self.lives.fetch_add(1, Ordering::Relaxed);
        let costs = (&self.wish, self.segment, self.rings);
        prepare(costs, self.on, (life, &self.releaser, &self.alarm), (rings, notify))
    }

    /// Accepts a connection if one waits; gives the parts back if not.
    pub fn accept(&self, Prepared { parts, life, keep }: Prepared) -> Result<Accepting, TcpError> {
        self.living.begins(life, keep.clone(), None);
        match self.handle.accept_tcp(self.number, parts) {
            Ok(Ok(Accepted::One(id, flow))) => Ok(Accepting::One(id, flow)),
            Ok(Ok(Accepted::None(parts))) => {
                drop(self.living.ends(life));
                Ok(Accepting::None(Prepared { parts, life, keep }))
            }
            failed => {
                // Without a releaser the process ends.
                let _ = self.releaser.send(Release::NotBegun(life));
                failed??;
                Err(TcpRefusal::NoTcp.into())
            }
        }
    }
}

/// The result of [`Listener::accept`].
pub(crate) enum Accepting {
    /// A connection was accepted, with these ends.
    One(TcpId, Flow),
    /// None waits; here are the parts.
    None(Prepared),
}

impl Drop for Listener {
    fn drop(&mut self) {
        // An error means that the engine, and the listener with it, are gone.
        let _ = self.handle.stop_listening_tcp(self.number);
        if let Some(keep) = self.keep.take() {
            let life = self.lives.fetch_add(1, Ordering::Relaxed);
            self.living.begins(life, keep, None);
            // Without a releaser the process ends.
            let _ = self.releaser.send(Release::NotBegun(life));
        }
    }
}
