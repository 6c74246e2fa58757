//! The included policies by name.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::str::FromStr;

use serde::de::{Deserialize, Deserializer, Error};
use serde::{Serialize, Serializer};
use thiserror::Error;

use crate::admission::{Admission, RunPolicy};
use crate::policy::AdmissionPolicy;
use crate::stage::StageModel;

/// Declares the modules of the policies, a constant of [`Admission`] for each policy, and the table
/// [`Admission::ALL`]: a line for each module. A module defines a [`Policy`](crate::Policy) under each of the names.
macro_rules! policies {
    ($($vis:vis mod $module:ident: $($name:ident = $doc:literal),+;)*) => {
        $($vis mod $module;)*

        impl crate::Admission {
            $($(
                #[doc = $doc]
                pub const $name: Self = Self::new(&$module::$name);
            )+)*

            /// Included policies, which a configuration can name.
            pub const ALL: [Self; [$($(stringify!($name)),+),*].len()] = [$($(Self::$name),+),*];
        }
    };
}

impl Admission {
    const NAMES: [&str; Self::ALL.len()] = {
        let mut names = [""; Self::ALL.len()];
        let mut at = 0;
        while at < names.len() {
            names[at] = Self::ALL[at].policy().name;
            at += 1;
        }
        names
    };
}

impl Default for Admission {
    fn default() -> Self {
        Self::EDF
    }
}

impl RunPolicy {
    /// The included policies whose bounds hold under this order; the first is the default.
    pub fn admissions(self) -> impl Iterator<Item = Admission> {
        Admission::ALL.into_iter().filter(move |admission| admission.run == self)
    }
}

/// There is no policy of this name.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("no admission policy \"{name}\": use {}", one_of(Admission::NAMES))]
pub struct UnknownPolicy {
    /// The requested name.
    pub name: String,
}

impl FromStr for Admission {
    type Err = UnknownPolicy;

    fn from_str(name: &str) -> Result<Self, UnknownPolicy> {
        let found = Self::ALL.into_iter().find(|admission| admission.name == name);
        found.ok_or_else(|| UnknownPolicy { name: name.into() })
    }
}

impl Serialize for Admission {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name)
    }
}

impl<'de> Deserialize<'de> for Admission {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = String::deserialize(deserializer)?;
        name.parse().map_err(|_| D::Error::unknown_variant(&name, &Self::NAMES))
    }
}

/// An empty stage under the policy called `name`.
///
/// # Errors
/// If there is no such policy.
pub fn policy_by_name(name: &str, model: StageModel) -> Result<Box<dyn AdmissionPolicy>, UnknownPolicy> {
    name.parse::<Admission>().map(|admission| (admission.build)(model))
}

/// "edf, d-order or statistical": a list of choices for messages.
pub fn one_of<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    let mut names: Vec<_> = names.into_iter().collect();
    match (names.pop(), names.is_empty()) {
        (None, _) => String::new(),
        (Some(last), true) => last.to_string(),
        (Some(last), false) => format!("{} or {last}", names.join(", ")),
    }
}

/// The valid pairs of run order and policy: "edf with edf, d-order or statistical, fixed-priority with ...".
pub fn pairs_text() -> String {
    let pair = |run: RunPolicy| {
        format!("{} with {}", run.name(), one_of(run.admissions().map(|admission| admission.name)))
    };
    RunPolicy::ALL.map(pair).join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Blocking, Interference, Nanos, Ppm};

    #[test]
    fn policies_are_found_by_name() {
        let blocking = Blocking::Pipeline(Nanos::ZERO);
        let interference = Interference::default();
        let model = StageModel { blocking, interference, utilisation_limit: Ppm::ONE };
        for name in ["edf", "d-order", "fixed-priority", "rmdp", "statistical", "fifo"] {
            assert_eq!(policy_by_name(name, model).unwrap().admission().name, name);
        }
        let unknown = policy_by_name("rr", model).unwrap_err();
        assert_eq!(
            format!("{unknown}"),
            "no admission policy \"rr\": use edf, d-order, fixed-priority, rmdp, statistical or fifo"
        );
    }

    #[test]
    fn each_order_of_serving_has_a_policy_of_its_own() {
        let of_own_name = |run: RunPolicy| run.admissions().next().map(|admission| admission.name);
        for run in RunPolicy::ALL {
            assert_eq!(of_own_name(run), Some(run.name()));
        }
        assert_eq!(
            pairs_text(),
            "edf with edf, d-order or statistical, fixed-priority with fixed-priority, rmdp with rmdp, fifo with fifo"
        );
    }
}
