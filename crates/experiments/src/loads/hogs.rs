//! Ordinary threads that take all the CPU they get.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::{Background, Class, Place};

/// Running hogs; they end when dropped.
pub struct Hogs {
    _threads: Vec<Background<()>>,
}

impl Hogs {
    /// Starts `count`.
    ///
    /// # Errors
    /// If a thread cannot start.
    pub fn start(count: usize) -> std::io::Result<Self> {
        let hog = |number| {
            let name = format!("hog-{number}");
            Background::start(&Place::default(), &name, Class::Ordinary, burn)
        };
        Ok(Self { _threads: (0..count).map(hog).collect::<Result<_, _>>()? })
    }
}

fn burn(stop: &AtomicBool) -> anyhow::Result<()> {
    let sink = AtomicU64::new(0);
    while !stop.load(Ordering::Relaxed) {
        for round in 0..1_000 {
            sink.fetch_add(round, Ordering::Relaxed);
        }
    }
    Ok(())
}
