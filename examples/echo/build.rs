//! Writes Rust for `echo.idl` to `OUT_DIR/echo.rs`.

fn main() -> Result<(), punctual_idl::BuildError> {
    punctual_idl::build("echo.idl")
}
