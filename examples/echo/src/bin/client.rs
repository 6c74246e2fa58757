//! `client REFERENCE WORDS`: calls the object of the reference.

use std::error::Error;

use punctual_example_echo::example::EchoClient;
use punctual_orb::{Options, Orb};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [reference, words] = &arguments[..] else { return Err("usage: client REFERENCE WORDS".into()) };
    let orb = Orb::new(Options::default())?;
    let echo: EchoClient = orb.resolve(reference)?;
    println!("{}", echo.say(words)?);
    println!("calls: {}", echo.calls()?);
    Ok(())
}
