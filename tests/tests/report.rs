//! The page of `--report` in a real browser: each drawing is there and can be read, in wide and narrow windows, light and dark, and
//! nothing of it runs.
//!
//! Chromium, without a window, loads the pages in frames of a document whose script measures them (`report/measure.js`) and is asked
//! for that document as it is then. Where there is no Chromium the tests say so and end, or fail if `TENTPEG_NEED_TOOLS=1`.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use clap::Parser;
use serde::Deserialize;
use tempfile::TempDir;
use tentpeg_tools::bench::{self, BenchArgs};
use tentpeg_tools::interrupt::Interrupt;
use tentpeg_tools::replay::command::{self as replay, ReplayArgs};
use tentpeg_tools::report::page::{self, Context};
use tentpeg_tools::report::{Latency, Moved, Plots, Report, Timeline};

/// Names of the browser.
const BROWSERS: [&str; 2] = ["chromium", "chromium-browser"];
/// Widths of windows: a screen, a tablet, a phone.
const WIDTHS: [u32; 3] = [1280, 768, 390];
/// How long the browser may take before it counts as hung.
const HUNG: Duration = Duration::from_secs(300);

const MEASURE: &str = include_str!("report/measure.js");

/// A name that would make itself known if any of it ran.
const HOSTILE: &str = "<img src=x onerror=console.error('ran')><script>console.error('ran')<script>";

/// What was measured of a page in a frame.
#[derive(Debug, Deserialize)]
struct Measured {
    title: String,
    dark: bool,
    drawings: Vec<Drawing>,
    findings: Vec<String>,
    title_of_page: String,
    images: usize,
}

/// A drawing that is shown.
#[derive(Debug, Deserialize)]
struct Drawing {
    says: String,
    width: f64,
    height: f64,
}

/// A browser, with a folder for what it needs.
struct Browser {
    program: PathBuf,
    folder: TempDir,
}

impl Browser {
    /// The browser of this machine; `None`: there is none, and the test is to end.
    fn find(test: &str) -> Option<Self> {
        let folders: Vec<_> = std::env::var_os("PATH").iter().flat_map(std::env::split_paths).collect();
        let program = BROWSERS.iter().flat_map(|name| folders.iter().map(move |folder| folder.join(name)));
        let Some(program) = program.into_iter().find(|path| path.is_file()) else {
            let reason = format!("{test}: skipped: no {} in PATH (Debian's package chromium)\n", BROWSERS.join(" or "));
            assert!(std::env::var_os("TENTPEG_NEED_TOOLS").is_none_or(|value| value != "1"), "{reason}");
            // Not by a macro, whose output is shown of tests that fail only.
            io::stderr().write_all(reason.as_bytes()).unwrap();
            return None;
        };
        Some(Self { program, folder: tempfile::tempdir().unwrap() })
    }

    /// Runs the browser on a page; what it writes on standard output, and on standard error.
    fn run(&self, page: &str, arguments: &[&str]) -> (String, String) {
        let at = |name: &str| self.folder.path().join(name);
        fs::write(at("page.html"), page).unwrap();
        let file = |name: &str| Stdio::from(File::create(at(name)).unwrap());
        let mut browser = Command::new(&self.program)
            .args(["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"])
            .args(["--disable-background-networking", "--hide-scrollbars", "--enable-logging=stderr"])
            .arg(format!("--user-data-dir={}", at("profile").display()))
            .args(arguments)
            .arg(format!("file://{}", at("page.html").display()))
            .stdin(Stdio::null())
            .stdout(file("stdout"))
            .stderr(file("stderr"))
            .spawn()
            .unwrap();
        let deadline = Instant::now() + HUNG;
        let status = loop {
            match browser.try_wait().unwrap() {
                Some(status) => break Some(status),
                None if Instant::now() >= deadline => break None,
                None => thread::sleep(Duration::from_millis(20)),
            }
        };
        if status.is_none() {
            browser.kill().unwrap();
            browser.wait().unwrap();
        }
        let said = |name: &str| String::from_utf8_lossy(&fs::read(at(name)).unwrap()).into_owned();
        assert!(status.is_some_and(|status| status.success()), "{status:?}: {}", said("stderr"));
        (said("stdout"), said("stderr"))
    }

