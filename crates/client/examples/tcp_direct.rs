//! A TCP server whose handler runs on the engine's own thread: `tcp_direct HOST.toml ADDRESS:PORT` answers what comes in capital
//! letters, in the low-delay class. No thread is woken between the wire and the answer. The host's configuration has an `xdp`
//! link with `flows_max` and `listeners_max` above 0.

use std::path::Path;

use punctual::tcp::{Qos, TcpError, TcpHandler, TcpStream};
use punctual::{Endsystem, Nanos, config};

/// Longest time of the handler for the data of a segment. Admission counts it.
const HANDLER_TIME: Nanos = Nanos::from_micros(10);

/// Answers on the processor until the peer closes, and calls `end` then.
pub fn shout(stream: TcpStream, mut end: impl FnMut() + Send + 'static) -> Result<TcpHandler, TcpError> {
    stream.on_bytes(move |bytes, reply| {
        if bytes.is_empty() {
            return end();
        }
        // On the stack: a handler does not allocate.
        let mut loud = [0; 4_096];
        for (from, to) in bytes.iter().zip(&mut loud) {
            *to = from.to_ascii_uppercase();
        }
        // A peer that reads nothing finds no room, and loses its answers.
        let _ = reply.write(&loud[..bytes.len().min(loud.len())]);
    })
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [file, local] = &arguments[..] else { return Err("usage: tcp_direct HOST.toml ADDRESS:PORT".into()) };
    let endsystem = Endsystem::embedded(&config::load(Path::new(file))?)?;
    let qos = Qos::LowDelay { interval: Nanos::from_millis(10), units: 8, priority: None };
    let listener = endsystem.bind_tcp_direct(local.parse()?, qos, 8, HANDLER_TIME)?;
    loop {
        let stream = listener.accept()?;
        let (sender, ended) = std::sync::mpsc::channel();
        let handler = shout(stream, move || sender.send(()).unwrap_or_default())?;
        // This thread only keeps the handler, and closes the connection.
        std::thread::spawn(move || (ended.recv(), drop(handler)));
    }
}
