use tentpeg_engine::{EngineConfig, OpCode, Request};

use super::*;
use crate::failure::STALLED;

#[test]
fn a_run_is_counted_alike_and_alone() {
    let engine = Engine::open("model:size=16MiB,mdts=2", EngineConfig::default()).unwrap();
    let memory = engine.allocate_memory(1 << 20).unwrap();
    let target_id = engine.segments()[0].id;
    let transfer = |opcode, length| {
        let request = Request { opcode, source: memory.address(), target_id, target_offset: 0, length };
        let batch = engine.allocate_batch(1).unwrap();
        engine.submit(&batch, &[request]).unwrap();
        engine.submit_flush(&batch, target_id).unwrap();
        assert_eq!(batch.wait(STALLED).unwrap().unsuccessful, 0);
    };
    transfer(OpCode::Read, 4096);
    let start = Start::of(&engine);
    transfer(OpCode::Write, 1 << 20);
    let sides = BothSides::since(&start, &engine);
    let commands = (1 << 20) / (16 << 10) + 1;
    let side = Side { commands, writes: commands - 1, flushes: 1, bytes_written: 1 << 20, ..Side::default() };
    assert_eq!(
        sides,
        BothSides {
            issued: side,
            seen: Some(side),
            // Four pages a command: the first in the command, three in a list.
            prp_list_entries: Some(3 * (commands - 1)),
            ..BothSides::default()
        },
        "what came before is left out"
    );
    let mut errors = Errors::default();
    sides.check(&mut errors);
    assert_eq!(errors.count(), 0);
}

#[test]
fn whatever_differs_is_an_error_with_both_numbers() {
    let right = Side { commands: 7, reads: 4, writes: 2, flushes: 1, bytes_read: 16384, bytes_written: 8192 };
    let first = |sides: BothSides| {
        let mut errors = Errors::default();
        sides.check(&mut errors);
        assert_eq!(errors.count(), 1, "{errors:?}");
        errors.messages()[0].clone()
    };
    let seen = |seen| BothSides { issued: right, seen: Some(seen), ..BothSides::default() };
    for (side, numbers) in [
        (Side { commands: 6, ..right }, "7 commands issued, 6 SQEs fetched"),
        (Side { reads: 5, ..right }, "4 reads issued, 5 reads fetched"),
        (Side { writes: 0, ..right }, "2 writes issued, 0 writes fetched"),
        (Side { flushes: 2, ..right }, "1 flushes issued, 2 flushes fetched"),
        (
            Side { bytes_read: 16380, ..right },
            "16384 bytes asked for by reads, 16380 bytes covered by the PRPs of reads",
        ),
        (Side { bytes_written: 1, ..right }, "8192 bytes asked for by writes, 1 bytes covered by the PRPs of writes"),
    ] {
        let message = first(seen(side));
        assert!(message.ends_with(numbers), "{message}");
    }
    let agreed = seen(right);
    assert!(first(BothSides { anomalies: 3, ..agreed.clone() }).starts_with("3 completions were unsound"));
    assert!(first(BothSides { unfinished: 2, ..agreed.clone() }).starts_with("2 commands have not ended"));
    assert!(
        first(BothSides { violations: vec!["EnabledWhileReady".into()], ..agreed }).ends_with(": EnabledWhileReady")
    );
    assert!(first(BothSides { anomalies: 1, ..BothSides::default() }).starts_with("1 completions"), "also of one side");
}
