//! Runs `ip`, `tc` and similar programs. Errors name the failed command and the fix.

use std::io::Write;
use std::process::{Command, Stdio};

use thiserror::Error;

/// A tool did not do its work.
#[derive(Debug, Error)]
pub enum ToolError {
    /// The program is not installed.
    #[error("`{tool}` is missing: install it (Debian: apt-get install {package})")]
    Missing {
        /// The program.
        tool: String,
        /// Package of Debian that has the program.
        package: &'static str,
    },
    /// The program failed.
    #[error("`{command}` failed: {why}")]
    Failed {
        /// Command line that was run.
        command: String,
        /// The last line of the program's error output.
        why: String,
    },
    /// The program could not be run or fed.
    #[error("cannot run `{command}`: {source}")]
    Io {
        /// Command line that was run.
        command: String,
        /// The kernel's answer.
        source: std::io::Error,
    },
}

/// Runs a command line, words separated by blanks, and returns its output.
///
/// # Errors
/// If it is missing, fails or cannot be run.
pub fn run(line: &str) -> Result<String, ToolError> {
    feed(line, "")
}

/// Runs a command line with `input` on its standard input.
///
/// # Errors
/// If it is missing, fails or cannot be run.
pub fn feed(line: &str, input: &str) -> Result<String, ToolError> {
    let mut words = line.split_whitespace();
    let tool = words.next().unwrap_or_default();
    let io = |source| ToolError::Io { command: line.into(), source };
    let mut child = Command::new(tool)
        .args(words)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => missing(tool),
            _ => io(error),
        })?;
    if let Some(mut stdin) = child.stdin.take() {
        // A tool that fails early closes the pipe; its exit status is more informative than this error.
        let _ = stdin.write_all(input.as_bytes());
    }
    let output = child.wait_with_output().map_err(io)?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let why = String::from_utf8_lossy(&output.stderr).trim().replace('\n', "; ");
    Err(ToolError::Failed { command: line.into(), why })
}

fn missing(tool: &str) -> ToolError {
    let package = match tool {
        "ip" | "tc" => "iproute2",
        _ => "util-linux",
    };
    ToolError::Missing { tool: tool.into(), package }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_tool_names_its_package() {
        let error = run("punctual-no-such-tool --at-all").unwrap_err();
        assert!(matches!(error, ToolError::Missing { .. }), "{error}");
        assert!(error.to_string().contains("apt-get install"), "{error}");
    }

    #[test]
    fn a_failing_tool_shows_its_words() {
        let error = run("ls /punctual/no/such/path").unwrap_err().to_string();
        assert!(error.contains("/punctual/no/such/path"), "{error}");
    }

    #[test]
    fn input_reaches_the_tool() {
        assert_eq!(feed("cat", "a\nb").unwrap(), "a\nb");
    }
}
