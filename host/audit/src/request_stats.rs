//! Statistics of requests: their number by connector, operation and host, and by their outcome.

use cofferdam_core::event::recorded::RecordedRequest;

/// The outcome of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RequestResult {
    /// A response with a status below 400.
    Answered,
    /// A response with a status from 400 to 499.
    ClientError,
    /// A response with any other status.
    ServerError,
    /// No response, or not all of it.
    Unanswered,
    /// The host refused to send it.
    Refused,
}

impl RequestResult {
    const ALL: [Self; 5] =
        [Self::Answered, Self::ClientError, Self::ServerError, Self::Unanswered, Self::Refused];
}

/// The properties by which requests are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestKind {
    /// The outcome.
    pub result: RequestResult,
    /// True if its method may change something at the service: it is not GET, HEAD or OPTIONS.
    pub is_write: bool,
    /// True if it is of an attempt after the first one of its call.
    pub is_repeated: bool,
    /// True if it carried the idempotency key of its call.
    pub is_keyed: bool,
}

impl RequestKind {
    /// Returns the kind of a request of an attempt.
    pub(crate) fn new(request: &RecordedRequest<'_>, is_repeated: bool) -> Self {
        Self {
            result: match (&request.phase, request.status, &request.code) {
                (Some(_), ..) => RequestResult::Unanswered,
                (None, Some(..400), _) => RequestResult::Answered,
                (None, Some(400..500), _) => RequestResult::ClientError,
                (None, Some(_), _) => RequestResult::ServerError,
                // Without a phase, the code is that of the refusal.
                (None, None, Some(_)) => RequestResult::Refused,
                (None, None, None) => RequestResult::Unanswered,
            },
            is_write: !matches!(&*request.method, "GET" | "HEAD" | "OPTIONS" | ""),
            is_repeated,
            is_keyed: request.keyed,
        }
    }

    /// Returns the number that it has in the index.
    #[must_use]
    pub fn number(self) -> i64 {
        let flags = [self.is_write, self.is_repeated, self.is_keyed];
        let flags = flags.into_iter().fold(0, |bits, flag| bits << 1 | i64::from(flag));
        self.result as i64 * 8 + flags
    }

    /// Returns the kind with this number; none if there is none.
    #[must_use]
    pub fn from_number(number: i64) -> Option<Self> {
        let position = usize::try_from(number.div_euclid(8)).ok()?;
        let flag = |bit: i64| number & bit != 0;
        Some(Self {
            result: RequestResult::ALL.get(position).copied()?,
            is_write: flag(4),
            is_repeated: flag(2),
            is_keyed: flag(1),
        })
    }
}

/// The requests of one kind of an operation to a host, in ended calls.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestSum {
    /// The connector, as `name@version`.
    pub connector: String,
    /// The operation; empty for a connector that ran as a fallback for another.
    pub op: String,
    /// The host and port.
    pub host: String,
    /// The kind.
    pub kind: RequestKind,
    /// The number of requests.
    pub requests: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_its_number() {
        let kinds: Vec<_> =
            (-9..50).filter_map(|number| Some((number, RequestKind::from_number(number)?))).collect();
        assert_eq!(kinds.len(), 40);
        assert!(kinds.iter().all(|(number, kind)| kind.number() == *number), "{kinds:?}");
    }
}
