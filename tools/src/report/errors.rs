//! What went wrong in a run: all counted, the first ones kept.

use super::{Row, Value};

/// Messages that are kept.
const KEPT: usize = 16;

/// Errors of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Errors {
    count: u64,
    messages: Vec<String>,
}

impl Errors {
    /// Counts one, and keeps its message if it is among the first 16.
    pub fn add(&mut self, message: impl Into<String>) {
        self.count += 1;
        if self.messages.len() < KEPT {
            self.messages.push(message.into());
        }
    }

    /// Counts `count` more of those before, whose messages nobody has kept.
    pub fn count_more(&mut self, count: u64) {
        self.count += count;
    }

    /// Adds a reason to the first of them, which a summary shows; without one it is an error itself.
    pub fn explain(&mut self, reason: &str) {
        match self.messages.first_mut() {
            Some(first) => *first += &format!("; {reason}"),
            None => self.add(reason),
        }
    }

    /// How many there were.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The first ones.
    pub fn messages(&self) -> &[String] {
        &self.messages
    }

    /// All in one line. `None`: there was none.
    pub fn summary(&self) -> Option<String> {
        let first = self.messages.first()?;
        match self.count {
            1 => Some(first.clone()),
            count => Some(format!("{first} (and {} more)", count - 1)),
        }
    }

    pub(super) fn rows(&self) -> Vec<Row> {
        let mut rows = vec![Row::both("errors", "errors", Value::Count(self.count))];
        rows.extend(self.messages.iter().map(|message| Row::table("", Value::Text(message.clone()))));
        let more = self.count - self.messages.len() as u64;
        if more > 0 {
            rows.push(Row::table("", Value::Text(format!("and {more} more"))));
        }
        rows.push(Row::json("error_messages", Value::Texts(self.messages.clone())));
        rows
    }
}
