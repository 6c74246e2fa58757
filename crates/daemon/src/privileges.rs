//! Drops the privileges that `punctuald` does not need for its configuration, once its profile is settled.
//!
//! Capabilities belong to threads and are inherited: they are dropped on the first thread, before links and
//! engine create others. They are dropped permanently (permitted and bounding set, `NO_NEW_PRIVS`): neither a
//! bug in the daemon nor a program that it might be made to run gets them back.

use punctual_host::config::HostConfig;
use rustix::io::Errno;
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, remove_capability_from_bounding_set, set_capabilities,
    set_no_new_privs,
};

/// Real-time classes (its own, NAPI threads', co-scheduled programs'), locked memory, socket buffers beyond the system's
/// limit, priorities and devices of sockets.
const ALWAYS: CapabilitySet =
    CapabilitySet::SYS_NICE.union(CapabilitySet::IPC_LOCK).union(CapabilitySet::NET_ADMIN);

/// The capabilities that a host with this configuration needs while it runs.
pub fn needed(config: &HostConfig) -> CapabilitySet {
    // A listener's port is held by a socket of the kernel, whatever the driver.
    let ports = match config.has_tcp_listeners() {
        true => CapabilitySet::NET_BIND_SERVICE,
        false => CapabilitySet::empty(),
    };
    config.drivers.iter().fold(ALWAYS.union(ports), |rights, link| rights.union(link.driver().rights()))
}

/// Drops all other capabilities of the calling thread, and of every thread and program that it starts.
/// Returns the remaining ones: those of `needed` that it had.
///
/// # Errors
/// The system's error.
pub fn confine(needed: CapabilitySet) -> Result<CapabilitySet, Errno> {
    let own = capabilities(None)?;
    if own.effective.contains(CapabilitySet::SETPCAP) {
        for capability in CapabilitySet::all().difference(needed).iter() {
            match remove_capability_from_bounding_set(capability) {
                // A capability that this kernel does not have.
                Ok(()) | Err(Errno::INVAL) => {}
                Err(error) => return Err(error),
            }
        }
    }
    let left = own.permitted.intersection(needed);
    set_capabilities(
        None,
        CapabilitySets { effective: left, permitted: left, inheritable: CapabilitySet::empty() },
    )?;
    set_no_new_privs(true)?;
    Ok(left)
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::process::Command;

    use rustix::thread::no_new_privs;

    use super::*;

    fn host(link: &str) -> HostConfig {
        let text = format!(
            "node.name = \"a\"\nsignalling.key = \"{}\"\nhost = [{{ name = \"a\", id = 1 }}, {{ name = \"b\", id = 2 }}]\n\
             [[link]]\nname = \"l\"\nneighbour = \"b\"\nrate = \"1Gbit/s\"\n{link}",
            "0".repeat(64)
        );
        punctual_host::config::parse(&text, Path::new("host.toml")).expect("a host")
    }

    #[test]
    fn a_daemon_keeps_the_rights_that_its_link_drivers_need() {
        let ends = "local = \"10.0.0.1\"\npeer = \"10.0.0.2\"\ndevice = \"eth9\"";
        assert_eq!(needed(&host("driver = \"memory\"")), ALWAYS);
        let udp = CapabilitySet::NET_BIND_SERVICE;
        assert_eq!(needed(&host(&format!("driver = \"udp\"\n{ends}"))), ALWAYS.union(udp));
        let xdp = CapabilitySet::NET_RAW.union(CapabilitySet::BPF);
        assert_eq!(needed(&host(&format!("driver = \"xdp\"\n{ends}"))), ALWAYS.union(xdp));
        let connects = format!("driver = \"xdp\"\nflows_max = 8\n{ends}");
        assert_eq!(needed(&host(&connects)), ALWAYS.union(xdp), "local ports of connections need no right");
        let listens = format!("driver = \"xdp\"\nflows_max = 8\nlisteners_max = 1\n{ends}");
        assert_eq!(needed(&host(&listens)), ALWAYS.union(xdp).union(CapabilitySet::NET_BIND_SERVICE));
    }

    /// Runs on a thread of its own, because capabilities belong to a thread.
    #[test]
    fn what_is_laid_down_never_comes_back() {
        let needed = CapabilitySet::SYS_NICE;
        std::thread::spawn(move || {
            let before = capabilities(None).expect("capabilities").permitted;
            let left = confine(needed).expect("confined");
            assert_eq!(left, before.intersection(needed));
            let now = capabilities(None).expect("capabilities");
            assert_eq!((now.effective, now.permitted), (left, left));
            assert!(no_new_privs().expect("known"));
            assert!(
                set_capabilities(None, CapabilitySets { permitted: CapabilitySet::all(), ..now }).is_err()
            );
            // A program of root gets what the bounding set permits, and no more.
            let status = Command::new("cat").arg("/proc/self/status").output().expect("cat").stdout;
            let status = String::from_utf8_lossy(&status).into_owned();
            let permitted = status.lines().find_map(|line| line.strip_prefix("CapPrm:")).expect("a line");
            let permitted = u64::from_str_radix(permitted.trim(), 16).expect("hexadecimal");
            assert!(left.contains(CapabilitySet::from_bits_retain(permitted)), "{status}");
        })
        .join()
        .expect("no panic");
    }
}
