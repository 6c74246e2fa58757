//! What beats upon the receiver.

use std::sync::atomic::{AtomicBool, Ordering};

use punctual::{Channel, Nanos};
use punctual_link::{Link, Port};
use punctual_os::clock::duration;
use serde::Serialize;

use crate::loads::{Background, Class, Place};

pub(super) const FLOOD_BYTES: u32 = 1;
const PATIENCE: Nanos = Nanos::from_millis(50);

/// Which flood.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Flood {
    None,
    /// A best-effort flow of the neighbour's.
    BestEffort,
    /// Packets of a third host that bear the neighbour's address, from a machine of its own.
    Stray,
}

pub(super) const FLOODS: [Flood; 3] = [Flood::None, Flood::BestEffort, Flood::Stray];

/// A running flood: at its end it returns how many packets it has sent.
pub(super) type Flooding = Background<u64>;

fn start(
    place: &Place,
    work: impl FnOnce(&AtomicBool) -> anyhow::Result<u64> + Send + 'static,
) -> anyhow::Result<Flooding> {
    Ok(Flooding::start(place, "flood", Class::Ordinary, work)?)
}

/// A best-effort flow of the neighbour's.
pub(super) fn best_effort(
    mut channel: Channel,
    sink: punctual::Receiver,
    place: &Place,
) -> anyhow::Result<Flooding> {
    channel.set_send_timeout(Some(duration(PATIENCE)));
    start(place, move |stop| {
        let (_sink, mut sent) = (sink, 0);
        while !stop.load(Ordering::Relaxed) {
            sent += u64::from(channel.send(&[0; FLOOD_BYTES as usize]).is_ok());
        }
        Ok(sent)
    })
}

/// Smallest datagrams to the data port, by a separate driver.
pub(super) fn stray(mut link: Box<dyn Link>, place: &Place) -> anyhow::Result<Flooding> {
    start(place, move |stop| {
        let mut sent = 0;
        while !stop.load(Ordering::Relaxed) {
            while link.transmit_buffer().is_some() {
                link.transmit(Port::Data, FLOOD_BYTES as usize, 0)?;
                sent += 1;
            }
            link.flush()?;
            link.completed();
        }
        Ok(sent)
    })
}
