//! The C++ program, compiled once, and its processes.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::OnceLock;

/// Longer than any of its runs on a busy machine.
const SECONDS_MAX: &str = "120";

/// A folder for this run of the tests.
pub fn folder(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("punctual-interop-{}-{name}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    folder
}

fn has(program: &str) -> bool {
    Command::new(program).arg("--version").output().is_ok()
        || Command::new(program).arg("-V").output().is_ok()
}

/// The program, or `None` if it cannot be compiled here.
fn program() -> Option<&'static Path> {
    static PROGRAM: OnceLock<Option<PathBuf>> = OnceLock::new();
    let program = PROGRAM.get_or_init(|| {
        let has_headers = Path::new("/usr/include/omniORB4/CORBA.h").exists();
        if has_headers && has("omniidl") && has("g++") {
            return Some(compile());
        }
        punctual_skip::skipped!("needs omniORB: apt-get install g++ omniidl omniorb-idl libomniorb4-dev");
        None
    });
    program.as_deref()
}

fn run(command: &mut Command) {
    let output = command.output().expect("it starts");
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Compiles the stubs beside the program: on two processors at once.
fn compile() -> PathBuf {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/interop");
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("interop");
    std::fs::create_dir_all(&folder).expect("a folder");
    let program = folder.join("peer");
    if is_newer(&program, &sources) {
        return program;
    }
    let idl = sources.join("interop.idl");
    let forms = ["-bcxx", "-Wba", "-Wbh=.hh", "-Wbs=SK.cc", "-Wbd=DynSK.cc", "-I/usr/share/idl/omniORB"];
    run(Command::new("omniidl").args(forms).arg("-C").arg(&folder).arg(&idl));
    let sources = [sources.join("peer.cc"), folder.join("interopSK.cc"), folder.join("interopDynSK.cc")];
    let objects: Vec<PathBuf> = (0..sources.len()).map(|number| folder.join(format!("{number}.o"))).collect();
    std::thread::scope(|scope| {
        for (source, object) in sources.iter().zip(&objects) {
            let include = &folder;
            scope.spawn(move || {
                let mut compiler = Command::new("g++");
                run(compiler.args(["-O0", "-I"]).arg(include).arg("-c").arg(source).arg("-o").arg(object));
            });
        }
    });
    let libraries = ["-lomniORB4", "-lomniDynamic4", "-lomniCodeSets4", "-lomnithread"];
    run(Command::new("g++").args(&objects).args(libraries).arg("-o").arg(&program));
    program
}

/// Whether the program is newer than its sources.
fn is_newer(program: &Path, sources: &Path) -> bool {
    let changed = |path: &Path| path.metadata().and_then(|file| file.modified()).ok();
    let Some(made) = changed(program) else { return false };
    ["peer.cc", "interop.idl"].iter().all(|name| changed(&sources.join(name)).is_some_and(|then| then < made))
}

fn command(what: &[&str], more: &[String]) -> Option<Command> {
    let mut command = Command::new("timeout");
    command.arg(SECONDS_MAX).arg(program()?).args(what).args(more);
    Some(command)
}

/// A server.
pub struct Process {
    child: Child,
    reference: String,
    /// It ends with its standard input.
    input: Option<ChildStdin>,
}

impl Process {
    /// Starts a server, and waits until it has said its reference.
    pub fn serving(what: &[&str], more: &[String]) -> Option<Self> {
        let mut command = command(what, more)?;
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it starts");
        let mut reference = String::new();
        let said = BufReader::new(child.stdout.take().expect("piped")).read_line(&mut reference);
        assert!(said.is_ok() && reference.starts_with("IOR:"), "{what:?} {more:?} says {reference:?}");
        let input = child.stdin.take();
        Some(Self { child, reference: reference.trim().to_owned(), input })
    }

    /// Its object.
    pub fn reference(&self) -> &str {
        &self.reference
    }

    /// Runs it to its end: what it says.
    pub fn finished(what: &[&str], more: &[String]) -> Option<String> {
        let mut command = command(what, more)?;
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().expect("it starts");
        let mut said = String::new();
        child.stdout.take().expect("piped").read_to_string(&mut said).expect("text");
        child.wait().expect("it ends");
        Some(said)
    }

    /// Ends it, and waits for that.
    pub fn end(self) {}
}

impl Drop for Process {
    fn drop(&mut self) {
        drop(self.input.take());
        let _ = self.child.wait();
    }
}

/// Code as rustfmt lays it out.
pub fn formatted(code: &str) -> String {
    let file = folder("format").join("code.rs");
    std::fs::write(&file, code).expect("it is written");
    let configuration = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../rustfmt.toml");
    run(Command::new("rustfmt").args(["--edition", "2024", "--config-path"]).arg(configuration).arg(&file));
    std::fs::read_to_string(&file).expect("it is there")
}
