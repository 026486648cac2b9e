//! A report as one page for a browser, with plots.
//!
//! The page holds everything it shows: style, drawings as SVG, and each drawing's numbers as a table beside it. It has no script, asks
//! no network and forbids itself both, so it can be sent on and shown anywhere. It is HTML that is also well-formed XML. What is not
//! known, or of which nothing can be drawn, is said in words.

mod bytes;
mod hits;
mod latency;
pub(super) mod markup;
mod throughput;

use std::time::{Duration, SystemTime, UNIX_EPOCH};

pub use super::machine::Machine;

use super::{Report, Value, statistics};
use crate::units::Elapsed;
use markup::Text;

/// What a page says of its run beside the report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Context {
    /// The command line: the program's name and its arguments.
    pub command_line: Vec<String>,
    /// When the run began.
    pub began: SystemTime,
    /// Where.
    pub machine: Machine,
    /// The version of the program, and how it was built.
    pub version: String,
}

impl Context {
    /// Of a run of this program on this machine.
    pub fn new(command_line: Vec<String>, began: SystemTime) -> Self {
        Self { command_line, began, machine: Machine::this(), version: version() }
    }
}

fn version() -> String {
    let build = if cfg!(debug_assertions) { UNOPTIMISED } else { "release build" };
    format!("{}, {build}, {}", env!("CARGO_PKG_VERSION"), std::env::consts::ARCH)
}

/// What the version of a program says whose times say little.
const UNOPTIMISED: &str = "debug build";

/// The page of a report, as a text in UTF-8.
pub fn html(report: &Report, context: &Context) -> String {
    let title = format!("tentpeg {}", report.command);
    let statistics = report.statistics.as_ref().map(statistics::section).unwrap_or_default();
    let figures =
        [throughput::figure(report), latency::figures(report), hits::figure(report), bytes::figure(report), statistics];
    let figures = figures.concat();
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"{CONTENT_SECURITY_POLICY}\"/>\n\
         <meta name=\"color-scheme\" content=\"light dark\"/>\n\
         <title>{title}, {date}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n{header}{table}{figures}</main>\n\
         <footer>Made by tentpeg {version}. This page is complete: it loads nothing and runs nothing.</footer>\n</body>\n</html>\n",
        title = Text(&title),
        date = Text(&date(context.began)),
        header = header(report, context, &title),
        table = table(report, context),
        version = Text(&context.version),
    )
}

/// Nothing but the style in the page itself, so that even markup that got into it by mistake could do nothing.
pub const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'";

const STYLE: &str = include_str!("page/style.css");

fn header(report: &Report, context: &Context, title: &str) -> String {
    let tile = |(name, value): (&str, String)| format!("<div><dt>{}</dt><dd>{}</dd></div>\n", Text(name), Text(&value));
    let tiles: String = tiles(report).into_iter().map(tile).collect();
    format!(
        "<header>\n<h1>{}</h1>\n<p class=\"when\">{}</p>\n<pre class=\"command\"><code>{}</code></pre>\n{}<dl class=\"tiles\">\n{tiles}</dl>\n</header>\n",
        Text(title),
        Text(&format!("{}, {}", report.device, date(context.began))),
        Text(&command_line(&context.command_line)),
        notices(report, context),
    )
}

/// The numbers that are looked at first.
fn tiles(report: &Report) -> Vec<(&'static str, String)> {
    let rows = report.all_rows();
    let of = |key: &str| rows.iter().find(|row| row.key == Some(key)).map(|row| row.value.to_string());
    let share = |part: u64, of: u64| format!("{:.1}%", part as f64 * 100.0 / of as f64);
    let tiles = [
        ("throughput", of("bytes_per_second")),
        ("blocks a second", of("blocks_per_second")),
        ("hits", report.hits.filter(|hits| hits.of > 0).map(|hits| share(hits.hits, hits.of))),
        ("median latency", of("latency_p50_ns")),
        ("99th percentile", of("latency_p99_ns")),
        ("errors", Some(Value::Count(report.errors.count()).to_string())),
    ];
    tiles.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
}

/// What must be known before a number of the page is believed.
fn notices(report: &Report, context: &Context) -> String {
    let mut notices = String::new();
    if let Some(errors) = report.errors.summary() {
        notices += &format!("<p class=\"notice wrong\" role=\"alert\">The run had errors: {}</p>\n", Text(&errors));
    }
    if report.interrupted {
        notices += "<p class=\"notice\">The run was interrupted: the numbers are of what was done so far.</p>\n";
    }
    if context.version.contains(UNOPTIMISED) {
        notices += "<p class=\"notice\">Made by a debug build: times and rates say little of a release build.</p>\n";
    }
    notices
}

/// Every row of the report's own table, and the machine.
fn table(report: &Report, context: &Context) -> String {
    let rows = report.all_rows();
    let shown = |row: &super::Row| Some((row.label?, row.value.to_string()));
    let mut machine = vec![("tentpeg", context.version.clone()), ("began", date(context.began))];
    machine.extend(context.machine.rows().iter().filter_map(shown));
    format!(
        "<section class=\"card\">\n<h2>The run</h2>\n{}<h2>The machine</h2>\n{}</section>\n",
        markup::list(rows.iter().filter_map(shown)),
        markup::list(machine),
    )
}

/// A moment, in UTC: `2026-01-31 12:00:00 UTC`.
fn date(moment: SystemTime) -> String {
    /// The last second that has four digits for its year.
    const LAST: Duration = Duration::from_secs(253_402_300_799);
    match moment.duration_since(UNIX_EPOCH) {
        Ok(since) if since <= LAST => {
            let text = humantime::format_rfc3339_seconds(moment).to_string();
            text.replace('T', " ").replace('Z', " UTC")
        }
        Ok(since) => format!("{} after 1970", Elapsed(since)),
        Err(error) => format!("{} before 1970", Elapsed(error.duration())),
    }
}

/// A command line as a shell takes it.
fn command_line(words: &[String]) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_=+:,./%@".contains(c);
    let word = |word: &String| match word.chars().all(plain) && !word.is_empty() {
        true => word.clone(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    };
    words.iter().map(word).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests;
