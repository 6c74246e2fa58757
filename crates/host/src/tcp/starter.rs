//! The thread that begins connections and listeners of programs in other processes: the kernel's route and admission take time.
//! No peer whose route is unknown keeps others waiting. What happens is reported, and an alarm rings.

use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};

use punctual_engine::tcp::{Flow, TcpId};
use punctual_ipc::wake::Alarm;
use punctual_proto::ids::ChannelId;

use super::listener::Listener;
use super::opener::{Notify, Opener, ProgramRings, TcpNews};
use super::paths::Join;
use super::route::{LOOK_UP_PAUSE, LookUp};
use super::{TcpError, TcpWish};

/// Reports of other threads.
pub(super) enum Report {
    Begun(Result<(TcpId, Flow), TcpError>),
    News(TcpNews),
    Listening(Result<Listener, TcpError>),
    /// A connection waits at a listener.
    Waiting,
}

/// For the thread that begins.
pub(super) enum Job {
    Connect { channel: ChannelId, peer: SocketAddr, wish: TcpWish, rings: Box<ProgramRings> },
    Join { channel: ChannelId, join: Join, rings: Box<ProgramRings> },
    Listen { channel: ChannelId, local: SocketAddr, backlog: u32, wish: TcpWish },
    StopListening(Listener),
}

/// Sends reports, and rings.
#[derive(Clone)]
pub(super) struct Reporter {
    pub reports: Sender<(ChannelId, Report)>,
    pub alarm: Alarm,
}

impl Reporter {
    pub fn report(&self, channel: ChannelId, report: Report) {
        // Without a receiver the service has ended.
        let _ = self.reports.send((channel, report));
        self.alarm.ring();
    }

    pub fn notify(&self, channel: ChannelId) -> Notify {
        let reporter = self.clone();
        Box::new(move |news| reporter.report(channel, Report::News(news)))
    }
}

/// A connection whose route is looked up.
struct Pending(LookUp, ChannelId, SocketAddr, TcpWish, Box<ProgramRings>);

/// Does jobs until nobody can send any more.
pub(super) fn begin(opener: &Opener, jobs: &Receiver<Job>, reporter: &Reporter) {
    let mut pending = Vec::new();
    loop {
        let job = if pending.is_empty() {
            jobs.recv().map_err(|_| RecvTimeoutError::Disconnected)
        } else {
            jobs.recv_timeout(LOOK_UP_PAUSE)
        };
        match job {
            Ok(Job::Connect { channel, peer, wish, rings }) => {
                pending.push(Pending(opener.look_up(peer.ip()), channel, peer, wish, rings));
            }
            Ok(Job::Join { channel, join, rings }) => {
                let begun = opener.join(join, *rings, reporter.notify(channel));
                reporter.report(channel, Report::Begun(begun.map(|id| (id, join.flow))));
            }
            Ok(Job::Listen { channel, local, backlog, wish }) => {
                let (notify, waiting) = (reporter.clone(), move || Report::Waiting);
                let listener = opener.listen(local, backlog, wish, move || notify.report(channel, waiting()));
                reporter.report(channel, Report::Listening(listener));
            }
            Ok(Job::StopListening(listener)) => drop(listener),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        let mut waits = Vec::new();
        for Pending(mut look_up, channel, peer, wish, rings) in pending {
            let begun = match look_up.poll(&opener.handle) {
                None => {
                    waits.push(Pending(look_up, channel, peer, wish, rings));
                    continue;
                }
                Some(Ok(route)) => opener.connect_by(route, peer, &wish, *rings, reporter.notify(channel)),
                Some(Err(error)) => Err(error),
            };
            reporter.report(channel, Report::Begun(begun));
        }
        pending = waits;
    }
}
