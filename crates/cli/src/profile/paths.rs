//! The paths through real nodes, on rings in memory and on the configured driver.

use anyhow::anyhow;
use punctual::Nanos;
use punctual_engine::profile::{
    BLOCK_UNITS, MeasureError, PathSamples, Plan, Wires, measure as measure_paths,
};
use punctual_host::config::Driver;
use punctual_host::profile_rings::SharedRings;
use punctual_os::realtime;

use super::{Extent, PRIORITY};

/// Real-time throttling takes 5 % of a second from a thread that never sleeps: it is measured in spells that are
/// shorter, with rests between them.
const SPELL: Nanos = Nanos::from_millis(800);
const REST: Nanos = Nanos::from_millis(200);
/// Messages of each shape in a spell.
const SPELL_MESSAGES: usize = 500;
/// Messages after an idle time in a spell: a row of units that is judged as one.
const SPELL_COLD: usize = BLOCK_UNITS;

/// One driver under one load.
#[derive(Clone, Debug)]
pub(crate) struct Measured {
    pub driver: Driver,
    pub loaded: bool,
    pub samples: PathSamples,
}

pub(super) fn measure(extent: Extent, driver: Driver, loaded: bool) -> anyhow::Result<Vec<Measured>> {
    let mut drivers = vec![Driver::BASE];
    drivers.extend((driver != Driver::BASE).then_some(driver));
    drivers.into_iter().map(|driver| of_driver(extent, driver, loaded)).collect()
}

fn of_driver(extent: Extent, driver: Driver, loaded: bool) -> anyhow::Result<Measured> {
    let mut samples = PathSamples::default();
    for _ in 0..extent.messages.div_ceil(SPELL_MESSAGES) {
        samples.extend(&spell(driver)?);
        std::thread::sleep(punctual_os::clock::duration(REST));
    }
    Ok(Measured { driver, loaded, samples })
}

/// The wires of a chain of links of this driver.
fn wires(driver: Driver) -> anyhow::Result<Wires> {
    let over = |error: MeasureError| match driver.substitute() {
        None => anyhow::Error::from(error),
        Some(other) => anyhow::Error::from(error)
            .context(format!("over {driver}; --driver {other} measures {}, which cost more", other.medium())),
    };
    driver.wires().map_err(over)
}

fn spell(driver: Driver) -> anyhow::Result<PathSamples> {
    let measuring = std::thread::spawn(move || -> anyhow::Result<PathSamples> {
        let wires = wires(driver)?;
        realtime::enter_fifo(PRIORITY, None)?;
        Ok(measure_paths(
            &SharedRings,
            wires,
            Plan { messages: SPELL_MESSAGES, cold: SPELL_COLD, within: SPELL },
        )?)
    });
    measuring.join().map_err(|_| anyhow!("measuring the paths failed"))?
}
