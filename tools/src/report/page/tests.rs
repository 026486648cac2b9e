use proptest::prelude::*;
use roxmltree::{Document, Node, ParsingOptions};

use super::*;
use crate::both_sides::{BothSides, Side};
use crate::replay::Request;
use crate::replay::hit_curve::HitCurve;
use crate::report::{Errors, Hits, Latency, MemoryUsed, Moved, Plots, Timeline};

fn context(words: &[&str]) -> Context {
    let machine = Machine {
        processor: Some("A processor".into()),
        cores: Some(2),
        memory: Some(8 << 30),
        kernel: Some("6.1.0".into()),
    };
    let command_line = words.iter().map(|word| (*word).to_owned()).collect();
    let began = UNIX_EPOCH + Duration::from_secs(1_800_000_000);
    Context { command_line, began, machine, version: "0.1.0, release build, x86_64".into() }
}

/// What one of the requests has moved, how long it took, and when it had ended.
type Step = (Moved, Duration, Duration);

fn report(steps: &[Step]) -> Report {
    let (mut total, mut elapsed) = (Moved::default(), Duration::ZERO);
    let (mut timeline, mut latency) = (Timeline::default(), Latency::default());
    for (moved, took, later) in steps {
        total.reads = total.reads.saturating_add(moved.reads);
        total.writes = total.writes.saturating_add(moved.writes);
        total.bytes_read = total.bytes_read.saturating_add(moved.bytes_read);
        total.bytes_written = total.bytes_written.saturating_add(moved.bytes_written);
        elapsed = elapsed.saturating_add(*later);
        timeline.look(elapsed, total);
        latency.record(*took);
    }
    timeline.finish(elapsed, total);
    let Moved { reads, writes, bytes_read, bytes_written } = total;
    let side = Side { commands: reads.saturating_add(writes), reads, writes, flushes: 0, bytes_read, bytes_written };
    Report {
        command: "replay",
        device: "model:size=1GiB".into(),
        requests: Some(steps.len() as u64),
        hits: Some(Hits { hits: reads, of: reads.saturating_add(writes) }),
        reads: Some(reads),
        writes: Some(writes),
        bytes_read,
        bytes_written,
        elapsed,
        latency: latency.summary(),
        memory: Some(MemoryUsed { bytes: 64 << 20, pages: "ordinary pages".into() }),
        path: Some("device ↔ host memory".to_owned()),
        both_sides: Some(BothSides { issued: side, seen: Some(side), ..BothSides::default() }),
        plots: Plots {
            segment: "whole".into(),
            block_bytes: Some(4096),
            timeline,
            latency: latency.distribution(),
            latency_of: "a request",
            hit_curve: Some(curve(&[1, 2, 3, 1, 2, 3])),
        },
        ..Report::default()
    }
}

fn curve(blocks: &[u64]) -> HitCurve {
    let requests = blocks.iter().map(|block| Ok::<_, ()>(Request { hash_ids: vec![*block] }));
    HitCurve::of(2.try_into().unwrap(), requests).unwrap()
}

fn blocks(reads: u64, writes: u64) -> Moved {
    let bytes = |blocks: u64| blocks.saturating_mul(4096);
    Moved { reads, writes, bytes_read: bytes(reads), bytes_written: bytes(writes) }
}

fn parsed(page: &str) -> Document<'_> {
    let options = ParsingOptions { allow_dtd: true, ..ParsingOptions::default() };
    Document::parse_with_options(page, options).unwrap_or_else(|error| panic!("{error}\n{page}"))
}

fn texts(node: Node<'_, '_>) -> String {
    node.descendants().filter(Node::is_text).filter_map(|text| text.text()).collect()
}

/// Checks what every page must have, and gives the number of its drawings.
fn check(page: &str) -> usize {
    let document = parsed(page);
    let nodes = || document.descendants().filter(Node::is_element);
    for node in nodes() {
        let name = node.tag_name().name();
        assert!(
            !["script", "link", "img", "iframe", "object", "foreignObject", "use", "a"].contains(&name),
            "<{name}>"
        );
        for attribute in node.attributes() {
            assert!(!attribute.name().starts_with("on") && !attribute.name().contains("href"), "{attribute:?}");
        }
    }
    let body = nodes().find(|node| node.has_tag_name("body")).unwrap();
    let no_number = |word: &str| word.contains("NaN") || word.trim_start_matches(['-', '+']).starts_with("inf");
    let text = texts(body);
    assert!(!text.split_whitespace().any(no_number), "{text}");
    let drawings: Vec<_> = nodes().filter(|node| node.has_tag_name("svg")).collect();
    drawings.iter().for_each(|svg| check_drawing(*svg));
    drawings.len()
}

