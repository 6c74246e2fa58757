//! Harm that the witness does not show, by its measure: what an attacker gets of a daemon that lacks a defence, and of one
//! that has all of them, which is the control.

use crate::attacker::NOBODY;
use crate::common::raw::Raw;
use crate::common::users::as_user;
use crate::world::{Setup, World};

/// By which what is measured exceeds the control's.
const CLEAR: f64 = 5.0;

/// An attack whose harm is a number.
pub struct Measured {
    pub name: &'static str,
    pub without: &'static str,
    /// What is measured.
    pub what: &'static str,
    /// As much is no harm.
    pub most: f64,
    /// At daemons that lack what is named.
    pub measure: fn(&'static str) -> f64,
}

impl Measured {
    /// What harm was done, if any, that is none where the defence is there.
    pub fn trial(&self) -> Option<String> {
        let [control, attack] = ["", self.without].map(self.measure);
        let harm = format!("{attack:.1} {} ({control:.1})", self.what);
        eprintln!("{}: {harm}", self.name);
        (control <= self.most && attack > self.most && attack >= CLEAR * control).then_some(harm)
    }
}

/// Source, relay and sink without what is named, with more keys of `[daemon]`.
pub fn world(name: &str, without: &'static str, daemon: &'static str) -> World {
    World::start(name, Setup { without, daemon, ..Setup::DEFAULT })
}

/// The hostile program's connection to one of the hosts.
pub fn intruder(world: &World, host: usize) -> Raw {
    let path = world.daemons[host].socket.clone();
    as_user(NOBODY, || Raw::greeted(&path)).expect("it is root's test")
}

pub fn yes(so: bool) -> f64 {
    f64::from(u8::from(so))
}
