//! A progress bar on standard error, when that is a terminal; else nothing is written.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};

use crate::units::{About, Count, Elapsed};

/// A bar over `length` things of a run, with what is left to do. Remove it by
/// [`finish_and_clear`](ProgressBar::finish_and_clear) before anything else is printed.
pub fn over_things(length: u64, name: &'static str) -> ProgressBar {
    let style = format!("{{bar:40}} {{position}} of {{length}} {name}, {{eta}} left");
    bar(length, &style, |number| Count(number).to_string())
}

/// The same over bytes.
pub fn over_bytes(length: u64) -> ProgressBar {
    bar(length, "{bar:40} {position} of {length}, {eta} left", |bytes| About(bytes).to_string())
}

/// The same over a time, in milliseconds.
pub fn over_time(length: Duration) -> ProgressBar {
    let milliseconds = u64::try_from(length.as_millis()).unwrap_or(u64::MAX);
    bar(milliseconds, "{bar:40} {position} of {length}", |milliseconds| {
        Elapsed(Duration::from_millis(milliseconds)).to_string()
    })
}

fn bar(length: u64, style: &str, show: fn(u64) -> String) -> ProgressBar {
    let style = ProgressStyle::with_template(style).expect("the templates above have matching braces");
    let style = style
        .with_key("position", move |state: &ProgressState, out: &mut dyn std::fmt::Write| {
            // An error here is one of the buffer that the line is made in, which has none.
            let _ = out.write_str(&show(state.pos()));
        })
        .with_key("length", move |state: &ProgressState, out: &mut dyn std::fmt::Write| {
            let _ = out.write_str(&show(state.len().unwrap_or_default()));
        });
    // Hidden by itself where standard error is no terminal.
    ProgressBar::with_draw_target(Some(length), ProgressDrawTarget::stderr()).with_style(style)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_counts_where_there_is_no_terminal() {
        for bar in [over_things(10, "requests"), over_bytes(10), over_time(Duration::from_millis(10))] {
            bar.inc(4);
            assert_eq!((bar.position(), bar.length()), (4, Some(10)));
            bar.finish_and_clear();
        }
    }
}
