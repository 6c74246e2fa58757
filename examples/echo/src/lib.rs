//! The code that the build script writes for `echo.idl`.

include!(concat!(env!("OUT_DIR"), "/echo.rs"));
