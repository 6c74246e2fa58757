//! What serves omniORB's clients: it gives back what it gets.

use std::sync::Mutex;
use std::sync::atomic::{AtomicI32, Ordering};

use punctual_giop::{self as giop, Completion, Reference, SystemExceptionKind as Kind};
use punctual_orb::{Cow, Orb, SystemException};

use crate::generated::interop::{
    BaseServant, Choice, Colour, Empty, Grid, Labels, Listener, ListenerServant, Maybe, Peer, PeerServant,
    Point, Points, Price, Refused, Ten, Tens, Texts, Tree, peer,
};

type Result<T, E = SystemException> = std::result::Result<T, E>;

/// Gives back what it gets.
pub struct Echo {
    orb: Orb,
    level: AtomicI32,
    told: Mutex<String>,
}

impl Echo {
    pub fn new(orb: &Orb) -> Self {
        Self { orb: orb.clone(), level: AtomicI32::new(0), told: Mutex::new(String::new()) }
    }
}

impl BaseServant for Echo {
    fn echo<'a>(&'a self, text: &'a str) -> Result<Cow<'a, str>> {
        Ok(text.into())
    }
}

macro_rules! echoes {
    ($($name:ident: $given:ty => $back:ty),* $(,)?) => { $(
        fn $name(&self, value: $given) -> Result<$back> {
            Ok(value.to_owned())
        }
    )* };
}

impl PeerServant for Echo {
    echoes! {
        echo_wide: &giop::WString => giop::WString,
        echo_wide_character: giop::WChar => giop::WChar,
        echo_character: char => char,
        echo_colour: Colour => Colour,
        echo_point: &Point => Point,
        echo_points: &[Point] => Points,
        echo_tens: &[Ten] => Tens,
        echo_choice: &Choice => Choice,
        echo_maybe: &Maybe => Maybe,
        echo_tree: &Tree => Tree,
        echo_grid: &Grid => Grid,
        echo_price: &Price => Price,
        echo_texts: &[String] => Texts,
        echo_labels: &Labels => Labels,
        echo_any: &giop::Any => giop::Any,
        echo_type: &giop::TypeCode => giop::TypeCode,
        echo_reference: &Peer => Peer,
        echo_object: &Reference => Reference,
    }

    fn echo_octets<'a>(&'a self, value: &'a [u8]) -> Result<Cow<'a, [u8]>> {
        Ok(value.into())
    }

    fn echo_doubles<'a>(&'a self, value: &'a [f64]) -> Result<Cow<'a, [f64]>> {
        Ok(value.into())
    }

    fn level(&self) -> Result<i32> {
        Ok(self.level.load(Ordering::SeqCst))
    }

    fn set_level(&self, value: i32) -> Result<()> {
        self.level.store(value, Ordering::SeqCst);
        Ok(())
    }

    fn orb(&self) -> Result<Cow<'_, str>> {
        Ok("punctual".into())
    }

    fn all_ways(&self, given: i32, both: i32) -> Result<(i32, i32, i32)> {
        Ok((both, given, given))
    }

    fn refuse(&self, without_members: bool) -> Result<(), peer::RefuseError> {
        if without_members {
            return Err(Empty {}.into());
        }
        Err(Refused { why: "because".into(), code: 7 }.into())
    }

    fn fail(&self) -> Result<()> {
        Err(SystemException { kind: Kind::NoPermission, minor: 3, completed: Completion::Yes })
    }

    fn tell(&self, text: &str) -> Result<()> {
        *self.told.lock().expect("no panic") = text.into();
        Ok(())
    }

    fn told(&self) -> Result<Cow<'_, str>> {
        Ok(self.told.lock().expect("no panic").clone().into())
    }

    fn call_back(&self, to: &Listener, times: i32) -> Result<i32> {
        let listener = to.connect(&self.orb)?;
        (0..times).map(|_| listener.hear("called back")).sum()
    }
}

/// Is called back.
pub struct Ear;

impl ListenerServant for Ear {
    fn hear(&self, text: &str) -> Result<i32> {
        Ok(text.len() as i32)
    }
}
