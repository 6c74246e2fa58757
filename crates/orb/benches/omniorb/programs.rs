//! Ends that run as programs of their own: ours, which is this one again, and omniORB's.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

/// A program that reads lines and answers. It ends with its input.
pub struct Program {
    child: Child,
    output: BufReader<ChildStdout>,
}

impl Drop for Program {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        // What it was asked for was read.
        let _ = self.child.wait();
    }
}

impl Program {
    fn start(command: &mut Command) -> Self {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let output = BufReader::new(child.stdout.take().expect("a pipe"));
        Self { child, output }
    }

    /// A server's reference.
    pub fn reference(&mut self) -> String {
        let line = self.line();
        assert!(line.starts_with("IOR:"), "{line:?}");
        line
    }

    /// The next line of its output.
    pub fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).expect("a line");
        line.trim().to_owned()
    }

    /// The most memory that it has had at once, bytes.
    pub fn most_bytes(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).expect("it runs");
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("Linux has it");
        line.split_whitespace().next().and_then(|kib| kib.parse::<u64>().ok()).expect("KiB") << 10
    }

    /// Has a client call so often: how long each call took, ns.
    pub fn call(&mut self, case: &str, count: usize) -> Vec<u32> {
        let input = self.child.stdin.as_mut().expect("a pipe");
        writeln!(input, "{case} {count}").expect("it reads");
        let mut bytes = vec![0; count * 4];
        self.output.read_exact(&mut bytes).expect("it answers");
        bytes.as_chunks().0.iter().map(|span| u32::from_ne_bytes(*span)).collect()
    }
}

/// This program, in another role.
pub fn ours(arguments: &[&str]) -> Program {
    Program::start(Command::new(std::env::current_exe().expect("its own path")).args(arguments))
}

/// Programs with omniORB, in a folder.
pub struct Omni(PathBuf);

impl Omni {
    /// Builds them, optimised. `None` where omniORB is not installed.
    pub fn build() -> Option<Self> {
        if !Path::new("/usr/include/omniORB4/CORBA.h").exists() {
            return None;
        }
        let own = Path::new(env!("CARGO_MANIFEST_DIR"));
        let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("omniorb-bench");
        std::fs::create_dir_all(&folder).expect("a folder");
        let idl = own.join("tests/idl/demo.idl");
        run(Command::new("omniidl").args(["-bcxx", "-Wba"]).arg(idl).current_dir(&folder));
        for (name, source) in [("server", "tests/omniorb/server.cc"), ("client", "benches/omniorb/client.cc")]
        {
            let mut compiler = Command::new("g++");
            compiler.args(["-O2", "-w", "-I.", "demoSK.cc", "demoDynSK.cc"]).arg(own.join(source));
            compiler.args(["-o", name, "-lomniORB4", "-lomniDynamic4", "-lomnithread"]);
            run(compiler.current_dir(&folder));
        }
        Some(Self(folder))
    }

    /// Starts one of them.
    pub fn start(&self, name: &str, arguments: &[&str]) -> Program {
        Program::start(Command::new(self.0.join(name)).args(arguments))
    }
}

fn run(command: &mut Command) {
    let status = command.status().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(status.success(), "{command:?}");
}
