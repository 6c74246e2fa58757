//! Captures of packets for an operator (`punctual capture`).
//!
//! A capture is an end like a channel's: it counts among its user's channels, with its ring, and goes with its client. Whoever
//! may capture reads what all users send, so that needs a right of its own.

use punctual_engine::capture::CaptureFilter;
use punctual_ipc::api::{Answer, ApiError, CaptureWish, Resource};
use punctual_proto::api::{CAPTURE_HEAD_BYTES, UserId};
use punctual_proto::ids::LinkId;

use super::{NewRing, Outcome};
use crate::service::quota::is_privileged;
use crate::service::{ClientId, End, Health, Host, Service, Stage};

/// Least and most bytes of each packet that a capture takes: the longest headers, and the longest packet.
const PACKET_BYTES: std::ops::RangeInclusive<u32> = 64..=65_536;
/// Least and most packets that may wait to be read.
const PACKETS: std::ops::RangeInclusive<u32> = 1..=65_536;

impl<H: Host> Service<H> {
    pub(super) fn begin_capture(&mut self, client: ClientId, account: UserId, wish: &CaptureWish) -> Outcome {
        if !is_privileged(account) && !self.host.may_capture(account) {
            let user = account.0;
            return Err(ApiError::Forbidden(format!(
                "user {user} may not capture packets, because they are those of all users: run this as root, or add the user to \
                 capture_users of [daemon] in the configuration"
            )));
        }
        if !PACKET_BYTES.contains(&wish.packet_bytes) || !PACKETS.contains(&wish.packets) {
            return Err(ApiError::Malformed(format!(
                "a capture of {} packets of {} B: give {} to {} packets of {} to {} B",
                wish.packets,
                wish.packet_bytes,
                PACKETS.start(),
                PACKETS.end(),
                PACKET_BYTES.start(),
                PACKET_BYTES.end()
            )));
        }
        let links = self.host.captured_links();
        let link = match &wish.link {
            None => None,
            Some(name) => {
                let at = links.iter().position(|link| link.name == *name).ok_or_else(|| {
                    let names: Vec<_> = links.iter().map(|link| link.name.as_str()).collect();
                    ApiError::Malformed(format!("no link \"{name}\": this host has {}", names.join(", ")))
                })?;
                Some(LinkId(at as u16))
            }
        };
        let filter = CaptureFilter { link, ends: wish.ends, port: wish.port };
        self.take(account, Resource::Channels, 1)?;
        let message_bytes = wish.packet_bytes + CAPTURE_HEAD_BYTES as u32;
        let made = self.make_inbox(account, wish.packets, message_bytes);
        let NewRing { end: writer, handles, held } =
            made.inspect_err(|_| self.accounts.give_back(account, Resource::Channels, 1))?;
        let channel = self.on_node(|node, _| node.reserve_handle())?;
        let health = Some(Health::Inbox(writer.health()));
        let end = End { held, health, ..End::new(client, account, Stage::Capture, "a capture".into()) };
        self.ends.insert(channel, end);
        // From here on the end gives back what was taken.
        if let Err(why) = self.host.begin_capture(channel, filter, (writer, message_bytes)) {
            self.release_end(channel);
            return Err(ApiError::Capture(why));
        }
        let ring = handles.shape;
        Ok(Some((Answer::Capturing { channel, ring, links }, handles.descriptors)))
    }
}
