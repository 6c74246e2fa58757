//! Bulk traffic that is let through a gate: on in one block, off in the next.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use punctual::Nanos;
use punctual_os::clock::{now, sleep_until};
use punctual_os::interrupt;

use super::{Background, Class, Content, MessageSender, Offered, Place};
use crate::measure::Stamp;

/// How often a closed gate is checked, and a full queue tried again.
const LOOK: Nanos = Nanos::from_micros(500);
/// Most messages that a late sender makes up for at once.
const CATCH_UP: u64 = 8;

/// A running sender; it ends when dropped.
pub struct Bulk {
    gate: Arc<Gate>,
    _thread: Background<()>,
}

#[derive(Default)]
struct Gate {
    open: AtomicBool,
    /// Time between two messages; zero: as fast as they are taken.
    interval_ns: AtomicU64,
}

impl Bulk {
    /// Sends messages of `bytes` through `sender` from `place` in `class` while the gate is open; closed at first.
    ///
    /// # Errors
    /// If the thread cannot start.
    pub fn start(
        mut sender: Box<dyn MessageSender>,
        bytes: usize,
        place: &Place,
        class: Class,
    ) -> anyhow::Result<Self> {
        let gate = Arc::new(Gate::default());
        let of_thread = Arc::clone(&gate);
        let work = move |stop: &AtomicBool| send(sender.as_mut(), bytes, &of_thread, stop);
        Ok(Self { gate, _thread: Background::start(place, "bulk", class, work)? })
    }

    /// Opens the gate for a message every `interval` (zero: as fast as they are taken), or closes it.
    pub fn set(&self, interval: Option<Nanos>) {
        self.gate.interval_ns.store(interval.unwrap_or_default().as_u64(), Ordering::Relaxed);
        self.gate.open.store(interval.is_some(), Ordering::Relaxed);
    }
}

fn send(sender: &mut dyn MessageSender, bytes: usize, gate: &Gate, stop: &AtomicBool) -> anyhow::Result<()> {
    let content = Content::of_size(bytes);
    let mut message = Vec::with_capacity(bytes);
    content.fill(0, &mut message);
    let mut sequence = 0;
    let mut due = now();
    while !stop.load(Ordering::Relaxed) && interrupt::check().is_ok() {
        if !gate.open.load(Ordering::Relaxed) {
            due = now() + LOOK;
            sleep_until(due);
            continue;
        }
        let interval = Nanos(gate.interval_ns.load(Ordering::Relaxed));
        sleep_until(due);
        let sent = now();
        due = (due + interval).max(sent - interval * CATCH_UP);
        Stamp { stream: 0, sequence, sent, logical: sent }.write(&mut message);
        if sender.offer(&message)? == Offered::Taken {
            sequence += 1;
        } else {
            due = due.max(now() + LOOK);
        }
    }
    Ok(())
}
