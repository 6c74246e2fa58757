//! Worlds that make the same round trips in turns, each on two hosts of its own: shared by the experiments
//! with an echo.

use anyhow::Context;
use punctual::{Contract, Nanos};

use super::Conditions;
use crate::loads::{Bulk, Caller, Class, MessageSender};
use crate::testbed::{Block, Contender, Hosting, Pair, PairSetup, RoleId, Wait};

/// The worlds. Contenders go before their hosts.
pub struct Contest<'a> {
    /// The contenders, in the order of joining.
    pub contenders: Vec<Contender>,
    /// Hosts of the contenders, in the same order.
    pub pairs: Vec<Pair>,
    setup: PairSetup,
    /// How many loads there are.
    loads: usize,
    /// The conditions of the contest.
    pub conditions: &'a Conditions,
}

impl<'a> Contest<'a> {
    /// A contest without contenders; each will have hosts like `setup`.
    pub const fn new(setup: PairSetup, loads: usize, conditions: &'a Conditions) -> Self {
        Self { contenders: Vec::new(), pairs: Vec::new(), setup, loads, conditions }
    }

    /// Two hosts for another world.
    ///
    /// # Errors
    /// If a host is refused.
    pub fn pair(&self) -> anyhow::Result<Pair> {
        Pair::create(&self.setup, self.conditions)
    }

    /// Adds a contender that calls through `caller` from a of `pair`.
    pub fn join(&mut self, name: &'static str, class: Class, caller: Box<dyn Caller>, pair: Pair) {
        self.contenders.push(Contender::new(name, class, &pair.place, caller, self.loads));
        self.pairs.push(pair);
    }

    /// The same with bulk of messages of `bytes` beside it.
    ///
    /// # Errors
    /// If its thread cannot start.
    pub fn join_with_bulk(
        &mut self,
        (name, class): (&'static str, Class),
        caller: Box<dyn Caller>,
        (sender, sink): (Box<dyn MessageSender>, RoleId),
        bytes: u32,
        pair: Pair,
    ) -> anyhow::Result<()> {
        let bulk = Bulk::start(sender, bytes as usize, &pair.place, Class::Ordinary)?;
        let contender = Contender::new(name, class, &pair.place, caller, self.loads);
        self.contenders.push(contender.with_bulk(bulk, sink));
        self.pairs.push(pair);
        Ok(())
    }

    /// Kernel sockets with bulk beside them; the port of the server.
    ///
    /// # Errors
    /// If a host or a socket is refused.
    pub fn sockets(
        &mut self,
        name: &'static str,
        wait: Wait,
        class: Class,
        bulk_bytes: u32,
    ) -> anyhow::Result<u16> {
        let mut pair = self.pair()?;
        let (caller, port) = pair.call_sockets(wait, class)?;
        let bulk = pair.send_sockets(bulk_bytes, Class::Ordinary)?;
        self.join_with_bulk((name, class), caller, bulk, bulk_bytes, pair)?;
        Ok(port)
    }

    /// Punctual: guaranteed round trips with bulk as best effort.
    ///
    /// # Errors
    /// If a host or a channel is refused.
    pub fn punctual(&mut self, contract: Contract, bulk_bytes: u32) -> anyhow::Result<()> {
        let class = self.conditions.class();
        let mut pair = self.pair()?;
        let engine = pair.start_engines(&self.conditions.options(), Hosting::Embedded)?;
        let caller = pair.call_channels(engine, contract, [Wait::Block, Wait::Direct], class)?;
        let bulk = pair.send_engine(engine, None, bulk_bytes, Class::Ordinary)?;
        self.join_with_bulk(("Punctual", class), caller, bulk, bulk_bytes, pair)
    }

    /// `count` rounds under load number `load`, which is called `name`.
    ///
    /// # Errors
    /// If a way breaks or the run is interrupted.
    pub fn rounds(&mut self, name: &str, count: usize, load: usize, block: &Block) -> anyhow::Result<()> {
        self.conditions
            .in_turns(name, count, &mut self.contenders, |_, one| one.block(load, block).context(one.name))
    }

    /// A block of every contender, under load number `load`.
    ///
    /// # Errors
    /// As [`Contest::rounds`].
    pub fn turn(&mut self, load: usize, block: &Block) -> anyhow::Result<()> {
        self.contenders.iter_mut().try_for_each(|one| one.block(load, block))
    }

    /// Bytes of bulk that each world has delivered.
    ///
    /// # Errors
    /// If a host does not report it.
    pub fn bulk_bytes(&mut self) -> anyhow::Result<Vec<u64>> {
        let both = self.contenders.iter().zip(&mut self.pairs);
        both.map(|(contender, pair)| match contender.sink() {
            Some(sink) => Ok(pair.counted(sink)?.bytes),
            None => Ok(0),
        })
        .collect()
    }
}

/// Blocks of round trips of `bytes` without bulk, an `interval` from one to the next.
pub const fn block(length: Nanos, interval: Nanos, bytes: u32) -> Block {
    Block { length, interval, bytes: bytes as usize, bulk: None }
}
