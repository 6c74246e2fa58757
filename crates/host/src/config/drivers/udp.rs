//! Kernel sockets.

use std::net::{IpAddr, UdpSocket};
use std::{fs, io};

use punctual_engine::profile::{MeasureError, Wires, udp_wires};
use punctual_link::kernel::FIRST_CLASS;
use punctual_link::{Link, UdpLink, UdpOptions};
use rustix::thread::CapabilitySet;

use super::{CheckedLink, Driver, DriverKind, Ends, LinkDriver, LinkInput, OpeningLink, OpeningLinks};
use crate::config::file::KernelTrafficName;
use crate::config::given::bytes_u32;
use crate::config::{ConfigError, OtherTraffic};
use crate::finding::{ELSEWHERE, Finding};

const FIRST_FOR_ALL: &str = "/proc/sys/net/ipv4/ip_unprivileged_port_start";
/// `SO_PRIORITY` of a socket that needs no privilege for it.
const PRIORITY_DEFAULT: u32 = 6;

pub(super) struct Udp;

impl DriverKind for Udp {
    fn name(&self) -> &'static str {
        "udp"
    }

    fn medium(&self) -> &'static str {
        "kernel sockets"
    }

    fn stays_on_machine(&self) -> bool {
        true
    }

    /// Capability to use ports that ordinary programs may not have (`net.ipv4.ip_unprivileged_port_start`).
    fn rights(&self) -> CapabilitySet {
        CapabilitySet::NET_BIND_SERVICE
    }

    /// Why a link over kernel sockets bounds kernel traffic otherwise, and how.
    fn refuse_keys(&self, input: &LinkInput<'_>) -> Result<(), String> {
        let why = match input.table.kernel_traffic {
            Some(KernelTrafficName::Shaped) => {
                "only for driver \"xdp\"; here kernel_traffic = \"shaped\" is enough, kernel traffic waits \
                 behind ours and gets what that leaves: leave it out"
            }
            _ => {
                "only for driver \"xdp\"; on a udp link kernel_traffic = \"shaped\" bounds kernel traffic: set that \
                 instead"
            }
        };
        input.has_none_of(&["kernel_rate", "kernel_rate_max"], why)
    }

    fn read(&self, input: &LinkInput<'_>) -> Result<Box<dyn LinkDriver>, ConfigError> {
        let Some(ends) = input.ends() else {
            return Err(input.refuse("driver \"udp\" needs local and peer: give two IP addresses"));
        };
        let (table, link) = (input.table, input.link);
        let is_shaped = matches!(input.other_traffic, OtherTraffic::Behind(_));
        if is_shaped && table.socket_priority.is_some() {
            return Err(
                input.refuse("socket_priority follows from kernel_traffic = \"shaped\": leave it out")
            );
        }
        let default = UdpOptions::new(ends.local, ends.peer, ends.ports[0], ends.ports[1]);
        let buffer = default.socket_buffer_bytes as u32;
        let buffer = bytes_u32(&table.socket_buffer, buffer, "socket_buffer", input.source, input.at)?;
        Ok(Box::new(UdpOptions {
            peer_data_port: ends.peer_ports[0],
            peer_signalling_port: ends.peer_ports[1],
            device: table.device.clone(),
            packet_bytes_max: link.packet_bytes_max as usize,
            frames: link.frames,
            socket_buffer_bytes: buffer as usize,
            socket_buffer_required: !input.is_best_effort_host(),
            priority: match is_shaped {
                true => FIRST_CLASS,
                false => table.socket_priority.map_or(default.priority, u32::from),
            },
            ..default
        }))
    }

    /// Links of one address to several neighbours use the same ports.
    fn complete(&self, links: &mut [Box<dyn LinkDriver>]) {
        let end = |link: &dyn LinkDriver| {
            link.settings::<UdpOptions>().map(|udp| (udp.local, udp.data_port, udp.signalling_port))
        };
        let ends: Vec<_> = links.iter().map(|link| end(&**link)).collect();
        for (link, end) in links.iter_mut().zip(&ends) {
            if let Some(udp) = link.settings_mut::<UdpOptions>() {
                udp.shared_port = ends.iter().filter(|other| *other == end).count() > 1;
            }
        }
    }

    fn open(&self, opening: OpeningLinks<'_>) -> Result<Vec<Box<dyn Link>>, ConfigError> {
        let open = |OpeningLink { name, settings, watched }: OpeningLink<'_>| {
            let options = settings.settings::<UdpOptions>()?;
            let failed = |error| ConfigError::Link { name: name.to_owned(), error };
            Some(UdpLink::open(options).map_err(failed).map(|mut link| {
                watched.into_iter().for_each(|watched| link.watch(watched));
                Box::new(link) as Box<dyn Link>
            }))
        };
        opening.links.into_iter().filter_map(open).collect()
    }

    fn packet_cost(&self) -> u8 {
        200
    }

    fn wires(&self) -> Result<Wires, MeasureError> {
        Ok(udp_wires()?)
    }
}

