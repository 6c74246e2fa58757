//! A TCP server for tokio, through this host's daemon: `tcp_tokio ADDRESS:PORT` sends back what comes, in the low-delay class, one
//! task a connection. Build it with `--features tokio`.

use punctual::tcp::Qos;
use punctual::tcp::tokio::{AsyncTcpListener, AsyncTcpStream};
use punctual::{Endsystem, Nanos};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// Sends back what comes, until the peer closes.
async fn echo(mut stream: AsyncTcpStream) -> std::io::Result<()> {
    let mut buffer = vec![0; 4_096];
    loop {
        let count = stream.read(&mut buffer).await?;
        if count == 0 {
            return stream.shutdown().await;
        }
        stream.write_all(&buffer[..count]).await?;
    }
}

/// Accepts for ever.
pub async fn serve(mut listener: AsyncTcpListener) {
    loop {
        match listener.accept().await {
            Ok(stream) => drop(tokio::spawn(echo(stream))),
            Err(error) => return eprintln!("{error}"),
        }
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let local = std::env::args().nth(1).ok_or("usage: tcp_tokio ADDRESS:PORT")?;
    let endsystem = Endsystem::connect()?;
    let qos = Qos::LowDelay { interval: Nanos::from_millis(10), units: 8, priority: None };
    let listener = endsystem.bind_tcp(local.parse()?, qos, 8)?.into_async()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    runtime.block_on(serve(listener));
    Ok(())
}
