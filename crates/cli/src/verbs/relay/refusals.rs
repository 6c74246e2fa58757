//! Refusals of connections from the network.

use punctual::tcp::TcpError;

/// The refusal that was printed last. A full quota refuses each attempt to accept in the same way, and there are ten attempts a
/// second.
#[derive(Default)]
pub(super) struct Refusals {
    last: Option<String>,
}

impl Refusals {
    /// The line to print about an attempt, if it failed otherwise than the one before.
    pub fn news(&mut self, error: Option<&TcpError>) -> Option<&str> {
        let line = error.map(|error| punctual::one_line(error));
        let is_same = line == self.last;
        self.last = line;
        self.last.as_deref().filter(|_| !is_same)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_printed_once_while_it_stays() {
        let [full, other] = ["the quota is full", "no descriptors"].map(|why| TcpError::Qos(why.into()));
        let mut refusals = Refusals::default();
        assert_eq!(refusals.news(None), None);
        for _ in 0..2 {
            assert_eq!(refusals.news(Some(&full)), Some("the quota is full"));
            assert_eq!(refusals.news(Some(&full)), None);
            assert_eq!(refusals.news(Some(&other)), Some("no descriptors"));
            assert_eq!(refusals.news(None), None, "one was accepted, or it waits for one");
        }
    }
}
