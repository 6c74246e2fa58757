//! Measures the first units after an idle time: meanwhile the core halted, and other programs' code and data
//! filled its caches.
//!
//! A message goes through all three hosts after each idle time, since one host may have all three roles in
//! one busy period and then fetches shared code and data once. Last it wakes a sleeping thread: a receiver
//! that was idle as well.

use std::hint::black_box;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use punctual_os::now;
use punctual_proto::Nanos;
use rustix::event::{EventfdFlags, eventfd};

use super::{Chain, LOST, Lane, MeasureError, PathSamples, Rings, SMALL_BYTES, Series};

/// Idle time before each message.
const IDLE: Nanos = Nanos::from_millis(4);
/// Bytes that other programs touch meanwhile: several times the size of a core's own caches.
const OTHERS_BYTES: usize = 8 << 20;
const CACHE_LINE_BYTES: usize = 64;
/// Value of the sleeper's eventfd that makes it end.
const END: u64 = 1 << 32;

/// All other programs on the machine.
pub(super) struct Others {
    data: Vec<u8>,
    doorbell: Arc<OwnedFd>,
    sleeper: Option<JoinHandle<()>>,
}

impl Others {
    pub fn new() -> io::Result<Self> {
        let doorbell = Arc::new(eventfd(0, EventfdFlags::CLOEXEC)?);
        let its = Arc::clone(&doorbell);
        let sleeper = std::thread::Builder::new().name("punctual-sleeper".into()).spawn(move || {
            let mut rung = [0; 8];
            while rustix::io::read(&its, &mut rung).is_ok() && u64::from_ne_bytes(rung) < END {}
        })?;
        Ok(Self { data: vec![1; OTHERS_BYTES], doorbell, sleeper: Some(sleeper) })
    }

    /// Fill the caches, and leave the core idle.
    fn run(&mut self) {
        for line in self.data.chunks_mut(CACHE_LINE_BYTES) {
            line[0] = black_box(line[0]).wrapping_add(1);
        }
        std::thread::sleep(Duration::from_nanos(IDLE.0));
    }

    fn wake(&self, count: u64) -> io::Result<()> {
        rustix::io::write(&self.doorbell, &count.to_ne_bytes())?;
        Ok(())
    }
}

impl Drop for Others {
    fn drop(&mut self) {
        // A sleeper that cannot be notified is left alone: it keeps sleeping.
        if self.wake(END).is_ok() {
            let _ = self.sleeper.take().map(JoinHandle::join);
        }
    }
}

/// Sends one message through hosts that were idle, and takes its times.
pub(super) fn one<R: Rings>(
    chain: &mut Chain<R>,
    rings: &R,
    lane: &mut Lane<R>,
    others: &mut Others,
    samples: &mut PathSamples,
) -> Result<(), MeasureError> {
    let os = |what| move |error: io::Error| MeasureError::Os { what, error };
    rings.send(&mut lane.writer, &[0x5a; SMALL_BYTES]).map_err(os("sending into a ring"))?;
    others.run();
    let woken = now();
    chain.source.ring(lane.source);
    let taken = now();
    let steps = chain.send_one().zip(chain.forward_one()).zip(chain.receive_one());
    let received = now();
    others.wake(1).map_err(os("waking a sleeper"))?;
    let rung_at = now();
    let Some(((send, forward), receive)) = steps.filter(|_| rings.receive(&mut lane.reader)) else {
        samples.lose();
        chain.drain(rings, lane, now() + LOST);
        return Ok(());
    };
    let parts = [
        (Series::ColdSend, taken.since(woken).0 + send.all_ns),
        (Series::ColdForward, forward.all_ns),
        (Series::ColdReceive, receive.all_ns),
        (Series::ColdWake, rung_at.since(received).0),
    ];
    samples.push(Series::ColdAll, parts.iter().map(|(_, ns)| ns).sum());
    parts.into_iter().for_each(|(series, ns)| samples.push(series, ns));
    Ok(())
}
