//! Limits against bad bytes.

/// Levels of values in values, and of types in types.
pub const DEPTH_MAX: usize = 64;

/// Nodes of one description of a type, those that it refers to counted each time.
pub const TYPE_NODES_MAX: usize = 4_096;

/// Digits of a fixed-point number (CORBA 3.11.3.4).
pub const FIXED_DIGITS_MAX: u16 = 31;

/// Bytes of the names in one description of a type, those that it refers to counted each time.
pub const TYPE_NAMES_BYTES_MAX: usize = 1 << 20;

/// Bytes of a reference as text: two hexadecimal digits for each byte.
pub const REFERENCE_TEXT_BYTES_MAX: usize = 1 << 20;

/// Bytes of a message behind its header, unless an ORB is configured otherwise.
pub const MESSAGE_BYTES_MAX: usize = 64 << 20;

/// Messages of one connection that may be in pieces at once, unless an ORB is configured otherwise.
pub const MESSAGES_IN_PIECES_MAX: usize = 64;
