//! `punctual`: see the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    #[cfg(feature = "trials")]
    if let Ok(names) = std::env::var("PUNCTUAL_WITHOUT") {
        punctual_trial::take_away(&names);
    }
    punctual_cli::main()
}
