//! Each fuzz target's body over its committed corpus, and over inputs that need no corpus.

use std::fs;
use std::path::Path;

use tentpeg_tests::fuzz::{Input, Reached, TARGETS};

/// The most bytes of a corpus.
const MOST_BYTES: u64 = 1 << 20;

/// How far a corpus must get, by target.
const MUST_REACH: &[(&str, &[&str])] = &[
    (
        "device",
        &[
            "enabled",
            "not enabled",
            "namespaces",
            "completions",
            "strays",
            "events",
            "queue pairs deleted",
            "interrupted",
            "recovered",
            "removed",
            "shut down",
        ],
    ),
    (
        "label",
        &[
            "opened",
            "blank",
            "foreign",
            "damaged",
            "newer",
            "in conflict",
            "incomplete sets",
            "whole sets",
            "segments",
            "changes made",
            "changes refused",
            "repaired",
        ],
    ),
    (
        "prp_sgl",
        &[
            "PRPs without a list",
            "a PRP list of one page",
            "a chained PRP list",
            "no PRPs",
            "an SGL of one descriptor",
            "an SGL of one segment",
            "a chained SGL",
            "no SGL",
        ],
    ),
    (
        "model_commands",
        &[
            "admin commands that succeeded",
            "admin commands that failed",
            "I/O commands that succeeded",
            "I/O commands that failed",
            "accesses refused",
            "violations",
        ],
    ),
    ("uri_trace", &["a size", "a device", "requests", "a whole trace"]),
];

#[test]
fn each_corpus_runs_clean_is_small_and_gets_far() {
    for (name, body) in TARGETS {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus").join(name);
        let mut reached = Reached::default();
        let mut bytes = 0;
        let mut seeds = 0;
        for entry in fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display())) {
            let path = entry.unwrap().path();
            let seed = fs::read(&path).unwrap();
            bytes += seed.len() as u64;
            seeds += 1;
            match std::panic::catch_unwind(|| body(&seed)) {
                Ok(one) => reached.add(&one),
                Err(_) => panic!("{name}: {}", path.display()),
            }
        }
        assert!(seeds >= 10, "{name} has {seeds} seeds");
        assert!(bytes <= MOST_BYTES, "{name} has {bytes} bytes of seeds: minimise them");
        let must = MUST_REACH.iter().find(|(target, _)| target == name).expect("every target is listed").1;
        for what in must {
            assert!(reached.times(what) > 0, "{name} never reaches {what}: {reached:?}");
        }
        println!("{name}: {reached:?}");
    }
}

#[test]
fn nothing_and_noise_are_inputs_too() {
    for (_, body) in TARGETS {
        body(&[]);
        for byte in [0x00, 0x01, 0x55, 0x80, 0xFF] {
            body(&[byte; 700]);
        }
    }
}

#[test]
fn an_input_that_has_ended_is_zero() {
    let mut input = Input::new(&[1, 2, 3]);
    assert_eq!((input.u16(), input.is_empty()), (0x0201, false));
    assert_eq!((input.u32(), input.is_empty()), (3, true));
    assert_eq!((input.u64(), input.flag(), input.choice(&[7, 8])), (0, false, 7));
}