    /// Measures pages, each in a frame as wide as is said.
    fn measure(&self, pages: &[(String, u32, &str)], arguments: &[&str]) -> Vec<Measured> {
        let frame = |(name, width, page): &(String, u32, &str)| {
            format!(
                "<iframe title=\"{name}\" srcdoc=\"{}\" style=\"width:{width}px;height:6000px;border:0\"></iframe>\n",
                page.replace('&', "&amp;").replace('"', "&quot;")
            )
        };
        let frames: String = pages.iter().map(frame).collect();
        let document = format!("<!DOCTYPE html>\n<html><body>\n{frames}<script>\n{MEASURE}</script>\n</body></html>\n");
        let (dom, errors) = self.run(&document, &[&["--dump-dom"], arguments].concat());
        assert_eq!(console(&errors), [""; 0]);
        let measured = dom.split_once("<pre id=\"measured\">").and_then(|(_, rest)| rest.split_once("</pre>"));
        let (measured, _) = measured.unwrap_or_else(|| panic!("nothing was measured: {dom:.2000}"));
        serde_json::from_str(measured).unwrap_or_else(|error| panic!("{error} in {measured}"))
    }

    /// Takes a picture of a page, and keeps it where it can be looked at.
    fn picture(&self, name: &str, page: &str, (width, height): (u32, u32)) -> Vec<u8> {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        let arguments = [format!("--screenshot={}", path.display()), format!("--window-size={width},{height}")];
        let (_, errors) = self.run(page, &arguments.each_ref().map(String::as_str));
        assert_eq!(console(&errors), [""; 0]);
        fs::read(path).unwrap()
    }
}

/// The lines of a browser's log that are of a page's console.
fn console(log: &str) -> Vec<&str> {
    log.lines().filter(|line| line.contains(":CONSOLE")).collect()
}

#[derive(Parser)]
struct Replay {
    #[command(flatten)]
    args: ReplayArgs,
}

#[derive(Parser)]
struct Bench {
    #[command(flatten)]
    args: BenchArgs,
}

fn context(words: &[&str]) -> Context {
    Context::new(words.iter().map(|word| (*word).to_owned()).collect(), SystemTime::now())
}

/// The page of a replay of a trace with a hostile name.
fn replayed(folder: &TempDir) -> String {
    let (trace, page) = (folder.path().join(HOSTILE), folder.path().join("page.html"));
    let line = |n: u64| format!("{{\"hash_ids\":[0,{},{},{}]}}\n", n % 3 + 1, n * n % 7 + 10, n * n % 31 + 100);
    fs::write(&trace, (0..120).map(line).collect::<String>()).unwrap();
    let (trace, page) = (trace.to_str().unwrap(), page.to_str().unwrap());
    let words = ["tentpeg", "--trace", trace, "--report", page, "--slots", "32", "--pool", "16", "--block", "16KiB"];
    let words = [&words[..], &["--page", "4KiB"]].concat();
    let report = replay::run(&Replay::parse_from(&words).args, &Interrupt::default()).unwrap();
    assert_eq!(report.errors.summary(), None);
    page::html(&report, &context(&words))
}

/// The page of a bench of both ways.
fn benched() -> String {
    let words = ["tentpeg", "model:size=4MiB", "--mode", "mixed", "--requests", "3000"];
    let report = bench::run(&Bench::parse_from(words).args, &Interrupt::default()).unwrap();
    assert_eq!(report.errors.summary(), None);
    page::html(&report, &context(&words))
}

/// The page of a run with the longest numbers that there are, and of one without any.
fn extremes() -> [String; 2] {
    let (mut timeline, mut latency) = (Timeline::default(), Latency::default());
    for number in 1..2000u64 {
        let part = u64::MAX / 2000 * number;
        let moved = Moved { reads: part, writes: part, bytes_read: part, bytes_written: part / 3 };
        timeline.look(Duration::from_nanos(part), moved);
        latency.record(Duration::from_nanos(1 << (number % 63)));
    }
    let plots = Plots { timeline, latency: latency.distribution(), latency_of: "a request", ..Plots::default() };
    let most = u64::MAX;
    let mut huge = Report { command: "bench", device: HOSTILE.repeat(4), plots, ..Report::default() };
    (huge.bytes_read, huge.bytes_written, huge.elapsed) = (most, most / 3, Duration::from_nanos(1));
    (huge.reads, huge.writes, huge.requests) = (Some(most), Some(most), Some(most));
    huge.latency = latency.summary();
    huge.errors.add(HOSTILE);
    [huge, Report { command: "bench", ..Report::default() }].map(|report| page::html(&report, &context(&["tentpeg"])))
}

