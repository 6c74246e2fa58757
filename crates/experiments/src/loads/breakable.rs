//! A channel whose end is a result and no error: if a load breaks its path, messages sent from then on count
//! as lost, and the run continues.

use std::sync::{Arc, OnceLock};

use punctual::{Instant, RecvError, SendError};
use punctual_os::clock::sleep_until;

use super::{MessageReceiver, MessageSender, Offered};

/// Whether a channel has ended under its load, and why; its two ends share it.
#[derive(Clone, Debug, Default)]
pub struct PathEnd(Arc<OnceLock<String>>);

impl PathEnd {
    /// Why it has ended; `None`: it has not.
    pub fn ended(&self) -> Option<&str> {
        self.0.get().map(String::as_str)
    }

    fn note(&self, why: &anyhow::Error) {
        // The first reported end is kept.
        let _ = self.0.set(why.to_string());
    }
}

/// Both ends of a channel, and how its path ends.
pub fn breakable<O: MessageSender, I: MessageReceiver>(
    sender: O,
    receiver: I,
) -> (Breakable<O>, Breakable<I>, PathEnd) {
    let path_end = PathEnd::default();
    (
        Breakable { end: sender, path_end: path_end.clone() },
        Breakable { end: receiver, path_end: path_end.clone() },
        path_end,
    )
}

/// One end.
pub struct Breakable<E> {
    end: E,
    path_end: PathEnd,
}

impl<E: MessageSender> MessageSender for Breakable<E> {
    fn offer(&mut self, message: &[u8]) -> anyhow::Result<Offered> {
        match self.end.offer(message) {
            Err(error) if matches!(error.downcast_ref(), Some(SendError::Closed(_))) => {
                self.path_end.note(&error);
                Ok(Offered::Taken)
            }
            offered => offered,
        }
    }
}

impl<E: MessageReceiver> MessageReceiver for Breakable<E> {
    fn take(&mut self, message: &mut Vec<u8>, until: Instant) -> anyhow::Result<bool> {
        match self.end.take(message, until) {
            Err(error) if matches!(error.downcast_ref(), Some(RecvError::Closed(_))) => {
                self.path_end.note(&error);
                sleep_until(until);
                Ok(false)
            }
            taken => taken,
        }
    }
}

#[cfg(test)]
mod tests {
    use punctual_proto::api::CloseReason;

    use super::*;
    use punctual::Nanos;
    use punctual_os::clock::now;

    /// An end that returns these results, and then repeats the last one.
    struct Script(Vec<Result<(), Option<CloseReason>>>);

    impl Script {
        fn next(&mut self) -> Result<(), Option<CloseReason>> {
            if self.0.len() > 1 { self.0.remove(0) } else { self.0[0] }
        }
    }

    impl MessageSender for Script {
        fn offer(&mut self, _: &[u8]) -> anyhow::Result<Offered> {
            match self.next() {
                Ok(()) => Ok(Offered::Full),
                Err(Some(reason)) => Err(SendError::Closed(Some(reason)).into()),
                Err(None) => anyhow::bail!("broken"),
            }
        }
    }

    impl MessageReceiver for Script {
        fn take(&mut self, _: &mut Vec<u8>, _: Instant) -> anyhow::Result<bool> {
            match self.next() {
                Ok(()) => Ok(true),
                Err(Some(reason)) => Err(RecvError::Closed(Some(reason)).into()),
                Err(None) => anyhow::bail!("broken"),
            }
        }
    }

    #[test]
    fn a_lost_path_is_a_result_and_other_faults_are_errors() {
        let lost = Err(Some(CloseReason::PathLost));
        let (mut sender, mut receiver, path_end) =
            breakable(Script(vec![Ok(()), lost, lost, Err(None)]), Script(vec![Ok(()), lost, Err(None)]));
        assert_eq!(sender.offer(&[]).expect("it lives"), Offered::Full);
        assert!(receiver.take(&mut Vec::new(), now()).expect("it lives"));
        assert_eq!(path_end.ended(), None);
        for _ in 0..2 {
            assert_eq!(sender.offer(&[]).expect("a result"), Offered::Taken, "taken, and lost");
        }
        let until = now() + Nanos::from_millis(2);
        assert!(!receiver.take(&mut Vec::new(), until).expect("a result") && now() >= until);
        assert!(path_end.ended().is_some_and(|why| why.contains("down")), "{path_end:?}");
        assert!(sender.offer(&[]).is_err() && receiver.take(&mut Vec::new(), now()).is_err());
    }
}
