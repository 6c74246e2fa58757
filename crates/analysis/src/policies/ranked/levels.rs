//! The levels of fixed priorities: classes of bounds.

use crate::units::Nanos;

/// Number of levels that [`level`] distinguishes.
pub const LEVELS: u8 = 30;

/// The level of a channel with `bound` under fixed priorities, 0 the most urgent: half octaves from 64 us on.
///
/// The level depends only on the bound, so a newcomer never moves others to another level.
pub fn level(bound: Nanos) -> u8 {
    const FIRST: u32 = 32;
    let squared = u128::from(bound.0) * u128::from(bound.0);
    squared.checked_ilog2().unwrap_or(0).saturating_sub(FIRST).min(u32::from(LEVELS) - 1) as u8
}

/// The least bound of a level.
pub(super) fn level_floor(level: u8) -> Nanos {
    if level == 0 {
        return Nanos::ZERO;
    }
    let squared = 1_u128 << (32 + u32::from(level));
    let root = squared.isqrt();
    Nanos(if root * root < squared { root + 1 } else { root } as u64)
}
