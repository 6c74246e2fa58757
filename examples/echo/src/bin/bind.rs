//! Gives an object a name in a naming service.

use std::error::Error;

use punctual_orb::naming::cos_naming::NamingContextExtClient;
use punctual_orb::{Options, Orb};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [service, name, reference] = &arguments[..] else {
        return Err("usage: bind NAMING-SERVICE NAME REFERENCE".into());
    };
    let orb = Orb::new(Options::default())?;
    let names: NamingContextExtClient = orb.resolve(service)?;
    names.rebind(&names.to_name(name)?, &orb.reference(reference)?)?;
    Ok(())
}
