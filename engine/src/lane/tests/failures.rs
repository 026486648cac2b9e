//! Devices that fail: reads beyond the end of a store's file, which became shorter behind the model's back.

use std::fs::OpenOptions;

use tentpeg_driver::spec::status::StatusCode;

use super::*;
use TransferState::{Completed, Failed, Invalid};

const BLOCK: u64 = 4096;
/// How often a block is asked for again whose error does not say Do Not Retry.
const AGAIN: u64 = crate::lane::ATTEMPTS as u64;

/// 64 blocks with data, of which only the first `kept` can still be read. Block `n` has seed `n`.
fn shortened(kept: u64, settings: &str) -> (Bench, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    let mut bench = Bench::open(&file_uri(&path, &format!("size=256KiB{settings}")), 32, 128 * BLOCK as usize);
    for block in 0..64 {
        bench.fill(block * BLOCK, BLOCK, block);
    }
    bench.submit(&[bench.write(0, 0, 64 * BLOCK)]);
    bench.run();
    bench.memory.view().fill(0xEE);
    OpenOptions::new().write(true).open(&path).unwrap().set_len(kept * BLOCK).unwrap();
    (bench, folder)
}

#[test]
fn a_device_error_is_failed_with_its_status_and_no_byte() {
    let (mut bench, _folder) = shortened(4, "");
    let batch = bench.submit(&[bench.read(0, 10 * BLOCK, BLOCK), bench.read(BLOCK, 3 * BLOCK, BLOCK)]);
    bench.run();
    assert_eq!(states(&batch), [Failed, Completed]);
    assert_eq!(batch.status(0).unwrap().transferred_bytes, 0);
    assert_eq!(batch.nvme_status(0).unwrap(), Some(StatusCode::UNRECOVERED_READ_ERROR.status()));
    assert_eq!(batch.nvme_status(1).unwrap(), None);
    assert_eq!(batch.overall(), BatchStatus { tasks: 2, ended: 2, unsuccessful: 1 });
    bench.check(BLOCK, BLOCK, 3);
    bench.close();
}

#[test]
fn of_a_joint_command_that_fails_only_the_bad_task_does() {
    let (mut bench, _folder) = shortened(4, "");
    // One command: blocks 0 to 7 into pages in reverse order.
    let requests: Vec<_> = (0..8).map(|block| bench.read((16 - block) * BLOCK, block * BLOCK, BLOCK)).collect();
    let before = bench.engine.counters().commands;
    let batch = bench.submit(&requests);
    bench.run();
    assert_eq!(states(&batch), [Completed, Completed, Completed, Completed, Failed, Failed, Failed, Failed]);
    assert_eq!(
        bench.engine.counters().commands - before,
        1 + 8 + 4 * AGAIN,
        "the joint one, then each alone, the bad ones again"
    );
    for block in 0..4 {
        bench.check((16 - block) * BLOCK, BLOCK, block);
    }
    bench.close();
}

/// The last part of a long task shares a command with the next task; when that fails the last part is what must be
/// asked for again, and not the first.
#[test]
fn a_long_task_whose_last_part_was_joined_is_asked_for_to_its_end() {
    for (kept, expected) in [(4, [Failed, Failed]), (5, [Completed, Failed]), (6, [Completed, Completed])] {
        let (mut bench, _folder) = shortened(kept, ",mdts=1");
        // Two blocks a command: blocks 0 and 1, 2 and 3, then 4 with the next task's 5.
        let batch = bench.submit(&[bench.read(0, 0, 5 * BLOCK), bench.read(16 * BLOCK, 5 * BLOCK, BLOCK)]);
        let before = bench.engine.counters();
        bench.run();
        let after = bench.engine.counters();
        let again = if kept < 6 { 2 + (6 - kept) * AGAIN } else { 0 };
        assert_eq!(after.commands - before.commands, 3 + again, "{kept} blocks");
        assert_eq!(after.bytes_read - before.bytes_read, (6 + again) * BLOCK, "{kept} blocks");
        assert_eq!(states(&batch), expected, "{kept} blocks");
        for block in 0..kept.min(5) {
            bench.check(block * BLOCK, BLOCK, block);
        }
        bench.close();
    }
}

#[test]
fn a_long_task_fails_once_whichever_part_does() {
    let (mut bench, _folder) = shortened(5, ",mdts=1");
    let batch = bench.submit(&[bench.read(0, 0, 12 * BLOCK), bench.read(16 * BLOCK, 2 * BLOCK, 2 * BLOCK)]);
    bench.run();
    assert_eq!(states(&batch), [Failed, Completed]);
    assert_eq!(batch.overall(), BatchStatus { tasks: 2, ended: 2, unsuccessful: 1 });
    bench.check(16 * BLOCK, BLOCK, 2);
    bench.check(17 * BLOCK, BLOCK, 3);
    bench.close();
}

/// More joint commands fail than there are slots.
#[test]
fn many_joint_commands_fail_at_once() {
    let (mut bench, _folder) = shortened(32, ",mdts=1");
    let pairs: Vec<u64> = (0..32).rev().collect();
    let requests: Vec<_> = pairs
        .iter()
        .flat_map(|pair| [2 * pair, 2 * pair + 1])
        .map(|block| bench.read((block ^ 1) * BLOCK, block * BLOCK, BLOCK))
        .collect();
    let batches: Vec<_> = (0..8).map(|_| bench.submit(&requests)).collect();
    bench.run();
    for batch in &batches {
        assert_eq!(batch.overall(), BatchStatus { tasks: 64, ended: 64, unsuccessful: 32 });
        for (request, state) in requests.iter().zip(states(batch)) {
            assert_eq!(state, if request.target_offset < 32 * BLOCK { Completed } else { Failed });
        }
    }
    for block in 0..32u64 {
        bench.check((block ^ 1) * BLOCK, BLOCK, block);
    }
    bench.close();
}

#[test]
fn a_segment_for_reading_only_takes_no_write() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    std::fs::write(&path, vec![7; 64 << 10]).unwrap();
    let mut bench = Bench::open(&file_uri(&path, "lba=512"), 8, 8192);
    assert!(!bench.engine.segments()[0].writable);
    let batch = bench.submit(&[bench.write(0, 0, 512), bench.read(4096, 1024, 512)]);
    assert_eq!(states(&batch)[0], Invalid, "before the lane has seen it");
    bench.run();
    assert_eq!(states(&batch), [Invalid, Completed]);
    assert!(!bench.is_touched(4096, 512, 7));
    assert_eq!(bench.engine.counters().writes, 0);
    bench.close();
    assert_eq!(std::fs::read(&path).unwrap(), vec![7; 64 << 10]);
}
