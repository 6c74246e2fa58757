//! Why something is no reference.

use alloc::string::String;

/// Why bytes or text are no reference.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Text without a scheme that is known.
    #[error("a reference begins with `IOR:`, `corbaloc:` or `corbaname:`")]
    Scheme,
    /// Text behind `IOR:` that is no even number of hexadecimal digits.
    #[error("behind `IOR:`, an even number of hexadecimal digits is expected")]
    Hexadecimal,
    /// A transport in a `corbaloc` that is not known.
    #[error("the transport `{0}` is not known; `iiop`, `rir` and `omniunix` are")]
    Transport(String),
    /// An address that is none.
    #[error(
        "`{0}` is no address; write HOST or HOST:PORT, with an IPv6 address in square brackets and a port from 1 to 65535"
    )]
    Address(String),
    /// A version that is none.
    #[error("IIOP {0}.{1} is not supported; 1.0, 1.1 and 1.2 are")]
    Version(u8, u8),
    /// Text before `@` that is no version.
    #[error("`{0}` is no version of IIOP; write 1.0, 1.1 or 1.2 before `@`")]
    VersionText(String),
    /// `%` without two hexadecimal digits behind it.
    #[error("behind `%`, two hexadecimal digits are expected")]
    Escape,
    /// A name that is not UTF-8 once `%` is resolved.
    #[error("a name in a reference is UTF-8, also where bytes are written with `%`")]
    NameText,
    /// A name that is none.
    #[error(
        "`{0}` is no name: parts are separated by `/`, each is ID or ID.KIND, and `\\` escapes `/`, `.` and `\\`"
    )]
    Name(String),
    /// Text that is longer than the limit.
    #[error("a reference of {0} characters is longer than the limit of {max}", max = crate::limits::REFERENCE_TEXT_BYTES_MAX)]
    Long(usize),
    /// `rir` beside other addresses.
    #[error("`rir:` must be the only address")]
    Resolve,
    /// A profile that the reference does not have.
    #[error("the reference does not have this profile")]
    NoProfile,
    /// A profile of another transport than the one that is asked for.
    #[error("a profile of the transport {0:#x}, which is not IIOP")]
    Tag(u32),
    /// The bytes are damaged.
    #[error(transparent)]
    Cdr(#[from] crate::Error),
}
