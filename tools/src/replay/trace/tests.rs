use std::io::{BufReader, Cursor, Read};

use proptest::prelude::*;

use super::*;

fn read(bytes: impl AsRef<[u8]>) -> Result<Vec<Vec<u64>>, TraceError> {
    TraceReader::new(bytes.as_ref()).map(|request| request.map(|request| request.hash_ids)).collect()
}

/// The message of the error that `bytes` must give.
fn refused(bytes: impl AsRef<[u8]>) -> String {
    read(bytes).expect_err("this trace is wrong").to_string()
}

#[test]
fn published_form() {
    let trace = r#"{"timestamp": 0, "input_length": 6758, "output_length": 500, "hash_ids": [0, 1, 2]}
{"timestamp": 3000, "input_length": 600, "output_length": 5, "hash_ids": [0, 3]}
"#;
    assert_eq!(read(trace).unwrap(), [vec![0, 1, 2], vec![0, 3]]);
    let expected = Survey { requests: 2, blocks: 5, longest: 3 };
    assert_eq!(survey(trace.as_bytes()).unwrap(), expected);
}

#[test]
fn accepted_variations() {
    for (what, trace, expected) in [
        ("only hash_ids", r#"{"hash_ids":[7]}"#, vec![vec![7]]),
        ("no line end after the last", "{\"hash_ids\":[7]}\n{\"hash_ids\":[8]}", vec![vec![7], vec![8]]),
        ("CRLF", "{\"hash_ids\":[7]}\r\n{\"hash_ids\":[8]}\r\n", vec![vec![7], vec![8]]),
        ("blank lines", "\n  \t\n{\"hash_ids\":[7]}\n\r\n\n", vec![vec![7]]),
        ("byte-order mark", "\u{feff}{\"hash_ids\":[7]}\n", vec![vec![7]]),
        ("no blocks", r#"{"hash_ids":[]}"#, vec![vec![]]),
        ("an id twice", r#"{"hash_ids":[5,5]}"#, vec![vec![5, 5]]),
        ("largest id", r#"{"hash_ids":[18446744073709551615,0]}"#, vec![vec![u64::MAX, 0]]),
        (
            "unknown and odd fields",
            r#"{"user":{"hash_ids":["no"]},"timestamp":"late","input_length":-1.5,"hash_ids":[1],"é":null}"#,
            vec![vec![1]],
        ),
        ("escaped name", r#"{"hash\u005fids":[1]}"#, vec![vec![1]]),
    ] {
        assert_eq!(read(trace).expect(what), expected, "{what}");
    }
}

#[test]
fn refused_lines_say_where_what_and_what_would_be_right() {
    for (trace, parts) in [
        (r#"{"hash_ids":[1,-2]}"#, ["line 1, column 17", "`-2`", "a whole number from 0 to 18446744073709551615"]),
        (r#"{"hash_ids":[1.5]}"#, ["line 1, column 16", "`1.5`", "a whole number from 0"]),
        (r#"{"hash_ids":[1.0]}"#, ["line 1, column 16", "`1.0`", "a whole number from 0"]),
        (r#"{"hash_ids":[18446744073709551616]}"#, ["line 1", "floating point", "from 0 to 18446744073709551615"]),
        (r#"{"hash_ids":["a"]}"#, ["line 1", "string \"a\"", "a block id"]),
        (r#"{"hash_ids":[[1]]}"#, ["line 1", "sequence", "a block id"]),
        (r#"{"hash_ids":7}"#, ["line 1", "integer `7`", "a sequence"]),
        (r#"{"hash_ids":null}"#, ["line 1", "null", "a sequence"]),
        (r#"{"timestamp":7}"#, ["line 1", "missing field `hash_ids`", r#"{"hash_ids": [0, 14, 15]}"#]),
        (r#"{"hash_ids":[1],"hash_ids":[2]}"#, ["line 1", "duplicate field", "hash_ids"]),
        ("[[1,2]]", ["line 1", "sequence", "a JSON object with `hash_ids`"]),
        ("17", ["line 1", "integer `17`", "a JSON object with `hash_ids`"]),
        (
            r#"{"hash_ids":[1]} {"hash_ids":[2]}"#,
            ["line 1, column 18", "trailing characters", "one JSON object on one line"],
        ),
        ("timestamp,hash_ids", ["line 1", "expected", "one JSON object on one line"]),
        ("\n\n{\"hash_ids\":[1]}\n{\"hash_ids\":[1 2]}\n", ["line 4, column 16", "expected `,` or `]`", "such as"]),
        ("{\"hash_ids\":[1]}\n{\n\"hash_ids\":[2]}\n", ["line 2", "EOF while parsing an object", "on one line"]),
        ("{\"hash_ids\":[1]}\n\u{feff}{\"hash_ids\":[2]}\n", ["line 2, column 1", "expected value", "such as"]),
    ] {
        let message = refused(trace);
        for part in parts {
            assert!(message.contains(part), "{trace:?} gives {message:?}, without {part:?}");
        }
        assert!(!message.contains("at line 1 column"), "{message:?} counts lines twice");
    }
}

#[test]
fn an_unfinished_line_that_is_no_request_anyway_is_not_called_cut_off() {
    for trace in ["timestamp", "17", "[1,2", "\"hash", "-", r#"{"hash_ids":[1]}x"#, r#"{"hash_ids":[1 2"#] {
        assert!(matches!(read(trace), Err(TraceError::NotARequest { line: 1, .. })), "{trace:?}");
    }
}

#[test]
fn no_requests() {
    for trace in ["", "\n", " \r\n\n\t", "\u{feff}"] {
        let message = refused(trace);
        assert!(message.contains("no requests") && message.contains("hash_ids"), "{message:?}");
    }
}

#[test]
fn not_utf8() {
    let message = refused(b"{\"hash_ids\":[1]}\n{\"a\":\"\xff\",\"hash_ids\":[1]}\n");
    assert!(message.contains("line 2, column 7: not UTF-8"), "{message:?}");
    // Inside a character, but the line goes on: not cut off.
    assert!(matches!(read(b"{\"a\":\"\xc3\n"), Err(TraceError::NotUtf8 { line: 1, column: 7 })));
    assert!(matches!(read(b"{\"a\":\"\xc3"), Err(TraceError::CutOff { line: 1 })));
}

#[test]
fn a_line_is_bounded() {
    let padded = |length: usize| {
        let mut line = b"{\"hash_ids\":[1]}".to_vec();
        line.resize(length, b' ');
        line
    };
    for end in ["", "\n", "\r\n"] {
        let mut longest = padded(MAX_LINE_BYTES);
        longest.extend(end.as_bytes());
        assert_eq!(read(&longest).unwrap(), [vec![1]], "{end:?}");
        let mut too_long = padded(MAX_LINE_BYTES + 1);
        too_long.extend(end.as_bytes());
        assert!(matches!(read(&too_long), Err(TraceError::TooLong { line: 1 })), "{end:?}");
    }
    // A file without any line end, without end.
    let mut reader = TraceReader::new(BufReader::new(std::io::repeat(b' ')));
    assert!(matches!(reader.next(), Some(Err(TraceError::TooLong { line: 1 }))));
    assert!(reader.buffer.capacity() <= 4 * MAX_LINE_BYTES);
}

#[test]
fn ends_after_an_error() {
    let mut reader = TraceReader::new("{\"hash_ids\":[1]}\nx\n{\"hash_ids\":[2]}\n".as_bytes());
    assert!(matches!(reader.next(), Some(Ok(_))));
    assert!(matches!(reader.next(), Some(Err(TraceError::NotARequest { line: 2, .. }))));
    assert!(reader.next().is_none());
}

#[test]
fn a_failing_read_names_its_line() {
    struct Failing;
    impl Read for Failing {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            Err(io::Error::other("the disk is gone"))
        }
    }
    let reader = BufReader::new(Cursor::new("{\"hash_ids\":[1]}\n").chain(Failing));
    let message = survey(reader).unwrap_err().to_string();
    assert_eq!(message, "line 2: the trace cannot be read: the disk is gone");
}

fn any_line() -> impl Strategy<Value = (String, Vec<u64>)> {
    let ids = prop::collection::vec(any::<u64>(), 0..6);
    (ids, any::<(f64, String)>().prop_filter("JSON has no NaN", |(number, _)| number.is_finite()), any::<bool>())
        .prop_map(|(hash_ids, (number, name), first)| {
            let ids = serde_json::to_string(&hash_ids).unwrap();
            let other =
                format!("{}: [{number:e}, true, {}]", serde_json::json!(format!("x{name}")), serde_json::json!(name));
            let line = match first {
                true => format!("{{\"hash_ids\": {ids}, {other}}}"),
                false => format!("{{{other}, \"hash_ids\": {ids}}}"),
            };
            (line, hash_ids)
        })
}

proptest! {
    #[test]
    fn whole_lines_read_and_every_cut_is_seen((line, hash_ids) in any_line(), cut in any::<prop::sample::Index>()) {
        let whole = format!("{line}\n{line}");
        prop_assert_eq!(read(&whole).unwrap(), [hash_ids.clone(), hash_ids]);
        // Anywhere after the first byte and before the last byte of the second line.
        let start = line.len() + 2;
        let cut = start + cut.index(line.len() - 1);
        let result = read(&whole.as_bytes()[..cut]);
        prop_assert!(matches!(result, Err(TraceError::CutOff { line: 2 })), "{:?}", result);
    }

    #[test]
    fn any_bytes_give_a_result(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = read(&bytes);
    }
}
