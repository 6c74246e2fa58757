//! TCP for programs in other processes. A thread of its own begins connections and listeners ([`begin`]). What happens waits in
//! a queue, and an alarm rings.
//!
//! Ownership: this table knows the engine's connection of each handle, from the request until nothing of it is left
//! ([`TcpHostEvent::Over`]). It belongs to the thread of the service.

use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};

use punctual_engine::tcp::{Flow, ListeningStatus, TcpId, TcpRefusal, TcpStatus};
use punctual_ipc::api::{TcpEnd, TcpSetting};
use punctual_ipc::ring::{InboxWriter, OutboxReader};
use punctual_ipc::wake::Alarm;
use punctual_proto::Nanos;
use punctual_proto::api::{RtuClass, UserId};
use punctual_proto::ids::ChannelId;

use super::listener::{Accepting, Listener};
use super::opener::{Opener, Prepared, ProgramRings, TcpNews, confine};
use super::paths::Join;
use super::starter::{Job, Report, Reporter, begin};
use super::turns::Turns;
use super::{Handle, RING, TcpError, TcpSetup, TcpWish, api_end, engine_setting};

/// What happened to a connection or a listener.
#[derive(Debug)]
pub enum TcpHostEvent {
    /// Admission has granted it, with these ends, or it is refused.
    Begun(Result<Flow, TcpError>),
    /// The connection is open.
    Open,
    /// An accepted connection is refused: [`TcpHostEvent::Over`] follows.
    Refused(TcpRefusal),
    /// The connection ended.
    Ended(TcpEnd),
    /// Only late segments of the peer can come: the engine has dropped its rings.
    TimeWait,
    /// The engine has dropped its buffers, too ([`super::RESTING_BYTES`] are left).
    Rests,
    /// All resources of the connection are released.
    Over,
    /// The listener listens, or is refused.
    Listening(Result<(), TcpError>),
}

/// How far a handle's connection or listener is.
enum Place {
    /// The connection or listener of this user begins. The program may have closed it meanwhile.
    Beginning {
        user: UserId,
        is_closed: bool,
        /// What the processor has told before the thread that begins could tell that it has begun.
        early: Vec<TcpNews>,
    },
    Connection(TcpId),
    Listening(Box<Listener>),
    /// A connection that is to be accepted from this listener.
    Accepting(ChannelId),
}

/// See the module.
pub struct DaemonTcp {
    handle: Handle,
    jobs: Sender<Job>,
    reports: Receiver<(ChannelId, Report)>,
    reporter: Reporter,
    table: RefCell<Table>,
}

#[derive(Default)]
struct Table {
    places: HashMap<ChannelId, Place>,
    turns: Turns<Job>,
    /// Connections that wait for a listener's next one, in order.
    accepting: VecDeque<(ChannelId, Prepared)>,
    happened: VecDeque<(ChannelId, TcpHostEvent)>,
}

/// The rings of a program in another process.
pub fn rings(outbox: OutboxReader, inbox: InboxWriter) -> ProgramRings {
    ProgramRings { outbox, inbox, chunk_bytes: RING.1 }
}

impl DaemonTcp {
    /// For links with room for flows. `alarm` rings when something has happened ([`Self::next`]).
    ///
    /// # Errors
    /// [`TcpError`].
    pub(crate) fn start(handle: Handle, setup: TcpSetup, alarm: &Alarm) -> Result<Self, TcpError> {
        let forbidden = setup.forbidden;
        let opener = Opener::start(handle.clone(), setup)?;
        let ((sender, reports), (jobs, queue)) = (channel(), channel());
        let reporter = Reporter { reports: sender, alarm: alarm.clone() };
        let theirs = reporter.clone();
        std::thread::Builder::new().name("punctual-open".into()).spawn(move || {
            confine(forbidden);
            begin(&opener, &queue, &theirs);
        })?;
        Ok(Self { handle, jobs, reports, reporter, table: RefCell::default() })
    }

    fn order(&self, job: Job) {
        // The thread lives as long as this.
        let _ = self.jobs.send(job);
    }