fn check_drawing(svg: Node<'_, '_>) {
    let view_box: Vec<f64> =
        svg.attribute("viewBox").unwrap().split(' ').map(|number| number.parse().unwrap()).collect();
    assert!(view_box[2] > 0.0 && view_box[3] > 0.0);
    assert_eq!(svg.attribute("role"), Some("img"));
    assert!(svg.attribute("aria-label").is_some_and(|says| !says.is_empty()));
    let is_mark = |node: &Node<'_, '_>| ["path", "rect", "circle"].contains(&node.tag_name().name());
    assert!(svg.descendants().any(|node| is_mark(&node)), "an empty drawing");
    for node in svg.descendants() {
        let attributes = node.attributes();
        let numbers = attributes
            .filter(|one| ["x", "y", "x1", "x2", "y1", "y2", "cx", "cy", "width", "height"].contains(&one.name()));
        let mut numbers: Vec<&str> = numbers.map(|attribute| attribute.value()).collect();
        let path = node.attribute("d").unwrap_or_default();
        numbers.extend(path.split(|c: char| "MLZ ".contains(c)).filter(|number| !number.is_empty()));
        for number in numbers {
            let value: f64 = number.parse().unwrap_or_else(|_| panic!("'{number}' in {node:?}"));
            assert!((-1.0..=view_box[2].max(view_box[3])).contains(&value), "{value} in {node:?}");
        }
    }
}

/// Headings, drawings and tables, in the order of the page.
fn outline(page: &str) -> String {
    let line = |node: Node<'_, '_>| {
        Some(match node.tag_name().name() {
            name @ ("h1" | "h2") => format!("{name} {}", texts(node)),
            "svg" => format!("  {} drawing of {}", node.attribute("class")?, node.attribute("viewBox")?),
            "caption" => format!("  table {}", texts(node)),
            "thead" => {
                let columns = node.descendants().filter(|cell| cell.has_tag_name("th")).map(texts);
                format!("    {}", columns.collect::<Vec<_>>().join(" | "))
            }
            "p" => format!("  p {}", node.attribute("class")?),
            _ => return None,
        })
    };
    parsed(page).descendants().filter_map(line).map(|line| line + "\n").collect()
}

fn some_steps() -> Vec<Step> {
    let step = |n: u64| (blocks(n % 3, 1), Duration::from_micros(50 + n * n), Duration::from_micros(400));
    (0..200).map(step).collect()
}

#[test]
fn a_page_has_its_parts_in_order() {
    let page = html(&report(&some_steps()), &context(&["tentpeg", "replay", "--trace", "a file"]));
    assert_eq!(check(&page), 10, "five drawings in two sizes");
    let expected = "\
h1 tentpeg replay
  p when
h2 The run
h2 The machine
h2 Throughput over time
  p about
  p legend
  wide drawing of 0 0 720 300
  narrow drawing of 0 0 340 250
  table Throughput
     | mean | lowest | highest
  table Each interval
    until, ms | reads | GB/s of reads | writes | GB/s of writes
h2 Latency by percentile
  p about
  wide drawing of 0 0 720 300
  narrow drawing of 0 0 340 250
  table 200 timed
    percentile | latency
h2 Latency distribution
  p about
  wide drawing of 0 0 720 300
  narrow drawing of 0 0 340 250
  table Ranges with any
    from | to | requests | share
h2 Hit rate by the number of slots
  p about
  wide drawing of 0 0 720 300
  narrow drawing of 0 0 340 250
  table Of 6 blocks
    slots | of this run | store | hits | hit rate
h2 Where the bytes went
  p about
  wide drawing of 0 0 720 176
  narrow drawing of 0 0 340 176
  table Counted on both sides
     | reads | writes
  p about
";
    assert_eq!(outline(&page), expected);
    for says in [
        "<code>tentpeg replay --trace &#39;a file&#39;</code>",
        "<dt>began</dt><dd>2027-01-15 08:00:00 UTC</dd>",
        "<dt>tentpeg</dt><dd>0.1.0, release build, x86_64</dd>",
        "<dt>cores to use</dt><dd>2</dd>",
        "<dt>memory</dt><dd>8.00 GiB (8,589,934,592 B)</dd>",
        "<dt>hits</dt><dd>199 (49.9%)</dd>",
        "Its own number of slots gave 0 (0.0%)",
        "<th scope=\"row\">4</th><td>2×</td><td>16.0 KiB</td><td>3</td><td>50.0%</td>",
        "Both sides agree.",
    ] {
        assert!(page.contains(says), "{says}");
    }
    assert!(!page.contains("class=\"notice"), "nothing to warn of");
}

#[test]
fn what_a_run_does_not_have_is_said_in_words() {
    let page = html(&Report { command: "bench", ..Report::default() }, &context(&[]));
    assert_eq!(check(&page), 2, "the way of no bytes");
    for says in ["No bytes were moved", "No request was timed", "there is one side only", "band-none reads"] {
        assert!(page.contains(says), "{says}");
    }
    assert!(!page.contains("number of slots"), "a bench has none");
    let mut errors = Errors::default();
    errors.add("the trace is <gone>");
    let page = html(
        &Report { errors, interrupted: true, hits: Some(Hits { hits: 0, of: 0 }), ..Report::default() },
        &context(&[]),
    );
    check(&page);
    for says in ["The run had errors: the trace is &lt;gone&gt;", "was interrupted", "Hits were not counted"] {
        assert!(page.contains(says), "{says}");
    }
    let debug = Context { version: "0.1.0, debug build, x".into(), ..context(&[]) };
    assert!(html(&Report::default(), &debug).contains("Made by a debug build"));
}

