//! Begins connections and listeners for programs, whose rings others make.

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};

use punctual_engine::HostMemory;
use punctual_engine::tcp::{
    Ended, EphemeralPorts, Flow, Rings, Secrets, TcpConfig, TcpConnect, TcpEvent, TcpId, TcpParts,
    TcpRefusal, TcpTerms, TcpTimeWait,
};
use punctual_ipc::ring::{InboxWriter, OutboxReader};
use punctual_ipc::wake::Alarm;
use punctual_link::kernel::PortHold;
use punctual_os::calls::{self, Forbidden, ThreadKind};
use punctual_os::random_u64;
use punctual_proto::Nanos;
use punctual_proto::api::{RtuClass, RtuCost};
use punctual_proto::ids::LinkId;
use punctual_proto::limits::RAW_TAG_BYTES;

use super::releaser::{Living, Release, release_all};
use super::route::{LOOK_UP_PAUSE, LookUp, Route};
use super::segments::{Keep, segment_ring};
use super::{Handle, SEGMENTS, TcpError, TcpLink, TcpSetup, TcpWish, terms};

/// A program's rings.
pub(crate) type ProgramRings = Rings<HostMemory<OutboxReader, InboxWriter>>;
/// Called on the processor's thread: it must not wait.
pub(crate) type Notify = Box<dyn FnMut(TcpNews) + Send>;
type Parts = TcpParts<OutboxReader, InboxWriter>;

/// Local ports that are tried before the kernel is taken to have none.
const PORT_TRIES: u32 = 32;

/// What happens to a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TcpNews {
    /// The connection is open.
    Open,
    /// An accepted connection is refused.
    Refused(TcpRefusal),
    /// The connection has ended.
    Ended(Ended),
    /// Only late segments of the peer can come: the engine has dropped its rings.
    TimeWait,
    /// The engine has dropped its buffers, too.
    Rests,
    /// All resources of the connection are released.
    Over,
}

/// The calling thread makes the system calls of its list alone, where the host asks for that.
pub(super) fn confine(forbidden: Forbidden) {
    if let Err(error) = calls::confine(ThreadKind::Tcp, forbidden) {
        tracing::warn!(%error, "a thread for TCP has no filter of system calls");
    }
}

/// TCP of an engine.
pub(crate) struct Opener {
    pub(super) handle: Handle,
    /// Links with room for flows.
    pub(super) links: Vec<TcpLink>,
    /// What a segment is declared to take.
    pub(super) segment: RtuCost,
    /// See [`TcpSetup::rings`].
    pub(super) rings: Nanos,
    pub(super) releaser: Sender<Release>,
    pub(super) living: Living,
    pub(super) lives: Arc<AtomicU64>,
    /// Chooses local ports that are hard to guess (RFC 6056).
    ports: Mutex<(EphemeralPorts, Secrets)>,
    /// What rings within this process need; it never rings.
    pub(crate) alarm: Alarm,
}

/// Lets a link have connections.
fn serve(
    handle: &Handle,
    (link, packet_bytes): (LinkId, u32),
    segment: RtuCost,
    alarm: &Alarm,
) -> Result<(), TcpError> {
    let segment_bytes = packet_bytes.saturating_sub(RAW_TAG_BYTES as u32);
    // The engine has this ring as long as it lives.
    let (segments_out, segments_in, _keep) = segment_ring(SEGMENTS, segment_bytes, alarm)?;
    let TcpTerms { output, sending, .. } =
        terms((RtuClass::BestEffort, segment), Nanos::ZERO, link, segment_bytes);
    let segments_in = Box::new(segments_in);
    Ok(handle.serve_tcp(link, TcpTimeWait { terms: output, sending, segments_out, segments_in })??)
}

/// The parts of a connection for the engine.
pub(crate) struct Prepared {
    pub(super) parts: Box<Parts>,
    pub(super) life: u64,
    pub(super) keep: Keep,
}

pub(super) fn prepare(
    (wish, segment, rings_cost): (&TcpWish, RtuCost, Nanos),
    (link, segment_bytes): (LinkId, u32),
    (life, releaser, alarm): (u64, &Sender<Release>, &Alarm),
    (rings, notify): (ProgramRings, Notify),
) -> Result<Prepared, TcpError> {
    let (segments_out, segments_in, keep) = segment_ring(SEGMENTS, segment_bytes, alarm)?;
    let parts = TcpParts {
        terms: terms((wish.class, segment), wish.program_time(rings_cost), link, segment_bytes),
        rings,
        segments_out,
        segments_in: Box::new(segments_in),
        notify: announcing((life, releaser), notify),
    };
    Ok(Prepared { parts: Box::new(parts), life, keep })
}

