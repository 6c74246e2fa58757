//! Every limit against input that is too large, too deep or never ends. A file that exceeds one is refused with
//! a message that gives the limit.

/// Size of one file, in bytes.
pub const FILE_BYTES_MAX: usize = 16 << 20;

/// Bytes of all files that one run reads, each as often as it is included.
pub const READ_BYTES_MAX: usize = 128 << 20;

/// Files that are open at the same time: one that another one includes, and so on.
pub const INCLUDE_DEPTH_MAX: usize = 64;

/// How often one file may be open at the same time. A file with an include guard that reaches itself is open
/// twice and ends there; a file without a guard would go on.
pub const OPEN_TWICE_MAX: usize = 2;

/// Files that one run includes, each as often as it is included.
pub const INCLUDES_MAX: usize = 4_096;

/// Nested `#if` in one file.
pub const CONDITIONS_MAX: usize = 256;

/// Tokens behind the preprocessor.
pub const TOKENS_MAX: usize = 4 << 20;

/// Tokens that all macros of one run may produce.
pub const MACRO_TOKENS_MAX: usize = 1 << 20;

/// Parameters of one macro.
pub const MACRO_PARAMETERS_MAX: usize = 256;

/// Depth of nested scopes, types and expressions, each counted for itself.
pub const NESTING_MAX: usize = 64;

/// Length of an identifier, in bytes.
pub const IDENTIFIER_BYTES_MAX: usize = 1_024;

/// Definitions in one run.
pub const DEFINITIONS_MAX: usize = 1 << 20;

/// Interfaces that one interface inherits from, directly or not.
pub const ANCESTORS_MAX: usize = 256;

/// Structures that one structure inherits from, directly or not.
pub const STRUCTURE_BASES_MAX: usize = 64;

/// Operations of an interface that code is generated for, those of its bases and of attributes included: their
/// perfect hash grows with the square of their number.
pub const GENERATED_OPERATIONS_MAX: usize = 1_024;

/// Ancestors, operations and attributes that the interfaces of one run inherit, added up.
pub const INHERITED_TOTAL_MAX: usize = 8 << 20;

/// Dimensions of one array.
pub const DIMENSIONS_MAX: usize = 32;

/// Elements of one array, its dimensions multiplied.
pub const ARRAY_ELEMENTS_MAX: u64 = u32::MAX as u64;

/// Digits of a fixed-point type or constant (CORBA 3.11.3.4).
pub const FIXED_DIGITS_MAX: u32 = 31;

/// Numbers and enumerators in a structure that is written and read in one piece; others go part by part.
pub const FLAT_PARTS_MAX: u64 = 32;

/// Bytes of such a structure, with its padding at most.
pub const FLAT_BYTES_MAX: u64 = 512;

/// Errors after which a run ends.
pub const ERRORS_MAX: usize = 100;

const _: () = assert!(INCLUDE_DEPTH_MAX < INCLUDES_MAX);
const _: () = assert!(FILE_BYTES_MAX <= READ_BYTES_MAX && READ_BYTES_MAX <= u32::MAX as usize);
const _: () = assert!(MACRO_TOKENS_MAX <= TOKENS_MAX);
// Slots of a perfect hash are numbers of 16 bits.
const _: () = assert!(GENERATED_OPERATIONS_MAX < u16::MAX as usize);