#[test]
fn one_request_is_drawn_and_so_are_a_few() {
    let step = (blocks(1, 0), Duration::from_micros(80), Duration::from_micros(90));
    let one = report(&[step]);
    let page = html(&one, &context(&[]));
    assert_eq!(check(&page), 10);
    assert!(!page.contains("<span class=\"writes\">"), "there were none");
    assert_eq!(check(&html(&report(&[step; 3]), &context(&[]))), 10);
    let no_hits = Report { plots: Plots { hit_curve: Some(curve(&[1])), ..one.plots.clone() }, ..one.clone() };
    assert_eq!(check(&html(&no_hits, &context(&[]))), 10);
    let no_blocks = Report { plots: Plots { hit_curve: Some(curve(&[])), ..one.plots.clone() }, ..one };
    assert!(html(&no_blocks, &context(&[])).contains("have no blocks"));
}

#[test]
fn whatever_a_text_holds_it_is_only_shown() {
    const HOSTILE: &str =
        "</title></style></code><script>alert(1)</script><img src=x onerror=\"alert(1)\">'\"&]]>\u{0}\u{202e}";
    let mut hostile = report(&some_steps());
    hostile.device = HOSTILE.into();
    hostile.settings = vec![super::super::Row::both("trace", "trace", Value::Text(HOSTILE.into()))];
    hostile.plots.segment = HOSTILE.into();
    hostile.memory = Some(MemoryUsed { bytes: 1, pages: HOSTILE.into() });
    hostile.errors.add(HOSTILE);
    let mut context = context(&["tentpeg", HOSTILE]);
    context.version = HOSTILE.into();
    context.machine.processor = Some(HOSTILE.into());
    let page = html(&hostile, &context);
    assert_eq!(check(&page), 10);
    let shown = HOSTILE.replace('\0', "\\u{0}").replace('\u{202e}', "\\u{202e}");
    assert_eq!(texts(parsed(&page).root_element()).matches(&shown).count(), 12);
}

#[test]
fn a_moment_is_told_in_utc_however_far_it_is() {
    assert_eq!(date(UNIX_EPOCH), "1970-01-01 00:00:00 UTC");
    assert_eq!(date(UNIX_EPOCH + Duration::from_secs(253_402_300_799)), "9999-12-31 23:59:59 UTC");
    assert!(date(UNIX_EPOCH + Duration::from_secs(253_402_300_800)).ends_with(" after 1970"));
    assert_eq!(date(UNIX_EPOCH - Duration::from_secs(60)), "60.0 s before 1970");
}

#[test]
fn a_command_line_can_be_given_to_a_shell_again() {
    let words = ["tentpeg", "bench", "model:size=1GiB,lba=512", "", "it's $HOME", "a\nb"].map(str::to_owned);
    assert_eq!(
        command_line(&words),
        r"tentpeg bench model:size=1GiB,lba=512 '' 'it'\''s $HOME' 'a
b'"
    );
}

#[test]
fn the_check_of_drawings_finds_what_it_looks_for() {
    let drawing = |content: &str| {
        format!("<html><body><svg role=\"img\" aria-label=\"x\" viewBox=\"0 0 9 9\">{content}</svg></body></html>")
    };
    assert_eq!(check(&drawing("<path d=\"M0 0L9 9Z\"/>")), 1);
    for wrong in ["", "<path d=\"M0 NaN\"/>", "<rect width=\"inf\"/>", "<rect x=\"10\"/>", "<path d=\"M0 0\"/><a/>"] {
        assert!(std::panic::catch_unwind(|| check(&drawing(wrong))).is_err(), "{wrong}");
    }
    assert!(std::panic::catch_unwind(|| check("<html><body>-inf GB/s</body></html>")).is_err());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn any_run_makes_a_page(
        steps in prop::collection::vec(
            (any::<[u64; 4]>(), 0u32..64, any::<u64>(), prop_oneof![0u64..1_000_000, any::<u64>()]), 0..40,
        ),
        ids in prop::collection::vec(0u64..20, 0..60),
    ) {
        let step = |(numbers, shift, took, later): &([u64; 4], u32, u64, u64)| {
            let [reads, writes, bytes_read, bytes_written] = numbers.map(|number| number >> shift);
            (Moved { reads, writes, bytes_read, bytes_written }, Duration::from_nanos(*took), Duration::from_nanos(*later))
        };
        let mut report = report(&steps.iter().map(step).collect::<Vec<_>>());
        report.plots.hit_curve = Some(curve(&ids));
        check(&html(&report, &context(&[])));
    }
}
