//! TCP of this host's own, begun from any thread (see [`crate::tcp`]).

use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use punctual_link::NextHop;
use punctual_proto::Nanos;
use punctual_proto::api::UserId;
use punctual_proto::ids::{ChannelId, LinkId};
use punctual_proto::memory::{Inbox, Outbox};
use punctual_tcp::endsystem::Endsystem;

use crate::error::EngineGone;
use crate::handle::{CallError, EngineHandle, WatchError};
use crate::tcp::{
    Accepted, ListeningStatus, TcpConnect, TcpId, TcpJoin, TcpListen, TcpParts, TcpRefusal, TcpSetting,
    TcpStatus, TcpTimeWait,
};

impl<O: Outbox + 'static, I: Inbox + 'static> EngineHandle<O, I> {
    /// The way to `remote` over a link; it is asked for, and followed while a clone of it exists.
    ///
    /// # Errors
    /// Inside, if the link's driver has no flows; outside, that of [`EngineHandle::call`].
    pub fn next_hop(&self, link: LinkId, remote: IpAddr) -> Result<Result<NextHop, TcpRefusal>, CallError> {
        self.ask(move |processor, _| processor.next_hop(link, remote))
    }

    /// Lets a link have connections, whose late segments in TIME-WAIT this handler answers; waits for the answer of admission.
    ///
    /// # Errors
    /// The refusal inside; outside, that of [`EngineHandle::call`].
    pub fn serve_tcp(&self, link: LinkId, wanted: TcpTimeWait<O>) -> Result<Result<(), TcpRefusal>, CallError>
    where
        O: Send,
    {
        self.answered(move |processor, answer, now| processor.serve_tcp(link, wanted, answer, now))
    }

    /// Begins a connection and waits for the answer of admission; returns its number.
    ///
    /// # Errors
    /// The refusal inside; outside, that of [`EngineHandle::call`].
    pub fn connect_tcp(&self, wanted: TcpConnect<O, I>) -> Result<Result<TcpId, TcpRefusal>, CallError>
    where
        O: Outbox<Message: Send> + Send,
        I: Send,
    {
        let answer = self.answered(move |processor, answer, now| {
            processor.connect_tcp(wanted, |rings| Box::new(rings), answer, now);
        })?;
        Ok(answer.map_err(|(refusal, _remains)| refusal))
    }

    /// Begins a connection over two channels, and waits for the answer of admission; returns its number.
    ///
    /// # Errors
    /// As [`EngineHandle::connect_tcp`].
    pub fn join_tcp(&self, wanted: TcpJoin<O, I>) -> Result<Result<TcpId, TcpRefusal>, CallError>
    where
        O: Outbox<Message: Send> + Send,
        I: Send,
    {
        let answer = self.answered(move |processor, answer, now| {
            processor.join_tcp(wanted, |rings| Box::new(rings), answer, now);
        })?;
        Ok(answer.map_err(|(refusal, _remains)| refusal))
    }

    /// A channel of a connection has ended, so the connection ends behind what has come.
    ///
    /// # Errors
    /// [`EngineGone`].
    pub fn cut_tcp(&self, connection: TcpId, incoming: ChannelId) -> Result<(), EngineGone> {
        self.order(move |processor, now| processor.cut_tcp(connection, incoming, now))
    }

    /// Begins to listen and waits for the answer of admission; returns the listener's number.
    ///
    /// # Errors
    /// As [`EngineHandle::connect_tcp`].
    pub fn listen_tcp(&self, wanted: TcpListen<O>) -> Result<Result<u32, TcpRefusal>, CallError>
    where
        O: Send,
    {
        self.answered(move |processor, answer, now| processor.listen_tcp(wanted, answer, now))
    }

    /// Adopts a connection that a listener has opened, if one waits. [`TcpEvent::Over`](crate::tcp::TcpEvent::Over) follows if admission refuses it.
    ///
    /// # Errors
    /// The refusal inside; outside, that of [`EngineHandle::call`].
    pub fn accept_tcp(
        &self,
        listener: u32,
        parts: Box<TcpParts<O, I>>,
    ) -> Result<Result<Accepted<O, I>, TcpRefusal>, CallError>
    where
        O: Outbox<Message: Send> + Send,
        I: Send,
    {
        let answer = self
            .ask(move |processor, now| processor.accept_tcp(listener, parts, |rings| Box::new(rings), now))?;
        Ok(answer.map_err(|(refusal, _remains)| refusal))
    }

