//! How long a caller waits for a connection to open.

use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

/// How often a caller is asked whether it still waits.
const ASK_INTERVAL: Duration = Duration::from_millis(100);

/// A caller's patience: until some time, or as long as it says so.
pub(super) struct Patience<'a> {
    until: Option<Instant>,
    goes_on: Option<&'a mut dyn FnMut() -> bool>,
}

/// Why nothing came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Nothing {
    /// The caller waits no longer.
    GivenUp,
    /// Nobody sends any more.
    Gone,
}

impl<'a> Patience<'a> {
    /// For so long at most; `None`: without limit.
    pub fn of(timeout: Option<Duration>) -> Self {
        Self { until: timeout.and_then(|timeout| Instant::now().checked_add(timeout)), goes_on: None }
    }

    /// While `goes_on` returns true.
    pub fn asking(goes_on: &'a mut dyn FnMut() -> bool) -> Self {
        Self { until: None, goes_on: Some(goes_on) }
    }

    /// Waits for the next message.
    pub fn receive<T>(&mut self, receiver: &Receiver<T>) -> Result<T, Nothing> {
        loop {
            let left = self.until.map(|until| until.saturating_duration_since(Instant::now()));
            let slice = left.or(self.goes_on.is_some().then_some(ASK_INTERVAL));
            let received = match slice {
                Some(slice) => receiver.recv_timeout(slice),
                None => receiver.recv().map_err(|_| RecvTimeoutError::Disconnected),
            };
            match received {
                Ok(message) => return Ok(message),
                Err(RecvTimeoutError::Disconnected) => return Err(Nothing::Gone),
                Err(RecvTimeoutError::Timeout) => {}
            }
            if !self.goes_on.as_mut().is_some_and(|goes_on| goes_on()) {
                return Err(Nothing::GivenUp);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn a_caller_waits_until_it_gives_up() {
        let (sender, receiver) = channel();
        assert_eq!(Patience::of(Some(Duration::ZERO)).receive(&receiver), Err(Nothing::GivenUp));
        let mut asked = 0;
        let mut goes_on = || {
            asked += 1;
            asked < 3
        };
        assert_eq!(Patience::asking(&mut goes_on).receive(&receiver), Err(Nothing::GivenUp));
        assert_eq!(asked, 3);
        sender.send(7).expect("it is there");
        assert_eq!(Patience::of(Some(Duration::ZERO)).receive(&receiver), Ok(7), "what is there is taken");
        sender.send(8).expect("it is there");
        assert_eq!(Patience::of(None).receive(&receiver), Ok(8));
        drop(sender);
        assert_eq!(Patience::of(None).receive(&receiver), Err(Nothing::Gone));
    }
}
