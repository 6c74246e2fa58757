//! Serves one object, and prints its reference.

use std::error::Error;
use std::sync::atomic::{AtomicU32, Ordering};

use punctual_example_echo::example::{EchoServant, EchoSkeleton, Silence, echo};
use punctual_orb::{Cow, Endpoint, Options, Orb, SystemException};

#[derive(Debug, Default)]
struct Echo {
    calls: AtomicU32,
}

impl EchoServant for Echo {
    fn calls(&self) -> Result<u32, SystemException> {
        Ok(self.calls.load(Ordering::Relaxed))
    }

    fn say<'a>(&'a self, words: &'a str) -> Result<Cow<'a, str>, echo::SayError> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        match words {
            "" => Err(Silence { why: "no words".into() }.into()),
            _ => Ok(words.into()),
        }
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let orb = Orb::new(Options::listening(Endpoint::tcp("127.0.0.1", 0)))?;
    let reference = orb.root_poa().serve(EchoSkeleton::new(Echo::default()))?;
    orb.root_poa().manager().activate()?;
    println!("{}", orb.stringify(&reference)?);
    orb.run();
    Ok(())
}
