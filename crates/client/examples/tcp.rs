//! A TCP connection with quality of service at this host: `tcp HOST.toml PEER:PORT` sends its standard input to a TCP server
//! and prints what comes back, in the low-delay class. The host's configuration has an `xdp` link with `flows_max` above 0.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::path::Path;

use punctual::tcp::Qos;
use punctual::{Endsystem, Nanos, config};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [file, peer] = &arguments[..] else { return Err("usage: tcp HOST.toml PEER:PORT".into()) };
    let endsystem = Endsystem::embedded(&config::load(Path::new(file))?)?;
    // Eight segments in any 10 ms go before all other classes, in each direction. More are best effort.
    let qos = Qos::LowDelay { interval: Nanos::from_millis(10), units: 8, priority: None };
    let mut stream = endsystem.connect_tcp(peer.parse()?, qos)?;
    let mut wanted = Vec::new();
    std::io::stdin().read_to_end(&mut wanted)?;
    stream.write_all(&wanted)?;
    stream.shutdown(Shutdown::Write)?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    std::io::stdout().write_all(&answer)?;
    Ok(())
}
