//! Reading numbers of the command line: one message for whatever is wrong with one.

use std::fmt::Display;
use std::str::FromStr;

/// A parser of the numbers from `least` to `most`, which says that range of anything else: of a sign, a letter, a larger number.
pub fn number<N: FromStr>(
    least: u64,
    most: impl Into<u64> + Copy,
) -> impl Fn(&str) -> Result<N, String> + Clone + Send + Sync + 'static {
    let most = most.into();
    move |text: &str| {
        let number = text.parse::<u64>().ok().filter(|number| (least..=most).contains(number));
        let wrong = || format!("write a whole number from {least} to {most}");
        number.and_then(|_| text.parse().ok()).ok_or_else(wrong)
    }
}

/// What is wrong with a command line, on one line: without the usage, and the tip to ask for help.
pub fn one_line(error: &impl Display) -> String {
    let text = error.to_string();
    let text = text.strip_prefix("error: ").unwrap_or(&text);
    let told = text.lines().take_while(|line| !line.starts_with("Usage:") && !line.starts_with("For more information"));
    told.map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_read_within_its_range_and_refused_with_it() {
        let read = number::<u32>(1, u32::MAX);
        assert_eq!((read("1"), read("4294967295")), (Ok(1), Ok(u32::MAX)));
        for text in ["0", "-1", "4294967296", "99999999999999999999", "x", "", "1.5", "1k"] {
            assert_eq!(read(text), Err("write a whole number from 1 to 4294967295".to_owned()), "{text}");
        }
        assert_eq!(number::<u64>(0, u64::MAX)("18446744073709551615"), Ok(u64::MAX));
    }

    #[test]
    fn a_wrong_command_line_is_told_in_one() {
        let text =
            "error: the following were not provided:\n  --a <A>\n\nUsage: x\n\nFor more information, try '--help'.\n";
        assert_eq!(one_line(&text), "the following were not provided: --a <A>");
    }
}
