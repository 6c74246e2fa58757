//! Which Rust type has which description.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

use super::{Member, Named, TypeCode, kind};
use crate::{Bounded, Reference};

/// Types that are being described: one that is in itself refers to its own description.
#[derive(Debug, Default)]
pub struct Describing {
    ids: Vec<&'static str>,
}

impl Describing {
    /// The description that `describe` gives of the type `id`, or a reference if it is being described.
    pub fn once(
        &mut self,
        id: &'static str,
        name: &str,
        describe: impl FnOnce(&mut Self, Named) -> TypeCode,
    ) -> TypeCode {
        if self.ids.contains(&id) {
            return TypeCode::Recursive(id.into());
        }
        self.ids.push(id);
        let code = describe(self, Named { id: id.into(), name: name.into() });
        self.ids.pop();
        code
    }
}

/// A member of a description.
pub fn member(name: &str, type_: TypeCode) -> Member {
    Member { name: name.into(), type_ }
}

/// A value whose type has a description.
pub trait Typed {
    /// The description, within those that are being described.
    fn describe(within: &mut Describing) -> TypeCode;

    /// The description.
    fn type_code() -> TypeCode {
        Self::describe(&mut Describing::default())
    }
}

macro_rules! typed {
    ($($type:ty => $kind:ident),*) => { $(
        impl Typed for $type {
            fn describe(_: &mut Describing) -> TypeCode {
                TypeCode::Simple(kind::$kind)
            }
        }
    )* };
}

typed!(
    i16 => SHORT, u16 => USHORT, i32 => LONG, u32 => ULONG, i64 => LONGLONG, u64 => ULONGLONG, f32 => FLOAT,
    f64 => DOUBLE, crate::value::LongDouble => LONGDOUBLE, bool => BOOLEAN, char => CHAR, crate::WChar => WCHAR,
    u8 => OCTET, i8 => OCTET, TypeCode => TYPE_CODE
);

impl Typed for String {
    fn describe(_: &mut Describing) -> TypeCode {
        TypeCode::String(0, false)
    }
}

impl Typed for crate::WString {
    fn describe(_: &mut Describing) -> TypeCode {
        TypeCode::String(0, true)
    }
}

impl<const DIGITS: u16, const SCALE: i16> Typed for crate::Fixed<DIGITS, SCALE> {
    fn describe(_: &mut Describing) -> TypeCode {
        TypeCode::Fixed(DIGITS, SCALE)
    }
}

impl<T: Typed> Typed for Vec<T> {
    fn describe(within: &mut Describing) -> TypeCode {
        TypeCode::Sequence(Box::new(T::describe(within)), 0)
    }
}

impl<T: Typed, const N: u32> Typed for Bounded<Vec<T>, N> {
    fn describe(within: &mut Describing) -> TypeCode {
        TypeCode::Sequence(Box::new(T::describe(within)), N)
    }
}

impl<const N: u32> Typed for Bounded<String, N> {
    fn describe(_: &mut Describing) -> TypeCode {
        TypeCode::String(N, false)
    }
}

impl<const N: u32> Typed for Bounded<crate::WString, N> {
    fn describe(_: &mut Describing) -> TypeCode {
        TypeCode::String(N, true)
    }
}

impl Typed for Reference {
    fn describe(_: &mut Describing) -> TypeCode {
        TypeCode::Reference(
            kind::OBJREF,
            Named { id: "IDL:omg.org/CORBA/Object:1.0".into(), name: "Object".into() },
        )
    }
}

impl<T: Typed, const N: usize> Typed for [T; N] {
    fn describe(within: &mut Describing) -> TypeCode {
        TypeCode::Array(Box::new(T::describe(within)), N as u32)
    }
}