impl LinkDriver for UdpOptions {
    fn driver(&self) -> Driver {
        Driver::UDP
    }

    fn ends(&self) -> Option<Ends> {
        Some(Ends {
            local: self.local,
            ports: [self.data_port, self.signalling_port],
            peer: self.peer,
            peer_ports: [self.peer_data_port, self.peer_signalling_port],
        })
    }

    fn device(&self) -> Option<&str> {
        self.device.as_deref()
    }

    fn run_without_privileges(&mut self) {
        self.socket_buffer_required = false;
        if self.priority == FIRST_CLASS {
            self.priority = PRIORITY_DEFAULT;
        }
    }

    fn examine(&self, link: &CheckedLink<'_>, serving: bool) -> Vec<Finding> {
        let ports = [self.data_port, self.signalling_port];
        let mut findings = vec![address(link.name, self.local, link.is_known)];
        findings.extend(first_for_all().map(|first| keeping(link.name, ports, first)));
        if !serving {
            findings.extend(ports.map(|number| port(link.name, self.local, number)));
        }
        findings
    }
}

/// Whether the address is this host's.
fn address(link: &str, local: IpAddr, is_known: bool) -> Finding {
    match UdpSocket::bind((local, 0)) {
        Ok(_) => Finding::ok("link address", format!("{link}: {local} is this host's")),
        Err(_) if is_known => {
            let found = format!(
                "{link}: {local} is not in this network namespace, but the daemon that answers has it"
            );
            Finding::note("link address", found, ELSEWHERE)
        }
        Err(error) => {
            let fix =
                format!("ip address add {local}/24 dev INTERFACE, or correct \"local\" of link \"{link}\"");
            Finding::problem("link address", format!("{link}: {local}: {error}"), fix)
        }
    }
}

/// The first port that any program may take.
fn first_for_all() -> Option<u16> {
    fs::read_to_string(FIRST_FOR_ALL).ok()?.trim().parse().ok()
}

/// Whether the ports stay the daemon's while it does not run.
fn keeping(link: &str, ports: [u16; 2], first_for_all: u16) -> Finding {
    let [data, signalling] = ports;
    let found = |what| format!("{link}: UDP ports {data} and {signalling} {what}");
    if ports.iter().all(|port| *port < first_for_all) {
        return Finding::ok("link port", found("are for privileged programs only"));
    }
    let last = data.max(signalling);
    let fix = format!(
        "beside programs that are not trusted: sysctl net.ipv4.ip_unprivileged_port_start={}, or ports below \
         {first_for_all}",
        last.saturating_add(1)
    );
    Finding::note("link port", found("are any program's while the daemon does not run"), fix)
}

fn port(link: &str, local: IpAddr, port: u16) -> Finding {
    match UdpSocket::bind((local, port)) {
        Ok(_) => Finding::ok("link port", format!("{link}: UDP {local}:{port} is free")),
        // The address has its own finding.
        Err(error) if error.kind() == io::ErrorKind::AddrNotAvailable => Finding::note(
            "link port",
            format!("{link}: UDP port {port} not tried"),
            "correct the address first",
        ),
        Err(error) => {
            let fix = format!(
                "find the program that uses it: ss -ulpn 'sport = :{port}'; stop it, or choose \
                               another port"
            );
            Finding::problem("link port", format!("{link}: UDP {local}:{port}: {error}"), fix)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::State;

    #[test]
    fn ports_that_any_program_may_take_are_reported() {
        let reported = keeping("l", [7_411, 7_412], 1_024);
        assert_eq!(reported.state, State::Note);
        assert!(
            reported.fix.contains("port_start=7413") && reported.fix.contains("below 1024"),
            "{}",
            reported.fix
        );
        for (ports, first) in [([7_411, 7_412], 7_413), ([700, 701], 1_024)] {
            assert_eq!(keeping("l", ports, first).state, State::Ok);
        }
        assert_eq!(keeping("l", [7_411, 7_412], 7_412).state, State::Note);
    }

    #[test]
    fn findings_name_what_is_wrong() {
        let local: IpAddr = [127, 0, 0, 1].into();
        let taken = UdpSocket::bind((local, 0)).expect("a port");
        let number = taken.local_addr().expect("an address").port();
        let finding = port("l", local, number);
        assert_eq!(finding.state, State::Problem);
        assert!(finding.fix.contains(&number.to_string()));
        drop(taken);
        // A process that another test starts may hold a copy of the socket until it runs its own program.
        let until = std::time::Instant::now() + std::time::Duration::from_secs(20);
        while port("l", local, number).state != State::Ok {
            assert!(std::time::Instant::now() < until, "the port is free again");
            std::thread::yield_now();
        }
        assert_eq!(address("l", [192, 0, 2, 1].into(), false).state, State::Problem);
        let elsewhere = address("l", [192, 0, 2, 1].into(), true);
        assert_eq!((elsewhere.state, elsewhere.fix.as_str()), (State::Note, ELSEWHERE));
    }
}