#[test]
fn every_drawing_can_be_read_at_every_width_light_and_dark() {
    let Some(browser) = Browser::find("every_drawing_can_be_read_at_every_width_light_and_dark") else { return };
    let folder = tempfile::tempdir().unwrap();
    let [huge, empty] = extremes();
    let pages = [("replay", replayed(&folder), 5), ("bench", benched(), 4), ("huge", huge, 4), ("empty", empty, 1)];
    let frames: Vec<_> = pages
        .iter()
        .flat_map(|(name, page, _)| WIDTHS.map(|width| (format!("{name} at {width}"), width, page.as_str())))
        .collect();
    for (arguments, dark) in [(&[][..], false), (&["--blink-settings=preferredColorScheme=0"][..], true)] {
        let measured = browser.measure(&frames, arguments);
        let titles: Vec<_> = measured.iter().map(|page| page.title.as_str()).collect();
        assert_eq!(titles, frames.iter().map(|(name, ..)| name.as_str()).collect::<Vec<_>>());
        let findings: Vec<_> = measured.iter().flat_map(|page| &page.findings).collect();
        assert!(findings.is_empty(), "{findings:#?}");
        for (page, (_, _, drawings)) in
            measured.chunks(WIDTHS.len()).zip(&pages).flat_map(|(all, page)| all.iter().map(move |one| (one, page)))
        {
            assert_eq!((page.drawings.len(), page.dark, page.images), (*drawings, dark, 0), "{}", page.title);
            assert!(page.title_of_page.starts_with("tentpeg "), "{}", page.title_of_page);
            for drawing in &page.drawings {
                assert!(drawing.width >= 280.0 && drawing.height >= 140.0, "{}: {drawing:?}", page.title);
                assert!(!drawing.says.is_empty());
            }
        }
    }
}

#[test]
fn a_page_has_a_picture_and_nothing_to_say_to_the_console() {
    let Some(browser) = Browser::find("a_page_has_a_picture_and_nothing_to_say_to_the_console") else { return };
    let folder = tempfile::tempdir().unwrap();
    let page = replayed(&folder);
    let picture = browser.picture("report.png", &page, (1280, 2900));
    let blank = browser.picture("blank.png", "<!DOCTYPE html><html><body></body></html>", (1280, 2900));
    for png in [&picture, &blank] {
        assert_eq!(png[..8], *b"\x89PNG\r\n\x1a\n");
        assert_eq!(png[16..24], [1280u32.to_be_bytes(), 2900u32.to_be_bytes()].concat(), "as large as asked for");
    }
    assert!(picture.len() > 5 * blank.len(), "{} bytes, {} of a blank one", picture.len(), blank.len());
    let (dom, errors) = browser.run(&page, &["--dump-dom"]);
    assert_eq!(console(&errors), [""; 0]);
    assert!(dom.contains("<svg class=\"wide\"") && !dom.contains("<img") && !dom.contains("<script"));
}

#[test]
fn what_is_wrong_with_a_page_is_found() {
    let Some(browser) = Browser::find("what_is_wrong_with_a_page_is_found") else { return };
    let svg = |content: &str| {
        format!("<svg aria-label=\"x\" width=\"200\" height=\"100\" viewBox=\"0 0 200 100\">{content}</svg>")
    };
    let text = |x: u32, y: u32, more: &str| format!("<text x=\"{x}\" y=\"{y}\" {more}>some words</text>");
    let wrong = [
        ("fine", svg(&text(10, 50, "")), ""),
        ("overlap", svg(&(text(10, 50, "") + &text(20, 55, ""))), "overlaps \"some words\""),
        ("outside", svg(&text(190, 50, "")), "is not inside its drawing"),
        ("tiny", svg(&text(10, 50, "font-size=\"4\"")), " high"),
        ("pale", svg(&text(10, 50, "fill=\"#aaa\"")), "has a contrast of 2.3"),
        ("mark", svg("<circle cx=\"100\" cy=\"50\" r=\"90\"/>"), "a circle is not inside"),
        ("broad", "<div style=\"width:900px\">x</div>".to_owned(), "the page is 90"),
        ("narrow", "<dl><dd style=\"width:20px\">unbreakable</dd></dl>".to_owned(), "\"unbreakable\" does not fit"),
    ];
    let pages: Vec<_> = wrong
        .iter()
        .map(|(name, body, _)| (name, format!("<!DOCTYPE html><html><body>{body}</body></html>")))
        .collect();
    let frames: Vec<_> = pages.iter().map(|(name, page)| ((*name).to_string(), 390, page.as_str())).collect();
    for (measured, (name, _, what)) in browser.measure(&frames, &[]).iter().zip(&wrong) {
        let is_found = measured.findings.iter().any(|finding| finding.starts_with(name) && finding.contains(what));
        assert_eq!(is_found, *name != "fine", "{name}: {:?}", measured.findings);
        assert!(*name != "fine" || measured.findings.is_empty(), "{:?}", measured.findings);
    }
    // A script that got into a page is not run, and that is seen.
    let (_, errors) =
        browser.run(&benched().replace("<main>", "<main><script>document.title = 'ran'</script>"), &["--dump-dom"]);
    assert!(console(&errors).iter().any(|line| line.contains("Content Security Policy")), "{errors}");
}
