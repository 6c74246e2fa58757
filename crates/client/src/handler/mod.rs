//! Handlers of messages: in an embedded endsystem they are called on the engine's own thread, otherwise on a
//! thread of their own.
//!
//! A handler is in one of three places: *direct*, within the engine's end of the ring; *parked*, after the
//! engine has stopped calling it (it was demoted, or its channel has ended); *own thread*, after that thread
//! has taken it. It moves only in this order. The thread sleeps at the ring, which stays empty while the
//! handler is direct. The engine never drops a handler: the thread drops all that it owns (channels, and with
//! them perhaps the last reference to the engine itself).

mod direct;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use punctual_ipc::api::Request;
use punctual_ipc::ring::InboxReader;
use punctual_proto::ids::ChannelId;
use punctual_proto::memory::MessageInfo;
use punctual_proto::{Instant, Nanos};

use crate::channel::Channel;
use crate::connection::{SharedConnection, lock};
use crate::error::{Error, SendError};
use crate::processor::ring_outbox;
use crate::receiver::{End, Receiver};
use crate::state::ChannelState;

type Boxed = Box<dyn FnMut(&[u8], &MessageInfo, &mut Reply<'_>) + Send>;

/// How a handler answers.
pub struct Reply<'a> {
    /// The endsystem on whose engine's thread this is, and since when; `None` on a thread of its own.
    engine_of: Option<(&'a Arc<SharedConnection>, Instant)>,
}

impl Reply<'_> {
    /// Queues a message if there is room, as [`Channel::try_send`]. From the engine's own thread a channel of the same
    /// endsystem is served as soon as the handler returns, without a wake-up.
    ///
    /// # Errors
    /// See [`Channel::try_send`].
    pub fn send(&mut self, channel: &mut Channel, message: &[u8]) -> Result<(), SendError> {
        match self.engine_of {
            Some((shared, begun)) if channel.is_of(shared) => {
                // The deadline counts from the handler's begin: it is earlier than necessary, and saves one
                // clock reading.
                if channel.send_beside(message, begun)? {
                    ring_outbox(channel.id());
                }
                Ok(())
            }
            _ => channel.try_send(message),
        }
    }
}

/// State that the places of a handler share.
struct Stage {
    parked: Mutex<Option<Boxed>>,
    direct: AtomicBool,
    panicked: AtomicBool,
    calls: AtomicU64,
    overruns: AtomicU64,
}

/// A handler at work, and the channel's receiving end that it serves. Dropping it closes the channel.
pub struct Handler {
    end: End,
    stage: Arc<Stage>,
}

impl Receiver {
    /// Calls `handler` for each message from now on, beginning with those that wait already.
    ///
    /// In an embedded endsystem the handler runs on the engine's own thread right at the delivery: no thread
    /// is woken and no byte is copied, and what it sends with [`Reply::send`] leaves without another thread.
    /// In return it must neither wait nor allocate, and must keep to the time that its listener declared
    /// ([`Endsystem::listen_direct`](crate::Endsystem::listen_direct)): the bounds of all channels at this
    /// host depend on that. Each overrun is counted. A handler that overruns repeatedly is demoted: from then
    /// on it runs on a thread of its own, as it does from the start if the engine is in another process.
    ///
    /// # Errors
    /// [`Error::HandlerTime`] in an embedded endsystem whose listener declared none; else if the system
    /// refuses a thread or the engine is gone.
    pub fn on_message(
        self,
        handler: impl FnMut(&[u8], &MessageInfo, &mut Reply<'_>) + Send + 'static,
    ) -> Result<Handler, Error> {
        let (end, ring, time) = self.into_parts();
        Handler::start(end, ring, time, Box::new(handler))
    }
}

impl Handler {
    fn start(end: End, ring: InboxReader, handler_time: Nanos, handler: Boxed) -> Result<Self, Error> {
        let embedded = end.connection.embedded.as_ref();
        if embedded.is_some() && handler_time == Nanos::ZERO {
            return Err(Error::HandlerTime);
        }
        let stage = Arc::new(Stage {
            parked: Mutex::default(),
            direct: AtomicBool::new(embedded.is_some()),
            panicked: AtomicBool::new(false),
            calls: AtomicU64::new(0),
            overruns: AtomicU64::new(0),
        });
        let ring = match embedded {
            None => {
                *lock(&stage.parked) = Some(handler);
                ring
            }
            Some(engine) => direct::hand_over(engine, &end, ring, handler, handler_time, &stage)?,
        };
        let (theirs, shared, id) = (Arc::clone(&stage), Arc::clone(&end.connection.shared), end.id);
        std::thread::Builder::new()
            .name("punctual-handler".into())
            .spawn(move || theirs.run(ring, &shared, id))?;
        Ok(Self { end, stage })
    }

    /// The channel's handle at this host.
    pub fn id(&self) -> ChannelId {
        self.end.id
    }

    /// Whether it runs on the engine's own thread.
    pub fn is_direct(&self) -> bool {
        self.stage.direct.load(Ordering::Acquire)
    }

    /// Messages that it was called for.
    pub fn calls(&self) -> u64 {
        self.stage.calls.load(Ordering::Relaxed)
    }

    /// Times at which it took longer on the engine's thread than was declared.
    pub fn overruns(&self) -> u64 {
        self.stage.overruns.load(Ordering::Relaxed)
    }

    /// Returns the promised bound, the observed latencies and the misses (rtcGetParameter). Sends a request
    /// as rarely as [`Channel::state`].
    ///
    /// # Errors
    /// If the channel has ended or the daemon is gone.
    pub fn state(&self) -> Result<ChannelState, Error> {
        self.end.state()
    }

    /// Ends the channel and waits for the daemon's confirmation.
    ///
    /// # Errors
    /// If the daemon is gone.
    pub fn close(self) -> Result<(), Error> {
        self.end.connection.shared.call(Request::Close { channel: self.end.id }).map(|_| ())
    }
}

impl Stage {
    /// The thread: sleeps until a message comes past the engine, then runs the handler for each; ends with the ring.
    fn run(&self, mut ring: InboxReader, shared: &SharedConnection, id: ChannelId) {
        let mut handler: Option<Boxed> = None;
        while let Ok(true) = ring.wait(None) {
            if handler.is_none() {
                handler = lock(&self.parked).take();
            }
            let Some(run) = handler.as_mut().filter(|_| !self.panicked.load(Ordering::Acquire)) else {
                break;
            };
            let mut reply = Reply { engine_of: None };
            self.calls.fetch_add(1, Ordering::Relaxed);
            let done = catch_unwind(AssertUnwindSafe(|| {
                ring.take(|message, info| run(message, info, &mut reply));
            }));
            if done.is_err() {
                self.panicked.store(true, Ordering::Release);
            }
        }
        if self.panicked.load(Ordering::Acquire) {
            shared.send_unanswered(Request::Close { channel: id });
        }
        drop(handler);
        // The engine parks the handler when the channel is gone there; until then the ring is not closed.
        drop(lock(&self.parked).take());
    }
}
