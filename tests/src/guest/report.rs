//! How each test ended, from guest to host: lines of text on a serial port.
//!
//! `tentpeg<TAB>begun` first, then `tentpeg<TAB>word<TAB>test<TAB>reason`, and at the end `tentpeg<TAB>done<TAB>count`. A
//! report without that last line, or with another count, is of a guest that did not come to its end; one without the first
//! of a guest whose kernel did not come to its first program. `tentpeg<TAB>wish<TAB>what` asks something of the
//! host on the way, `tentpeg<TAB>fact<TAB>name<TAB>text` tells it something.

use std::io::{self, Write};

use crate::device_tests::{Ending, Verdict, word};

const MARK: &str = "tentpeg";

/// What a guest can ask of the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wish {
    /// That the controller which is there for it be asked back.
    Unplug,
}

impl Wish {
    const ALL: [Self; 1] = [Self::Unplug];

    fn word(self) -> &'static str {
        match self {
            Self::Unplug => "unplug",
        }
    }
}

/// What a report wishes for so far, in its order. A line that is not whole yet says nothing.
pub fn wishes(text: &str) -> impl Iterator<Item = Wish> {
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    whole.lines().filter_map(|line| {
        let wish = line.trim_end_matches('\r').strip_prefix(MARK)?.strip_prefix("\twish\t")?;
        Wish::ALL.into_iter().find(|known| known.word() == wish)
    })
}

/// Whether there is a report at all.
pub fn has_begun(text: &str) -> bool {
    text.lines().any(|line| line.trim_end_matches('\r').strip_prefix(MARK) == Some("\tbegun"))
}

/// What a report says beside verdicts, under this name.
pub fn fact<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|line| {
        let (of, said) = line.trim_end_matches('\r').strip_prefix(MARK)?.strip_prefix("\tfact\t")?.split_once('\t')?;
        (of == name).then_some(said)
    })
}

/// Writes verdicts, one line each.
pub struct Writer<W> {
    to: W,
    count: usize,
}

impl<W: Write> Writer<W> {
    /// A report to `to`, from its first line on.
    ///
    /// # Errors
    /// What writing gives.
    pub fn begin(to: W) -> io::Result<Self> {
        let mut report = Self::amid(to);
        report.line(&["begun"])?;
        Ok(report)
    }

    /// A report to `to` that was begun elsewhere.
    pub fn amid(to: W) -> Self {
        Self { to, count: 0 }
    }

    /// Adds a test's verdict.
    ///
    /// # Errors
    /// What writing gives.
    pub fn verdict(&mut self, test: &str, verdict: &Verdict) -> io::Result<()> {
        self.count += 1;
        let reason = match verdict {
            Ok(()) => "",
            Err(Ending::Skipped(reason) | Ending::Failed(reason)) => reason,
        };
        self.line(&[word(verdict), test, reason])
    }

    /// Asks something of the host.
    ///
    /// # Errors
    /// What writing gives.
    pub fn wish(&mut self, wish: Wish) -> io::Result<()> {
        self.line(&["wish", wish.word()])
    }

    /// Says something that is no verdict, on one line.
    ///
    /// # Errors
    /// What writing gives.
    pub fn fact(&mut self, name: &str, said: &str) -> io::Result<()> {
        self.line(&["fact", name, said])
    }

    /// Ends the report.
    ///
    /// # Errors
    /// What writing gives.
    pub fn done(mut self) -> io::Result<()> {
        let count = self.count.to_string();
        self.line(&["done", &count])
    }

    fn line(&mut self, fields: &[&str]) -> io::Result<()> {
        // A field is on one line and has no tab; the same text comes out on the other side but for these.
        let fields: Vec<_> = fields.iter().map(|field| field.replace(char::is_control, " ")).collect();
        self.to.write_all(format!("{MARK}\t{}\n", fields.join("\t")).as_bytes())?;
        self.to.flush()
    }
}

/// Reads a report: each test with its verdict.
///
/// # Errors
/// What is wrong with the report, in words.
pub fn read(text: &str) -> Result<Vec<(String, Verdict)>, String> {
    let mut verdicts = Vec::new();
    for line in text.lines() {
        let mut fields = line.trim_end_matches('\r').split('\t');
        if fields.next() != Some(MARK) {
            continue;
        }
        let (word, test, reason) = (fields.next(), fields.next().unwrap_or_default(), fields.next());
        let reason = reason.unwrap_or_default().to_owned();
        let verdict = match word {
            Some("passed") => Ok(()),
            Some("skipped") => Err(Ending::Skipped(reason)),
            Some("FAILED") => Err(Ending::Failed(reason)),
            Some("begun" | "wish" | "fact") => continue,
            Some("done") if test == verdicts.len().to_string() => return Ok(verdicts),
            Some("done") => return Err(format!("the guest ran {test} tests, {} were reported", verdicts.len())),
            _ => return Err(format!("no report: {line:?}")),
        };
        verdicts.push((test.to_owned(), verdict));
    }
    Err(format!("the guest stopped after {} tests, the last of which was {:?}", verdicts.len(), verdicts.last()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let verdicts: [(&str, Verdict); 3] = [
            ("a", Ok(())),
            ("b c", Err(Ending::Skipped("no such\tdevice".to_owned()))),
            ("d", Err(Ending::Failed("two\nlines".to_owned()))),
        ];
        let mut bytes = Vec::new();
        let mut writer = Writer::begin(&mut bytes).unwrap();
        writer.wish(Wish::Unplug).unwrap();
        writer.fact("rates", "{\"a\": 1}").unwrap();
        for (test, verdict) in &verdicts {
            writer.verdict(test, verdict).unwrap();
        }
        writer.done().unwrap();
        let text = format!("noise\r\n{}", String::from_utf8(bytes).unwrap().replace('\n', "\r\n"));
        assert!(has_begun(&text) && !has_begun("tentpeg\tbeg") && !has_begun("the kernel's own begun\n"));
        assert_eq!((fact(&text, "rates"), fact(&text, "rate")), (Some("{\"a\": 1}"), None));
        assert_eq!(wishes(&text).collect::<Vec<_>>(), [Wish::Unplug]);
        assert_eq!(wishes("tentpeg\twish\tunplug").count(), 0, "not whole yet");
        let read = read(&text).unwrap();
        assert_eq!(read[0], ("a".to_owned(), Ok(())));
        assert_eq!(read[1], ("b c".to_owned(), Err(Ending::Skipped("no such device".to_owned()))));
        assert_eq!(read[2], ("d".to_owned(), Err(Ending::Failed("two lines".to_owned()))));
    }

    #[test]
    fn a_report_that_is_cut_short_is_an_error() {
        for (text, expected) in [
            ("", "stopped after 0 tests"),
            ("tentpeg\tpassed\ta\t\n", "stopped after 1 tests"),
            ("tentpeg\tpassed\ta\t\ntentpeg\tdone\t2\n", "ran 2 tests, 1 were reported"),
            ("tentpeg\tpas", "no report"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }
}
