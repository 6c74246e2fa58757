//! Round trips and one-way messages between the two hosts, over each kind of carrier.

use anyhow::bail;
use punctual::{Channel, Consent, Contract, Listener, Nanos, Receiver};

use super::Pair;
use crate::loads::call::{ChannelCaller, LeadingCaller, SocketCaller};
use crate::loads::channel::{ChannelSender, accept};
use crate::loads::stream::StreamSender;
use crate::loads::{Caller, Class, MessageSender, direct};
use crate::measure::Sample;
use crate::testbed::bare::Bare;
use crate::testbed::orders::{Echo, Order, RoleId, Sink, Through};
use crate::testbed::{Options, Wait, echo};

/// Time that a client that leads declares for its work between two waits: it reads its clock and keeps a sample. The processor is
/// woken from a halt just before, with cold caches, and its kernel catches up with timers and its neighbours' packets.
const LEADER_TIME: Nanos = Nanos::from_micros(30);

impl Pair {
    /// Round trips over plain sockets.
    ///
    /// # Errors
    /// If a socket is refused.
    pub fn call_sockets(&mut self, wait: Wait, class: Class) -> anyhow::Result<(Box<dyn Caller>, u16)> {
        let (role, port) = (self.role(), self.port());
        let through = Through::Kernel { port };
        self.order(Order::Echo(Echo { role, through, answers: None, wait, class, bytes_max: 2_048 }))?;
        let server = std::net::SocketAddrV4::new(self.address, port);
        let caller = self.place.within(|| Ok(SocketCaller::new(server, wait)?))?;
        Ok((Box::new(caller), port))
    }

    /// Round trips over two guaranteed channels of an engine; `waits` states how client and server wait, in
    /// that order.
    ///
    /// # Errors
    /// If a channel is refused, or an end of a channel cannot wait like that.
    pub fn call_channels(
        &mut self,
        engine: RoleId,
        contract: Contract,
        [client, wait]: [Wait; 2],
        class: Class,
    ) -> anyhow::Result<Box<dyn Caller>> {
        let role = self.role();
        let reply = format!("reply-{role}");
        let endsystem = self.endsystem(engine)?;
        let listener = match client {
            Wait::Lead => endsystem.listen_direct(&reply, LEADER_TIME, |_| Consent::Accept)?,
            Wait::Block => endsystem.listen(&reply, |_| Consent::Accept)?,
            other => bail!("a client of channels blocks or leads: {other:?} is none of these"),
        };
        let (requests, answers) = self.open_echo(role, engine, contract, wait, class, &listener)?;
        if wait == Wait::Direct {
            self.direct.push(role);
        }
        Ok(match client {
            Wait::Lead => Box::new(LeadingCaller::new(requests, answers)),
            _ => Box::new(ChannelCaller::new(requests, answers)),
        })
    }

    /// Makes b answer over an engine as role number `role`: opens the channel of the requests, and the
    /// channel of the answers, for which `listener` waits.
    fn open_echo(
        &mut self,
        role: RoleId,
        engine: RoleId,
        contract: Contract,
        wait: Wait,
        class: Class,
        listener: &Listener,
    ) -> anyhow::Result<(Channel, Receiver)> {
        let ask = format!("ask-{role}");
        let through = Through::Engine { engine, name: ask.clone() };
        let answers = Some((format!("reply-{role}@a"), contract));
        let bytes_max = contract.message_bytes_max;
        self.order(Order::Echo(Echo { role, through, answers, wait, class, bytes_max }))?;
        let answers = accept(listener)?;
        Ok((self.endsystem(engine)?.open(&format!("{ask}@b"), contract)?, answers))
    }

    /// Round trips of messages of `bytes` over the bare drivers of both hosts. Only over namespaces.
    ///
    /// # Errors
    /// As [`Pair::adapters`].
    pub fn call_adapters(
        &mut self,
        options: &Options,
        bytes: u32,
        wait: Wait,
        class: Class,
    ) -> anyhow::Result<Box<dyn Caller>> {
        let (near, far) = self.adapters(options)?;
        self.serve(class, Box::new(Bare::new(far, wait, bytes, [2, 1])))?;
        Ok(Box::new(Bare::new(near, wait, bytes, [1, 2])))
    }

    /// Round trips of `bytes` for which no thread is woken: the processors of both hosts call handlers, and
    /// a's handler sends the next request with each answer. As many as fit into `length`, one after the
    /// other.
    ///
    /// # Errors
    /// If a channel is refused, or answers stop coming.
    pub fn loop_directly(
        &mut self,
        engine: RoleId,
        contract: Contract,
        bytes: usize,
        length: Nanos,
    ) -> anyhow::Result<Vec<Sample>> {
        let role = self.role();
        let time = echo::handler_time(&contract);
        let endsystem = self.endsystem(engine)?;
        let listener = endsystem.listen_direct(&format!("reply-{role}"), time, |_| Consent::Accept)?;
        let (wait, class) = (Wait::Direct, Class::Ordinary);
        let (requests, answers) = self.open_echo(role, engine, contract, wait, class, &listener)?;
        let looped = direct::run(requests, answers, bytes, length);
        self.demoted += u64::from(self.counted(role)?.demoted);
        self.order(Order::End { role })?;
        let (samples, is_demoted) = looped?;
        self.demoted += u64::from(is_demoted);
        Ok(samples)
    }

    /// Number of handlers until now that took too long for their processor, so that a thread was woken for
    /// the messages after that.
    ///
    /// # Errors
    /// If b does not report it.
    pub fn demoted(&mut self) -> anyhow::Result<u64> {
        let mut count = self.demoted;
        for role in self.direct.clone() {
            count += u64::from(self.counted(role)?.demoted);
        }
        Ok(count)
    }

    /// One-way blocks over a TCP connection, as the papers' bulk; and the sink's number.
    ///
    /// # Errors
    /// If a socket is refused.
    pub fn send_sockets(
        &mut self,
        bytes_max: u32,
        class: Class,
    ) -> anyhow::Result<(Box<dyn MessageSender>, RoleId)> {
        let (role, port) = (self.role(), self.port());
        let through = Through::Stream { port };
        self.order(Order::Sink(Sink { role, through, guaranteed: false, class, bytes_max }))?;
        let target = std::net::SocketAddrV4::new(self.address, port);
        let sender = self.place.within(|| Ok(StreamSender::connect(target)?))?;
        Ok((Box::new(sender), role))
    }

    /// One-way messages through an engine, guaranteed under a contract or as best effort; and the sink's number.
    ///
    /// # Errors
    /// If it is refused.
    pub fn send_engine(
        &mut self,
        engine: RoleId,
        contract: Option<Contract>,
        bytes_max: u32,
        class: Class,
    ) -> anyhow::Result<(Box<dyn MessageSender>, RoleId)> {
        let role = self.role();
        let name = format!("sink-{role}");
        let through = Through::Engine { engine, name: name.clone() };
        let guaranteed = contract.is_some();
        self.order(Order::Sink(Sink { role, through, guaranteed, class, bytes_max }))?;
        let endsystem = self.endsystem(engine)?;
        let peer = format!("{name}@b");
        let channel = match contract {
            Some(contract) => endsystem.open(&peer, contract)?,
            None => endsystem.best_effort(&peer, bytes_max)?,
        };
        Ok((Box::new(ChannelSender(channel)), role))
    }
}
