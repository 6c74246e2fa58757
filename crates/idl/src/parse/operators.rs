//! Operators of constant expressions (IDL 4.2, 7.4.1.4.3).

use crate::limits::FIXED_DIGITS_MAX;
use crate::model::{Constant, Fixed};

/// Integers of intermediate results.
const INTEGERS: std::ops::RangeInclusive<i128> = i64::MIN as i128..=u64::MAX as i128;

fn checked(value: Option<i128>) -> Result<Constant, String> {
    match value.filter(|value| INTEGERS.contains(value)) {
        Some(value) => Ok(Constant::Integer(value)),
        None => Err("the result has more than 64 bits".into()),
    }
}

/// `left OPERATOR right`, both of one kind.
pub(super) fn binary(operator: &str, left: Constant, right: Constant) -> Result<Constant, String> {
    match (left, right) {
        (Constant::Integer(left), Constant::Integer(right)) => integers(operator, left, right),
        (Constant::Float(left), Constant::Float(right)) => floats(operator, left, right),
        (Constant::Fixed(left), Constant::Fixed(right)) => fixeds(operator, left, right).map(Constant::Fixed),
        _ => Err(format!("\"{operator}\" needs two integers, two floating-point or two fixed-point numbers")),
    }
}

fn integers(operator: &str, left: i128, right: i128) -> Result<Constant, String> {
    let shift = || u32::try_from(right).ok().filter(|bits| *bits < 64).ok_or("a shift is by 0 to 63 bits");
    checked(match operator {
        "|" => Some(left | right),
        "^" => Some(left ^ right),
        "&" => Some(left & right),
        "<<" => left.checked_shl(shift()?).filter(|_| left.unsigned_abs() < 1 << 64),
        ">>" => left.checked_shr(shift()?),
        "+" => left.checked_add(right),
        "-" => left.checked_sub(right),
        "*" => left.checked_mul(right),
        _ if right == 0 => return Err("division by zero".into()),
        "/" => left.checked_div(right),
        _ => left.checked_rem(right),
    })
}

fn floats(operator: &str, left: f64, right: f64) -> Result<Constant, String> {
    let value = match operator {
        "+" => left + right,
        "-" => left - right,
        "*" => left * right,
        "/" if right == 0.0 => return Err("division by zero".into()),
        "/" => left / right,
        _ => return Err(format!("\"{operator}\" needs integers")),
    };
    match value.is_finite() {
        true => Ok(Constant::Float(value)),
        false => Err("the result is too large for a floating-point number".into()),
    }
}

const TOO_LONG: &str = "a fixed-point number with more than 31 digits";

fn power(exponent: u32) -> Option<i128> {
    10i128.checked_pow(exponent)
}

fn fixeds(operator: &str, left: Fixed, right: Fixed) -> Result<Fixed, String> {
    let scale = left.scale.max(right.scale);
    let aligned = |of: Fixed| of.unscaled.checked_mul(power(scale - of.scale)?);
    let sum = |add: fn(i128, i128) -> Option<i128>| {
        Some(Fixed { unscaled: add(aligned(left)?, aligned(right)?)?, scale })
    };
    let value = match operator {
        "+" => sum(i128::checked_add),
        "-" => sum(i128::checked_sub),
        "*" => left
            .unscaled
            .checked_mul(right.unscaled)
            .map(|unscaled| Fixed { unscaled, scale: left.scale + right.scale }),
        "/" if right.unscaled == 0 => return Err("division by zero".into()),
        "/" => divide(left, right),
        _ => return Err(format!("\"{operator}\" needs integers")),
    };
    value.and_then(normal).ok_or_else(|| TOO_LONG.into())
}

/// As many digits as there is room for (CORBA 3.11.3.4: the rest is cut off).
fn divide(left: Fixed, right: Fixed) -> Option<Fixed> {
    let divisor = right.unscaled.checked_abs()?;
    let (mut quotient, mut rest) = (left.unscaled.checked_abs()? / divisor, left.unscaled.abs() % divisor);
    let mut scale = i64::from(left.scale) - i64::from(right.scale);
    let limit = power(FIXED_DIGITS_MAX - 1)?;
    while scale < 0 || (rest != 0 && quotient < limit && scale < i64::from(FIXED_DIGITS_MAX)) {
        rest = rest.checked_mul(10)?;
        quotient = quotient.checked_mul(10)?.checked_add(rest / divisor)?;
        rest %= divisor;
        scale += 1;
    }
    let sign = if (left.unscaled < 0) == (right.unscaled < 0) { 1 } else { -1 };
    Some(Fixed { unscaled: sign * quotient, scale: scale as u32 })
}

/// Without zeros at the end, and with at most 31 digits; digits behind the point that are too many are cut off.
fn normal(mut value: Fixed) -> Option<Fixed> {
    let limit = power(FIXED_DIGITS_MAX)?;
    while value.scale > 0
        && (value.unscaled % 10 == 0 || value.unscaled.abs() >= limit || value.scale > FIXED_DIGITS_MAX)
    {
        value = Fixed { unscaled: value.unscaled / 10, scale: value.scale - 1 };
    }
    (value.unscaled.abs() < limit).then_some(value)
}

/// `OPERATOR value`; `bits` and sign are those of the constant that is computed.
pub(super) fn unary(operator: char, value: Constant, bits: u32, is_signed: bool) -> Result<Constant, String> {
    match (operator, value) {
        ('+', value @ (Constant::Integer(_) | Constant::Float(_) | Constant::Fixed(_))) => Ok(value),
        ('-', Constant::Integer(value)) => checked(value.checked_neg()),
        ('-', Constant::Float(value)) => Ok(Constant::Float(-value)),
        ('-', Constant::Fixed(Fixed { unscaled, scale })) => {
            Ok(Constant::Fixed(Fixed { unscaled: -unscaled, scale }))
        }
        ('~', Constant::Integer(value)) if is_signed || value < 0 => checked(Some(!value)),
        ('~', Constant::Integer(value)) => checked(Some(((1i128 << bits) - 1) ^ value)),
        ('~', _) => Err("\"~\" needs an integer".into()),
        _ => Err(format!("\"{operator}\" needs a number")),
    }
}