    /// Gives the thread a job as soon as it is its user's turn.
    fn begin(&self, channel: ChannelId, user: UserId, job: Job) {
        let mut table = self.table.borrow_mut();
        table.places.insert(channel, Place::Beginning { user, is_closed: false, early: Vec::new() });
        if let Some(job) = table.turns.enter(user, channel, job) {
            self.order(job);
        }
    }

    /// The thread is done with a job: its user's next one may begin.
    fn has_begun(&self, table: &mut Table, channel: ChannelId) {
        let Some(Place::Beginning { user, .. }) = table.places.get(&channel) else { return };
        if let Some(job) = table.turns.next(*user) {
            self.order(job);
        }
    }

    /// Begins a connection of this user.
    pub fn connect(
        &self,
        (channel, user): (ChannelId, UserId),
        peer: SocketAddr,
        class: RtuClass,
        rings: ProgramRings,
    ) {
        let job = Job::Connect { channel, peer, wish: TcpWish::of(class), rings: Box::new(rings) };
        self.begin(channel, user, job);
    }

    /// Makes a connection of two channels.
    pub fn join(&self, (channel, user): (ChannelId, UserId), join: Join, rings: ProgramRings) {
        self.begin(channel, user, Job::Join { channel, join, rings: Box::new(rings) });
    }

    /// A channel of a connection has ended.
    pub fn cut(&self, channel: ChannelId, incoming: ChannelId) {
        self.with_id(channel, |handle, id| handle.cut_tcp(id, incoming).is_ok());
    }

    /// Begins to listen.
    pub fn listen(
        &self,
        (channel, user): (ChannelId, UserId),
        local: SocketAddr,
        class: RtuClass,
        backlog: u32,
    ) {
        self.begin(channel, user, Job::Listen { channel, local, backlog, wish: TcpWish::of(class) });
    }

    /// Accepts a connection of a listener, at once or as soon as one waits.
    ///
    /// # Errors
    /// If `listener` is none, or memory is short.
    pub fn accept(
        &self,
        listener: ChannelId,
        channel: ChannelId,
        rings: ProgramRings,
    ) -> Result<(), Option<TcpError>> {
        let mut table = self.table.borrow_mut();
        let Some(Place::Listening(listening)) = table.places.get(&listener) else { return Err(None) };
        let parts = listening.prepare(rings, self.reporter.notify(channel)).map_err(Some)?;
        table.places.insert(channel, Place::Accepting(listener));
        table.accepting.push_back((channel, parts));
        table.accept_next(listener);
        self.announce(&table);
        Ok(())
    }

    /// The program has used its rings.
    pub fn ready(&self, channel: ChannelId) {
        self.with_id(channel, |handle, id| handle.ready_tcp(id).is_ok());
    }

    /// The program closes its direction.
    pub fn shutdown(&self, channel: ChannelId) {
        self.with_id(channel, |handle, id| handle.close_tcp(id).is_ok());
    }

    /// The program ends the connection at once.
    pub fn reset(&self, channel: ChannelId) {
        self.with_id(channel, |handle, id| handle.abort_tcp(id).is_ok());
    }

    /// The program changes a setting.
    pub fn set(&self, channel: ChannelId, setting: TcpSetting) {
        let setting = engine_setting(setting);
        self.with_id(channel, |handle, id| handle.set_tcp(id, setting).is_ok());
    }

    /// What is known of a connection.
    pub fn status(&self, channel: ChannelId) -> Option<TcpStatus> {
        self.with_id(channel, |handle, id| handle.tcp_status(id).ok().flatten()).flatten()
    }

    /// State of a listener; `None`: there is none, or the engine has stopped.
    pub fn listening_status(&self, channel: ChannelId) -> Option<ListeningStatus> {
        match self.table.borrow().places.get(&channel)? {
            Place::Listening(listener) => listener.status(),
            _ => None,
        }
    }

    /// Watches the doorbell of a connection's program; returns how much of the processor's time that took.
    ///
    /// # Errors
    /// A message that explains why not.
    pub fn watch(
        &self,
        channel: ChannelId,
        doorbell: Arc<OwnedFd>,
        payer: Option<UserId>,
    ) -> Result<Nanos, String> {
        let watched = self.with_id(channel, |handle, id| handle.watch_tcp(channel, id, doorbell, payer));
        watched.map_or(Ok(Nanos::ZERO), |took| took.map_err(|error| error.to_string()))
    }

