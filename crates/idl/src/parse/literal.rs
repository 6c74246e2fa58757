//! Literals as values.

use crate::limits::FIXED_DIGITS_MAX;
use crate::model::{Constant, Fixed};

/// A number: decimal, octal or hexadecimal integers, floating-point and fixed-point numbers.
pub(super) fn number(text: &str) -> Result<Constant, String> {
    let wrong = || format!("not a number: {text}");
    if let Some(digits) = text.strip_prefix("0x").or(text.strip_prefix("0X")) {
        return integer(digits, 16, text);
    }
    if let Some(digits) = text.strip_suffix(['d', 'D']) {
        return fixed(digits).ok_or_else(wrong)?.map(Constant::Fixed);
    }
    if text.contains(['.', 'e', 'E']) {
        let is_plain = text.bytes().all(|b| b.is_ascii_digit() || b".eE+-".contains(&b));
        let value = text.parse::<f64>().ok().filter(|_| is_plain).ok_or_else(wrong)?;
        return match value.is_finite() {
            true => Ok(Constant::Float(value)),
            false => Err(format!("{text} is too large for a floating-point number")),
        };
    }
    match text.strip_prefix('0') {
        Some(digits) if !digits.is_empty() => integer(digits, 8, text),
        _ => integer(text, 10, text),
    }
}

fn integer(digits: &str, radix: u32, text: &str) -> Result<Constant, String> {
    if digits.is_empty() || !digits.chars().all(|c| c.is_digit(radix)) {
        return Err(format!("not a number: {text}"));
    }
    match u64::from_str_radix(digits, radix) {
        Ok(value) => Ok(Constant::Integer(value.into())),
        Err(_) => Err(format!("{text} has more than 64 bits")),
    }
}

/// `None`: no number. An error: too many digits.
fn fixed(digits: &str) -> Option<Result<Fixed, String>> {
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let all: String = [whole, fraction].concat();
    if all.is_empty() || !all.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let significant = all.trim_start_matches('0');
    let fraction = fraction.trim_end_matches('0').len();
    let all = &all[..whole.len() + fraction];
    if significant.len() > FIXED_DIGITS_MAX as usize || all.len() > 2 * FIXED_DIGITS_MAX as usize {
        return Some(Err(format!("a fixed-point number has at most {FIXED_DIGITS_MAX} digits")));
    }
    let unscaled = if all.is_empty() { Some(0) } else { all.parse().ok() };
    unscaled.map(|unscaled| Ok(Fixed { unscaled, scale: fraction as u32 }))
}
