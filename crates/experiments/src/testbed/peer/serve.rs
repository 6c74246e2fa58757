//! The far side: `punctual bench --serve`.

use std::io::ErrorKind;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::thread::ScopedJoinHandle;
use std::time::Duration;

use anyhow::Context;
use punctual_os::interrupt;

use super::words::{Hello, Lines, end_at};
use crate::testbed::{Answer, Order, Place, Roles};

/// How long a server may take to notice Ctrl-C, and a client to send its version.
const STOP_CHECK_INTERVAL: Duration = Duration::from_millis(100);
const HELLO_WITHIN: Duration = Duration::from_secs(5);

/// Most clients at a time: an experiment has one for each of its worlds.
const SESSIONS_MAX: usize = 16;

/// Serves clients until the program is interrupted; calls `report` with the address once it listens.
///
/// # Errors
/// If the address is taken.
pub fn serve(listen: SocketAddr, report: impl FnOnce(SocketAddr)) -> anyhow::Result<()> {
    interrupt::install()?;
    let listener = TcpListener::bind(listen).with_context(|| format!("cannot listen on {listen}"))?;
    report(listener.local_addr()?);
    sessions(&listener, || interrupt::check().is_err())
}

/// Serves every connection, each on a thread of its own, until `is_over`; then hangs up on all of them.
///
/// # Errors
/// If the listener breaks.
pub fn sessions(listener: &TcpListener, is_over: impl Fn() -> bool) -> anyhow::Result<()> {
    listener.set_nonblocking(true)?;
    std::thread::scope(|scope| {
        let mut open: Vec<(TcpStream, ScopedJoinHandle<'_, ()>)> = Vec::new();
        let ended = loop {
            open.retain(|(_, thread)| !thread.is_finished());
            if is_over() {
                break Ok(());
            }
            match listener.accept() {
                Ok((stream, from)) => {
                    let Some(ours) = stream.try_clone().ok().filter(|_| open.len() < SESSIONS_MAX) else {
                        eprintln!("{from}: refused, {} are served", open.len());
                        continue;
                    };
                    let execute = move || {
                        if let Err(error) = session(stream, Place::default()) {
                            eprintln!("{from}: {error:#}");
                        }
                    };
                    open.push((ours, scope.spawn(execute)));
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    std::thread::sleep(STOP_CHECK_INTERVAL)
                }
                Err(error) => break Err(error.into()),
            }
        };
        for (stream, _) in &open {
            // A client that has just disconnected needs no shutdown.
            let _ = stream.shutdown(Shutdown::Both);
        }
        ended
    })
}

/// Serves one client, from its version to the end of its connection; its roles run on `place`.
///
/// # Errors
/// If it has another version or sends invalid lines.
pub fn session(stream: TcpStream, place: Place) -> anyhow::Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(HELLO_WITHIN))?;
    let end = end_at(stream.local_addr()?.ip())?;
    let mut lines = Lines::new(stream)?;
    let ours = Hello::ours(end);
    let theirs: Hello = lines.receive_words()?.context("it hung up at once")?;
    // Send this before the check, so that the other side can report the difference too.
    lines.send_words(&ours)?;
    ours.check(&theirs)?;
    lines.stream().set_read_timeout(None)?;
    let mut roles = Roles::new(place);
    while let Some(order) = lines.receive_words::<Order>()? {
        let answer =
            roles.execute(order).unwrap_or_else(|error| Answer::Failed { why: format!("{error:#}") });
        lines.send_words(&answer)?;
    }
    Ok(())
}
