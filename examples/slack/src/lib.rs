//! Posts messages, adds reactions and lists channels on Slack.

mod api;
#[cfg(test)]
mod tests;

use cofferdam_guest::http;
use cofferdam_guest::{Failure, connector, log};

connector!("wit/slack.wit", Slack);

struct Slack;

/// The number of channels listed by default.
const LIMIT: u32 = 100;
/// The most a caller can ask for.
const MOST: u32 = 1000;
/// The page size that Slack recommends.
const PER_PAGE: usize = 200;
/// Responses read for one list: Slack may give fewer channels than asked for, though there are more.
const PAGES: u32 = 20;

impl Guest for Slack {
    fn post_message(channel: String, text: String, thread: Option<String>) -> Result<Message, Failure> {
        present("channel", &channel)?;
        present("text", &text)?;
        let posted: api::Posted = api::answer(
            http::post(api::url("chat.postMessage"))
                .form_nested(&api::NewMessage { channel, text, thread_ts: thread })
                .send()?,
        )?;
        Ok(Message { channel: posted.channel, timestamp: posted.ts })
    }

    fn add_reaction(channel: String, timestamp: String, emoji: String) -> Result<(), Failure> {
        let name = emoji.trim_matches(':');
        for (field, value) in [("channel", channel.as_str()), ("timestamp", &timestamp), ("emoji", name)] {
            present(field, value)?;
        }
        let pairs = [("channel", channel.as_str()), ("timestamp", &timestamp), ("name", name)];
        let response = http::post(api::url("reactions.add")).form(pairs).send()?;
        match api::answer(response) {
            Ok(api::Done {}) => Ok(()),
            Err(refused) if refused.is("already_reacted") => Ok(()),
            Err(refused) => Err(refused.into()),
        }
    }

    fn list_channels(limit: Option<u32>) -> Result<Channels, Failure> {
        let limit = limit.unwrap_or(LIMIT);
        if !(1..=MOST).contains(&limit) {
            return Err(Failure::invalid_input("limit", format!("must be from 1 to {MOST}")));
        }
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let mut channels = Vec::new();
        let mut cursor = None;
        for read in 1..=PAGES {
            let request = http::get(api::url("conversations.list"))
                .query("exclude_archived", true)
                .query("limit", limit.min(PER_PAGE))
                .query_opt("cursor", cursor.as_ref());
            let page: api::Page = api::answer(request.send()?)?;
            let next = page.next();
            channels.extend(page.channels.into_iter().map(Channel::from));
            log::debug("page read", &[("page", &read), ("channels", &channels.len())]);
            if next.is_none() || channels.len() >= limit {
                let more = next.is_some() || channels.len() > limit;
                channels.truncate(limit);
                return Ok(Channels { channels, more });
            }
            if next == cursor {
                return Err(Failure::failed("cursor_repeats", "Slack gave the same page again and again."));
            }
            cursor = next;
        }
        Ok(Channels { channels, more: true })
    }
}

/// An argument that must not be empty.
fn present(field: &str, value: &str) -> Result<(), Failure> {
    if value.trim().is_empty() {
        return Err(Failure::invalid_input(field, "must not be empty"));
    }
    Ok(())
}
