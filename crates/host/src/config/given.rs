//! Keys that the file may leave out: what is given, or else a default.

use super::quantity::{Bytes, Text};
use super::{ConfigError, Source};

/// The given value, or `default`.
pub(super) fn pick<Q: Copy>(given: &Option<Text<Q>>, default: Q) -> Q {
    given.as_ref().map_or(default, |text| text.0)
}

/// The given number of bytes, or `default`.
///
/// # Errors
/// If it does not fit into 32 bits.
pub(super) fn bytes_u32(
    given: &Option<Text<Bytes>>,
    default: u32,
    key: &str,
    source: &Source<'_>,
    at: usize,
) -> Result<u32, ConfigError> {
    let Some(Text(bytes)) = given else { return Ok(default) };
    u32::try_from(bytes.0)
        .map_err(|_| source.error(at, format!("{key} of {} B is too large: give less than 4 GiB", bytes.0)))
}

/// Does what [`bytes_u32`] does without a default: `None` if the key is missing.
pub(super) fn given_bytes(
    given: &Option<Text<Bytes>>,
    key: &str,
    source: &Source<'_>,
    at: usize,
) -> Result<Option<u32>, ConfigError> {
    given.as_ref().map(|_| bytes_u32(given, 0, key, source, at)).transpose()
}
