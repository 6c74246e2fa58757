//! Floating-point numbers in JSON, which has neither infinities nor "not a number": `"Infinity"`, `"-Infinity"` and
//! `"NaN"`.

use punctual_giop::value::LongDouble;
use serde_json::{Value, json};

const WORDS: [(&str, f64); 3] =
    [("NaN", f64::NAN), ("Infinity", f64::INFINITY), ("-Infinity", f64::NEG_INFINITY)];

/// Whether this word is a number that JSON has not.
pub fn is_word(text: &str) -> bool {
    WORDS.iter().any(|(word, _)| *word == text)
}

/// The number of a JSON value.
pub fn of_json(value: &Value) -> Option<f64> {
    let word = |text| WORDS.iter().find(|(word, _)| *word == text).map(|(_, number)| *number);
    value.as_f64().or_else(|| value.as_str().and_then(word))
}

/// The number as JSON.
pub fn to_json(number: f64) -> Value {
    match number {
        number if number.is_nan() => json!("NaN"),
        f64::INFINITY => json!("Infinity"),
        f64::NEG_INFINITY => json!("-Infinity"),
        number => json!(number),
    }
}

/// The shortest number as JSON that is read as the same `float`.
pub fn float_to_json(number: f32) -> Value {
    to_json(number.to_string().parse().unwrap_or(f64::from(number)))
}

/// The `float` of a number.
///
/// # Errors
/// One line, if it is too large.
pub fn float(number: f64) -> Result<f32, String> {
    let short = number as f32;
    match number.is_finite() && short.is_infinite() {
        true => Err(format!("{number:e} is out of the range of float, at most {:e}", f32::MAX)),
        false => Ok(short),
    }
}

/// Bits of the fraction of a double, and of a long double.
const FRACTION_BITS: (u32, u32) = (52, 112);
/// The exponents of 1.
const BIAS: (i32, i32) = (1_023, 16_383);
/// The exponent of a double that is infinite or no number, and of such a long double.
const EXPONENT_MAX: (u64, u128) = (0x7FF, 0x7FFF);

/// A `long double` with the value of a double.
pub fn long_double(number: f64) -> LongDouble {
    let sign = u128::from(number.is_sign_negative()) << 127;
    let fraction = |bits: u64| u128::from(bits & ((1 << FRACTION_BITS.0) - 1));
    let widen = FRACTION_BITS.1 - FRACTION_BITS.0;
    let (exponent, fraction) = match number.classify() {
        std::num::FpCategory::Zero => (0, 0),
        std::num::FpCategory::Nan | std::num::FpCategory::Infinite => {
            (EXPONENT_MAX.1, fraction(number.to_bits()) << widen)
        }
        // Times 2^64 it has no less digits, and a leading one.
        std::num::FpCategory::Subnormal => {
            let normal = (number * 2f64.powi(64)).to_bits();
            (exponent(normal) - 64, fraction(normal) << widen)
        }
        std::num::FpCategory::Normal => (exponent(number.to_bits()), fraction(number.to_bits()) << widen),
    };
    LongDouble((sign | exponent << FRACTION_BITS.1 | fraction).to_le_bytes())
}

/// The exponent of a long double that has the value of the normal double with these bits.
fn exponent(bits: u64) -> u128 {
    u128::from(bits >> FRACTION_BITS.0 & EXPONENT_MAX.0) + (BIAS.1 - BIAS.0) as u128
}

/// The double next to a `long double`: zero or infinite if none has its size.
pub fn double(of: LongDouble) -> f64 {
    let bits = u128::from_le_bytes(of.0);
    let fraction = bits & ((1 << FRACTION_BITS.1) - 1);
    let exponent = bits >> FRACTION_BITS.1 & EXPONENT_MAX.1;
    let size = match exponent == EXPONENT_MAX.1 {
        true if fraction > 0 => f64::NAN,
        true => f64::INFINITY,
        false => {
            // 2^-1074 is the least double, and 2^1024 is infinite.
            let power = (exponent as i32 - BIAS.1).clamp(-1_200, 1_200);
            let digits = (1 << FRACTION_BITS.1 | fraction) as f64 / 2f64.powi(FRACTION_BITS.1 as i32);
            // In two steps, since 2^power may be no double.
            digits * 2f64.powi(power / 2) * 2f64.powi(power - power / 2)
        }
    };
    if bits >> 127 == 1 { -size } else { size }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doubles_are_long_doubles() {
        let all = [0.0, -0.0, 1.0, -1.5, 0.1, f64::MAX, f64::MIN_POSITIVE, 5e-324, 1e-310, f64::INFINITY];
        for number in all {
            let back = double(long_double(number));
            assert_eq!(back.to_bits(), number.to_bits(), "{number:e} {back:e}");
        }
        assert!(double(long_double(f64::NAN)).is_nan());
        // One, as the standard of these numbers has it: the bias is the exponent.
        assert_eq!(u128::from_le_bytes(long_double(1.0).0), 0x3FFF << 112);
        assert_eq!(double(LongDouble((0x7FFEu128 << 112).to_le_bytes())), f64::INFINITY);
        assert_eq!(double(LongDouble((1u128 << 112).to_le_bytes())), 0.0);
    }

    #[test]
    fn floats_have_their_shortest_form_and_do_not_overflow() {
        assert_eq!(float_to_json(0.1), json!(0.1));
        assert_eq!(float(1e39), Err("1e39 is out of the range of float, at most 3.4028235e38".into()));
        assert_eq!((float(f64::NEG_INFINITY), float(-0.5)), (Ok(f32::NEG_INFINITY), Ok(-0.5)));
        for (word, _) in WORDS {
            assert_eq!(of_json(&json!(word)).map(to_json), Some(json!(word)));
        }
        assert_eq!(of_json(&json!("inf")), None);
    }
}