    /// The program is gone, or has closed it: [`TcpHostEvent::Over`] follows.
    pub fn release(&self, channel: ChannelId) {
        let mut guard = self.table.borrow_mut();
        let table = &mut *guard;
        let Some(place) = table.places.get_mut(&channel) else { return };
        match place {
            Place::Beginning { user, is_closed, .. } => match table.turns.withdraw(*user, channel) {
                Some(_) => table.over(channel),
                None => *is_closed = true,
            },
            // A stopped engine has ended it.
            Place::Connection(id) => drop(self.handle.release_tcp(*id)),
            Place::Accepting(_) => {
                table.accepting.retain(|(waiting, _)| *waiting != channel);
                table.over(channel);
            }
            Place::Listening(_) => {
                if let Some(Place::Listening(listener)) = table.places.remove(&channel) {
                    self.order(Job::StopListening(*listener));
                }
                table.refuse_waiting(channel);
                table.over(channel);
            }
        }
        self.announce(table);
    }

    /// Rings for what a call has put into the queue: no report of another thread does.
    fn announce(&self, table: &Table) {
        if !table.happened.is_empty() {
            self.reporter.alarm.ring();
        }
    }

    fn with_id<R>(&self, channel: ChannelId, call: impl FnOnce(&Handle, TcpId) -> R) -> Option<R> {
        match self.table.borrow().places.get(&channel) {
            Some(Place::Connection(id)) => Some(call(&self.handle, *id)),
            _ => None,
        }
    }

    /// The next thing that happened.
    pub fn next(&self) -> Option<(ChannelId, TcpHostEvent)> {
        let mut table = self.table.borrow_mut();
        loop {
            if let Some(happened) = table.happened.pop_front() {
                return Some(happened);
            }
            match self.reports.try_recv() {
                Ok((channel, report)) => self.take(&mut table, channel, report),
                Err(TryRecvError::Empty | TryRecvError::Disconnected) => return None,
            }
        }
    }

    fn take(&self, table: &mut Table, channel: ChannelId, report: Report) {
        let Some(report) = table.in_order(channel, report) else { return };
        let (is_closed, early) = table.told(channel);
        if matches!(report, Report::Begun(_) | Report::Listening(_)) {
            self.has_begun(table, channel);
        }
        match report {
            Report::Begun(Ok((id, flow))) => {
                if is_closed {
                    // A stopped engine has ended it.
                    let _ = self.handle.release_tcp(id);
                }
                table.begun(channel, id, flow);
                for news in early {
                    self.take(table, channel, Report::News(news));
                }
            }
            Report::Begun(Err(error)) => {
                table.places.remove(&channel);
                table.happened.push_back((channel, TcpHostEvent::Begun(Err(error))));
            }
            Report::News(TcpNews::Refused(refusal)) => {
                table.happened.push_back((channel, TcpHostEvent::Refused(refusal)));
            }
            Report::News(TcpNews::Open) => table.happened.push_back((channel, TcpHostEvent::Open)),
            Report::News(TcpNews::Ended(why)) => {
                table.happened.push_back((channel, TcpHostEvent::Ended(api_end(why))));
            }
            Report::News(TcpNews::TimeWait) => table.happened.push_back((channel, TcpHostEvent::TimeWait)),
            Report::News(TcpNews::Rests) => table.happened.push_back((channel, TcpHostEvent::Rests)),
            Report::News(TcpNews::Over) => table.over(channel),
            Report::Listening(Ok(listener)) if is_closed => {
                self.order(Job::StopListening(listener));
                table.over(channel);
            }
            Report::Listening(Ok(listener)) => {
                table.places.insert(channel, Place::Listening(Box::new(listener)));
                table.happened.push_back((channel, TcpHostEvent::Listening(Ok(()))));
            }
            Report::Listening(Err(error)) => {
                table.places.remove(&channel);
                table.happened.push_back((channel, TcpHostEvent::Listening(Err(error))));
            }
            Report::Waiting => table.accept_next(channel),
        }
    }
}

