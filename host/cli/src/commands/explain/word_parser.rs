//! The argument: any text is taken, so that a wrong word gets a good answer; shells complete the known ones.

use std::ffi::OsStr;

use clap::builder::{PossibleValue, StringValueParser, TypedValueParser};
use cofferdam_egress::resilience::PROFILES;

use crate::explain::{self, ExternalRetry};

/// Takes any text, and knows the words that are explained.
#[derive(Debug, Clone)]
pub(super) struct WordParser;

impl TypedValueParser for WordParser {
    type Value = String;

    fn parse_ref(
        &self,
        command: &clap::Command,
        arg: Option<&clap::Arg>,
        value: &OsStr,
    ) -> Result<String, clap::Error> {
        StringValueParser::new().parse_ref(command, arg, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        // Shells take what has spaces in it for several words.
        let words = explain::words().into_iter().filter(|word| !word.contains(' '));
        Some(Box::new(words.chain(PROFILES).map(PossibleValue::new)))
    }
}

/// What a document says of trying again.
pub(super) fn theirs(theirs: ExternalRetry) -> &'static str {
    match theirs {
        ExternalRetry::Yes => "yes",
        ExternalRetry::No => "no",
        ExternalRetry::Maybe => "maybe",
        ExternalRetry::Silent => "it does not say",
    }
}
