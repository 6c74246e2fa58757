//! Runs a target without a fuzzer: what honest encoders make and every input of its corpus, then mutations of them that a
//! seed determines.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::mutate::mutate;
use crate::random::Random;
use crate::targets::Target;

/// Longest input: sequences are long enough, and none takes long.
pub const INPUT_BYTES_MAX: usize = 4_096;

/// A corpus, in the order of its files' names so that every machine reads the same.
///
/// # Errors
/// If the folder or a file in it cannot be read.
pub fn corpus(folder: &Path) -> std::io::Result<Vec<Vec<u8>>> {
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect::<std::io::Result<_>>()?;
    files.sort();
    files.into_iter().map(std::fs::read).collect()
}

/// The inputs at the start of a run: the current output of honest encoders, and the corpus. (Hosts' messages
/// in a conversation depend on the answers of admission; each change of them reduces what a recording
/// reaches.)
///
/// # Errors
/// As [`corpus`].
pub fn inputs(target: &Target) -> std::io::Result<Vec<Vec<u8>>> {
    Ok([(target.seeds)(), corpus(&corpus_folder(target))?].concat())
}

/// The folder of the corpora.
pub fn corpus_folder(target: &Target) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target.name)
}

/// A run that went to its end.
#[derive(Clone, Debug)]
pub struct Run {
    /// Inputs tried.
    pub executions: u64,
    /// The longest of them took.
    pub slowest: Duration,
    /// What that was.
    pub slowest_input: Vec<u8>,
    /// All of them took.
    pub took: Duration,
}

/// Reports which input a panic belongs to.
struct Tried<'a> {
    target: &'a str,
    seed: u64,
    number: u64,
    bytes: &'a [u8],
}

impl Drop for Tried<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let path =
                std::env::temp_dir().join(format!("punctual-{}-{}-{}", self.target, self.seed, self.number));
            let written = std::fs::write(&path, self.bytes);
            let place =
                if written.is_ok() { path.display().to_string() } else { format!("{:02x?}", self.bytes) };
            eprintln!("target {}, seed {}, input {}: {place}", self.target, self.seed, self.number);
        }
    }
}

/// Tries `corpus`, then `mutations` mutations of it.
///
/// # Panics
/// If the target panics: the input is printed and kept in the folder for temporary files.
pub fn run(target: &Target, corpus: &[Vec<u8>], seed: u64, mutations: u64) -> Run {
    let mut random = Random::new(seed);
    let started = Instant::now();
    let (mut slowest, mut slowest_input) = (Duration::ZERO, Vec::new());
    let mut number = 0;
    let mut attempt = |bytes: &[u8]| {
        let tried = Tried { target: target.name, seed, number, bytes };
        let before = Instant::now();
        (target.run)(bytes);
        let took = before.elapsed();
        drop(tried);
        if took > slowest {
            slowest = took;
            slowest_input = bytes.to_vec();
        }
        number += 1;
    };
    corpus.iter().for_each(|bytes| attempt(bytes));
    let mut bytes = Vec::new();
    for _ in 0..mutations {
        let pick =
            |random: &mut Random| corpus.get(random.below(corpus.len())).map_or(&[][..], Vec::as_slice);
        bytes.clear();
        bytes.extend_from_slice(pick(&mut random));
        let other = pick(&mut random);
        mutate(&mut random, &mut bytes, other, target.words, INPUT_BYTES_MAX);
        attempt(&bytes);
    }
    Run { executions: number, slowest, slowest_input, took: started.elapsed() }
}
