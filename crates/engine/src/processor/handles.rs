//! The calls that handles may make on the processor's thread, and their notification when it ends.

use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use punctual_proto::Instant;
use punctual_proto::api::UserId;
use punctual_proto::ids::ChannelId;
use punctual_proto::memory::{Inbox, Outbox};
use punctual_proto::node::Node;

use super::doorbells::Allowance;
use super::port::DrivenLink;
use super::{Mailboxes, Processor};
use crate::memory::HostMemory;
use crate::statistics::LinkReport;
use crate::tcp::TcpId;

impl<O: Outbox, I: Inbox> Processor<O, I> {
    pub fn node_mut(&mut self) -> &mut Node<HostMemory<O, I>> {
        &mut self.node
    }

    pub fn watch(
        &mut self,
        channel: ChannelId,
        doorbell: Arc<OwnedFd>,
        payer: Option<UserId>,
        at: Instant,
    ) -> io::Result<()> {
        self.unwatch(channel);
        let contract = self.node.channel(channel).map(|status| status.contract);
        let handler = self.node.upcall_of(channel);
        let budget =
            handler.and_then(|id| self.node.handlers().find(|status| status.id == id)?.terms.budget());
        let allowance = match budget {
            Some((units, period)) => Allowance::of_calls(units, period, payer),
            None => Allowance::of(contract.as_ref(), payer),
        };
        self.programs.doorbells.watch(channel, doorbell, allowance, &self.waiter)?;
        // Handle what was sent before the doorbell was watched.
        self.node.handle_ring(channel, at);
        Ok(())
    }

    /// Watches the doorbell of a TCP connection's program, which rings for each segment of its class's budget at most.
    pub fn watch_tcp(
        &mut self,
        channel: ChannelId,
        connection: TcpId,
        doorbell: Arc<OwnedFd>,
        payer: Option<UserId>,
    ) -> io::Result<()> {
        self.unwatch(channel);
        let Some(tcp) = &mut self.programs.tcp else { return Ok(()) };
        let Some(budget) = tcp.add_doorbell(channel, connection) else { return Ok(()) };
        let allowance = match budget.budget() {
            Some((units, period)) => Allowance::of_calls(units, period, payer),
            None => Allowance::of(None, payer),
        };
        self.programs.doorbells.watch(channel, doorbell, allowance, &self.waiter)
    }

    pub fn unwatch(&mut self, channel: ChannelId) {
        self.programs.doorbells.unwatch(channel, &self.waiter);
        if let Some(tcp) = &mut self.programs.tcp {
            tcp.remove_doorbell(channel);
        }
    }

    pub fn link_reports(&self) -> Vec<LinkReport> {
        self.ports.iter().map(DrivenLink::report).collect()
    }

    pub fn shut_down(&mut self, at: Instant) {
        if self.stop.at.is_none() {
            self.stop.at = Some(at + self.stop.grace);
            self.node.shutdown(at);
        }
    }
}

/// Notifies the handles that the processor has ended.
pub(super) struct CloseOnDrop<O: Outbox, I: Inbox>(Arc<Mailboxes<O, I>>);

impl<O: Outbox, I: Inbox> CloseOnDrop<O, I> {
    pub const fn new(shared: Arc<Mailboxes<O, I>>) -> Self {
        Self(shared)
    }
}

impl<O: Outbox, I: Inbox> Drop for CloseOnDrop<O, I> {
    fn drop(&mut self) {
        self.0.commands().close();
        self.0.ready().close();
        self.0.background().close();
        self.0.events().close(&mut VecDeque::new());
    }
}
