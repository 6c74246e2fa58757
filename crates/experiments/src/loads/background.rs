//! Work on threads of its own, with a flag to stop it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use anyhow::anyhow;

use super::{Class, Place};

/// Work in the background. Dropping it stops it and waits for its end.
pub struct Background<R> {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<anyhow::Result<R>>>,
}

impl<R: Send + 'static> Background<R> {
    /// Runs `work` on a thread called `name` on `place`, until the flag that it gets is set.
    ///
    /// # Errors
    /// If the thread cannot start; errors of `work` come with its end.
    pub fn start(
        place: &Place,
        name: &str,
        class: Class,
        work: impl FnOnce(&AtomicBool) -> anyhow::Result<R> + Send + 'static,
    ) -> std::io::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = place.spawn(name, class, move || work(&stopped))?;
        Ok(Self { stop, thread: Some(thread) })
    }
}

impl<R> Background<R> {
    /// Stops it and returns its result.
    ///
    /// # Errors
    /// The error of the work.
    pub fn end(mut self) -> anyhow::Result<R> {
        self.stopped()
    }

    fn stopped(&mut self) -> anyhow::Result<R> {
        self.stop.store(true, Ordering::Relaxed);
        let thread = self.thread.take().ok_or_else(|| anyhow!("it has ended before"))?;
        let name = thread.thread().name().unwrap_or_default().to_owned();
        thread.join().map_err(|_| anyhow!("{name} panicked"))?
    }
}

impl<R> Drop for Background<R> {
    fn drop(&mut self) {
        if self.thread.is_some()
            && let Err(error) = self.stopped()
        {
            eprintln!("warning: a load ended early: {error:#}");
        }
    }
}

/// Runs `work` beside `main`, and stops it when `main` is over.
///
/// # Errors
/// The errors of either.
pub fn beside<R>(
    work: impl FnOnce(&AtomicBool) -> anyhow::Result<()> + Send,
    main: impl FnOnce() -> anyhow::Result<R>,
) -> anyhow::Result<R> {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let worker = scope.spawn(|| work(&stop));
        let found = main();
        stop.store(true, Ordering::Relaxed);
        worker.join().unwrap_or_else(|_| Err(anyhow!("a worker panicked")))?;
        found
    })
}
