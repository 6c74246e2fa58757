//! A servant of `demo.idl`.

use std::sync::Mutex;
use std::sync::atomic::{AtomicI32, Ordering};

use punctual_giop as giop;
use punctual_giop::{Completion, SystemExceptionKind as Kind};
use punctual_orb::{Cow, Orb, SystemException};

use crate::demo::demo::{
    Callback, CounterServant, EchoServant, Octets, Point, Points, Refused, Shape, Ten, Tens, echo,
};

type Result<T, E = SystemException> = std::result::Result<T, E>;

/// Gives back what it gets.
pub struct Echo {
    /// For calls of others.
    pub orb: Orb,
    count: AtomicI32,
    noted: AtomicI32,
    label: Mutex<String>,
}

impl Echo {
    pub fn new(orb: &Orb) -> Self {
        Self {
            orb: orb.clone(),
            count: AtomicI32::new(0),
            noted: AtomicI32::new(0),
            label: Mutex::new("rust".into()),
        }
    }
}

impl CounterServant for Echo {
    fn count(&self) -> Result<i32> {
        Ok(self.count.fetch_add(1, Ordering::SeqCst) + 1)
    }

    fn label(&self) -> Result<Cow<'_, str>> {
        Ok(self.label.lock().expect("no panic").clone().into())
    }

    fn set_label(&self, value: &str) -> Result<()> {
        *self.label.lock().expect("no panic") = value.into();
        Ok(())
    }
}

impl EchoServant for Echo {
    fn echo_octet(&self, value: u8) -> Result<u8> {
        Ok(value)
    }

    fn echo_string<'a>(&'a self, value: &'a str) -> Result<Cow<'a, str>> {
        Ok(value.into())
    }

    fn echo_wstring(&self, value: &giop::WString) -> Result<giop::WString> {
        Ok(value.clone())
    }

    fn echo_octets<'a>(&'a self, value: &'a [u8]) -> Result<Cow<'a, [u8]>> {
        Ok(value.into())
    }

    fn echo_longs<'a>(&'a self, value: &'a [i32]) -> Result<Cow<'a, [i32]>> {
        Ok(value.into())
    }

    fn echo_points(&self, value: &[Point]) -> Result<Points> {
        Ok(value.to_vec())
    }

    fn echo_ten(&self, value: &Ten) -> Result<Ten> {
        Ok(*value)
    }

    fn echo_tens(&self, value: &[Ten]) -> Result<Tens> {
        Ok(value.to_vec())
    }

    fn echo_shape(&self, value: &Shape) -> Result<Shape> {
        Ok(value.clone())
    }

    fn echo_any(&self, value: &giop::Any) -> Result<giop::Any> {
        Ok(value.clone())
    }

    fn echo_object(&self, value: &giop::Reference) -> Result<giop::Reference> {
        Ok(value.clone())
    }

    fn length_of(&self, value: &[u8]) -> Result<u32> {
        Ok(value.len() as u32)
    }

    fn divide(&self, dividend: i32, divisor: i32) -> Result<(i32, i32), echo::DivideError> {
        if divisor == 0 {
            return Err(Refused { why: "division by zero".into(), code: dividend }.into());
        }
        if dividend == 0 {
            return Err(echo::Empty {}.into());
        }
        Ok((dividend / divisor, dividend % divisor))
    }

    fn turn<'a>(&'a self, value: &'a Point, text: &'a str) -> Result<(Point, Cow<'a, str>)> {
        let turned = Point { x: value.y as i32, y: value.x.into() };
        Ok((turned, text.chars().rev().collect::<String>().into()))
    }

    fn note(&self, number: i32) -> Result<()> {
        self.noted.store(number, Ordering::SeqCst);
        Ok(())
    }

    fn noted(&self) -> Result<i32> {
        Ok(self.noted.load(Ordering::SeqCst))
    }

    fn call_back(&self, whom: &Callback, number: i32) -> Result<()> {
        whom.connect(&self.orb)?.called(number)
    }

    fn fail(&self, kind: i32) -> Result<()> {
        let (kind, minor, completed) = match kind {
            1 => (Kind::NoPermission, 7, Completion::Yes),
            2 => panic!("a servant that panics"),
            _ => (Kind::Transient, 9, Completion::No),
        };
        Err(SystemException { kind, minor, completed })
    }
}

/// The octets that the tests send.
pub fn octets() -> Octets {
    (0..300_000u32).map(|number| (number * 7) as u8).collect()
}

/// A structure with ten members.
pub fn ten(a: i32) -> Ten {
    Ten { a, b: -2, c: -3, d: 4, e: 5, f: true, g: 7.5, h: 8.25, i: -9_000_000_000, j: 10 }
}
