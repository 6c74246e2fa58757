//! Initial worlds of the transcripts, and requests in them.

use std::cell::RefCell;
use std::rc::Rc;

use punctual_analysis::{Ppb, Statistical};
use punctual_proto::config::NodeConfig;
use punctual_proto::{BitRate, Contract, Late, Nanos, Rate};

use super::script::Script;
use punctual_rig::{World, line_config};

pub const RATE: BitRate = BitRate(40_000_000);
pub const MS: fn(u64) -> Nanos = Nanos::from_millis;

pub fn contract(bytes: u32, per_second: u64, burst: u32, deadline_ms: u64) -> Contract {
    let rate = Rate::per_second(per_second).expect("a rate");
    Contract::new(bytes, rate, burst, MS(deadline_ms)).expect("valid")
}

pub fn script(hosts: usize, change: impl Fn(usize, &mut NodeConfig)) -> Script {
    let config = |index| {
        let mut config = line_config(index, hosts, RATE);
        change(index, &mut config);
        config
    };
    let mut script = Script::new(World::of((0..hosts).map(config).collect()));
    script.meet();
    script
}

pub fn soft(bytes: u32, late: Late) -> Contract {
    let mean_rate = Rate::every(MS(100)).expect("a rate");
    let miss_ratio = Ppb::new(10_000_000).expect("a ratio");
    let statistical = Some(Statistical { mean_rate, mean_over: MS(400), miss_ratio });
    Contract { statistical, late, ..contract(bytes, 50, 1, 60) }
}

/// Recorded packets.
pub type Kept<T> = Rc<RefCell<Vec<T>>>;
