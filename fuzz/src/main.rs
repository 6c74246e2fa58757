//! Runs targets without a fuzzer's instrumentation: fast, and the same on every machine.

use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use punctual_fuzz::driver::{corpus_folder, inputs, run};
use punctual_fuzz::{TARGETS, Target, target};

const USAGE: &str = "usage:
  punctual-fuzz list                          the targets
  punctual-fuzz seeds TARGET                  writes what honest encoders make to the target's corpus
  punctual-fuzz run TARGET [COUNT [SEED]]     tries the corpus and COUNT mutations of it (default 1000000, seed 1)
  punctual-fuzz try TARGET FILE...            tries these inputs";

/// An input that takes longer should be examined.
const SLOW: Duration = Duration::from_secs(1);

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match act(&words) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("punctual-fuzz: {error}");
            ExitCode::from(2)
        }
    }
}

fn known(name: &str) -> Result<&'static Target, Box<dyn Error>> {
    target(name).ok_or_else(|| format!("no target \"{name}\": see punctual-fuzz list").into())
}

fn act(words: &[&str]) -> Result<(), Box<dyn Error>> {
    match words {
        ["list"] => TARGETS.iter().for_each(|target| println!("{}", target.name)),
        ["seeds", name] => {
            let target = known(name)?;
            let folder = corpus_folder(target);
            std::fs::create_dir_all(&folder)?;
            for (number, bytes) in (target.seeds)().into_iter().enumerate() {
                std::fs::write(folder.join(format!("seed-{number:03}")), bytes)?;
            }
        }
        ["run", name, rest @ ..] => {
            let target = known(name)?;
            let count = rest.first().map_or(Ok(1_000_000), |count| count.parse())?;
            let seed = rest.get(1).map_or(Ok(1), |seed| seed.parse())?;
            let done = run(target, &inputs(target)?, seed, count);
            let rate = done.executions as f64 / done.took.as_secs_f64();
            println!(
                "{name} seed {seed}: {} executions in {:.1} s, {rate:.0} a second, the slowest {:.3} ms",
                done.executions,
                done.took.as_secs_f64(),
                done.slowest.as_secs_f64() * 1e3
            );
            if done.slowest > SLOW {
                let path = std::env::temp_dir().join(format!("punctual-{name}-{seed}-slowest"));
                std::fs::write(&path, done.slowest_input)?;
                println!("{name} seed {seed}: the slowest is kept as {}", path.display());
            }
        }
        ["try", name, files @ ..] => {
            let target = known(name)?;
            for file in files {
                println!("{file}");
                (target.run)(&std::fs::read(PathBuf::from(file))?);
            }
        }
        _ => return Err(USAGE.into()),
    }
    Ok(())
}
