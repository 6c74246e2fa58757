//! `punctual naming`: a naming service for CORBA objects.

use std::net::Ipv6Addr;
use std::num::NonZeroUsize;
use std::path::absolute;

use clap::Args;
use punctual_giop::Version;
use punctual_giop::reference::corbaloc::{Corbaloc, Place};
use punctual_orb::{Concurrency, Endpoint, Options, Orb, Pool, naming};
use punctual_os::interrupt;
use serde::Serialize;

use crate::output::{Outcome, Output, Usage};

/// Run a naming service: CORBA programs bind objects to names in it, and find them.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  punctual naming --listen 127.0.0.1:2809 --listen unix:/run/names.sock\n  \
                  punctual naming --listen 0.0.0.0:2809 --publish gateway.example.org:2809\n  \
                  nameclt -ORBInitRef NameService=corbaloc::127.0.0.1:2809/NameService list\n  \
                  punctual call corbaloc::127.0.0.1:2809/NameService list 10 --idl CosNaming.idl\n  \
                  punctual call corbaloc:omniunix:/run/names.sock:/NameService list 10 --idl CosNaming.idl\n\n\
                  The service keeps the names in memory: they are lost when it stops. It keeps at most \
                  100,000 names and 64 MiB. Any program that can connect to an address \
                  may change them."
)]
pub struct Naming {
    /// Address to listen at, HOST:PORT or unix:PATH; may be repeated. Write an IPv6 address in square brackets. Port 0
    /// chooses a free port.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:2809")]
    listen: Vec<String>,
    /// Address to write into references instead of those of --listen, for example that of a gateway; may be repeated.
    #[arg(long, value_name = "ADDRESS")]
    publish: Vec<String>,
}

#[derive(Serialize)]
struct Started {
    /// The root context.
    reference: String,
    corbaloc: String,
}

/// `HOST:PORT` or `unix:PATH`.
fn endpoint(text: &str) -> Result<Endpoint, Usage> {
    if let Some(path) = text.strip_prefix("unix:") {
        return socket(path);
    }
    let wrong = || Usage(format!("`{text}` is no address: write HOST:PORT or unix:PATH"));
    let bare = text.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(text);
    if bare.parse::<Ipv6Addr>().is_ok() {
        let fix = format!("write the port of an IPv6 address behind square brackets, as [{bare}]:2809");
        return Err(Usage(format!("`{text}` is no address: {fix}")));
    }
    let (host, port) = text.rsplit_once(':').ok_or_else(wrong)?;
    let bracketed = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    if bracketed.is_none() && host.contains(':') {
        let fix = format!("write an IPv6 address in square brackets, as [{host}]:{port}");
        return Err(Usage(format!("`{text}` is no address: {fix}")));
    }
    let host = bracketed.unwrap_or(host);
    if host.is_empty() {
        return Err(wrong());
    }
    Ok(Endpoint::tcp(host, port.parse().map_err(|_| wrong())?))
}

/// References have the whole path of a socket. A `corbaloc` could not have one with `:`.
fn socket(path: &str) -> Result<Endpoint, Usage> {
    let wrong = |why: &str| Usage(format!("`{path}` is no path of a socket: {why}"));
    if path.contains([':', ',']) {
        return Err(wrong("it may not have `:` or `,`"));
    }
    let path = absolute(path).map_err(|error| wrong(&error.to_string()))?;
    Ok(Endpoint::Unix(path))
}

/// The root context of a service at these addresses.
fn corbaloc(published: &[Endpoint]) -> String {
    let place = |endpoint: &Endpoint| match endpoint {
        Endpoint::Tcp(address) => Place::Iiop(Version::V1_2, address.clone()),
        Endpoint::Unix(path) => Place::Unix(path.display().to_string()),
    };
    Corbaloc::Places(published.iter().map(place).collect(), b"NameService".to_vec()).to_string()
}

fn endpoints(texts: &[String]) -> Result<Vec<Endpoint>, Usage> {
    texts.iter().map(|text| endpoint(text)).collect()
}

/// Bytes of a request: names and references are short.
const MESSAGE_BYTES_MAX: usize = 1 << 20;

/// Bytes of requests that are not answered yet.
const HELD_BYTES_MAX: usize = 32 << 20;

/// Threads that serve requests.
const THREADS: NonZeroUsize = NonZeroUsize::new(16).expect("not zero");

impl Naming {
    /// Serves until the program is ended by a signal.
    ///
    /// # Errors
    /// [`Usage`] if an address is wrong; if it cannot be used.
    pub fn run(self, output: Output) -> anyhow::Result<Outcome> {
        let (listen, published) = (endpoints(&self.listen)?, endpoints(&self.publish)?);
        // From the first socket on, a signal removes it.
        interrupt::install()?;
        // Clients that say nothing, or half a message, keep no thread of a pool. Names of other services are asked for by servants.
        let concurrency = Concurrency::Pool(Pool::of(THREADS));
        let options = Options {
            listen,
            published,
            concurrency,
            message_bytes_max: MESSAGE_BYTES_MAX,
            held_bytes_max: HELD_BYTES_MAX,
            ..Options::default()
        };
        let orb =
            Orb::new(options).map_err(|error| anyhow::anyhow!("{}: {error}", self.listen.join(", ")))?;
        let root = naming::serve(&orb)?;
        let started = Started { reference: orb.stringify(&root)?, corbaloc: corbaloc(orb.published()) };
        output.print(&started, |started| format!("{}\n{}", started.corbaloc, started.reference))?;
        interrupt::wait()?;
        // Removes Unix sockets.
        orb.shutdown(false);
        Ok(Outcome::Done)
    }
}
