//! Rings are made within the quotas of their user.

use std::os::fd::OwnedFd;

use punctual_analysis::{Contract, Nanos};
use punctual_ipc::api::ApiError;
use punctual_ipc::ring::{InboxWriter, OutboxReader, RingError, RingHandles, RingShape, inbox, outbox};
use punctual_ipc::wake::{Alarm, RingPath};
use punctual_proto::api::UserId;

use super::NewRing;
use crate::service::acceptance::{self, STALL_DEFAULT};
use crate::service::end::Held;
use crate::service::files::Needs;
use crate::service::{Host, Service};

impl<H: Host> Service<H> {
    /// An outgoing ring within the user's quota, and the processor's end of its doorbell.
    pub(in super::super) fn make_outbox(
        &mut self,
        account: UserId,
        slots: u32,
        bytes: u32,
    ) -> Result<(NewRing<OutboxReader>, OwnedFd), ApiError> {
        let shape = RingShape::new(slots, bytes)?;
        let made = self.make_ring(account, &Needs::outbox(shape), |alarm, ring_path| {
            let (reader, handles, doorbell) = outbox(shape, alarm, ring_path)?;
            Ok(((reader, doorbell), handles))
        });
        let NewRing { end: (end, doorbell), handles, held } = made?;
        Ok((NewRing { end, handles, held }, doorbell))
    }

    /// Makes the ring of a receiver that may stall. Room beyond what the receiver requested is no reason to
    /// refuse the channel.
    pub(super) fn make_inbox_of(
        &mut self,
        account: UserId,
        contract: &Contract,
        messages: u32,
        stall: Option<Nanos>,
    ) -> Result<NewRing<InboxWriter>, ApiError> {
        let bytes = contract.message_bytes_max;
        let slots = acceptance::slots(contract, messages, stall.unwrap_or(STALL_DEFAULT));
        let made = self.make_inbox(account, slots, bytes);
        let least = acceptance::slots(contract, messages, Nanos::ZERO);
        if made.is_err() && stall.is_none() && least < slots {
            return self.make_inbox(account, least, bytes);
        }
        made
    }

    pub(super) fn make_inbox(
        &mut self,
        account: UserId,
        slots: u32,
        bytes: u32,
    ) -> Result<NewRing<InboxWriter>, ApiError> {
        let shape = RingShape::new(slots, bytes)?;
        self.make_ring(account, &Needs::inbox(shape), |alarm, ring_path| inbox(shape, alarm, ring_path))
    }

    /// Makes a ring, if the quotas have room for it and for the answer.
    pub(super) fn make_ring<E>(
        &mut self,
        account: UserId,
        needs: &Needs,
        make: impl FnOnce(&Alarm, &RingPath) -> Result<(E, RingHandles), RingError>,
    ) -> Result<NewRing<E>, ApiError> {
        let (all, held) = (needs.all(), self.files.own(needs));
        let answer = Held { bytes: 0, descriptors: needs.handed_over };
        self.take_held(account, Held { descriptors: all.descriptors + answer.descriptors, ..all })?;
        self.give_back_held(account, answer);
        let ring_path = self.ring_path(account, held.bytes).map_err(RingError::from);
        let made =
            ring_path.and_then(|ring_path| make(&self.alarm, &ring_path)).and_then(|(end, handles)| {
                self.files.watch(account, &handles, needs)?;
                Ok(NewRing { end, handles, held })
            });
        made.map_err(|error| {
            self.ringers.freed(account, held.bytes);
            self.give_back_held(account, all);
            error.into()
        })
    }
}
