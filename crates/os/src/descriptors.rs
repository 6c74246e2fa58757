//! How many file descriptors a process may have.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the soft limit of this process to its hard one, which is returned: the soft one is low for programs that use
/// `select`. It stays as it is if the kernel refuses.
pub fn raise_limit() -> u64 {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current != maximum {
        // A caller that needs more finds out when descriptors run out, or by the limit itself.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
    }
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_soft_limit_is_raised_to_the_hard_one() {
        let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
        setrlimit(Resource::Nofile, Rlimit { current: Some(512), maximum }).expect("lowered");
        assert_eq!(raise_limit(), maximum.unwrap_or(u64::MAX));
        assert_eq!(getrlimit(Resource::Nofile).current, maximum);
    }
}
