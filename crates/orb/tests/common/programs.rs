//! Programs with omniORB.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;

/// The folder with the programs.
pub struct Programs(PathBuf);

/// A server that runs.
pub struct Server {
    child: Child,
    reference: String,
}

impl Server {
    pub fn reference(&self) -> &str {
        &self.reference
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        self.child.wait().expect("it ends with its input");
    }
}

fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {errors}");
    String::from_utf8(output.stdout).expect("text")
}

/// The programs, which are built once. `None` where omniORB is not installed.
pub fn build() -> Option<&'static Programs> {
    static BUILT: OnceLock<Option<Programs>> = OnceLock::new();
    let build = || {
        let is_there = Path::new("/usr/include/omniORB4/CORBA.h").exists();
        if !is_there {
            punctual_skip::skipped!("no omniORB. Install it: apt-get install omniidl libomniorb4-dev g++");
            return None;
        }
        let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
        let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("omniorb");
        std::fs::create_dir_all(&folder).expect("a folder");
        let idl = sources.join("idl/demo.idl");
        run(Command::new("omniidl").args(["-bcxx", "-Wba"]).arg(idl).current_dir(&folder));
        let skeleton = folder.join("skeleton.o");
        let compiler = || {
            let mut compiler = Command::new("g++");
            compiler.args(["-O1", "-w", "-I."]).current_dir(&folder);
            compiler
        };
        let all = folder.join("skeleton.cc");
        std::fs::write(&all, "#include \"demoSK.cc\"\n#include \"demoDynSK.cc\"\n").expect("it is written");
        run(compiler().arg("-c").arg(&all).arg("-o").arg(&skeleton));
        for program in ["server", "client"] {
            let source = sources.join("omniorb").join(program).with_extension("cc");
            let libraries = ["-lomniORB4", "-lomniDynamic4", "-lomnithread"];
            run(compiler().arg(source).arg(&skeleton).arg("-o").arg(program).args(libraries));
        }
        Some(Programs(folder))
    };
    BUILT.get_or_init(build).as_ref()
}

impl Programs {
    /// Starts a server, and reads its reference.
    pub fn server(&self, arguments: &[&str]) -> Server {
        let mut command = Command::new(self.0.join("server"));
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("it starts");
        let mut reference = String::new();
        let output = child.stdout.take().expect("a pipe");
        BufReader::new(output).read_line(&mut reference).expect("a line");
        let reference = reference.trim().to_owned();
        assert!(reference.starts_with("IOR:"), "{reference:?}");
        Server { child, reference }
    }

    /// Runs the client with this reference to its end, with or without wide characters.
    pub fn client(&self, arguments: &[&str], has_wide: bool, reference: &str) {
        let mut command = Command::new(self.0.join("client"));
        if !has_wide {
            command.env("NO_WIDE", "1");
        }
        let printed = run(command.args(arguments).arg(reference));
        assert!(printed.contains(" checks"), "{printed}");
    }
}