impl Table {
    /// A connection that is over at once can be so before this hears that it has begun. Such news waits: without it the connection would
    /// have no place when it has begun, and its user's turn would be lost.
    fn in_order(&mut self, channel: ChannelId, report: Report) -> Option<Report> {
        match (self.places.get_mut(&channel), report) {
            (Some(Place::Beginning { early, .. }), Report::News(news)) => {
                early.push(news);
                None
            }
            (_, report) => Some(report),
        }
    }

    /// Of what begins: whether its program has closed it, and the news that waits.
    fn told(&mut self, channel: ChannelId) -> (bool, Vec<TcpNews>) {
        match self.places.get_mut(&channel) {
            Some(Place::Beginning { is_closed, early, .. }) => (*is_closed, std::mem::take(early)),
            _ => (false, Vec::new()),
        }
    }

    fn begun(&mut self, channel: ChannelId, id: TcpId, flow: Flow) {
        self.places.insert(channel, Place::Connection(id));
        self.happened.push_back((channel, TcpHostEvent::Begun(Ok(flow))));
    }

    fn over(&mut self, channel: ChannelId) {
        self.places.remove(&channel);
        self.happened.push_back((channel, TcpHostEvent::Over));
    }

    fn waits_at(&self, channel: ChannelId, listener: ChannelId) -> bool {
        matches!(self.places.get(&channel), Some(Place::Accepting(at)) if *at == listener)
    }

    /// Gives the connections that wait at a listener to those who want to accept them.
    fn accept_next(&mut self, listener: ChannelId) {
        while let Some(at) = self.accepting.iter().position(|(channel, _)| self.waits_at(*channel, listener))
        {
            let Some(Place::Listening(listening)) = self.places.get(&listener) else { return };
            let Some((channel, parts)) = self.accepting.remove(at) else { return };
            let accepted = listening.accept(parts);
            match accepted {
                Ok(Accepting::One(id, flow)) => self.begun(channel, id, flow),
                Ok(Accepting::None(parts)) => return self.accepting.insert(at, (channel, parts)),
                Err(error) => {
                    self.places.remove(&channel);
                    self.happened.push_back((channel, TcpHostEvent::Begun(Err(error))));
                }
            }
        }
    }

    /// The listener is gone: who waits for a connection of it waits for nothing.
    fn refuse_waiting(&mut self, listener: ChannelId) {
        let waiting: Vec<ChannelId> = (self.places.iter())
            .filter(|(_, place)| matches!(place, Place::Accepting(at) if *at == listener))
            .map(|(channel, _)| *channel)
            .collect();
        self.accepting.retain(|(channel, _)| !waiting.contains(channel));
        for channel in waiting {
            self.places.remove(&channel);
            self.happened.push_back((channel, TcpHostEvent::Begun(Err(TcpError::NotListening))));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The processor tells that a connection is over before the thread that begins tells that it has begun.
    #[test]
    fn news_waits_until_its_connection_has_begun() {
        let (channel, other, mut table) = (ChannelId(1), ChannelId(2), Table::default());
        let begins = Place::Beginning { user: UserId(7), is_closed: true, early: Vec::new() };
        table.places.insert(channel, begins);
        for news in [TcpNews::Open, TcpNews::Over] {
            assert!(table.in_order(channel, Report::News(news)).is_none());
        }
        assert!(matches!(table.places.get(&channel), Some(Place::Beginning { user: UserId(7), .. })));
        let begun = table.in_order(channel, Report::Begun(Err(TcpError::NotListening)));
        assert!(matches!(begun, Some(Report::Begun(Err(_)))));
        assert_eq!(table.told(channel), (true, vec![TcpNews::Open, TcpNews::Over]));
        assert_eq!(table.told(channel), (true, Vec::new()), "once");
        let news = table.in_order(other, Report::News(TcpNews::Over));
        assert!(matches!(news, Some(Report::News(TcpNews::Over))), "nothing waits for what does not begin");
    }
}
