//! `punctual naming`: a naming service for CORBA objects.

use clap::Args;
use punctual_orb::{Endpoint, Options, Orb, naming};
use serde::Serialize;

use crate::output::{Outcome, Output, Usage};

/// Run a naming service: CORBA programs bind objects to names in it, and find them.
#[derive(Args)]
#[command(after_help = "Examples:\n  punctual naming --listen 127.0.0.1:2809\n  \
                  nameclt -ORBInitRef NameService=corbaloc::127.0.0.1:2809/NameService list\n  \
                  punctual call corbaloc::127.0.0.1:2809/NameService list 10 --idl CosNaming.idl\n\n\
                  The service keeps the names in memory: they are lost when it stops. Any program that can connect to the address \
                  may change them.")]
pub struct Naming {
    /// Address to listen at, HOST:PORT. Write an IPv6 address in square brackets. Port 0 chooses a free port.
    #[arg(long, default_value = "127.0.0.1:2809")]
    listen: String,
    /// Address to write into references instead of --listen, HOST:PORT: for example that of a gateway.
    #[arg(long)]
    publish: Option<String>,
}

#[derive(Serialize)]
struct Started {
    /// The root context.
    reference: String,
    corbaloc: String,
}

/// `HOST:PORT`.
fn endpoint(text: &str) -> anyhow::Result<Endpoint> {
    let wrong = || Usage(format!("`{text}` is no address: write HOST:PORT"));
    let (host, port) = text.rsplit_once(':').ok_or_else(wrong)?;
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    if host.is_empty() {
        return Err(wrong().into());
    }
    Ok(Endpoint::tcp(host, port.parse().map_err(|_| wrong())?))
}

impl Naming {
    /// Serves until the program is ended.
    ///
    /// # Errors
    /// [`Usage`] if an address is wrong; if it cannot be used.
    pub fn run(self, output: Output) -> anyhow::Result<Outcome> {
        let listen = endpoint(&self.listen)?;
        let published = self.publish.as_deref().map(endpoint).transpose()?;
        let options = Options { published: published.into_iter().collect(), ..Options::listening(listen) };
        let orb = Orb::new(options).map_err(|error| anyhow::anyhow!("{}: {error}", self.listen))?;
        let root = naming::serve(&orb)?;
        let address = orb.published().first().map(ToString::to_string).unwrap_or_default();
        let started = Started {
            reference: orb.stringify(&root)?,
            corbaloc: format!("corbaloc:iiop:1.2@{address}/NameService"),
        };
        output.print(&started, |started| format!("{}\n{}", started.corbaloc, started.reference))?;
        orb.run();
        Ok(Outcome::Done)
    }
}
