//! What beats upon the receiver.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;

use punctual::{Channel, Nanos};
use punctual_link::{Link, Port};
use punctual_os::clock::duration;
use serde::Serialize;

use crate::loads::Class;
use crate::testbed::Place;

pub(super) const FLOOD_BYTES: u32 = 1;
const PATIENCE: Nanos = Nanos::from_millis(50);

/// Which flood.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Flood {
    None,
    /// A best-effort flow of the neighbour's.
    BestEffort,
    /// A stranger's packets that bear the neighbour's address, from a machine of its own.
    Stray,
}

pub(super) const FLOODS: [Flood; 3] = [Flood::None, Flood::BestEffort, Flood::Stray];

/// A running flood.
pub(super) struct Flooding {
    stop: Arc<AtomicBool>,
    sent: Arc<AtomicU64>,
    thread: JoinHandle<anyhow::Result<()>>,
}

impl Flooding {
    fn start(
        place: &Place,
        work: impl FnOnce(&AtomicBool, &AtomicU64) -> anyhow::Result<()> + Send + 'static,
    ) -> anyhow::Result<Self> {
        let (stop, sent) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (stopped, counted) = (Arc::clone(&stop), Arc::clone(&sent));
        let thread = place.spawn("flood", Class::Ordinary, move || work(&stopped, &counted))?;
        Ok(Self { stop, sent, thread })
    }

    /// A best-effort flow of the neighbour's.
    pub(super) fn best_effort(
        mut channel: Channel,
        sink: punctual::Receiver,
        place: &Place,
    ) -> anyhow::Result<Self> {
        channel.set_send_timeout(Some(duration(PATIENCE)));
        Self::start(place, move |stop, sent| {
            let _sink = sink;
            while !stop.load(Ordering::Relaxed) {
                if channel.send(&[0; FLOOD_BYTES as usize]).is_ok() {
                    sent.fetch_add(1, Ordering::Relaxed);
                }
            }
            Ok(())
        })
    }

    /// Smallest datagrams to the data port, by a driver of its own.
    pub(super) fn stray(mut link: Box<dyn Link>, place: &Place) -> anyhow::Result<Self> {
        Self::start(place, move |stop, sent| {
            while !stop.load(Ordering::Relaxed) {
                let mut queued = 0;
                while link.transmit_buffer().is_some() {
                    link.transmit(Port::Data, FLOOD_BYTES as usize, 0)?;
                    queued += 1;
                }
                link.flush()?;
                link.completed();
                sent.fetch_add(queued, Ordering::Relaxed);
            }
            Ok(())
        })
    }

    pub(super) fn stop(self) -> anyhow::Result<u64> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().map_err(|_| anyhow::anyhow!("a flood panicked"))??;
        Ok(self.sent.load(Ordering::Relaxed))
    }
}
