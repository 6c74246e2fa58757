//! `punctual`: see the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    punctual_cli::main()
}
