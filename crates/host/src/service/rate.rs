//! Measures a link for a client: the request comes here, and the answer follows when the node has measured.

use punctual_ipc::api::{Answer, ApiError};
use punctual_proto::api::{MeasuredRate, RateRefusal};
use punctual_proto::ids::LinkId;

use super::quota::is_privileged;
use super::requests::Outcome;
use super::{ClientId, Host, Service};

impl<H: Host> Service<H> {
    /// Filling a link delays the traffic of other users. Therefore only root and the daemon's own user may
    /// request it.
    pub(super) fn measure_rate(&mut self, client: ClientId, call: u64, name: String) -> Outcome {
        let (user, own) = (self.user_of(client), rustix::process::geteuid().as_raw());
        if !is_privileged(user) {
            let who = format!("user {} may not measure links: run this as root, or as user {own}", user.0);
            return Err(ApiError::Forbidden(who));
        }
        let wanted = name.clone();
        let begun = self.on_node(move |node, now| {
            let link = node.link_named(&wanted)?;
            Ok((link, node.measure_rate(link, now)))
        })?;
        match begun {
            Err(names) => {
                let names: Vec<String> = names;
                let there = names.join(", ");
                Err(ApiError::Malformed(format!("no link \"{name}\": this host has {there}")))
            }
            Ok((_, Err(why))) => Err(ApiError::MeasureRate { link: name, why }),
            Ok((link, Ok(()))) => {
                self.measuring.push((link, client, call));
                Ok(None)
            }
        }
    }

    /// Reports the result to the log and to the waiting client.
    pub(super) fn rate_measured(&mut self, link: LinkId, result: Result<MeasuredRate, RateRefusal>) {
        self.host.rate_measured(link, result);
        let known = self.on_node(move |node, _| (node.rate_status(link), node.link_name(link).to_owned()));
        let (done, waiting): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.measuring).into_iter().partition(|(of, ..)| *of == link);
        self.measuring = waiting;
        for (_, client, call) in done {
            let answer = match (&known, result) {
                (Ok((status, _)), Ok(_)) => Ok(Answer::Rate(*status)),
                (Ok((_, name)), Err(why)) => Err(ApiError::MeasureRate { link: name.clone(), why }),
                (Err(_), _) => Err(ApiError::ShuttingDown),
            };
            self.answer(client, call, answer, Vec::new());
        }
    }
}
