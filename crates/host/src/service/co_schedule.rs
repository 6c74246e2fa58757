//! Co-scheduling: threads of clients that run at the priority of the channels whose messages they take.
//!
//! A client names a thread by the kernel's number, which it could choose freely. Therefore the thread must
//! belong to the process at the other end of the client's socket, and that process must still exist (its
//! number may have been reused). A thread that serves several channels gets the highest of their priorities.
//! When the last of them ends here, the thread gets its former scheduling back. A thread that has ended needs
//! no action.

use std::os::fd::AsFd;
use std::path::PathBuf;

use punctual_ipc::api::{Answer, ApiError};
use punctual_ipc::socket::Peer;
use punctual_proto::ids::ChannelId;
use rustix::process::Pid;

use super::{ClientId, Host, Service};

/// A thread at the priority of a channel.
#[derive(Clone, Copy, Debug)]
pub(super) struct CoScheduled<S> {
    client: ClientId,
    thread: u32,
    priority: u8,
    /// How the thread was scheduled before its first channel.
    before: S,
}

/// Whether the thread is one of the peer's, now.
fn is_thread_of(peer: &Peer, thread: u32) -> bool {
    let Some(process) = peer.process else { return false };
    let task = PathBuf::from(format!("/proc/{}/task/{thread}", process.as_raw_nonzero()));
    // Check this first: a thread found under the number afterwards belongs to the peer as long as the peer
    // exists.
    task.exists() && lives(peer, process)
}

fn lives(peer: &Peer, process: Pid) -> bool {
    match &peer.pidfd {
        Some(pidfd) => {
            // Readable as soon as the process has ended.
            matches!(
                punctual_ipc::wake::wait_readable(pidfd.as_fd(), Some(std::time::Instant::now())),
                Ok(false)
            )
        }
        None => rustix::process::test_kill_process(process).is_ok(),
    }
}

impl<H: Host> Service<H> {
    pub(super) fn co_schedule(
        &mut self,
        client: ClientId,
        channel: ChannelId,
        thread: u32,
    ) -> Result<Answer, ApiError> {
        let refuse = |why: &str| Err(ApiError::CoSchedule(why.into()));
        if !self.is_receiver(client, channel) {
            return refuse("only the receiver of an open guaranteed channel can be");
        }
        let status = self.on_node(move |node, _| node.channel(channel))?;
        let Some(status) = status else { return refuse("the channel has ended") };
        let priority = self.host.priority(&status.contract).map_err(ApiError::CoSchedule)?;
        self.lend(client, channel, thread, priority).map(|priority| Answer::CoScheduled { priority })
    }

    /// Gives a thread of a client the priority of a channel or a handler; returns the highest of all that it serves.
    pub(super) fn lend(
        &mut self,
        client: ClientId,
        channel: ChannelId,
        thread: u32,
        priority: u8,
    ) -> Result<u8, ApiError> {
        let refuse = |why: &str| Err(ApiError::CoSchedule(why.into()));
        let is_own = |service: &Self| {
            service.clients.get(&client).is_some_and(|client| is_thread_of(&client.peer, thread))
        };
        if !is_own(self) {
            return refuse(
                "the thread is not one of the program that asks, or is in another PID namespace than the daemon",
            );
        }
        let other = self.co_scheduled.values().find(|one| one.client == client && one.thread == thread);
        let before = match other {
            Some(other) => other.before,
            None => self.host.scheduling(thread).map_err(ApiError::CoSchedule)?,
        };
        self.co_scheduled.insert(channel, CoScheduled { client, thread, priority, before });
        let highest = self.highest(client, thread).unwrap_or(priority);
        let done = self.host.set_priority(thread, highest);
        if let Err(why) = done {
            self.co_scheduled.remove(&channel);
            return Err(ApiError::CoSchedule(why));
        }
        if !is_own(self) {
            // The thread has ended meanwhile, and its number may belong to another one.
            self.co_scheduled.remove(&channel);
            self.host.restore(thread, before);
            return refuse("the thread has ended");
        }
        Ok(highest)
    }

    /// A channel has ended here: its thread is put back, or keeps what its other channels give it.
    pub(super) fn end_co_schedule(&mut self, channel: ChannelId) {
        let Some(CoScheduled { client, thread, before, .. }) = self.co_scheduled.remove(&channel) else {
            return;
        };
        let highest = self.highest(client, thread);
        let is_own = self.clients.get(&client).is_some_and(|client| is_thread_of(&client.peer, thread));
        if !is_own {
            return;
        }
        match highest {
            // A thread that cannot be set any more has just ended.
            Some(priority) => drop(self.host.set_priority(thread, priority)),
            None => self.host.restore(thread, before),
        }
    }

    pub(super) fn co_scheduled_of(&self, client: ClientId) -> Vec<ChannelId> {
        let own = self.co_scheduled.iter().filter(|(_, one)| one.client == client);
        own.map(|(channel, _)| *channel).collect()
    }

    fn highest(&self, client: ClientId, thread: u32) -> Option<u8> {
        let same = self.co_scheduled.values().filter(|one| one.client == client && one.thread == thread);
        same.map(|one| one.priority).max()
    }
}
