//! `%` and two hexadecimal digits (RFC 2396, as CORBA 13.6.10 uses it).

use alloc::string::String;
use alloc::vec::Vec;

use super::error::Error;

/// The value of a hexadecimal digit.
pub(super) fn digit(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).map(|value| value as u8)
}

/// The bytes that text stands for.
pub(super) fn unescape(text: &str) -> Result<Vec<u8>, Error> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [byte, behind @ ..] = rest {
        rest = match (byte, behind) {
            (b'%', [high, low, behind @ ..]) => {
                let value = digit(*high).zip(digit(*low)).ok_or(Error::Escape)?;
                bytes.push(value.0 << 4 | value.1);
                behind
            }
            (b'%', _) => return Err(Error::Escape),
            (byte, behind) => {
                bytes.push(*byte);
                behind
            }
        };
    }
    Ok(bytes)
}

/// Text that stands for these bytes.
pub(super) fn escape(bytes: &[u8], to: &mut String) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    for byte in bytes {
        if byte.is_ascii_alphanumeric() || b";/:?@&=+$,-_.!~*'()".contains(byte) {
            to.push(char::from(*byte));
        } else {
            to.push('%');
            to.push(char::from(DIGITS[usize::from(byte >> 4)]));
            to.push(char::from(DIGITS[usize::from(byte & 15)]));
        }
    }
}
