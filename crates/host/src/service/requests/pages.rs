//! Requests for status. Long answers come in pages.

use punctual_ipc::api::{Answer, HostStatus, PACKET_BYTES_MAX, UserStatus};
use punctual_ipc::ring::now;
use punctual_proto::api::{ChannelStatus, RequestError, UserId};
use punctual_proto::ids::ChannelId;
use serde::Serialize;

use super::Outcome;
use crate::service::quota::is_privileged;
use crate::service::{Host, Service};

/// Channels whose status the processor reports in one call, between messages.
const CHANNELS_PER_SLICE: usize = 8;
/// Most slices for one answer. If most handles are of channels that have ended, the answer has few channels
/// or none.
const SLICES_PER_PAGE: usize = 16;
/// Bytes of a packet that are reserved for everything around a list, on the safe side.
const ENVELOPE_BYTES: usize = 1_024;

impl<H: Host> Service<H> {
    pub(super) fn status(&mut self, account: UserId) -> Outcome {
        let (node, more_handlers) =
            self.on_node(|node, now| (node.status(now), node.handlers().next().is_some()))?;
        let audit = if is_privileged(account) { self.audit(node.channels)? } else { None };
        let mut status = HostStatus {
            node,
            api: self.counters,
            quotas: self.accounts.quotas(),
            users: Vec::new(),
            more_users: false,
            uptime: now().since(self.started),
            engine: self.host.statistics(),
            handlers: Vec::new(),
            more_handlers,
            audit,
        };
        let taken_bytes = serde_json::to_vec(&status).map_or(PACKET_BYTES_MAX, |json| json.len());
        (status.users, status.more_users) = self.users_after(None, taken_bytes);
        Ok(Some((Answer::Status(Box::new(status)), Vec::new())))
    }

    pub(super) fn users(&self, after: Option<UserId>) -> Outcome {
        let (users, more) = self.users_after(after, 0);
        Ok(Some((Answer::Users { users, more }, Vec::new())))
    }

    /// Users behind `after`, as many as fit into a packet beside `taken_bytes`, and whether there are more.
    pub(super) fn users_after(&self, after: Option<UserId>, taken_bytes: usize) -> (Vec<UserStatus>, bool) {
        let mut users = self.accounts.statuses();
        users.retain(|held| after.is_none_or(|after| held.user.0 > after.0));
        let more = keep_fitting(&mut users, taken_bytes);
        (users, more)
    }

    pub(super) fn channels(&mut self, after: Option<ChannelId>) -> Outcome {
        let (mut channels, mut bytes): (Vec<ChannelStatus>, usize) = (Vec::new(), 0);
        let (mut seen, mut more) = (after, true);
        for _ in 0..SLICES_PER_PAGE {
            let page = self.on_node(move |node, _| node.channels_after(seen, CHANNELS_PER_SLICE))?;
            for status in page.channels {
                bytes += serde_json::to_vec(&status).map_or(0, |json| json.len() + 1);
                // The first one is sent whatever its size, so that paging ends.
                if bytes > PACKET_BYTES_MAX * 3 / 4 && !channels.is_empty() {
                    return Ok(Some((Answer::Channels { channels, seen, more: true }, Vec::new())));
                }
                seen = Some(status.channel);
                channels.push(status);
            }
            (seen, more) = (page.seen, page.more);
            if !more {
                break;
            }
        }
        Ok(Some((Answer::Channels { channels, seen, more }, Vec::new())))
    }

    pub(super) fn channel(&mut self, channel: ChannelId) -> Outcome {
        let found = self.on_node(move |node, _| node.channel(channel))?;
        let status = found.ok_or(RequestError::Unknown)?;
        Ok(Some((Answer::Channel(Box::new(status)), Vec::new())))
    }
}

/// Keeps as many of the first items as fit into a packet beside `taken_bytes`; whether some were dropped.
pub(super) fn keep_fitting<T: Serialize>(items: &mut Vec<T>, taken_bytes: usize) -> bool {
    let mut left_bytes = PACKET_BYTES_MAX.saturating_sub(ENVELOPE_BYTES + taken_bytes);
    let mut fits = |item: &T| {
        let bytes = serde_json::to_vec(item).map_or(usize::MAX, |json| json.len() + 1);
        let left = left_bytes.checked_sub(bytes);
        left_bytes = left.unwrap_or(0);
        left.is_some()
    };
    let fitting = items.iter().take_while(|item| fits(item)).count();
    let dropped = fitting < items.len();
    items.truncate(fitting);
    dropped
}
