//! Who comes when: backlogs, several batches, batches that grow, and cancels.

use super::*;
use TransferState::{Canceled, Completed, Invalid, Pending};

const BLOCK: u64 = 4096;

/// Full queues are never a request's error.
#[test]
fn a_backlog_of_10_000_requests_at_a_depth_of_one() {
    let mut bench = Bench::open("model:size=64MiB", 2, 16 * BLOCK as usize);
    assert_eq!(bench.engine.info().depth, 1);
    let batch = bench.submit(&bench.descending(10_000));
    bench.run();
    assert_eq!(batch.overall(), BatchStatus { tasks: 10_000, ended: 10_000, unsuccessful: 0 });
    assert!(states(&batch).iter().all(|state| *state == Completed));
    assert_eq!(bench.engine.counters().commands, 10_000);
    bench.close();
}

#[test]
fn no_batch_starves() {
    for entries in [2, 5, 256] {
        let mut bench = Bench::open("model:size=64MiB", entries, 16 * BLOCK as usize);
        let requests = bench.descending(1000);
        // The first is far longer than the others.
        let long: Vec<_> = (0..10).flat_map(|_| requests.clone()).collect();
        let mut batches = vec![bench.submit(&long)];
        batches.extend((0..7).map(|_| bench.submit(&requests)));
        let mut most = 0;
        run_until(&mut bench.lane, |lane| {
            let ended: Vec<_> =
                batches.iter().map(|batch| batch.overall()).filter(|status| !status.is_finished()).collect();
            let ended = ended.iter().map(|status| status.ended);
            most = most.max(ended.clone().max().unwrap_or(0) - ended.min().unwrap_or(0));
            lane.is_idle()
        });
        // Each plans a quantum of 32 in its turn, so none is more than a few of them ahead, however deep the queue.
        assert!(most <= 64, "{entries} entries: one was {most} tasks ahead of another");
        bench.close();
    }
}

#[test]
fn a_batch_grows_in_flight_and_after_its_end() {
    let mut bench = Bench::open("model:size=64MiB", 4, 64 * BLOCK as usize);
    let batch = bench.submit(&bench.descending(40));
    for round in 1..20u32 {
        // In some rounds it has ended, in others it is in the middle.
        for _ in 0..round % 5 * 10 {
            bench.lane.turn();
        }
        let first = bench.engine.submit(&batch, &bench.descending(7)).unwrap();
        assert_eq!(first, 40 + (round - 1) * 7);
        assert!(!batch.overall().is_finished());
    }
    bench.run();
    assert_eq!(batch.overall(), BatchStatus { tasks: 173, ended: 173, unsuccessful: 0 });
    bench.engine.submit(&batch, &bench.descending(3)).unwrap();
    assert_eq!(batch.overall(), BatchStatus { tasks: 176, ended: 173, unsuccessful: 0 });
    bench.run();
    assert!(batch.overall().is_finished());
    assert_eq!(bench.engine.counters().commands, 176, "nothing is issued twice");
    bench.close();
}

#[test]
fn refused_requests_among_good_ones() {
    let mut bench = Bench::open("model:size=64MiB", 8, 16 * BLOCK as usize);
    let good = bench.read(0, BLOCK, BLOCK);
    let bad = Request { target_offset: 64 << 20, ..good };
    let batch = bench.submit(&[bad, good, bad, good, good, bad]);
    assert_eq!(states(&batch), [Invalid, Pending, Invalid, Pending, Pending, Invalid]);
    assert_eq!(batch.overall(), BatchStatus { tasks: 6, ended: 3, unsuccessful: 3 });
    bench.run();
    assert_eq!(states(&batch), [Invalid, Completed, Invalid, Completed, Completed, Invalid]);
    assert_eq!(batch.overall(), BatchStatus { tasks: 6, ended: 6, unsuccessful: 3 });
    let refusal = batch.refusal(2).unwrap().unwrap().to_string();
    assert_eq!(refusal, "target_offset 67108864 with length 4096 leaves the segment, which has 67108864 bytes");
    assert_eq!(batch.refusal(1).unwrap(), None);

    let all_bad = bench.submit(&[bad, bad]);
    assert!(all_bad.overall().is_finished(), "nothing of it waits for the lane");
    bench.run();
    assert_eq!(all_bad.overall(), BatchStatus { tasks: 2, ended: 2, unsuccessful: 2 });
    bench.close();
}

