//! See [`super`].

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use punctual_host::EmbeddedHost;
use punctual_ipc::ring::{InboxReader, Upcall, now};
use punctual_os::usage::ThreadUsage;
use punctual_proto::Nanos;
use punctual_proto::memory::MessageInfo;

use super::super::{Boxed, Reply, Stage};
use crate::connection::{SharedConnection, lock};
use crate::error::Error;
use crate::overruns::OverrunAllowance;
use crate::receiver::End;

/// Has `handler` called for each message of `end` on the engine's thread from now on. Returns the ring.
pub(in crate::handler) fn hand_over(
    engine: &EmbeddedHost,
    end: &End,
    ring: InboxReader,
    handler: Boxed,
    handler_time: Nanos,
    stage: &Arc<Stage>,
) -> Result<InboxReader, Error> {
    let shared = Arc::clone(&end.connection.shared);
    let stage = Arc::clone(stage);
    let direct =
        Direct { handler: Some(handler), stage, shared, allowance: OverrunAllowance::new(handler_time) };
    Ok(engine.call_up(end.id, ring, direct.into_upcall())?)
}

/// A handler on the engine's thread.
struct Direct {
    handler: Option<Boxed>,
    stage: Arc<Stage>,
    shared: Arc<SharedConnection>,
    allowance: OverrunAllowance,
}

impl Direct {
    fn into_upcall(mut self) -> Upcall {
        Box::new(move |message, info| self.call(message, info))
    }

    /// `false` if it is put down.
    fn call(&mut self, message: &[u8], info: &MessageInfo) -> bool {
        let Some(handler) = &mut self.handler else { return false };
        self.stage.calls.fetch_add(1, Ordering::Relaxed);
        // For a handler that has overrun once, the thread's usage is measured too: the elapsed time alone
        // cannot distinguish an overrun from a stall of the platform.
        let before = self.allowance.is_suspect().then(ThreadUsage::of_this_thread).and_then(Result::ok);
        let begun = now();
        let mut reply = Reply { engine_of: Some((&self.shared, begun)) };
        let run = catch_unwind(AssertUnwindSafe(|| handler(message, info, &mut reply)));
        let took = now().since(begun);
        let took = if self.allowance.is_over(took) { own_part(took, before) } else { took };
        let (late, is_tolerated) = self.allowance.judge(took);
        if run.is_err() {
            self.stage.panicked.store(true, Ordering::Release);
            return false;
        }
        self.stage.overruns.fetch_add(u64::from(late), Ordering::Relaxed);
        is_tolerated
    }
}

/// What of the time that a call took was the handler's own, if that is known.
fn own_part(took: Nanos, before: Option<ThreadUsage>) -> Nanos {
    let own = |before| ThreadUsage::of_this_thread().map_or(took, |after| after.own_since(&before, took));
    before.map_or(took, own)
}

impl Drop for Direct {
    fn drop(&mut self) {
        // Park the handler before anything can come into the ring or the ring is closed, so that the thread
        // finds it there.
        *lock(&self.stage.parked) = self.handler.take();
        self.stage.direct.store(false, Ordering::Release);
    }
}