/// Passes events of the engine on, and leaves to the releaser what they bring.
pub(super) fn announcing(
    (life, releaser): (u64, &Sender<Release>),
    mut notify: Notify,
) -> Box<dyn FnMut(TcpEvent) + Send> {
    let releaser = releaser.clone();
    // Without a releaser the process ends.
    Box::new(move |event| match event {
        TcpEvent::Open => notify(TcpNews::Open),
        TcpEvent::Refused(refusal) => notify(TcpNews::Refused(refusal)),
        TcpEvent::Ended(why) => notify(TcpNews::Ended(why)),
        TcpEvent::TimeWait(remains) => {
            drop(releaser.send(Release::Parts(remains)));
            notify(TcpNews::TimeWait);
        }
        TcpEvent::Rests => notify(TcpNews::Rests),
        TcpEvent::Over(remains) => {
            drop(releaser.send(Release::Over(life, remains)));
            notify(TcpNews::Over);
        }
    })
}

impl Opener {
    /// For links with room for flows: each with its longest packet.
    pub fn start(handle: Handle, setup: TcpSetup) -> Result<Self, TcpError> {
        let TcpSetup { links, segment, rings, forbidden } = setup;
        let alarm = Alarm::new()?;
        links.iter().try_for_each(|link| serve(&handle, (link.id, link.packet_bytes), segment, &alarm))?;
        let (releaser, releases) = channel();
        let living = Living::default();
        let theirs = living.clone();
        std::thread::Builder::new().name("punctual-tcp".into()).spawn(move || {
            confine(forbidden);
            release_all(&releases, &theirs);
        })?;
        let secret = u128::from(random_u64()?) << 64 | u128::from(random_u64()?);
        let ports = Mutex::new((EphemeralPorts::default(), Secrets::new(secret.to_le_bytes())));
        let lives = Arc::default();
        Ok(Self { handle, links, segment, rings, releaser, living, lives, ports, alarm })
    }

    /// Begins to look for the way to a peer.
    pub fn look_up(&self, peer: IpAddr) -> LookUp {
        LookUp::new(peer, &self.links)
    }

    /// A local port that is free for a connection to `remote`, held.
    fn hold(&self, source: IpAddr, remote: SocketAddr) -> Result<PortHold, TcpError> {
        let mut guard = self.ports.lock().unwrap_or_else(PoisonError::into_inner);
        let (ports, secrets) = &mut *guard;
        let (mut tries, mut taken) = (0, None);
        ports.choose(secrets, source, remote, |port| {
            tries += 1;
            let result = PortHold::take(SocketAddr::new(source, port));
            let ends = result.is_ok() || tries == PORT_TRIES;
            taken = Some(result);
            ends
        });
        Ok(taken.ok_or(TcpRefusal::NoTcp)??)
    }

    /// Begins a connection; waits for the kernel's route and for admission.
    pub fn connect(
        &self,
        remote: SocketAddr,
        wish: &TcpWish,
        rings: ProgramRings,
        notify: Notify,
    ) -> Result<(TcpId, Flow), TcpError> {
        let mut look_up = self.look_up(remote.ip());
        let route = loop {
            match look_up.poll(&self.handle) {
                Some(route) => break route?,
                // Another thread asks the kernel; a connection is no message path.
                None => std::thread::sleep(LOOK_UP_PAUSE),
            }
        };
        self.connect_by(route, remote, wish, rings, notify)
    }

    /// Does what [`Self::connect`] does when the route is known; waits for admission.
    pub fn connect_by(
        &self,
        Route { link, segment_bytes, hop, source }: Route,
        remote: SocketAddr,
        wish: &TcpWish,
        rings: ProgramRings,
        notify: Notify,
    ) -> Result<(TcpId, Flow), TcpError> {
        let hold = self.hold(source, remote)?;
        let flow = Flow { local: hold.local(), remote };
        let life = self.lives.fetch_add(1, Ordering::Relaxed);
        let costs = (wish, self.segment, self.rings);
        let owners = (life, &self.releaser, &self.alarm);
        let prepared = prepare(costs, (link, segment_bytes), owners, (rings, notify))?;
        let Prepared { parts, keep, .. } = prepared;
        self.living.begins(life, keep, Some(hold));
        let config = TcpConfig { mtu_bytes: segment_bytes as u16, ..wish.config };
        let begun = self.handle.connect_tcp(TcpConnect { flow, link, hop, config, parts: *parts });
        if !matches!(begun, Ok(Ok(_))) {
            // Without a releaser the process ends.
            let _ = self.releaser.send(Release::NotBegun(life));
        }
        Ok((begun??, flow))
    }
}
