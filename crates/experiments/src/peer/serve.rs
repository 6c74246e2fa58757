//! The far side: `punctual bench --serve`.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use anyhow::Context;

use super::words::{Hello, Lines, end_at};
use crate::interrupt;
use crate::session::{Answer, Order, Place, Roles};

/// How long a server stays deaf to Ctrl-C, and a client may take to say hello.
const DEAF: Duration = Duration::from_millis(100);
const HELLO_WITHIN: Duration = Duration::from_secs(5);

/// Obeys one client after the other until the program is interrupted; `told` is called with the address once it
/// listens.
///
/// # Errors
/// Where the address is taken.
pub fn serve(listen: SocketAddr, told: impl FnOnce(SocketAddr)) -> anyhow::Result<()> {
    interrupt::install()?;
    let listener = TcpListener::bind(listen).with_context(|| format!("cannot listen on {listen}"))?;
    listener.set_nonblocking(true)?;
    told(listener.local_addr()?);
    while interrupt::check().is_ok() {
        match listener.accept() {
            Ok((stream, from)) => {
                if let Err(error) = session(stream, Place::default()) {
                    eprintln!("{from}: {error:#}");
                }
            }
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => std::thread::sleep(DEAF),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// One client, from hello to the end of its connection; its roles run on `place`.
///
/// # Errors
/// Where it is of another version or talks nonsense.
pub fn session(stream: TcpStream, place: Place) -> anyhow::Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(HELLO_WITHIN))?;
    let end = end_at(stream.local_addr()?.ip())?;
    let mut lines = Lines::new(stream)?;
    let ours = Hello::ours(end);
    let theirs: Hello = lines.hear()?.context("it hung up at once")?;
    // Said before it is checked, so that the other side can tell its user too.
    lines.say(&ours)?;
    ours.check(&theirs)?;
    lines.stream().set_read_timeout(None)?;
    let mut roles = Roles::new(place);
    while let Some(order) = lines.hear::<Order>()? {
        let answer = roles.obey(order).unwrap_or_else(|error| Answer::Failed { why: format!("{error:#}") });
        lines.say(&answer)?;
    }
    Ok(())
}
