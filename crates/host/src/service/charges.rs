//! The time that the processor and this thread spend on a user is charged to that user's share
//! (docs/adr/0032, 0039).

use punctual_analysis::{Instant, Nanos};
use punctual_ipc::ring::now as clock;
use punctual_proto::api::UserId;
use punctual_proto::node::Node;
use punctual_trial::{Defence, holds};

use super::{ClientId, Host, HostGone, Service};

/// The time of the serving thread is charged with this divisor: that thread is not the processor, so a user
/// may have ten times its share of it (docs/adr/0039).
const SERVICE_CHARGE_DIVISOR: u64 = 10;

/// The processor's overhead per request: wake-up, queue check, reply.
pub(super) const CALL_COST: Nanos = Nanos::from_micros(5);

impl<H: Host> Service<H> {
    /// How long `client` is not to be served, since its user's requests have taken their share; `None`: it is now.
    pub fn wait_of(&self, client: ClientId) -> Option<Nanos> {
        self.shares.wait(self.account_of(client)?, clock())
    }

    /// Runs `request` on the processor and notes what that took.
    pub(super) fn on_node<R, F>(&self, request: F) -> Result<R, HostGone>
    where
        R: Send + 'static,
        F: FnOnce(&mut Node<H::Memory>, Instant) -> R + Send + 'static,
    {
        let (answer, took) = self.host.call(move |node, now| {
            let begun = clock();
            let answer = request(node, now);
            (answer, clock().since(begun))
        })?;
        self.spent.set(self.spent.get() + took + CALL_COST);
        Ok(answer)
    }

    /// Charges `account` for the time that the processor and this thread have spent since the last charge.
    pub(super) fn charge(&mut self, account: UserId) {
        let took = self.take_spent();
        self.shares.charge(account, took, clock());
    }

    /// Charges `account` for a connection that has begun, was refused, or has ended. The time counts against
    /// the share of connections as well, which is smaller.
    pub fn charge_connection(&mut self, account: UserId) {
        let (took, now) = (self.take_spent(), clock());
        self.shares.charge(account, took, now);
        self.connections.charge(account, took, now);
    }

    /// The time since the last charge that counts in a share.
    pub(super) fn take_spent(&mut self) -> Nanos {
        let served = self.take_served() / SERVICE_CHARGE_DIVISOR;
        let served = if holds(Defence::ServiceCharge) { served } else { Nanos::ZERO };
        self.spent.take() + served
    }

    /// Discards the time used since the last charge: no user is charged for it.
    pub fn discard_time(&mut self) {
        self.spent.take();
        self.take_served();
    }

    /// CPU time of this thread since the last check.
    pub(super) fn take_served(&mut self) -> Nanos {
        let now = cpu_time();
        let before = std::mem::replace(&mut self.served, now);
        Nanos(now.0.saturating_sub(before.0))
    }
}

/// CPU time that this thread has had.
pub(super) fn cpu_time() -> Nanos {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    let (seconds, nanos) =
        (u64::try_from(time.tv_sec).unwrap_or(0), u64::try_from(time.tv_nsec).unwrap_or(0));
    Nanos(seconds * 1_000_000_000 + nanos)
}