#[test]
fn a_cancel_before_the_lane_has_seen_it_stops_everything() {
    let mut bench = Bench::open("model:size=64MiB", 8, 16 * BLOCK as usize);
    bench.memory.view().fill(0xEE);
    let bad = Request { length: 1, ..bench.read(0, 0, BLOCK) };
    let mut requests = bench.descending(5);
    requests.push(bad);
    let batch = bench.submit(&requests);
    batch.cancel();
    assert_eq!(states(&batch)[0], Pending, "the lane cancels, at its next turn");
    bench.run();
    assert_eq!(states(&batch), [Canceled, Canceled, Canceled, Canceled, Canceled, Invalid]);
    assert_eq!(batch.overall(), BatchStatus { tasks: 6, ended: 6, unsuccessful: 6 });
    assert_eq!(bench.engine.counters().commands, 0);
    bench.engine.submit(&batch, &bench.descending(2)).unwrap();
    bench.run();
    assert_eq!(states(&batch)[6..], [Canceled, Canceled], "what is submitted later is given up too");
    assert!(!bench.is_touched(0, 16 * BLOCK, 0xEE));
    bench.close();
}

#[test]
fn a_cancel_leaves_what_was_issued_to_its_end() {
    let mut bench = Bench::open("model:size=64MiB,mdts=1", 5, 64 * BLOCK as usize);
    // Two blocks a command, so the first task has six commands, and four slots.
    bench.fill(0, 12 * BLOCK, 5);
    let written = bench.submit(&[bench.write(0, 0, 12 * BLOCK)]);
    bench.run();
    assert!(written.overall().is_finished());
    bench.memory.view().fill(0xEE);
    let batch = bench.submit(&[bench.read(0, 0, 12 * BLOCK), bench.read(32 * BLOCK, 20 * BLOCK, BLOCK)]);
    bench.lane.turn();
    batch.cancel();
    bench.run();
    assert_eq!(states(&batch), [Completed, Canceled]);
    assert_eq!(batch.status(0).unwrap(), TransferStatus { state: Completed, transferred_bytes: 12 * BLOCK });
    bench.check(0, 12 * BLOCK, 5);
    assert!(!bench.is_touched(32 * BLOCK, BLOCK, 0xEE));
    bench.close();
}

#[test]
fn a_flush_is_a_task_like_any_other() {
    let mut bench = Bench::open("model:size=64MiB", 8, 16 * BLOCK as usize);
    let batch = bench.submit(&[bench.write(0, 0, BLOCK)]);
    let flush = bench.engine.submit_flush(&batch, SegmentId(1)).unwrap();
    let unknown = bench.engine.submit_flush(&batch, SegmentId(2)).unwrap();
    bench.run();
    assert_eq!(states(&batch), [Completed, Completed, Invalid]);
    assert_eq!(batch.status(flush).unwrap().transferred_bytes, 0);
    let refusal = batch.refusal(unknown).unwrap().unwrap().to_string();
    assert_eq!(refusal, "target_id 2 is no open segment");
    assert_eq!(bench.engine.counters().flushes, 1);
    bench.close();
}

#[test]
fn an_object_over_shuffled_pages_is_one_sqe() {
    let mut bench = Bench::open("model:size=64MiB", 8, 4 << 20);
    let page = 32 << 10;
    let scattered = |part: u64| part * 37 % 64 * page;
    for part in 0..64 {
        bench.fill(scattered(part), page, part);
    }
    let write: Vec<_> = (0..64).map(|part| bench.write(scattered(part), (8 << 20) + part * page, page)).collect();
    bench.submit(&write);
    bench.run();
    assert_eq!(bench.engine.counters().commands, 1);
    bench.memory.view().fill(0xEE);
    let other = |part: u64| (part * 11 + 5) % 64 * page;
    let read: Vec<_> = (0..64).map(|part| bench.read(other(part), (8 << 20) + part * page, page)).collect();
    bench.submit(&read);
    bench.run();
    let model = bench.engine.model_counters().unwrap();
    assert_eq!((model.io_sqes, model.read_bytes, model.write_bytes), (2, 2 << 20, 2 << 20));
    for part in 0..64 {
        bench.check(other(part), page, part);
    }
    bench.close();
}
