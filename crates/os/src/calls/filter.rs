//! Makes a filter of the kernel from a list of calls.

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, SeccompRule, TargetArch};

use super::tables::{Argument, Call, calls};
use super::{Forbidden, ThreadKind};

/// The filter of a kind of thread. A call of another architecture ends the process.
pub(super) fn compile(kind: ThreadKind, forbidden: Forbidden) -> io::Result<BpfProgram> {
    let action = match forbidden {
        Forbidden::End => SeccompAction::KillProcess,
        Forbidden::Refuse | Forbidden::Allow => SeccompAction::Trap,
    };
    let architecture = TargetArch::try_from(std::env::consts::ARCH).map_err(unsupported)?;
    let rules = rules(calls(kind)).map_err(unsupported)?;
    let filter = SeccompFilter::new(rules, action, SeccompAction::Allow, architecture);
    filter.and_then(TryInto::try_into).map_err(unsupported)
}

/// Rules by the number of the call. A call without rules is allowed whatever its arguments are.
fn rules(
    calls: impl Iterator<Item = &'static Call>,
) -> Result<BTreeMap<i64, Vec<SeccompRule>>, seccompiler::BackendError> {
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = BTreeMap::new();
    let mut whatever = BTreeSet::new();
    for call in calls {
        if call.only.is_empty() {
            whatever.insert(call.number);
        }
        let of_call = rules.entry(call.number).or_default();
        for only in call.only {
            let conditions = only.iter().map(Argument::condition).collect::<Result<_, _>>()?;
            of_call.push(SeccompRule::new(conditions)?);
        }
    }
    rules.iter_mut().filter(|(number, _)| whatever.contains(number)).for_each(|(_, rules)| rules.clear());
    Ok(rules)
}

pub(super) fn install(filter: &BpfProgram) -> io::Result<()> {
    seccompiler::apply_filter(filter).map_err(|error| match error {
        seccompiler::Error::Prctl(error) | seccompiler::Error::Seccomp(error) => error,
        other => unsupported(other),
    })
}

fn unsupported(error: impl std::fmt::Display) -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, error.to_string())
}