    /// Ends a listener; the connections that it has opened stay.
    ///
    /// # Errors
    /// See [`EngineHandle::call`].
    pub fn stop_listening_tcp(&self, listener: u32) -> Result<(), CallError> {
        let remains = self.ask(move |processor, now| processor.stop_listening_tcp(listener, now))?;
        drop(remains);
        Ok(())
    }

    /// The program has used its rings: bytes to send are there, or room for bytes that came.
    ///
    /// Takes no lock and no memory: no thread waits here for one of a lower class.
    ///
    /// # Errors
    /// [`EngineGone`].
    pub fn ready_tcp(&self, connection: TcpId) -> Result<(), EngineGone> {
        let mailboxes = self.mailboxes();
        let is_taken = mailboxes.ready().insert(connection.index);
        mailboxes.commands().doorbell().ring();
        is_taken.then_some(()).ok_or(EngineGone)
    }

    /// Watches the doorbell of a connection's program in another process: a ring of it does what [`Self::ready_tcp`] does, until
    /// [`EngineHandle::unwatch`] of `channel`, a handle that the node has reserved. Rings beyond two for each segment of its
    /// class count in the allowance of `payer`; see [`EngineHandle::watch`]. Runs after messages, and returns how long it took.
    ///
    /// # Errors
    /// As [`EngineHandle::watch`].
    pub fn watch_tcp(
        &self,
        channel: ChannelId,
        connection: TcpId,
        doorbell: Arc<OwnedFd>,
        payer: Option<UserId>,
    ) -> Result<Nanos, WatchError> {
        self.watch_with(move |processor, at| {
            processor.watch_tcp(channel, connection, doorbell, payer)?;
            processor.ready_tcp(connection, at);
            Ok(())
        })
    }

    /// The program closes its direction behind the bytes that it has written.
    ///
    /// # Errors
    /// [`EngineGone`].
    pub fn close_tcp(&self, connection: TcpId) -> Result<(), EngineGone> {
        self.order(move |processor, now| processor.change_tcp(connection, now, Endsystem::close))
    }

    /// The program is gone.
    ///
    /// # Errors
    /// [`EngineGone`].
    pub fn release_tcp(&self, connection: TcpId) -> Result<(), EngineGone> {
        self.order(move |processor, now| {
            processor.change_tcp(connection, now, |tcp, index| tcp.release(index, now));
        })
    }

    /// Changes a setting of a connection.
    ///
    /// # Errors
    /// [`EngineGone`].
    pub fn set_tcp(&self, connection: TcpId, setting: TcpSetting) -> Result<(), EngineGone> {
        self.order(move |processor, now| {
            processor.change_tcp(connection, now, |tcp, index| tcp.set(index, setting));
        })
    }

    /// Passes `change` the program's incoming ring of a connection, on the processor's thread; `None` if the connection is
    /// over. It gives the ring a handler on the processor, and must be short.
    ///
    /// # Errors
    /// See [`EngineHandle::call`].
    pub fn with_tcp_inbox<R: Send + 'static>(
        &self,
        connection: TcpId,
        change: impl FnOnce(Option<&mut I>) -> R + Send + 'static,
    ) -> Result<R, CallError> {
        self.ask(move |processor, now| processor.with_tcp_inbox(connection, now, change))
    }

    /// Ends a connection at once.
    ///
    /// # Errors
    /// [`EngineGone`].
    pub fn abort_tcp(&self, connection: TcpId) -> Result<(), EngineGone> {
        self.order(move |processor, now| processor.change_tcp(connection, now, Endsystem::abort))
    }

    /// What is known of a connection; `None` once it is over.
    ///
    /// # Errors
    /// See [`EngineHandle::call`].
    pub fn tcp_status(&self, connection: TcpId) -> Result<Option<TcpStatus>, CallError> {
        self.ask(move |processor, _| processor.tcp_status(connection))
    }

    /// What is known of a listener; `None`: there is none.
    ///
    /// # Errors
    /// See [`EngineHandle::call`].
    pub fn listening_status(&self, listener: u32) -> Result<Option<ListeningStatus>, CallError> {
        self.ask(move |processor, _| processor.listening_status(listener))
    }
}
