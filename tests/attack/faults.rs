//! Page faults of the processor's thread: where it takes any, a program, or the kernel for want of memory, can make it wait.

use std::time::Duration;

use crate::attacker::{Mechanism, begin};
use crate::measured::Measured;
use crate::world::{SINK, SOURCE, Setup, World};

const FAULTS: &str = "page faults of processors in a second";
/// None is allowed; so many prove nothing yet.
const MOST: f64 = 2.0;

pub const ROWS: &[Measured] = &[
    Measured {
        name: "large-rings",
        without: "own-heap",
        what: FAULTS,
        most: MOST,
        measure: |without| beside("large-rings", without),
    },
    Measured {
        name: "large-rings-killed",
        without: "own-heap",
        what: FAULTS,
        most: MOST,
        measure: |without| beside("large-rings-killed", without),
    },
    Measured {
        name: "files-opened-anew",
        without: "sealed-rings,held-pages",
        what: FAULTS,
        most: MOST,
        measure: |without| beside("files-opened-anew", without),
    },
];

fn beside(name: &str, without: &'static str) -> f64 {
    let mechanism = Mechanism::find(name);
    let mut world = World::start(name, Setup { without, ..mechanism.setup });
    let (memory, before) = (world.memory(), [SOURCE, SINK].map(|host| world.faults_at(host)));
    let mut attacker = begin(&world, mechanism, false);
    world.observe(Duration::from_secs(1), &memory);
    let after = [SOURCE, SINK].map(|host| world.faults_at(host));
    assert!(attacker.is_running(), "{name}: it goes on");
    drop(attacker);
    world.end();
    (after[0] - before[0] + after[1] - before[1]) as f64
}
