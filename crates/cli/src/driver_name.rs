//! `--driver`: the names of the table of drivers.

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use punctual_host::config::Driver;

/// The help text of a driver; `None`: it cannot be chosen here.
type Describe = fn(Driver) -> Option<PossibleValue>;

/// Takes the name of a driver that is to be chosen.
pub fn parser(describe: Describe) -> impl TypedValueParser<Value = Driver> {
    let values: Vec<PossibleValue> = Driver::by_name().into_iter().filter_map(describe).collect();
    PossibleValuesParser::new(values)
        .try_map(|name| Driver::named(&name).ok_or_else(|| format!("there is no driver \"{name}\"")))
}

/// All of them, with what measuring them takes.
pub fn any(driver: Driver) -> Option<PossibleValue> {
    let value = PossibleValue::new(driver.name());
    Some(match driver.wires_need() {
        Some(need) => value.help(need),
        None => value,
    })
}

/// The drivers that can join hosts, with their descriptions.
pub fn joining_hosts(driver: Driver) -> Option<PossibleValue> {
    let medium = driver.medium();
    let sentence = medium.chars().take(1).flat_map(char::to_uppercase).chain(medium.chars().skip(1));
    driver.has_wire().then(|| PossibleValue::new(driver.name()).help(sentence.collect::<String>()))
}
