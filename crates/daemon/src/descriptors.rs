//! How many descriptors the daemon may have, and whether its users' quotas fit in.

use punctual_host::config::HostConfig;
use punctual_host::quotas;
use rustix::process::{Resource, getrlimit};

/// A line where all that users may take does not fit into this process's hard limit.
pub fn warning(config: &HostConfig) -> Option<String> {
    let needed = quotas(&config.daemon).descriptors_needed(config.node.links.len());
    too_few(needed, getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX))
}

fn too_few(needed: u64, limit: u64) -> Option<String> {
    (limit < needed).then(|| {
        format!(
            "the quotas of all users together are {needed} descriptors, and this process may have {limit}: a user can \
             be refused because of others; set LimitNOFILE={needed} in the unit file (elsewhere: ulimit -Hn \
             {needed}), or lower users_max or descriptors_per_user_max in [daemon]"
        )
    })
}

#[cfg(test)]
mod tests {
    use punctual_host::config::DaemonConfig;

    use super::*;

    #[test]
    fn the_unit_file_gives_what_the_defaults_need() {
        let unit = include_str!("../../../examples/systemd/punctuald.service");
        let limit = unit.lines().find_map(|line| line.strip_prefix("LimitNOFILE=")).expect("a limit");
        let limit = limit.parse().expect("a number");
        let needed = quotas(&DaemonConfig::default()).descriptors_needed(64);
        assert_eq!(too_few(needed, limit), None);
        let line = too_few(needed, needed - 1).expect("one is missing");
        assert!(line.contains(&format!("LimitNOFILE={needed}")) && !line.contains('\n'), "{line}");
    }
}
